//! What a seed's cluster is like, and what may happen to it.

use crate::broker::link::SPARE_MESSAGES;
use crate::broker::settings::BrokerInterest;
use myriad_broker::Policy;
use myriad_reactor::sim::{Prng, variable};
use std::time::Duration;

pub(super) const NODES_MAX: usize = 4;
/// 0: all nodes read the whole log. 1: each hears by channel or chooses. 2: all choose.
pub(super) const BY_CHANNEL: &str = "MYRIAD_SIM_BY_CHANNEL";
/// What is drawn for nodes that hear by channel is drawn apart, so that seeds without one run as they did before there was one.
const HEARING: u64 = 0x6865_6172_696e_6721;
/// And what is drawn for those that choose, apart from that.
const CHOOSING: u64 = 0x6368_6f6f_7369_6e67;

/// What a seed decides at its beginning.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) nodes: usize,
    /// What each of them hears.
    pub(super) interest: [BrokerInterest; NODES_MAX],
    pub(super) subscribers: usize,
    pub(super) steps: usize,
    /// Time between two steps at most, in ms.
    pub(super) pause_ms: usize,
    /// A message's way takes less, in us.
    pub(super) delay_us: usize,
    pub(super) history_size: u32,
    pub(super) history_ttl: Duration,
    /// Messages of a subject that the log keeps, and for how long.
    pub(super) kept_by_log: usize,
    pub(super) log_ttl: Duration,
    pub(super) loses_answers: bool,
    /// Of listeners as well.
    pub(super) breaks_consumers: bool,
    pub(super) breaks_connections: bool,
    pub(super) changes_leaders: bool,
    /// A new leader may lack the end of the log.
    pub(super) cuts_logs: bool,
    pub(super) kills_nodes: bool,
    pub(super) stops_nodes: bool,
    pub(super) has_strangers: bool,
}

impl Plan {
    /// The plan of a seed, and what decides about nodes that hear by channel.
    pub(super) fn of(seed: u64, prng: &mut Prng) -> (Self, Prng) {
        let mut hearing = Prng::new(seed ^ HEARING).fork();
        let mut plan = Self::new(prng);
        let by_channel = by_channel(seed, plan.nodes, &mut hearing);
        let mut choosing = Prng::new(seed ^ CHOOSING).fork();
        plan.interest = by_channel.map(|by_channel| interest(by_channel, &mut choosing));
        if plan.has_hearers() {
            // These nodes count on it.
            plan.kept_by_log = 2 * plan.history_size as usize + SPARE_MESSAGES;
        }
        (plan, hearing)
    }

    fn new(prng: &mut Prng) -> Self {
        let history_size = *prng.pick(&[1, 3, 5, 20]);
        let history_ttl = Duration::from_secs(*prng.pick(&[5, 30, 300]));
        let cuts_logs = prng.one_in(3);
        // As many as a stream of ours has. With fewer, what came in the place of what was lost may have gone before a node looks.
        let spare = if cuts_logs {
            SPARE_MESSAGES
        } else {
            *prng.pick(&[0, 2, SPARE_MESSAGES])
        };
        Self {
            nodes: prng.between(1, NODES_MAX),
            interest: [BrokerInterest::Stream; NODES_MAX],
            subscribers: prng.between(1, 9),
            steps: prng.between(50, 250),
            pause_ms: *prng.pick(&[10, 100, 500]),
            delay_us: *prng.pick(&[100, 5_000, 100_000]),
            history_size,
            history_ttl,
            kept_by_log: 2 * history_size as usize + spare,
            // Longer than beats are apart: a log without a beat has no epoch.
            log_ttl: history_ttl + history_ttl / 2 + Duration::from_secs(40),
            loses_answers: prng.one_in(2),
            breaks_consumers: prng.one_in(2),
            breaks_connections: prng.one_in(2),
            changes_leaders: prng.one_in(2),
            cuts_logs,
            // A node that is killed may be the only one that has read what the log lost.
            kills_nodes: !cuts_logs && prng.one_in(2),
            stops_nodes: prng.one_in(2),
            has_strangers: prng.one_in(4),
        }
    }

    /// Whether a node hears by channel, or may.
    pub(super) fn has_hearers(&self) -> bool {
        self.interest.iter().any(|one| one.keeps_only_wanted())
    }
}

/// What a node hears that may hear by channel: half of them choose, at rates that a simulated cluster has.
fn interest(by_channel: bool, prng: &mut Prng) -> BrokerInterest {
    let policy = Policy {
        rate_min: *prng.pick(&[2, 8, 32]),
        share_percent: *prng.pick(&[25, 45, 60]),
        window: Duration::from_millis(*prng.pick(&[50, 200, 1_000])),
    };
    let chooses = prng.one_in(2) || variable(BY_CHANNEL) == Some(2);
    match by_channel {
        true if chooses => BrokerInterest::Auto(policy),
        true => BrokerInterest::Channel,
        false => BrokerInterest::Stream,
    }
}

/// Which nodes hear by channel: some node in each third seed, and in some of the others.
fn by_channel(seed: u64, nodes: usize, prng: &mut Prng) -> [bool; NODES_MAX] {
    let mut by_channel = [false; NODES_MAX];
    if let Some(forced) = variable(BY_CHANNEL) {
        return [forced > 0; NODES_MAX];
    }
    if seed.is_multiple_of(3) || prng.one_in(3) {
        let all = prng.one_in(4);
        for one in &mut by_channel[..nodes] {
            *one = all || prng.one_in(2);
        }
        by_channel[prng.below(nodes)] = true;
    }
    by_channel
}
