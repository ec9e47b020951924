//! What the connections carry, as bytes on the wire and as events a second.

use super::costs;
use super::figure::{Figure, Unit};
use super::resource::float;
use myriad_units::{count, counted, significant};

/// A frame that is within what was measured of a small packet.
const SMALL_FRAME_BYTES: f64 = 256.0;

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
        // Every second segment is acknowledged (RFC 9293, 3.8.6.3), and the last one.
        let acknowledgement = (self.segments() / 2.0).ceil() * costs::PACKET_BYTES.value;
        8.0 * (self.deliveries_per_s(connections) * acknowledgement + self.pings_per_s() * pong)
    }

    /// Bytes of one delivery on the wire.
    #[must_use]
    pub fn delivery_bytes(&self) -> f64 {
        self.frame_bytes() + self.segments() * costs::PACKET_BYTES.value
    }

    fn frame_bytes(&self) -> f64 {
        float(self.message_bytes) + self.frame_head()
    }

    /// Packets of one delivery.
    pub(crate) fn segments(&self) -> f64 {
        (self.frame_bytes() / costs::SEGMENT_BYTES.value).ceil()
    }

    /// Kernel memory of one delivery on its way to a client, of whom at most `parked` can wait there.
    pub(crate) fn in_flight_bytes(&self, parked: f64) -> f64 {
        let frame = self.frame_bytes();
        // A small one is in what was measured of its packet.
        let larger = if frame > SMALL_FRAME_BYTES {
            frame
        } else {
            0.0
        };
        (self.segments() * costs::IN_FLIGHT_BYTES.value + larger).min(parked)
    }

    /// Why the processor has no limit with such messages, if it has none.
    pub(crate) fn unmeasured(&self) -> Option<String> {
        (self.segments() > 1.0).then(|| {
            format!(
                "The processor was measured with messages of one packet; how much more those of {} packets take is not \
                 known, so that it has a need and no limit: measure with messages of that size (myriad swarm).",
                significant(self.segments())
            )
        })
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
        let mut figures = vec![
            Figure::new(
                "deliveries",
                self.messages_per_s * float(reached),
                Unit::PerSecond,
                format!(
                    "publications at {}/s × {} reached",
                    significant(self.messages_per_s),
                    counted(reached, "connection")
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
                    significant(self.segments()),
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
                    "{} / {} s; each is a ping, a pong and an acknowledgement",
                    counted(connections, "connection"),
                    significant(interval)
                ),
            ));
        }
        figures.push(Figure::new(
            "clients that do not read",
            float(connections) * self.slow_share,
            Unit::Count,
            format!(
                "{}% of {}, each with all that is kept for it",
                significant(self.slow_share * 100.0),
                counted(connections, "connection")
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
    fn large_messages_are_acknowledged_and_held_by_their_packets() {
        let traffic = |message_bytes| Traffic {
            message_bytes,
            messages_per_s: 1.0,
            ping_interval_s: None,
            ..Traffic::default()
        };
        assert_eq!(traffic(128).up_bits_per_s(1), 8.0 * 90.0);
        // 70 segments, of which every second is acknowledged.
        assert_eq!(traffic(100_000).up_bits_per_s(1), 8.0 * 35.0 * 90.0);
        assert_eq!(traffic(128).in_flight_bytes(200_000.0), 1_300.0);
        assert_eq!(
            traffic(100_000).in_flight_bytes(200_000.0),
            70.0 * 1_300.0 + 100_010.0
        );
        assert_eq!(traffic(1 << 30).in_flight_bytes(200_000.0), 200_000.0);
        // One byte of the payload less than a packet, but its head makes it two.
        let figures = traffic(1_447).figures(1);
        assert!(
            figures[1].formula.contains("+ 2 × 90 packet"),
            "{figures:?}"
        );
        assert!(traffic(128).unmeasured().is_none() && traffic(1_447).unmeasured().is_some());
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
