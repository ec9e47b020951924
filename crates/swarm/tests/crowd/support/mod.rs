//! A small WebSocket server whose every step a test decides, and the runs against it.
//!
//! It does nothing by itself: each publish request calls the test's script with all connected clients,
//! on the publisher's thread. So a test needs no sleeps: the run ends when its last push is measured.

#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

pub(crate) mod http;
pub(crate) mod program;

use myriad_swarm::{
    Config, Driver, Endpoint, Interrupt, LiveStyle, Publish, PublishBody, Report, Target,
};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tungstenite::{Message, WebSocket};

/// Settle time of a run in which somebody never gets something, and which therefore waits for it: longer than a busy machine holds
/// anything up.
pub(crate) const SHORT_SETTLE: Duration = Duration::from_secs(3);

/// In place of a status: the connection ends without an answer.
pub(crate) const NO_ANSWER: u16 = 0;

/// A connected client.
pub(crate) type Client = WebSocket<TcpStream>;

/// What to do with a connection attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Admission {
    Upgrade,
    /// Upgrade, agree to the subprotocol that is offered, and begin like this.
    Greet(fn(&mut Client)),
    /// Upgrade to this subprotocol, whatever is offered.
    Subprotocol(&'static str),
    /// Answer with this status.
    Refuse(u16),
    /// Answer with this, and go on holding the connection.
    Say(&'static str),
    /// End the connection when the request has come.
    End,
    /// Never answer.
    Ignore,
}

#[derive(Default)]
struct Clients {
    list: Mutex<Vec<Client>>,
    more: Condvar,
}

/// The server; its threads end with the test's process.
pub(crate) struct Server {
    pub(crate) websocket: SocketAddr,
    pub(crate) http: SocketAddr,
    /// First lines of all requests to `http`.
    pub(crate) requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// Admits the n-th attempt as `admit` says. Each publish request waits for `clients` of them, then calls
    /// `script` with its number from 1, its body and the clients; the script's answer is the status.
    pub(crate) fn start(
        clients: usize,
        admit: impl Fn(usize) -> Admission + Send + 'static,
        script: impl FnMut(u32, &str, &mut Vec<Client>) -> u16 + Send + 'static,
    ) -> Self {
        let shared = Arc::new(Clients::default());
        let websocket = roomy_listener();
        let http = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Self {
            websocket: websocket.local_addr().unwrap(),
            http: http.local_addr().unwrap(),
            requests: Arc::default(),
        };
        let requests = Arc::clone(&server.requests);
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || accept(&websocket, &accepting, admit));
        std::thread::spawn(move || answer(&http, &shared, &requests, clients, script));
        server
    }

    /// A run of `connections` terminals with plain pushes, all as fast as it goes.
    pub(crate) fn config(&self, driver: Driver, connections: u64, pushes: u32) -> Config {
        let target = Target::parse(&format!("ws://{}/raw?channel=x", self.websocket)).unwrap();
        let endpoint = Endpoint::parse(&format!("http://{}/publish", self.http)).unwrap();
        let mut publish = Publish::new(endpoint, Duration::from_millis(1));
        publish.body = PublishBody::Plain;
        publish.pushes = Some(pushes);
        publish.warmup = Duration::ZERO;
        let mut config = Config::new(vec![target], connections);
        config.driver = Some(driver);
        config.live = LiveStyle::Off;
        config.publish = Some(publish);
        config.settle = Duration::from_secs(10);
        config.retries = 0;
        config
    }
}

