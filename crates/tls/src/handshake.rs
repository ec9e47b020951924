//! A handshake, made by rustls, and how it ends: as [`Records`], or as [`Legacy`] with a peer that speaks TLS 1.2.

use rustls::kernel::KernelConnection;
use rustls::unbuffered::{ConnectionState, UnbufferedStatus};
use rustls::{AlertDescription, Error, HandshakeKind, PeerIncompatible, ProtocolVersion};

use crate::alert::{Alert, Fault};
use crate::encoding::{Encoded, take_alert, write};
use crate::end::End;
use crate::header::{HEADER, Header, NO_RECORD, RECORD_MAX};
use crate::legacy::Legacy;
use crate::records::{ALERT, HANDSHAKE, PLAIN_MAX, Records};
use crate::secrets::Traffic;
use crate::suite::{Suite, key_and_nonce};

/// Bytes of records that wait for the rest of their message. Chains of certificates are the longest messages, of some 10 KB.
const WAITING_MAX: usize = 4 * RECORD_MAX;

/// The same for a client's hello, which anybody may send: those that fit in one record. Hellos of browsers have some 2 KB with a post-quantum
/// key share, and tickets and many names of protocols make 4 KB of it.
const HELLO_MAX: usize = HEADER + PLAIN_MAX;

/// The type of a client's first message.
const CLIENT_HELLO: u8 = 1;

const NO_KEY_SHARE: Error = Error::PeerIncompatible(PeerIncompatible::KeyShareExtensionRequired);

/// A connection until its keys are known. It costs some 3 KB, so its owner bounds how many there are, and for how long.
pub struct Handshake<E> {
    connection: Box<E>,
    /// Records that rustls has not taken: their message continues in the next one.
    waiting: Vec<u8>,
    traffic: Traffic,
    /// Whether this end has said something: what it says then may have to be encrypted.
    has_spoken: bool,
}

/// A handshake that goes on, or the connection that it made.
pub enum Progress<E: End> {
    /// The next record is needed.
    Continues(Handshake<E>),
    /// The keys are known.
    Ends(Box<Established<E>>),
}

/// A connection whose handshake has ended.
pub struct Established<E: End> {
    /// What protects it from now on.
    pub protection: Protection<E>,
    /// The protocol that both ends chose (RFC 7301).
    pub alpn: Option<Vec<u8>>,
    /// The peer's certificates in DER, its own first. Empty without any.
    pub certificates: Vec<Vec<u8>>,
    /// Whether a ticket spared the signature.
    pub is_resumed: bool,
}

/// What protects a connection behind its handshake.
#[expect(
    clippy::large_enum_variant,
    reason = "moved once in a connection's life, out of a box"
)]
pub enum Protection<E: End> {
    /// TLS 1.3.
    Records {
        /// Seals and opens everything from now on.
        records: Records,
        /// What a client needs to keep the tickets that come, at 0.8 KB. A server drops it.
        tickets: KernelConnection<E::Data>,
    },
    /// TLS 1.2, for which rustls stays.
    Legacy(Legacy<E>),
}

/// Why a handshake failed. The alert for the peer, if one can be written, is behind the other answers already.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeFailed {
    /// The peer sent something else than a handshake, or one that we do not accept.
    #[error(transparent)]
    Refused(#[from] rustls::Error),
    /// A message of the peer does not end, or its record is too long (RFC 8446, 5.1).
    #[error(
        "a hello has more than {HELLO_MAX} bytes, another message of the handshake more than {WAITING_MAX}, or a record more than {PLAIN_MAX}"
    )]
    TooLong,
    /// The peer closed before the end.
    #[error("the peer closed during the handshake")]
    Closed,
    /// A message begins in the record of the last one. Its rest would be under another key (RFC 8446, 5.1).
    #[error("a message begins behind the handshake's last one, in its record")]
    Trailing,
    /// The configuration has another log of keys than [`Secrets`](crate::Secrets), or does not allow secrets to be extracted. Or the
    /// secrets are not those that rustls uses: then going on would send what nobody reads.
    #[error("the keys of a handshake could not be taken over")]
    Keys,
}

impl<E: End> Handshake<E> {
    /// Begins a handshake, and writes what this end says first behind what is in `answers`.
    ///
    /// The configuration of `connection` needs [`Secrets`](crate::Secrets) as its `key_log`, and `enable_secret_extraction`. It allows
    /// no early data: a record of it could be played twice (RFC 8446, 8).
    ///
    /// # Errors
    ///
    /// A configuration that rustls refuses.
    pub fn new(connection: E, answers: &mut Vec<u8>) -> Result<Self, HandshakeFailed> {
        let mut handshake = Self {
            connection: Box::new(connection),
            waiting: Vec::new(),
            traffic: Traffic::default(),
            has_spoken: false,
        };
        handshake.process(answers)?;
        Ok(handshake)
    }

