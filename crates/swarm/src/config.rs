//! What a run is asked to do, checked.

mod arrival;
mod checks;
mod commands;
mod flows;
mod framing;
mod incidents;
mod load;
mod preparing;
mod tls;
mod variables;

pub use crate::engine::flows::plan::Pace;
pub use crate::engine::flows::thinking::Think;
pub use crate::engine::framing::{
    FrameMark, Framing, LengthCounts, LengthField, LengthForm, Unfit,
};
pub use arrival::{Arrival, ArrivalStage, CrowdSize};
pub use commands::{Action, Command};
pub(crate) use flows::CALL_CONNECTIONS_DEFAULT;
pub use flows::{
    Call, ClientRequest, Flow, FlowError, FlowRoute, Flows, Reply, RequestText, Said, StampPlace,
};
pub use framing::FramingError;
pub use incidents::{Comeback, Incident, What};
pub(crate) use load::{Answered, WARMUP_DEFAULT};
pub use load::{
    ClientPublish, Echo, Endpoint, Publish, PublishBody, REQUEST_CONNECTIONS_DEFAULT, Requests,
};
pub(crate) use preparing::Prepared;
pub use tls::{Ca, CaError, CaProblem, Tls};

use crate::engine::deal::Deal;
use crate::engine::plan::PollPosition;
use crate::engine::shared::Ending;
use crate::engine::sources::SourceChoice;
use crate::measure::threshold::Threshold;
use crate::protocol::Protocol;
use crate::report::output::Destination;
use crate::report::reporting::Reporting;
use crate::target::Target;
use myriad_reactor::Driver;
use std::time::Duration;

/// Connections under way at once when no other number is given. A listen backlog is usually 4,096, and one
/// that overflows drops packets for a second each; this stays far below, and still connects 80,000 a second
/// as long as each takes less than 25 ms.
pub const CONNECTING_DEFAULT: u32 = 2048;

/// How long clients are held when neither a duration nor a number of pushes is given.
pub const DURATION_DEFAULT: Duration = Duration::from_secs(60);

/// Most attempts after the first: a client counts them in one byte.
const RETRIES_MAX: u8 = 100;

/// Largest message a client takes.
const MESSAGE_BYTES_MAX: u64 = 64 << 20;

/// The same of a client with a session, or of a stream over HTTP: it keeps the whole of it.
const KEPT_MESSAGE_BYTES_MAX: u64 = 16 << 20;

/// Bytes of incomplete messages that the whole crowd keeps: a server that finishes none must not fill this machine's
/// memory.
const PARTIAL_BYTES_MAX: usize = 512 << 20;

/// The least of them for a thread: one message.
const PARTIAL_BYTES_MIN: usize = 64 << 20;

/// Targets of a run, each with its channels. A million of them take some 500 MB.
pub(crate) const TARGETS_MAX: usize = 1_000_000;

/// Channels that a stamp can name.
pub(crate) const STREAMS_MAX: usize = 1 << 16;

/// Largest payload of the publisher.
pub(crate) const PAYLOAD_BYTES_MAX: usize = 16 << 20;

/// Largest message for the server to send back.
pub(crate) const ECHO_BYTES_MAX: usize = 1 << 20;

/// Largest body of a client's request: as much as goes out at once, or nearly so.
pub(crate) const REQUEST_BODY_BYTES_MAX: usize = 64 << 10;

/// Most messages a second, to send back or to answer.
pub(crate) const LOAD_RATE_MAX: f64 = 10e6;

/// What a run is called, for its report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// The scenario's name; none where the command line says everything.
    pub scenario: Option<String>,
    /// What the scenario shows, in its own words.
    pub description: Option<String>,
    /// The command line, without what is secret.
    pub command: Option<String>,
}

