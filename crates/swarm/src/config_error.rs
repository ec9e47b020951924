//! Why a run cannot be begun.

use crate::config::{
    ECHO_BYTES_MAX, FlowError, FramingError, LOAD_RATE_MAX, PAYLOAD_BYTES_MAX,
    REQUEST_BODY_BYTES_MAX,
};
use crate::engine::flows::template::TemplateError;
use crate::engine::session::EPOCH_BYTES_MAX;
use crate::engine::sources::SourceError;
use crate::protocol::{Protocol, Scheme};
use crate::stamp::STAMP_BYTES;
use myriad_units::counted;
use std::time::Duration;

/// A run that cannot be begun.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// No target is given.
    #[error("no target is given; give one such as 'ws://127.0.0.1:8000/raw?channel=x'")]
    NoTarget,
    /// More targets than a run has, or more targets and channels together.
    #[error(
        "more than 1,000,000 targets are given, counted once for each of --channels; give fewer"
    )]
    TooManyTargets,
    /// An option for clients that speak a protocol.
    #[error(
        "{0} needs a protocol with sessions; give --protocol {names}",
        names = Protocol::listed(Protocol::has_session)
    )]
    NeedsSession(&'static str),
    /// An option for clients that speak none.
    #[error("{0} needs --protocol {names}, because the server is to send each message back as it is", names = Protocol::listed(Protocol::has_messages))]
    NeedsRaw(&'static str),
    /// An option for clients that listen over HTTP.
    #[error("{0} is for clients that listen over HTTP; give --protocol {names}", names = Protocol::listed(|it| it.listening().is_some()))]
    NeedsHttp(&'static str),
    /// A target of another kind of server: what clients speak, the target, and what that is.
    #[error(
        "--protocol {name} needs {scheme}:// targets; write {1} as {form}, or give --protocol {others}",
        name = .0.name(),
        scheme = .0.scheme().plain(),
        form = .0.scheme().form(),
        others = Protocol::listed(|it| it.scheme() == *.2)
    )]
    Scheme(Protocol, String, Scheme),
    /// An option for clients that speak WebSocket.
    #[error("{0} is for clients of WebSocket servers; leave it out")]
    NeedsWebSocket(&'static str),
    /// An option for clients that listen, and what these speak.
    #[error("{0} is for clients that listen, which those of --protocol {1} do not; leave it out")]
    NobodyListens(&'static str, &'static str),
    /// An option for clients that send requests, and what these speak.
    #[error(
        "{0} is for clients that send requests, which those of --protocol {1} do not; leave it out"
    )]
    NoRequests(&'static str, &'static str),
    /// Channels of clients that have none: what they speak.
    #[error(
        "--channel: clients of --protocol {0} have no channels; leave it out (over plain TCP they may join by what they say, in [opening] of a scenario)"
    )]
    NoChannelsOf(&'static str),
    /// Pings of clients that have none: what they speak.
    #[error(
        "--heartbeat: --protocol {0} has no pings; write what takes their place as `send` in [heartbeat] of a scenario"
    )]
    NoPings(&'static str),
    /// How messages are told apart: the key of the scenario, and what is wrong.
    #[error("{1}")]
    Framing(&'static str, FramingError),
    /// An option for clients whose requests are held.
    #[error("{0} is about requests that are held; give --protocol long-poll, or leave it out")]
    NeedsPolls(&'static str),
    /// A request is larger than clients send.
    #[error("--request-body has {0} bytes; {REQUEST_BODY_BYTES_MAX} is the most")]
    RequestBody(usize),
    /// The path has a place for one channel: the target, and how many channels its clients have.
    #[error(
        "{0} has a place for one channel, and {1} are given; give one --channel NAME (with --channels COUNT, each client has one of them)"
    )]
    ChannelPlace(String, usize),
    /// A channel without a name.
    #[error("--channel must not be empty; give a name such as news")]
    EmptyChannel,
    /// Clients cannot be dealt out to so many channels.
    #[error("--channels {0} is out of range; give 1 to 1,000,000")]
    Channels(u64),
    /// Clients are to be dealt out to channels, and not one name is given for them.
    #[error("--channels needs one --channel NAME; the channels are then NAME-1, NAME-2 and so on")]
    ChannelName,
    /// Zero connections, or more than 2^31.
    #[error("--connections {0} is out of range; give 1 to 2,147,483,648")]
    Connections(u64),
    /// A count out of range: the option, what was given, the least and the most.
    #[error("{0} {1} is out of range; give {2} to {3}")]
    Range(&'static str, u32, u32, u32),
    /// A stage of the arrival makes the crowd smaller than the one before it: its target.
    #[error("--stage: {0} is less than the stage before it has; a crowd that arrives only grows")]
    StageFalls(String),
    /// The last stage is not the whole crowd.
    #[error(
        "--stage: the last one goes to {target}, and --connections is {connections}; let it end there, or write shares such as 100%"
    )]
    StageTarget {
        /// Of the last stage, as given.
        target: String,
        /// The whole crowd.
        connections: u64,
    },
    /// An option whose duration must not be zero.
    #[error("{0} must not be zero; give a duration such as 10s")]
    Zero(&'static str),
    /// A share of zero, or more than the whole crowd every second.
    #[error(
        "--churn {}%/s is out of range; give more than 0 and at most 100%/s, such as 1%/m",
        .0 * 100.0
    )]
    Churn(f64),
    /// An incident hits nobody, or more than everybody.
    #[error(
        "{option}: {size} is out of range; give more than 0 and at most 100% of the clients, such as 50%@10s"
    )]
    IncidentSize {
        /// What happens.
        option: &'static str,
        /// As given: a share or a count.
        size: String,
    },
    /// Clients of long polls are to stall.
    #[error(
        "--stall needs a connection that the server writes to at any time, and a request is answered once; give another --protocol than long-poll or http"
    )]
    StallOfPolls,
    /// Clients send the requests of flows, and there are none.
    #[error(
        "--protocol http needs [[flows]] of a scenario, which say what clients ask (docs/scenarios.md); to listen over HTTP give --protocol long-poll, sse or http-stream"
    )]
    NothingAsked,
    /// Nobody knows whether the run lasts until an incident: the option.
    #[error("{0} needs a --duration, because it happens at a time after the end of connecting")]
    IncidentUntimed(&'static str),
    /// The run is over before an incident.
    #[error(
        "{option} at {at:?} is not before the end of the --duration of {duration:?}, which counts from the end of connecting too; give a longer --duration"
    )]
    IncidentLate {
        /// What happens.
        option: &'static str,
        /// When.
        at: Duration,
        /// How long the crowd is held.
        duration: Duration,
    },
    /// The waits before attempts to come back: the first limit, and the largest.
    #[error(
        "--backoff {0:?}..{1:?} is out of range; the first time is more than zero, and at most the second, as in 500ms..20s"
    )]
    Backoff(Duration, Duration),
    /// The payload is shorter than the stamp or longer than 16 MiB.
    #[error(
        "--payload-size {0} is out of range; the stamp needs {STAMP_BYTES} bytes, and {PAYLOAD_BYTES_MAX} is the most"
    )]
    Payload(usize),
    /// An option whose rate is zero or too high.
    #[error(
        "{0} {1}/s is out of range; give more than 0 and at most {LOAD_RATE_MAX}/s, such as 5k/s"
    )]
    Rate(&'static str, f64),
    /// A message of a client is shorter than its stamp or longer than 1 MiB: the option, its value, and the bytes of the stamp.
    #[error("{0} {1} is out of range; the stamp needs {2} bytes, and {ECHO_BYTES_MAX} is the most")]
    MessageSize(&'static str, usize, usize),
    /// Clients are to publish, and some subscribe to no channel.
    #[error(
        "--client-publish needs a channel of each client to publish to; give --channel NAME, or put ?channel=NAME into every target"
    )]
    NoChannelOfClients,
    /// An epoch that no server gives.
    #[error(
        "--recover-from: the epoch '{0}' is not one; it has 1 to {EPOCH_BYTES_MAX} bytes, as the answer of the publish API gives it"
    )]
    Epoch(String),
    /// A position is for one channel, and so many are given.
    #[error(
        "--recover-from is a position in one channel, and {0} are given; give one --channel, without --channels"
    )]
    RecoverFrom(usize),
    /// The run ends before its warm-up.
    #[error(
        "--duration {duration:?} ends before the --warmup of {warmup:?}; it counts from the end of connecting, so give a longer --duration or a shorter --warmup"
    )]
    Warmup {
        /// How long the crowd is held.
        duration: Duration,
        /// As given.
        warmup: Duration,
    },
    /// The API key holds characters that a header cannot carry.
    #[error("--api-key holds characters that a header cannot carry; check it for line breaks")]
    ApiKey,
    /// The name or the value of a header has characters that no header has: the name.
    #[error(
        "--header {0:?} cannot be sent: its name has letters, digits and hyphens, and its value has one line; take out line breaks and other control characters"
    )]
    Header(String),
    /// A header would say how long a body is.
    #[error(
        "--header {0:?} cannot be sent: clients write the length of a body themselves; leave it out"
    )]
    LengthHeader(String),
    /// No channel to publish to is known.
    #[error(
        "no channel to publish to is known; give --channel NAME or --publish-channel NAME, put ?channel=NAME into the targets, or use --publish-body plain"
    )]
    NoChannel,
    /// A channel to publish to that no target subscribes to.
    #[error(
        "--publish-channel {0} is in no target's ?channel=; nobody would receive it, so add it there"
    )]
    NobodySubscribes(String),
    /// Too many channels for a stamp to name.
    #[error(
        "more than 65,536 channels are published to; give fewer, or some of them with --publish-channel"
    )]
    TooManyChannels,
    /// This machine trusts no CA, and none is given.
    #[error(
        "this machine has no certificates of CAs; name your own with --ca FILE, install the package ca-certificates, or give --insecure in a test"
    )]
    NoCa,
    /// The source addresses do not suffice, or do not fit.
    #[error("source addresses: {0}")]
    Sources(SourceError),
    /// io_uring was demanded and does not work here.
    #[error("--driver io_uring does not work here: {0}; use --driver epoll")]
    Driver(String),
    /// The threads' descriptor tables hold too few connections.
    #[error(
        "{} can hold {} under this descriptor limit; give --threads {needed}, leave --threads out, or use --driver io_uring",
        counted(u64::from(*threads), "thread"),
        counted(*holds, "connection")
    )]
    Threads {
        /// As given.
        threads: u32,
        /// What they hold.
        holds: u64,
        /// Threads that would suffice.
        needed: u64,
    },
    /// The descriptor limit could not be read.
    #[error("the descriptor limit cannot be read or raised: {0}")]
    DescriptorLimit(String),
    /// A threshold that this run cannot be judged by: as given, and why.
    #[error("--threshold '{0}': {1}")]
    Threshold(String, ThresholdRefused),
    /// Something about flows: the key of the scenario, and what.
    #[error("{1}")]
    Flow(String, FlowError),
    /// A target or a header has a variable that no client can fill in.
    #[error("{0}: {1}")]
    Variable(&'static str, TemplateError),
    /// A text that is the same for all clients has a variable.
    #[error(
        "{0} has {1}, and no variable has a value there; define it in [variables], or leave it out"
    )]
    NoVariables(&'static str, String),
    /// Two options want standard output for themselves.
    #[error("{0} and {1} both write to standard output; give a file to one of them")]
    StandardOutput(&'static str, &'static str),
}

/// Why a run cannot be judged by a threshold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ThresholdRefused {
    /// The run does not measure its figure: the option that would.
    #[error("its figure is measured with {0} only; give {0}, or leave the threshold out")]
    Unmeasured(&'static str),
    /// It is about a flow that there is not.
    #[error("no flow is named `{name}`; {}", choice(.nearest.as_deref(), .known))]
    NoFlow {
        /// As written.
        name: String,
        /// A name that is spelled nearly so.
        nearest: Option<String>,
        /// The names that there are.
        known: Vec<String>,
    },
    /// It needs more connections than there are clients: so many.
    #[error(
        "no run with {} can hold it; write the number that --connections has, or in a scenario the same variable at both places",
        counted(*.0, "client")
    )]
    TooFewClients(u64),
}

/// The name that was probably meant, or those that there are.
fn choice(nearest: Option<&str>, known: &[String]) -> String {
    match (nearest, known) {
        (Some(nearest), _) => format!("did you mean `{nearest}`?"),
        (None, []) => "the run has no flows".to_owned(),
        (None, known) => format!("choose among {}", known.join(", ")),
    }
}

impl From<SourceError> for ConfigError {
    fn from(error: SourceError) -> Self {
        Self::Sources(error)
    }
}
