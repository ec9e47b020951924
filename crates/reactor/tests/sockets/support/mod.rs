//! What the socket tests share: each is written once, for any reactor, and run on both real drivers.

#![allow(
    clippy::unwrap_used,
    dead_code,
    unreachable_pub,
    unused_imports,
    unused_macros,
    reason = "each test file uses its part"
)]

use myriad_reactor::{
    Close, Completion, Completions, Driver, Epoll, Reactor, SendOp, Sent, Setup, Socket, Token,
    Uring, Waker, listen,
};
use std::io::{self, Read};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Far above what any test needs: reached only when something never happens.
const PATIENCE: Duration = Duration::from_secs(60);

/// A driver that can be made from a [`Setup`].
pub trait Real: Reactor<Handle = OwnedFd> + Sized {
    fn make(setup: Setup) -> io::Result<Self>;

    /// Whether this machine can run it; says why not.
    fn is_available() -> bool {
        true
    }
}

impl Real for Epoll {
    fn make(setup: Setup) -> io::Result<Self> {
        Epoll::new(setup)
    }
}

impl Real for Uring {
    fn make(setup: Setup) -> io::Result<Self> {
        Uring::new(setup)
    }

    fn is_available() -> bool {
        match Driver::probe_io_uring() {
            Ok(()) => true,
            Err(why) => {
                assert!(
                    !kernel_should_do(),
                    "the probe refuses a kernel that should do: {why}"
                );
                eprintln!("skipped, no io_uring: {why}");
                false
            }
        }
    }
}

/// Linux 6.13 or later, and a ring can be made: so that a broken probe does not pass for a missing driver.
fn kernel_should_do() -> bool {
    let release = rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned();
    let mut numbers = release
        .split('.')
        .map_while(|part| part.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    version >= (6, 13) && io_uring::IoUring::new(8).is_ok()
}

/// Runs each test, a function generic over the driver, on both.
macro_rules! on_both {
    ($($(#[$attribute:meta])* $test:ident),+ $(,)?) => {
        mod io_uring {
            $(#[test] $(#[$attribute])* fn $test() {
                use $crate::support::Real;
                if myriad_reactor::Uring::is_available() {
                    super::$test::<myriad_reactor::Uring>();
                }
            })+
        }
        mod epoll {
            $(#[test] $(#[$attribute])* fn $test() {
                super::$test::<myriad_reactor::Epoll>();
            })+
        }
    };
}
pub(crate) use on_both;

/// A completion that owns its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Accepted(Socket),
    AcceptPaused(i32),
    Connected(Token),
    ConnectFailed(Token, i32),
    Received(Token, Vec<u8>),
    Finished(Token),
    Failed(Token, i32),
    Writable(Token),
    Woken,
}

/// A reactor and what a test wants to know about it.
pub struct World<R> {
    pub reactor: R,
    pub waker: Waker,
    pub address: SocketAddr,
    completions: Completions,
    /// Everything that happened and no `until_*` has consumed.
    pub events: Vec<Event>,
}

impl<R: Real> World<R> {
    /// A reactor that accepts on a free port of the loopback.
    pub fn listening(sockets_max: usize) -> Self {
        Self::listening_with(sockets_max, None)
    }

    /// The same, with a bound on each accepted socket's send buffer.
    pub fn listening_with(sockets_max: usize, send_buffer_bytes: Option<u32>) -> Self {
        Self::listening_by(sockets_max, send_buffer_bytes, R::make)
    }

    /// The same, made in a way of the caller's.
    pub fn listening_by(
        sockets_max: usize,
        send_buffer_bytes: Option<u32>,
        make: impl FnOnce(Setup) -> io::Result<R>,
    ) -> Self {
        let listener = listen(([127, 0, 0, 1], 0).into(), 4096, send_buffer_bytes, false).unwrap();
        let address = listener.local_addr().unwrap();
        let mut world = Self::new(Some(listener), sockets_max, address, make);
        world.reactor.accept(true);
        world
    }

    /// A reactor that only connects.
    pub fn connecting(sockets_max: usize, target: SocketAddr) -> Self {
        Self::new(None, sockets_max, target, R::make)
    }

    /// The same, whose caller speaks first.
    pub fn speaking_first(sockets_max: usize, target: SocketAddr) -> Self {
        Self::new(None, sockets_max, target, |setup| {
            R::make(Setup {
                speaks_first: true,
                ..setup
            })
        })
    }

    fn new(
        listener: Option<std::net::TcpListener>,
        sockets_max: usize,
        address: SocketAddr,
        make: impl FnOnce(Setup) -> io::Result<R>,
    ) -> Self {
        let waker = Waker::new().unwrap();
        let reactor = make(Setup {
            waker: waker.clone(),
            listeners: listener.into_iter().collect(),
            sockets_max,
            reactors: 1,
            speaks_first: false,
        })
        .unwrap();
        Self {
            reactor,
            waker,
            address,
            completions: Completions::new(),
            events: Vec::new(),
        }
    }

