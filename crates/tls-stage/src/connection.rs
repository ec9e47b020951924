//! The TLS of one connection of a server: ciphertext and plaintext, in and out. No socket.
//!
//! * **in**: [`Connection::receive`] opens what came from the socket; before the handshake's end [`Connection::add_input`] keeps it,
//!   and [`Connection::step`] takes one record of it;
//! * **out**: [`Connection::seal`] writes records. Messages of the protocol itself wait in [`Connection::output`]: parts of the
//!   handshake, answers to key updates, alerts, and what the socket did not take.
//!
//! An idle connection of TLS 1.3 keeps its record state alone. Buffers exist for as long as they hold something. The user
//! whom a client's certificate names is such a thing.

use crate::{CHALLENGE, Offer, ReadUser};
use myriad_tls::{
    Alert, Channel, ChannelFailed, Content, Established, Fault, Handshake, HandshakeFailed,
    Progress,
};
use rustls::server::UnbufferedServerConnection;
use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;

type Server = UnbufferedServerConnection;

/// One connection. Plain data but for a connection of TLS 1.2, so it can change its owner.
#[derive(Default)]
pub struct Connection {
    stage: Stage,
    buffers: Option<Box<Buffers>>,
}

// What an idle connection with TLS costs beside its place in the stage.
const _: () = assert!(size_of::<Connection>() <= 224);

#[derive(Default)]
enum Stage {
    /// Nothing of its handshake has been read.
    #[default]
    Fresh,
    Handshaking {
        handshake: Box<Handshake<Server>>,
        /// Of the offer that verifies the certificate: another one may be in force at the end.
        read_user: Option<ReadUser>,
    },
    Open(Channel<Server>),
    /// It cannot go on, or the peer has ended it.
    Ended,
}

#[derive(Default)]
struct Buffers {
    /// Records of a handshake that wait for their turn, or the beginning of a record that has not come whole.
    input: Vec<u8>,
    /// Ciphertext that the socket has not taken.
    output: Vec<u8>,
    /// Whom the peer's certificate names. Most connections have none, so it does not stand in [`Connection`].
    user: Option<Arc<str>>,
}

