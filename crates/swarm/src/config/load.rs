//! What a crowd is loaded with beside its connections: publications, echoes and requests.

use crate::echo_stamp::ECHO_BYTES_DEFAULT;
use crate::engine::plan::{Answer, AnsweredPlan};
use crate::protocol::Scheme;
use crate::stamp::{Filler, PAYLOAD_BYTES_DEFAULT};
use crate::target::{UrlError, UrlParts, UrlProblem, has_channel_place};
use std::net::SocketAddr;
use std::time::Duration;
use tokio_rustls::rustls::pki_types::ServerName;

/// Messages that may be unanswered at once in the whole crowd, and their bytes: a server that stops answering must
/// not fill this machine's memory, and at 100,000 a second this is still what falls due in two and a half seconds.
const OUTSTANDING_MAX: usize = 1 << 18;
const OUTSTANDING_BYTES_MAX: usize = 64 << 20;

/// Time between the end of connecting and the first message or push.
pub(crate) const WARMUP_DEFAULT: Duration = Duration::from_secs(2);

/// Content type of what is appended to a stream.
const CONTENT_TYPE_DEFAULT: &str = "text/plain";

/// What to publish, how, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publish {
    /// Where to: each push goes to all of them at once.
    pub endpoints: Vec<Endpoint>,
    /// Interval between pushes.
    pub every: Duration,
    /// Spread a push's channels evenly over the interval, instead of one after the other at its beginning.
    pub is_spread: bool,
    /// How many; none: until the duration is over.
    pub pushes: Option<u32>,
    /// Payload size, stamp included.
    pub payload_bytes: usize,
    /// What a payload has beside its stamp.
    pub filler: Filler,
    /// The request's body.
    pub body: PublishBody,
    /// The content type of what is appended to a stream; of JSON the payload is made a string.
    pub content_type: String,
    /// Channels to publish to; empty: those of the targets.
    pub channels: Vec<String>,
    /// Sent as `X-API-Key`.
    pub api_key: Option<String>,
    /// Time between the end of connecting and the first push.
    pub warmup: Duration,
}

/// Messages that the server sends back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Echo {
    /// Messages a second over the whole crowd, by schedule.
    pub rate_per_s: f64,
    /// Of a message, its stamp included.
    pub payload_bytes: usize,
    /// Time between the end of connecting and the first one. They end with the duration.
    pub warmup: Duration,
}

impl Echo {
    /// So many a second, with defaults for the rest.
    #[must_use]
    pub fn new(rate_per_s: f64) -> Self {
        Self {
            rate_per_s,
            payload_bytes: ECHO_BYTES_DEFAULT,
            warmup: WARMUP_DEFAULT,
        }
    }
}

/// Publications by clients, over their own connections.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClientPublish {
    /// Publications a second over the whole crowd, by schedule.
    pub rate_per_s: f64,
    /// Of a publication's data, its stamp included and without the quotes around it.
    pub payload_bytes: usize,
    /// Time between the end of connecting and the first one. They end with the duration.
    pub warmup: Duration,
}

impl ClientPublish {
    /// So many a second, with defaults for the rest.
    #[must_use]
    pub fn new(rate_per_s: f64) -> Self {
        Self {
            rate_per_s,
            payload_bytes: ECHO_BYTES_DEFAULT,
            warmup: WARMUP_DEFAULT,
        }
    }
}

/// Messages of clients that the server answers. A run has one kind of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Answered {
    Echo(Echo),
    ClientPublish(ClientPublish),
}

impl Answered {
    /// The name of the option, and of the option for the size.
    pub(crate) fn options(self) -> (&'static str, &'static str) {
        match self {
            Self::Echo(_) => ("--echo", "--echo-size"),
            Self::ClientPublish(_) => ("--client-publish", "--client-publish-size"),
        }
    }

    pub(crate) fn rate_per_s(self) -> f64 {
        match self {
            Self::Echo(echo) => echo.rate_per_s,
            Self::ClientPublish(publish) => publish.rate_per_s,
        }
    }

    pub(crate) fn payload_bytes(self) -> usize {
        match self {
            Self::Echo(echo) => echo.payload_bytes,
            Self::ClientPublish(publish) => publish.payload_bytes,
        }
    }

