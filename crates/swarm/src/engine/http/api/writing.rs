//! The bytes of a request of a flow.

use super::super::exchange::has_option;
use crate::engine::crowd::World;
use crate::engine::flows::plan::RequestPlan;
use crate::engine::flows::template::Values;
use crate::random::Random;
use hyper::Method;
use std::borrow::Cow;

/// A request as it goes out.
#[derive(Debug)]
pub(in crate::engine) struct Written {
    pub(super) bytes: Box<[u8]>,
    /// It asks the server to end the connection behind the answer, so that no other request may follow it (RFC 9112, section 9.6).
    pub(super) closes: bool,
}

impl World {
    /// Writes a request of a terminal to its target.
    pub(in crate::engine) fn write_request(
        &self,
        index: u32,
        request: &RequestPlan,
        values: &Values<'_>,
        random: &mut Random,
    ) -> Written {
        let number = self.plan.number(self.part, index);
        let path = self.plan.own_path(self.target_index(index), number);
        let path = path.split('?').next().unwrap_or_default();
        let to = (&*self.target(index).host, path.trim_end_matches('/'));
        let of_all: Vec<_> = self.plan.own_headers(number).collect();
        request.write(to, &of_all, values, random)
    }
}

impl RequestPlan {
    /// Writes the request: to this host, behind this path, with headers that all requests have beside its own.
    fn write(
        &self,
        (host, path): (&str, &str),
        of_all: &[(&str, Cow<'_, str>)],
        values: &Values<'_>,
        random: &mut Random,
    ) -> Written {
        let mut head = Head::default();
        head.bytes
            .extend_from_slice(self.method.as_str().as_bytes());
        head.bytes.push(b' ');
        head.bytes.extend_from_slice(path.as_bytes());
        self.path.write(&mut head.bytes, values, random);
        head.bytes.extend_from_slice(b" HTTP/1.1\r\n");
        let is_own = |name: &str| {
            let mut own = self.headers.iter();
            own.any(|(own, _)| own.as_str().eq_ignore_ascii_case(name))
        };
        let is_host = |(name, _): &(&str, Cow<'_, str>)| name.eq_ignore_ascii_case("host");
        if !is_own("host") && !of_all.iter().any(is_host) {
            head.push("host", |out| out.extend_from_slice(host.as_bytes()));
        }
        for (name, value) in &self.headers {
            head.push(name.as_str(), |out| value.write(out, values, random));
        }
        for (name, value) in of_all.iter().filter(|(name, _)| !is_own(name)) {
            head.push(name, |out| out.extend_from_slice(value.as_bytes()));
        }
        let mut body = Vec::new();
        if let Some(template) = &self.body {
            template.write(&mut body, values, random);
        }
        if self.body.is_some() || self.has_length_without_body() {
            let length = body.len().to_string();
            head.push("content-length", |out| {
                out.extend_from_slice(length.as_bytes())
            });
        }
        head.bytes.extend_from_slice(b"\r\n");
        head.bytes.append(&mut body);
        Written {
            bytes: head.bytes.into(),
            closes: head.closes,
        }
    }

    /// Whether its length is told even if it has no body, because its method expects one (RFC 9110, section 8.6).
    fn has_length_without_body(&self) -> bool {
        [Method::POST, Method::PUT, Method::PATCH].contains(&self.method)
    }
}

/// The head of a request under construction.
#[derive(Default)]
struct Head {
    bytes: Vec<u8>,
    closes: bool,
}

impl Head {
    /// Adds a header, whose value `write` appends.
    fn push(&mut self, name: &str, write: impl FnOnce(&mut Vec<u8>)) {
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.extend_from_slice(b": ");
        let from = self.bytes.len();
        write(&mut self.bytes);
        // What an account has must not begin another header.
        for byte in &mut self.bytes[from..] {
            if matches!(byte, b'\r' | b'\n' | 0) {
                *byte = b' ';
            }
        }
        if name.eq_ignore_ascii_case("connection") {
            self.closes |= has_option(&self.bytes[from..], "close");
        }
        self.bytes.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;
    use myriad_reactor::Driver;
    use std::path::Path;

    /// The first request of a flow with these keys, in a scenario with these keys of `[terminals]`.
    fn written(flow: &str, terminals: &str) -> (String, bool) {
        let text = format!(
            "[terminals]\nprotocol = 'http'\ntargets = ['http://127.0.0.1:80/v1/']\n{terminals}\n\
             [hold]\nduration = '10s'\n[[flows]]\nname = 'ask'\nrate = 1\n{flow}"
        );
        let scenario = Scenario::parse(Path::new("api.toml"), &text, &[]).unwrap();
        let mut config = scenario.config;
        config.driver = Some(Driver::Epoll);
        config.connections = 8;
        let plan = config.prepare().unwrap().plan;
        let flows = plan.flows.as_ref().unwrap();
        let request = flows.request_of(0);
        let values = flows.values_of(7);
        let to = ("127.0.0.1:80", "/v1");
        let of_all: Vec<_> = plan.own_headers(0).collect();
        let written = request.write(to, &of_all, &values, &mut Random::new(1));
        let text = String::from_utf8(written.bytes.to_vec()).unwrap();
        (text, written.closes)
    }

    #[test]
    fn a_request_has_its_headers_before_those_of_all() {
        let (text, closes) = written(
            "path = '/a?x=${terminal}'\nheaders = { X-User = 'u${terminal}', Accept = 'a/b' }",
            "headers = { accept = 'c/d', x-all = 'yes' }",
        );
        let expected = "GET /v1/a?x=7 HTTP/1.1\r\nhost: 127.0.0.1:80\r\naccept: a/b\r\nx-user: u7\r\nx-all: yes\r\n\r\n";
        assert_eq!((text.as_str(), closes), (expected, false));
    }

    #[test]
    fn a_body_is_announced_and_so_is_none_where_one_is_expected() {
        let (text, _) = written("path = '/a'\nsend = 'I am ${terminal}'", "");
        let expected = "POST /v1/a HTTP/1.1\r\nhost: 127.0.0.1:80\r\ncontent-type: application/json\r\ncontent-length: 6\r\n\r\nI am 7";
        assert_eq!(text, expected);
        for (method, is_told) in [("POST", true), ("PATCH", true), ("DELETE", false)] {
            let (text, _) = written(&format!("path = '/a'\nmethod = '{method}'"), "");
            assert_eq!(
                text.contains("content-length: 0\r\n\r\n"),
                is_told,
                "{text}"
            );
        }
    }

    #[test]
    fn another_host_takes_the_place_of_the_target() {
        for (flow, terminals) in [
            ("headers = { Host = 'a.example' }", ""),
            ("", "headers = { Host = 'a.example' }"),
        ] {
            let (text, _) = written(&format!("path = '/a'\n{flow}"), terminals);
            let text = text.to_ascii_lowercase();
            assert_eq!(text.matches("host: ").count(), 1, "{text}");
            assert!(text.contains("\r\nhost: a.example\r\n"), "{text}");
        }
    }

    #[test]
    fn who_asks_for_the_end_of_the_connection_is_known() {
        let closes = |value: &str| {
            let headers = format!("path = '/a'\nheaders = {{ Connection = '{value}' }}");
            written(&headers, "").1
        };
        assert!(closes("close") && closes("x, Close"));
        assert!(!closes("keep-alive") && !closes("closed"));
        assert!(written("path = '/a'", "headers = { Connection = 'close' }").1);
    }
}
