//! What a node says of itself with each hello.

use crate::broker::State;
use crate::hex::hex;
use aws_lc_rs::digest::{Context, SHA256, digest};
use myriad_shard::Namespaces;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

/// Bytes of the digest that are told. It shows mistakes, and keeps out nobody.
const DIGEST_BYTES: usize = 8;

/// What a node says of itself.
#[derive(Debug)]
pub(crate) struct Says {
    common: String,
    keys: AtomicU16,
    state: Arc<State>,
}

/// A mark of the keys that verify tokens. Nodes of one cluster have the same one.
///
/// It has two bytes of a digest: a mistake hides in one of 65,536 cases, and nobody who hears it can try secrets with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeysMark(u16);

impl KeysMark {
    /// The mark of these values, in this order.
    pub(crate) fn of<'a>(values: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut context = Context::new(&SHA256);
        for value in values {
            // Its length first: no two lists of values are one text.
            context.update(&(value.len() as u64).to_be_bytes());
            context.update(value);
        }
        let digest = context.finish();
        let mark = digest.as_ref().first_chunk().copied();
        Self(mark.map_or(0, u16::from_be_bytes))
    }
}

impl Says {
    pub(crate) fn new(namespaces: &Namespaces, state: Arc<State>) -> Self {
        let common = digest_of(&namespaces.common_text());
        let keys = AtomicU16::new(KeysMark::of(std::iter::empty()).0);
        Self {
            common,
            keys,
            state,
        }
    }

    /// A digest of what all nodes have to agree on.
    pub(super) fn common(&self) -> &str {
        &self.common
    }

    /// The mark of the keys that verify tokens, in hexadecimal digits.
    pub(super) fn keys(&self) -> String {
        format!("{:04x}", self.keys.load(Ordering::Relaxed))
    }

    /// Takes another mark. Whether it is another one.
    pub(super) fn set_keys(&self, mark: KeysMark) -> bool {
        self.keys.swap(mark.0, Ordering::Relaxed) != mark.0
    }

    /// Whether this node hears all of its logs.
    pub(super) fn hears(&self) -> bool {
        self.state.hearing.deaf().is_none()
    }
}

fn digest_of(text: &str) -> String {
    let bytes = digest(&SHA256, text.as_bytes());
    hex(&bytes.as_ref()[..DIGEST_BYTES])
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
    fn keys_have_a_mark_that_depends_on_each_value_and_its_place() {
        let mark = |values: &[&str]| KeysMark::of(values.iter().map(|value| value.as_bytes()));
        assert_eq!(mark(&["secret", ""]), mark(&["secret", ""]));
        for other in [
            mark(&["secret2", ""]),
            mark(&["", "secret"]),
            mark(&["secre", "t"]),
            mark(&["secret"]),
        ] {
            assert_ne!(other, mark(&["secret", ""]));
        }
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
