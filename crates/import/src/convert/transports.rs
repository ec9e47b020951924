//! Pings, compression, who may connect from where, the broker, and statuses of refusals.

use super::Import;
use crate::report::{Fate, Note};
use crate::source::{Node, Value};
use crate::table::{Form, Scope};
use crate::value::{list, span, text, text_list, time_ns};

/// The defaults of Centrifugo.
const PING_MS: u64 = 25_000;
const PONG_MS: u64 = 8_000;

const ALONE: &str = "the node is alone and keeps all in memory: for a cluster write broker = \"nats://...\", with a NATS server that has JetStream (docs/cluster.md)";

impl Import<'_> {
    pub(super) fn transports(&mut self) {
        self.compression();
        self.origins();
        self.connection_limit();
        self.public_metrics();
        self.broker();
        self.connect_codes();
    }

    fn compression(&mut self) {
        let (is_on, node) = self.take_flag("websocket.compression");
        if is_on {
            self.output.set("compression", text("shared"), None);
            self.taken(node.as_ref(), "compression");
            return;
        }
        let why =
            "Centrifugo compresses nothing unless it is told to; here \"shared\" is the default";
        self.output.set("compression", text("off"), Some(why));
        match node {
            Some(node) => self.taken(Some(&node), "compression"),
            None => self.unset(
                Fate::Stated,
                "websocket.compression",
                "compression",
                "off is the default there, and shared here",
            ),
        }
    }

    fn origins(&mut self) {
        let Some(node) = self.tree.take("client.allowed_origins") else {
            self.unset(Fate::Changed, "client.allowed_origins", "client.allowed_origins", "no page may connect there by default; here those of the server's own host may, and nothing is written");
            return;
        };
        match list(&node.value) {
            Some(origins) if origins.is_empty() => {
                self.changed(
                    &node,
                    "client.allowed_origins",
                    "no page may connect there; here those of the server's own host may",
                );
            }
            Some(origins) => {
                self.output
                    .set("client.allowed_origins", text_list(&origins), None);
                self.taken(Some(&node), "client.allowed_origins");
            }
            None => {
                self.literal(Form::List, &node);
            }
        }
    }

    fn connection_limit(&mut self) {
        let Some(node) = self.tree.take("client.connection_limit") else {
            return;
        };
        let path = "client.connection_limit";
        match self.ruled(Scope::Top, path, &node) {
            Some(limit) if limit == "0" => self.unused(Some(&node)),
            Some(limit) => {
                self.output.set(path, limit, None);
                self.taken(Some(&node), path);
            }
            None => {}
        }
    }

    /// With an internal address metrics are there, and nobody needs a key for them.
    fn public_metrics(&mut self) {
        let (is_on, node) = self.take_flag("prometheus.enabled");
        let Some(node) = node else {
            return;
        };
        if !is_on {
            self.unused(Some(&node));
            return;
        }
        let names = "the metrics have other names (docs/metrics.md)";
        if self.output.value("internal-listen").is_some() {
            self.changed(&node, "GET /metrics", names);
        } else {
            let why = "Centrifugo shows its metrics to everybody who reaches the port";
            self.output.set("public-metrics", "true", Some(why));
            self.changed(&node, "public-metrics", names);
        }
    }

    fn broker(&mut self) {
        let (engine, engine_node) = self.take_text("engine.type");
        let (has_broker, broker_node) = self.take_flag("broker.enabled");
        let (kind, kind_node) = self.take_text("broker.type");
        let (url, _) = self.take_text("broker.nats.url");
        match engine_node {
            Some(node) if !["", "memory"].contains(&&*engine) => self.undecided(&node, ALONE),
            node => self.unused(node.as_ref()),
        }
        let switch = kind_node.or(broker_node);
        match switch {
            Some(node) if has_broker && kind == "nats" => {
                let servers = if url.is_empty() {
                    "nats://127.0.0.1:4222"
                } else {
                    &url
                };
                let why = "take the sign away when that NATS server has JetStream, and read docs/cluster.md: with a broker this node is one of a cluster";
                self.output.suggest("broker", text(servers), Some(why));
                self.undecided(&node, ALONE);
            }
            Some(node) if has_broker && !["", "memory"].contains(&&*kind) => {
                self.undecided(&node, ALONE);
            }
            node => self.unused(node.as_ref()),
        }
    }

    /// Less than zero turns either off there. Without pings no pong is awaited anywhere.
    pub(super) fn pings(&mut self) {
        let ping = self.tree.take("client.ping_interval");
        let ping_ms = match &ping {
            None => Some(PING_MS),
            Some(node) => self.signed_ms(node, PING_MS),
        };
        let Some(ping_ms) = ping_ms else {
            return;
        };
        if let Some(node) = &ping {
            match ping_ms {
                PING_MS => self.unused(Some(node)),
                _ => {
                    let ours = "client.ping_interval";
                    self.output.set(ours, text(&span(ping_ms)), None);
                    self.taken(Some(node), ours);
                }
            }
        }
        let pong = self.tree.take("client.pong_timeout");
        self.pong(pong, ping_ms);
    }

    fn pong(&mut self, node: Option<Node>, ping_ms: u64) {
        let ours = "client.pong_timeout";
        let Some(node) = node else {
            let pong_ms = match ping_ms {
                0 => PONG_MS,
                ping_ms => PONG_MS.min(ping_ms),
            };
            let why = "8s is the default of Centrifugo, and 10s here";
            self.output.set(ours, text(&span(pong_ms)), Some(why));
            self.unset(Fate::Stated, "client.pong_timeout", ours, why);
            return;
        };
        // What the library of Centrifugo takes for zero.
        let Some(pong_ms) = self.signed_ms(&node, 10_000) else {
            return;
        };
        if pong_ms == 0 {
            self.missing(&node, "a pong is always awaited here, 10s after a ping or until the next one; a client without pongs is closed with 3012");
        } else if ping_ms > 0 && pong_ms > ping_ms {
            self.output.set(ours, text(&span(ping_ms)), None);
            self.changed(
                &node,
                ours,
                "a pong is awaited until the next ping, and no longer",
            );
        } else {
            self.output.set(ours, text(&span(pong_ms)), None);
            self.taken(Some(&node), ours);
        }
    }

    /// A time in milliseconds: 0 if it is less than zero, and the default if it is zero.
    fn signed_ms(&mut self, node: &Node, default_ms: u64) -> Option<u64> {
        let time = time_ns(&node.value);
        // An environment and version 5 have -1 as text.
        let is_off = matches!(&node.value, Value::Text(text) if text.trim() == "-1");
        match time {
            _ if is_off => Some(0),
            Some(..=-1) => Some(0),
            Some(0) => Some(default_ms),
            _ => {
                self.ruled(Scope::Top, "client.ping_interval", node)?;
                let ms = time?.div_euclid(1_000_000).max(1);
                Some(u64::try_from(ms).ok()?.min(720 * 3_600_000))
            }
        }
    }

    /// `uni_sse` and `uni_http_stream` have a list each there, and one together here.
    fn connect_codes(&mut self) {
        let mut written: Vec<(i64, String)> = Vec::new();
        for place in ["uni_sse", "uni_http_stream"] {
            let path = format!("{place}.connect_code_to_http_response");
            let (is_on, switch) = self.take_flag(&format!("{path}.enabled"));
            self.unused(switch.as_ref());
            if !is_on {
                self.idle(&path);
                continue;
            }
            let transforms = self.tree.take(&format!("{path}.transforms"));
            let Some(Node {
                value: Value::List(items),
                ..
            }) = transforms
            else {
                continue;
            };
            for item in &items {
                self.connect_code(item, &mut written);
            }
        }
        if !written.is_empty() {
            let tables = written.into_iter().map(|(_, table)| table);
            let list = format!("[{}]", tables.collect::<Vec<_>>().join(", "));
            self.output
                .set("client.connect_code_to_http_response", list, None);
        }
    }

    fn connect_code(&mut self, item: &Node, written: &mut Vec<(i64, String)>) {
        let number = |path: &str| match item.find(path).map(|node| &node.value) {
            Some(Value::Integer(number)) => Some(*number),
            _ => None,
        };
        let code = number("code");
        let status = ["to.status_code", "to_response.status_code"];
        let status = status.into_iter().find_map(number);
        let (Some(code @ 3000..5000), Some(status @ 400..600)) = (code, status) else {
            self.missing(item, "codes are those of closes (3000 to 4999), and statuses are 400 to 599 (docs/protocol.md)");
            return;
        };
        let body = ["to.body", "to_response.body"];
        let body = body.into_iter().find_map(|path| item.find(path));
        let body = body.map(|node| node.value.clone());
        let body = match body {
            Some(Value::Text(body)) if !body.is_empty() => format!(", body = {}", text(&body)),
            _ => String::new(),
        };
        let table = format!("{{ code = {code}, status_code = {status}{body} }}");
        let ours = "client.connect_code_to_http_response";
        match written.iter().find(|(known, _)| *known == code) {
            None => {
                written.push((code, table));
                self.notes.push(
                    Note::of(item, Fate::Changed)
                        .at(ours)
                        .meaning("it is for uni_sse and uni_http_stream alike"),
                );
            }
            Some((_, known)) if *known == table => self.unused(Some(item)),
            Some(_) => self.missing(
                item,
                "one list is for uni_sse and uni_http_stream, and it has this code already",
            ),
        }
    }
}
