//! Which channels there are, and which clients get which.

use crate::config::{Config, STREAMS_MAX, TARGETS_MAX};
use crate::config_error::ConfigError;
use crate::engine::flows::plan::FlowsPlan;
use crate::engine::plan::{PlannedTarget, SessionPlan, Subscription};
use crate::protocol::Protocol;
use crate::target::Target;
use std::collections::{HashMap, HashSet};

impl Config {
    /// The targets with their channels: each as often as there are channels that clients are dealt out to.
    pub(crate) fn dealt_targets(&self) -> Result<Vec<Target>, ConfigError> {
        let Some(count) = self.channel_count else {
            let all = |target: &Target| target.with_channels(&self.channels);
            return Ok(self.targets.iter().map(all).collect());
        };
        let [name] = &self.channels[..] else {
            return Err(ConfigError::ChannelName);
        };
        let dealt = (1..=count).flat_map(|number| {
            let channel = [format!("{name}-{number}")];
            let of = move |target: &Target| target.with_channels(&channel);
            self.targets.iter().map(of)
        });
        let dealt: Vec<Target> = dealt.take(TARGETS_MAX + 1).collect();
        if dealt.len() > TARGETS_MAX {
            return Err(ConfigError::TooManyTargets);
        }
        Ok(dealt)
    }

    /// What clients say after the upgrade, where they speak a protocol. Flows may have channels for groups.
    pub(crate) fn session(
        &self,
        targets: &[Target],
        flows: Option<&FlowsPlan>,
    ) -> Option<SessionPlan> {
        let encoding = self.protocol.encoding()?;
        let channels = distinct(targets.iter().flat_map(|target| &target.channels));
        let mut session = SessionPlan::new(encoding, self.tokens.clone(), channels);
        if let Some(flows) = flows {
            session.add_channels_of_groups(flows);
        }
        Some(session)
    }

    /// The channels of stamps, in order; one without a name when the body is plain.
    pub(crate) fn publish_channels(&self, targets: &[Target]) -> Result<Vec<String>, ConfigError> {
        let Some(publish) = &self.publish else {
            return Ok(Vec::new());
        };
        if !publish.names_channels() {
            return Ok(vec![String::new()]);
        }
        let subscribed = || targets.iter().flat_map(|target| &target.channels);
        let channels = if publish.channels.is_empty() {
            distinct(subscribed())
        } else {
            distinct(publish.channels.iter())
        };
        if channels.is_empty() {
            return Err(ConfigError::NoChannel);
        }
        if channels.len() > STREAMS_MAX {
            return Err(ConfigError::TooManyChannels);
        }
        let named: HashSet<&String> = subscribed().collect();
        // One that names no channels in its URL subscribes by other means.
        let has_groups = self
            .flows
            .as_ref()
            .is_some_and(|flows| flows.channel.is_some());
        let is_open = !has_groups && targets.iter().any(|target| target.channels.is_empty());
        match channels
            .iter()
            .find(|channel| !is_open && !named.contains(channel))
        {
            Some(lonely) => Err(ConfigError::NobodySubscribes(lonely.clone())),
            None => Ok(channels),
        }
    }
}

/// The targets as terminals need them. `streams` are the channels that are published to.
pub(crate) fn planned(
    targets: &[Target],
    streams: &[String],
    session: Option<&SessionPlan>,
    protocol: Protocol,
) -> Vec<PlannedTarget> {
    let stream_of: HashMap<&str, u16> = streams.iter().map(String::as_str).zip(0..).collect();
    // Without names every publication reaches everybody. A target that names no channels subscribes by other means, and is
    // taken to get everything too.
    let is_plain = streams == [String::new()];
    let planned = targets.iter().map(|target| {
        let stream_of = |channel: &String| {
            let name = if is_plain { "" } else { channel.as_str() };
            stream_of.get(name).copied()
        };
        let mut carried: Vec<u16> = target.channels.iter().filter_map(stream_of).collect();
        carried.sort_unstable();
        if is_plain || target.channels.is_empty() {
            carried = (0..).take(streams.len()).collect();
        }
        let subscription = |(session, channel): (&SessionPlan, &String)| Subscription {
            channel: session.index_of(channel).expect("it has all channels"),
            stream_slot: stream_of(channel).and_then(|stream| {
                let slot = carried.binary_search(&stream).ok()?;
                u16::try_from(slot).ok()
            }),
        };
        let subscribed = session.into_iter().flat_map(|session| {
            let channels = target.channels.iter();
            channels.map(move |channel| (session, channel))
        });
        let mut subscriptions: Vec<Subscription> = subscribed.map(subscription).collect();
        subscriptions.sort_unstable_by_key(|subscription| subscription.channel);
        PlannedTarget {
            address: target.address,
            server_name: target.server_name.clone(),
            host: target.host.clone(),
            path: target.path_for(protocol),
            streams: carried,
            subscriptions,
        }
    });
    planned.collect()
}

/// Each of them once, in the order of their first.
fn distinct<'a>(names: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut seen = HashSet::new();
    names.filter(|name| seen.insert(*name)).cloned().collect()
}
