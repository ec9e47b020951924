//! What the connections carry, as bytes on the wire and as events a second.

use super::costs;
use super::figure::{Figure, Unit, fine};
use super::resource::float;
use crate::units::count;

/// What clients receive and send.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Traffic {
    /// Publications a second, all channels together.
    pub messages_per_s: f64,
    /// Connections that get each of them; everybody if not set.
    pub audience: Option<u64>,
    /// Payload of a publication.
    pub message_bytes: u64,
    /// Seconds between two pings of a connection; none: no pings.
    pub ping_interval_s: Option<f64>,
    /// Share of clients that do not read, and hold the most that is kept for them.
    pub slow_share: f64,
}

impl Default for Traffic {
    fn default() -> Self {
        Self {
            messages_per_s: 0.1,
            audience: None,
            message_bytes: 128,
            ping_interval_s: Some(25.0),
            slow_share: 0.001,
        }
    }
}

impl Traffic {
    /// Publications one connection gets a second.
    #[must_use]
    pub fn deliveries_per_s(&self, connections: u64) -> f64 {
        let reached = self.audience.unwrap_or(connections).min(connections);
        self.messages_per_s * float(reached) / float(connections.max(1))
    }

    /// Pings one connection gets a second.
    #[must_use]
    pub fn pings_per_s(&self) -> f64 {
        self.ping_interval_s.map_or(0.0, |interval| 1.0 / interval)
    }

    /// Bits a second towards one client.
    #[must_use]
    pub fn down_bits_per_s(&self, connections: u64) -> f64 {
        let ping = 2.0 + 2.0 * costs::PACKET_BYTES.value;
        8.0 * (self.deliveries_per_s(connections) * self.delivery_bytes()
            + self.pings_per_s() * ping)
    }

    /// Bits a second from one client: acknowledgements and pongs.
    #[must_use]
    pub fn up_bits_per_s(&self, connections: u64) -> f64 {
        let pong = 6.0 + costs::PACKET_BYTES.value;
        let acknowledgement = costs::PACKET_BYTES.value;
        8.0 * (self.deliveries_per_s(connections) * acknowledgement + self.pings_per_s() * pong)
    }

    /// Bytes of one delivery on the wire.
    #[must_use]
    pub fn delivery_bytes(&self) -> f64 {
        let frame = float(self.message_bytes) + self.frame_head();
        frame + (frame / costs::SEGMENT_BYTES.value).ceil() * costs::PACKET_BYTES.value
    }

    /// RFC 6455, section 5.2: from a server, without a mask.
    fn frame_head(&self) -> f64 {
        match self.message_bytes {
            0..126 => 2.0,
            126..65_536 => 4.0,
            _ => 10.0,
        }
    }

    /// What a plan assumes of every connection, with formulas.
    pub(crate) fn figures(&self, connections: u64) -> Vec<Figure> {
        let reached = self.audience.unwrap_or(connections).min(connections);
        let packets = (float(self.message_bytes) / costs::SEGMENT_BYTES.value)
            .ceil()
            .max(1.0);
        let mut figures = vec![
            Figure::new(
                "deliveries",
                self.messages_per_s * float(reached),
                Unit::PerSecond,
                format!(
                    "{} publications a second × {} connections reached",
                    fine(self.messages_per_s),
                    count(reached)
                ),
            ),
            Figure::new(
                "a delivery on the wire",
                self.delivery_bytes(),
                Unit::Bytes,
                format!(
                    "{} payload + {} frame head + {} × {} packet",
                    count(self.message_bytes),
                    self.frame_head(),
                    fine(packets),
                    costs::PACKET_BYTES.value
                ),
            )
            .from(&[
                "RFC 6455",
                costs::PACKET_BYTES.source,
                costs::SEGMENT_BYTES.source,
            ]),
        ];
        if let Some(interval) = self.ping_interval_s {
            figures.push(Figure::new(
                "pings",
                float(connections) * self.pings_per_s(),
                Unit::PerSecond,
                format!(
                    "{} connections / {} s; each is a ping, a pong and an acknowledgement",
                    count(connections),
                    fine(interval)
                ),
            ));
        }
        figures.push(Figure::new(
            "clients that do not read",
            float(connections) * self.slow_share,
            Unit::Count,
            format!(
                "{}% of {} connections, each with all that is kept for it",
                fine(self.slow_share * 100.0),
                count(connections)
            ),
        ));
        figures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delivery_carries_its_heads_and_one_packet_for_each_segment() {
        let bytes = |message_bytes| {
            Traffic {
                message_bytes,
                ..Traffic::default()
            }
            .delivery_bytes()
        };
        assert_eq!(bytes(32), 32.0 + 2.0 + 90.0);
        assert_eq!(bytes(128), 128.0 + 4.0 + 90.0);
        assert_eq!(bytes(1_445), 1_445.0 + 4.0 + 2.0 * 90.0);
        assert_eq!(bytes(100_000), 100_000.0 + 10.0 + 70.0 * 90.0);
    }

    #[test]
    fn an_audience_larger_than_the_crowd_is_the_crowd() {
        let mut traffic = Traffic {
            messages_per_s: 10.0,
            audience: Some(100),
            ..Traffic::default()
        };
        assert_eq!(traffic.deliveries_per_s(1_000), 1.0);
        assert_eq!(traffic.deliveries_per_s(50), 10.0);
        traffic.audience = None;
        assert_eq!(traffic.deliveries_per_s(1_000), 10.0);
    }

    #[test]
    fn idle_connections_without_pings_carry_nothing() {
        let traffic = Traffic {
            messages_per_s: 0.0,
            ping_interval_s: None,
            ..Traffic::default()
        };
        assert_eq!(traffic.down_bits_per_s(1_000), 0.0);
        assert_eq!(traffic.up_bits_per_s(1_000), 0.0);
    }
}
