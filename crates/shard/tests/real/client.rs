//! A client of the Centrifuge protocol.

use super::node::Node;
use serde_json::{Value, json};
use std::net::TcpStream;
use tungstenite::{Message, WebSocket};

pub(crate) const PATH: &str = "/connection/websocket";

/// A client that has connected: JSON lines over a WebSocket.
pub(crate) struct Client(pub(crate) WebSocket<TcpStream>);

impl Client {
    pub(crate) fn open(node: &Node) -> Self {
        let mut client = Self(node.connect(PATH));
        client.send(&json!({"id": 1, "connect": {}}));
        let reply = client.read();
        assert_eq!(reply["id"], 1, "{reply}");
        assert_eq!(
            reply["connect"]["version"],
            concat!("myriad ", env!("CARGO_PKG_VERSION"))
        );
        client
    }

    pub(crate) fn send(&mut self, command: &Value) {
        self.send_text(command.to_string());
    }

    pub(crate) fn send_text(&mut self, frame: String) {
        self.0.send(Message::text(frame)).expect("a socket");
    }

    /// The next frame with one message. Pings are none.
    pub(crate) fn read(&mut self) -> Value {
        let mut lines = self.read_lines();
        assert_eq!(lines.len(), 1, "{lines:?}");
        lines.remove(0)
    }

    pub(crate) fn read_lines(&mut self) -> Vec<Value> {
        let frame = self.0.read().expect("a frame");
        let text = frame.to_text().expect("text");
        text.lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect()
    }

    pub(crate) fn ask(&mut self, command: &Value) -> Value {
        self.send(command);
        self.read()
    }

    /// The code of the close frame that comes next.
    pub(crate) fn close_code(&mut self) -> u16 {
        Self::close_code_of(&mut self.0)
    }

    /// The same of a client that has not connected.
    pub(crate) fn close_code_of(socket: &mut WebSocket<TcpStream>) -> u16 {
        loop {
            match socket.read() {
                Ok(Message::Close(Some(frame))) => return frame.code.into(),
                Ok(_) => {}
                Err(error) => panic!("no close frame: {error}"),
            }
        }
    }
}