    pub(crate) fn warmup(self) -> Duration {
        match self {
            Self::Echo(echo) => echo.warmup,
            Self::ClientPublish(publish) => publish.warmup,
        }
    }

    pub(super) fn plan(self, settle: Duration) -> AnsweredPlan {
        AnsweredPlan {
            answer: match self {
                Self::Echo(_) => Answer::Echo,
                Self::ClientPublish(_) => Answer::Reply,
            },
            rate_per_s: self.rate_per_s(),
            payload_bytes: self.payload_bytes(),
            settle,
            outstanding_max: OUTSTANDING_MAX.min(OUTSTANDING_BYTES_MAX / self.payload_bytes()),
        }
    }
}

/// Connections for requests when no other number is given.
pub const REQUEST_CONNECTIONS_DEFAULT: u32 = 16;

/// Most connections for requests.
pub(super) const REQUEST_CONNECTIONS_MAX: u32 = 10_000;

/// Requests that are answered with what they carry.
#[derive(Clone, Debug, PartialEq)]
pub struct Requests {
    /// Where to, in turn.
    pub endpoints: Vec<Endpoint>,
    /// Requests a second, by schedule.
    pub rate_per_s: f64,
    /// Requests under way at once; each has a connection of its own to each endpoint.
    pub connections: u32,
    /// Of a body, its stamp included.
    pub payload_bytes: usize,
    /// Time between the end of connecting and the first one. They end with the duration.
    pub warmup: Duration,
}

impl Requests {
    /// So many a second, with defaults for the rest.
    #[must_use]
    pub fn new(endpoints: Vec<Endpoint>, rate_per_s: f64) -> Self {
        Self {
            endpoints,
            rate_per_s,
            connections: REQUEST_CONNECTIONS_DEFAULT,
            payload_bytes: ECHO_BYTES_DEFAULT,
            warmup: WARMUP_DEFAULT,
        }
    }
}

/// The form of a publish request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PublishBody {
    /// `{"channel": ..., "data": ...}`, one request per channel.
    #[default]
    Api,
    /// The payload itself, one request, for everybody.
    Plain,
    /// The payload itself, appended to a stream of the Durable Streams protocol. Where the URL has a place for the channel's
    /// name (`{channel}`), one request per channel.
    Stream,
}

/// A publish URL, resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// As given.
    pub url: String,
    pub(crate) host: String,
    pub(crate) path: String,
    pub(crate) address: SocketAddr,
    /// Whom the server's certificate has to name; none without TLS.
    pub(crate) server_name: Option<ServerName<'static>>,
}

impl Endpoint {
    fn has_channel_place(&self) -> bool {
        has_channel_place(&self.path)
    }

    /// Reads a URL of `http` or `https`, and resolves its host.
    ///
    /// # Errors
    /// The URL cannot be used, or its host does not resolve.
    pub fn parse(url: &str) -> Result<Self, UrlError> {
        let parts = UrlParts::parse(url, Scheme::Http)?;
        if parts.path.parse::<hyper::Uri>().is_err() {
            return Err(UrlError {
                url: url.to_owned(),
                problem: UrlProblem::Path,
            });
        }
        let address = parts.resolve(url)?;
        Ok(Self {
            url: url.to_owned(),
            host: parts.authority,
            path: parts.path,
            address,
            server_name: parts.server_name,
        })
    }
}

impl Publish {
    /// Whether a push goes to a channel that has a name.
    pub(crate) fn names_channels(&self) -> bool {
        match self.body {
            PublishBody::Api => true,
            PublishBody::Plain => false,
            PublishBody::Stream => self.endpoints.iter().any(Endpoint::has_channel_place),
        }
    }

    /// Publishes to `endpoint` alone, every `every`, with defaults for the rest.
    #[must_use]
    pub fn new(endpoint: Endpoint, every: Duration) -> Self {
        Self {
            endpoints: vec![endpoint],
            every,
            is_spread: false,
            pushes: None,
            payload_bytes: PAYLOAD_BYTES_DEFAULT,
            filler: Filler::default(),
            body: PublishBody::default(),
            content_type: CONTENT_TYPE_DEFAULT.to_owned(),
            channels: Vec::new(),
            api_key: None,
            warmup: WARMUP_DEFAULT,
        }
    }
}
