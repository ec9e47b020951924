//! What a channel may do and what it keeps, by its namespace.
//!
//! Names and meanings are those that users of Centrifugo know; `slow_consumer`, `batch_delay`, `exclude_sender` and
//! `join_leave_by` are our own.

use crate::{LogId, Partitions, Payload};
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

/// What a subscriber gets when it comes back.
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

impl DataFormat {
    /// Whether a publication's data may be this. Text never counts as JSON, whatever is in it.
    #[must_use]
    pub fn takes(self, payload: &Payload) -> bool {
        if payload.bytes().is_empty() {
            return self == Self::Binary;
        }
        match (self, payload) {
            (Self::NonEmpty | Self::Binary, _)
            | (Self::Json, Payload::Json(_) | Payload::JsonBytes(_)) => true,
            (Self::JsonObject, Payload::Json(json) | Payload::JsonBytes(json)) => {
                json.trim_ascii_start().starts_with('{')
            }
            (Self::Json | Self::JsonObject, _) => false,
        }
    }
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
    /// The subscription ends behind what waits already, with unsubscribe code 2500. The client subscribes again and recovers
    /// the rest from history. Its connection and its other channels go on.
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
    /// The history is in memory alone, even where the server has a disk for histories.
    pub history_in_memory: bool,
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
    /// Who may close and delete the channel as a stream, and give it a time to live.
    pub stream_end: Right,
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
    /// What the application is asked.
    pub proxies: ChannelProxies,
    /// The logs that order channels with history; none: their home does.
    pub logs: Option<Partitions>,
}

/// Names of the proxies that decide for the application what clients may do in a channel; none where nobody is asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChannelProxies {
    /// About each subscription without a token.
    pub subscribe: Option<Arc<str>>,
    /// About each publication by a client.
    pub publish: Option<Arc<str>>,
    /// About each subscription that expires.
    pub sub_refresh: Option<Arc<str>>,
}

impl ChannelOptions {
    /// The list of users in a channel's name; none where names have none.
    #[must_use]
    pub fn users_of<'a>(&self, channel: &'a str) -> Option<&'a str> {
        let parts = channel.rsplit_once(Namespaces::USER_BOUNDARY)?;
        self.allow_user_limited_channels.then_some(parts.1)
    }

    /// Whether publications are kept.
    #[must_use]
    pub fn has_history(&self) -> bool {
        self.history_size > 0 && !self.history_ttl.is_zero()
    }

    /// Whether they are to be on the disk, where the server has one for them. Where a log orders the channel they are in the log.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        !self.history_in_memory && self.has_history() && self.logs.is_none()
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
#[derive(Clone, Debug)]
pub struct Namespaces {
    without: Arc<ChannelOptions>,
    named: HashMap<Box<str>, Arc<ChannelOptions>>,
    name_bytes_max: usize,
}

impl Default for Namespaces {
    fn default() -> Self {
        Self::new(ChannelOptions::default(), [])
    }
}

/// Why a client may not use a name. The client erred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameError {
    /// No name at all.
    Empty,
    /// More bytes than a name may have.
    TooLong,
    /// The namespace does not exist.
    UnknownNamespace,
    /// Not ASCII, or not what the namespace's pattern asks for.
    Invalid,
    /// The name begins with `$`, and the client showed no subscription token.
    Private,
    /// The name ends in a list of users, and this one is not in it.
    OtherUsers,
}

/// A channel to which a client may subscribe as far as the name is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subscribable<'a> {
    /// The options of its namespace.
    pub options: &'a Arc<ChannelOptions>,
    /// The name lists this user, which is a right to subscribe. Otherwise a token or [`ChannelOptions::subscribe`] decides.
    pub names_user: bool,
}

