//! The crowd's live report: one JSON object a line on its standard output.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One line. Fields and events this version does not know are skipped, so that the crowd may say more.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Line {
    /// The crowd enters another phase.
    Phase {
        /// Which.
        phase: Phase,
    },
    /// How far connecting has come; several a second.
    Progress {
        /// Connections open now.
        connected: u64,
        /// Failed attempts so far, by kind.
        #[serde(default)]
        errors: BTreeMap<String, u64>,
    },
    /// A publication has run its course: everybody has it, or the crowd stopped waiting.
    Push(Push),
    /// Something that makes the figures less trustworthy, such as a crowd that had no CPU left.
    Warning {
        /// A sentence.
        message: String,
    },
    /// The last line.
    Done,
    /// An event of a later version.
    #[serde(other)]
    Unknown,
}

/// What the crowd is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Opening connections.
    Connecting,
    /// All that could be opened are open.
    Connected,
    /// Publications are on their way.
    Pushing,
    /// Closing.
    Draining,
    /// A phase of a later version.
    #[serde(other)]
    Unknown,
}

/// Who made a publication.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// The crowd itself, as it was told to.
    #[default]
    Own,
    /// Somebody else, or a version that knows more origins.
    #[serde(other)]
    Foreign,
}

/// One publication, as the crowd saw it. Times count from just before the publish request was sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Push {
    /// Whose it is; only the crowd's own count.
    #[serde(default)]
    pub origin: Origin,
    /// Counted from 1 by the publisher.
    pub sequence: u64,
    /// Connections that were open when it was published.
    pub expected: u64,
    /// Connections that got it.
    pub received: u64,
    /// Milliseconds to the first connection that got it; this and the others none when nobody did.
    pub first_ms: Option<f64>,
    /// Milliseconds until half of them had it.
    pub p50_ms: Option<f64>,
    /// Milliseconds until 90% had it.
    pub p90_ms: Option<f64>,
    /// Milliseconds until 99% had it.
    pub p99_ms: Option<f64>,
    /// Milliseconds until 99.9% had it.
    pub p999_ms: Option<f64>,
    /// Milliseconds to the last connection that got it.
    pub last_ms: Option<f64>,
}

impl Line {
    /// Reads one line; nothing for what is not a line of the report.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_is_read() {
        assert_eq!(
            Line::parse(r#"{"event":"phase","phase":"connecting"}"#),
            Some(Line::Phase {
                phase: Phase::Connecting
            })
        );
        let progress = r#"{"event":"progress","connected":7,"connections_wanted":9,"setup_rate_per_s":3.5,"errors":{"refused":2}}"#;
        assert_eq!(
            Line::parse(progress),
            Some(Line::Progress {
                connected: 7,
                errors: BTreeMap::from([("refused".into(), 2)])
            })
        );
        assert_eq!(Line::parse(r#"{"event":"done"}"#), Some(Line::Done));
    }

    #[test]
    fn a_push_keeps_its_times() {
        let text = r#"{"event":"push","sequence":2,"expected":10,"received":9,"reach":0.9,"first_ms":0.4,
            "p50_ms":1.5,"p90_ms":2.0,"p99_ms":3.0,"p999_ms":3.5,"last_ms":4.0}"#;
        let Some(Line::Push(push)) = Line::parse(text) else {
            panic!("not a push")
        };
        assert_eq!((push.sequence, push.expected, push.received), (2, 10, 9));
        assert_eq!(push.origin, Origin::Own);
        assert_eq!((push.first_ms, push.last_ms), (Some(0.4), Some(4.0)));
    }

    #[test]
    fn a_push_that_reached_nobody_has_no_times() {
        let text = r#"{"event":"push","sequence":1,"expected":10,"received":0,"reach":0,"first_ms":null,
            "p50_ms":null,"p90_ms":null,"p99_ms":null,"p999_ms":null,"last_ms":null}"#;
        let Some(Line::Push(push)) = Line::parse(text) else {
            panic!("not a push")
        };
        assert_eq!(push.last_ms, None);
    }

    #[test]
    fn what_a_later_version_says_is_skipped_and_noise_is_no_line() {
        assert_eq!(
            Line::parse(r#"{"event":"heartbeat","count":5}"#),
            Some(Line::Unknown)
        );
        assert_eq!(
            Line::parse(r#"{"event":"phase","phase":"warming"}"#),
            Some(Line::Phase {
                phase: Phase::Unknown
            })
        );
        assert_eq!(Line::parse("thread panicked"), None);
        assert_eq!(Line::parse(""), None);
    }
}
