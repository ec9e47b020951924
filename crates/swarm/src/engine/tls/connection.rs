//! The TLS of one connection: ciphertext and plaintext, in and out. No socket.
//!
//! * **in**: [`Connection::receive`] takes what came from the socket, and appends the plaintext of all whole records;
//! * **out**: [`Connection::encrypt`] and [`Connection::close_notify`] append ciphertext. Messages of the protocol itself wait in
//!   [`Connection::output`]: parts of the handshake, answers to key updates, alerts.
//!
//! An idle connection of TLS 1.3 keeps its record state alone. Buffers and the place where tickets go exist for as long as they
//! are needed.

use myriad_tls::{
    Alert, Channel, ChannelFailed, Content, Established, Fault, Handshake, HandshakeFailed,
    Progress,
};
use std::sync::Arc;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::Error;
use tokio_rustls::rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use tokio_rustls::rustls::kernel::KernelConnection;
use tokio_rustls::rustls::pki_types::ServerName;

type Client = UnbufferedClientConnection;

/// Bytes of the header of a message: its type and its length (RFC 8446, section 4).
const MESSAGE_HEADER_BYTES: usize = 4;

/// One connection.
#[derive(Default)]
pub(super) struct Connection {
    stage: Stage,
    /// Where tickets go that still may come.
    tickets: Option<Box<KernelConnection<ClientConnectionData>>>,
    buffers: Option<Box<Buffers>>,
}

// What an idle terminal with TLS costs, beside its place in the socket reactor.
const _: () = assert!(size_of::<Connection>() <= 232);

#[expect(
    clippy::large_enum_variant,
    reason = "the large one is what connections are for nearly all of their time"
)]
#[derive(Default)]
enum Stage {
    Handshaking(Box<Handshake<Client>>),
    Open(Channel<Client>),
    /// It cannot go on.
    #[default]
    Failed,
}

#[derive(Default)]
struct Buffers {
    /// The beginning of a record that has not come whole.
    input: Vec<u8>,
    /// Ciphertext that the socket has not taken.
    output: Vec<u8>,
    early: Early,
}

/// Input that came before the caller registered.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Early {
    pub plain: Vec<u8>,
    /// An errno, or 0 for a `close_notify`.
    pub end: Option<i32>,
}

impl Buffers {
    fn is_empty(&self) -> bool {
        self.input.is_empty() && self.output.is_empty() && self.early == Early::default()
    }
}

