//! What a seed decides before anything happens.

use myriad_hub::{ChannelOptions, Namespaces, Right, SlowConsumer};
use myriad_reactor::sim::{Faults, Prng};
use myriad_shard::{Compression, Settings};
use std::sync::Arc;
use std::time::Duration;

/// Channels: two with history and one without.
pub(crate) const CHANNELS: [&str; 3] = ["kept:a", "kept:b", "loose:a"];

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) shards: usize,
    pub(crate) steps: usize,
    pub(crate) clients: usize,
    pub(crate) faults: Faults,
    pub(crate) settings: Settings,
    pub(crate) slow_consumer: SlowConsumer,
    pub(crate) history_size: u32,
    pub(crate) excludes_sender: bool,
    /// Histories keep everything until their size, and replies have room: what they have must be recovered.
    pub(crate) is_roomy: bool,
    pub(crate) payload_bytes_max: usize,
    pub(crate) publish_weight: usize,
}

impl Plan {
    pub(crate) fn new(prng: &mut Prng) -> Self {
        let ms = Duration::from_millis;
        let slow_consumer = *prng.pick(&[
            SlowConsumer::Disconnect,
            SlowConsumer::Disconnect,
            SlowConsumer::GapThenRecover,
            SlowConsumer::DropOldest,
            SlowConsumer::KeepLatest,
        ]);
        let is_roomy = prng.one_in(2);
        let excludes_sender = prng.one_in(3);
        let shared = ChannelOptions {
            presence: true,
            join_leave: true,
            force_push_join_leave: true,
            subscribe: Right::ALL,
            publish: Right::ALL,
            presence_read: Right::ALL,
            history_read: Right::ALL,
            slow_consumer,
            exclude_sender: excludes_sender,
            batch_delay: *prng.pick(&[Duration::ZERO, Duration::ZERO, ms(100), ms(400)]),
            ..ChannelOptions::default()
        };
        let history_size = *prng.pick(&[2, 10, 1000]);
        let history_ttl = if is_roomy {
            Duration::from_secs(100_000)
        } else {
            *prng.pick(&[ms(500), ms(5_000), ms(60_000)])
        };
        let kept = ChannelOptions {
            history_size,
            history_ttl,
            history_meta_ttl: history_ttl * 2,
            force_recovery: true,
            allow_fossil_delta: true,
            delta_publish: prng.one_in(2),
            ..shared.clone()
        };
        let namespaces = [("kept".into(), kept), ("loose".into(), shared)];
        let mut faults = Faults::mixed(prng);
        faults.connect_failure = myriad_reactor::sim::Chance::NEVER;
        Self {
            shards: prng.between(1, 4),
            steps: prng.between(200, 700),
            clients: prng.between(2, 8),
            faults,
            slow_consumer,
            history_size,
            excludes_sender,
            is_roomy,
            payload_bytes_max: if is_roomy { 60 } else { *prng.pick(&[60, 900]) },
            publish_weight: *prng.pick(&[10, 40, 120]),
            settings: Settings {
                anonymous: true,
                compression: Compression::Off,
                namespaces: Arc::new(Namespaces::new(ChannelOptions::default(), namespaces)),
                ping_interval: *prng.pick(&[Duration::ZERO, ms(5_000)]),
                pong_timeout: *prng.pick(&[ms(10_000), ms(10_000), ms(1_000)]),
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

    /// Whether a subscriber may miss publications without being told.
    pub(crate) fn drops(&self) -> bool {
        matches!(
            self.slow_consumer,
            SlowConsumer::DropOldest | SlowConsumer::KeepLatest
        )
    }
}
