//! A small HTTP server whose every answer a test decides: at once, or when something is published.

use super::{read_body, read_head};
use myriad_swarm::{Config, Driver, Endpoint, LiveStyle, Protocol, Publish, PublishBody, Target};
use std::io::Write as _;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// In the order in which they were accepted, from 0.
    pub(crate) connection: usize,
    pub(crate) number_on_connection: usize,
    pub(crate) head: String,
    pub(crate) body: String,
}

/// What to do with a request.
#[derive(Debug)]
pub(crate) enum Reply {
    Say(String),
    SayAndEnd(String),
    /// The beginning of a stream.
    SayAndHold(String),
    Hold,
    End,
}

/// A request that is held, or a stream.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) asked: Asked,
    stream: TcpStream,
}

impl Held {
    pub(crate) fn say(&self, text: &str) {
        (&self.stream).write_all(text.as_bytes()).unwrap();
    }

    pub(crate) fn end(self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

#[derive(Default)]
struct AllHeld {
    list: Mutex<Vec<Held>>,
    more: Condvar,
}

/// The server; its threads end with the test's process.
pub(crate) struct HttpServer {
    address: SocketAddr,
    publishing: SocketAddr,
    publications: Arc<Mutex<Vec<Asked>>>,
}

impl HttpServer {
    /// Does with each request what `reply` says. Each publish request waits until so many are `held`, then calls `publish`
    /// with its number from 1, its body and what is held; its answer is the status.
    pub(crate) fn start(
        held: usize,
        reply: impl Fn(&Asked) -> Reply + Send + Sync + 'static,
        publish: impl FnMut(u32, &str, &mut Vec<Held>) -> u16 + Send + 'static,
    ) -> Self {
        let all = Arc::new(AllHeld::default());
        let clients = TcpListener::bind("127.0.0.1:0").unwrap();
        let publishers = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Self {
            address: clients.local_addr().unwrap(),
            publishing: publishers.local_addr().unwrap(),
            publications: Arc::default(),
        };
        let (publications, holding) = (Arc::clone(&server.publications), Arc::clone(&all));
        std::thread::spawn(move || accept(&clients, &all, Arc::new(reply)));
        std::thread::spawn(move || {
            take_publications(&publishers, &holding, &publications, held, publish)
        });
        server
    }

    /// A run of `connections` clients, with plain pushes as fast as it goes.
    pub(crate) fn config(
        &self,
        driver: Driver,
        protocol: Protocol,
        path: &str,
        connections: u64,
        pushes: u32,
    ) -> Config {
        let target = Target::parse(&format!("http://{}{path}", self.address)).unwrap();
        let mut publish = Publish::new(self.endpoint("/publish"), Duration::from_millis(1));
        publish.body = PublishBody::Plain;
        publish.pushes = Some(pushes);
        publish.warmup = Duration::ZERO;
        let mut config = Config::new(vec![target], connections);
        config.driver = Some(driver);
        config.protocol = protocol;
        config.live = LiveStyle::Off;
        config.publish = Some(publish);
        config.settle = Duration::from_secs(10);
        config.retries = 0;
        config
    }

    pub(crate) fn endpoint(&self, path: &str) -> Endpoint {
        Endpoint::parse(&format!("http://{}{path}", self.publishing)).unwrap()
    }

    /// Where clients connect to, and where publish requests go.
    pub(crate) fn addresses(&self) -> (SocketAddr, SocketAddr) {
        (self.address, self.publishing)
    }

    pub(crate) fn publications(&self) -> Vec<Asked> {
        self.publications.lock().unwrap().clone()
    }
}

/// A chunk of a body.
pub(crate) fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

type Replies = Arc<dyn Fn(&Asked) -> Reply + Send + Sync>;

fn accept(listener: &TcpListener, all: &Arc<AllHeld>, reply: Replies) {
    for (connection, stream) in listener.incoming().enumerate() {
        let (all, reply) = (Arc::clone(all), Arc::clone(&reply));
        std::thread::spawn(move || serve(connection, stream.unwrap(), &all, &reply));
    }
}

fn serve(connection: usize, mut stream: TcpStream, all: &AllHeld, reply: &Replies) {
    for number_on_connection in 0.. {
        let Some(head) = read_head(&mut stream) else {
            return;
        };
        let body = read_body(&mut stream, &head);
        let asked = Asked {
            connection,
            number_on_connection,
            head,
            body,
        };
        // Locked before a test decides and before the client hears of it: a push that is made after that must find it here.
        let mut list = all.list.lock().unwrap();
        let reply = reply(&asked);
        let text = match &reply {
            Reply::Say(text) | Reply::SayAndEnd(text) | Reply::SayAndHold(text) => text.as_str(),
            Reply::Hold | Reply::End => "",
        };
        if stream.write_all(text.as_bytes()).is_err() {
            return;
        }
        match reply {
            Reply::Say(_) => {}
            Reply::SayAndEnd(_) | Reply::End => return,
            Reply::SayAndHold(_) | Reply::Hold => {
                let stream = stream.try_clone().unwrap();
                list.push(Held { asked, stream });
                all.more.notify_all();
            }
        }
    }
}

fn take_publications(
    listener: &TcpListener,
    all: &AllHeld,
    publications: &Mutex<Vec<Asked>>,
    wanted: usize,
    mut publish: impl FnMut(u32, &str, &mut Vec<Held>) -> u16,
) {
    let mut number = 0;
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        while let Some(head) = read_head(&mut stream) {
            let body = read_body(&mut stream, &head);
            publications.lock().unwrap().push(Asked {
                connection: 0,
                number_on_connection: number as usize,
                head,
                body: body.clone(),
            });
            number += 1;
            let list = all.list.lock().unwrap();
            let mut list = all
                .more
                .wait_while(list, |list| list.len() < wanted)
                .unwrap();
            let status = publish(number, &body, &mut list);
            drop(list);
            let answer = format!("HTTP/1.1 {status} Status\r\ncontent-length: 0\r\n\r\n");
            if stream.write_all(answer.as_bytes()).is_err() {
                break;
            }
        }
    }
}
