//! A crowd of clients: simulates many clients of a WebSocket, HTTP or plain TCP server, and tells the truth about what they saw.
//!
//! [`run`] does a whole run as a [`Config`] describes it and returns its [`Report`]. What is in which module:
//! `docs/architecture.md`, "The crowd". The main ones:
//!
//! * `engine`: clients are sixteen bytes of plain data each, driven by one thread per core (or more,
//!   where descriptor tables are small) over `myriad_reactor`;
//! * `publisher`, `requester`, `caller`: HTTP requests beside the crowd, on schedules;
//! * `measure`: when each publication was made, when each batch came, and the figures of both;
//! * `scenario`: a run as a file;
//! * `search`: runs with another value each, until the largest is known that holds;
//! * `fleet`: the same crowd on several machines;
//! * `report`: live lines and the dashboard, the closing table, the page, JSON, the `.hgrm` and `.hlog` texts, metrics.
//!
//! What is measured: the clock of a publication starts when its request is handed to the kernel and stops
//! at each client when the batch with its message has been received. A publication of somebody else has
//! no stamp of ours; its clock starts with its first arrival anywhere, and is reported as such.
//!
//! With churn, clients leave on purpose and are replaced by new connections, all the time. A publication of this
//! run is expected at exactly those clients that were open when the roll was called, before its request was
//! written; one that leaves before it comes is struck from them (`churned`), one that joined after the roll call is
//! no part of its reach even if it gets it (`replayed`). A replacement has seen nothing yet, so that what was published
//! while nobody was there is no gap. A connection that ends without having been told to is `lost`: it counts
//! against the reach. Its client comes back only with `--reconnect`. For publications of somebody else there is no roll call, so that under
//! churn their reach is an estimate.
//!
//! A client that a storm dropped, or the server, comes back after a while. Meanwhile it is expected to get nothing. What it
//! missed is counted apart from gaps, when it hears the next publication.
//!
//! Echoes are an open-loop schedule over the whole crowd. The clock of one starts when it is due, whether or not it
//! could be sent then, and stops when its answer has been received.

#![forbid(unsafe_code)]

mod caller;
mod clock;
mod config;
mod config_error;
mod dealing;
mod echo_stamp;
mod engine;
mod failure;
mod files;
mod fleet;
mod interrupt;
mod machine;
mod measure;
mod nearest;
mod open_loop;
mod protocol;
mod publisher;
mod random;
mod report;
mod request_connection;
mod requester;
mod run;
mod scenario;
mod search;
mod stamp;
mod target;

pub use config::{
    About, Action, Arrival, ArrivalStage, CONNECTING_DEFAULT, Ca, CaError, CaProblem, Call,
    ClientPublish, ClientRequest, Comeback, Command, Config, CrowdSize, DURATION_DEFAULT, Echo,
    Endpoint, Flow, FlowError, FlowRoute, Flows, FrameMark, Framing, FramingError, Incident,
    LengthCounts, LengthField, LengthForm, LiveStyle, Pace, Publish, PublishBody,
    REQUEST_CONNECTIONS_DEFAULT, Reply, RequestText, Requests, Said, StampPlace, Think, Tls, Unfit,
    What,
};
pub use config_error::{ConfigError, ThresholdRefused};
pub use echo_stamp::{ECHO_BYTES_DEFAULT, ECHO_STAMP_BYTES};
pub use engine::flows::accounts::{Accounts, AccountsError};
pub use engine::flows::groups::{GroupRule, GroupsMisfit};
pub use engine::flows::plan::Audience;
pub use engine::flows::template::TemplateError;
pub use engine::plan::PollPosition;
pub use engine::shared::Ending;
pub use engine::sources::{PER_SOURCE_MAX, SourceChoice, SourceError, SourceRanges};
pub use engine::tls::TlsFailure;
pub use failure::Failure;
pub use files::{TokensError, read_tokens};
pub use fleet::{AgentOptions, FleetError, FleetOptions, Nats, NatsError, run_fleet, serve_agent};
pub use interrupt::Interrupt;
pub use measure::comeback_metric::ComebackMetric;
pub use measure::http_metric::HttpMetric;
pub use measure::process::LATE_MAX;
pub use measure::threshold::{
    Aggregate, Metric, Threshold, ThresholdError, ThresholdProblem, TimeOf, Trip,
};
pub use myriad_reactor::Driver;
pub use myriad_report::EXIT_INTERRUPTED;
pub use myriad_report::schema as report_schema;
pub use myriad_report::search_schema;
pub use myriad_report::{
    AgentReport, ClientPublishReport, ComebackReport, CpuReport, DeliveryReport, Ended,
    FanoutTimes, FleetReport, FlowReport, HeldReport, HttpReport, Origin, Outcome, PublishAnswer,
    PushReport, Report, RoundTripReport, RoundTripTimes, SearchOutcome, SearchReport, StormReport,
    TlsReport, Verdict,
};
pub use protocol::{Protocol, Scheme};
pub use report::compare::{Comparison, ReportFileError, read_report};
pub use report::output::Destination;
pub use report::reporting::{Language, Reporting};
pub use run::{RunError, run};
pub use scenario::{
    Fault, Place, Problem, STARTER, Scenario, ScenarioError, key_of_option, position, schema,
    time_range,
};
pub use search::{Growth, Search, SearchError, find_max};
pub use stamp::Filler;
pub use stamp::{PAYLOAD_BYTES_DEFAULT, STAMP_BYTES};
pub use target::{Target, UrlError, UrlProblem};
