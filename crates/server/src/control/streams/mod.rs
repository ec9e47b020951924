//! Channels as streams of the Durable Streams protocol (github.com/durable-streams/durable-streams, `PROTOCOL.md`), at
//! `/v1/stream/CHANNEL`: who creates, appends to, closes, describes and deletes them.
//!
//! Shards serve the reads, and hand over every other request. A read that comes here all the same, on the control plane's own
//! address, is answered with what is there (`catch_up.rs`).
//!
//! | file | what it does |
//! | --- | --- |
//! | `access.rs` | who may: keys of the API, tokens of clients, or anybody |
//! | `headers.rs` | what a request says in its headers |
//! | `entries.rs` | from a body to publications |
//! | `answers.rs` | what is answered |
//! | `cors.rs` | which web pages may, and what every answer has |
//! | `catch_up.rs` | reads |

mod access;
mod answers;
mod catch_up;
mod cors;
mod entries;
mod headers;

pub(super) use cors::named_headers;

use super::Control;
use super::api::{asking, body, options_of};
use super::error::Refusal;
use super::requests::ClientAddress;
use access::{Deed, Writer};
use answers::Failure;
use axum::Router;
use axum::body::HttpBody;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use headers::{Append, Create};
use myriad_shard::{
    AppendToStream, Appender, CreateStream, InquiryAnswer, MediaType, Namespaces, Payload,
    StreamAnswer, StreamCommand, StreamExpiry,
};
use myriad_wire::reads::{ReadError, STREAM_PATH};
use percent_encoding::percent_decode;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// The route below [`STREAM_PATH`], as metrics name it.
pub(super) const ROUTE: &str = "/v1/stream/{*channel}";

/// The first part of names that the protocol keeps for its own interfaces (section "Reserved Subscription APIs").
const RESERVED: &str = "__ds";

/// The routes of streams.
pub(super) fn router() -> Router<Arc<Control>> {
    Router::new().route(ROUTE, any(serve))
}

/// The routes of streams at the clients' address, where the API has one of its own. Shards answer what reads.
pub(super) fn router_of_clients() -> Router<Arc<Control>> {
    Router::new().route(ROUTE, any(serve_clients))
}

/// Tells a browser which reads a page may send, and everybody else where the other requests go.
async fn serve_clients(State(control): State<Arc<Control>>, request: Request) -> Response {
    let origin = cors::Origin::of(&control, request.headers());
    let answer = match origin.check() {
        Ok(()) if request.method() == Method::OPTIONS => {
            cors::preflight(cors::READS, request.headers())
        }
        Ok(()) => ([(header::ALLOW, cors::READS)], reads_only()).into_response(),
        Err(refusal) => refusal.into_response(),
    };
    origin.finish(answer)
}

/// A request that is no read, at the address for clients.
fn reads_only() -> Refusal {
    Refusal::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "method",
        "this address answers reads of streams (GET) only: send HEAD, PUT, POST and DELETE to the address of the API (internal-listen)",
    )
}

/// Answers a request about a stream.
async fn serve(State(control): State<Arc<Control>>, request: Request) -> Response {
    let origin = cors::Origin::of(&control, request.headers());
    if request.method() == Method::OPTIONS {
        return origin.finish(cors::preflight(cors::METHODS, request.headers()));
    }
    let answer = match origin.check() {
        Ok(()) => answer(&control, request).await,
        Err(refusal) => Err(refusal.into()),
    };
    origin.finish(answer.unwrap_or_else(IntoResponse::into_response))
}

/// What a stream is beside its channel's publications, such as its end and its producers, has no log that all nodes read.
fn not_in_a_cluster() -> Refusal {
    Refusal::new(
        StatusCode::NOT_IMPLEMENTED,
        "method",
        "with a broker, streams can be read (GET, HEAD) but not created, appended to, closed or deleted: publish with POST /api/publish instead",
    )
}

async fn answer(control: &Control, request: Request) -> Result<Response, Failure> {
    let (head, body) = request.into_parts();
    let channel = channel_of(head.uri.path())?;
    // A name that cannot be one, and a namespace that does not exist.
    let namespaces = control.namespaces.load();
    options_of(&namespaces, &channel).map_err(|fault| unknown(&channel, fault.detail()))?;
    let deed = Deed::of(&head).ok_or_else(wrong_method)?;
    let (writer, by) = access::writer(control, &head, &channel, deed, &namespaces).await?;
    let request = Asked {
        control,
        channel: &channel,
        writer,
        by,
        address: ClientAddress::of(&head.extensions),
        namespaces: &namespaces,
    };
    if control.mesh.has_broker() && head.method != Method::HEAD && head.method != Method::GET {
        return Err(not_in_a_cluster().into());
    }
    match head.method {
        Method::PUT => request.create(&head.uri, &head.headers, body).await,
        Method::POST => request.append(&head.headers, body).await,
        Method::DELETE => answers::of(request.ask(StreamCommand::Delete).await?),
        Method::HEAD => answers::of(request.ask(StreamCommand::Describe).await?),
        // A shard refuses it, too.
        _ if !body.is_end_stream() => {
            let error = ReadError::Body;
            Err(Refusal::bad_request(error.label(), error.sentence()).into())
        }
        _ => catch_up::read(control, &channel, &head).await,
    }
}

/// A request that may be carried out.
struct Asked<'c> {
    control: &'c Control,
    channel: &'c str,
    writer: Writer,
    /// As whom it appends.
    by: Appender,
    /// Where it comes from.
    address: IpAddr,
    namespaces: &'c Namespaces,
}