impl Namespaces {
    /// Between a namespace and the rest of a channel's name.
    pub const BOUNDARY: char = ':';
    /// Before the names of channels that need a token.
    pub const PRIVATE_PREFIX: char = '$';
    /// Before the list of the users who may subscribe.
    pub const USER_BOUNDARY: char = '#';
    /// Between two users of that list.
    pub const USER_SEPARATOR: char = ',';
    /// Bytes of a name, unless [`Namespaces::with_name_bytes_max`] says otherwise.
    pub const NAME_BYTES_MAX: usize = 255;

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
            name_bytes_max: Self::NAME_BYTES_MAX,
        }
    }

    /// Bytes of a name.
    #[must_use]
    pub fn name_bytes_max(&self) -> usize {
        self.name_bytes_max
    }

    /// The same with another bound for the bytes of a name.
    #[must_use]
    pub fn with_name_bytes_max(self, name_bytes_max: usize) -> Self {
        Self {
            name_bytes_max,
            ..self
        }
    }

    /// What `--dev` has without a configuration of one's own: every client may do everything in channels without a
    /// namespace, and these keep members and some history.
    #[must_use]
    pub fn development() -> Self {
        let options = ChannelOptions {
            presence: true,
            join_leave: true,
            history_size: 100,
            history_ttl: Duration::from_secs(300),
            history_meta_ttl: Duration::from_hours(720),
            force_recovery: true,
            allow_fossil_delta: true,
            allow_tags_filter: true,
            subscribe: Right::ALL,
            publish: Right::ALL,
            presence_read: Right::ALL,
            history_read: Right::ALL,
            stream_end: Right::ALL,
            ..ChannelOptions::default()
        };
        Self::new(options, [])
    }

    /// The options of a channel that a client names to publish, or to read history or members.
    ///
    /// These rules bind clients with a session and readers with a token. Whoever has neither is judged by whether the name is for
    /// everybody, and the server API asks for [`Namespaces::options_of`] only.
    ///
    /// # Errors
    /// The first of these that holds: the name is empty, too long, of an unknown namespace, or invalid.
    pub fn check_name(&self, channel: &str) -> Result<&Arc<ChannelOptions>, NameError> {
        if channel.is_empty() {
            return Err(NameError::Empty);
        }
        if channel.len() > self.name_bytes_max {
            return Err(NameError::TooLong);
        }
        let options = self.options_of(channel);
        let options = options.ok_or(NameError::UnknownNamespace)?;
        let is_valid = match &options.channel_pattern {
            None => channel.is_ascii(),
            Some(pattern) => pattern.matches(Self::rest_of(channel)),
        };
        if is_valid {
            Ok(options)
        } else {
            Err(NameError::Invalid)
        }
    }

    /// The options of a channel to which a client wishes to subscribe.
    ///
    /// `user` is empty for an anonymous client, whom no list of users can name. With `has_token` the client showed a
    /// subscription token for this channel. The token's own check decides then, not the name.
    ///
    /// # Errors
    /// As [`Namespaces::check_name`], then: the channel is private, or belongs to other users.
    pub fn check_subscribable(
        &self,
        channel: &str,
        user: &str,
        has_token: bool,
    ) -> Result<Subscribable<'_>, NameError> {
        let options = self.check_name(channel)?;
        if !has_token && channel.starts_with(Self::PRIVATE_PREFIX) {
            return Err(NameError::Private);
        }
        let users = options.users_of(channel);
        let names_user = users.is_some_and(|users| Self::names(users, user));
        if users.is_some() && !names_user && !has_token {
            return Err(NameError::OtherUsers);
        }
        Ok(Subscribable {
            options,
            names_user,
        })
    }

    /// Whether a list of users in a channel's name has this one, who is empty if anonymous.
    #[must_use]
    pub fn names(users: &str, user: &str) -> bool {
        !user.is_empty() && users.split(Self::USER_SEPARATOR).any(|one| one == user)
    }

    /// What the patterns of names see: a channel's name without its namespace and without a `$` at the start.
    fn rest_of(channel: &str) -> &str {
        let name = channel
            .strip_prefix(Self::PRIVATE_PREFIX)
            .unwrap_or(channel);
        match Self::name_of(channel) {
            Some(namespace) => &name[namespace.len() + Self::BOUNDARY.len_utf8()..],
            None => name,
        }
    }

    /// The same where logs order the channels with history: so many for each namespace that keeps some.
    ///
    /// # Panics
    /// No logs, or more than [`LogId`] can name.
    #[must_use]
    pub fn with_logs(mut self, partitions: u16) -> Self {
        assert!(partitions > 0, "something has to order them");
        let mut names: Vec<Box<str>> = self.named.keys().cloned().collect();
        names.sort_unstable();
        let named = names.iter().map(|name| Some(&**name));
        let mut next = 0;
        for name in std::iter::once(None).chain(named) {
            let options = match name {
                None => &mut self.without,
                Some(name) => self.named.get_mut(name).expect("one of its names"),
            };
            if options.has_history() {
                Arc::make_mut(options).logs = Some(Partitions {
                    first: LogId(next),
                    count: partitions,
                });
                next = next.checked_add(partitions).expect("fewer logs");
            }
        }
        self
    }

    /// The names of all namespaces.
    pub fn namespace_names(&self) -> impl Iterator<Item = &str> {
        self.named.keys().map(|name| &**name)
    }

    /// The namespaces that keep a history here and none in `other`, by name; none for channels without a namespace.
    #[must_use]
    pub fn histories_missing_in(&self, other: &Self) -> Vec<Option<&str>> {
        let named = self.named.iter();
        let named = named.map(|(name, options)| (Some(&**name), options, other.named.get(name)));
        let all = std::iter::once((None, &self.without, Some(&other.without))).chain(named);
        let mut missing: Vec<_> = all
            .filter(|(_, options, now)| {
                options.has_history() && !now.is_some_and(|now| now.has_history())
            })
            .map(|(name, ..)| name)
            .collect();
        missing.sort_unstable();
        missing
    }

    /// How many namespaces keep a history, with that of channels without one.
    #[must_use]
    pub fn with_history(&self) -> usize {
        let options = std::iter::once(&self.without).chain(self.named.values());
        options.filter(|options| options.has_history()).count()
    }

    /// The namespaces whose channels logs order, by the ids of these: the name of the namespace, none for channels without one, and its
    /// options.
    #[must_use]
    pub fn with_history_in_logs(&self) -> Vec<(Option<Box<str>>, Arc<ChannelOptions>)> {
        let named = self.named.iter();
        let named = named.map(|(name, options)| (Some(name.clone()), Arc::clone(options)));
        let without = (None, Arc::clone(&self.without));
        let mut logs: Vec<_> = std::iter::once(without)
            .chain(named)
            .filter(|(_, options)| options.logs.is_some())
            .collect();
        logs.sort_by_key(|(_, options)| options.logs.map(|logs| logs.first));
        logs
    }

    /// What all nodes of a cluster have to agree on, as text: names, and what a channel is by its options. How much of a history is kept,
    /// and who may do what, may differ for a while.
    #[must_use]
    pub fn common_text(&self) -> String {
        let named = self.named.iter().map(|(name, options)| (&**name, options));
        let mut all: Vec<_> = named.chain([("", &self.without)]).collect();
        all.sort_by_key(|(name, _)| *name);
        let lines = all.into_iter().map(|(name, options)| {
            let ChannelOptions {
                presence,
                join_leave,
                join_leave_by,
                ..
            } = **options;
            let partitions = options.logs.map_or(0, |logs| logs.count);
            let keeps = options.has_history();
            format!(
                "{name} history {keeps} in {partitions}, presence {presence}, joins {join_leave} {join_leave_by:?}\n"
            )
        });
        lines.collect()
    }

    /// How many logs order channels.
    #[must_use]
    pub fn log_count(&self) -> usize {
        let options = std::iter::once(&self.without).chain(self.named.values());
        let logs = options.filter_map(|options| options.logs);
        logs.map(|logs| usize::from(logs.count)).sum()
    }

    /// The namespace of a channel: what is before the first `:`, without a `$` at the start. None if there is no `:`, or if it is
    /// behind a `#`. There it belongs to the id of a user: many identity providers give out ids such as `us-east-1:550e8400`.
    #[must_use]
    pub fn name_of(channel: &str) -> Option<&str> {
        let name = channel
            .strip_prefix(Self::PRIVATE_PREFIX)
            .unwrap_or(channel);
        let (namespace, _) = name.split_once(Self::BOUNDARY)?;
        (!namespace.contains(Self::USER_BOUNDARY)).then_some(namespace)
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
    use super::{ChannelOptions, ChannelPattern, NameError, Namespaces, Right};
    use proptest::prelude::*;

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
            // The id of a user may have colons.
            ("#chat:7", Some(1)),
            ("room#chat:7,us:8", Some(1)),
            ("$#other:7", Some(1)),
            ("chat:#us-east-1:7", Some(2)),
            ("chat:room#f:7", Some(2)),
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

    fn named() -> Namespaces {
        let limited = ChannelOptions {
            allow_user_limited_channels: true,
            ..ChannelOptions::default()
        };
        let digits = ChannelOptions {
            channel_pattern: ChannelPattern::new("^[0-9é]+$").ok(),
            ..ChannelOptions::default()
        };
        Namespaces::new(
            ChannelOptions::default(),
            [("user".into(), limited), ("digits".into(), digits)],
        )
        .with_name_bytes_max(20)
    }

    #[test]
    fn a_name_is_refused_by_the_first_rule_it_breaks() {
        use NameError::{Empty, Invalid, TooLong, UnknownNamespace};
        let namespaces = named();
        for (channel, expected) in [
            ("", Err(Empty)),
            ("news", Ok(())),
            ("a-name-of-20-bytes..", Ok(())),
            ("a-name-of-21-bytes...", Err(TooLong)),
            ("other:a-name-too-long", Err(TooLong)),
            ("other:a", Err(UnknownNamespace)),
            ("other:é", Err(UnknownNamespace)),
            ("é", Err(Invalid)),
            ("user:é", Err(Invalid)),
            ("digits:12", Ok(())),
            ("digits:1é", Ok(())),
            ("$digits:12", Ok(())),
            ("digits:a", Err(Invalid)),
            ("digits:", Err(Invalid)),
            ("$news", Ok(())),
        ] {
            assert_eq!(
                namespaces.check_name(channel).map(|_| ()),
                expected,
                "{channel}"
            );
        }
    }

    #[test]
    fn private_channels_need_a_token_and_those_of_users_their_user() {
        use NameError::{Invalid, OtherUsers, Private};
        let namespaces = named();
        for (channel, user, has_token, expected) in [
            ("news", "", false, Ok(false)),
            ("$news", "42", false, Err(Private)),
            ("$news", "42", true, Ok(false)),
            ("$é", "42", false, Err(Invalid)),
            // Without the option `#` has no meaning.
            ("news#7", "42", false, Ok(false)),
            ("user:a", "42", false, Ok(false)),
            ("user:a#42", "42", false, Ok(true)),
            ("user:a#7,42", "42", false, Ok(true)),
            ("user:a#7", "42", false, Err(OtherUsers)),
            ("user:a#42#7", "42", false, Err(OtherUsers)),
            ("user:a#421", "42", false, Err(OtherUsers)),
            ("user:a#7", "42", true, Ok(false)),
            ("$user:a#42", "42", false, Err(Private)),
            ("user:a#", "", false, Err(OtherUsers)),
            ("user:a#7,", "", false, Err(OtherUsers)),
        ] {
            let checked = namespaces.check_subscribable(channel, user, has_token);
            assert_eq!(
                checked.map(|channel| channel.names_user),
                expected,
                "{channel} {user}"
            );
        }
    }

    #[test]
    fn in_development_everybody_may_do_everything() {
        let namespaces = Namespaces::development();
        let options = namespaces.check_name("anything").unwrap();
        assert!(options.has_history() && options.force_recovery && options.presence);
        assert!(options.history_meta_ttl >= options.history_ttl);
        for right in [
            options.subscribe,
            options.publish,
            options.presence_read,
            options.history_read,
            options.stream_end,
        ] {
            assert!(right.allows(true, false));
        }
        assert!(namespaces.check_name("other:a").is_err());
    }

    proptest! {
        #[test]
        fn names_of_any_text_are_judged(channel in "(?s)(\\$|user:|digits:|other:)?.{0,12}", user in "(?s).{0,3}", has_token: bool) {
            let namespaces = named();
            let checked = namespaces.check_name(&channel);
            if let Ok(options) = checked {
                prop_assert!(options.channel_pattern.is_some() || channel.is_ascii());
                prop_assert!((1..=20).contains(&channel.len()));
            }
            let subscribable = namespaces.check_subscribable(&channel, &user, has_token);
            prop_assert!(checked.is_ok() || subscribable.is_err());
            prop_assert!(!subscribable.is_ok_and(|channel| channel.names_user) || !user.is_empty());
        }
    }
}
