//! The full report of a run, as `--json` writes it.

use crate::push::{FanoutTimes, Origin, PushReport};
use crate::round_trip::RoundTripReport;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How a run ended.
#[derive(Default, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
}

/// The full report of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// `myriad swarm`.
    pub program: String,
    /// Of the program.
    pub version: String,
    /// In the stamps of this run's publications.
    pub run_id: String,
    /// Seconds since 1970.
    pub started_unix_s: u64,
    /// Of the whole run.
    pub elapsed_s: f64,
    /// How it ended.
    pub outcome: Outcome,
    /// One sentence on connections that were lost, pushes that failed and whatever else went wrong; absent when nothing did.
    pub went_wrong: Option<String>,
    /// What was asked for and chosen.
    pub settings: Settings,
    /// Making connections.
    pub setup: Setup,
    /// Who left after connecting: on purpose, or not.
    pub churn: ChurnReport,
    /// Failures by kind.
    pub errors: BTreeMap<String, u64>,
    /// What the server said, the first of each kind of error: of an HTTP answer to an upgrade request its body, of an error or
    /// a push of the protocol its code, its text and its channel, of anything else the whole. `close_CODE` is the reason of a
    /// close frame. At most 200 bytes, with what is not printable escaped.
    pub server_said: BTreeMap<String, String>,
    /// Close frames from the server by code; `none` without one.
    pub closes: BTreeMap<String, u64>,
    /// What was received.
    pub messages: Messages,
    /// Pings both ways.
    pub pings: Pings,
    /// Messages that the server sent back; absent without `--echo`.
    pub echo: Option<RoundTripReport>,
    /// What the protocol's offsets and recoveries showed; absent where clients speak no protocol.
    pub session: Option<SessionReport>,
    /// Requests that were to be answered with what they carried; absent without `--request`.
    pub request: Option<RoundTripReport>,
    /// All publications of one origin together: this run's own, or if it made none, those of others.
    pub fanout: Option<Fanout>,
    /// Each publication in the order they were made, at most 10,000 of them.
    pub pushes: Vec<PushReport>,
    /// The crowd itself.
    pub crowd: CrowdReport,
    /// What became of each threshold.
    pub thresholds: Vec<Verdict>,
    /// What makes these figures less trustworthy.
    pub warnings: Vec<String>,
}

/// What was asked for and chosen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// Target URLs.
    pub targets: Vec<String>,
    /// What clients spoke: `raw`, `centrifuge-json` or `centrifuge-protobuf`.
    pub protocol: String,
    /// Channels that clients were dealt out to; absent without `--channels`.
    pub channel_count: Option<u64>,
    /// Clients wanted.
    pub connections: u64,
    /// By schedule; absent: as fast as the window allowed.
    pub connect_rate_per_s: Option<f64>,
    /// Connections under way at once.
    pub connecting_max: u32,
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
    /// Interval of own pings.
    pub heartbeat_s: Option<f64>,
    /// Where publications were posted.
    pub publish_url: Option<String>,
    /// The same and all others that each publication was posted to.
    pub publish_urls: Vec<String>,
    /// How often.
    pub publish_every_s: Option<f64>,
    /// Payload of each.
    pub payload_bytes: Option<usize>,
    /// Size of a message that the server was to send back.
    pub echo_bytes: Option<usize>,
    /// Where requests went, in turn.
    pub request_urls: Vec<String>,
    /// Requests that could be under way at once.
    pub request_connections: Option<u32>,
    /// Processors this process may use.
    pub processors: usize,
    /// The kernel's release.
    pub kernel: String,
}

/// Making connections.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Setup {
    /// Clients that connected and were upgraded.
    pub connected: u64,
    /// Of those, the ones whose server agreed to compress; absent when that was not offered.
    pub compressed: Option<u64>,
    /// Clients wanted.
    pub connections_wanted: u64,
    /// Clients given up after their retries.
    pub given_up: u64,
    /// TCP connections that were established, upgraded or not, repeated attempts included.
    pub tcp_connected: u64,
    /// Fewest connections that the crowd allowed to be under way at once: below `settings.connecting_max` where attempts timed
    /// out.
    pub window_min: u64,
    /// From the first attempt to the last success.
    pub elapsed_s: f64,
    /// Successes over that time.
    pub rate_per_s: f64,
    /// In the best second; absent when it all took less than one.
    pub peak_rate_per_s: Option<f64>,
    /// From a client's first packet to its upgrade, failed attempts and the waits between them included; half of them.
    pub p50_ms: Option<f64>,
    /// The same, 99% of them.
    pub p99_ms: Option<f64>,
    /// The same, the slowest.
    pub slowest_ms: Option<f64>,
}

