//! `trace`: what one connection says and hears, as lines of JSON while it happens. It is no method for batches: its answer is a stream.

use super::super::{Control, Stage};
use super::fault::{Code, Fault};
use super::heard::Heard;
use super::method::{Request, Scope};
use super::reply::Reply;
use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use futures_util::stream;
use myriad_shard::{ClientId, Framing, Noted, Now, Trace as Source, TraceEnd, Traced};
use myriad_wire::centrifuge::is_json;
use myriad_wire::deflate::Inflater;
use myriad_wire::ws::{Decoder, Event, Extension, Kind, Limits, Role};
use serde::Deserialize;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep};

/// Traces at a time.
pub(super) const TRACES_MAX: usize = 8;

/// How often what was noted is taken.
const INTERVAL: Duration = Duration::from_millis(50);

/// Seconds of a trace, and bytes of its lines: the most, and what a request without a wish gets.
pub(super) const SECONDS: (u64, u64) = (300, 10);
pub(super) const BYTES: (u64, u64) = (16 << 20, 1 << 20);

/// A message to a client at most; larger ones end the trace.
const MESSAGE_BYTES_MAX: u64 = 64 << 20;

#[derive(Debug, Deserialize)]
pub(super) struct Trace<'a> {
    #[serde(borrow)]
    client: Cow<'a, str>,
    #[serde(default)]
    seconds: Option<u64>,
    #[serde(default)]
    bytes: Option<u64>,
}

impl<'a> Request<'a> for Trace<'a> {
    const FORM: &'static str =
        r#"send {"client": "id"}, and if you like "seconds": 1 to 300 and "bytes": 1 to 16777216"#;

    fn scope(&self) -> Scope<'_> {
        Scope::Server
    }

    async fn answer(self, _control: &Control) -> Reply {
        Err(Fault::bad(
            "a trace is a stream of lines: send it to /api/trace, and not with other commands",
        ))
    }
}

/// A wish up to a bound.
fn bounded(field: &str, wish: Option<u64>, (most, usual): (u64, u64)) -> Result<u64, Fault> {
    match wish.filter(|wish| *wish != 0) {
        None => Ok(usual),
        Some(wish) if wish <= most => Ok(wish),
        Some(wish) => Err(Fault::bad(format!(
            "field \"{field}\" is {wish}; send 1 to {most}"
        ))),
    }
}

impl Trace<'_> {
    /// Begins the trace. Its lines come with the response.
    pub(super) fn begin(self, control: &Arc<Control>) -> Result<Response, Fault> {
        let seconds = bounded("seconds", self.seconds, SECONDS)?;
        let bytes = bounded("bytes", self.bytes, BYTES)?;
        let client = ClientId::parse(&self.client).ok_or_else(|| {
            Fault::new(
                Code::NotFound,
                "field \"client\" is no client id; \"connections\" finds the ids of a user",
            )
        })?;
        let permit = Arc::clone(&control.api.traces).try_acquire_owned();
        let permit = permit.map_err(|_| {
            Fault::busy(format!(
                "{TRACES_MAX} traces are under way; wait for their ends"
            ))
        })?;
        let lines = Lines {
            source: control.mesh.trace(client),
            control: Arc::clone(control),
            reader: Reader::default(),
            began: crate::shards::monotonic_now(),
            ends_at: Instant::now() + Duration::from_secs(seconds),
            bytes_left: bytes,
            is_over: false,
            _permit: permit,
        };
        let lines = stream::unfold(lines, |mut lines| async move {
            let text = lines.next().await?;
            Some((Ok::<_, Infallible>(Bytes::from(text)), lines))
        });
        let mut response = Response::new(Body::from_stream(lines));
        response.headers_mut().insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/x-ndjson"),
        );
        Ok(response)
    }
}

/// The lines of a trace that goes on.
struct Lines {
    source: Arc<Source>,
    control: Arc<Control>,
    reader: Reader,
    began: Now,
    ends_at: Instant,
    bytes_left: u64,
    is_over: bool,
    _permit: OwnedSemaphorePermit,
}

