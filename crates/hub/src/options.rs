//! What a channel may do and what it keeps, by its namespace.
//!
//! Names and meanings are those that users of Centrifugo know; `slow_consumer`, `batch_delay`, `exclude_sender` and
//! `join_leave_by` are our own.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Who has a right to something in a channel. A client has it if one of these says so; an anonymous client needs
/// `anonymous` besides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Right {
    /// Every client.
    pub client: bool,
    /// Every subscriber of the channel. Of no meaning for the right to subscribe.
    pub subscriber: bool,
    /// Anonymous clients, where one of the others gives the right.
    pub anonymous: bool,
}

impl Right {
    /// Everybody.
    pub const ALL: Self = Self {
        client: true,
        subscriber: true,
        anonymous: true,
    };

    /// Whether a client has the right.
    #[must_use]
    pub fn allows(self, is_anonymous: bool, is_subscribed: bool) -> bool {
        (self.client || self.subscriber && is_subscribed) && (self.anonymous || !is_anonymous)
    }
}

/// What a subscriber gets who comes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecoveryMode {
    /// Everything it missed.
    #[default]
    Stream,
    /// The newest publication.
    Cache,
}

/// What a publication's data must be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DataFormat {
    /// Anything but nothing.
    #[default]
    NonEmpty,
    /// JSON.
    Json,
    /// A JSON object.
    JsonObject,
    /// Anything, even nothing.
    Binary,
}

/// What happens to a subscriber whose queue is over its budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SlowConsumer {
    /// Its connection ends with code 3008; it comes back and recovers.
    #[default]
    Disconnect,
    /// The oldest publications that wait for it are dropped. For data of which each value stands alone.
    DropOldest,
    /// A publication replaces the one that waits, as soon as the subscriber is behind at all. For data of which the newest
    /// value is enough.
    KeepLatest,
    /// The channel's publications that wait are dropped, and the subscriber is told that it missed some (unsubscribe code
    /// 2500): it subscribes again and recovers from history, while its connection and its other channels go on.
    GapThenRecover,
}

/// Whose joins and leaves are announced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JoinLeaveBy {
    /// Each client's.
    #[default]
    Client,
    /// Each user's: the join of his first client, the leave of his last one.
    User,
}

/// The options of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChannelOptions {
    /// Member lists can be asked for.
    pub presence: bool,
    /// Joins and leaves are announced to subscribers who wish it.
    pub join_leave: bool,
    /// Joins and leaves are announced to all subscribers.
    pub force_push_join_leave: bool,
    /// Whose they are.
    pub join_leave_by: JoinLeaveBy,
    /// Publications that history keeps; 0: no history.
    pub history_size: u32,
    /// How long history keeps a publication; zero: no history.
    pub history_ttl: Duration,
    /// How long the channel's position is kept after its last use; at least `history_ttl`.
    pub history_meta_ttl: Duration,
    /// Positions for all subscribers.
    pub force_positioning: bool,
    /// Positions for subscribers who wish it.
    pub allow_positioning: bool,
    /// Recovery for all subscribers; needs history.
    pub force_recovery: bool,
    /// Recovery for subscribers who wish it.
    pub allow_recovery: bool,
    /// What is recovered.
    pub recovery_mode: RecoveryMode,
    /// Recovery in cache mode also for a subscriber that does not ask for it.
    pub auto_cache_recover: bool,
    /// Subscribers may ask for deltas (Fossil).
    pub allow_fossil_delta: bool,
    /// Every publication is offered as a delta.
    pub delta_publish: bool,
    /// Subscribers may filter by tags.
    pub allow_tags_filter: bool,
    /// Who may subscribe.
    pub subscribe: Right,
    /// Who may publish.
    pub publish: Right,
    /// Who may read member lists.
    pub presence_read: Right,
    /// Who may read history.
    pub history_read: Right,
    /// Names after the last `#` are the ids of the only users who may subscribe.
    pub allow_user_limited_channels: bool,
    /// What the name after the namespace must match; none: any ASCII.
    pub channel_pattern: Option<ChannelPattern>,
    /// What publications must be.
    pub data_format: DataFormat,
    /// What happens to subscribers who fall behind.
    pub slow_consumer: SlowConsumer,
    /// Publications of so much time leave together, as one frame. Zero: each leaves at once.
    pub batch_delay: Duration,
    /// A client does not get its own publications as they happen. Its history shows them.
    pub exclude_sender: bool,
}