/// Who left after connecting.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ChurnReport {
    /// Clients that left on purpose.
    pub churned: u64,
    /// Clients that were to leave by `--churn` and did not, because as many as may were connecting already, or because the
    /// crowd had stood still.
    pub forgone: u64,
    /// Connections that replaced those that left; fewer while some are under way.
    pub reconnected: u64,
    /// Of them, those that could not be replaced after their retries.
    pub given_up: u64,
    /// Clients that sent or answered a close frame and reset their connection 5 s later, because the server had not ended
    /// it. The server sees a reset then, and it is this crowd's.
    pub impatient: u64,
    /// Open connections that the server or the network ended, replacements among them. They are not replaced.
    pub lost: u64,
}

/// What was received.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Messages {
    /// Data messages.
    pub count: u64,
    /// Their payloads.
    pub payload_bytes: u64,
    /// Since the first client connected.
    pub mean_per_s: f64,
    /// Exponentially weighted, as a load average: what came a minute ago weighs 1/e of what comes now. None in a run
    /// of less than 1 minute.
    pub last_1_min_per_s: Option<f64>,
    /// The same over 5 minutes.
    pub last_5_min_per_s: Option<f64>,
    /// The same over 15 minutes.
    pub last_15_min_per_s: Option<f64>,
    /// Publications of this run that a client was to get and did not, whether or not it got a later one.
    pub missed: u64,
    /// Publications that a client never got although it got a later one.
    pub gaps: u64,
    /// Publications that came after a later one.
    pub overtaken: u64,
    /// Publications given to a client again.
    pub duplicates: u64,
    /// Publications given to a client that did not subscribe to their channel.
    pub unexpected: u64,
    /// Publications that came after their measurement had ended.
    pub late: u64,
    /// Messages that belong to no publication: greetings, or more different ones at once than are measured.
    pub unmeasured: u64,
    /// Publications that came to clients which had connected after they were made, as a server that keeps history does: no
    /// part of their reach.
    pub replayed: u64,
}

/// What the protocol's offsets and recoveries showed.
///
/// A publication's offset is its number in its channel. So it tells gaps of anybody's publications, where a stamp tells
/// those of this run's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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

/// Pings both ways.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pings {
    /// The server's, answered.
    pub answered: u64,
    /// Own heartbeats sent.
    pub heartbeats_sent: u64,
    /// Own heartbeats answered.
    pub heartbeats_answered: u64,
    /// From heartbeat to answer, half of them.
    pub p50_ms: Option<f64>,
    /// The same, 99% of them.
    pub p99_ms: Option<f64>,
}

/// All publications of one origin.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Fanout {
    /// Whose.
    pub origin: Origin,
    /// How many, without those that the end of the run cut short.
    pub pushes: u64,
    /// Of them, those whose publish request was not answered with success.
    pub failed: u64,
    /// Received / expected over all of them that were published.
    pub reach: Option<f64>,
    /// Over all arrivals of all of them.
    pub overall: FanoutTimes,
    /// Each time of the push in which it was largest, over everyone expected: `null` in JSON also when so many never
    /// got one of the run's own pushes.
    pub worst: FanoutTimes,
    /// Of the push that reached fewest.
    pub reach_min: Option<f64>,
    /// Slowest answer to a publish request; `null` in JSON also when one was refused or not answered.
    pub accepted_max_ms: Option<f64>,
}

/// The crowd itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CrowdReport {
    /// Clients open when the run ended.
    pub open_at_end: u64,
    /// Of the processors its threads can use, or of one by a single thread if that is more, in the busiest second.
    pub cpu_share_max: f64,
    /// Seconds in which that share was above 0.9, of those watched.
    pub saturated_s: u64,
    /// Seconds watched.
    pub watched_s: u64,
    /// Of all processors of the machine, whoever used them, in the busiest second.
    pub machine_cpu_share_max: f64,
    /// Anonymous memory gained since before the first connection, per open client, when all were connected.
    pub user_bytes_per_client: Option<f64>,
    /// Anonymous memory of the whole process then.
    pub rss_anon_bytes: u64,
    /// Longest time that a batch of received messages took to be processed; others waited for it meanwhile.
    pub turn_max_ms: f64,
    /// Largest lateness of the connect schedule.
    pub connect_late_ms: f64,
    /// Largest lateness of the connect schedule while the window was full: the server was slower than the schedule.
    pub connect_window_late_ms: f64,
    /// Largest lateness of the publish schedule. It is part of the times.
    pub publish_late_ms: f64,
    /// Largest lateness of the echo schedule. It is part of the round trips.
    pub echo_late_ms: f64,
    /// Largest lateness of the echo schedule while too much was unanswered: the server was slower than the schedule.
    pub echo_held_ms: f64,
}

/// What became of a threshold.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Verdict {
    /// As given.
    pub expression: String,
    /// The figure it was held against, in `unit`; absent when nothing was measured, infinite (in JSON `null` too) when
    /// what was to come never did.
    pub value: Option<f64>,
    /// `ms`, `count`, `per_s` or `ratio`.
    pub unit: Unit,
    /// Whether it held.
    pub passed: bool,
}

/// The unit of a figure that a threshold is held against.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
