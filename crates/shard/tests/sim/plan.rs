//! What a seed decides before anything happens: the size of the node, its limits, its luck, and its crowd.

use crate::ledger::CHANNELS;
use crate::secured::Secured;
use myriad_reactor::sim::{Faults, Prng};
use myriad_shard::{
    ChannelOptions, Compression, Namespaces, NoticeSettings, ProcessLimits, Right, Settings,
    Transports,
};
use std::sync::Arc;
use std::time::Duration;

/// How time passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    /// Before time moves far, everything that is under way arrives: what is late then is the server's fault.
    Calm,
    /// Time jumps whenever it likes, as on a machine that was suspended.
    Wild,
}

/// How often things happen, in relation to each other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weights {
    pub(crate) turn: usize,
    pub(crate) act: usize,
    pub(crate) publish: usize,
    pub(crate) connect: usize,
    pub(crate) time: usize,
}

/// A drain, from some step on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DrainPlan {
    pub(crate) at_step: usize,
    pub(crate) over: Duration,
}

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) shards: usize,
    pub(crate) sockets_max: usize,
    pub(crate) faults: Faults,
    /// Some clients speak TLS.
    pub(crate) secured: Option<Secured>,
    pub(crate) settings: Settings,
    pub(crate) limits: ProcessLimits,
    pub(crate) clock: Clock,
    pub(crate) weights: Weights,
    pub(crate) steps: usize,
    pub(crate) peers_max: usize,
    pub(crate) payload_bytes_max: usize,
    pub(crate) drain: Option<DrainPlan>,
    /// Clients come and go fast, for few channels: a channel that comes back meets messages about its last life.
    pub(crate) is_churning: bool,
    /// Clients offer to compress.
    pub(crate) has_offers: bool,
    /// Hundreds connect at once.
    pub(crate) has_storms: bool,
    /// Some are refused who are no strangers to the limit of connections, and some are not even told so.
    pub(crate) limits_strangers: bool,
    /// The test makes statements of the shards' own wrong.
    pub(crate) plants_defects: bool,
    /// Nanoseconds since the process's epoch.
    pub(crate) start: u64,
}

/// Limits above this are never reached here.
pub(crate) const ROOMY: u64 = 1 << 30;

impl Plan {
    pub(crate) fn new(prng: &mut Prng) -> Self {
        let mut faults = Faults::mixed(prng);
        if prng.one_in(4) {
            faults = Faults {
                kernel_bytes: faults.kernel_bytes,
                ..Faults::NONE
            };
        }
        let settings = settings(prng);
        let limits = ProcessLimits {
            connections_max: *prng.pick(&[ROOMY, ROOMY, ROOMY, 30, 5]),
            buffered_bytes_max: *prng.pick(&[ROOMY, ROOMY, ROOMY, ROOMY, 20_000, 4_000, 400]),
            publication_bytes_max: *prng.pick(&[ROOMY, ROOMY, ROOMY, 20_000, 3_000]),
            compression: settings.compression,
            ..ProcessLimits::default()
        };
        let steps = prng.between(200, 900);
        let drain = prng.one_in(4).then(|| DrainPlan {
            at_step: prng.below(steps),
            over: *prng.pick(&[0, 300, 3_000, 20_000].map(Duration::from_millis)),
        });
        let (_, kernel_bytes) = faults.kernel_bytes;
        let budget = settings.outbound_bytes_max as usize;
        let has_storms = limits.connections_max < 10 && prng.one_in(10);
        let is_churning = prng.one_in(4);
        let mut plan = Self {
            secured: None,
            is_churning,
            has_offers: true,
            has_storms,
            limits_strangers: false,
            plants_defects: false,
            shards: prng.between(1, 4),
            sockets_max: *prng.pick(&[600, 600, 600, 20]),
            payload_bytes_max: (budget + budget / 4).min(kernel_bytes * 16).min(80_000),
            faults,
            settings,
            limits,
            clock: *prng.pick(&[Clock::Calm, Clock::Calm, Clock::Wild]),
            weights: Weights {
                turn: 100,
                act: *prng.pick(&[20, 60, 120]),
                publish: if is_churning {
                    30
                } else {
                    *prng.pick(&[3, 15, 40])
                },
                connect: if is_churning {
                    40
                } else {
                    *prng.pick(&[4, 15])
                },
                time: *prng.pick(&[5, 20]),
            },
            steps,
            peers_max: if is_churning {
                10
            } else {
                *prng.pick(&[6, 20, 45])
            },
            drain,
            start: prng.bits() % 1_000_000_000_000_000,
        };
        plan.secured = Secured::of(plan.start);
        plan
    }

