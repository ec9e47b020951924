//! The full report of a run, as `--json` writes it.

use crate::comeback::ComebackReport;
use crate::cpu::CpuReport;
use crate::fleet::FleetReport;
use crate::flow::FlowReport;
use crate::http::HttpReport;
use crate::push::{FanoutTimes, Origin, PushReport};
use crate::round_trip::{ClientPublishReport, RoundTripReport};
use crate::series::Series;
use crate::unwell::{StallReport, VanishReport};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How a run ended.
#[derive(Default, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// As planned, and every threshold held.
    #[default]
    Finished,
    /// As planned, but a threshold failed.
    ThresholdsFailed,
    /// By a signal, with the figures so far.
    Interrupted,
    /// Early, because no client could connect.
    NobodyConnected,
    /// As planned, and no threshold failed, but a load came to nothing: no push was taken, or nothing that was sent was answered.
    LoadFailed,
}

/// The full report of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Report {
    /// `myriad swarm`.
    pub program: String,
    /// The version of `myriad`.
    pub version: String,
    /// The id of this run, which the stamps of its publications carry.
    pub run_id: String,
    /// Seconds since 1970.
    pub started_unix_s: u64,
    /// Seconds that the whole run took.
    pub elapsed_s: f64,
    /// How it ended.
    pub outcome: Outcome,
    /// One sentence on connections that were lost, pushes that failed and whatever else went wrong; absent when nothing did.
    pub went_wrong: Option<String>,
    /// The settings of the run, as given or as chosen.
    pub settings: Settings,
    /// How connecting went.
    pub setup: Setup,
    /// Clients that left after connecting, on purpose or not.
    pub churn: ChurnReport,
    /// Clients that came back; absent without `--storm` and `--reconnect`.
    pub comeback: Option<ComebackReport>,
    /// Clients that stopped reading; absent without `--stall`.
    pub stall: Option<StallReport>,
    /// Clients that were gone without a word; absent without `--vanish`.
    pub vanish: Option<VanishReport>,
    /// Failures by kind.
    pub errors: BTreeMap<String, u64>,
    /// What the server said, the first of each kind of error: of an HTTP answer to an upgrade request its body, of an error or
    /// a push of the protocol its code, its text and its channel, of anything else the whole. `close_CODE` is the reason of a
    /// close frame. At most 200 bytes, with what is not printable escaped. Of an answer to a client that speaks HTTP its head
    /// and its body, at most 2 KiB.
    pub server_said: BTreeMap<String, String>,
    /// Close frames from the server by code; `none` without one.
    pub closes: BTreeMap<String, u64>,
    /// Messages that clients received.
    pub messages: Messages,
    /// Pings in both directions.
    pub pings: Pings,
    /// Messages that the server sent back; absent without `--echo`.
    pub echo: Option<RoundTripReport>,
    /// What clients published over their own connections; absent without `--client-publish`.
    pub client_publish: Option<ClientPublishReport>,
    /// What the protocol's offsets and recoveries showed; absent where clients speak no protocol.
    pub session: Option<SessionReport>,
    /// What clients asked and were told that speak HTTP; absent with other protocols.
    pub http: Option<HttpReport>,
    /// Requests that were to be answered with what they carried; absent without `--request`.
    pub request: Option<RoundTripReport>,
    /// What came of the messages of each flow, in the order of the scenario.
    pub flows: Vec<FlowReport>,
    /// All publications of one origin together: those of this run or, if it made none, those of others.
    pub fanout: Option<Fanout>,
    /// Each publication in the order they were made, at most 10,000 of them.
    pub pushes: Vec<PushReport>,
    /// The run over time.
    pub series: Series,
    /// What the crowd itself used, and how late it was. Of a fleet that of its busiest agent, and the memory of all.
    pub crowd: CrowdReport,
    /// CPU time of both ends for each message; absent with agents, and where connecting did not end.
    pub cpu: Option<CpuReport>,
    /// The machines that the crowd was on; absent if it was on this one.
    pub fleet: Option<FleetReport>,
    /// Whether the crowd itself was the limit.
    pub generator: GeneratorReport,
    /// The verdict on each threshold.
    pub thresholds: Vec<Verdict>,
    /// What makes these figures less trustworthy.
    pub warnings: Vec<String>,
}

