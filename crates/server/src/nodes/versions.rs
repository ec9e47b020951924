//! Nodes of other versions, as there are while a cluster is updated.

use super::Nodes;
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// Nodes that are remembered. Names of nodes are new with each start.
const NAMED_MAX: usize = 1_000;
/// Bytes of the reason in the log. It may quote what a node has sent.
const WHY_BYTES_MAX: usize = 600;

/// The nodes that the log has named.
#[derive(Debug, Default)]
pub(super) struct OtherVersions(Mutex<BTreeSet<Box<str>>>);

impl OtherVersions {
    /// Names all nodes anew.
    pub(super) fn forget(&self) {
        let mut named = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        named.clear();
    }

    /// Whether a node is not named yet. From now on it is.
    fn note(&self, node: &str) -> bool {
        let mut named = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if named.contains(node) {
            return false;
        }
        if named.len() >= NAMED_MAX {
            named.clear();
        }
        named.insert(node.into())
    }
}

impl Nodes {
    /// A node answers in a form that this one does not know, or refuses a request that this one takes. `why` names the node, and says what
    /// is wrong. The log has it once for each node.
    pub(crate) fn remark_other_version(&self, node: &str, why: &str) {
        if self.other_versions.note(node) {
            tracing::warn!("{}", sentence(why));
        }
    }

    /// A node says hello that has other namespaces than this one. The log has it once for each node.
    pub(super) fn remark_other_namespaces(&self, node: &str) {
        if self.other_namespaces.note(node) {
            self.counts.count_other_namespaces();
            tracing::warn!(
                "node {node} has other namespaces than this one, or is of another cluster with the same broker-prefix: all nodes of a cluster need the same names, history, presence, join_leave and broker-partitions, and each cluster a prefix of its own"
            );
        }
    }

    /// A node says hello that verifies tokens by other keys than this one. The log has it once for each node.
    pub(super) fn remark_other_keys(&self, node: &str) {
        if self.other_keys.note(node) {
            self.counts.count_other_keys();
            tracing::warn!(
                "node {node} verifies tokens by other keys than this one, or is of another cluster with the same broker-prefix: give all nodes of a cluster the same client.token and client.subscription_token, and each cluster a prefix of its own"
            );
        }
    }
}

fn sentence(why: &str) -> String {
    let why = &why[..why.floor_char_boundary(WHY_BYTES_MAX)];
    format!("{why}; its clients are missing in lists until all nodes have one version")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_has_the_reason_but_no_more_of_it_than_a_line() {
        let said =
            sentence("node b answers in a form of another version: missing field `presence`");
        assert!(said.contains("missing field `presence`; its clients are missing in lists"));
        assert!(sentence(&"é".repeat(1 << 20)).len() < WHY_BYTES_MAX + 100);
    }

    #[test]
    fn each_node_is_named_once() {
        let versions = OtherVersions::default();
        assert!(versions.note("a") && versions.note("b"));
        assert!(!versions.note("a") && !versions.note("b"));
        (0..NAMED_MAX).for_each(|node| assert!(versions.note(&node.to_string())));
        assert!(versions.note("a"), "that was long ago");
        versions.forget();
        assert!(versions.note("a"), "it is named anew");
    }
}
