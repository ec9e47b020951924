//! A client's connection: a socket, and TLS above it if there is some. What stands above knows nothing of it.

use myriad_tls_stage::{Carried, Connection};
use rustix::net::{RecvFlags, SendFlags};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Ciphertext read at a time: a whole record and some more.
const READ_BYTES: usize = 20 << 10;
/// Plaintext sealed at a time (RFC 8446, section 5.1).
const SEALED_MAX: usize = 1 << 14;

/// A connection that reads and writes plaintext.
#[derive(Debug)]
pub(crate) struct ClientStream {
    socket: TcpStream,
    tls: Option<Box<Secured>>,
}

/// What a connection with TLS has beside its socket.
#[derive(Debug)]
struct Secured {
    connection: Box<Connection>,
    /// Plaintext that nobody has read, behind `taken` bytes that somebody has.
    plain: Vec<u8>,
    taken: usize,
    is_closed: bool,
    /// The peer has been told that we send no more. Whoever ends our side may have to ask several times.
    has_sent_close_notify: bool,
}

impl ClientStream {
    /// A connection without TLS.
    pub(crate) fn plain(socket: TcpStream) -> Self {
        Self { socket, tls: None }
    }

    /// A connection of another owner.
    ///
    /// # Errors
    /// The runtime does not take the socket.
    pub(crate) fn take(carried: Carried<OwnedFd>) -> io::Result<Self> {
        let socket = std::net::TcpStream::from(carried.handle);
        socket.set_nonblocking(true)?;
        let tls = carried.tls.map(|connection| {
            Box::new(Secured {
                connection,
                plain: Vec::new(),
                taken: 0,
                is_closed: false,
                has_sent_close_notify: false,
            })
        });
        Ok(Self {
            socket: TcpStream::from_std(socket)?,
            tls,
        })
    }

    /// For another owner, with the plaintext that nobody has read.
    ///
    /// # Errors
    /// The runtime does not know the socket, which has no further use then.
    pub(crate) fn into_carried(self) -> io::Result<(Carried<OwnedFd>, Vec<u8>)> {
        let handle = self.socket.into_std()?.into();
        let (tls, unread) = match self.tls {
            Some(secured) => {
                let unread = secured.plain[secured.taken..].to_vec();
                (Some(secured.connection), unread)
            }
            None => (None, Vec::new()),
        };
        Ok((Carried { handle, tls }, unread))
    }

    pub(crate) fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.socket.peer_addr()
    }

    /// Asks the socket itself. The runtime's knowledge of it is as old as its last look.
    pub(crate) fn has_unread_input(&self) -> bool {
        let tls = self.tls.as_ref();
        if tls.is_some_and(|secured| secured.taken < secured.plain.len()) {
            return true;
        }
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        !matches!(
            rustix::net::recv(&self.socket, &mut [0; 1][..], flags),
            Err(rustix::io::Errno::AGAIN)
        )
    }

    /// Throws away what the socket has, up to so many bytes, whatever the runtime knows of it. False if nothing is left to read.
    pub(crate) fn discard(&self, bytes: &mut [u8]) -> bool {
        let flags = RecvFlags::DONTWAIT;
        self.has_unread_input() && rustix::net::recv(&self.socket, bytes, flags).is_ok()
    }

    /// Sends these bytes at once, whatever the runtime knows of the socket. True if it took them all.
    pub(crate) fn send_now(&mut self, bytes: &[u8]) -> bool {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let Some(secured) = &mut self.tls else {
            return rustix::net::send(&self.socket, bytes, flags) == Ok(bytes.len());
        };
        if !secured.connection.queue(bytes) {
            return false;
        }
        let output = secured.connection.output();
        let sent = rustix::net::send(&self.socket, output, flags).unwrap_or(0);
        secured.connection.note_sent(sent);
        secured.connection.output().is_empty()
    }
}

impl Secured {
    /// Gives the plaintext that is there. False if there is none.
    fn give(&mut self, buffer: &mut ReadBuf<'_>) -> bool {
        let unread = &self.plain[self.taken..];
        if unread.is_empty() {
            return false;
        }
        let count = unread.len().min(buffer.remaining());
        buffer.put_slice(&unread[..count]);
        self.taken += count;
        if self.taken == self.plain.len() {
            (self.plain, self.taken) = (Vec::new(), 0);
        }
        true
    }

    /// Opens ciphertext.
    ///
    /// # Errors
    /// The peer broke the rules. The alert is in the output.
    fn open(&mut self, mut ciphertext: Vec<u8>) -> io::Result<()> {
        let range = 0..ciphertext.len();
        let received = self.connection.receive(&mut ciphertext, range);
        self.plain.extend_from_slice(&ciphertext[received.plain]);
        self.is_closed |= received.is_closed;
        match received.failed {
            None => Ok(()),
            Some(failed) => Err(io::Error::new(io::ErrorKind::InvalidData, failed)),
        }
    }

    /// Sends what the socket takes of the output.
    fn poll_send(
        &mut self,
        socket: &mut TcpStream,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while !self.connection.output().is_empty() {
            let output = self.connection.output();
            let sent = ready!(Pin::new(&mut *socket).poll_write(context, output))?;
            self.connection.note_sent(sent);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_read(
        &mut self,
        socket: &mut TcpStream,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            if self.give(buffer) || self.is_closed {
                return Poll::Ready(Ok(()));
            }
            let mut ciphertext = vec![0; READ_BYTES];
            let mut read = ReadBuf::new(&mut ciphertext);
            ready!(Pin::new(&mut *socket).poll_read(context, &mut read))?;
            let count = read.filled().len();
            if count == 0 {
                self.is_closed = true;
                continue;
            }
            ciphertext.truncate(count);
            let opened = self.open(ciphertext);
            // Answers of the protocol, and the alert of a failure. What the socket does not take goes before the next plaintext.
            if let Poll::Ready(Err(error)) = self.poll_send(socket, context) {
                return Poll::Ready(Err(error));
            }
            opened?;
        }
    }

    fn poll_write(
        &mut self,
        socket: &mut TcpStream,
        context: &mut Context<'_>,
        plain: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_send(socket, context))?;
        let count = plain.len().min(SEALED_MAX);
        if !self.connection.queue(&plain[..count]) {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        match self.poll_send(socket, context) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            // What is sealed leaves before anything else.
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Ready(Ok(count)),
        }
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match &mut this.tls {
            Some(secured) => secured.poll_read(&mut this.socket, context, buffer),
            None => Pin::new(&mut this.socket).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        match &mut this.tls {
            Some(secured) => secured.poll_write(&mut this.socket, context, bytes),
            None => Pin::new(&mut this.socket).poll_write(context, bytes),
        }
    }

    /// Ready when the socket has taken everything.
    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match &mut this.tls {
            Some(secured) => secured.poll_send(&mut this.socket, context),
            None => Pin::new(&mut this.socket).poll_flush(context),
        }
    }

    /// Sends a `close_notify`, and ends our side.
    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if let Some(secured) = &mut this.tls {
            if !std::mem::replace(&mut secured.has_sent_close_notify, true) {
                secured.connection.send_close_notify();
            }
            ready!(secured.poll_send(&mut this.socket, context))?;
        }
        Pin::new(&mut this.socket).poll_shutdown(context)
    }
}