/// The settings of a run, as given or as chosen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Settings {
    /// The scenario's name, which is that of its file without `.toml`; absent where the command line said everything.
    pub scenario: Option<String>,
    /// What the scenario shows, in its own words.
    pub description: Option<String>,
    /// The command line, without what is secret; absent where there was none.
    pub command: Option<String>,
    /// Target URLs.
    pub targets: Vec<String>,
    /// What clients spoke, as `--protocol` names it.
    pub protocol: String,
    /// Channels that clients were dealt out to; absent without `--channels`.
    pub channel_count: Option<u64>,
    /// Clients to connect.
    pub connections: u64,
    /// Connections begun each second; absent if as fast as the window allowed.
    pub connect_rate_per_s: Option<f64>,
    /// How clients arrived, in words; absent where `connect_rate_per_s` says it, or nothing was asked for.
    pub arrival: Option<String>,
    /// Connections that may be under way at once.
    pub connecting_max: u32,
    /// Seconds that clients were to be held, from the end of connecting; absent if until the pushes were over.
    pub hold_s: Option<f64>,
    /// Threads of the crowd.
    pub threads: u32,
    /// `io_uring` or `epoll`.
    pub driver: String,
    /// Descriptor tables: `shared`, or one for each thread: `own`.
    pub tables: String,
    /// Near-end addresses, in words.
    pub sources: String,
    /// Share of the crowd that left and was replaced each second.
    pub churn_per_s: Option<f64>,
    /// Seconds between two pings of a client; absent if clients only answered pings.
    pub heartbeat_s: Option<f64>,
    /// The first URL that publications were posted to.
    pub publish_url: Option<String>,
    /// All URLs that each publication was posted to.
    pub publish_urls: Vec<String>,
    /// Seconds from one publication to the next.
    pub publish_every_s: Option<f64>,
    /// Bytes of a publication's payload.
    pub payload_bytes: Option<usize>,
    /// Size of a message that the server was to send back.
    pub echo_bytes: Option<usize>,
    /// Size of what a client published.
    pub client_publish_bytes: Option<usize>,
    /// `EPOCH:OFFSET` from which every client's subscription was to begin.
    pub recover_from: Option<String>,
    /// URLs that requests were posted to, in turn.
    pub request_urls: Vec<String>,
    /// Requests that could be under way at once.
    pub request_connections: Option<u32>,
    /// Processors this process may use.
    pub processors: usize,
    /// The kernel's release.
    pub kernel: String,
}

/// How connecting went.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Setup {
    /// Clients that connected and were upgraded. Of clients that speak HTTP those whose first poll was sent and not refused, or
    /// whose stream began.
    pub connected: u64,
    /// Of those clients, the ones whose server agreed on compression; absent if it was not offered.
    pub compressed: Option<u64>,
    /// Clients wanted.
    pub connections_wanted: u64,
    /// Clients given up after their retries.
    pub given_up: u64,
    /// Connections that were established, with TLS where that was wanted, upgraded or not; repeated attempts included.
    pub tcp_connected: u64,
    /// Fewest connections that the crowd allowed to be under way at once: below `settings.connecting_max` where attempts timed
    /// out.
    pub window_min: u64,
    /// Seconds from the first attempt to the last success.
    pub elapsed_s: f64,
    /// Clients connected, divided by that time.
    pub rate_per_s: f64,
    /// Clients connected in the best second, and no less than `rate_per_s`; absent if connecting took less than a second.
    pub peak_rate_per_s: Option<f64>,
    /// Milliseconds from a client's first packet to its upgrade, including failed attempts and the waits between them:
    /// half of the clients took at most that.
    pub p50_ms: Option<f64>,
    /// The same for 99% of the clients.
    pub p99_ms: Option<f64>,
    /// The same for the slowest client.
    pub slowest_ms: Option<f64>,
    /// The TLS handshakes among it; absent without TLS.
    pub tls: Option<TlsReport>,
}

/// How TLS handshakes went that came to their end, those of clients that came back included.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TlsReport {
    /// The certificates of servers were not looked at (`--insecure`).
    pub insecure: bool,
    /// The file of CAs that servers had to be signed by (`--ca`); absent where it was the machine's own.
    pub ca: Option<String>,
    /// Handshakes.
    pub handshakes: u64,
    /// Of them, those that resumed a session.
    pub resumed: u64,
    /// Of them, those of TLS 1.2; the others are of TLS 1.3.
    pub tls12: u64,
    /// Milliseconds from the TCP connection to the end of its TLS handshake: half of the handshakes took at most that.
    pub p50_ms: Option<f64>,
    /// The same for 99% of the handshakes.
    pub p99_ms: Option<f64>,
    /// The same for the slowest handshake.
    pub slowest_ms: Option<f64>,
}