    /// One shard without faults, for scenarios by hand.
    pub(crate) fn plain() -> Self {
        Self {
            shards: 1,
            secured: None,
            sockets_max: 100,
            faults: Faults::NONE,
            settings: Settings {
                echo: true,
                anonymous: true,
                namespaces: Arc::new(open_channels()),
                ping_interval: Duration::ZERO,
                ..Settings::default()
            },
            limits: ProcessLimits::default(),
            clock: Clock::Calm,
            weights: Weights {
                turn: 1,
                act: 1,
                publish: 1,
                connect: 1,
                time: 1,
            },
            steps: 0,
            peers_max: 100,
            payload_bytes_max: 80_000,
            drain: None,
            is_churning: false,
            has_offers: false,
            has_storms: false,
            limits_strangers: false,
            plants_defects: false,
            start: 0,
        }
    }

    /// Draws what nodes differ in, whoever their clients are: shards, faults and the time when they begin.
    pub(crate) fn draw_node(&mut self, prng: &mut Prng) {
        self.shards = prng.between(1, 4);
        self.faults = Faults::mixed(prng);
        self.sockets_max = 600;
        self.start = prng.bits() % 1_000_000_000_000_000;
        self.secured = Secured::of(self.start);
    }

    /// Channels in use: the first ones.
    pub(crate) fn channels(&self) -> usize {
        if self.is_churning { 3 } else { CHANNELS }
    }

    /// Whether the process may run out of buffer memory.
    pub(crate) fn is_tight(&self) -> bool {
        self.limits.buffered_bytes_max < ROOMY
    }
}

/// Channels without a namespace, to which everybody may listen.
fn open_channels() -> Namespaces {
    let options = ChannelOptions {
        subscribe: Right::ALL,
        ..ChannelOptions::default()
    };
    Namespaces::new(options, [])
}

fn settings(prng: &mut Prng) -> Settings {
    let ms = Duration::from_millis;
    // Zero where it means "never", and now and then where it means "at once".
    let mut time = |choices: &[u64]| match prng.below(25) {
        0 => Duration::ZERO,
        _ => ms(*prng.pick(choices)),
    };
    let linger_timeout;
    Settings {
        handshake_timeout: time(&[10_000, 10_000, 1_000, 200]),
        ping_interval: time(&[0, 0, 25_000, 5_000, 1_000]),
        pong_timeout: time(&[10_000, 2_000, 600]),
        idle_timeout: time(&[0, 0, 0, 60_000, 30_000, 3_000]),
        linger_timeout: {
            linger_timeout = time(&[5_000, 5_000, 1_000, 200]);
            linger_timeout
        },
        drain_linger: linger_timeout / 5,
        // Not below the time for which peers may linger, so that what may have lingered may have stalled, too.
        stall_timeout: 4 * linger_timeout,
        allowed_origins: [].into(),
        echo: !prng.one_in(5),
        anonymous: !prng.one_in(20),
        namespaces: Arc::new(open_channels()),
        hands_over: prng.one_in(2),
        compression: *prng.pick(&[Compression::Shared, Compression::Shared, Compression::Off]),
        head_bytes_max: *prng.pick(&[8192, 8192, 512]),
        headers_max: *prng.pick(&[64, 8]),
        message_bytes_max: *prng.pick(&[65_536, 4_096, 200]),
        fragments_max: *prng.pick(&[1024, 4]),
        outbound_bytes_max: *prng.pick(&[1 << 20, 65_536, 8_192, 2_048, 1_024]),
        subscriptions_max: *prng.pick(&[128, 4]),
        slice_max: *prng.pick(&[1, 2, 3, 7, 20, 1024]),
        events: true,
        notices: NoticeSettings {
            clients: true,
            vacated_delay: Some(*prng.pick(&[Duration::ZERO, ms(100), ms(3_000)])),
        },
        transports: Transports::ALL,
        ..Settings::default()
    }
}
