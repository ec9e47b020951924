//! Nodes of other versions, as there are while a cluster is updated.

use super::Nodes;
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// Nodes that are remembered. Names of nodes are new with each start.
const NAMED_MAX: usize = 1_000;

/// The nodes that the log has named.
#[derive(Debug, Default)]
pub(super) struct OtherVersions(Mutex<BTreeSet<Box<str>>>);

impl OtherVersions {
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
    /// A node answers in a form that this one does not know. Says so in the log, once for each node.
    pub(crate) fn remark_other_version(&self, node: &str) {
        if self.other_versions.note(node) {
            tracing::warn!(
                "node {node} answers in a form of another version: its clients are missing in lists until all nodes have one version"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_is_named_once() {
        let versions = OtherVersions::default();
        assert!(versions.note("a") && versions.note("b"));
        assert!(!versions.note("a") && !versions.note("b"));
        (0..NAMED_MAX).for_each(|node| assert!(versions.note(&node.to_string())));
        assert!(versions.note("a"), "that was long ago");
    }
}