/// Clients that left after connecting, on purpose or not.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ChurnReport {
    /// Clients that left on purpose.
    pub churned: u64,
    /// Clients due to leave by `--churn` that stayed, because as many as may were connecting already, or because the
    /// crowd had stood still.
    pub forgone: u64,
    /// Connections that replaced clients that left; fewer than left while some are under way.
    pub reconnected: u64,
    /// Of them, those that could not be replaced after their retries.
    pub given_up: u64,
    /// Clients that sent or answered a close frame and reset their connection 5 s later, because the server had not ended
    /// it. The server sees a reset then, and it is this crowd's.
    pub impatient: u64,
    /// Open connections that the server or the network ended, replacements among them. With `--reconnect` their clients come back: see
    /// `comeback`.
    pub lost: u64,
}

/// Messages that clients received.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Messages {
    /// Data messages.
    pub count: u64,
    /// Bytes of their payloads.
    pub payload_bytes: u64,
    /// Data messages a second, since the first client connected.
    pub mean_per_s: f64,
    /// Exponentially weighted, as a load average: what came a minute ago weighs 1/e of what comes now. None in a run
    /// of less than 1 minute.
    pub last_1_min_per_s: Option<f64>,
    /// The same over 5 minutes.
    pub last_5_min_per_s: Option<f64>,
    /// The same over 15 minutes.
    pub last_15_min_per_s: Option<f64>,
    /// Publications of this run that a client should have got and did not, whether or not it got a later one.
    pub missed: u64,
    /// Publications that a client never got although it got a later one.
    pub gaps: u64,
    /// Publications that came after a later one.
    pub overtaken: u64,
    /// Publications given to a client again.
    pub duplicates: u64,
    /// Publications given to a client that did not subscribe to their channel, or in another channel, or that nobody has made.
    pub unexpected: u64,
    /// Publications that came after their measurement had ended.
    pub late: u64,
    /// Messages that belong to no publication, such as greetings; publications beyond those that can be measured at once; and
    /// those with a number that no client of the run has sent.
    pub unmeasured: u64,
    /// Publications older than the connection of the client that got them: a server with history sends such. They do
    /// not count for reach.
    pub replayed: u64,
}

/// What the protocol's offsets and recoveries showed.
///
/// A publication's offset is its number in its channel. So it tells gaps of anybody's publications, where a stamp tells
/// those of this run's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SessionReport {
    /// Publications that a client never got although it got one with a higher offset, or had subscribed after a lower one.
    pub gaps: u64,
    /// Publications that came after one with a higher offset.
    pub overtaken: u64,
    /// Publications given to a client again, by their offset.
    pub duplicates: u64,
    /// Subscriptions that asked for what they had missed, and got all of it.
    pub recovered: u64,
    /// Subscriptions that asked for it, and were told that something is lost.
    pub unrecovered: u64,
    /// Publications that came by recovery.
    pub recovered_publications: u64,
}

/// Pings in both directions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Pings {
    /// Pings of the server that clients answered.
    pub answered: u64,
    /// Pings that clients sent.
    pub heartbeats_sent: u64,
    /// Pings of clients that the server answered.
    pub heartbeats_answered: u64,
    /// Milliseconds from a client's ping to its answer: half of the answers took at most that.
    pub p50_ms: Option<f64>,
    /// The same for 99% of the answers.
    pub p99_ms: Option<f64>,
}

/// All publications of one origin.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Fanout {
    /// Who made them.
    pub origin: Origin,
    /// Their number, without those that the end of the run cut short.
    pub pushes: u64,
    /// Of these, publications whose publish request was not answered with success.
    pub failed: u64,
    /// Received / expected, over all of these that were published.
    pub reach: Option<f64>,
    /// Times over all arrivals of all of these.
    pub overall: FanoutTimes,
    /// Each time of the push in which it was largest, over everyone expected: `null` in JSON also when so many never
    /// got one of the run's own pushes.
    pub worst: FanoutTimes,
    /// Reach of the publication that reached fewest.
    pub reach_min: Option<f64>,
    /// Slowest answer to a publish request; `null` in JSON also when one was refused or not answered.
    pub accepted_max_ms: Option<f64>,
}

