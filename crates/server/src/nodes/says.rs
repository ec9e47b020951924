//! What a node says of itself with each hello.

use crate::broker::State;
use aws_lc_rs::digest::{SHA256, digest};
use myriad_shard::Namespaces;
use std::fmt::Write as _;
use std::sync::Arc;

/// Bytes of the digest that are told. It shows mistakes, and keeps out nobody.
const DIGEST_BYTES: usize = 8;

/// What a node says of itself.
#[derive(Debug)]
pub(crate) struct Says {
    common: String,
    state: Arc<State>,
}

impl Says {
    pub(crate) fn new(namespaces: &Namespaces, state: Arc<State>) -> Self {
        let common = digest_of(&namespaces.common_text());
        Self { common, state }
    }

    /// A digest of what all nodes have to agree on.
    pub(super) fn common(&self) -> &str {
        &self.common
    }

    /// Whether this node hears all of its logs.
    pub(super) fn hears(&self) -> bool {
        self.state.hearing.deaf().is_none()
    }
}

fn digest_of(text: &str) -> String {
    let bytes = digest(&SHA256, text.as_bytes());
    let mut hex = String::new();
    for byte in &bytes.as_ref()[..DIGEST_BYTES] {
        write!(hex, "{byte:02x}").expect("memory takes what is written");
    }
    hex
}

#[cfg(test)]
mod tests {
    use super::*;
    use myriad_shard::ChannelOptions;

    /// The digest of a node with this namespace.
    fn common(name: &str, options: ChannelOptions) -> String {
        let namespaces = Namespaces::new(ChannelOptions::default(), [(name.into(), options)]);
        digest_of(&namespaces.common_text())
    }

    #[test]
    fn what_nodes_have_to_agree_on_has_a_digest() {
        let plain = ChannelOptions::default;
        let present = || ChannelOptions {
            presence: true,
            ..plain()
        };
        let kept = |history_size| ChannelOptions {
            history_size,
            history_ttl: std::time::Duration::from_secs(9),
            ..plain()
        };
        let ours = common("a", plain());
        assert_eq!(ours.len(), 2 * DIGEST_BYTES);
        for other in [
            common("b", plain()),
            common("a", present()),
            common("a", kept(5)),
        ] {
            assert_ne!(other, ours);
        }
        // These change node by node.
        assert_eq!(common("a", kept(5)), common("a", kept(6)));
    }
}
