//! From a finished run to its report, and the report's forms. Its types are those of `myriad_report`.

mod comeback;
pub(crate) mod compare;
mod compose;
pub(crate) mod dashboard;
mod fleet;
mod flows;
pub(crate) mod generator;
pub(crate) mod hgrm;
pub(crate) mod hlog;
pub(crate) mod html;
mod http;
pub(crate) mod live;
pub(crate) mod metrics;
pub(crate) mod output;
pub(crate) mod reporting;
mod summary;
pub(crate) mod table;
pub(crate) mod text;
pub(crate) mod unwell;
mod warnings;

pub(crate) use crate::measure::figures::float;
pub(crate) use myriad_report::{
    ChurnReport, CrowdReport, Fanout, Messages, Outcome, Pings, Report, Settings, Setup,
};

#[cfg(test)]
mod tests {
    use super::*;
    use myriad_report::{Ended, FanoutTimes, Origin, PublishAnswer, PushReport};
    use std::collections::BTreeMap;

    fn push(times: FanoutTimes) -> PushReport {
        PushReport {
            origin: Origin::Own,
            channel: Some("news".to_owned()),
            sequence: 1,
            published_s: 3.0,
            expected: 1_000,
            churned: 0,
            received: 1_000,
            missed: 0,
            replayed: 0,
            reach: Some(1.0),
            times,
            accepted_ms: Some(0.8),
            answer: Some(PublishAnswer::Accepted),
            crowd_cpu_share: None,
            machine_cpu_share: None,
            ended: Ended::Complete,
        }
    }

    fn fanout(times: FanoutTimes) -> Fanout {
        Fanout {
            origin: Origin::Own,
            pushes: 1,
            failed: 0,
            reach: Some(1.0),
            overall: times,
            worst: times,
            reach_min: Some(1.0),
            accepted_max_ms: Some(0.8),
        }
    }

    /// The report of a run in which 1,000 clients got one push.
    pub(super) fn report() -> Report {
        let times = FanoutTimes {
            first_ms: Some(0.4),
            p50_ms: Some(12.3),
            p90_ms: Some(101.0),
            p99_ms: Some(112.0),
            p999_ms: Some(123.0),
            last_ms: Some(1_234.0),
        };
        Report {
            program: "myriad swarm".to_owned(),
            version: "1.2.3".to_owned(),
            run_id: "beef".to_owned(),
            started_unix_s: 0,
            elapsed_s: 12.0,
            outcome: Outcome::Finished,
            went_wrong: None,
            settings: Settings {
                targets: vec!["ws://127.0.0.1:8000/raw?channel=news".to_owned()],
                connections: 1_000,
                threads: 2,
                driver: "io_uring".to_owned(),
                ..Settings::default()
            },
            setup: Setup {
                connected: 1_000,
                connections_wanted: 1_000,
                tcp_connected: 1_000,
                elapsed_s: 0.04,
                rate_per_s: 24_012.3,
                ..Setup::default()
            },
            comeback: None,
            stall: None,
            vanish: None,
            churn: ChurnReport::default(),
            errors: BTreeMap::new(),
            closes: BTreeMap::new(),
            messages: Messages {
                count: 1_000,
                ..Messages::default()
            },
            pings: Pings::default(),
            echo: None,
            client_publish: None,
            http: None,
            request: None,
            flows: Vec::new(),
            fanout: Some(fanout(times)),
            pushes: vec![push(times)],
            series: myriad_report::Series::default(),
            generator: myriad_report::GeneratorReport::default(),
            cpu: None,
            fleet: None,
            crowd: CrowdReport {
                open_at_end: 1_000,
                ..CrowdReport::default()
            },
            thresholds: Vec::new(),
            warnings: Vec::new(),
            server_said: BTreeMap::new(),
            session: None,
        }
    }
}