/// What the crowd itself used, and how late it was.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CrowdReport {
    /// Clients open when the run ended, without those that waited to go on over another connection.
    pub open_at_end: u64,
    /// Share of the processors that its threads can use, in the busiest second; or the share of one processor that a
    /// single thread used, if that is more.
    pub cpu_share_max: f64,
    /// Seconds in which that share was above 0.9.
    pub saturated_s: u64,
    /// Seconds in which it was watched.
    pub watched_s: u64,
    /// Share of all processors of the machine that anybody used, in the busiest second.
    pub machine_cpu_share_max: f64,
    /// Anonymous memory gained since before the first connection, per open client, when all were connected.
    pub user_bytes_per_client: Option<f64>,
    /// Anonymous memory of the whole process at that time.
    pub rss_anon_bytes: u64,
    /// Longest time that the crowd spent on one batch of received messages, while other messages waited.
    pub turn_max_ms: f64,
    /// Largest lateness of the connect schedule.
    pub connect_late_ms: f64,
    /// Largest lateness of the connect schedule while the window was full: the server was slower than the schedule.
    pub connect_window_late_ms: f64,
    /// Largest lateness of the publish schedule. It is part of the times.
    pub publish_late_ms: f64,
    /// Largest lateness of the schedule of `--echo` or `--client-publish`. It is part of their times.
    pub echo_late_ms: f64,
    /// Largest lateness of that schedule while too much was unanswered: the server was slower than the schedule.
    pub echo_held_ms: f64,
}

/// Whether the crowd itself was the limit, so that its figures say less of the server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct GeneratorReport {
    /// Whether one of the checks failed, other than `machine_cpu`.
    pub saturated: bool,
    /// What was looked at.
    pub checks: Vec<GeneratorCheck>,
}

/// One look at the crowd itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct GeneratorCheck {
    /// `cpu` (share of seconds in which the crowd was busy for more than 90% of them), `machine_cpu` (share of all processors in
    /// the busiest second), `schedule` (largest lateness that was the crowd's fault), `turn` (longest time for one batch of
    /// messages), `ports`, `descriptors`, `memory` (attempts that failed for want of one).
    pub of: String,
    /// What was seen, in `unit`.
    pub value: f64,
    /// The most with which it passes.
    pub limit: f64,
    /// `ms`, `count` or `ratio`.
    pub unit: Unit,
    /// Whether it passes. One of `machine_cpu` that fails makes no crowd saturated: the server may be on the same machine.
    pub passed: bool,
}

/// The verdict on a threshold.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Verdict {
    /// The threshold as given.
    pub expression: String,
    /// The figure it was held against, in `unit`; absent when nothing was measured, infinite (in JSON `null` too) when
    /// what was to come never did.
    pub value: Option<f64>,
    /// `ms`, `count`, `per_s` or `ratio`.
    pub unit: Unit,
    /// Whether it held.
    pub passed: bool,
    /// Whether it ended the run early.
    pub aborted: bool,
}

/// The unit of a figure that a threshold is held against.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// A time.
    #[serde(rename = "ms")]
    Milliseconds,
    /// A number of things.
    #[default]
    Count,
    /// A number of things a second.
    #[serde(rename = "per_s")]
    PerSecond,
    /// A share, between 0 and 1.
    Ratio,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_may_say_more_or_less_than_is_known() {
        let text = r#"{"program":"x","setup":{"connected":7,"rate_per_s":3.5,"new":1},"later":{}}"#;
        let report: Report = serde_json::from_str(text).unwrap();
        assert_eq!(report.setup.connected, 7);
        assert_eq!((report.echo, report.churn.lost), (None, 0));
    }

    #[test]
    fn what_took_forever_is_null() {
        let fanout = Fanout {
            accepted_max_ms: Some(f64::INFINITY),
            ..Fanout::default()
        };
        let report = Report {
            fanout: Some(fanout),
            ..Report::default()
        };
        let text = serde_json::to_string(&report).unwrap();
        let read: Report = serde_json::from_str(&text).unwrap();
        assert_eq!(read.fanout.unwrap().accepted_max_ms, None);
    }
}