impl Lines {
    /// The next lines; none behind the last.
    async fn next(&mut self) -> Option<String> {
        while !self.is_over {
            let is_late = Instant::now() >= self.ends_at;
            let Noted { records, end, .. } = self.source.take();
            let mut text = String::new();
            let mut why = end.map(|end| match end {
                TraceEnd::Gone => "gone",
                TraceEnd::TooMany => "too many traces, or another one of this client",
                TraceEnd::TooFast => "too much at a time",
            });
            for (at, traced) in records {
                let at_ms = at.0.saturating_sub(self.began.0) / 1_000_000;
                if self.reader.read(at_ms, traced, &mut text).is_err() {
                    why = Some("a message is too large to be shown");
                }
                if text.len() as u64 >= self.bytes_left {
                    why = Some("bytes");
                    break;
                }
            }
            if is_late {
                why = why.or(Some("time"));
            }
            if self.control.stage() != Stage::Serving {
                why = why.or(Some("the server shuts down"));
            }
            self.bytes_left = self.bytes_left.saturating_sub(text.len() as u64);
            if let Some(why) = why {
                push(&mut text, &json!({ "end": why }));
                self.is_over = true;
            }
            if !text.is_empty() {
                return Some(text);
            }
            sleep(INTERVAL).await;
        }
        None
    }
}

/// A message that is too large, or a stream that is none.
struct Unreadable;

/// Reads what a connection was sent, and writes lines of both directions.
struct Reader {
    decoder: Decoder,
    inflater: Inflater,
    message: Vec<u8>,
    /// Instead of frames, where the connection has HTTP chunks.
    heard: Option<Heard>,
}

impl Default for Reader {
    fn default() -> Self {
        Self {
            decoder: Decoder::with_extension(Role::Client, Extension::Deflate),
            inflater: Inflater::default(),
            message: Vec::new(),
            heard: None,
        }
    }
}

impl Reader {
    fn read(&mut self, at_ms: u64, traced: Traced, text: &mut String) -> Result<(), Unreadable> {
        match traced {
            Traced::Said(message) => push_messages(at_ms, "client", &message, text),
            Traced::Closed(reason) => {
                push(text, &json!({ "at_ms": at_ms, "closed": reason.label() }));
            }
            Traced::Speaks(transport) => {
                let is_chunked = transport.framing() != Framing::WebSocket;
                self.heard = is_chunked.then(|| Heard::new(transport));
            }
            Traced::Heard(mut bytes) => match &mut self.heard {
                None => return self.read_frames(at_ms, &mut bytes, text),
                Some(heard) => {
                    let bytes_max = usize::try_from(MESSAGE_BYTES_MAX).unwrap_or(usize::MAX);
                    let read = heard.read(&bytes, bytes_max);
                    let (messages, ended) = read.ok_or(Unreadable)?;
                    for message in messages {
                        push_messages(at_ms, "server", &message, text);
                    }
                    if ended {
                        let end = json!({ "at_ms": at_ms, "from": "server", "frame": "end" });
                        push(text, &end);
                    }
                }
            },
        }
        Ok(())
    }

    fn read_frames(
        &mut self,
        at_ms: u64,
        mut input: &mut [u8],
        text: &mut String,
    ) -> Result<(), Unreadable> {
        let limits = Limits {
            frame_bytes_max: MESSAGE_BYTES_MAX,
            message_bytes_max: MESSAGE_BYTES_MAX,
            fragments_max: u32::MAX,
        };
        while let Some(event) = self
            .decoder
            .next_event(&limits, &mut input)
            .map_err(|_| Unreadable)?
        {
            let what = match event {
                Event::Data {
                    kind,
                    compressed,
                    bytes,
                    last,
                    ..
                } => {
                    self.message.extend_from_slice(bytes);
                    if last {
                        self.end_message(at_ms, kind, compressed, text)?;
                    }
                    continue;
                }
                Event::Ping(_) => json!({ "frame": "ping" }),
                Event::Pong(_) => json!({ "frame": "pong" }),
                Event::Close(None) => json!({ "frame": "close" }),
                Event::Close(Some((code, reason))) => {
                    json!({ "frame": "close", "code": code.0, "reason": &*reason })
                }
            };
            let mut line = json!({ "at_ms": at_ms, "from": "server" });
            if let (Some(line), Value::Object(what)) = (line.as_object_mut(), what) {
                line.extend(what);
            }
            push(text, &line);
        }
        Ok(())
    }

