//! A server of a few shards, without a control plane.

use myriad_reactor::{Epoll, Reactor, Setup, Uring, Waker, listen};
use myriad_shard::{
    Access, Ask, AskAnswer, ClientIds, ClientOptions, CloseReason, ControlPlane, Deed, Epoch,
    ErrorCode, HandOver, HandedBack, InquiryAnswer, Limits, Mesh, Metrics, Namespaces,
    NotPublished, Now, Order, OrderDone, Origin, Payload, Position, ProcessLimits, PublishRefused,
    ReaderSettings, RequestId, Settings, Shard, Transports, Turn, TurnedAway, Whose,
};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tungstenite::{HandshakeError, WebSocket, client::IntoClientRequest, error::Error};

#[derive(Clone, Copy)]
pub(crate) enum Driver {
    Epoll,
    IoUring,
}

/// What follows the request line of an upgrade.
pub(crate) const UPGRADE: &str = "Host: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";

pub(crate) struct Options {
    pub(crate) shards: usize,
    pub(crate) connections_max: u64,
    pub(crate) outbound_bytes_max: u32,
    pub(crate) hands_over: bool,
    pub(crate) ping_interval: Duration,
    pub(crate) pong_timeout: Duration,
    pub(crate) idle_timeout: Duration,
    pub(crate) handshake_timeout: Duration,
    pub(crate) subscriptions_max: u32,
    pub(crate) namespaces: Namespaces,
    pub(crate) client: ClientOptions,
    pub(crate) buffered_bytes_max: u64,
    pub(crate) unconnected_bytes_max: u64,
    pub(crate) asks_max: u64,
    pub(crate) ask_timeout: Duration,
    pub(crate) refresh_grace: Duration,
    pub(crate) slice_max: usize,
    pub(crate) access: Access,
    pub(crate) anonymous: bool,
    pub(crate) readers: ReaderSettings,
    pub(crate) limits: Limits,
    pub(crate) stall_timeout: Duration,
    /// The test answers what sessions ask; otherwise it is not available.
    pub(crate) holds_asks: bool,
    /// Histories are on it.
    pub(crate) disk: Option<crate::disk::Disk>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            shards: 2,
            connections_max: 1000,
            outbound_bytes_max: 1 << 20,
            hands_over: true,
            ping_interval: Duration::ZERO,
            pong_timeout: Duration::from_secs(10),
            idle_timeout: Duration::ZERO,
            handshake_timeout: Duration::from_secs(10),
            subscriptions_max: 128,
            namespaces: Namespaces::development(),
            client: ClientOptions::default(),
            buffered_bytes_max: ProcessLimits::default().buffered_bytes_max,
            unconnected_bytes_max: ProcessLimits::default().unconnected_bytes_max,
            asks_max: ProcessLimits::default().asks_max,
            ask_timeout: Settings::default().ask_timeout,
            refresh_grace: Settings::default().refresh_grace,
            slice_max: Settings::default().slice_max,
            access: Access::default(),
            anonymous: true,
            readers: ReaderSettings::default(),
            limits: Limits::default(),
            stall_timeout: Settings::default().stall_timeout,
            holds_asks: false,
            disk: None,
        }
    }
}

/// A hand-over into a channel.
struct Passer(Sender<(TcpStream, Vec<u8>)>);

impl HandOver<OwnedFd> for Passer {
    fn hand_over(&mut self, handle: OwnedFd, received: &[u8], _: Origin) -> io::Result<()> {
        self.0
            .send((handle.into(), received.to_vec()))
            .map_err(io::Error::other)
    }

    fn take_back(&mut self) -> Option<HandedBack<OwnedFd>> {
        None
    }

    fn turn_away(&mut self, handle: OwnedFd, _: TurnedAway) {
        drop(handle);
    }
}

/// Answers to publishers into a channel, one of which publishes at a time, and what sessions ask into another.
struct Answers {
    published: Sender<(RequestId, Option<Position>)>,
    asked: Sender<Ask>,
    ordered: Sender<(RequestId, OrderDone)>,
    /// Answers what sessions ask, unless the test does.
    mesh: Arc<OnceLock<Mesh>>,
}

impl ControlPlane for Answers {
    fn published(&self, id: RequestId, position: Result<Position, NotPublished>) {
        // Shards may outlive the test.
        let _ = self.published.send((id, position.ok()));
    }

    fn answered(&self, id: RequestId, answer: Option<InquiryAnswer>) {
        let done = match answer {
            None => OrderDone::default(),
            Some(InquiryAnswer::Ordered(done)) => done,
            Some(other) => panic!("nothing else was asked: {other:?}"),
        };
        let _ = self.ordered.send((id, done));
    }

    fn ask(&self, _mesh: &Mesh, ask: Ask) {
        match self.mesh.get() {
            Some(mesh) => mesh.answer(ask, AskAnswer::Refused(ErrorCode::NotAvailable.into())),
            None => drop(self.asked.send(ask)),
        }
    }
}

