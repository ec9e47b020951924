//! Figures of what nodes ask each other.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

/// What a node may differ in.
const NAMESPACES: &str = "namespaces";
const KEYS: &str = "keys";

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

/// All clones count together.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodesCounts {
    others: Gauge,
    asked: Family<OutcomeLabels, Counter>,
    unreadable: Counter,
    unnamed_refused: Counter,
    unlike: Family<ReasonLabels, Counter>,
}

impl NodesCounts {
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "nodes_others",
            "Other nodes of the cluster that this node has heard within 3.5 seconds",
            self.others.clone(),
        );
        registry.register(
            "nodes_asked",
            "Questions to other nodes, one for each node that was asked, by outcome",
            self.asked.clone(),
        );
        registry.register(
            "nodes_unreadable_messages",
            "Joins and leaves with a header of ours that no node wrote",
            self.unreadable.clone(),
        );
        registry.register(
            "nodes_unnamed_commands_refused",
            "Commands for a session whose node was not named, which were not brought to all nodes because too many came",
            self.unnamed_refused.clone(),
        );
        registry.register(
            "nodes_unlike",
            "Nodes that do not agree with this one on what all nodes of a cluster need, by reason; each counts once",
            self.unlike.clone(),
        );
        for reason in [NAMESPACES, KEYS] {
            drop(self.unlike.get_or_create(&ReasonLabels { reason }));
        }
        self.count_answered(0);
        self.count_unanswered(0);
    }

    pub(crate) fn count_unnamed_refused(&self) {
        self.unnamed_refused.inc();
    }

    pub(super) fn count_other_namespaces(&self) {
        self.count_unlike(NAMESPACES);
    }

    pub(super) fn count_other_keys(&self) {
        self.count_unlike(KEYS);
    }

    fn count_unlike(&self, reason: &'static str) {
        self.unlike.get_or_create(&ReasonLabels { reason }).inc();
    }

    pub(super) fn set_others(&self, count: usize) {
        self.others.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    pub(super) fn count_unreadable(&self) {
        self.unreadable.inc();
    }

    pub(super) fn count_answered(&self, count: usize) {
        self.count("answered", count);
    }

    pub(super) fn count_unanswered(&self, count: usize) {
        self.count("unanswered", count);
    }

    fn count(&self, outcome: &'static str, count: usize) {
        let labels = OutcomeLabels { outcome };
        self.asked.get_or_create(&labels).inc_by(count as u64);
    }
}
