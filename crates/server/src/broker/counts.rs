//! Figures of a broker.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// What becomes of a publication on its way to the broker.
#[derive(Clone, Copy, Debug)]
pub(super) enum Outcome {
    /// A stream has it.
    Stored,
    /// It was sent to those who listen now.
    Sent,
    /// The broker did not take it in time.
    Unavailable,
    /// JetStream refuses it, as one that is too large.
    Refused,
}

impl Outcome {
    const ALL: [Self; 4] = [Self::Stored, Self::Sent, Self::Unavailable, Self::Refused];

    fn label(self) -> &'static str {
        match self {
            Self::Stored => "stored",
            Self::Sent => "sent",
            Self::Unavailable => "unavailable",
            Self::Refused => "refused",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StreamLabels {
    stream: String,
}

/// All clones count together.
#[derive(Clone, Debug, Default)]
pub(crate) struct BrokerCounts {
    connected: Gauge,
    publications: Family<OutcomeLabels, Counter>,
    under_way: Gauge,
    positions: Family<StreamLabels, Gauge>,
    caught_up: Family<StreamLabels, Gauge>,
    opened: Family<StreamLabels, Counter>,
    losses: Family<StreamLabels, Counter>,
    by_channel: Family<StreamLabels, Gauge>,
    heard: Family<StreamLabels, Counter>,
    wanted: Family<StreamLabels, Gauge>,
    behind: Family<StreamLabels, Gauge>,
    filled: Family<StreamLabels, Counter>,
    unreadable: Counter,
    live_dropped: Counter,
}

impl BrokerCounts {
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "broker_connected",
            "Whether a NATS server is connected",
            self.connected.clone(),
        );
        self.register_publications(registry);
        registry.register(
            "broker_publications_under_way",
            "Publications that no stream has acknowledged yet",
            self.under_way.clone(),
        );
        registry.register(
            "broker_position",
            "The last message of a stream that this node has read",
            self.positions.clone(),
        );
        registry.register(
            "broker_caught_up",
            "Whether this node has read a stream up to its end, and follows it",
            self.caught_up.clone(),
        );
        registry.register(
            "broker_opened",
            "How often a stream was opened: once, again after each failure, and at each change of what this node hears",
            self.opened.clone(),
        );
        registry.register(
            "broker_losses",
            "Places of a stream that were gone before this node had read them, and messages that it could not read; subscribers were told",
            self.losses.clone(),
        );
        registry.register(
            "broker_by_channel",
            "1 while this node hears single channels of a stream, 0 while it hears the stream whole",
            self.by_channel.clone(),
        );
        registry.register(
            "broker_heard_messages",
            "Messages of wanted channels that came, with broker-interest = channel or auto",
            self.heard.clone(),
        );
        registry.register(
            "broker_wanted_channels",
            "Channels of a stream that this node wants, with broker-interest = channel or auto",
            self.wanted.clone(),
        );
        registry.register(
            "broker_channels_behind",
            "Of these, channels that lack something, or may: it is asked for, or being read",
            self.behind.clone(),
        );
        registry.register(
            "broker_fills",
            "How often publications of one channel were read from the stream: when it was first wanted, after each gap, and if it lacked something when the stream was opened",
            self.filled.clone(),
        );
        registry.register(
            "broker_unreadable_messages",
            "Messages that no node wrote and that cannot be read, or are in the stream of another namespace",
            self.unreadable.clone(),
        );
        registry.register(
            "broker_live_dropped",
            "Publications without history that came faster than this node delivered them",
            self.live_dropped.clone(),
        );
    }

    fn register_publications(&self, registry: &mut Registry) {
        registry.register(
            "broker_publications",
            "Publications that were taken to the broker, by outcome",
            self.publications.clone(),
        );
        // An alert on what grows does not see a counter that begins with its first event.
        for outcome in Outcome::ALL {
            drop(self.publications(outcome));
        }
    }

    pub(super) fn set_connected(&self, is_connected: bool) {
        self.connected.set(is_connected.into());
    }

    pub(super) fn count(&self, outcome: Outcome) {
        self.publications(outcome).inc();
    }

    fn publications(&self, outcome: Outcome) -> Counter {
        let outcome = outcome.label();
        let labels = OutcomeLabels { outcome };
        self.publications.get_or_create(&labels).clone()
    }

    pub(super) fn set_under_way(&self, count: usize) {
        self.under_way.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    pub(super) fn count_unreadable(&self) {
        self.unreadable.inc();
    }

    pub(super) fn count_live_dropped(&self) {
        self.live_dropped.inc();
    }

    /// The figures of one stream.
    pub(super) fn of(&self, stream: &str) -> StreamCounts {
        let labels = StreamLabels {
            stream: stream.to_owned(),
        };
        StreamCounts {
            position: self.positions.get_or_create(&labels).clone(),
            caught_up: self.caught_up.get_or_create(&labels).clone(),
            opened: self.opened.get_or_create(&labels).clone(),
            losses: self.losses.get_or_create(&labels).clone(),
            by_channel: self.by_channel.get_or_create(&labels).clone(),
            heard: self.heard.get_or_create(&labels).clone(),
            wanted: self.wanted.get_or_create(&labels).clone(),
            behind: self.behind.get_or_create(&labels).clone(),
            filled: self.filled.get_or_create(&labels).clone(),
        }
    }
}

/// The figures of one stream.
#[derive(Clone, Debug)]
pub(super) struct StreamCounts {
    pub(super) position: Gauge,
    pub(super) caught_up: Gauge,
    pub(super) opened: Counter,
    pub(super) losses: Counter,
    pub(super) by_channel: Gauge,
    pub(super) heard: Counter,
    pub(super) wanted: Gauge,
    pub(super) behind: Gauge,
    pub(super) filled: Counter,
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::encoding::text::encode;

    #[test]
    fn outcomes_are_shown_before_they_happen() {
        let mut registry = Registry::default();
        let counts = BrokerCounts::default();
        counts.register(&mut registry);
        counts.count(Outcome::Refused);
        let mut text = String::new();
        encode(&mut text, &registry).expect("text");
        for (outcome, count) in [
            ("stored", 0),
            ("sent", 0),
            ("unavailable", 0),
            ("refused", 1),
        ] {
            let line = format!("broker_publications_total{{outcome=\"{outcome}\"}} {count}\n");
            assert!(text.contains(&line), "{line}{text}");
        }
    }
}
