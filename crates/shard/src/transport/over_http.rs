//! Requests over HTTP whose answers go on: `http_stream`, `sse`, and their unidirectional kind. Changes `inputs` and `hub`; closes
//! connections by the methods of `closing`.
//!
//! The client's first message comes in its request. Then its connection takes what the server says, in chunks, and nothing comes
//! behind the request any more.

use super::centrifuge::{disconnect_push, ping_frame};
use super::refusals::Refused;
use super::routing::{Opening, Route, Stream};
use super::{Methods, told};
use crate::input::{Input, PartialRequest};
use crate::marks::{Happening, hit};
use crate::settings::Transports;
use crate::shard::Shard;
use myriad_hub::{ApplicationClose, CloseReason, Framing, Now, Transport};
use myriad_reactor::Reactor;
use myriad_wheel::{Key, NONE};
use myriad_wire::centrifuge::{Command, Decoder, Encoding as Format, EventId, Request, is_json};
use myriad_wire::http::{
    BodyLength, LAST_CHUNK, QueryError, RequestBody, RequestHead, encode_chunk, query_pairs,
    write_stream_head,
};
use myriad_wire::sse;
use std::borrow::Cow;

/// The parameter of a query with the first message.
const CONNECT_PARAMETER: &str = "cf_connect";

/// A path whose answers go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HttpPath {
    HttpStream,
    Sse,
    UniSse,
    UniHttpStream,
}

impl HttpPath {
    /// The path, if answers of it go on and it is served.
    pub(super) fn at(path: &str, served: Transports) -> Option<Self> {
        match path {
            "/connection/http_stream" if served.http_stream => Some(Self::HttpStream),
            "/connection/sse" if served.sse => Some(Self::Sse),
            "/connection/uni_sse" if served.uni_sse => Some(Self::UniSse),
            "/connection/uni_http_stream" if served.uni_http_stream => Some(Self::UniHttpStream),
            _ => None,
        }
    }

    /// Browsers' `EventSource` sends GET and nothing else.
    fn takes_get(self) -> bool {
        matches!(self, Self::Sse | Self::UniSse)
    }

    fn transport(self, head: &RequestHead<'_>) -> Transport {
        let is_protobuf = || head.header("content-type") == Some(b"application/octet-stream");
        match self {
            Self::HttpStream if is_protobuf() => Transport::HttpStreamProtobuf,
            Self::HttpStream => Transport::HttpStreamJson,
            Self::Sse => Transport::Sse,
            Self::UniSse => Transport::UniSse,
            Self::UniHttpStream => Transport::UniHttpStream,
        }
    }
}

/// The first message in a query; none where there is none.
pub(super) fn connect_parameter(query: &str) -> Result<Option<Vec<u8>>, QueryError> {
    for pair in query_pairs(query) {
        let (name, value) = pair?;
        if name == CONNECT_PARAMETER {
            return Ok(Some(value.into_owned().into_bytes()));
        }
    }
    Ok(None)
}

/// Whether a first message may be one: an empty one says nothing, and a connect request alone is JSON.
fn check_first_message(transport: Transport, message: &[u8]) -> Result<(), Refused> {
    if message.is_empty() {
        let sentence = "The request says nothing: send the connect command in the body, or in cf_connect of the query.";
        return Err(Refused::new(400, "connect_request", sentence));
    }
    if transport.is_unidirectional() && !is_json(message) {
        let sentence =
            "The connect request is not JSON: send an object such as {\"token\":\"...\"}, or {}.";
        return Err(Refused::new(400, "connect_request", sentence));
    }
    Ok(())
}

/// The position of the last event that a client had which comes back: in `Last-Event-ID`, or in the query, where programs write it that
/// cannot set headers. None if it says nothing that was said here.
fn position_in(head: &RequestHead<'_>) -> Result<Option<EventId<'static>>, QueryError> {
    let id = match head.header("last-event-id").map(str::from_utf8) {
        Some(id) => id.ok().map(Cow::Borrowed),
        None => last_event_id(head.query().unwrap_or_default())?,
    };
    let id = id.as_deref().and_then(EventId::parse);
    Ok(id.map(EventId::into_owned))
}

/// The id in a query, by either of the names that are in use.
fn last_event_id(query: &str) -> Result<Option<Cow<'_, str>>, QueryError> {
    for pair in query_pairs(query) {
        let (name, value) = pair?;
        if name == "lastEventId" || name == "last_event_id" {
            return Ok(Some(value));
        }
    }
    Ok(None)
}

