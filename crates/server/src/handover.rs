//! Connections on their way from a shard to the control plane, and back.
//!
//! A shard may have a descriptor table of its own, so a descriptor's number means nothing to another thread. Each shard
//! has a socket pair; a connection travels over it as SCM_RIGHTS, together with the bytes already read from it and what is known
//! of where it comes from. What protects a connection with TLS stays in the process: the message names it by a number.
//!
//! A connection that the pair has taken is answered. A shard that ends stops its end's receiving first: a later connection is
//! refused to the sender. Then it answers those that wait.

use myriad_shard::{HandOver, HandedBack, Mesh, Origin, TokenBucket, TurnedAway};
use myriad_tls_stage::{Carried, Connection};
use myriad_wire::http::write_response;
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_send_buffer_size;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, SocketFlags, SocketType,
    recvmsg, sendmsg, shutdown, socketpair,
};
use std::collections::HashMap;
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::UnixDatagram;
use tokio::time::{Instant, timeout_at};

/// Bytes already read that can travel with a connection: a request head at its limit and what came with it.
pub(crate) const RECEIVED_BYTES_MAX: usize = 32 << 10;

/// Bytes of connections on their way in one direction.
const SEND_BUFFER_BYTES: usize = 4 << 20;

/// Time for a shard to make room for a connection that goes back.
const HAND_BACK_TIMEOUT: Duration = Duration::from_secs(2);

/// What is in front of the received bytes of each message: flags, an address, as IPv6, what is left of the rate of reads, then the number
/// of the TLS. A message without a byte would look like the end of the socket.
const HEADER_BYTES: usize = 33;
/// Where the rate begins.
const READS_AT: usize = 17;
/// Where the number of the TLS begins.
const TLS_AT: usize = 25;
/// A flag: [`Origin::is_named`].
const IS_NAMED: u8 = 1;
/// A flag: [`Origin::is_counted`].
const IS_COUNTED: u8 = 2;
/// A flag: [`Origin::has_read`].
const HAS_READ: u8 = 4;
/// A flag: there is an address.
const HAS_ADDRESS: u8 = 8;
/// A flag: there is TLS.
const HAS_TLS: u8 = 16;

/// A connection that arrived.
#[derive(Debug)]
pub(crate) struct Arrival {
    /// The socket, and what protects it.
    pub(crate) carried: Carried<OwnedFd>,
    /// What was read from it before.
    pub(crate) received: Vec<u8>,
    /// What its shard knows beside that.
    pub(crate) origin: Origin,
}

/// The TLS of connections that are on their way between two threads, by number.
#[derive(Clone, Debug, Default)]
pub(crate) struct OnTheWay(Arc<Mutex<Numbered>>);

#[derive(Debug, Default)]
struct Numbered {
    next: u64,
    connections: HashMap<u64, Box<Connection>>,
}

impl OnTheWay {
    fn numbered(&self) -> MutexGuard<'_, Numbered> {
        // A thread that panicked here has left the map whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, connection: Box<Connection>) -> u64 {
        let mut numbered = self.numbered();
        let number = numbered.next;
        numbered.next += 1;
        numbered.connections.insert(number, connection);
        number
    }

    fn take(&self, number: u64) -> Option<Box<Connection>> {
        self.numbered().connections.remove(&number)
    }
}

/// The shard's end.
#[derive(Debug)]
pub(crate) struct Sender {
    socket: Arc<OwnedFd>,
    on_the_way: OnTheWay,
    /// For what comes back; empty until something does.
    buffer: Vec<u8>,
}

/// The control plane's end.
#[derive(Debug)]
pub(crate) struct Receiver {
    /// A sequenced-packet socket; the runtime's type for datagrams only watches it for us.
    socket: Arc<UnixDatagram>,
    on_the_way: OnTheWay,
    buffer: Vec<u8>,
}

/// The way of connections from the control plane back to the shards.
#[derive(Clone)]
pub(crate) struct WayBack {
    ends: Arc<[ShardEnd]>,
    mesh: Mesh,
}