    /// One wait; what it brought is appended to `events`.
    pub fn turn(&mut self, timeout: Duration) {
        self.reactor
            .wait(Some(timeout), &mut self.completions)
            .unwrap();
        for completion in self.completions.list.drain(..) {
            self.events.push(match completion {
                Completion::Accepted { socket, .. } => Event::Accepted(socket),
                Completion::AcceptPaused { errno } => Event::AcceptPaused(errno),
                Completion::Connected { token } => Event::Connected(token),
                Completion::ConnectFailed { token, errno } => Event::ConnectFailed(token, errno),
                Completion::Received { token, range } => {
                    assert!(!range.is_empty(), "an empty receive");
                    assert!(range.len() <= Completions::RECEIVE_BYTES_MAX);
                    Event::Received(token, self.completions.buffer[range].to_vec())
                }
                Completion::Finished { token } => Event::Finished(token),
                Completion::Failed { token, errno } => Event::Failed(token, errno),
                Completion::Writable { token } => Event::Writable(token),
                Completion::Woken => Event::Woken,
                Completion::Refused { .. } | Completion::Buffered { .. } => {
                    unreachable!("nothing stands above TCP here")
                }
            });
        }
    }

    /// Turns until the predicate holds of the events so far.
    pub fn until(&mut self, what: &str, mut holds: impl FnMut(&[Event]) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !holds(&self.events) {
            assert!(
                Instant::now() < deadline,
                "never happened: {what}; events: {:?}",
                self.last()
            );
            self.turn(Duration::from_millis(200));
        }
    }

    fn last(&self) -> &[Event] {
        &self.events[self.events.len().saturating_sub(20)..]
    }

    /// Turns until something else than the events says so.
    pub fn turn_until(&mut self, what: &str, mut holds: impl FnMut() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !holds() {
            assert!(
                Instant::now() < deadline,
                "never happened: {what}; events: {:?}",
                self.last()
            );
            self.turn(Duration::from_millis(1));
        }
    }

    /// The next accepted socket.
    pub fn accepted(&mut self) -> Socket {
        self.until("accept", |events| {
            events
                .iter()
                .any(|event| matches!(event, Event::Accepted(_)))
        });
        let index = self
            .events
            .iter()
            .position(|event| matches!(event, Event::Accepted(_)))
            .unwrap();
        let Event::Accepted(socket) = self.events.remove(index) else {
            unreachable!()
        };
        socket
    }

    /// A connection: the test's blocking end, and the reactor's, registered.
    pub fn pair(&mut self, token: Token) -> (TcpStream, Socket) {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let socket = self.accepted();
        self.reactor.register(socket, token);
        (stream, socket)
    }

    /// All bytes received under the token so far.
    pub fn received(&self, token: Token) -> Vec<u8> {
        received(&self.events, token)
    }

    /// Connections that have ended, by the peer or by an error.
    pub fn ends(&self) -> usize {
        let ends = |event: &&Event| matches!(event, Event::Finished(_) | Event::Failed(..));
        self.events.iter().filter(ends).count()
    }

    /// Turns until that many bytes came under the token, and returns them.
    pub fn until_received(&mut self, token: Token, count: usize) -> Vec<u8> {
        self.until("receive", |events| received(events, token).len() >= count);
        self.received(token)
    }

    /// Sends everything, waiting for room as often as needed.
    pub fn send_all(&mut self, socket: Socket, token: Token, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let mut ops = [SendOp::new(socket, rest)];
            self.reactor.send_batch(&mut ops);
            match ops[0].sent {
                Sent::All => return,
                Sent::Partly(count) => {
                    rest = &rest[count..];
                    self.until_writable(socket, token);
                }
                Sent::Failed(errno) => {
                    panic!("send failed: {}", io::Error::from_raw_os_error(errno))
                }
            }
        }
    }

    pub fn until_writable(&mut self, socket: Socket, token: Token) {
        self.events.retain(|event| *event != Event::Writable(token));
        self.reactor.notify_writable(socket, token);
        self.until("writable", |events| {
            events.contains(&Event::Writable(token))
        });
    }

    pub fn close(&mut self, socket: Socket, token: Token) {
        self.reactor.close(socket, token, Close::Orderly);
    }
}

pub fn received(events: &[Event], token: Token) -> Vec<u8> {
    let mut bytes = Vec::new();
    for event in events {
        if let Event::Received(whose, part) = event
            && *whose == token
        {
            bytes.extend_from_slice(part);
        }
    }
    bytes
}

pub fn token(index: u32) -> Token {
    Token {
        index,
        generation: 1,
    }
}

/// Bytes without a short period, so that a lost or doubled stretch shows.
pub fn pattern(length: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[3]
        })
        .collect()
}

/// Reads to the peer's end on another thread.
pub fn read_to_end(mut stream: TcpStream) -> std::thread::JoinHandle<io::Result<Vec<u8>>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).map(|_| bytes)
    })
}

/// Runs the body in a process of its own whose RLIMIT_NOFILE is `limit`, soft and hard.
///
/// The process is this test binary again, told to run the calling test alone.
pub fn in_child_with_limit(limit: u64, body: impl FnOnce()) {
    const CHILD: &str = "MYRIAD_REACTOR_TEST_CHILD";
    if std::env::var_os(CHILD).is_some() {
        let rlimit = rustix::process::Rlimit {
            current: Some(limit),
            maximum: Some(limit),
        };
        rustix::process::setrlimit(rustix::process::Resource::Nofile, rlimit).unwrap();
        return body();
    }
    let name = std::thread::current()
        .name()
        .expect("the harness names its threads")
        .to_owned();
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &name, "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "the child failed: {said}");
    assert!(
        said.contains("1 passed"),
        "the child ran something else: {said}"
    );
}

/// Opens descriptors until the table is full; dropping them makes room.
pub fn fill_descriptor_table() -> Vec<std::fs::File> {
    let mut hogs = Vec::new();
    while let Ok(file) = std::fs::File::open("/dev/null") {
        hogs.push(file);
    }
    hogs
}