/// A GET may come from an image in a page of a stranger, with cookies and without Origin. So it connects and subscribes, and nothing
/// else: by that nobody acts for the visitor. What is no command is refused later.
fn check_commands_of_get(message: &[u8]) -> Result<(), Refused> {
    let mut commands = Decoder::new(Format::Json, message).filter_map(Result::ok);
    let acts = |command: &Command<'_>| {
        !matches!(command.request, Request::Connect(_) | Request::Subscribe(_))
    };
    let Some(command) = commands.find(acts) else {
        return Ok(());
    };
    let sentence = format!(
        "GET connects and subscribes only: send {} by POST, here or to /emulation.",
        command.request.name()
    );
    Err(Refused::new(405, "method", sentence).with_headers(&[("allow", "POST, OPTIONS")]))
}

/// The head of an answer that goes on, and what stands before the first message. A proxy is told not to keep it, nor to wait for
/// more of it. The page of an origin that was let in may read it.
fn response(transport: Transport, head: &RequestHead<'_>) -> Vec<u8> {
    let content_type = match transport.framing() {
        Framing::Event => sse::CONTENT_TYPE,
        _ if super::centrifuge::format_of(transport) == Format::Protobuf => {
            "application/octet-stream"
        }
        _ => "application/x-ndjson",
    };
    let mut headers = vec![
        ("content-type", content_type),
        (
            "cache-control",
            "private, no-cache, no-store, must-revalidate, max-age=0",
        ),
        ("pragma", "no-cache"),
        ("expires", "0"),
        ("x-accel-buffering", "no"),
        ("connection", "close"),
    ];
    let origin = head.header("origin").map(str::from_utf8);
    if let Some(Ok(origin)) = origin {
        headers.push(("access-control-allow-origin", origin));
        headers.push(("access-control-allow-credentials", "true"));
        headers.push(("vary", "origin"));
    }
    let mut response = Vec::with_capacity(512);
    write_stream_head(&mut response, 200, &headers);
    if transport.framing() == Framing::Event {
        // Shows clients at once that the stream is open.
        encode_chunk(&mut response, &[b"\r\n"]);
    }
    response
}

/// The last bytes of an answer: what the client is told, and the end of the body.
fn end(transport: Transport, code: u16, reason: &str) -> Vec<u8> {
    let mut bytes = disconnect_push(transport, code, reason);
    bytes.extend_from_slice(LAST_CHUNK);
    bytes
}

fn end_for(transport: Transport, reason: CloseReason) -> Vec<u8> {
    let (code, sentence) = told(transport, reason);
    end(transport, code, sentence)
}

fn end_by_application(transport: Transport, close: &ApplicationClose) -> Vec<u8> {
    if !close.is_told() {
        return LAST_CHUNK.to_vec();
    }
    end(transport, close.code(), close.reason())
}

/// The methods of a transport whose answers go on. A macro, because functions in [`Methods`] capture nothing.
macro_rules! over_http {
    ($transport:ident) => {
        Self {
            handle_input: Shard::handle_bytes_behind_request,
            ping: Some(|| ping_frame(Transport::$transport)),
            close: |reason| end_for(Transport::$transport, reason),
            application_close: |close| end_by_application(Transport::$transport, close),
        }
    };
}

impl<R: Reactor> Methods<R> {
    pub(super) const HTTP_STREAM_JSON: Self = over_http!(HttpStreamJson);
    pub(super) const HTTP_STREAM_PROTOBUF: Self = over_http!(HttpStreamProtobuf);
    pub(super) const SSE: Self = over_http!(Sse);
    pub(super) const UNI_SSE: Self = over_http!(UniSse);
    pub(super) const UNI_HTTP_STREAM: Self = over_http!(UniHttpStream);
}

