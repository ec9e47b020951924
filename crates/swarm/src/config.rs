//! What a run is asked to do, checked.

mod arrival;
mod checks;
mod commands;
mod flows;
mod incidents;
mod load;
mod tls;

pub use crate::engine::flows::plan::Pace;
pub use crate::engine::flows::thinking::Think;
pub use arrival::{Arrival, ArrivalStage, CrowdSize};
pub use commands::{Action, Command};
pub(crate) use flows::CALL_CONNECTIONS_DEFAULT;
pub use flows::{Call, Flow, FlowError, FlowRoute, Flows, Reply, Said, StampPlace};
pub use incidents::{Comeback, Incident, What};
pub(crate) use load::Answered;
pub use load::{
    ClientPublish, Echo, Endpoint, Publish, PublishBody, REQUEST_CONNECTIONS_DEFAULT, Requests,
};

pub use tls::{Ca, CaError, CaProblem, Tls};

use crate::config_error::ConfigError;
use crate::dealing::planned;
use crate::engine::churn::SOCKETS_SPARE;
use crate::engine::deal::Deal;
use crate::engine::plan::{HttpPlan, Plan, PollPosition};
use crate::engine::shared::Ending;
use crate::engine::sources::{SourceChoice, Sources};
use crate::engine::thread::{DESCRIPTORS_SPARE, Tables};
use crate::machine::Here;
use crate::measure::threshold::Threshold;
use crate::protocol::Protocol;
use crate::random;
use crate::report::output::Destination;
use crate::report::reporting::Reporting;
use crate::target::Target;
use myriad_reactor::{Driver, descriptor_limit};
use myriad_wire::ws::Extension;
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

/// A run.
#[derive(Clone, Debug)]
pub struct Config {
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
    /// How connections to `wss://` and `https://` are protected.
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
    /// Share of the crowd that leaves and is replaced each second, once all are connected; none: nobody leaves.
    pub churn_per_s: Option<f64>,
    /// How clients come back that a storm dropped, or the server.
    pub comeback: Comeback,
    /// What happens to shares of the crowd while it is held.
    pub incidents: Vec<Incident>,
    /// More headers of the upgrade request.
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
    /// A threshold that fails ends the run, this long after all have connected at the earliest. None: thresholds are judged at the
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

/// A run that can be begun.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub plan: Plan,
    /// The channels that stamps name by index.
    pub channels: Vec<String>,
    pub driver: Driver,
    pub tables: Tables,
    /// What a person should know about the choices made.
    pub notices: Vec<String>,
}