/// Why a connection cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionFailed {
    /// The handshake failed.
    #[error(transparent)]
    Handshake(#[from] HandshakeFailed),
    /// The handshake failed at a certificate of the peer that [`note_certificate`] has described.
    #[error("{whose}: {error}")]
    Certificate {
        /// What is wrong with it.
        error: rustls::Error,
        /// Whose it is.
        whose: String,
    },
    /// What came is no record.
    #[error(transparent)]
    Record(#[from] Fault),
    /// The peer broke a rule behind its handshake.
    #[error(transparent)]
    Channel(#[from] ChannelFailed),
    /// The peer said that it cannot go on.
    #[error("the peer gave up with alert {}", .0.0)]
    Alert(Alert),
    /// The connection has ended before.
    #[error("the connection has ended")]
    Over,
}

thread_local! {
    /// The last certificate that a verifier refused here. [`Connection::step`] runs the verifier on its own thread, and takes this at once.
    static REFUSED_CERTIFICATE: Cell<Option<(String, rustls::Error)>> = const { Cell::new(None) };
}

/// Describes a certificate that is about to be refused. Verifiers call this, because the error of rustls does not say whose certificate it is.
///
/// `error` is what is wrong with it, for the log. The verifier's answer to rustls may be another one, which chooses another alert.
pub fn note_certificate(whose: String, error: rustls::Error) {
    REFUSED_CERTIFICATE.set(Some((whose, error)));
}

impl ConnectionFailed {
    fn with_certificate(self) -> Self {
        match (REFUSED_CERTIFICATE.take(), self) {
            (Some((whose, error)), Self::Handshake(HandshakeFailed::Refused(_))) => {
                Self::Certificate { error, whose }
            }
            (_, failed) => failed,
        }
    }
}

/// How far a connection's handshake has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The rest of a record has to come.
    Starved,
    /// A whole record was taken.
    Taken,
    /// The handshake is over.
    Established {
        /// A ticket spared the signature.
        is_resumed: bool,
    },
    /// The handshake of an authority is over, and with it the connection. The output ends with our `close_notify`.
    Answered,
}

/// What a piece of input amounts to.
#[derive(Debug)]
pub struct Received {
    /// Where its plaintext is. Empty where it has none.
    pub plain: Range<usize>,
    /// The peer has said that it sends no more.
    pub is_closed: bool,
    /// Why the connection cannot go on. The output ends with the alert for the peer.
    pub failed: Option<ConnectionFailed>,
}

/// What whole records at the start of some bytes amount to.
struct Open {
    /// Their bytes.
    taken: usize,
    /// Bytes of plaintext, which stand at the start now.
    written: usize,
    is_closed: bool,
    failed: Option<ConnectionFailed>,
}

impl Connection {
    /// Whether the handshake has not ended.
    #[must_use]
    pub fn is_handshaking(&self) -> bool {
        matches!(self.stage, Stage::Fresh | Stage::Handshaking { .. })
    }

    /// Whether nothing of the handshake has been read.
    #[must_use]
    pub fn is_fresh(&self) -> bool {
        matches!(self.stage, Stage::Fresh)
    }

    /// Whether the connection has failed, or the peer has ended it.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Ended)
    }

    /// Whether the peer has said that it sends no more, and may still read.
    #[must_use]
    pub fn is_read_closed(&self) -> bool {
        matches!(&self.stage, Stage::Open(channel) if channel.is_read_closed())
    }

    /// Whether the peer speaks TLS 1.2.
    #[must_use]
    pub fn is_legacy(&self) -> bool {
        matches!(&self.stage, Stage::Open(channel) if channel.is_legacy())
    }

    /// Records of a handshake that wait, or a record that has not come whole.
    #[must_use]
    pub fn input(&self) -> &[u8] {
        self.buffers.as_ref().map_or(&[], |buffers| &buffers.input)
    }

    /// Whether [`Connection::step`] has something to do.
    #[must_use]
    pub fn has_step(&self) -> bool {
        self.is_handshaking() && !matches!(Handshake::<Server>::record(self.input()), Ok(None))
    }

    /// Whether the next step may make a signature, which takes longer than all else in a handshake.
    pub(crate) fn may_sign(&self) -> bool {
        match &self.stage {
            Stage::Fresh => true,
            Stage::Handshaking { handshake, .. } => handshake.may_sign(self.input()),
            Stage::Open(_) | Stage::Ended => false,
        }
    }

    /// Bytes of memory that it has for input and output: nothing while no record is under way. Not counted is what the handshake itself
    /// needs, which is the same for everybody.
    #[must_use]
    pub fn buffered_bytes(&self) -> usize {
        let buffers = self.buffers.as_ref();
        self.input_bytes() + buffers.map_or(0, |it| it.output.capacity())
    }

    /// Those of them for input.
    pub(crate) fn input_bytes(&self) -> usize {
        let buffers = self.buffers.as_ref();
        let input = buffers.map_or(0, |it| it.input.capacity());
        match &self.stage {
            Stage::Handshaking { handshake, .. } => input + handshake.waiting_bytes(),
            _ => input,
        }
    }

    /// Keeps bytes of a handshake.
    pub fn add_input(&mut self, bytes: &[u8]) {
        self.buffering(|buffers| buffers.input.extend_from_slice(bytes));
    }

    /// Takes bytes from the front of the input that are not TLS.
    pub fn skip_input(&mut self, count: usize) {
        self.buffering(|buffers| drop(buffers.input.drain(..count)));
    }

    /// Ciphertext that the socket has not taken.
    #[must_use]
    pub fn output(&self) -> &[u8] {
        self.buffers.as_ref().map_or(&[], |buffers| &buffers.output)
    }

    /// The user whom the peer's certificate names, if the offer of its handshake asked for that.
    #[must_use]
    pub fn user(&self) -> Option<&Arc<str>> {
        self.buffers.as_ref()?.user.as_ref()
    }

    /// Keeps ciphertext that the socket did not take, or an answer that is no TLS.
    pub fn keep_output(&mut self, bytes: &[u8]) {
        self.buffering(|buffers| buffers.output.extend_from_slice(bytes));
    }

    /// Appends the output to `out`, which sends it from now on.
    pub fn move_output(&mut self, out: &mut Vec<u8>) {
        self.buffering(|buffers| out.append(&mut buffers.output));
    }

    /// The socket took so many bytes of the output.
    pub fn note_sent(&mut self, count: usize) {
        self.buffering(|buffers| drop(buffers.output.drain(..count)));
    }

    /// Ends the connection: nothing of it is opened or sealed any more, and its keys are wiped. Its output stays.
    pub fn end(&mut self) {
        self.stage = Stage::Ended;
        self.buffering(|buffers| buffers.input = Vec::new());
    }

    /// The connection, for another place. This place is wiped: after a move alone its bytes would still be the keys, for as long as nobody
    /// else needs the memory.
    #[must_use]
    pub fn take_out(&mut self) -> Self {
        let stage = match &self.stage {
            Stage::Open(Channel::Records(records)) => {
                Stage::Open(Channel::Records(records.clone()))
            }
            _ => std::mem::take(&mut self.stage),
        };
        // Records are dropped where they were, and that wipes them.
        self.stage = Stage::Ended;
        Self {
            stage,
            buffers: self.buffers.take(),
        }
    }

    /// Lets `change` change the buffers, which exist while one of them has something.
    fn buffering<T>(&mut self, change: impl FnOnce(&mut Buffers) -> T) -> T {
        let mut buffers = self.take_buffers();
        let result = change(&mut buffers);
        self.put_buffers(buffers);
        result
    }

    /// The buffers, on the stack: most messages come and go whole, and need no memory. A connection with a user has its box freed and made
    /// again each time.
    fn take_buffers(&mut self) -> Buffers {
        self.buffers
            .take()
            .map(|buffers| *buffers)
            .unwrap_or_default()
    }

    fn put_buffers(&mut self, mut buffers: Buffers) {
        for emptied in [&mut buffers.input, &mut buffers.output] {
            if emptied.is_empty() {
                *emptied = Vec::new();
            }
        }
        if !buffers.input.is_empty() || !buffers.output.is_empty() || buffers.user.is_some() {
            self.buffers = Some(Box::new(buffers));
        }
    }

    /// Goes on with the handshake by one record of the input. `offer` is for a connection whose handshake begins.
    ///
    /// # Errors
    /// The handshake failed. The output ends with the alert for the peer.
    pub fn step(&mut self, offer: &Offer) -> Result<Step, ConnectionFailed> {
        let mut buffers = self.take_buffers();
        let result = self.take_step(&mut buffers, offer);
        let result = result.map_err(ConnectionFailed::with_certificate);
        if matches!(result, Ok(Step::Answered) | Err(_)) {
            self.stage = Stage::Ended;
            buffers.input = Vec::new();
        }
        self.put_buffers(buffers);
        result
    }

    fn take_step(
        &mut self,
        buffers: &mut Buffers,
        offer: &Offer,
    ) -> Result<Step, ConnectionFailed> {
        let whole = match Handshake::<Server>::record(&buffers.input) {
            Ok(Some(whole)) => whole,
            Ok(None) => return Ok(Step::Starved),
            Err(fault) => {
                match std::mem::replace(&mut self.stage, Stage::Ended) {
                    Stage::Handshaking { handshake, .. } => {
                        handshake.refuse(fault, &mut buffers.output)
                    }
                    _ => fault.alert().write(&mut buffers.output),
                }
                return Err(fault.into());
            }
        };
        let output = &mut buffers.output;
        let (handshake, read_user) = match std::mem::replace(&mut self.stage, Stage::Ended) {
            Stage::Fresh => {
                let config = Arc::clone(offer.config_for(&buffers.input[..whole]));
                let server = Server::new(config).map_err(HandshakeFailed::from)?;
                (Handshake::new(server, output)?, offer.read_user)
            }
            Stage::Handshaking {
                handshake,
                read_user,
            } => (*handshake, read_user),
            Stage::Open(_) | Stage::Ended => return Err(ConnectionFailed::Over),
        };
        let progress = handshake.receive(&buffers.input[..whole], output);
        buffers.input.drain(..whole);
        Ok(match progress? {
            Progress::Continues(handshake) => {
                let handshake = Box::new(handshake);
                self.stage = Stage::Handshaking {
                    handshake,
                    read_user,
                };
                Step::Taken
            }
            Progress::Ends(established) => {
                let certificate = established.certificates.first();
                buffers.user = certificate.and_then(|der| read_user?(der));
                self.establish(established, output)
            }
        })
    }

    fn establish(&mut self, established: Box<Established<Server>>, output: &mut Vec<u8>) -> Step {
        let is_resumed = established.is_resumed;
        let is_challenge = established.alpn.as_deref() == Some(CHALLENGE);
        let (mut channel, _) = established.into_channel();
        if is_challenge {
            // The authority has seen the certificate, and nobody may send data here (RFC 8737, section 3).
            channel.close(output);
            return Step::Answered;
        }
        self.stage = Stage::Open(channel);
        Step::Established { is_resumed }
    }

    /// Opens the records in a range of `bytes`, in their order. The plaintext stands in place of them, or at the end of `bytes` if the
    /// first of these records began earlier.
    pub fn receive(&mut self, bytes: &mut Vec<u8>, range: Range<usize>) -> Received {
        let mut buffers = self.take_buffers();
        let (opened, plain) = if buffers.input.is_empty() {
            let piece = &mut bytes[range.clone()];
            let opened = self.open_all(piece, &mut buffers.output);
            buffers.input.extend_from_slice(&piece[opened.taken..]);
            let plain = range.start..range.start + opened.written;
            (opened, plain)
        } else {
            buffers.input.extend_from_slice(&bytes[range]);
            let opened = self.open_all(&mut buffers.input, &mut buffers.output);
            let start = bytes.len();
            bytes.extend_from_slice(&buffers.input[..opened.written]);
            buffers.input.drain(..opened.taken);
            let plain = start..bytes.len();
            (opened, plain)
        };
        // A connection that has failed, or whose peer has closed, reads no more.
        if opened.failed.is_some() || opened.is_closed || buffers.input.is_empty() {
            buffers.input = Vec::new();
        }
        self.put_buffers(buffers);
        if opened.failed.is_some() {
            self.stage = Stage::Ended;
        }
        Received {
            plain,
            is_closed: opened.is_closed,
            failed: opened.failed,
        }
    }

    fn open_all(&mut self, bytes: &mut [u8], output: &mut Vec<u8>) -> Open {
        let mut open = Open {
            taken: 0,
            written: 0,
            is_closed: false,
            failed: None,
        };
        while !open.is_closed {
            let whole = match Handshake::<Server>::record(&bytes[open.taken..]) {
                Ok(Some(whole)) => whole,
                Ok(None) => break,
                Err(fault) => {
                    if let Stage::Open(channel) = &mut self.stage {
                        channel.refuse(fault, output);
                    }
                    open.failed = Some(fault.into());
                    break;
                }
            };
            if let Err(failed) = self.open_record(bytes, whole, &mut open, output) {
                open.failed = Some(failed);
                break;
            }
            open.taken += whole;
        }
        open
    }

    fn open_record(
        &mut self,
        bytes: &mut [u8],
        whole: usize,
        open: &mut Open,
        output: &mut Vec<u8>,
    ) -> Result<(), ConnectionFailed> {
        let Stage::Open(channel) = &mut self.stage else {
            return Err(ConnectionFailed::Over);
        };
        let start = open.taken;
        match channel.open(&mut bytes[start..start + whole], output)? {
            Content::Data(range) => {
                bytes.copy_within(start + range.start..start + range.end, open.written);
                open.written += range.len();
            }
            Content::Tickets(_) | Content::Nothing => {}
            Content::Closed => open.is_closed = true,
            Content::Alert(alert) => return Err(ConnectionFailed::Alert(alert)),
        }
        Ok(())
    }

    /// Appends records with this plaintext to `out`. False if the connection cannot go on: its keys are used up, or it is not
    /// established.
    #[must_use]
    pub fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) -> bool {
        match &mut self.stage {
            Stage::Open(channel) => channel.seal(plain, out),
            Stage::Fresh | Stage::Handshaking { .. } | Stage::Ended => false,
        }
    }

    /// As [`Connection::seal`], into the output.
    #[must_use]
    pub fn queue(&mut self, plain: &[u8]) -> bool {
        let mut buffers = self.take_buffers();
        let is_sealed = self.seal(plain, &mut buffers.output);
        self.put_buffers(buffers);
        is_sealed
    }

    /// Appends a `close_notify` to the output, if the connection is open.
    pub fn send_close_notify(&mut self) {
        let mut buffers = self.take_buffers();
        if let Stage::Open(channel) = &mut self.stage {
            channel.close(&mut buffers.output);
        }
        self.put_buffers(buffers);
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let stage = match self.stage {
            Stage::Fresh => "fresh",
            Stage::Handshaking { .. } => "handshaking",
            Stage::Open(_) => "open",
            Stage::Ended => "ended",
        };
        // No keys.
        formatter
            .debug_struct("Connection")
            .field("stage", &stage)
            .finish_non_exhaustive()
    }
}