impl<R: Reactor> Shard<R> {
    pub(super) fn route_over_http(
        &self,
        key: Key,
        head: &RequestHead<'_>,
        path: HttpPath,
        now: Now,
    ) -> Result<Route, Refused> {
        let is_get = match head.method() {
            "GET" if path.takes_get() => true,
            "POST" => false,
            _ if path.takes_get() => return Err(Refused::method("GET, POST, OPTIONS")),
            _ => return Err(Refused::method("POST, OPTIONS")),
        };
        if head.minor_version() == 0 {
            let sentence = "The answer goes on in chunks, which HTTP/1.0 does not have: send HTTP/1.1 (in nginx: proxy_http_version 1.1).";
            return Err(Refused::new(505, "http_version", sentence));
        }
        self.check_visitor(key, head)?;
        let transport = path.transport(head);
        let opening = self.opening(transport, head, is_get)?;
        self.take_connection(now)?;
        Ok(Route::Stream(Box::new(Stream {
            transport,
            opening,
            response: response(transport, head),
            window: None,
            user: self.user_of(key, head, transport),
            headers: self.headers_of(key, head, transport),
        })))
    }

    fn opening(
        &self,
        transport: Transport,
        head: &RequestHead<'_>,
        is_get: bool,
    ) -> Result<Opening, Refused> {
        let Some(length) = BodyLength::of(head) else {
            // The check of the request has refused that before.
            let sentence =
                "The request has more than one length: send one Content-Length, or chunks.";
            return Err(Refused::new(400, "framing", sentence));
        };
        if is_get {
            if length != BodyLength::Bytes(0) {
                let sentence = "GET has no body here: send the message in cf_connect of the query, or by POST.";
                return Err(Refused::new(400, "body", sentence));
            }
            let message = connect_parameter(head.query().unwrap_or_default())?;
            let message = message.unwrap_or_else(|| match transport.is_unidirectional() {
                true => b"{}".to_vec(),
                false => Vec::new(),
            });
            check_first_message(transport, &message)?;
            if !transport.is_unidirectional() {
                check_commands_of_get(&message)?;
                return Ok(Opening::Message(message));
            }
            let position = position_in(head)?;
            let resumed = position.and_then(|position| position.resume(&message));
            return Ok(Opening::Message(resumed.unwrap_or(message)));
        }
        let bytes_max = usize::try_from(self.settings.message_bytes_max).unwrap_or(usize::MAX);
        let body = RequestBody::new(length, bytes_max)?;
        let expects = head.header("expect").is_some_and(|value| !value.is_empty());
        if expects && !body.is_done() {
            // The client sends the body, or the request again, without waiting.
            let sentence = "The body is small: send it without Expect.";
            return Err(Refused::new(417, "body", sentence));
        }
        let position = match transport {
            Transport::UniSse => position_in(head)?,
            _ => None,
        };
        Ok(Opening::Body(body, position))
    }

    /// Bytes of a request's body, and of what comes behind it.
    pub(super) fn handle_body(
        &mut self,
        key: Key,
        mut partial: Box<PartialRequest>,
        bytes: &mut [u8],
        now: Now,
    ) {
        let taken = match partial.body.advance(bytes) {
            Ok(taken) => taken,
            Err(error) => return self.refuse(key, error.into(), now),
        };
        if !partial.body.is_done() {
            let input = Input::Body(partial);
            if !self.keep_input(key, input, now) {
                self.note_happening(key.index, Happening::Overloaded);
                self.refuse(key, Refused::overloaded(), now);
            }
            return;
        }
        let transport = self.hub.connection(key.index).transport();
        if let Err(refused) = check_first_message(transport, partial.body.bytes()) {
            return self.refuse(key, refused, now);
        }
        let PartialRequest {
            body,
            position,
            response,
        } = *partial;
        let resumed = position.and_then(|position| position.resume(body.bytes()));
        let message = resumed.as_deref().unwrap_or(body.bytes());
        let behind = &mut bytes[taken..];
        self.admit_with(key, response.into(), message, behind, now);
    }

    /// Whether a connection's request lacks a part of its body.
    pub(crate) fn awaits_body(&self, index: u32) -> bool {
        let input = self.hub.connection(index).input;
        input != NONE && matches!(self.inputs.at(input), Input::Body(_))
    }

