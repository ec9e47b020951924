//! A NATS server that tests play.

use myriad_nats::Nats;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// A server that waits for connections.
pub(super) struct Server {
    pub(super) listener: TcpListener,
    pub(super) nats: Nats,
}

/// The server's end of a connection.
pub(super) struct Peer(BufReader<TcpStream>);

impl Server {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let nats = Nats::at(format!("nats://{address}"));
        Self { listener, nats }
    }

    /// Lets the next client in.
    pub(super) async fn let_in(&self, info: &str) -> Peer {
        let (stream, _) = self.listener.accept().await.unwrap();
        let mut peer = Peer(BufReader::new(stream));
        peer.say(&format!("INFO {info}\r\n")).await;
        assert!(peer.line().await.starts_with("CONNECT "));
        assert_eq!(peer.line().await, "PING");
        peer.say("PONG\r\n").await;
        peer
    }
}

impl Peer {
    pub(super) async fn say(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).await.unwrap();
    }

    /// The next line; empty at the end of the connection.
    pub(super) async fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).await.unwrap();
        line.trim_end().to_owned()
    }

    /// The next line; none at the end of the connection.
    pub(super) async fn line_or_end(&mut self) -> Option<String> {
        let mut line = String::new();
        let count = self.0.read_line(&mut line).await.unwrap_or(0);
        (count > 0).then(|| line.trim_end().to_owned())
    }

    /// The client subscribes to an inbox of its own: returns that.
    pub(super) async fn subscribed(&mut self) -> String {
        let line = self.line().await;
        let words: Vec<&str> = line.split(' ').collect();
        let ["SUB", inbox, _] = words[..] else {
            panic!("{line}");
        };
        assert!(inbox.starts_with("_INBOX."));
        inbox.to_owned()
    }

    /// The next message of the client: its control line, and its headers and payload.
    pub(super) async fn message(&mut self) -> (String, String) {
        let line = self.line().await;
        let bytes = line.rsplit(' ').next().unwrap();
        let mut body = vec![0; bytes.parse::<usize>().unwrap() + 2];
        self.0.read_exact(&mut body).await.unwrap();
        (line, String::from_utf8(body).unwrap())
    }
}