/// A run.
#[derive(Clone, Debug)]
pub struct Config {
    /// What the run is called, for its report.
    pub about: About,
    /// Where clients connect to, in turn.
    pub targets: Vec<Target>,
    /// Clients.
    pub connections: u64,
    /// What they speak.
    pub protocol: Protocol,
    /// Sent with `connect`, where the protocol has that: the clients take them in turn. Empty for none.
    pub tokens: Vec<String>,
    /// Channels that every client subscribes to, beside those of its target's URL.
    pub channels: Vec<String>,
    /// Clients are dealt out to so many channels, `NAME-1`, `NAME-2` and so on, where `channels` has the one name.
    pub channel_count: Option<u64>,
    /// How clients arrive.
    pub arrival: Arrival,
    /// Connections under way at once, unless all arrive at once.
    pub connecting_max: u32,
    /// How long clients are held once connecting has finished. None: until the pushes are over, or [`DURATION_DEFAULT`].
    pub duration: Option<Duration>,
    /// Threads; none: one per processor, or as many as the descriptor limit demands.
    pub threads: Option<u32>,
    /// The driver; none: io_uring where it works.
    pub driver: Option<Driver>,
    /// How connections to `wss://`, `https://` and `tls://` are protected.
    pub tls: Tls,
    /// Near-end addresses.
    pub sources: SourceChoice,
    /// For the connection itself.
    pub connect_timeout: Duration,
    /// For the upgrade's answer.
    pub handshake_timeout: Duration,
    /// Attempts after a failed first one.
    pub retries: u8,
    /// Interval of the clients' own pings; none: they only answer the server's.
    pub heartbeat: Option<Duration>,
    /// Share of the crowd that leaves and is replaced each second, from the end of connecting on; none: nobody leaves.
    pub churn_per_s: Option<f64>,
    /// How clients come back that a storm dropped, or the server.
    pub comeback: Comeback,
    /// What happens to shares of the crowd while it is held.
    pub incidents: Vec<Incident>,
    /// How messages are told apart where clients speak plain TCP; none: each line is one.
    pub framing: Option<Framing>,
    /// More headers of upgrade requests, and of requests over HTTP.
    pub headers: Vec<(String, String)>,
    /// Offer to take compressed messages (permessage-deflate), each compressed by itself.
    pub compression: bool,
    /// Sent with each request of clients that speak HTTP, as a POST; none: they send GET.
    pub request_body: Option<String>,
    /// From where a poll goes on that was answered.
    pub poll_position: PollPosition,
    /// How long a poll without a delivery is to be held: the shortest and the longest time. None: it is not judged.
    pub expect_held: Option<(Duration, Duration)>,
    /// Makes the crowd its own publisher.
    pub publish: Option<Publish>,
    /// Has clients send messages that the server sends back.
    pub echo: Option<Echo>,
    /// Has clients publish to the first of their channels.
    pub client_publish: Option<ClientPublish>,
    /// Has clients send messages of any form to each other by schedules. Scenarios alone have them.
    pub flows: Option<Flows>,
    /// From which position every client's subscription begins: the epoch, and the offset of the last publication that the
    /// client is taken to have.
    pub recover_from: Option<(String, u64)>,
    /// Makes requests to the server beside the crowd.
    pub requests: Option<Requests>,
    /// How long a publication waits for the next arrival before it is taken to be over, and an echo or a request for its answer
    /// before it is taken to be lost.
    pub settle: Duration,
    /// What is shown meanwhile.
    pub live: LiveStyle,
    /// Whether the table for people is written at the end.
    pub closing_table: bool,
    /// Where the full report goes.
    pub json: Option<Destination>,
    /// Where the percentile distribution of arrivals goes.
    pub hgrm: Option<Destination>,
    /// Where else the run is shown, and what of the server is watched.
    pub reporting: Reporting,
    /// Conditions that decide the outcome.
    pub thresholds: Vec<Threshold>,
    /// A threshold that fails ends the run, this long after the end of connecting at the earliest. None: thresholds are judged at the
    /// end alone.
    pub abort_on_fail: Option<Duration>,
    /// How clients leave, in between and at the end.
    pub ending: Ending,
    /// Which part of the crowd this machine has; none: all of it.
    pub(crate) dealt: Option<Dealt>,
}

/// A crowd on several machines.
#[derive(Clone, Debug)]
pub(crate) struct Dealt {
    pub deal: Deal,
    /// The same on all of them: the run in stamps, and the seed of what is random.
    pub run: u16,
    pub seed: u64,
}

/// What a run shows while it goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LiveStyle {
    /// A dashboard on standard error, or plain lines when that is no terminal it can be drawn on.
    #[default]
    Automatic,
    /// One line that is rewritten, or plain lines when standard error is no terminal.
    Line,
    /// One line of text a second on standard error.
    Plain,
    /// One JSON object per line on standard output; see `myriad_report`. The closing table goes to standard error.
    Json,
    /// Nothing until the closing table.
    Off,
}

impl Config {
    /// A run of `connections` clients on `targets`, with defaults for the rest.
    #[must_use]
    pub fn new(targets: Vec<Target>, connections: u64) -> Self {
        Self {
            about: About::default(),
            targets,
            connections,
            protocol: Protocol::default(),
            tokens: Vec::new(),
            channels: Vec::new(),
            channel_count: None,
            arrival: Arrival::default(),
            connecting_max: CONNECTING_DEFAULT,
            duration: None,
            threads: None,
            driver: None,
            tls: Tls::default(),
            sources: SourceChoice::default(),
            connect_timeout: Duration::from_secs(10),
            handshake_timeout: Duration::from_secs(10),
            retries: 2,
            heartbeat: None,
            churn_per_s: None,
            comeback: Comeback::default(),
            incidents: Vec::new(),
            framing: None,
            headers: Vec::new(),
            compression: false,
            request_body: None,
            poll_position: PollPosition::default(),
            expect_held: None,
            publish: None,
            echo: None,
            client_publish: None,
            flows: None,
            recover_from: None,
            requests: None,
            settle: Duration::from_secs(30),
            live: LiveStyle::default(),
            closing_table: true,
            json: None,
            hgrm: None,
            reporting: Reporting::default(),
            thresholds: Vec::new(),
            abort_on_fail: None,
            ending: Ending::default(),
            dealt: None,
        }
    }
}

#[cfg(test)]
mod tests;
