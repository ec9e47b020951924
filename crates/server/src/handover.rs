//! Connections on their way from a shard to the control plane.
//!
//! A shard may have a descriptor table of its own, so a descriptor's number means nothing to another thread. Each shard
//! has a socket pair; a connection travels over it as SCM_RIGHTS, together with the bytes already read from it.

use myriad_shard::HandOver;
use myriad_wire::http::write_response;
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_send_buffer_size;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg,
    sendmsg, socketpair,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use tokio::io::Interest;
use tokio::net::UnixDatagram;

/// Bytes already read that can travel with a connection: a request head at its limit and what came with it.
pub(crate) const RECEIVED_BYTES_MAX: usize = 32 << 10;

/// Bytes of connections on their way.
const SEND_BUFFER_BYTES: usize = 4 << 20;

/// The first byte of each message: a message without a byte would look like the end of the socket.
const KIND_CONNECTION: u8 = 1;

/// A connection that arrived.
#[derive(Debug)]
pub(crate) struct Arrival {
    /// The socket.
    pub(crate) descriptor: OwnedFd,
    /// What was read from it before.
    pub(crate) received: Vec<u8>,
}

/// The shard's end.
#[derive(Debug)]
pub(crate) struct Sender {
    socket: Arc<OwnedFd>,
}

/// The control plane's end.
#[derive(Debug)]
pub(crate) struct Receiver {
    /// A sequenced-packet socket; the runtime's type for datagrams only watches it for us.
    socket: UnixDatagram,
    buffer: Vec<u8>,
}

/// Both ends of one shard's pair.
pub(crate) fn pair() -> io::Result<(Sender, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (near, far) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    // As many connections on their way as the kernel allows: a burst of strangers must not turn a probe away. The
    // kernel cuts it to net.core.wmem_max.
    set_socket_send_buffer_size(&near, SEND_BUFFER_BYTES)?;
    Ok((
        Sender {
            socket: Arc::new(near),
        },
        far,
    ))
}

impl Sender {
    /// The descriptor that must survive the thread's unsharing.
    pub(crate) fn raw(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// The socket, to be held by the thread that owns the process's table.
    pub(crate) fn socket(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.socket)
    }

    fn send(&self, descriptor: BorrowedFd<'_>, received: &[u8]) -> io::Result<()> {
        if received.len() > RECEIVED_BYTES_MAX {
            return Err(Errno::MSGSIZE.into());
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let rights = [descriptor];
        let fits = ancillary.push(SendAncillaryMessage::ScmRights(&rights));
        assert!(fits, "the space is made for one descriptor");
        let parts = [IoSlice::new(&[KIND_CONNECTION]), IoSlice::new(received)];
        sendmsg(
            &self.socket,
            &parts,
            &mut ancillary,
            SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
        )?;
        Ok(())
    }
}

fn busy() -> Vec<u8> {
    let mut response = Vec::with_capacity(256);
    let sentence = "The server has more requests than it keeps up with: try again after a pause.";
    write_response(&mut response, 503, &[("retry-after", "1")], sentence);
    response
}

impl HandOver<OwnedFd> for Sender {
    /// A full socket refuses: hundreds of connections wait for the control plane already, and a shard never waits. The
    /// client is answered 503.
    fn hand_over(&mut self, handle: OwnedFd, received: &[u8]) -> io::Result<()> {
        self.send(handle.as_fd(), received).inspect_err(|_| {
            // Best effort: an answer this short fits any socket that has been read so far.
            let _ = rustix::net::send(&handle, &busy(), SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        })
    }
}

impl Receiver {
    /// The control plane's end of a pair; call it inside the runtime.
    pub(crate) fn new(socket: OwnedFd) -> io::Result<Self> {
        let socket = UnixDatagram::from_std(std::os::unix::net::UnixDatagram::from(socket))?;
        Ok(Self {
            socket,
            buffer: vec![0; 1 + RECEIVED_BYTES_MAX],
        })
    }

    /// The next connection; none when the shard is gone.
    ///
    /// # Errors
    /// The socket is unusable. When no descriptor is left for one connection, only that connection is lost: its client
    /// sees a reset, and the next one is received.
    pub(crate) async fn receive(&mut self) -> io::Result<Option<Arrival>> {
        loop {
            self.socket.readable().await?;
            let message = self.socket.try_io(Interest::READABLE, || {
                receive_message(self.socket.as_fd(), &mut self.buffer)
            });
            if message
                .as_ref()
                .is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
            {
                continue;
            }
            match message? {
                Message::Arrived(arrival) => return Ok(Some(arrival)),
                Message::Lost => tracing::warn!(
                    "a connection was lost between shard and control plane: no descriptor left"
                ),
                Message::End => return Ok(None),
            }
        }
    }
}

enum Message {
    Arrived(Arrival),
    Lost,
    End,
}

fn receive_message(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Message> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = recvmsg(
        socket,
        &mut [IoSliceMut::new(buffer)],
        &mut ancillary,
        flags,
    )?;
    if received.bytes == 0 {
        return Ok(Message::End);
    }
    assert!(
        !received.flags.contains(ReturnFlags::TRUNC),
        "the sender bounds its messages by our buffer"
    );
    let descriptor = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    let content = &buffer[..received.bytes];
    debug_assert_eq!(content[0], KIND_CONNECTION);
    Ok(match descriptor {
        Some(descriptor) => Message::Arrived(Arrival {
            descriptor,
            received: content[1..].to_vec(),
        }),
        None => Message::Lost,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    }

    fn connection() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    #[test]
    fn a_connection_arrives_with_its_bytes() {
        let (mut sender, far) = pair().unwrap();
        for received in [
            &b""[..],
            b"GET /healthz HTTP/1.1\r\n\r\n",
            &[7; RECEIVED_BYTES_MAX],
        ] {
            let (mut client, accepted) = connection();
            sender.hand_over(accepted.into(), received).unwrap();
            client.write_all(b"rest").unwrap();
            let arrival = runtime().block_on(async {
                Receiver::new(far.try_clone().unwrap())
                    .unwrap()
                    .receive()
                    .await
                    .unwrap()
                    .unwrap()
            });
            assert_eq!(arrival.received, received);
            let mut rest = [0; 4];
            TcpStream::from(arrival.descriptor)
                .read_exact(&mut rest)
                .unwrap();
            assert_eq!(&rest, b"rest");
        }
    }

    #[test]
    fn a_full_socket_refuses_and_the_client_is_told() {
        let (mut sender, _far) = pair().unwrap();
        let mut clients = Vec::new();
        loop {
            let (client, accepted) = connection();
            clients.push(client);
            if sender.hand_over(accepted.into(), &[0; 4096]).is_err() {
                break;
            }
            assert!(clients.len() < 10_000, "a socket that is never full");
        }
        let mut answer = String::new();
        let last = clients.last_mut().unwrap();
        last.read_to_string(&mut answer)
            .expect("an answer and its end");
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
        assert!(answer.contains("retry-after: 1\r\n"), "{answer}");
    }

    #[test]
    fn too_many_bytes_are_refused_by_the_sender() {
        let (mut sender, _far) = pair().unwrap();
        let (_client, accepted) = connection();
        let error = sender
            .hand_over(accepted.into(), &[0; RECEIVED_BYTES_MAX + 1])
            .unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::MSGSIZE.raw_os_error()));
    }

    #[test]
    fn the_end_of_the_shard_ends_the_receiver() {
        let (sender, far) = pair().unwrap();
        drop(sender);
        let end =
            runtime().block_on(async { Receiver::new(far).unwrap().receive().await.unwrap() });
        assert!(end.is_none());
    }
}