impl Config {
    /// A run of `connections` clients on `targets`, with defaults for the rest.
    #[must_use]
    pub fn new(targets: Vec<Target>, connections: u64) -> Self {
        Self {
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

    /// Checks everything that can be checked beforehand, and deals the crowd to threads.
    pub(crate) fn prepare(&self) -> Result<Prepared, ConfigError> {
        self.check()?;
        let mut notices = Vec::new();
        let driver = self.choose_driver(&mut notices)?;
        let (threads, tables) = self.choose_threads(driver, &mut notices)?;
        let deal = self.dealt.as_ref().map(|dealt| dealt.deal.clone());
        let deal = deal.unwrap_or_else(|| {
            let connections = u32::try_from(self.connections).expect("checked");
            Deal::alone(threads, connections)
        });
        let threads = deal.threads();
        let targets = self.dealt_targets()?;
        let channels = self.publish_channels(&targets)?;
        let connections = u32::try_from(self.connections).expect("checked");
        let flows = self.plan_flows()?;
        let mut session = self.session(&targets, flows.as_deref());
        let targets = planned(&targets, &channels, session.as_ref(), self.protocol);
        if let Some(session) = &mut session {
            session.count_subscribers(&targets, connections);
            session.recover_from.clone_from(&self.recover_from);
        }
        let tls = self.plan_tls(flows.as_deref(), deal.own().terminals as usize)?;
        let (sources, sources_from) = self.plan_sources(driver, &deal, &mut notices)?;
        notices.extend(self.notice_of_protocol());
        let (run, seed) = self.run_and_seed();
        let plan = Plan {
            connections,
            threads,
            sources_from,
            streams: u32::try_from(channels.len()).expect("checked"),
            destinations: self.targets.len() as u64,
            targets,
            session,
            http: self.http(),
            tls,
            sources,
            headers: self.headers.clone(),
            extension: if self.compression {
                Extension::Deflate
            } else {
                Extension::None
            },
            connect_rate_per_s: self.arrival.rate_per_s(),
            arrival_curve: self.arrival.curve(self.connections).map(Into::into),
            connecting_max: self.connecting_at_once(),
            connect_timeout: self.connect_timeout,
            handshake_timeout: self.handshake_timeout,
            retries: self.retries,
            heartbeat: self.heartbeat,
            churn_per_s: self.churn_per_s,
            comeback: self.comeback,
            incidents: self.planned_incidents(),
            answered: self.answered().map(|load| load.plan(self.settle)),
            flows,
            limits: self.message_limits(),
            partial_bytes_max: (PARTIAL_BYTES_MAX / deal.own().threads.max(1) as usize)
                .max(PARTIAL_BYTES_MIN),
            run,
            // As many runs as there are first threads: all that agents send differs.
            mark_run: run.wrapping_add(deal.own().mark_offset()),
            seed,
            deal,
        };
        Ok(Prepared {
            plan,
            channels,
            driver,
            tables,
            notices,
        })
    }

    /// The largest messages that clients take.
    fn message_limits(&self) -> myriad_wire::ws::Limits {
        let message_bytes_max = match self.protocol {
            Protocol::Raw if self.flows.is_none() => MESSAGE_BYTES_MAX,
            _ => KEPT_MESSAGE_BYTES_MAX,
        };
        myriad_wire::ws::Limits {
            frame_bytes_max: message_bytes_max,
            message_bytes_max,
            fragments_max: u32::MAX,
        }
    }

    /// The run in stamps, and the seed of what is random in it.
    fn run_and_seed(&self) -> (u16, u64) {
        if let Some(dealt) = &self.dealt {
            return (dealt.run, dealt.seed);
        }
        let seed = random::seed();
        let [low, high, ..] = random::mix(seed).to_le_bytes();
        (u16::from_le_bytes([low, high]), seed)
    }

    /// The addresses that this machine's clients connect from, and the first of the crowd's terminals that has one of them.
    fn plan_sources(
        &self,
        driver: Driver,
        deal: &Deal,
        notices: &mut Vec<String>,
    ) -> Result<(Sources, u64), ConfigError> {
        let own = deal.own();
        if own.terminals == 0 {
            return Ok((Sources::Kernel, 0));
        }
        let here = Here::probe(driver);
        let ports = here.ports_per_source();
        let terminals = u64::from(own.terminals);
        let sources = Sources::plan(&self.sources, &self.targets, terminals, ports)?;
        notices.extend(here.warnings(&self.targets, &sources, terminals));
        if !matches!(sources, Sources::Loopback { .. }) {
            return Ok((sources, u64::from(own.first_terminal)));
        }
        // Of these there are enough for all, so that agents on one machine do not share them.
        let whole = u64::from(deal.terminals());
        let sources = Sources::plan(&self.sources, &self.targets, whole, ports)?;
        Ok((sources, 0))
    }

    /// How many connections may be under way.
    pub(crate) fn connecting_at_once(&self) -> u32 {
        match self.arrival {
            Arrival::AtOnce => u32::try_from(self.connections).unwrap_or(u32::MAX),
            _ => self.connecting_max.max(1),
        }
    }

    /// Incidents, with all that follows from other options.
    fn planned_incidents(&self) -> Vec<Incident> {
        let planned = self.incidents.iter().map(|incident| match incident.what {
            What::Storm(ending) => Incident {
                what: What::Storm(Some(ending.unwrap_or(self.ending))),
                ..*incident
            },
            What::Stall(_) | What::Vanish => *incident,
        });
        planned.collect()
    }

    /// Whether something of this kind happens to clients.
    pub(crate) fn has_incident(&self, is_kind: impl Fn(What) -> bool) -> bool {
        self.incidents.iter().any(|incident| is_kind(incident.what))
    }

    /// What clients ask that speak HTTP.
    fn http(&self) -> Option<HttpPlan> {
        self.protocol.http().map(|kind| HttpPlan {
            kind,
            body: self.request_body.clone(),
            position: self.poll_position.clone(),
            expect_held: self.expect_held,
        })
    }

    /// The messages of clients that the server answers, if there are any.
    pub(crate) fn answered(&self) -> Option<Answered> {
        let echo = self.echo.map(Answered::Echo);
        echo.or(self.client_publish.map(Answered::ClientPublish))
    }

    /// How long the crowd is held once it is connected; none: until the pushes are over.
    pub(crate) fn held_for(&self) -> Option<Duration> {
        let counted = self.publish.as_ref().and_then(|publish| publish.pushes);
        match (self.duration, counted) {
            (None, Some(_)) => None,
            (duration, _) => Some(duration.unwrap_or(DURATION_DEFAULT)),
        }
    }

    /// A target that waits for commands which these clients do not send closes all of them after a while.
    fn notice_of_protocol(&self) -> Option<String> {
        let waits = |target: &&Target| {
            let path = target.path.split('?').next().unwrap_or_default();
            path.ends_with("/connection/websocket")
        };
        let talks = |flows: &Flows| !flows.opening.is_empty();
        if self.flows.as_ref().is_some_and(talks) {
            return None;
        }
        let target = self.targets.iter().find(waits)?;
        (self.protocol == Protocol::Raw).then(|| {
            format!(
                "{} is the path of servers of the Centrifuge client protocol, and these clients send no commands; give --protocol centrifuge-json",
                target.url
            )
        })
    }

    fn choose_driver(&self, notices: &mut Vec<String>) -> Result<Driver, ConfigError> {
        match (self.driver, Driver::probe_io_uring()) {
            (Some(Driver::Epoll), _) => Ok(Driver::Epoll),
            (_, Ok(())) => Ok(Driver::IoUring),
            (Some(Driver::IoUring), Err(reason)) => Err(ConfigError::Driver(reason.0)),
            (None, Err(reason)) => {
                notices.push(format!(
                    "using epoll, because io_uring does not work here: {}",
                    reason.0
                ));
                Ok(Driver::Epoll)
            }
        }
    }

    /// As many threads as processors, unless the descriptor limit of epoll's tables demands more.
    fn choose_threads(
        &self,
        driver: Driver,
        notices: &mut Vec<String>,
    ) -> Result<(u32, Tables), ConfigError> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let own = self.dealt.as_ref().map(|dealt| dealt.deal.own());
        if own.is_some_and(|own| own.threads == 0) {
            return Ok((0, Tables::Shared));
        }
        let connections = own.map_or(self.connections, |own| u64::from(own.terminals));
        let connections = usize::try_from(connections).expect("checked");
        let most = u32::try_from(connections).expect("checked");
        let default = u32::try_from(processors).unwrap_or(1).min(most);
        let wanted = own.map(|own| own.threads).or(self.threads);
        let threads = wanted.unwrap_or(default).clamp(1, most);
        let limit =
            descriptor_limit().map_err(|error| ConfigError::DescriptorLimit(error.to_string()))?;
        let is_changing =
            self.churn_per_s.is_some() || self.comeback.when_lost || !self.incidents.is_empty();
        let replaces = is_changing || self.protocol.http().is_some();
        let churn_spare = if replaces { SOCKETS_SPARE as usize } else { 0 };
        let spare = DESCRIPTORS_SPARE + (4 + churn_spare) * threads as usize;
        if driver == Driver::IoUring || connections + spare <= limit {
            return Ok((threads, Tables::Shared));
        }
        let per_table = limit.saturating_sub(DESCRIPTORS_SPARE + churn_spare).max(1);
        let needed = connections.div_ceil(per_table);
        let holds = threads as usize * per_table;
        if holds >= connections {
            return Ok((threads, Tables::Own));
        }
        if wanted.is_some() {
            return Err(ConfigError::Threads {
                threads,
                holds: holds as u64,
                needed: needed as u64,
            });
        }
        notices.push(format!(
            "using {needed} threads with a descriptor table each, because a table holds {limit} descriptors here"
        ));
        Ok((
            u32::try_from(needed).expect("at most one thread per connection"),
            Tables::Own,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::plan::Answer;

    fn config(urls: &[&str]) -> Config {
        let targets = urls.iter().map(|url| Target::parse(url).unwrap()).collect();
        Config {
            driver: Some(Driver::Epoll),
            ..Config::new(targets, 100)
        }
    }

    fn publish() -> Publish {
        Publish::new(
            Endpoint::parse("http://127.0.0.1:8000/api/publish").unwrap(),
            Duration::from_secs(1),
        )
    }

    #[test]
    fn streams_are_the_distinct_channels_of_the_targets() {
        let mut config = config(&[
            "ws://127.0.0.1:1/?channel=a&channel=b",
            "ws://127.0.0.1:1/?channel=b",
        ]);
        config.publish = Some(publish());
        let prepared = config.prepare().unwrap();
        assert_eq!(prepared.channels, ["a", "b"]);
        let plan = &prepared.plan;
        assert_eq!(
            (plan.targets[0].slot(0), plan.targets[0].slot(1)),
            (Some(0), Some(1))
        );
        assert_eq!(
            (plan.targets[1].slot(0), plan.targets[1].slot(1)),
            (None, Some(0))
        );
        assert_eq!(plan.targets[1].slot(9), None);
        assert_eq!(plan.more_sequences(), 1);
    }

    #[test]
    fn a_plain_body_reaches_every_target() {
        let mut config = config(&["ws://127.0.0.1:1/?channel=a", "ws://127.0.0.1:1/room"]);
        config.publish = Some(Publish {
            body: PublishBody::Plain,
            ..publish()
        });
        let prepared = config.prepare().unwrap();
        assert_eq!(prepared.channels, [""]);
        assert!(
            prepared
                .plan
                .targets
                .iter()
                .all(|target| target.slot(0) == Some(0))
        );
    }

    #[test]
    fn a_target_that_waits_for_commands_is_noticed() {
        let noticed = |url: &str, protocol| {
            let config = Config {
                protocol,
                ..config(&["ws://127.0.0.1:1/raw?channel=a", url])
            };
            let notice = config.notice_of_protocol();
            notice.is_some_and(|notice| notice.contains("--protocol") && notice.contains(url))
        };
        let url = "ws://127.0.0.1:1/connection/websocket?channel=a";
        assert!(noticed(url, Protocol::Raw));
        assert!(!noticed(url, Protocol::CentrifugeJson));
        assert!(!noticed("ws://127.0.0.1:1/connection", Protocol::Raw));
    }

    #[test]
    fn what_cannot_work_is_refused_with_a_next_step() {
        let refused = |change: &dyn Fn(&mut Config)| {
            let mut config = config(&["ws://127.0.0.1:1/"]);
            config.publish = Some(Publish {
                channels: vec!["x".to_owned()],
                ..publish()
            });
            change(&mut config);
            config.prepare().unwrap_err()
        };
        assert_eq!(refused(&|c| c.targets.clear()), ConfigError::NoTarget);
        assert_eq!(refused(&|c| c.connections = 0), ConfigError::Connections(0));
        assert_eq!(
            refused(&|c| c.retries = 255),
            ConfigError::Range("--retries", 255, 0, u32::from(RETRIES_MAX))
        );
        assert_eq!(
            refused(&|c| c.heartbeat = Some(Duration::ZERO)),
            ConfigError::Zero("--heartbeat")
        );
        assert_eq!(
            refused(&|c| c.publish.as_mut().unwrap().payload_bytes = 25),
            ConfigError::Payload(25)
        );
        assert_eq!(
            refused(&|c| c.publish.as_mut().unwrap().api_key = Some("a\n".to_owned())),
            ConfigError::ApiKey
        );
        assert_eq!(
            refused(&|c| c.publish.as_mut().unwrap().channels.clear()),
            ConfigError::NoChannel
        );
        assert_eq!(
            refused(&|c| c.targets[0].channels = vec!["y".to_owned()]),
            ConfigError::NobodySubscribes("x".to_owned())
        );
    }

    #[test]
    fn a_threshold_on_what_is_not_measured_is_refused() {
        let prepare = |expression: &str, change: &dyn Fn(&mut Config)| {
            let mut config = config(&["ws://127.0.0.1:1/?channel=a"]);
            config.thresholds = vec![Threshold::parse(expression).unwrap()];
            change(&mut config);
            config.prepare().map(|_| ())
        };
        let endpoint = || Endpoint::parse("http://127.0.0.1:1/").unwrap();
        for (expression, option) in [
            ("echo:p99<5ms", "--echo"),
            ("request:lost==0", "--request"),
            ("accepted<5ms", "--publish"),
        ] {
            let refused = ConfigError::Unmeasured(expression.to_owned(), option);
            assert_eq!(prepare(expression, &|_| ()), Err(refused));
            let with_every_load = prepare(expression, &|config| {
                config.echo = Some(Echo::new(1.0));
                config.requests = Some(Requests::new(vec![endpoint()], 1.0));
                config.publish = Some(publish());
            });
            assert_eq!(with_every_load, Ok(()));
        }
        // Somebody else may publish.
        for expression in ["reach>=1", "fanout:last<5s", "missed==0", "messages>=1"] {
            assert_eq!(prepare(expression, &|_| ()), Ok(()));
        }
    }

    #[test]
    fn clients_are_dealt_out_to_channels() {
        let mut config = config(&["ws://127.0.0.1:1/a", "ws://127.0.0.1:2/a?channel=all"]);
        config.protocol = Protocol::CentrifugeJson;
        config.channels = vec!["room".to_owned()];
        config.channel_count = Some(3);
        config.publish = Some(publish());
        let prepared = config.prepare().unwrap();
        assert_eq!(prepared.channels, ["room-1", "all", "room-2", "room-3"]);
        let plan = &prepared.plan;
        assert_eq!((plan.targets.len(), plan.destinations), (6, 2));
        let session = plan.session.as_ref().unwrap();
        let names = |target: usize| -> Vec<&str> {
            let subscriptions = plan.targets[target].subscriptions.iter();
            let names = subscriptions.map(|one| &session.channels[one.channel as usize]);
            names.map(String::as_str).collect()
        };
        assert_eq!(
            (names(0), names(1)),
            (vec!["room-1"], vec!["room-1", "all"])
        );
        assert_eq!(
            (names(4), names(5)),
            (vec!["room-3"], vec!["all", "room-3"])
        );
        assert_eq!(plan.targets[5].streams, [1, 3]);
        let slots = plan.targets[5]
            .subscriptions
            .iter()
            .map(|one| one.stream_slot);
        assert_eq!(slots.collect::<Vec<_>>(), [Some(0), Some(1)]);
        // Terminals of one address differ in their source, whatever their channel is.
        assert_eq!((plan.target_of(4), plan.target_of(6)), ((4, 2), (0, 3)));
    }

    #[test]
    fn a_url_says_what_clients_without_commands_listen_to() {
        let mut config = config(&["ws://127.0.0.1:1/raw"]);
        config.channels = vec!["room".to_owned()];
        config.channel_count = Some(2);
        let plan = config.prepare().unwrap().plan;
        let paths: Vec<&str> = plan.targets.iter().map(|target| &*target.path).collect();
        assert_eq!(paths, ["/raw?channel=room-1", "/raw?channel=room-2"]);
        assert!(plan.session.is_none() && plan.targets[0].subscriptions.is_empty());
    }

    #[test]
    fn options_of_one_protocol_are_refused_with_another() {
        let refused = |change: &dyn Fn(&mut Config)| {
            let mut config = config(&["ws://127.0.0.1:1/"]);
            change(&mut config);
            config.prepare().unwrap_err()
        };
        let token = refused(&|c| c.tokens = vec!["t".to_owned()]);
        assert_eq!(token, ConfigError::NeedsSession("--token"));
        let echo = refused(&|c| {
            c.protocol = Protocol::CentrifugeProtobuf;
            c.echo = Some(Echo::new(1.0));
        });
        assert_eq!(echo, ConfigError::NeedsRaw("--echo"));
        assert_eq!(
            refused(&|c| c.channel_count = Some(3)),
            ConfigError::ChannelName
        );
        let many = refused(&|c| {
            c.channels = vec!["x".to_owned()];
            c.channel_count = Some(1_000_001);
        });
        assert_eq!(many, ConfigError::Channels(1_000_001));
        let unnamed = refused(&|c| c.channels = vec![String::new()]);
        assert_eq!(unnamed, ConfigError::EmptyChannel);
    }

    #[test]
    fn what_clients_publish_needs_a_session_and_a_channel() {
        let prepare = |change: &dyn Fn(&mut Config)| {
            let mut config = config(&["ws://127.0.0.1:1/", "ws://127.0.0.1:2/"]);
            config.protocol = Protocol::CentrifugeJson;
            config.channels = vec!["x".to_owned()];
            config.client_publish = Some(ClientPublish::new(10.0));
            change(&mut config);
            config.prepare().map(|prepared| prepared.plan)
        };
        let answered = prepare(&|_| ()).unwrap().answered.unwrap();
        assert_eq!(
            (answered.answer, answered.rate_per_s),
            (Answer::Reply, 10.0)
        );
        assert_eq!(
            prepare(&|c| c.protocol = Protocol::Raw).unwrap_err(),
            ConfigError::NeedsSession("--client-publish")
        );
        assert_eq!(
            prepare(&|c| c.channels.clear()).unwrap_err(),
            ConfigError::NoChannelOfClients
        );
        let small = |c: &mut Config| c.client_publish.as_mut().unwrap().payload_bytes = 29;
        assert_eq!(
            prepare(&small).unwrap_err(),
            ConfigError::MessageSize("--client-publish-size", 29)
        );
        let silent = |c: &mut Config| c.client_publish.as_mut().unwrap().rate_per_s = 0.0;
        assert_eq!(
            prepare(&silent).unwrap_err(),
            ConfigError::Rate("--client-publish", 0.0)
        );
    }

    #[test]
    fn a_position_is_one_of_one_channel() {
        let prepare = |epoch: &str, change: &dyn Fn(&mut Config)| {
            let mut config = config(&["ws://127.0.0.1:1/", "ws://127.0.0.1:2/"]);
            config.protocol = Protocol::CentrifugeJson;
            config.channels = vec!["x".to_owned()];
            config.recover_from = Some((epoch.to_owned(), 7));
            change(&mut config);
            config.prepare().map(|_| ())
        };
        assert_eq!(prepare("abc", &|_| ()), Ok(()));
        assert_eq!(
            prepare("abc", &|c| c.protocol = Protocol::Raw),
            Err(ConfigError::NeedsSession("--recover-from"))
        );
        for (count, channels) in [(0, None), (3, Some(3))] {
            let change = |c: &mut Config| {
                c.channel_count = channels;
                if count == 0 {
                    c.channels.clear();
                }
            };
            assert_eq!(
                prepare("abc", &change),
                Err(ConfigError::RecoverFrom(count))
            );
        }
        let long = "x".repeat(65);
        for epoch in ["", &long] {
            assert_eq!(
                prepare(epoch, &|_| ()),
                Err(ConfigError::Epoch(epoch.to_owned()))
            );
        }
    }

    #[test]
    fn a_crowd_is_dealt_to_more_channels_than_a_stamp_can_name() {
        let mut config = config(&["ws://127.0.0.1:1/connection/websocket"]);
        config.protocol = Protocol::CentrifugeJson;
        config.connections = 250_000;
        config.driver = Some(Driver::IoUring);
        config.channels = vec!["room".to_owned()];
        config.channel_count = Some(100_000);
        let Ok(prepared) = config.prepare() else {
            return assert!(Driver::probe_io_uring().is_err());
        };
        let plan = prepared.plan;
        assert_eq!(plan.target_of(199_999).0, 99_999);
        let session = plan.session.unwrap();
        assert_eq!(session.channels[99_999], "room-100000");
        assert_eq!(
            (session.subscribers[0], session.subscribers[99_999]),
            (3, 2)
        );
        config.publish = Some(publish());
        assert_eq!(config.prepare().unwrap_err(), ConfigError::TooManyChannels);
    }

    #[test]
    fn a_low_descriptor_limit_means_more_threads_with_tables_of_their_own() {
        let limit = descriptor_limit().unwrap() as u64;
        let mut config = config(&["ws://127.0.0.1:1/"]);
        config.connections = limit * 3;
        let prepared = config.prepare().unwrap();
        assert_eq!(prepared.tables, Tables::Own);
        assert!(prepared.plan.threads >= 4);
        assert!(!prepared.notices.is_empty());
        config.threads = Some(2);
        assert!(matches!(
            config.prepare(),
            Err(ConfigError::Threads { threads: 2, .. })
        ));
        config.connections = 100;
        assert_eq!(config.prepare().unwrap().tables, Tables::Shared);
    }

    #[test]
    fn parts_add_up_to_the_whole() {
        let mut config = config(&[
            "ws://127.0.0.1:1/a",
            "ws://127.0.0.1:1/b",
            "ws://127.0.0.1:1/c",
        ]);
        config.connections = 1001;
        config.threads = Some(4);
        let plan = config.prepare().unwrap().plan;
        let parts: Vec<_> = (0..4).map(|thread| plan.part(thread)).collect();
        assert_eq!(parts.iter().map(|part| part.count).sum::<u32>(), 1001);
        let mut seen = vec![false; 1001];
        for part in parts {
            for index in 0..part.count {
                let number = usize::try_from(plan.number(part, index)).unwrap();
                assert!(!std::mem::replace(&mut seen[number], true));
            }
        }
        assert!(seen.iter().all(|&seen| seen));
        assert_eq!(plan.target_of(7), (1, 2));
    }

    #[test]
    fn keys_differ_by_terminal_and_attempt_and_can_be_made_again() {
        let plan = config(&["ws://127.0.0.1:1/"]).prepare().unwrap().plan;
        assert_eq!(plan.key(5, 1), plan.key(5, 1));
        assert_ne!(plan.key(5, 1), plan.key(5, 2));
        assert_ne!(plan.key(5, 1), plan.key(6, 1));
    }
}