impl Asked<'_> {
    async fn create(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
        body: axum::body::Body,
    ) -> Result<Response, Failure> {
        let create = Create::of(headers)?;
        let content_type = create.content_type.unwrap_or_else(MediaType::octets);
        let body = self.receive(body).await?;
        let entries = if body.is_empty() {
            Vec::new()
        } else {
            self.entries_of(&body, &content_type)?
        };
        drop(body);
        let entries = entries::admitted(self.control, self.channel, self.writer, entries)?;
        let command = StreamCommand::Create(CreateStream {
            content_type,
            expires_in: time_until(create.expiry),
            expiry: create.expiry,
            is_closed: create.is_closed,
            entries,
        });
        let done = self.ask(command).await?;
        let is_new = matches!(done, Ok(myriad_shard::StreamDone::Created(_)));
        let mut response = answers::of(done)?;
        if is_new {
            cors::add_location(response.headers_mut(), headers, uri);
        }
        Ok(response)
    }

    async fn append(
        &self,
        headers: &HeaderMap,
        body: axum::body::Body,
    ) -> Result<Response, Failure> {
        let append = Append::of(headers)?;
        let body = self.receive(body).await?;
        let (content_type, entries) = if body.is_empty() {
            if !append.closes {
                return Err(answers::empty("the body is empty").into());
            }
            // What a request without data says of its type is not looked at.
            (MediaType::octets(), Vec::new())
        } else {
            let content_type = append.content_type?;
            let entries = self.entries_of(&body, &content_type)?;
            if entries.is_empty() {
                return Err(answers::empty("the array is empty").into());
            }
            (content_type, entries)
        };
        drop(body);
        let entries = entries::admitted(self.control, self.channel, self.writer, entries)?;
        let command = StreamCommand::Append(AppendToStream {
            content_type,
            entries,
            by: self.by.clone(),
            producer: append.producer,
            stream_seq: append.stream_seq,
            closes: append.closes,
        });
        answers::of(self.ask(command).await?)
    }

    async fn receive(&self, body: axum::body::Body) -> Result<body::Received<'_>, Refusal> {
        let sender = self.writer.sender(self.address);
        body::receive(self.control, body, body::Limit::Stream, sender).await
    }

    /// The publications in a body that has bytes.
    fn entries_of(&self, body: &[u8], content_type: &MediaType) -> Result<Vec<Payload>, Refusal> {
        let elements_max = self.control.settings.load().append_elements_max;
        entries::of(body, content_type, elements_max as usize)
    }

    /// Asks the channel's home.
    async fn ask(&self, command: StreamCommand) -> Result<StreamAnswer, Failure> {
        debug_assert!(self.namespaces.options_of(self.channel).is_some());
        let deadline = Control::answers_deadline();
        let answer = asking::home(self.control, deadline, |mesh, id| {
            mesh.ask_stream(id, self.channel, command);
        });
        match answer.await {
            Ok(InquiryAnswer::Stream(answer)) => Ok(*answer),
            Ok(_) => Err(answers::unanswered().into()),
            Err(fault) => Err(fault.refusal().unwrap_or_else(answers::unanswered).into()),
        }
    }
}

/// The channel that a path names.
fn channel_of(path: &str) -> Result<String, Refusal> {
    let name = path.strip_prefix(STREAM_PATH).unwrap_or_default();
    let name = percent_decode(name.as_bytes()).decode_utf8();
    let name = name.map_err(|_| {
        Refusal::bad_request(
            "channel",
            "the channel's name is not UTF-8; percent-encode the UTF-8 form of it",
        )
    })?;
    if name == RESERVED || name.starts_with("__ds/") {
        return Err(Refusal::new(
            StatusCode::NOT_IMPLEMENTED,
            "unsupported",
            "names that begin with __ds/ are kept for subscriptions of the protocol, which are not supported; webhooks tell an application what happens",
        ));
    }
    Ok(name.into_owned())
}

fn unknown(channel: &str, detail: &str) -> Refusal {
    if channel.is_empty() || channel.len() > myriad_shard::Mesh::CHANNEL_BYTES_MAX {
        return Refusal::bad_request("channel", detail);
    }
    Refusal::new(StatusCode::NOT_FOUND, "stream", detail)
}

fn wrong_method() -> Refusal {
    Refusal::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "method",
        "a stream is created by PUT, appended to and closed by POST, read by GET, described by HEAD and ended by DELETE",
    )
}

/// The time until a stream ends.
fn time_until(expiry: StreamExpiry) -> Duration {
    let StreamExpiry::At(ms) = expiry else {
        return Duration::ZERO;
    };
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    Duration::from_millis(ms).saturating_sub(now.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_of_the_path_is_the_name() {
        assert_eq!(ROUTE.strip_prefix(STREAM_PATH), Some("{*channel}"));
        let name = |path: &str| channel_of(path).map_err(|refusal| refusal.status().as_u16());
        assert_eq!(name("/v1/stream/a/b%2Fc%20d").as_deref(), Ok("a/b/c d"));
        assert_eq!(name("/v1/stream/caf%C3%A9:x").as_deref(), Ok("caf\u{e9}:x"));
        assert_eq!(name("/v1/stream/__dsx").as_deref(), Ok("__dsx"));
        assert_eq!(name("/v1/stream/%ff"), Err(400));
        assert_eq!(name("/v1/stream/__ds/subscriptions/a"), Err(501));
        assert_eq!(name("/v1/stream/%5F_ds"), Err(501));
    }
}