fn accept(listener: &TcpListener, clients: &Clients, admit: impl Fn(usize) -> Admission) {
    let mut ignored = Vec::new();
    for (number, stream) in listener.incoming().enumerate() {
        let mut stream = stream.unwrap();
        match admit(number) {
            Admission::Upgrade => {
                // Locked before it is told that it is a client: a push made after that must find it here.
                let mut list = clients.list.lock().unwrap();
                // A terminal that gave up meanwhile is no client.
                let Ok(client) = tungstenite::accept(stream) else {
                    continue;
                };
                list.push(client);
                clients.more.notify_all();
            }
            Admission::Greet(greet) => {
                let mut list = clients.list.lock().unwrap();
                let Ok(mut client) = tungstenite::accept_hdr(stream, agree) else {
                    continue;
                };
                greet(&mut client);
                list.push(client);
                clients.more.notify_all();
            }
            Admission::Subprotocol(name) => {
                let mut list = clients.list.lock().unwrap();
                #[expect(clippy::result_large_err, reason = "the library's signature")]
                let choose = |_: &Request, mut answer: Response| {
                    let value = name.parse().unwrap();
                    answer.headers_mut().insert("sec-websocket-protocol", value);
                    Ok(answer)
                };
                if let Ok(client) = tungstenite::accept_hdr(stream, choose) {
                    list.push(client);
                    clients.more.notify_all();
                }
            }
            Admission::Refuse(status) => {
                read_head(&mut stream);
                let answer = format!("HTTP/1.1 {status} No\r\ncontent-length: 0\r\n\r\n");
                let _ = stream.write_all(answer.as_bytes());
            }
            Admission::Say(answer) => {
                read_head(&mut stream);
                let _ = stream.write_all(answer.as_bytes());
                ignored.push(stream);
            }
            Admission::End => drop(read_head(&mut stream)),
            Admission::Ignore => ignored.push(stream),
        }
    }
}

/// Repeats the subprotocol that a client offers.
#[expect(
    clippy::unnecessary_wraps,
    clippy::result_large_err,
    reason = "the library's signature"
)]
pub(crate) fn agree(request: &Request, mut answer: Response) -> Result<Response, ErrorResponse> {
    const NAME: &str = "sec-websocket-protocol";
    if let Some(offered) = request.headers().get(NAME) {
        answer.headers_mut().insert(NAME, offered.clone());
    }
    Ok(answer)
}

/// Serves publish requests, one connection after the other.
fn answer(
    listener: &TcpListener,
    clients: &Clients,
    requests: &Mutex<Vec<String>>,
    wanted: usize,
    mut script: impl FnMut(u32, &str, &mut Vec<Client>) -> u16,
) {
    let mut number = 0;
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        while let Some(head) = read_head(&mut stream) {
            let line = head.lines().next().unwrap_or_default();
            requests.lock().unwrap().push(line.to_owned());
            let mut status = 200;
            if head.starts_with("POST") {
                let body = read_body(&mut stream, &head);
                let list = clients.list.lock().unwrap();
                let mut list = clients
                    .more
                    .wait_while(list, |list| list.len() < wanted)
                    .unwrap();
                number += 1;
                status = script(number, &body, &mut list);
            }
            if status == NO_ANSWER {
                break;
            }
            let answer = format!("HTTP/1.1 {status} Status\r\ncontent-length: 2\r\n\r\nok");
            if stream.write_all(answer.as_bytes()).is_err() {
                break;
            }
        }
    }
}

/// Reads a request's head; none if the stream has ended.
pub(crate) fn read_head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    Some(String::from_utf8(head).unwrap())
}

/// Reads the body of the request with this head.
pub(crate) fn read_body(stream: &mut TcpStream, head: &str) -> String {
    let length = head
        .to_ascii_lowercase()
        .lines()
        .find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok())
        .unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    String::from_utf8(body).unwrap()
}

/// A listener with room for a whole crowd. The standard library's has room for 128. A crowd of more may overflow it, and the kernel then
/// resets connections whose SYN cookies it cannot take.
fn roomy_listener() -> TcpListener {
    let listener = myriad_reactor::listen(([127, 0, 0, 1], 0).into(), 4096, None, false).unwrap();
    listener.set_nonblocking(false).unwrap();
    listener
}

/// Gives every client a text message.
pub(crate) fn broadcast(clients: &mut [Client], text: &str) {
    for client in clients {
        client.send(Message::text(text)).unwrap();
    }
}

/// Waits until every client has read what it was given: each answers a ping that stands behind it.
pub(crate) fn await_reading(clients: &mut [Client]) {
    for client in &mut *clients {
        client.send(Message::Ping("read".into())).unwrap();
    }
    for client in clients {
        assert_eq!(client.read().unwrap(), Message::Pong("read".into()));
    }
}

/// The drivers that work here: epoll, and io_uring where the kernel allows it.
pub(crate) fn drivers() -> Vec<Driver> {
    let mut drivers = vec![Driver::Epoll];
    match Driver::probe_io_uring() {
        Ok(()) => drivers.push(Driver::IoUring),
        Err(reason) => eprintln!("io_uring is not tested here: {reason:?}"),
    }
    drivers
}

/// A whole run.
pub(crate) fn run(config: &Config) -> Report {
    myriad_swarm::run(config, &Interrupt::new()).unwrap()
}