/// Why a connection cannot go on.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectionFailed {
    #[error(transparent)]
    Handshake(#[from] HandshakeFailed),
    #[error(transparent)]
    Record(#[from] Fault),
    #[error(transparent)]
    Channel(#[from] ChannelFailed),
    #[error("{0}")]
    Ticket(Error),
    #[error("the peer gave up with alert {}", .0.0)]
    Alert(Alert),
    /// Its keys are used up, or it has failed before.
    #[error("the connection cannot go on")]
    Over,
}

/// What a piece of input amounts to, beside its plaintext.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Received {
    /// The handshake is over, and whether it was an abbreviated one.
    pub established: Option<bool>,
    /// The peer has said that it sends no more.
    pub is_closed: bool,
}

impl Connection {
    /// Begins a handshake: its first message is in the output.
    pub(super) fn new(
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> Result<Self, ConnectionFailed> {
        let mut connection = Self::default();
        let client = Client::new(config, name).map_err(HandshakeFailed::from)?;
        let handshake = connection.answering(|output| Handshake::new(client, output))?;
        connection.stage = Stage::Handshaking(Box::new(handshake));
        Ok(connection)
    }

    /// Whether the peer speaks TLS 1.2.
    pub(super) fn is_tls12(&self) -> bool {
        matches!(&self.stage, Stage::Open(channel) if channel.is_legacy())
    }

    /// Bytes of a record that has not come whole.
    pub(super) fn incomplete_bytes(&self) -> usize {
        self.buffers
            .as_ref()
            .map_or(0, |buffers| buffers.input.len())
    }

    /// Ciphertext that the socket has not taken.
    pub(super) fn output(&self) -> &[u8] {
        self.buffers.as_ref().map_or(&[], |buffers| &buffers.output)
    }

    /// Keeps ciphertext that the socket did not take.
    pub(super) fn keep_output(&mut self, ciphertext: &[u8]) {
        self.answering(|output| output.extend_from_slice(ciphertext));
    }

    /// The socket took so many bytes of the output.
    pub(super) fn note_sent(&mut self, count: usize) {
        self.answering(|output| {
            output.drain(..count);
        });
    }

    /// The output, which nobody keeps any more.
    pub(super) fn take_output(&mut self) -> Vec<u8> {
        self.answering(std::mem::take)
    }

    /// Memory for what is incomplete or unsent, and for tickets.
    #[cfg(test)]
    pub(super) fn has_buffers(&self) -> bool {
        self.buffers.is_some() || self.tickets.is_some()
    }

    /// Lets `write` change the output, which exists while it has something.
    fn answering<T>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        self.buffering(|buffers| write(&mut buffers.output))
    }

    /// Lets `change` change the buffers, which exist while one of them has something.
    fn buffering<T>(&mut self, change: impl FnOnce(&mut Buffers) -> T) -> T {
        let mut buffers = self.take_buffers();
        let result = change(&mut buffers);
        self.put_buffers(buffers);
        result
    }

    /// The buffers, on the stack: most messages come and go whole, and need no memory.
    fn take_buffers(&mut self) -> Buffers {
        self.buffers
            .take()
            .map(|buffers| *buffers)
            .unwrap_or_default()
    }

    fn put_buffers(&mut self, buffers: Buffers) {
        if !buffers.is_empty() {
            self.buffers = Some(Box::new(buffers));
        }
    }

    /// Lets `change` change what came before the caller registered.
    pub(super) fn change_early(&mut self, change: impl FnOnce(&mut Early)) {
        self.buffering(|buffers| change(&mut buffers.early));
    }

    /// What came before the caller registered, if anything did.
    pub(super) fn take_early(&mut self) -> Option<Early> {
        let early = self.buffering(|buffers| std::mem::take(&mut buffers.early));
        (early != Early::default()).then_some(early)
    }

    /// Whether anything came before the caller registered.
    pub(super) fn has_early(&self) -> bool {
        let buffers = self.buffers.as_ref();
        buffers.is_some_and(|buffers| buffers.early != Early::default())
    }

    /// Takes ciphertext in its order, and appends what it says to `plain`. It is changed in place. Tickets are kept if
    /// `is_resuming`.
    ///
    /// # Errors
    /// The connection cannot go on. The output then ends with the alert for the peer.
    pub(super) fn receive(
        &mut self,
        ciphertext: &mut [u8],
        plain: &mut Vec<u8>,
        is_resuming: bool,
    ) -> Result<Received, ConnectionFailed> {
        let mut buffers = self.take_buffers();
        let Buffers { input, output, .. } = &mut buffers;
        let mut received = Received {
            established: None,
            is_closed: false,
        };
        let mut take = |bytes: &mut [u8]| self.take(bytes, plain, output, &mut received);
        let result = if input.is_empty() {
            let (taken, result) = take(ciphertext);
            input.extend_from_slice(&ciphertext[taken..]);
            result
        } else {
            input.extend_from_slice(ciphertext);
            let (taken, result) = take(input);
            input.drain(..taken);
            result
        };
        // A connection that has failed, or whose peer has closed, reads no more.
        if result.is_err() || received.is_closed || input.is_empty() {
            *input = Vec::new();
        }
        self.put_buffers(buffers);
        if result.is_err() {
            self.stage = Stage::Failed;
        }
        if result.is_err() || !is_resuming {
            self.tickets = None;
        }
        result.map(|()| received)
    }

    /// Takes whole records from the start of `input`. Says how many bytes they had.
    fn take(
        &mut self,
        input: &mut [u8],
        plain: &mut Vec<u8>,
        output: &mut Vec<u8>,
        received: &mut Received,
    ) -> (usize, Result<(), ConnectionFailed>) {
        let mut taken = 0;
        while !received.is_closed {
            let rest = &mut input[taken..];
            let whole = match Handshake::<Client>::record(rest) {
                Ok(Some(whole)) => whole,
                Ok(None) => return (taken, Ok(())),
                Err(fault) => return (taken, Err(self.fail(fault, output))),
            };
            if let Err(failed) = self.take_record(&mut rest[..whole], plain, output, received) {
                return (taken, Err(failed));
            }
            taken += whole;
        }
        (taken, Ok(()))
    }

    fn take_record(
        &mut self,
        record: &mut [u8],
        plain: &mut Vec<u8>,
        output: &mut Vec<u8>,
        received: &mut Received,
    ) -> Result<(), ConnectionFailed> {
        match std::mem::replace(&mut self.stage, Stage::Failed) {
            Stage::Handshaking(handshake) => match handshake.receive(record, output)? {
                Progress::Continues(handshake) => {
                    self.stage = Stage::Handshaking(Box::new(handshake));
                }
                Progress::Ends(established) => {
                    received.established = Some(established.is_resumed);
                    self.establish(established);
                }
            },
            open @ Stage::Open(_) => {
                self.stage = open;
                received.is_closed = self.open(record, plain, output)?;
            }
            Stage::Failed => return Err(ConnectionFailed::Over),
        }
        Ok(())
    }

    fn establish(&mut self, established: Box<Established<Client>>) {
        let (channel, tickets) = established.into_channel();
        self.tickets = tickets.map(Box::new);
        self.stage = Stage::Open(channel);
    }

    /// Opens a record. True if the peer sends no more.
    fn open(
        &mut self,
        record: &mut [u8],
        plain: &mut Vec<u8>,
        output: &mut Vec<u8>,
    ) -> Result<bool, ConnectionFailed> {
        let Stage::Open(channel) = &mut self.stage else {
            return Err(ConnectionFailed::Over);
        };
        match channel.open(record, output)? {
            Content::Data(range) => {
                plain.extend_from_slice(&record[range]);
                // Servers send their tickets before anything else.
                self.tickets = None;
            }
            Content::Tickets(range) => self.keep_tickets(&record[range], output)?,
            Content::Nothing => {}
            Content::Closed => return Ok(true),
            Content::Alert(alert) => return Err(ConnectionFailed::Alert(alert)),
        }
        Ok(false)
    }

    /// Keeps the tickets of whole messages.
    fn keep_tickets(
        &mut self,
        mut messages: &[u8],
        output: &mut Vec<u8>,
    ) -> Result<(), ConnectionFailed> {
        let Some(mut tickets) = self.tickets.take() else {
            return Ok(());
        };
        while let Some((header, rest)) = messages.split_first_chunk::<MESSAGE_HEADER_BYTES>() {
            let length = u32::from_be_bytes([0, header[1], header[2], header[3]]) as usize;
            let (ticket, rest) = rest.split_at(length.min(rest.len()));
            if let Err(error) = tickets.handle_new_session_ticket(ticket) {
                if let Stage::Open(channel) = &mut self.stage {
                    channel.seal_alert(Alert::DECODE_ERROR, output);
                }
                return Err(ConnectionFailed::Ticket(error));
            }
            messages = rest;
        }
        self.tickets = Some(tickets);
        Ok(())
    }

    /// Appends the alert about what is no record.
    fn fail(&mut self, fault: Fault, output: &mut Vec<u8>) -> ConnectionFailed {
        if let Stage::Open(channel) = &mut self.stage {
            channel.refuse(fault, output);
        }
        fault.into()
    }

    /// Appends records with this plaintext to `out`, behind what the protocol has to send before.
    ///
    /// # Errors
    /// The connection cannot go on: its keys are used up, or it is not established.
    pub(super) fn encrypt(
        &mut self,
        plain: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), ConnectionFailed> {
        let is_sealed = match &mut self.stage {
            Stage::Open(channel) => channel.seal(plain, out),
            Stage::Handshaking(_) | Stage::Failed => false,
        };
        is_sealed.then_some(()).ok_or(ConnectionFailed::Over)
    }

    /// Appends the record that says that nothing more will be sent, if the connection can say so.
    pub(super) fn close_notify(&mut self, out: &mut Vec<u8>) {
        if let Stage::Open(channel) = &mut self.stage {
            channel.close(out);
        }
    }
}