/// The way to one shard.
#[derive(Debug)]
struct ShardEnd {
    socket: Arc<UnixDatagram>,
    on_the_way: OnTheWay,
    /// Connections that it was sent.
    sent: AtomicU64,
}

/// Both ends of one shard's pair.
pub(crate) fn pair() -> io::Result<(Sender, FarEnd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (near, far) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    // As many connections on their way as the kernel allows: a burst of strangers must not turn a probe away. The
    // kernel cuts it to net.core.wmem_max.
    let on_the_way = OnTheWay::default();
    for end in [&near, &far] {
        set_socket_send_buffer_size(end, SEND_BUFFER_BYTES)?;
    }
    Ok((
        Sender {
            socket: Arc::new(near),
            on_the_way: on_the_way.clone(),
            buffer: Vec::new(),
        },
        FarEnd {
            socket: far,
            on_the_way,
        },
    ))
}

/// What the control plane makes its end of.
#[derive(Debug)]
pub(crate) struct FarEnd {
    socket: OwnedFd,
    on_the_way: OnTheWay,
}

#[cfg(test)]
impl FarEnd {
    fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            socket: self.socket.try_clone()?,
            on_the_way: self.on_the_way.clone(),
        })
    }
}

fn header(origin: Origin, tls: Option<u64>) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    if let Some(address) = origin.address {
        header[0] |= HAS_ADDRESS;
        let address = match address {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        header[1..READS_AT].copy_from_slice(&address.octets());
    }
    header[READS_AT..TLS_AT].copy_from_slice(&origin.reads.to_bits().to_ne_bytes());
    header[TLS_AT..].copy_from_slice(&tls.unwrap_or_default().to_ne_bytes());
    let flags = [
        (origin.is_named, IS_NAMED),
        (origin.is_counted, IS_COUNTED),
        (origin.has_read, HAS_READ),
        (tls.is_some(), HAS_TLS),
    ];
    for (_, flag) in flags.into_iter().filter(|(is_set, _)| *is_set) {
        header[0] |= flag;
    }
    header
}

fn read_header(header: [u8; HEADER_BYTES]) -> (Origin, Option<u64>) {
    let (flags, rest) = (header[0], &header[1..]);
    let (address, rest) = rest.split_first_chunk::<16>().expect("an address");
    let address = IpAddr::from(Ipv6Addr::from(*address)).to_canonical();
    let (reads, tls) = rest.split_first_chunk::<8>().expect("a rate");
    let reads = u64::from_ne_bytes(*reads);
    let tls = u64::from_ne_bytes(tls.try_into().expect("eight bytes"));
    let origin = Origin {
        address: (flags & HAS_ADDRESS != 0).then_some(address),
        is_named: flags & IS_NAMED != 0,
        is_counted: flags & IS_COUNTED != 0,
        has_read: flags & HAS_READ != 0,
        reads: TokenBucket::from_bits(reads),
    };
    (origin, (flags & HAS_TLS != 0).then_some(tls))
}

/// Sends a connection. Its TLS stays with the caller if that fails.
fn send_message(
    socket: BorrowedFd<'_>,
    on_the_way: &OnTheWay,
    carried: &mut Carried<impl AsFd>,
    received: &[u8],
    origin: Origin,
) -> io::Result<()> {
    let number = carried.tls.take().map(|tls| on_the_way.put(tls));
    let sent = send_numbered(socket, carried.handle.as_fd(), received, origin, number);
    if sent.is_err() {
        carried.tls = number.and_then(|number| on_the_way.take(number));
    }
    sent
}

