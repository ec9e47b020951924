//! What a terminal asks.

use super::positions::{Position, PositionId, Positions};
use crate::engine::plan::{HttpKind, HttpPlan, Plan};
use crate::target::{with_channel_in_json, without_parameters};
use std::borrow::Cow;

/// Writes requests, and remembers the last: in a broadcast the next is the same.
#[derive(Debug, Default)]
pub(super) struct Requests {
    /// What `bytes` are. It holds the position, so that its id stays its own.
    of: Option<Which>,
    bytes: Vec<u8>,
}

/// What makes a request: the target's index, the group whose channel is asked for, the client where its head is its own, and the position.
type Which = (usize, Option<u32>, Option<u64>, PositionId);

impl Requests {
    /// The request to a target from a position.
    pub(super) fn bytes(&mut self, of: Which, positions: &mut Positions, plan: &Plan) -> &[u8] {
        if self.of != Some(of) {
            let (target, group, own, id) = of;
            self.bytes.clear();
            let position = positions.find(id);
            write(&mut self.bytes, (target, group, own), position, plan);
            positions.hold(id);
            if let Some((.., previous)) = self.of.replace(of) {
                positions.release(previous);
            }
        }
        &self.bytes
    }
}

fn write(
    out: &mut Vec<u8>,
    (target, group, own): (usize, Option<u32>, Option<u64>),
    position: Option<&Position>,
    plan: &Plan,
) {
    let http = plan.http.as_ref().expect("the run speaks HTTP");
    let path = match own {
        Some(number) => plan.own_path(target, number),
        None => plan.path(target, group),
    };
    let target = &plan.targets[target];
    let method = if http.body.is_some() { "POST" } else { "GET" };
    let mut text = format!("{method} ");
    match position {
        Some(Position::Query(parameters)) => {
            push_path_from(&mut text, &path, parameters);
        }
        _ => text.push_str(&path),
    }
    text.push_str(" HTTP/1.1\r\n");
    let host = std::iter::once(("host", &*target.host));
    for (name, value) in host.chain(default_headers(http)) {
        let is_given = plan
            .headers
            .iter()
            .any(|(given, _)| given.eq_ignore_ascii_case(name));
        if !is_given {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
    }
    for (name, value) in plan.own_headers(own.unwrap_or_default()) {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    out.extend_from_slice(text.as_bytes());
    if let Some(Position::Headers(lines)) = position {
        out.extend_from_slice(lines);
    }
    let body = http.body.as_deref().map(|body| match group {
        Some(group) => Cow::Owned(with_channel_in_json(body, plan.channel_of_group(group))),
        None => Cow::Borrowed(body),
    });
    if let Some(body) = &body {
        out.extend_from_slice(format!("content-length: {}\r\n", body.len()).as_bytes());
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(body.unwrap_or_default().as_bytes());
}

/// Headers that are sent unless others of their name are given.
fn default_headers(http: &HttpPlan) -> Vec<(&'static str, &'static str)> {
    let accept = match http.kind {
        HttpKind::EventStream => "text/event-stream",
        HttpKind::LongPoll | HttpKind::Lines | HttpKind::Requests => "*/*",
    };
    let mut headers = vec![("accept", accept)];
    headers.extend(
        http.body
            .as_ref()
            .map(|_| ("content-type", "application/json")),
    );
    headers
}

/// A path with its query, in which these parameters take the place of those of the same name.
fn push_path_from(text: &mut String, path: &str, parameters: &str) {
    let names = parameters
        .split('&')
        .filter_map(|pair| Some(pair.split_once('=')?.0));
    let path = without_parameters(path, &names.collect::<Vec<_>>());
    text.push_str(&path);
    text.push(if path.contains('?') { '&' } else { '?' });
    text.push_str(parameters);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::protocol::Protocol;
    use crate::target::Target;
    use myriad_reactor::Driver;

    fn request(url: &str, position: Option<&Position>, set: impl Fn(&mut Config)) -> String {
        let mut config = Config::new(vec![Target::parse(url).unwrap()], 1);
        config.driver = Some(Driver::Epoll);
        config.protocol = Protocol::LongPoll;
        set(&mut config);
        let plan = config.prepare().unwrap().plan;
        let (mut requests, mut positions) = (Requests::default(), Positions::default());
        let id = position.map(|position| positions.hold_new(position.clone()));
        let of = (0, None, None, id.unwrap_or_default());
        let bytes = requests.bytes(of, &mut positions, &plan);
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    const URL: &str = "http://127.0.0.1:80/v1/stream/a?live=long-poll&offset=-1&x=1";

    #[test]
    fn a_first_poll_is_the_target_as_it_is() {
        let expected = "GET /v1/stream/a?live=long-poll&offset=-1&x=1 HTTP/1.1\r\n\
                        host: 127.0.0.1:80\r\naccept: */*\r\n\r\n";
        assert_eq!(request(URL, None, |_| {}), expected);
    }

    #[test]
    fn each_client_has_a_head_of_its_own() {
        let target = Target::parse("http://127.0.0.1/p?n=${terminal}").unwrap();
        let mut config = Config::new(vec![target], 3);
        config.driver = Some(Driver::Epoll);
        config.protocol = Protocol::LongPoll;
        config.headers = vec![("Cookie".to_owned(), "sid=s${terminal}".to_owned())];
        let plan = config.prepare().unwrap().plan;
        let (mut requests, mut positions) = (Requests::default(), Positions::default());
        for number in [0, 2, 0] {
            let of = (0, None, Some(number), PositionId::default());
            let request = requests.bytes(of, &mut positions, &plan).to_vec();
            let expected = format!(
                "GET /p?n={number} HTTP/1.1\r\nhost: 127.0.0.1\r\naccept: */*\r\nCookie: sid=s{number}\r\n\r\n"
            );
            assert_eq!(String::from_utf8(request).unwrap(), expected);
        }
    }

    #[test]
    fn a_position_replaces_parameters_of_its_name() {
        let position = Position::Query("offset=7_8&cursor=abc".into());
        let first = request(URL, Some(&position), |_| {});
        let path = first.split(' ').nth(1).unwrap();
        assert_eq!(
            path,
            "/v1/stream/a?live=long-poll&x=1&offset=7_8&cursor=abc"
        );
        let alone = request("http://127.0.0.1/p?offset=1", Some(&position), |_| {});
        assert!(
            alone.starts_with("GET /p?offset=7_8&cursor=abc HTTP/1.1\r\n"),
            "{alone}"
        );
    }

    #[test]
    fn headers_and_a_body_are_added() {
        let position = Position::Headers(b"last-event-id: 7\r\n"[..].into());
        let stream = request("http://127.0.0.1/s", Some(&position), |config| {
            config.protocol = Protocol::HttpStream;
            config.request_body = Some("{\"connect\":{}}".to_owned());
            config.headers = vec![("Accept".to_owned(), "a/b".to_owned())];
        });
        let expected = "POST /s HTTP/1.1\r\nhost: 127.0.0.1\r\n\
                        content-type: application/json\r\nAccept: a/b\r\n\
                        last-event-id: 7\r\ncontent-length: 14\r\n\r\n{\"connect\":{}}";
        assert_eq!(stream, expected);
        let events = request("http://127.0.0.1/s", None, |config| {
            config.protocol = Protocol::Sse;
        });
        assert!(
            events.contains("\r\naccept: text/event-stream\r\n"),
            "{events}"
        );
    }
}