    /// Bytes of the first whole record in `input`: nothing before it has come.
    ///
    /// # Errors
    ///
    /// Bytes that are no record, for example a request of HTTP without TLS.
    pub fn record(input: &[u8]) -> Result<Option<usize>, Fault> {
        let whole = Header::read(input)?.map(Header::whole);
        Ok(whole.filter(|whole| input.len() >= *whole))
    }

    /// Whether this end may sign for the record at the start of `input`. A server signs for a hello, which may come in several records, and
    /// twice if it has to be asked for another key share (RFC 8446, 4.1.4).
    pub fn may_sign(&self, input: &[u8]) -> bool {
        !self.has_spoken || self.is_of_hello(input)
    }

    /// Whether a record begins a `ClientHello`, or goes on with one.
    fn is_of_hello(&self, record: &[u8]) -> bool {
        let first = match self.waiting.is_empty() {
            true => record,
            false => &self.waiting,
        };
        matches!(*first, [HANDSHAKE, _, _, _, _, CLIENT_HELLO, ..])
    }

    fn is_hello_too_long(&self, record: &[u8]) -> bool {
        // Behind our first message, bytes that look like the head of a hello may be those of a protected record, and in a second record those
        // of the middle of a hello.
        let may_begin = !self.has_spoken && self.waiting.is_empty();
        let announced = match *record {
            [HANDSHAKE, _, _, _, _, CLIENT_HELLO, high, middle, low, ..] if may_begin => {
                HEADER + 4 + u32::from_be_bytes([0, high, middle, low]) as usize
            }
            _ => 0,
        };
        self.may_sign(record) && (self.waiting.len() + record.len()).max(announced) > HELLO_MAX
    }

    /// Bytes of records that wait for the rest of their message, with the memory around them.
    pub fn waiting_bytes(&self) -> usize {
        self.waiting.capacity()
    }

    /// Takes one whole record of the peer, and writes answers behind what is in `answers`.
    ///
    /// One record, because of rustls: to a `KeyUpdate` that follows the peer's `Finished` in one buffer it makes an answer that nobody
    /// would send, and changes its key.
    ///
    /// # Errors
    ///
    /// The end of the connection, once `answers` have left.
    pub fn receive(
        mut self,
        record: &[u8],
        answers: &mut Vec<u8>,
    ) -> Result<Progress<E>, HandshakeFailed> {
        debug_assert_eq!(
            Self::record(record),
            Ok(Some(record.len())),
            "one whole record"
        );
        if is_close_notify(record) {
            return Err(HandshakeFailed::Closed);
        }
        if !self.has_spoken && record.len() > HEADER + PLAIN_MAX {
            Alert::RECORD_OVERFLOW.write(answers);
            return Err(HandshakeFailed::TooLong);
        }
        if self.is_hello_too_long(record) {
            // RFC 8446 has no alert for a message that is longer than we want. OpenSSL and BoringSSL send this one.
            Alert::ILLEGAL_PARAMETER.write(answers);
            return Err(HandshakeFailed::TooLong);
        }
        if self.waiting.len() + record.len() > WAITING_MAX {
            self.take_alert(answers);
            return Err(HandshakeFailed::TooLong);
        }
        self.waiting.extend_from_slice(record);
        match self.process(answers) {
            Ok(true) => self
                .take_over()
                .map(|established| Progress::Ends(Box::new(established))),
            Ok(false) => Ok(Progress::Continues(self)),
            // The peer has given up, and listens to nothing (RFC 8446, 6.2). rustls has an alert for some of these.
            Err(HandshakeFailed::Refused(Error::AlertReceived(AlertDescription::CloseNotify))) => {
                Err(HandshakeFailed::Closed)
            }
            Err(failed @ HandshakeFailed::Refused(Error::AlertReceived(_))) => Err(failed),
            // A hello of TLS 1.3 must have it (RFC 8446, 9.2). rustls says `handshake_failure`.
            Err(failed @ HandshakeFailed::Refused(NO_KEY_SHARE)) => {
                Alert::MISSING_EXTENSION.write(answers);
                Err(failed)
            }
            // rustls has one alert for both versions. That of TLS 1.3, `certificate_required`, does not exist in TLS 1.2 (RFC 5246, 7.4.6).
            Err(failed @ HandshakeFailed::Refused(Error::NoCertificatesPresented))
                if !self.is_modern() =>
            {
                Alert::HANDSHAKE_FAILURE.write(answers);
                Err(failed)
            }
            Err(failed) => {
                self.take_alert(answers);
                Err(failed)
            }
        }
    }