pub(crate) struct Node {
    pub(crate) address: SocketAddr,
    published: Receiver<(RequestId, Option<Position>)>,
    asked: Receiver<Ask>,
    ordered: Receiver<(RequestId, OrderDone)>,
    mesh: Mesh,
    threads: Vec<JoinHandle<()>>,
    handed_over: Receiver<(TcpStream, Vec<u8>)>,
}

impl Node {
    pub(crate) fn start(driver: Driver, options: Options) -> Self {
        let wakers: Vec<_> = (0..options.shards)
            .map(|_| Waker::new().expect("an eventfd"))
            .collect();
        let answering_mesh = Arc::default();
        let (mesh, published, asked, ordered) = mesh_of(&options, &wakers, &answering_mesh);
        if !options.holds_asks {
            let _ = answering_mesh.set(mesh.clone());
        }
        let settings = Settings {
            echo: true,
            transports: Transports::ALL,
            anonymous: options.anonymous,
            readers: options.readers,
            limits: Arc::new(options.limits.clone()),
            stall_timeout: options.stall_timeout,
            access: options.access,
            hands_over: options.hands_over,
            handshake_timeout: options.handshake_timeout,
            ping_interval: options.ping_interval,
            pong_timeout: options.pong_timeout,
            outbound_bytes_max: options.outbound_bytes_max,
            subscriptions_max: options.subscriptions_max,
            namespaces: Arc::new(options.namespaces),
            client: options.client,
            ask_timeout: options.ask_timeout,
            refresh_grace: options.refresh_grace,
            slice_max: options.slice_max,
            idle_timeout: options.idle_timeout,
            ..Settings::default()
        };
        let (sender, handed_over) = channel();
        let mut address = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut threads = Vec::new();
        for (index, waker) in wakers.into_iter().enumerate() {
            let listener = listen(address, 1024, Some(32 * 1024), true).expect("a port");
            address = listener.local_addr().expect("bound");
            let setup = Setup {
                waker,
                listeners: vec![listener],
                sockets_max: 2000,
                reactors: 1,
                speaks_first: false,
            };
            let (mesh, passer) = (mesh.clone(), Box::new(Passer(sender.clone())));
            let (settings, disk) = (settings.clone(), options.disk.clone());
            threads.push(std::thread::spawn(move || match driver {
                Driver::Epoll => {
                    let reactor = Epoll::new(setup).expect("epoll");
                    run(index, reactor, mesh, settings, passer, disk);
                }
                Driver::IoUring => {
                    let reactor = Uring::new(setup).expect("io_uring");
                    run(index, reactor, mesh, settings, passer, disk);
                }
            }));
        }
        Self {
            address,
            published,
            asked,
            ordered,
            mesh,
            threads,
            handed_over,
        }
    }

    pub(crate) fn stream(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("the server accepts");
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .expect("a socket");
        stream
    }

    fn request(&self, path: &str) -> Result<WebSocket<TcpStream>, Error> {
        let request = format!("ws://{}{path}", self.address)
            .into_client_request()
            .expect("a URL");
        match tungstenite::client(request, self.stream()) {
            Ok((client, _)) => Ok(client),
            Err(HandshakeError::Failure(error)) => Err(error),
            Err(HandshakeError::Interrupted(_)) => panic!("no answer to the handshake"),
        }
    }

    /// Opens a WebSocket with a header of its own.
    pub(crate) fn connect_with(
        &self,
        path: &str,
        name: &'static str,
        value: &'static str,
    ) -> WebSocket<TcpStream> {
        let mut request = format!("ws://{}{path}", self.address)
            .into_client_request()
            .expect("a URL");
        let value = value.parse().expect("a header's value");
        request.headers_mut().insert(name, value);
        match tungstenite::client(request, self.stream()) {
            Ok((client, _)) => client,
            Err(error) => panic!("{error:?}"),
        }
    }

    pub(crate) fn connect(&self, path: &str) -> WebSocket<TcpStream> {
        self.request(path).expect("an upgrade")
    }

