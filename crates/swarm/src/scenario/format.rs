//! The sections and keys of a scenario file, and with them its JSON schema.
//!
//! The doc comments of fields are the schema's descriptions. A key that is left out has the default of the command line's
//! option, which `docs/scenarios.md` lists.

mod framing;
mod limit;
mod protocol;
mod talk;

pub(super) use framing::{FramedBy, Framing, LengthCountsName, LengthFormName};
pub(super) use limit::Limit;
use protocol::Spoken;
pub(super) use talk::{Accounts, Action, Assign, Expect, Flow, Groups, Opening, Reply};

use super::arrival::Arrival;
use super::incidents::{Reconnect, Stall, Storm, Vanish};
use super::quantity::{
    Count, EndpointUrl, Position, Rate, ShareRate, Size, Sources, TargetUrl, Time, TimeRange,
};
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;

/// A scenario for `myriad swarm`: who connects, what they say, and what has to come of it.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
#[schemars(title = "A scenario of myriad swarm")]
pub(super) struct Scenario {
    /// The JSON schema that an editor checks the file against.
    #[serde(rename = "$schema")]
    pub schema: Option<String>,
    /// One line for people: what the scenario shows.
    pub description: Option<String>,
    /// Texts that take the place of `${NAME}` in all texts of the file. `--set variables.NAME=VALUE` changes one.
    pub variables: BTreeMap<String, String>,
    /// The clients.
    pub terminals: Terminals,
    /// How messages are told apart where clients speak plain TCP. Without it, each line is a message.
    pub framing: Option<Framing>,
    /// How they arrive.
    pub arrival: Arrival,
    /// How long the crowd stays.
    pub hold: Hold,
    /// Pings of the clients.
    pub heartbeat: Option<Heartbeat>,
    /// Clients that leave and are replaced.
    pub churn: Option<Churn>,
    /// How clients come back whose connection ended.
    pub reconnect: Option<Reconnect>,
    /// Shares of the crowd that drop their connections at once.
    pub storm: Vec<Storm>,
    /// Clients that stop reading.
    pub stall: Option<Stall>,
    /// Clients that are gone without a word.
    pub vanish: Option<Vanish>,
    /// Pushes through an HTTP API.
    pub publish: Option<Publish>,
    /// Messages that the server sends back to the client that sent them.
    pub echo: Option<Messages>,
    /// Publications of clients with a session, over their own connections.
    pub client_publish: Option<Messages>,
    /// What templates take from accounts.
    pub accounts: Option<Accounts>,
    /// How the clients are dealt out to groups. Without it, all of them are one.
    pub groups: Option<Groups>,
    /// What each client says when it opens.
    pub opening: Option<Opening>,
    /// What each client says when something comes, such as the answer to a ping of the server's own.
    pub replies: Vec<Reply>,
    /// Messages of clients to each other, or to the server, each kind by a schedule of its own.
    pub flows: Vec<Flow>,
    /// HTTP requests beside the crowd, which are answered with what they carry.
    pub requests: Option<Requests>,
    /// Conditions that decide the outcome, such as `reach>=100%`. One may be a table as in k6, with `threshold`, `abort-on-fail` and
    /// `delay-abort-eval`.
    pub thresholds: Vec<Limit>,
    /// A threshold that fails ends the run, this long after the end of connecting at the earliest.
    pub abort_on_fail: Option<Time>,
    /// How connections to `wss://`, `https://` and `tls://` are protected.
    pub tls: Tls,
    /// How this machine makes the crowd.
    pub generator: Generator,
}

impl Scenario {
    /// The files that it names, with their keys.
    pub(super) fn files(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let accounts = self.accounts.as_ref().map(|it| it.file.as_str());
        let tokens = self.terminals.tokens_file.as_deref();
        let files = [
            ("accounts.file", accounts),
            ("terminals.tokens-file", tokens),
            ("tls.ca", self.tls.ca.as_deref()),
        ];
        let files = files.into_iter();
        files.filter_map(|(key, file)| Some((key, file?)))
    }
}

