//! What a run shows while it goes on.
//!
//! With `--live json`, standard output carries one JSON object per line, each with an `event`:
//!
//! | event | fields |
//! | --- | --- |
//! | `phase` | `phase`: `connecting`, `connected` (every client is open or given up), `pushing`, `draining`; `elapsed_s` |
//! | `progress` | twice a second and before each phase: [`Progress`] |
//! | `push` | a publication whose measurement has ended: [`PushReport`] |
//! | `notice` | `message`: a choice that was made, such as falling back to epoll |
//! | `warning` | `message`: something that makes the figures less trustworthy |
//! | `done` | `outcome` (`finished`, `thresholds_failed`, `interrupted`, `nobody_connected`, `load_failed`), `went_wrong` (a sentence, or `null`), `elapsed_s`; the last line |
//!
//! A push's `churned` are clients that left on purpose after it was published and before it came; `expected` is
//! without them. `elapsed_s` and `published_s` count from the beginning of the run. What is unknown is `null`. More
//! events and fields may come; readers should skip what they do not know.

use crate::push::PushReport;
use crate::report::Outcome;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What the run is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Connections are being made.
    Connecting,
    /// Every client is open, or has given up.
    Connected,
    /// Publications are being made.
    Pushing,
    /// Clients are being closed.
    Draining,
    /// A phase of a later version.
    #[serde(other)]
    Unknown,
}

/// One line of the live report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Line {
    /// Another phase begins.
    Phase {
        /// Which.
        phase: Phase,
        /// Since the beginning.
        #[serde(default)]
        elapsed_s: f64,
    },
    /// Where things stand.
    Progress(Box<Progress>),
    /// A publication has been measured.
    Push(Box<PushReport>),
    /// A choice that was made.
    Notice {
        /// A sentence.
        message: String,
    },
    /// Something that makes the figures less trustworthy.
    Warning {
        /// A sentence.
        message: String,
    },
    /// The last line.
    Done {
        /// How the run ended.
        #[serde(default)]
        outcome: Outcome,
        /// One sentence on what went wrong; absent when nothing did.
        #[serde(default)]
        went_wrong: Option<String>,
        /// Since the beginning.
        #[serde(default)]
        elapsed_s: f64,
    },
    /// An event of a later version.
    #[serde(other)]
    Unknown,
}

impl Line {
    /// Reads one line; nothing for what is no line of the report.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

/// Where things stand.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Progress {
    /// Since the beginning.
    pub elapsed_s: f64,
    /// Clients open now.
    pub connected: u64,
    /// Connections under way now.
    pub connecting: u64,
    /// Clients wanted.
    pub connections_wanted: u64,
    /// Successes in the last second.
    pub setup_rate_per_s: f64,
    /// Clients that left on purpose.
    pub churned: u64,
    /// Connections that replaced them.
    pub reconnected: u64,
    /// Open connections that the server or the network ended.
    pub lost: u64,
    /// Publications of this run that clients were to get and did not, of those whose measurement has ended.
    pub missed: u64,
    /// Failures by kind.
    pub errors: BTreeMap<String, u64>,
    /// Close frames from the server by code.
    pub closes: BTreeMap<String, u64>,
    /// Data messages so far.
    pub messages: u64,
    /// Data messages in the last second.
    pub message_rate_per_s: f64,
    /// Messages that the server sends back; absent when there are none.
    pub echo: Option<RoundTripProgress>,
    /// The same of what clients publish; `received` are the server's replies.
    pub client_publish: Option<RoundTripProgress>,
    /// Requests beside the crowd; absent when there are none.
    pub request: Option<RoundTripProgress>,
    /// Of the processors the crowd's threads can use, in the last second.
    pub cpu_share: f64,
    /// Anonymous memory of the process.
    pub rss_anon_bytes: u64,
    /// What of it was gained since the beginning, per open client.
    pub user_bytes_per_client: Option<f64>,
}

/// What came back so far of what was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RoundTripProgress {
    /// Written.
    pub sent: u64,
    /// Came back as they were.
    pub received: u64,
    /// Were given up.
    pub lost: u64,
    /// Wrong answers, and answers to nothing that was asked.
    pub errors: u64,
    /// Came back in the last second.
    pub received_per_s: f64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::push::Origin;

    #[test]
    fn every_event_is_written_and_read_alike() {
        let lines = [
            Line::Phase {
                phase: Phase::Pushing,
                elapsed_s: 0.5,
            },
            Line::Progress(Box::new(Progress {
                connected: 7,
                errors: BTreeMap::from([("refused".to_owned(), 2)]),
                ..Progress::default()
            })),
            Line::Push(Box::new(PushReport {
                sequence: 2,
                ..PushReport::default()
            })),
            Line::Notice {
                message: "epoll".to_owned(),
            },
            Line::Warning {
                message: "no CPU".to_owned(),
            },
            Line::Done {
                outcome: Outcome::Interrupted,
                went_wrong: Some("It rained.".to_owned()),
                elapsed_s: 3.0,
            },
        ];
        for line in lines {
            let text = serde_json::to_string(&line).unwrap();
            assert_eq!(Line::parse(&text), Some(line), "{text}");
        }
    }

    #[test]
    fn what_an_earlier_version_does_not_say_has_its_default() {
        let line = Line::parse(r#"{"event":"progress","connected":7,"errors":{"refused":2}}"#);
        let Some(Line::Progress(progress)) = line else {
            panic!("no progress")
        };
        assert_eq!((progress.connected, progress.missed), (7, 0));
        assert!(matches!(
            Line::parse(r#"{"event":"done"}"#),
            Some(Line::Done { .. })
        ));
    }

    #[test]
    fn a_push_keeps_its_times() {
        let text = r#"{"event":"push","sequence":2,"expected":10,"received":9,"reach":0.9,"first_ms":0.4,
            "p50_ms":1.5,"p90_ms":2.0,"p99_ms":3.0,"p999_ms":3.5,"last_ms":null}"#;
        let Some(Line::Push(push)) = Line::parse(text) else {
            panic!("no push")
        };
        assert_eq!((push.sequence, push.expected, push.received), (2, 10, 9));
        assert_eq!(push.origin, Origin::Own);
        let times = push.times;
        assert_eq!((times.first_ms, times.last_ms), (Some(0.4), None));
    }

    #[test]
    fn what_a_later_version_says_is_skipped_and_noise_is_no_line() {
        let later = r#"{"event":"heartbeat","count":5}"#;
        assert_eq!(Line::parse(later), Some(Line::Unknown));
        let warming = Line::parse(r#"{"event":"phase","phase":"warming"}"#);
        let Some(Line::Phase { phase, .. }) = warming else {
            panic!("no phase")
        };
        assert_eq!(phase, Phase::Unknown);
        assert_eq!(Line::parse("thread panicked"), None);
        assert_eq!(Line::parse(""), None);
    }
}