fn send_numbered(
    socket: BorrowedFd<'_>,
    descriptor: BorrowedFd<'_>,
    received: &[u8],
    origin: Origin,
    tls: Option<u64>,
) -> io::Result<()> {
    if received.len() > RECEIVED_BYTES_MAX {
        return Err(Errno::MSGSIZE.into());
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let rights = [descriptor];
    let fits = ancillary.push(SendAncillaryMessage::ScmRights(&rights));
    assert!(fits, "the space is made for one descriptor");
    let header = header(origin, tls);
    let parts = [IoSlice::new(&header), IoSlice::new(received)];
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(socket, &parts, &mut ancillary, flags)?;
    Ok(())
}

enum Message {
    Arrived(Arrival),
    /// No descriptor was left for it: its client sees a reset.
    Lost,
    End,
}

/// Receives one message into a buffer of [`HEADER_BYTES`] and [`RECEIVED_BYTES_MAX`].
fn receive_message(
    socket: BorrowedFd<'_>,
    on_the_way: &OnTheWay,
    buffer: &mut [u8],
) -> io::Result<Message> {
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
    let (header, content) = buffer[..received.bytes]
        .split_first_chunk()
        .expect("the sender begins with a header");
    let (origin, tls) = read_header(*header);
    let tls = tls.and_then(|number| on_the_way.take(number));
    let Some(handle) = descriptor else {
        return Ok(Message::Lost);
    };
    Ok(Message::Arrived(Arrival {
        carried: Carried { handle, tls },
        received: content.to_vec(),
        origin,
    }))
}

fn buffer() -> Vec<u8> {
    vec![0; HEADER_BYTES + RECEIVED_BYTES_MAX]
}

/// Answers 503, as far as the socket takes it at once: an answer this short fits any socket that has been read so far.
fn turn_away(carried: &mut Carried<OwnedFd>, sentence: &str) {
    let mut response = Vec::with_capacity(256);
    write_response(&mut response, 503, &[("retry-after", "1")], sentence);
    let mut sent = &*response;
    if let Some(tls) = &mut carried.tls {
        if !tls.queue(&response) {
            return;
        }
        tls.send_close_notify();
        sent = tls.output();
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let _ = rustix::net::send(&carried.handle, sent, flags);
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

    fn receive(&mut self) -> io::Result<Message> {
        if self.buffer.is_empty() {
            self.buffer = buffer();
        }
        receive_message(self.socket.as_fd(), &self.on_the_way, &mut self.buffer)
    }
}

impl HandOver<Carried<OwnedFd>> for Sender {
    /// A full socket refuses: hundreds of connections wait for the control plane already, and a shard never waits. The
    /// client is answered 503.
    fn hand_over(
        &mut self,
        mut handle: Carried<OwnedFd>,
        received: &[u8],
        origin: Origin,
    ) -> io::Result<()> {
        let (socket, on_the_way) = (self.socket.as_fd(), &self.on_the_way);
        let sent = send_message(socket, on_the_way, &mut handle, received, origin);
        sent.inspect_err(|_| {
            let sentence =
                "The server has more requests than it keeps up with: try again after a pause.";
            turn_away(&mut handle, sentence);
        })
    }

    fn take_back(&mut self) -> Option<HandedBack<Carried<OwnedFd>>> {
        match self.receive() {
            Ok(Message::Arrived(arrival)) => Some(HandedBack {
                handle: arrival.carried,
                received: arrival.received,
                origin: arrival.origin,
            }),
            Ok(Message::Lost | Message::End) | Err(_) => None,
        }
    }

    fn turn_away(&mut self, mut handle: Carried<OwnedFd>, why: TurnedAway) {
        turn_away(&mut handle, why.sentence());
    }
}

impl Drop for Sender {
    /// Answers what the control plane has handed back and the shard has not taken.
    fn drop(&mut self) {
        // It fails if the other end is gone, and then nothing waits.
        let _ = shutdown(&self.socket, Shutdown::Read);
        while let Ok(message) = self.receive() {
            match message {
                Message::Arrived(mut arrival) => {
                    turn_away(
                        &mut arrival.carried,
                        "The server is shutting down: reconnect.",
                    );
                }
                Message::Lost => {}
                Message::End => return,
            }
        }
    }
}

impl Receiver {
    /// The control plane's end of a pair; call it inside the runtime.
    pub(crate) fn new(end: FarEnd) -> io::Result<Self> {
        let socket = UnixDatagram::from_std(std::os::unix::net::UnixDatagram::from(end.socket))?;
        Ok(Self {
            socket: Arc::new(socket),
            on_the_way: end.on_the_way,
            buffer: buffer(),
        })
    }

    /// The next connection; none when the shard is gone.
    ///
    /// # Errors
    /// The socket is unusable. Or no descriptor was left for one connection (`EMFILE`): only that one is lost. Its client sees a reset,
    /// and the next one can be received.
    pub(crate) async fn receive(&mut self) -> io::Result<Option<Arrival>> {
        loop {
            self.socket.readable().await?;
            let message = self.socket.try_io(Interest::READABLE, || {
                receive_message(self.socket.as_fd(), &self.on_the_way, &mut self.buffer)
            });
            if message
                .as_ref()
                .is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
            {
                continue;
            }
            match message? {
                Message::Arrived(arrival) => return Ok(Some(arrival)),
                // The kernel has dropped it: nobody can answer its client.
                Message::Lost => return Err(Errno::MFILE.into()),
                Message::End => return Ok(None),
            }
        }
    }
}

impl WayBack {
    /// The way to the shards of `mesh` at the other ends, in their order.
    pub(crate) fn new(receivers: &[Receiver], mesh: Mesh) -> Self {
        let end = |receiver: &Receiver| ShardEnd {
            socket: Arc::clone(&receiver.socket),
            on_the_way: receiver.on_the_way.clone(),
            sent: AtomicU64::new(0),
        };
        Self {
            ends: receivers.iter().map(end).collect(),
            mesh,
        }
    }

    /// Hands a connection to the shard that has the most room. What takes it, answers it.
    ///
    /// # Errors
    /// No shard takes it: all have ended, or are far behind. Its TLS is still there.
    pub(crate) async fn hand_back(
        &self,
        carried: &mut Carried<impl AsFd>,
        received: &[u8],
        origin: Origin,
    ) -> io::Result<()> {
        let deadline = Instant::now() + HAND_BACK_TIMEOUT;
        loop {
            let mut full = None;
            for shard in self.by_load() {
                let end = &self.ends[shard];
                match end.try_send(carried, received, origin) {
                    Ok(()) => {
                        end.sent.fetch_add(1, Relaxed);
                        self.mesh.hand_back(shard);
                        return Ok(());
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        full = full.or(Some(end));
                    }
                    // This shard has ended.
                    Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
                    Err(error) => return Err(error),
                }
            }
            let full = full.ok_or(io::ErrorKind::BrokenPipe)?;
            timeout_at(deadline, full.socket.writable()).await??;
        }
    }

    /// The shards, the one with the fewest connections first. All have the same number of slots.
    fn by_load(&self) -> Vec<usize> {
        let load = |shard: usize| {
            let metrics = &self.mesh.metrics()[shard];
            let taken = metrics.handed_back.value() + metrics.hand_backs_refused.value();
            let under_way = self.ends[shard].sent.load(Relaxed).saturating_sub(taken);
            metrics.connections.value() + under_way
        };
        let mut shards: Vec<usize> = (0..self.ends.len()).collect();
        shards.sort_by_cached_key(|shard| load(*shard));
        shards
    }
}

impl fmt::Debug for WayBack {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("WayBack")
            .field("ends", &self.ends)
            .finish_non_exhaustive()
    }
}

impl ShardEnd {
    fn try_send(
        &self,
        carried: &mut Carried<impl AsFd>,
        received: &[u8],
        origin: Origin,
    ) -> io::Result<()> {
        self.socket.try_io(Interest::WRITABLE, || {
            let (socket, on_the_way) = (self.socket.as_fd(), &self.on_the_way);
            send_message(socket, on_the_way, carried, received, origin)
        })
    }
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
            sender
                .hand_over(Carried::plain(accepted.into()), received, Origin::default())
                .unwrap();
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
            TcpStream::from(arrival.carried.handle)
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
            if sender
                .hand_over(
                    Carried::plain(accepted.into()),
                    &[0; 4096],
                    Origin::default(),
                )
                .is_err()
            {
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
            .hand_over(
                Carried::plain(accepted.into()),
                &[0; RECEIVED_BYTES_MAX + 1],
                Origin::default(),
            )
            .unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::MSGSIZE.raw_os_error()));
    }

    fn mesh() -> Mesh {
        struct Nobody;
        impl myriad_shard::ControlPlane for Nobody {
            fn published(
                &self,
                _: myriad_shard::RequestId,
                _: Result<myriad_shard::Position, myriad_shard::NotPublished>,
            ) {
            }
            fn answered(&self, _: myriad_shard::RequestId, _: Option<myriad_shard::InquiryAnswer>) {
            }
            fn ask(&self, _: &Mesh, _: myriad_shard::Ask) {}
        }
        let wakers = vec![myriad_reactor::Waker::silent(); 2];
        let (limits, epoch) = (
            myriad_shard::ProcessLimits::default(),
            myriad_shard::Epoch::new(1),
        );
        let ids = myriad_shard::ClientIds::new(7);
        Mesh::new(wakers, limits, epoch, ids, Box::new(Nobody))
    }

    #[test]
    fn a_connection_goes_back_with_all_that_is_known_to_the_shard_with_the_most_room() {
        let (mut first, far) = pair().unwrap();
        let (mut second, other_far) = pair().unwrap();
        let mesh = mesh();
        let origins = [
            Origin::default(),
            Origin {
                address: Some("192.0.2.1".parse().unwrap()),
                is_named: true,
                is_counted: true,
                has_read: false,
                reads: TokenBucket::default(),
            },
            Origin {
                address: Some("2001:db8::1".parse().unwrap()),
                is_named: false,
                is_counted: true,
                has_read: true,
                reads: TokenBucket::from_bits(u64::MAX / 3),
            },
        ];
        runtime().block_on(async {
            let receivers = [far, other_far].map(|far| Receiver::new(far).unwrap());
            let way = WayBack::new(&receivers, mesh.clone());
            for origin in origins {
                let (_client, socket) = connection();
                way.hand_back(&mut Carried::plain(socket.as_fd()), b"GET /raw", origin)
                    .await
                    .unwrap();
            }
        });
        // Those that are under way count as connections of the shard.
        let mut seen: Vec<_> = std::iter::from_fn(|| first.take_back()).collect();
        assert_eq!(seen.len(), 2);
        seen.extend(std::iter::from_fn(|| second.take_back()));
        assert!(
            origins
                .iter()
                .all(|origin| seen.iter().any(|back| back.origin == *origin))
        );
        assert!(seen.iter().all(|back| back.received == b"GET /raw"));
        assert!(mesh.has_messages(0) && mesh.has_messages(1));
    }

    #[test]
    fn a_shard_that_ends_answers_what_it_was_sent_and_takes_nothing_more() {
        let (shard, far) = pair().unwrap();
        let (mut client, socket) = connection();
        let (mut late, late_socket) = connection();
        let _near = shard.socket();
        let error = runtime().block_on(async {
            let receiver = Receiver::new(far).unwrap();
            let way = WayBack::new(&[receiver], mesh());
            let origin = Origin::default();
            way.hand_back(&mut Carried::plain(socket.as_fd()), b"", origin)
                .await
                .unwrap();
            drop((socket, shard));
            way.hand_back(&mut Carried::plain(late_socket.as_fd()), b"", origin)
                .await
                .unwrap_err()
        });
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
        drop(late_socket);
        assert_eq!(late.read(&mut [0]).unwrap(), 0, "nobody has kept it");
    }

    #[test]
    fn a_shard_that_is_far_behind_gets_no_more_until_it_takes_some() {
        let (mut shard, far) = pair().unwrap();
        let (_client, socket) = connection();
        let sent = runtime().block_on(async {
            tokio::time::pause();
            let way = WayBack::new(&[Receiver::new(far).unwrap()], mesh());
            let origin = Origin::default();
            let mut sent = 0;
            let error = loop {
                match way
                    .hand_back(&mut Carried::plain(socket.as_fd()), &[0; 4096], origin)
                    .await
                {
                    Ok(()) => sent += 1,
                    Err(error) => break error,
                }
                assert!(sent < 10_000, "a socket that is never full");
            };
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            while shard.take_back().is_some() {}
            way.hand_back(&mut Carried::plain(socket.as_fd()), b"", origin)
                .await
                .unwrap();
            sent
        });
        assert!(sent > 10, "{sent}");
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