/// The clients.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(super) struct Terminals {
    /// How many.
    pub count: Option<Count>,
    /// What they speak.
    pub protocol: Option<Spoken>,
    /// Where they connect to, in turn.
    pub targets: Vec<TargetUrl>,
    /// Headers of their requests.
    pub headers: BTreeMap<String, String>,
    /// The token that all of them send with `connect`.
    pub token: Option<String>,
    /// A file with a token on each line, which they take in turn.
    pub tokens_file: Option<String>,
    /// Channels that every one subscribes to.
    pub channels: Vec<String>,
    /// Deals them out to so many channels, NAME-1, NAME-2 and so on.
    pub channel_count: Option<Count>,
    /// Offer to take compressed messages.
    pub compression: bool,
    /// Body of their requests over HTTP, which are POST then. The channel of a group takes the place of `{channel}`.
    pub request_body: Option<String>,
    /// From where a poll goes on: `HEADER=PARAMETER` each, or `none`.
    pub poll_position: Vec<String>,
    /// How long a poll without a delivery is to be held.
    pub expect_held: Option<TimeRange>,
    /// The position from which every subscription begins, as after a reconnect.
    pub recover_from: Option<Position>,
    /// Each line of what comes over a WebSocket, or answers a poll, is a message.
    pub lines: bool,
    /// How they leave.
    pub close: Option<Close>,
}

/// How clients leave.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Close {
    Reset,
    Orderly,
}

/// How long the crowd stays.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(super) struct Hold {
    /// From the end of connecting, with `warmup` in it. Without it, until the pushes are over, or 60s.
    pub duration: Option<Time>,
    /// Time between the end of connecting and the first push, echo, request, publication or message of a flow.
    pub warmup: Option<Time>,
    /// How long a push waits for its next arrival, and a message for its answer.
    pub settle: Option<Time>,
}

/// Pings of the clients.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Heartbeat {
    /// Each client pings once in this time.
    pub every: Time,
    /// A message in place of a ping frame. It may have the variables of `opening`.
    pub send: Option<String>,
    /// Send it as a binary message.
    #[serde(default)]
    pub binary: bool,
    /// A regular expression that the answer to it matches. Without it no answer is awaited.
    pub answer: Option<String>,
}

/// Clients that leave and are replaced.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Churn {
    /// Share of the crowd that leaves in a time.
    pub rate: ShareRate,
}

/// Pushes through an HTTP API.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Publish {
    /// Where to: each push goes to all of them at once.
    pub urls: Vec<EndpointUrl>,
    /// Time between pushes.
    pub every: Option<Time>,
    /// Spread the channels of a push evenly over `every`.
    #[serde(default)]
    pub spread: bool,
    /// How many. Without it, until the duration is over.
    pub pushes: Option<u32>,
    /// Bytes of a push, its stamp included.
    pub payload_size: Option<Size>,
    /// What a push contains beside its stamp.
    pub payload: Option<Payload>,
    /// The form of the request.
    pub body: Option<Body>,
    /// Content type of what is appended to a stream.
    pub content_type: Option<String>,
    /// Channels to publish to. Without them, those of the targets.
    #[serde(default)]
    pub channels: Vec<String>,
    /// Key of the API.
    pub api_key: Option<String>,
}

/// What a push contains beside its stamp.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Payload {
    Dots,
    Json,
}

/// The form of a publish request.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Body {
    Api,
    Plain,
    Stream,
}

/// Messages that clients send by a schedule.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Messages {
    /// Messages a second over the whole crowd.
    pub rate: Rate,
    /// Bytes of a message, its stamp included.
    pub size: Option<Size>,
}

/// HTTP requests beside the crowd.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Requests {
    /// Where to, in turn.
    pub urls: Vec<EndpointUrl>,
    /// Requests a second.
    pub rate: Rate,
    /// Requests under way at once, each on a kept connection.
    pub connections: Option<u32>,
}

/// How connections to `wss://`, `https://` and `tls://` are protected.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(super) struct Tls {
    /// A file of CAs in PEM. Servers have to be signed by one of them. Without it, by one that this machine trusts.
    pub ca: Option<String>,
    /// Do not look at the certificates of servers.
    pub insecure: bool,
    /// A client that has been connected resumes its session when it connects again.
    pub resume: bool,
}

/// How this machine makes the crowd.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(super) struct Generator {
    /// Threads. Without it, one per core, and more where descriptor tables are small.
    pub threads: Option<u32>,
    /// How to drive sockets.
    pub driver: Option<DriverName>,
    /// Source addresses: ranges, CIDR blocks or single addresses, separated by commas.
    pub source_ip: Option<Sources>,
}

/// How to drive sockets.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
pub(super) enum DriverName {
    #[serde(rename = "auto")]
    Auto,
    #[serde(rename = "io_uring")]
    IoUring,
    #[serde(rename = "epoll")]
    Epoll,
}
