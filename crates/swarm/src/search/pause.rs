//! The time between two trials: until the connections of the one before are gone.

use crate::config::{Config, Endpoint};
use crate::interrupt::Interrupt;
use crate::measure::server::connections_at;
use crate::request_connection::RequestTls;
use myriad_usage::tcp_sockets;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// How often connections are counted.
const TICK: Duration = Duration::from_millis(100);

/// How long connections may take to go. A server without `--close orderly` clients sees resets, and needs milliseconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// Who else is connected to the server, beside the trials.
#[derive(Debug)]
pub(super) struct Quiet {
    targets: Vec<SocketAddr>,
    metrics: Option<Endpoint>,
    tls: RequestTls,
    /// Connections before the first trial.
    before: u64,
    pause: Duration,
}

impl Quiet {
    /// Counts the connections that are none of a trial's.
    pub(super) fn before(config: &Config, pause: Duration) -> Self {
        let targets = config.targets.iter().map(|target| target.address);
        let mut quiet = Self {
            targets: targets.collect(),
            metrics: config.reporting.server_metrics.clone(),
            tls: config.metrics_tls(),
            before: 0,
            pause,
        };
        quiet.before = quiet.count();
        quiet
    }

    /// Connections now: the server knows best, and otherwise the kernel of this machine.
    fn count(&self) -> u64 {
        let told = self.metrics.as_ref();
        let told = told.and_then(|metrics| connections_at(metrics, &self.tls));
        // Without either, the pause alone has to do.
        told.unwrap_or_else(|| tcp_sockets(&self.targets).unwrap_or(0))
    }

    /// Waits until the connections of the last trial are gone; returns how many are still there when patience is over.
    pub(super) fn wait(&self, interrupt: &Interrupt) -> u64 {
        let begun = Instant::now();
        loop {
            let over = self.count().saturating_sub(self.before);
            let waited = begun.elapsed();
            let is_over = (over == 0 && waited >= self.pause) || waited >= PATIENCE.max(self.pause);
            if is_over || interrupt.is_made() {
                return over;
            }
            std::thread::sleep(TICK);
        }
    }
}