    /// Bytes behind a request whose answer goes on. Another request would never be answered, and what is longer than its length is no
    /// body: both end the connection. Line ends mean nothing (RFC 9112, section 2.2).
    fn handle_bytes_behind_request(&mut self, key: Key, bytes: &mut [u8], now: Now) {
        if bytes.iter().any(|byte| !matches!(byte, b'\r' | b'\n')) {
            hit!(BytesBehindRequest);
            self.close_stream(key, CloseReason::Protocol, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use myriad_wire::http::{HeadLimits, parse_request, parse_response};

    fn text(bytes: Vec<u8>) -> String {
        String::from_utf8(bytes).expect("text")
    }

    #[test]
    fn an_answer_is_for_the_page_that_asked() {
        let request =
            b"POST /connection/http_stream HTTP/1.1\r\nHost: a\r\nOrigin: https://b\r\n\r\n";
        let head = parse_request(request, HeadLimits::default());
        let head = head.expect("a head").expect("a whole head");
        for (transport, content_type) in [
            (Transport::HttpStreamJson, "application/x-ndjson"),
            (Transport::HttpStreamProtobuf, "application/octet-stream"),
            (Transport::Sse, "text/event-stream"),
            (Transport::UniSse, "text/event-stream"),
            (Transport::UniHttpStream, "application/x-ndjson"),
        ] {
            let response = response(transport, &head);
            let answer = parse_response(&response, HeadLimits::default());
            let answer = answer.expect("a head").expect("a whole head");
            for (name, value) in [
                ("content-type", content_type),
                ("transfer-encoding", "chunked"),
                ("x-accel-buffering", "no"),
                ("access-control-allow-origin", "https://b"),
                ("access-control-allow-credentials", "true"),
            ] {
                assert_eq!(answer.header(name), Some(value.as_bytes()), "{name}");
            }
            let behind = &response[answer.head_bytes()..];
            let is_event = transport.framing() == Framing::Event;
            assert_eq!(behind, if is_event { &b"2\r\n\r\n\r\n"[..] } else { b"" });
        }
    }

    #[test]
    fn the_last_chunk_follows_what_the_client_is_told() {
        let end = |transport, reason| text(end_for(transport, reason));
        let told = "2d\r\n{\"push\":{\"disconnect\":{\"code\":3001,\"reason\":\"shutdown\"}}}\n\r\n0\r\n\r\n";
        assert_eq!(
            end(Transport::HttpStreamJson, CloseReason::Drain).len(),
            told.len()
        );
        assert!(end(Transport::HttpStreamJson, CloseReason::Drain).contains("3001"));
        assert!(end(Transport::UniSse, CloseReason::Drain).contains("data: {\"disconnect\":{"));
        for transport in [
            Transport::HttpStreamJson,
            Transport::Sse,
            Transport::UniHttpStream,
        ] {
            assert!(end(transport, CloseReason::Expired).ends_with("\r\n0\r\n\r\n"));
            // It has been told by the answer to its connect command.
            assert_eq!(end(transport, CloseReason::Refused), "0\r\n\r\n");
        }
    }

    #[test]
    fn a_first_message_may_be_in_the_query() {
        let found = |query| connect_parameter(query).map(|found| found.map(text));
        assert_eq!(
            found("a=1&cf_connect=%7B%22id%22%3A1%7D"),
            Ok(Some("{\"id\":1}".into()))
        );
        assert_eq!(found("cf_connect="), Ok(Some(String::new())));
        assert_eq!(found("connect={}"), Ok(None));
        assert_eq!(found("cf_connect=%ff"), Err(QueryError));
    }

    #[test]
    fn a_get_connects_and_subscribes_only() {
        let check = |message: &str| check_commands_of_get(message.as_bytes());
        let connect = r#"{"id":1,"connect":{}}"#;
        for behind in [
            "",
            r#"{"id":2,"subscribe":{"channel":"a"}}"#,
            "no command",
            "{}",
        ] {
            // A pong answers a ping, and none was sent.
            let is_good = check(&format!("{connect}\n{behind}")).is_ok();
            assert_eq!(is_good, behind != "{}", "{behind}");
        }
        for (command, name) in [
            (r#""publish":{"channel":"a","data":1}"#, "publish"),
            (r#""rpc":{"method":"a"}"#, "rpc"),
            (r#""history":{"channel":"a"}"#, "history"),
            (r#""unsubscribe":{"channel":"a"}"#, "unsubscribe"),
            (r#""send":{"data":1}"#, "send"),
        ] {
            let subscribe = r#"{"id":2,"subscribe":{"channel":"a"}}"#;
            let message = format!("{connect}\n{subscribe}\n{{\"id\":3,{command}}}");
            let refused = check(&message).expect_err(name);
            assert!(refused.sentence().contains(name), "{name}");
        }
    }
}
