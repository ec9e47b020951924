//! What a crowd reports: the types of `myriad swarm --json`, of `myriad swarm find-max --json` and of the lines of `--live json`.
//!
//! The crowd writes them; the demonstration and the arena read them. Field names are stable and carry their units: `_ms`,
//! `_s`, `_per_s`, `_bytes`; a share is between 0 and 1. A reader skips fields, events and phases that it does not know, and
//! takes the default for a field that is absent, so that a reader and a writer of neighbouring versions understand each other.

#![forbid(unsafe_code)]

mod comeback;
mod cpu;
mod fleet;
mod flow;
mod http;
mod live;
mod push;
mod report;
mod round_trip;
mod schema;
mod search;
mod series;
mod unwell;

pub use comeback::{ComebackReport, StormReport};
pub use cpu::CpuReport;
pub use fleet::{AgentReport, FleetReport};
pub use flow::FlowReport;
pub use http::{HeldReport, HttpReport};
pub use live::{Line, Phase, Progress, RoundTripProgress};
pub use push::{Ended, FanoutTimes, Origin, PublishAnswer, PushReport};
pub use report::{
    ChurnReport, CrowdReport, Fanout, GeneratorCheck, GeneratorReport, Messages, Outcome, Pings,
    Report, SessionReport, Settings, Setup, TlsReport, Unit, Verdict,
};
pub use round_trip::{ClientPublishReport, DeliveryReport, RoundTripReport, RoundTripTimes};
pub use schema::{schema, search_schema};
pub use search::{Knee, Purpose, SearchOutcome, SearchReport, Trial};
pub use series::{ArrivalCurve, HeatMap, Sample, SampleTimes, Series, ServerSample};
pub use unwell::{StallReport, VanishReport};

/// Exit code of a crowd that a signal has interrupted, with the report so far. `demo` and `arena` end with it too.
pub const EXIT_INTERRUPTED: u8 = 105;
