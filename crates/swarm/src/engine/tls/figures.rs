//! What TLS handshakes took.

use crate::measure::figures::{add, microseconds, record};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A handshake that is over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Handshake {
    /// From the TCP connection to the end of the handshake.
    pub micros: u32,
    pub is_resumed: bool,
    pub is_tls12: bool,
}

/// The handshakes of a thread, or of the crowd.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TlsFigures {
    pub handshakes: u64,
    /// Of them, those that resumed a session.
    pub resumed: u64,
    /// Of them, those of TLS 1.2.
    pub tls12: u64,
    /// In microseconds.
    #[serde(with = "crate::measure::buckets")]
    pub times: Histogram<u64>,
}

impl Default for TlsFigures {
    fn default() -> Self {
        Self {
            handshakes: 0,
            resumed: 0,
            tls12: 0,
            times: microseconds(),
        }
    }
}

impl TlsFigures {
    pub(super) fn record(&mut self, handshake: Handshake) {
        self.handshakes += 1;
        self.resumed += u64::from(handshake.is_resumed);
        self.tls12 += u64::from(handshake.is_tls12);
        let time = Duration::from_micros(u64::from(handshake.micros));
        record(&mut self.times, time);
    }

    /// Adds those of another thread.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.handshakes += other.handshakes;
        self.resumed += other.resumed;
        self.tls12 += other.tls12;
        add(&mut self.times, &other.times);
    }
}