    fn end_message(
        &mut self,
        at_ms: u64,
        kind: Kind,
        is_compressed: bool,
        text: &mut String,
    ) -> Result<(), Unreadable> {
        let mut message = std::mem::take(&mut self.message);
        if is_compressed {
            let mut inflated = Vec::new();
            self.inflater
                .inflate(kind, &message, MESSAGE_BYTES_MAX, &mut inflated)
                .map_err(|_| Unreadable)?;
            message = inflated;
        }
        push_messages(at_ms, "server", &message, text);
        Ok(())
    }
}

fn push(text: &mut String, line: &Value) {
    text.push_str(&line.to_string());
    text.push('\n');
}

/// One line for each message of a frame. What is no JSON is protobuf, and one line for the frame.
fn push_messages(at_ms: u64, from: &str, frame: &[u8], text: &mut String) {
    let head = format!(r#"{{"at_ms":{at_ms},"from":"{from}","#);
    let lines = frame.split(|byte| *byte == b'\n');
    if !lines.clone().all(is_json) {
        let encoded = BASE64_STANDARD.encode(frame);
        text.push_str(&format!("{head}\"b64message\":\"{encoded}\"}}\n"));
        return;
    }
    for line in lines {
        let line = String::from_utf8_lossy(line);
        text.push_str(&format!("{head}\"message\":{line}}}\n"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use myriad_wire::ws::{CloseCode, Opcode, encode_close, encode_frame};

    fn read(reader: &mut Reader, traced: Traced) -> Vec<Value> {
        let mut text = String::new();
        assert!(reader.read(7, traced, &mut text).is_ok());
        let lines = text.lines();
        lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    #[test]
    fn messages_of_both_directions_are_lines() {
        let mut reader = Reader::default();
        let said = Traced::Said(b"{\"id\":1}\n{\"id\":2}".to_vec());
        assert_eq!(
            read(&mut reader, said),
            [
                json!({"at_ms": 7, "from": "client", "message": {"id": 1}}),
                json!({"at_ms": 7, "from": "client", "message": {"id": 2}}),
            ]
        );
        let mut stream = Vec::new();
        encode_frame(&mut stream, Opcode::Text, true, None, b"{\"id\":1}");
        encode_frame(&mut stream, Opcode::Binary, true, None, &[1, 255]);
        encode_frame(&mut stream, Opcode::Ping, true, None, b"");
        encode_close(&mut stream, CloseCode(4000), "bye", None);
        // However the kernel took it, the lines are the same.
        for step in [1, 3, 1000] {
            let mut reader = Reader::default();
            let pieces = stream.chunks(step);
            let lines: Vec<_> = pieces
                .flat_map(|piece| read(&mut reader, Traced::Heard(piece.to_vec())))
                .collect();
            assert_eq!(
                lines,
                [
                    json!({"at_ms": 7, "from": "server", "message": {"id": 1}}),
                    json!({"at_ms": 7, "from": "server", "b64message": "Af8="}),
                    json!({"at_ms": 7, "from": "server", "frame": "ping"}),
                    json!({"at_ms": 7, "from": "server", "frame": "close", "code": 4000, "reason": "bye"}),
                ]
            );
        }
        let closed = Traced::Closed(myriad_shard::CloseReason::Application);
        let line = json!({"at_ms": 7, "closed": "application"});
        assert_eq!(read(&mut reader, closed), [line]);
    }

    #[test]
    fn wishes_have_bounds() {
        assert_eq!(bounded("seconds", None, SECONDS).unwrap(), 10);
        assert_eq!(bounded("seconds", Some(300), SECONDS).unwrap(), 300);
        assert!(bounded("seconds", Some(301), SECONDS).is_err());
    }
}
