//! What a seed decides before anything happens.

use myriad_hub::{ChannelOptions, ClientOptions, Namespaces, RecoveryMode, Right, SlowConsumer};
use myriad_reactor::sim::{Faults, Prng};
use myriad_shard::{Compression, NoticeSettings, Settings, Transports};
use std::sync::Arc;
use std::time::Duration;

/// Channels: two with history, one of which only the newest publication is recovered, and one without history.
pub(crate) const CHANNELS: [&str; 4] = ["kept:a", "kept:b", "cached:a", "loose:a"];
pub(crate) const CACHED: usize = 2;
pub(crate) const LOOSE: usize = 3;

/// Whether a channel's publications have places.
pub(crate) fn has_history(channel: usize) -> bool {
    channel != LOOSE
}

/// Longer than what the schedule's leaps of time add up to while a pong is under way.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The tag by which subscribers filter, and its values.
pub(crate) const TAG: &str = "kind";
pub(crate) const KINDS: [&str; 2] = ["odd", "even"];

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) shards: usize,
    pub(crate) steps: usize,
    pub(crate) clients: usize,
    pub(crate) faults: Faults,
    pub(crate) settings: Settings,
    /// Of each channel.
    policies: [SlowConsumer; CHANNELS.len()],
    /// Publications that a client may have missed and recovers.
    pub(crate) recovered_max: u32,
    pub(crate) excludes_sender: bool,
    /// A publication is delivered some time after its answer.
    pub(crate) delays: bool,
    /// The newest publication comes also to those who do not ask for it.
    pub(crate) recovers_unasked: bool,
    /// Histories keep everything until their size, and replies have room: what they have must be recovered.
    pub(crate) is_roomy: bool,
    pub(crate) payload_bytes_max: usize,
    pub(crate) publish_weight: usize,
}

impl Plan {
    pub(crate) fn new(prng: &mut Prng) -> Self {
        let ms = Duration::from_millis;
        let is_roomy = prng.one_in(2);
        let options = options(is_roomy, prng);
        let [kept, cached, loose] = &options;
        let policies = [kept, kept, cached, loose].map(|options| options.slow_consumer);
        let (history_size, excludes_sender) = (kept.history_size, kept.exclude_sender);
        let delays = !kept.batch_delay.is_zero();
        let recovers_unasked = cached.auto_cache_recover;
        let names: [Box<str>; 3] = ["kept".into(), "cached".into(), "loose".into()];
        let namespaces = names.into_iter().zip(options);
        let (ping_interval, pong_timeout) = *prng.pick(&[
            (Duration::ZERO, PATIENCE),
            (PATIENCE, PATIENCE),
            (ms(5_000), ms(1_000)),
        ]);
        let recovery_max_publication_limit = *prng.pick(&[300, 5]);
        let vacated_delay = *prng.pick(&[Duration::ZERO, ms(300), ms(3_000)]);
        let client = ClientOptions {
            recovery_max_publication_limit,
            ..ClientOptions::default()
        };
        let mut faults = Faults::mixed(prng);
        faults.connect_failure = myriad_reactor::sim::Chance::NEVER;
        Self {
            shards: prng.between(1, 4),
            steps: prng.between(200, 700),
            clients: prng.between(2, 8),
            faults,
            policies,
            recovered_max: history_size.min(recovery_max_publication_limit),
            excludes_sender,
            delays,
            recovers_unasked,
            is_roomy,
            payload_bytes_max: if is_roomy { 60 } else { *prng.pick(&[60, 900]) },
            publish_weight: *prng.pick(&[10, 40, 120]),
            settings: Settings {
                anonymous: true,
                client,
                compression: Compression::Off,
                transports: Transports::ALL,
                namespaces: Arc::new(Namespaces::new(ChannelOptions::default(), namespaces)),
                ping_interval,
                pong_timeout,
                notices: NoticeSettings {
                    clients: true,
                    vacated_delay: Some(vacated_delay),
                },
                outbound_bytes_max: if is_roomy {
                    1 << 20
                } else {
                    *prng.pick(&[1 << 20, 16_384, 4_096])
                },
                slice_max: *prng.pick(&[1, 2, 5, 1024]),
                ..Settings::default()
            },
        }
    }

    /// Whether a channel's subscriber may miss publications without being told.
    pub(crate) fn drops(&self, channel: usize) -> bool {
        matches!(
            self.policies[channel],
            SlowConsumer::DropOldest | SlowConsumer::KeepLatest
        )
    }
}

/// The options of channels that are kept, cached and loose.
fn options(is_roomy: bool, prng: &mut Prng) -> [ChannelOptions; 3] {
    let ms = Duration::from_millis;
    let mut policy = || {
        *prng.pick(&[
            SlowConsumer::Disconnect,
            SlowConsumer::Disconnect,
            SlowConsumer::GapThenRecover,
            SlowConsumer::DropOldest,
            SlowConsumer::KeepLatest,
        ])
    };
    let [of_kept, of_cached, of_loose] = [policy(), policy(), policy()];
    let loose = ChannelOptions {
        presence: true,
        join_leave: true,
        force_push_join_leave: true,
        subscribe: Right::ALL,
        publish: Right::ALL,
        presence_read: Right::ALL,
        history_read: Right::ALL,
        allow_tags_filter: true,
        slow_consumer: of_loose,
        exclude_sender: prng.one_in(3),
        batch_delay: *prng.pick(&[Duration::ZERO, Duration::ZERO, ms(100), ms(400)]),
        ..ChannelOptions::default()
    };
    let history_ttl = if is_roomy {
        Duration::from_secs(100_000)
    } else {
        *prng.pick(&[ms(500), ms(5_000), ms(60_000)])
    };
    let kept = ChannelOptions {
        history_size: *prng.pick(&[2, 10, 1000]),
        history_ttl,
        history_meta_ttl: history_ttl * 2,
        force_recovery: true,
        allow_fossil_delta: true,
        delta_publish: prng.one_in(2),
        slow_consumer: of_kept,
        ..loose.clone()
    };
    let cached = ChannelOptions {
        recovery_mode: RecoveryMode::Cache,
        auto_cache_recover: prng.one_in(2),
        slow_consumer: of_cached,
        ..kept.clone()
    };
    [kept, cached, loose]
}