    pub(crate) fn refused(&self, path: &str) -> (u16, Option<String>) {
        match self.request(path) {
            Err(Error::Http(response)) => {
                let retry = response
                    .headers()
                    .get("retry-after")
                    .map(|value| value.to_str().expect("text").to_owned());
                (response.status().as_u16(), retry)
            }
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn try_publish(&self, name: &str, payload: Payload) -> Result<u64, PublishRefused> {
        self.mesh.publish(name, payload, Some(RequestId(7)))?;
        let (id, position) = self.published.recv().expect("an answer");
        assert_eq!(id, RequestId(7));
        let position = position.expect("a position");
        Ok(position.offset)
    }

    /// The next answer to a publisher.
    pub(crate) fn published(&self) -> Option<Position> {
        self.published.recv().expect("an answer").1
    }

    pub(crate) fn publish(&self, name: &str, payload: Payload) -> u64 {
        self.try_publish(name, payload).expect("admitted")
    }

    pub(crate) fn mesh(&self) -> &Mesh {
        &self.mesh
    }

    /// What a session asks next.
    pub(crate) fn asked(&self) -> Ask {
        let ask = self.asked.recv_timeout(Duration::from_secs(20));
        ask.expect("a question")
    }

    pub(crate) fn answer(&self, ask: Ask, code: ErrorCode) {
        self.mesh.answer(ask, AskAnswer::Refused(code.into()));
    }

    /// Answers what a session asks with a grant.
    pub(crate) fn grant(&self, ask: Ask, answer: AskAnswer) {
        self.mesh.answer(ask, answer);
    }

    /// Has an order carried out. What the shards say, in their order.
    pub(crate) fn order(&self, whose: Whose, deed: Deed) -> Vec<OrderDone> {
        let order = self.mesh.new_order(whose, deed);
        self.ordered(&order.expect("there is room"))
    }

    /// As [`Node::order`].
    pub(crate) fn ordered(&self, order: &Arc<Order>) -> Vec<OrderDone> {
        let shards = self.mesh.shards_of(order.whose());
        for shard in shards.clone() {
            let id = RequestId(shard as u64);
            self.mesh.order(shard, id, Arc::clone(order));
        }
        let mut done: Vec<_> = shards
            .map(|_| self.ordered.recv_timeout(Duration::from_secs(20)))
            .map(|done| done.expect("an order is carried out"))
            .collect();
        done.sort_by_key(|(id, _)| id.0);
        done.into_iter().map(|(_, done)| done).collect()
    }

    /// Whether every shard has ended.
    pub(crate) fn are_ended(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    pub(crate) fn sum(&self, figure: impl Fn(&Metrics) -> u64) -> u64 {
        self.mesh.metrics().iter().map(figure).sum()
    }

    pub(crate) fn closes(&self, reason: CloseReason) -> u64 {
        self.sum(|metrics| metrics.closes[reason as usize].value())
    }

    /// Waits until so many publications were left out, for one client each, which could not read them.
    pub(crate) fn settle_unreadable(&self, count: u64) {
        self.settle(|node| node.sum(|metrics| metrics.unreadable_publications.value()) == count);
    }

    pub(crate) fn handed_over(&self) -> (TcpStream, Vec<u8>) {
        self.handed_over
            .recv_timeout(Duration::from_secs(20))
            .expect("a connection")
    }

    /// Waits for a state that has to come; how long it takes is not the test's business.
    pub(crate) fn settle(&self, reached: impl Fn(&Self) -> bool) {
        let began = Instant::now();
        while !reached(self) {
            assert!(began.elapsed() < Duration::from_secs(20), "not reached");
            // A loop without a pause would take the processor from the threads that it waits for.
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub(crate) fn drain(&self, over: Duration) {
        self.mesh.drain(over);
    }

    /// Waits for every shard to finish its drain; answers how many connections it closed.
    pub(crate) fn finish(mut self) -> u64 {
        for thread in std::mem::take(&mut self.threads) {
            thread.join().expect("a shard that finishes");
        }
        self.closes(CloseReason::Drain)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.mesh.drain(Duration::ZERO);
    }
}

type Told = (
    Mesh,
    Receiver<(RequestId, Option<Position>)>,
    Receiver<Ask>,
    Receiver<(RequestId, OrderDone)>,
);

/// A mesh, and what it tells the control plane.
fn mesh_of(options: &Options, wakers: &[Waker], answering: &Arc<OnceLock<Mesh>>) -> Told {
    let limits = ProcessLimits {
        connections_max: options.connections_max,
        buffered_bytes_max: options.buffered_bytes_max,
        unconnected_bytes_max: options.unconnected_bytes_max,
        asks_max: options.asks_max,
        http_streams: true,
        ..ProcessLimits::default()
    };
    let (published, positions) = channel();
    let (asked, asks) = channel();
    let (ordered, orders) = channel();
    let answers = Box::new(Answers {
        published,
        asked,
        ordered,
        mesh: Arc::clone(answering),
    });
    let (epoch, ids) = (Epoch::new(7), ClientIds::new(7));
    let mesh = Mesh::new(wakers.to_vec(), limits, epoch, ids, answers);
    (mesh, positions, asks, orders)
}

fn run<R: Reactor<Handle = OwnedFd>>(
    index: usize,
    reactor: R,
    mesh: Mesh,
    settings: Settings,
    passer: Box<Passer>,
    disk: Option<crate::disk::Disk>,
) {
    let epoch = Instant::now();
    let now = || Now(u64::try_from(epoch.elapsed().as_nanos()).expect("not for 584 years"));
    let mut shard = Shard::new(index, reactor, mesh, settings, passer, 0, now());
    if let Some(disk) = disk {
        shard = shard.with_journal(Box::new(disk), Vec::new(), |_| (), 0, now());
    }
    loop {
        shard.wait(now()).expect("a usable reactor");
        if shard.turn(now()) == Turn::Finished {
            return;
        }
    }
}
