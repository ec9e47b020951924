//! From what was asked for to a run that can be begun.

use super::load::Answered;
use super::{
    Arrival, Config, DURATION_DEFAULT, Flows, Incident, KEPT_MESSAGE_BYTES_MAX, MESSAGE_BYTES_MAX,
    PARTIAL_BYTES_MAX, PARTIAL_BYTES_MIN, What,
};
use crate::caller::ANSWER_BYTES_MAX;
use crate::config_error::ConfigError;
use crate::dealing::planned;
use crate::engine::churn::SOCKETS_SPARE;
use crate::engine::deal::Deal;
use crate::engine::http::SAID_BYTES_MAX;
use crate::engine::plan::{HttpKind, HttpPlan, Plan};
use crate::engine::sources::{Sources, with_one_gone};
use crate::engine::thread::{DESCRIPTORS_SPARE, Tables};
use crate::fleet::Pushes;
use crate::machine::Here;
use crate::protocol::Scheme;
use crate::random;
use crate::target::Target;
use myriad_reactor::{Driver, descriptor_limit};
use myriad_wire::ws::Extension;
use std::time::Duration;

/// What a client of a WebSocket server writes by itself (RFC 6455, section 4.1). A browser shows them beside those that a page gives.
const HANDSHAKE_HEADERS: [&str; 5] = [
    "upgrade",
    "connection",
    "sec-websocket-key",
    "sec-websocket-version",
    "sec-websocket-extensions",
];

/// A run that can be begun.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub plan: Plan,
    /// The channels that stamps name by index.
    pub channels: Vec<String>,
    pub driver: Driver,
    pub tables: Tables,
    /// When publications are made; none if they are not.
    pub pushes: Option<Pushes>,
    /// What a person should know about the choices made.
    pub notices: Vec<String>,
}

impl Config {
    /// Checks everything that can be checked beforehand, and deals the crowd to threads.
    pub(crate) fn prepare(&self) -> Result<Prepared, ConfigError> {
        self.check()?;
        let mut notices = Vec::new();
        let driver = self.choose_driver(&mut notices)?;
        let (threads, tables) = self.choose_threads(driver, &mut notices)?;
        let connections = u32::try_from(self.connections).expect("checked");
        let deal = self.dealt.as_ref().map(|dealt| dealt.deal.clone());
        let deal = deal.unwrap_or_else(|| Deal::alone(threads, connections));
        let threads = deal.threads();
        let targets = self.dealt_targets()?;
        let channels = self.publish_channels(&targets)?;
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
            framing: self.planned_framing(),
            tls,
            sources,
            headers: self.sent_headers(&mut notices),
            has_own_heads: self.has_own_heads(),
            extension: match self.compression {
                true => Extension::Deflate,
                false => Extension::None,
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
            partial_bytes_max: partial_bytes_max(&deal),
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
            pushes: self.publish.as_ref().map(Pushes::of),
            notices,
        })
    }

    /// The headers that clients send. Those of the handshake they write themselves: a second one of them makes the request malformed.
    fn sent_headers(&self, notices: &mut Vec<String>) -> Vec<(String, String)> {
        let is_websocket = self.protocol.scheme() == Scheme::WebSocket;
        let is_ours = |(name, _): &&(String, String)| {
            is_websocket
                && HANDSHAKE_HEADERS
                    .iter()
                    .any(|own| name.eq_ignore_ascii_case(own))
        };
        let left_out = self.headers.iter().filter(is_ours);
        let left_out: Vec<_> = left_out.map(|(name, _)| name.as_str()).collect();
        if !left_out.is_empty() {
            let is_offer = |name: &&str| name.eq_ignore_ascii_case("sec-websocket-extensions");
            let offer = match left_out.iter().any(is_offer) && !self.compression {
                true => "; give --compression to offer permessage-deflate",
                false => "",
            };
            notices.push(format!(
                "--header {}: each client writes its own, and these are left out{offer}",
                left_out.join(", ")
            ));
        }
        let sent = self.headers.iter().filter(|header| !is_ours(header));
        sent.cloned().collect()
    }

    /// The largest messages that clients take.
    fn message_limits(&self) -> myriad_wire::ws::Limits {
        let message_bytes_max = match self.protocol.has_messages() {
            true if self.flows.is_none() => MESSAGE_BYTES_MAX,
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
        let plan = |terminals| {
            let planned =
                |connections| Sources::plan(&self.sources, &self.targets, connections, ports);
            match planned(terminals)? {
                Sources::Loopback { .. } if self.comeback.elsewhere => {
                    planned(with_one_gone(&self.targets, terminals))
                }
                sources => Ok(sources),
            }
        };
        let sources = plan(terminals)?;
        notices.extend(here.warnings(&self.targets, &sources, terminals));
        if !matches!(sources, Sources::Loopback { .. }) {
            return Ok((sources, u64::from(own.first_terminal)));
        }
        // Of these there are enough for all, so that agents on one machine do not share them.
        let whole = u64::from(deal.terminals());
        Ok((plan(whole)?, 0))
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
        let requests = self.protocol.has_requests();
        let kind = requests
            .then_some(HttpKind::Requests)
            .or(self.protocol.listening());
        kind.map(|kind| HttpPlan {
            kind,
            answer_bytes_max: match self.flows.as_ref().is_some_and(Flows::read_answers) {
                true => ANSWER_BYTES_MAX,
                false => SAID_BYTES_MAX,
            },
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
    pub(super) fn notice_of_protocol(&self) -> Option<String> {
        let waits = |target: &&Target| {
            let path = target.path.split('?').next().unwrap_or_default();
            path.ends_with("/connection/websocket")
        };
        let talks = |flows: &Flows| !flows.opening.is_empty();
        if self.flows.as_ref().is_some_and(talks) {
            return None;
        }
        let target = self.targets.iter().find(waits)?;
        self.protocol.has_messages().then(|| {
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
        let replaces = is_changing || self.protocol.scheme() == Scheme::Http;
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

/// Bytes of incomplete messages that a thread keeps.
fn partial_bytes_max(deal: &Deal) -> usize {
    let threads = deal.own().threads.max(1) as usize;
    (PARTIAL_BYTES_MAX / threads).max(PARTIAL_BYTES_MIN)
}