    fn is_modern(&self) -> bool {
        self.connection.state().protocol_version() == Some(ProtocolVersion::TLSv1_3)
    }

    /// Ends the handshake because of bytes that are no record, and writes the alert.
    ///
    /// Once this end has spoken, the alert may have to be protected, and rustls has the keys. So rustls gets bytes that are no record, and
    /// writes its `decode_error`.
    pub fn refuse(mut self, fault: Fault, answers: &mut Vec<u8>) {
        if self.has_spoken {
            self.waiting = NO_RECORD.to_vec();
            // It fails, which is known already.
            let _ = self.process(answers);
            self.take_alert(answers);
        } else {
            fault.alert().write(answers);
        }
    }

    /// Lets rustls work on what waits. True when application data may be sent: the handshake has ended.
    fn process(&mut self, answers: &mut Vec<u8>) -> Result<bool, HandshakeFailed> {
        loop {
            Traffic::listen();
            let UnbufferedStatus { discard, state } = self.connection.process(&mut self.waiting);
            self.traffic.hear();
            let step = match state {
                Ok(ConnectionState::EncodeTlsData(mut message)) => {
                    write(answers, |room| Encoded::from(message.encode(room)));
                    self.has_spoken = true;
                    Ok(None)
                }
                Ok(ConnectionState::TransmitTlsData(message)) => {
                    message.done();
                    Ok(None)
                }
                Ok(ConnectionState::BlockedHandshake) => Ok(Some(false)),
                Ok(ConnectionState::WriteTraffic(_)) => Ok(Some(true)),
                Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => {
                    Err(HandshakeFailed::Closed)
                }
                // Data before the end of a handshake, which no configuration of ours allows.
                Ok(_) => Err(HandshakeFailed::Keys),
                Err(error) => Err(error.into()),
            };
            self.waiting.drain(..discard);
            if self.waiting.is_empty() {
                self.waiting = Vec::new();
            }
            if let Some(has_ended) = step? {
                return Ok(has_ended);
            }
        }
    }

    fn take_alert(&mut self, answers: &mut Vec<u8>) {
        let start = answers.len();
        take_alert(&mut *self.connection, answers);
        // rustls queues none about a message whose length is wrong.
        if answers.len() == start && !self.has_spoken {
            Alert::DECODE_ERROR.write(answers);
        }
    }

    fn take_over(self) -> Result<Established<E>, HandshakeFailed> {
        let is_modern = self.is_modern();
        let state = self.connection.state();
        let alpn = state.alpn_protocol().map(<[u8]>::to_vec);
        let certificates = state
            .peer_certificates()
            .unwrap_or_default()
            .iter()
            .map(|each| each.to_vec())
            .collect();
        let is_resumed = matches!(state.handshake_kind(), Some(HandshakeKind::Resumed));
        if !self.waiting.is_empty() {
            return Err(HandshakeFailed::Trailing);
        }
        let protection = if is_modern {
            records(*self.connection, &self.traffic).ok_or(HandshakeFailed::Keys)?
        } else {
            Protection::Legacy(Legacy::new(self.connection))
        };
        Ok(Established {
            protection,
            alpn,
            certificates,
            is_resumed,
        })
    }
}

/// Whether a record is a `close_notify` without protection. rustls ignores it before a handshake has ended, and the connection would wait
/// for its deadline. An attacker who forges it could forge a reset instead.
fn is_close_notify(record: &[u8]) -> bool {
    matches!(*record, [ALERT, _, _, 0, 2, _, description] if Alert(description) == Alert::CLOSE_NOTIFY)
}

/// Makes the record stage of the secrets that were heard, if they give the keys that rustls extracts.
fn records<E: End>(connection: E, traffic: &Traffic) -> Option<Protection<E>> {
    let suite = Suite::of(connection.state().negotiated_cipher_suite()?.suite())?;
    let (extracted, tickets) = connection.into_secrets().ok()?;
    let (read, write) = E::SIDE.secrets(traffic)?;
    let (rx, tx) = (&extracted.rx, &extracted.tx);
    let records = Records::new(E::SIDE, suite, (read, rx.0), (write, tx.0)).ok()?;
    let is_same = records.has_keys(key_and_nonce(&rx.1)?, key_and_nonce(&tx.1)?);
    is_same.then_some(Protection::Records { records, tickets })
}
