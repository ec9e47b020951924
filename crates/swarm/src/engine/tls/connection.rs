//! The TLS of one connection: ciphertext and plaintext, in and out. No socket.
//!
//! * **in**: [`Connection::receive`] takes what came from the socket, and appends the plaintext of all whole records;
//! * **out**: [`Connection::encrypt`] and [`Connection::close_notify`] append ciphertext. What the protocol itself has to send
//!   is in `output`: parts of the handshake, answers to key updates, alerts.
//!
//! An idle connection keeps nothing beside what rustls needs: a record that has not come whole and ciphertext that is not sent
//! have memory for as long as they exist.

use std::sync::Arc;
use tokio_rustls::rustls::client::UnbufferedClientConnection;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, EncryptError, UnbufferedStatus, WriteTraffic,
};
use tokio_rustls::rustls::{ClientConfig, Error, HandshakeKind, ProtocolVersion};

/// A record has at most this much more than its plaintext: header, explicit nonce, type and tag. The rest is room for padding,
/// which nobody adds here.
const RECORD_BYTES_MORE: usize = 64;

/// Largest plaintext of a record (RFC 8446, section 5.1).
const RECORD_BYTES_MAX: usize = 1 << 14;

/// One connection.
pub(super) struct Connection {
    tls: UnbufferedClientConnection,
    /// The beginning of a record, or of a message of the handshake, that has not come whole.
    input: Vec<u8>,
    /// It cannot go on.
    is_failed: bool,
    /// Ciphertext that the socket has not taken.
    pub(super) output: Vec<u8>,
}

/// What a piece of input amounts to, beside its plaintext.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Received {
    /// Plaintext may be sent.
    pub is_established: bool,
    /// The peer has said that it sends no more.
    pub is_closed: bool,
}

impl Connection {
    /// Begins a handshake: the first message is in `output`.
    pub(super) fn new(config: Arc<ClientConfig>, name: ServerName<'static>) -> Result<Self, Error> {
        let mut connection = Self {
            tls: UnbufferedClientConnection::new(config, name)?,
            input: Vec::new(),
            is_failed: false,
            output: Vec::new(),
        };
        connection.receive(&mut [], &mut Vec::new())?;
        Ok(connection)
    }

