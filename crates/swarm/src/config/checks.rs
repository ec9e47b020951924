//! What of a run can be checked before it begins.

use super::flows::is_of_length;
use super::load::REQUEST_CONNECTIONS_MAX;
use super::{
    Config, ECHO_BYTES_MAX, FlowError, LOAD_RATE_MAX, LiveStyle, PAYLOAD_BYTES_MAX,
    REQUEST_BODY_BYTES_MAX, RETRIES_MAX, TARGETS_MAX, What,
};
use crate::config_error::{ConfigError, ThresholdRefused};
use crate::echo_stamp::{ECHO_STAMP_BYTES, PUBLISH_STAMP_BYTES};
use crate::engine::plan::PollPosition;
use crate::engine::session::EPOCH_BYTES_MAX;
use crate::measure::threshold::{LoadOption, Threshold};
use crate::nearest::nearest;
use crate::protocol::Scheme;
use crate::report::output::Destination;
use crate::stamp::STAMP_BYTES;
use crate::target::Target;
use hyper::header::{HeaderName, HeaderValue};
use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

impl Config {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if self.targets.is_empty() {
            return Err(ConfigError::NoTarget);
        }
        if self.targets.len() > TARGETS_MAX {
            return Err(ConfigError::TooManyTargets);
        }
        self.check_headers()?;
        self.check_variables()?;
        if self.connections == 0 || self.connections > 1 << 31 {
            return Err(ConfigError::Connections(self.connections));
        }
        if self.retries > RETRIES_MAX {
            let (given, most) = (u32::from(self.retries), u32::from(RETRIES_MAX));
            return Err(ConfigError::Range("--retries", given, 0, most));
        }
        self.arrival.check(self.connections)?;
        if let Some(share) = self.churn_per_s
            && !(share > 0.0 && share <= 1.0)
        {
            return Err(ConfigError::Churn(share));
        }
        self.comeback.check()?;
        super::incidents::check(&self.incidents, self.connections, self.held_for())?;
        let mut durations = vec![
            ("--connect-timeout", self.connect_timeout),
            ("--handshake-timeout", self.handshake_timeout),
            ("--settle", self.settle),
        ];
        durations.extend(self.heartbeat.map(|heartbeat| ("--heartbeat", heartbeat)));
        durations.extend(
            self.publish
                .as_ref()
                .map(|publish| ("--every", publish.every)),
        );
        if let Some((option, _)) = durations.iter().find(|(_, duration)| duration.is_zero()) {
            return Err(ConfigError::Zero(option));
        }
        self.check_outputs()?;
        self.check_protocol()?;
        self.check_answered()?;
        self.check_requests()?;
        self.check_thresholds()?;
        self.plan_flows()?;
        if let Some(publish) = &self.publish {
            self.check_warmup(publish.warmup)?;
        }
        let key = self
            .publish
            .as_ref()
            .and_then(|publish| publish.api_key.as_ref());
        if key.is_some_and(|key| !key.bytes().all(|byte| byte.is_ascii_graphic())) {
            return Err(ConfigError::ApiKey);
        }
        match &self.publish {
            Some(publish)
                if !(STAMP_BYTES..=PAYLOAD_BYTES_MAX).contains(&publish.payload_bytes) =>
            {
                Err(ConfigError::Payload(publish.payload_bytes))
            }
            // What else is wrong says more.
            _ if self.protocol.has_requests() && self.flows.is_none() => {
                Err(ConfigError::NothingAsked)
            }
            _ => Ok(()),
        }
    }

    /// Only one form of the report can go to standard output.
    fn check_outputs(&self) -> Result<(), ConfigError> {
        let taken = self.users_of_standard_output();
        match taken[..] {
            [one, other, ..] => Err(ConfigError::StandardOutput(one, other)),
            _ => Ok(()),
        }
    }

    fn check_protocol(&self) -> Result<(), ConfigError> {
        let has_session = self.protocol.has_session();
        if !has_session && !self.tokens.is_empty() {
            return Err(ConfigError::NeedsSession("--token"));
        }
        if !self.protocol.has_messages() && self.echo.is_some() {
            return Err(ConfigError::NeedsRaw("--echo"));
        }
        if !has_session && self.client_publish.is_some() {
            return Err(ConfigError::NeedsSession("--client-publish"));
        }
        self.check_http()?;
        self.check_framing()?;
        self.check_channels()?;
        self.check_recovery()?;
        if self.channels.iter().any(String::is_empty) {
            return Err(ConfigError::EmptyChannel);
        }
        match self.channel_count {
            Some(count) if count == 0 || count > TARGETS_MAX as u64 => {
                Err(ConfigError::Channels(count))
            }
            Some(_) if self.channels.len() != 1 => Err(ConfigError::ChannelName),
            _ => Ok(()),
        }
    }

    /// What clients of HTTP have, and what they do not.
    fn check_http(&self) -> Result<(), ConfigError> {
        let protocol = self.protocol;
        let is_listening = protocol.listening().is_some();
        let other = |target: &&Target| target.scheme != protocol.scheme();
        if let Some(target) = self.targets.iter().find(other) {
            let url = target.url.clone();
            return Err(ConfigError::Scheme(protocol, url, target.scheme));
        }
        let used = |option, is_used: bool| is_used.then_some(option);
        // What takes the place of pings over plain TCP is looked at with its framing.
        let of_websocket = [
            used(
                "--heartbeat",
                self.heartbeat.is_some() && protocol.scheme() == Scheme::Http,
            ),
            used("--compression", self.compression),
        ];
        if let Some(option) = of_websocket.into_iter().flatten().next()
            && protocol.scheme() != Scheme::WebSocket
        {
            return Err(ConfigError::NeedsWebSocket(option));
        }
        let is_polling = protocol.is_polling();
        let is_answered_once = is_polling || protocol.has_requests();
        if is_answered_once && self.has_incident(|what| matches!(what, What::Stall(_))) {
            return Err(ConfigError::StallOfPolls);
        }
        if protocol.has_requests() && self.publish.is_some() {
            return Err(ConfigError::NobodyListens("--publish", protocol.name()));
        }
        let of_polls = used("--expect-held", self.expect_held.is_some());
        if let Some(option) = of_polls.filter(|_| !is_polling) {
            return Err(ConfigError::NeedsPolls(option));
        }
        let of_listening = [
            used("--request-body", self.request_body.is_some()),
            used(
                "--poll-position",
                self.poll_position != PollPosition::default(),
            ),
        ];
        if let Some(option) = of_listening.into_iter().flatten().next()
            && !is_listening
        {
            return Err(ConfigError::NeedsHttp(option));
        }
        let body_bytes = self.request_body.as_ref().map_or(0, String::len);
        if body_bytes > REQUEST_BODY_BYTES_MAX {
            return Err(ConfigError::RequestBody(body_bytes));
        }
        if !self.targets.iter().any(Target::has_channel_place) {
            return Ok(());
        }
        let of_groups = self.flows.as_ref().and_then(|flows| flows.channel.as_ref());
        let of_group = usize::from(of_groups.is_some() && !protocol.has_session());
        for target in self.dealt_targets()? {
            let count = target.channels.len() + of_group;
            if target.has_channel_place() && count != 1 {
                return Err(ConfigError::ChannelPlace(target.url, count));
            }
        }
        Ok(())
    }

    /// Whether only clients that have channels are given some.
    fn check_channels(&self) -> Result<(), ConfigError> {
        let name = self.protocol.name();
        if self.protocol.has_channels() {
            return Ok(());
        }
        if !self.channels.is_empty() {
            return Err(ConfigError::NoChannelsOf(name));
        }
        if let Some(flows) = &self.flows
            && flows.channel.is_some()
        {
            let wrong = FlowError::With("channels of groups", name);
            return Err(ConfigError::Flow("groups.channel".to_owned(), wrong));
        }
        Ok(())
    }

    fn users_of_standard_output(&self) -> Vec<&'static str> {
        let stdout = Some(Destination::StandardOutput);
        let users = [
            ("--live json", self.live == LiveStyle::Json),
            ("--json -", self.json == stdout),
            ("--hgrm -", self.hgrm == stdout),
        ];
        let users = users.into_iter().filter(|&(_, uses)| uses);
        users.map(|(option, _)| option).collect()
    }

    /// Whether standard output carries a report for programs, so that people have to be told on standard error.
    pub(crate) fn uses_standard_output(&self) -> bool {
        !self.users_of_standard_output().is_empty()
    }

    /// A position is one of one channel.
    fn check_recovery(&self) -> Result<(), ConfigError> {
        let Some((epoch, _)) = &self.recover_from else {
            return Ok(());
        };
        if !self.protocol.has_session() {
            return Err(ConfigError::NeedsSession("--recover-from"));
        }
        if !(1..=EPOCH_BYTES_MAX).contains(&epoch.len()) {
            return Err(ConfigError::Epoch(epoch.clone()));
        }
        let targets = self.dealt_targets()?;
        let channels: HashSet<&String> =
            targets.iter().flat_map(|target| &target.channels).collect();
        match channels.len() {
            1 => Ok(()),
            count => Err(ConfigError::RecoverFrom(count)),
        }
    }

    fn check_answered(&self) -> Result<(), ConfigError> {
        let Some(load) = self.answered() else {
            return Ok(());
        };
        let (option, size_option) = load.options();
        let (rate, bytes) = (load.rate_per_s(), load.payload_bytes());
        if !(rate > 0.0 && rate <= LOAD_RATE_MAX) {
            return Err(ConfigError::Rate(option, rate));
        }
        let stamp_bytes = match self.client_publish {
            Some(_) => PUBLISH_STAMP_BYTES,
            None => ECHO_STAMP_BYTES,
        };
        if !(stamp_bytes..=ECHO_BYTES_MAX).contains(&bytes) {
            return Err(ConfigError::MessageSize(size_option, bytes, stamp_bytes));
        }
        let has_channel = |target: &Target| !target.channels.is_empty();
        let are_subscribed = !self.channels.is_empty() || self.targets.iter().all(has_channel);
        if self.client_publish.is_some() && !are_subscribed {
            return Err(ConfigError::NoChannelOfClients);
        }
        self.check_warmup(load.warmup())
    }

    fn check_thresholds(&self) -> Result<(), ConfigError> {
        let is_given = |load: LoadOption| match load {
            LoadOption::Publish => self.publish.is_some(),
            LoadOption::Echo => self.echo.is_some(),
            LoadOption::ClientPublish => self.client_publish.is_some(),
            LoadOption::Request => self.requests.is_some(),
            LoadOption::Session => self.protocol.has_session(),
            LoadOption::Http => self.protocol.scheme() == Scheme::Http,
            LoadOption::Poll => self.protocol.is_polling(),
            LoadOption::ExpectHeld => self.expect_held.is_some(),
            LoadOption::Heartbeat => self.heartbeat.is_some(),
            LoadOption::Storm => self.has_incident(What::is_storm),
            LoadOption::Comeback => self.comeback.when_lost || self.has_incident(What::is_storm),
            LoadOption::Stall => self.has_incident(|what| matches!(what, What::Stall(_))),
            LoadOption::Vanish => self.has_incident(|what| what == What::Vanish),
            LoadOption::VanishByServer => {
                let is_asked = self.reporting.server_metrics.is_some();
                is_asked && self.has_incident(|what| what == What::Vanish)
            }
            LoadOption::Flow => self.flows.is_some(),
        };
        for threshold in &self.thresholds {
            let missing = threshold.load().filter(|load| !is_given(*load));
            let unmeasured = missing.map(|load| ThresholdRefused::Unmeasured(load.name()));
            let refused = unmeasured
                .or_else(|| self.unknown_flow(threshold))
                .or_else(|| {
                    let can_hold = threshold.can_hold_with(self.connections);
                    (!can_hold).then_some(ThresholdRefused::TooFewClients(self.connections))
                });
            if let Some(refused) = refused {
                let expression = threshold.expression.clone();
                return Err(ConfigError::Threshold(expression, refused));
            }
        }
        Ok(())
    }

    /// What is said of a threshold on a flow that there is not.
    fn unknown_flow(&self, threshold: &Threshold) -> Option<ThresholdRefused> {
        let name = threshold.flow()?;
        let flows = self.flows.iter().flat_map(|flows| &flows.flows);
        // Names that are given twice are refused later.
        let known: BTreeSet<String> = flows.map(|flow| flow.name.clone()).collect();
        let known: Vec<String> = known.into_iter().collect();
        let is_known = known.iter().any(|it| it == name);
        (!is_known).then(|| ThresholdRefused::NoFlow {
            name: name.to_owned(),
            nearest: nearest(name, &known),
            known,
        })
    }

    /// Refuses headers that would end their line, and so add others, or end the request's head.
    fn check_headers(&self) -> Result<(), ConfigError> {
        let wrong = self.headers.iter().find(|(name, value)| {
            let is_name = HeaderName::from_bytes(name.as_bytes()).is_ok();
            !is_name || HeaderValue::from_bytes(value.as_bytes()).is_err()
        });
        if let Some((name, _)) = wrong {
            return Err(ConfigError::Header(name.clone()));
        }
        let mut names = self.headers.iter().map(|(name, _)| name);
        match names.find(|name| is_of_length(name)) {
            Some(name) => Err(ConfigError::LengthHeader(name.clone())),
            None => Ok(()),
        }
    }

    fn check_requests(&self) -> Result<(), ConfigError> {
        let Some(requests) = &self.requests else {
            return Ok(());
        };
        let rate = requests.rate_per_s;
        if !(rate > 0.0 && rate <= LOAD_RATE_MAX) {
            return Err(ConfigError::Rate("--request-rate", rate));
        }
        if !(1..=REQUEST_CONNECTIONS_MAX).contains(&requests.connections) {
            return Err(ConfigError::Range(
                "--request-connections",
                requests.connections,
                1,
                REQUEST_CONNECTIONS_MAX,
            ));
        }
        self.check_warmup(requests.warmup)
    }

    pub(super) fn check_warmup(&self, warmup: Duration) -> Result<(), ConfigError> {
        match self.held_for() {
            Some(duration) if duration <= warmup => Err(ConfigError::Warmup { duration, warmup }),
            _ => Ok(()),
        }
    }
}