impl ChannelOptions {
    /// Whether publications are kept.
    #[must_use]
    pub fn has_history(&self) -> bool {
        self.history_size > 0 && !self.history_ttl.is_zero()
    }
}

/// A regular expression for names.
#[derive(Clone, Debug)]
pub struct ChannelPattern(regex::Regex);

impl ChannelPattern {
    /// # Errors
    /// `pattern` is no regular expression, or a very large one.
    pub fn new(pattern: &str) -> Result<Self, regex::Error> {
        regex::Regex::new(pattern).map(Self)
    }

    /// Whether a name matches.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        self.0.is_match(name)
    }
}

impl PartialEq for ChannelPattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

impl Eq for ChannelPattern {}

/// All namespaces of a server.
#[derive(Clone, Debug, Default)]
pub struct Namespaces {
    without: Arc<ChannelOptions>,
    named: HashMap<Box<str>, Arc<ChannelOptions>>,
}

impl Namespaces {
    /// Between a namespace and the rest of a channel's name.
    pub const BOUNDARY: char = ':';
    /// Before the names of channels that need a token.
    pub const PRIVATE_PREFIX: char = '$';

    /// The options of channels without a namespace, and those of each namespace.
    #[must_use]
    pub fn new(
        without: ChannelOptions,
        named: impl IntoIterator<Item = (Box<str>, ChannelOptions)>,
    ) -> Self {
        let named = named.into_iter();
        Self {
            without: Arc::new(without),
            named: named
                .map(|(name, options)| (name, Arc::new(options)))
                .collect(),
        }
    }

    /// The namespace of a channel: what is before the first `:`, without a `$` at the start. None if there is no `:`.
    #[must_use]
    pub fn name_of(channel: &str) -> Option<&str> {
        let name = channel
            .strip_prefix(Self::PRIVATE_PREFIX)
            .unwrap_or(channel);
        name.split_once(Self::BOUNDARY)
            .map(|(namespace, _)| namespace)
    }

    /// The options of a channel; none if its namespace does not exist.
    #[must_use]
    pub fn options_of(&self, channel: &str) -> Option<&Arc<ChannelOptions>> {
        match Self::name_of(channel) {
            None => Some(&self.without),
            Some(namespace) => self.named.get(namespace),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ChannelOptions, Namespaces, Right};

    #[test]
    fn the_text_before_the_first_colon_is_the_namespace() {
        let options = |history_size| ChannelOptions {
            history_size,
            ..ChannelOptions::default()
        };
        let namespaces = Namespaces::new(options(1), [("chat".into(), options(2))]);
        let size = |channel| {
            let options = namespaces.options_of(channel);
            options.map(|options| options.history_size)
        };
        for (channel, expected) in [
            ("news", Some(1)),
            ("$news", Some(1)),
            ("chat:a", Some(2)),
            ("$chat:a:b", Some(2)),
            ("chat:", Some(2)),
            ("other:a", None),
            (":a", None),
            ("a$chat:b", None),
        ] {
            assert_eq!(size(channel), expected, "{channel}");
        }
    }

    #[test]
    fn an_anonymous_client_needs_two_rights() {
        let right = |client, subscriber, anonymous| Right {
            client,
            subscriber,
            anonymous,
        };
        assert!(right(true, false, false).allows(false, false));
        assert!(!right(true, true, false).allows(true, true));
        assert!(right(false, true, true).allows(true, true));
        assert!(!right(false, true, true).allows(false, false));
        assert!(!right(false, false, true).allows(true, true));
    }
}