    /// Whether the handshake was an abbreviated one.
    pub(super) fn is_resumed(&self) -> bool {
        self.tls.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// Whether the peer speaks TLS 1.2.
    pub(super) fn is_tls12(&self) -> bool {
        self.tls.protocol_version() == Some(ProtocolVersion::TLSv1_2)
    }

    /// Bytes of a record that has not come whole.
    pub(super) fn incomplete_bytes(&self) -> usize {
        self.input.len()
    }

    /// Memory for what is incomplete or unsent.
    #[cfg(test)]
    pub(super) fn buffer_bytes(&self) -> usize {
        self.input.capacity() + self.output.capacity()
    }

    /// Takes ciphertext in its order, and appends what it says to `plain`. It is changed in place.
    ///
    /// # Errors
    /// The connection cannot go on. `output` then ends with the alert for the peer.
    pub(super) fn receive(
        &mut self,
        ciphertext: &mut [u8],
        plain: &mut Vec<u8>,
    ) -> Result<Received, Error> {
        if self.input.is_empty() {
            let (taken, received) = self.process(ciphertext, plain);
            // A connection that has failed, or whose peer has closed, reads no more.
            if matches!(received, Ok(received) if !received.is_closed) {
                self.input.extend_from_slice(&ciphertext[taken..]);
            }
            return received;
        }
        let mut input = std::mem::take(&mut self.input);
        input.extend_from_slice(ciphertext);
        let (taken, received) = self.process(&mut input, plain);
        if matches!(received, Ok(received) if !received.is_closed) && taken < input.len() {
            input.drain(..taken);
            self.input = input;
        }
        received
    }

    /// Has rustls read until it needs more. Returns how many bytes it is done with.
    fn process(
        &mut self,
        input: &mut [u8],
        plain: &mut Vec<u8>,
    ) -> (usize, Result<Received, Error>) {
        let mut taken = 0;
        let mut received = Received {
            is_established: false,
            is_closed: false,
        };
        let error = loop {
            let UnbufferedStatus { mut discard, state } =
                self.tls.process_tls_records(&mut input[taken..]);
            let mut is_done = false;
            match state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(record) = traffic.next_record() {
                        match record {
                            Ok(record) => {
                                discard += record.discard;
                                plain.extend_from_slice(record.payload);
                            }
                            Err(error) => return (taken, Err(error)),
                        }
                    }
                }
                Ok(ConnectionState::EncodeTlsData(data)) => encode(data, &mut self.output),
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(ConnectionState::PeerClosed) => received.is_closed = true,
                Ok(ConnectionState::WriteTraffic(_)) => {
                    received.is_established = true;
                    is_done = true;
                }
                // Blocked, or closed by both sides.
                Ok(_) => is_done = true,
                Err(error) => break error,
            }
            taken += discard;
            if is_done {
                return (taken, Ok(received));
            }
        };
        self.is_failed = true;
        self.take_alert();
        (taken, Err(error))
    }

    /// Takes what rustls has to say after an error. It must not read any more, so it is asked only while it has something.
    fn take_alert(&mut self) {
        while self.tls.wants_write() {
            match self.tls.process_tls_records(&mut []).state {
                Ok(ConnectionState::EncodeTlsData(data)) => encode(data, &mut self.output),
                _ => return,
            }
        }
    }

    /// Appends records with this plaintext to `out`, behind what the protocol has to send before.
    ///
    /// # Errors
    /// The connection cannot go on: its keys are used up, or it is not established.
    pub(super) fn encrypt(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        let records = plain.len().div_ceil(RECORD_BYTES_MAX);
        let needed = plain.len() + records * RECORD_BYTES_MORE;
        self.write(needed, out, |traffic, room| traffic.encrypt(plain, room))
    }

    /// Appends the record that says that nothing more will be sent.
    ///
    /// # Errors
    /// As [`Self::encrypt`].
    pub(super) fn close_notify(&mut self, out: &mut Vec<u8>) -> Result<(), Error> {
        self.write(RECORD_BYTES_MORE, out, |traffic, room| {
            traffic.queue_close_notify(room)
        })
    }

    /// Appends what `write` makes of so much room.
    fn write<F>(&mut self, needed: usize, out: &mut Vec<u8>, mut write: F) -> Result<(), Error>
    where
        F: FnMut(&mut WriteTraffic<'_, ClientSide>, &mut [u8]) -> Result<usize, EncryptError>,
    {
        if self.is_failed {
            return Err(Error::HandshakeNotComplete);
        }
        loop {
            // What is incomplete stays so. But rustls may remember where in it a message begins.
            match self.tls.process_tls_records(&mut self.input).state? {
                ConnectionState::EncodeTlsData(data) => encode(data, out),
                ConnectionState::TransmitTlsData(data) => data.done(),
                ConnectionState::PeerClosed => {}
                ConnectionState::WriteTraffic(mut traffic) => {
                    let at = out.len();
                    out.resize(at + needed, 0);
                    let mut written = write(&mut traffic, &mut out[at..]);
                    if let Err(EncryptError::InsufficientSize(size)) = &written {
                        out.resize(at + size.required_size, 0);
                        written = write(&mut traffic, &mut out[at..]);
                    }
                    out.truncate(at + written.as_ref().map_or(0, |bytes| *bytes));
                    return match written {
                        Ok(_) => Ok(()),
                        Err(_) => Err(Error::EncryptError),
                    };
                }
                _ => return Err(Error::HandshakeNotComplete),
            }
        }
    }
}

type ClientSide = tokio_rustls::rustls::client::ClientConnectionData;

/// Appends a message of the protocol itself.
fn encode(mut data: EncodeTlsData<'_, ClientSide>, out: &mut Vec<u8>) {
    let at = out.len();
    // The message's size is known by asking for no room.
    if let Err(EncodeError::InsufficientSize(size)) = data.encode(&mut []) {
        out.resize(at + size.required_size, 0);
        let written = data.encode(&mut out[at..]);
        written.expect("it has the room that it asked for");
    }
}
