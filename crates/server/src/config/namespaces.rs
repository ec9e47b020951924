//! What the tables for channels and clients mean: their defaults, and the values that contradict each other.

use super::tables::{ChannelTable, ClientTable, Durability, NamespaceTable};
use super::{ConfigError, SPAN_MAX, refuse};
use myriad_shard::{
    ChannelOptions, ChannelPattern, ClientOptions, DataFormat, HttpRefusal, Namespaces,
    PersonalChannel, RecoveryMode, Right, SlowConsumer,
};
use myriad_units::option::{Count, Span};
use std::collections::HashSet;
use std::fmt::Display;
use std::time::Duration;

/// How long positions are kept, if nobody says.
const HISTORY_META_TTL_DEFAULT: Duration = Duration::from_hours(720);
/// The longest time that publications may wait for others.
const BATCH_DELAY_MAX: Duration = Duration::from_secs(10);

impl ChannelTable {
    /// What holds where no table is written: clients may subscribe where they may be anonymous, and do nothing else.
    pub(super) fn open_to_listeners(is_anonymous: bool) -> Self {
        let without_namespace = NamespaceTable {
            allow_subscribe_for_client: is_anonymous,
            allow_subscribe_for_anonymous: is_anonymous,
            ..NamespaceTable::default()
        };
        Self {
            without_namespace,
            ..Self::default()
        }
    }

    /// # Errors
    /// The first value that cannot be used.
    pub(super) fn resolve(&self) -> Result<Namespaces, ConfigError> {
        let mut named = Vec::with_capacity(self.namespaces.len());
        let mut names = HashSet::new();
        if let Some(name) = &self.without_namespace.name {
            let advice = "remove it, or write the options under [[channel.namespaces]]";
            return Err(refuse("channel.without_namespace.name", name, advice));
        }
        for (index, table) in self.namespaces.iter().enumerate() {
            let path = format!("channel.namespaces[{index}]");
            let name = table.name.as_deref().unwrap_or_default();
            if !is_namespace(name) {
                let advice = "choose 2 or more of the letters a-z and A-Z, digits, - _ and .";
                return Err(refuse(format!("{path}.name"), quoted(name), advice));
            }
            if !names.insert(name) {
                let advice = "is the name of another namespace; choose another";
                return Err(refuse(format!("{path}.name"), quoted(name), advice));
            }
            let options = self.options(&path, table);
            let options = options.map_err(|error| error.in_namespace(&path, name))?;
            named.push((name.into(), options));
        }
        let without = self.options("channel.without_namespace", &self.without_namespace)?;
        let length = number(
            "channel.max_length",
            self.max_length,
            u32::try_from(Namespaces::NAME_BYTES_MAX).unwrap_or(u32::MAX),
            1..=255,
        )?;
        Ok(Namespaces::new(without, named).with_name_bytes_max(length as usize))
    }

    /// How long a namespace keeps positions. `path` is the namespace's.
    fn history_meta_ttl(
        &self,
        path: &str,
        table: &NamespaceTable,
    ) -> Result<Duration, ConfigError> {
        let (meta_path, meta) = match (table.history_meta_ttl, self.history_meta_ttl) {
            (Some(span), _) => (format!("{path}.history_meta_ttl"), span),
            (None, written) => (
                "channel.history_meta_ttl".into(),
                written.unwrap_or(Span(HISTORY_META_TTL_DEFAULT)),
            ),
        };
        // First, so that no advice names a value that is refused.
        bounded(&format!("{path}.history_ttl"), table.history_ttl)?;
        bounded(&meta_path, meta)?;
        if meta < table.history_ttl {
            let place = match &table.name {
                Some(name) => format!("namespace {name:?}"),
                None => path.to_owned(),
            };
            let advice = format!(
                "choose at least {}, the history_ttl of {place}: history is of no use without its position",
                table.history_ttl
            );
            return Err(refuse(meta_path, meta, advice));
        }
        Ok(meta.0)
    }

    fn options(&self, path: &str, table: &NamespaceTable) -> Result<ChannelOptions, ConfigError> {
        let history_meta_ttl = self.history_meta_ttl(path, table)?;
        let right = |client, subscriber, anonymous| Right {
            client,
            subscriber,
            anonymous,
        };
        let data_format = table
            .publication_data_format
            .or(self.publication_data_format);
        let options = ChannelOptions {
            presence: table.presence,
            join_leave: table.join_leave,
            force_push_join_leave: table.force_push_join_leave,
            join_leave_by: table.join_leave_by,
            history_size: number(
                &format!("{path}.history_size"),
                Some(table.history_size),
                0,
                0..=u32::MAX,
            )?,
            history_ttl: table.history_ttl.0,
            history_meta_ttl,
            history_in_memory: table.history_durability == Some(Durability::Memory),
            force_positioning: table.force_positioning,
            allow_positioning: table.allow_positioning,
            force_recovery: table.force_recovery,
            allow_recovery: table.allow_recovery,
            recovery_mode: table.force_recovery_mode,
            auto_cache_recover: table.auto_cache_recover,
            allow_fossil_delta: !table.allowed_delta_types.is_empty(),
            delta_publish: table.delta_publish,
            allow_tags_filter: table.allow_tags_filter,
            subscribe: right(
                table.allow_subscribe_for_client,
                false,
                table.allow_subscribe_for_anonymous,
            ),
            publish: right(
                table.allow_publish_for_client,
                table.allow_publish_for_subscriber,
                table.allow_publish_for_anonymous,
            ),
            presence_read: right(
                table.allow_presence_for_client,
                table.allow_presence_for_subscriber,
                table.allow_presence_for_anonymous,
            ),
            history_read: right(
                table.allow_history_for_client,
                table.allow_history_for_subscriber,
                table.allow_history_for_anonymous,
            ),
            stream_end: right(
                table.allow_stream_end_for_client,
                false,
                table.allow_stream_end_for_anonymous,
            ),
            allow_user_limited_channels: table.allow_user_limited_channels,
            channel_pattern: pattern(path, &table.channel_regex)?,
            data_format: data_format.unwrap_or(DataFormat::NonEmpty),
            slow_consumer: table.slow_consumer,
            batch_delay: table.batch_delay.0,
            exclude_sender: table.exclude_sender,
            proxies: table.proxies(),
            logs: None,
        };
        check(path, table, &options)?;
        Ok(options)
    }
}

/// Refuses options that contradict each other, or that would do nothing.
fn check(path: &str, table: &NamespaceTable, options: &ChannelOptions) -> Result<(), ConfigError> {
    let key = |key: &str| format!("{path}.{key}");
    let has_history = options.has_history();
    bounded(&key("history_ttl"), table.history_ttl)?;
    if let Some(kind) = table
        .allowed_delta_types
        .iter()
        .find(|kind| *kind != "fossil")
    {
        let advice = "the only type of deltas is \"fossil\"";
        return Err(refuse(key("allowed_delta_types"), quoted(kind), advice));
    }
    if table.batch_delay.0 > BATCH_DELAY_MAX {
        let advice = format!("choose {} or less", Span(BATCH_DELAY_MAX));
        return Err(refuse(key("batch_delay"), table.batch_delay, advice));
    }
    if has_history != (options.history_size > 0) {
        let advice = "write history_ttl too, such as \"300s\": history needs both";
        return Err(refuse(key("history_size"), options.history_size, advice));
    }
    if has_history == options.history_ttl.is_zero() {
        let advice = "write history_size too, such as 100: history needs both";
        return Err(refuse(key("history_ttl"), table.history_ttl, advice));
    }
    let is_forced_cache = options.force_recovery && options.recovery_mode == RecoveryMode::Cache;
    let needs_history = "needs history: write history_size and history_ttl";
    // Whether the option is on, its value, whether it has what it needs, what that is.
    for (name, is_on, has_needs, advice) in [
        (
            "force_recovery",
            options.force_recovery,
            has_history,
            needs_history,
        ),
        (
            "auto_cache_recover",
            options.auto_cache_recover,
            is_forced_cache,
            "needs force_recovery = true and force_recovery_mode = \"cache\"",
        ),
        (
            "force_push_join_leave",
            options.force_push_join_leave,
            options.join_leave,
            "needs join_leave = true",
        ),
        (
            "delta_publish",
            options.delta_publish,
            options.allow_fossil_delta,
            "needs allowed_delta_types = [\"fossil\"]",
        ),
    ] {
        if is_on && !has_needs {
            return Err(refuse(key(name), true, advice));
        }
    }
    if options.allow_fossil_delta && !has_history {
        return Err(refuse(
            key("allowed_delta_types"),
            "[\"fossil\"]",
            needs_history,
        ));
    }
    if options.slow_consumer == SlowConsumer::GapThenRecover && !has_history {
        return Err(refuse(
            key("slow_consumer"),
            "\"gap_then_recover\"",
            needs_history,
        ));
    }
    Ok(())
}

impl ClientTable {
    /// `is_anonymous` is what `anonymous` and `dev` say.
    ///
    /// # Errors
    /// The first value that cannot be used.
    pub(super) fn resolve(
        &self,
        namespaces: &Namespaces,
        is_anonymous: bool,
    ) -> Result<ClientOptions, ConfigError> {
        let defaults = ClientOptions::default();
        let delay = self
            .stale_close_delay
            .unwrap_or(Span(defaults.stale_close_delay));
        bounded("client.stale_close_delay", delay)?;
        if delay.0.is_zero() {
            let advice = "choose more than zero, such as 10s";
            return Err(refuse("client.stale_close_delay", delay, advice));
        }
        let expired_close_delay = self
            .expired_close_delay
            .unwrap_or(Span(defaults.expired_close_delay));
        bounded("client.expired_close_delay", expired_close_delay)?;
        let expired_sub_close_delay = self
            .expired_sub_close_delay
            .unwrap_or(Span(defaults.expired_sub_close_delay));
        bounded("client.expired_sub_close_delay", expired_sub_close_delay)?;
        let header = &*self.user_id_http_header;
        if !header
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        {
            let advice = "choose the name of a header: letters, digits and -";
            return Err(refuse("client.user_id_http_header", quoted(header), advice));
        }
        Ok(ClientOptions {
            stale_close_delay: delay.0,
            expired_close_delay: expired_close_delay.0,
            expired_sub_close_delay: expired_sub_close_delay.0,
            history_max_publication_limit: number(
                "client.history_max_publication_limit",
                self.history_max_publication_limit,
                defaults.history_max_publication_limit,
                1..=u32::MAX,
            )?,
            recovery_max_publication_limit: number(
                "client.recovery_max_publication_limit",
                self.recovery_max_publication_limit,
                defaults.recovery_max_publication_limit,
                1..=u32::MAX,
            )?,
            tags_filter_work_limit: number(
                "client.tags_filter_work_limit",
                self.tags_filter_work_limit,
                defaults.tags_filter_work_limit,
                1..=4096,
            )?,
            tags_bytes_limit: number(
                "client.tags_bytes_limit",
                self.tags_bytes_limit,
                defaults.tags_bytes_limit,
                1..=65_536,
            )?,
            insecure: self.insecure,
            allow_anonymous_connect_without_token: self
                .allow_anonymous_connect_without_token
                .unwrap_or(is_anonymous),
            user_id_http_header: Some(header)
                .filter(|header| !header.is_empty())
                .map(|header| header.to_ascii_lowercase().into()),
            personal_channel: self.personal_channel(namespaces)?,
            http_refusals: self.http_refusals()?,
        })
    }

    fn http_refusals(&self) -> Result<Box<[HttpRefusal]>, ConfigError> {
        const KEY: &str = "client.connect_code_to_http_response";
        let mut seen = HashSet::new();
        let tables = self.connect_code_to_http_response.iter();
        let read = tables.map(|table| {
            if !(3000..5000).contains(&table.code) {
                let advice = "choose the code of a close from docs/protocol.md, 3000 to 4999";
                return Err(refuse(KEY, table.code, advice));
            }
            // A browser's event source stops at any of these.
            if !(400..600).contains(&table.status_code) {
                let advice = "choose a status_code from 400 to 599";
                return Err(refuse(KEY, table.status_code, advice));
            }
            if !seen.insert(table.code) {
                return Err(refuse(KEY, table.code, "write each code once"));
            }
            Ok(HttpRefusal {
                code: table.code,
                status: table.status_code,
                body: table.body.as_deref().map(Into::into),
            })
        });
        read.collect()
    }

    fn personal_channel(
        &self,
        namespaces: &Namespaces,
    ) -> Result<Option<PersonalChannel>, ConfigError> {
        let table = &self.subscribe_to_user_personal_channel;
        let namespace = Some(&*table.personal_channel_namespace).filter(|name| !name.is_empty());
        if let Some(name) = namespace
            && namespaces.options_of(&format!("{name}:#")).is_none()
        {
            return Err(refuse(
                "client.subscribe_to_user_personal_channel.personal_channel_namespace",
                quoted(name),
                "no such namespace; add it to [[channel.namespaces]]",
            ));
        }
        Ok(table.enabled.then(|| PersonalChannel {
            namespace: namespace.map(Into::into),
            single_connection: table.single_connection,
        }))
    }

    /// Channels of one connection.
    pub(super) fn channel_limit(&self, default: u32) -> Result<u32, ConfigError> {
        // A record of a connection counts its subscriptions in a byte.
        number("client.channel_limit", self.channel_limit, default, 1..=255)
    }
}

/// As `^[-a-zA-Z0-9_.]{2,}$`.
pub(super) fn is_namespace(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    name.len() >= 2 && name.bytes().all(is_allowed)
}

fn pattern(path: &str, text: &str) -> Result<Option<ChannelPattern>, ConfigError> {
    if text.is_empty() {
        return Ok(None);
    }
    ChannelPattern::new(text).map(Some).map_err(|error| {
        refuse(
            format!("{path}.channel_regex"),
            quoted(text),
            error.to_string(),
        )
    })
}

fn bounded(field: &str, span: Span) -> Result<(), ConfigError> {
    if span.0 > SPAN_MAX {
        Err(refuse(field.to_owned(), span, super::ADVICE_SPAN_MAX))
    } else {
        Ok(())
    }
}

fn number(
    field: &str,
    written: Option<Count>,
    default: u32,
    allowed: std::ops::RangeInclusive<u32>,
) -> Result<u32, ConfigError> {
    let Some(count) = written else {
        return Ok(default);
    };
    match u32::try_from(count.0) {
        Ok(number) if allowed.contains(&number) => Ok(number),
        _ => Err(refuse(
            field.to_owned(),
            count,
            format!("choose {} to {}", allowed.start(), allowed.end()),
        )),
    }
}

fn quoted(text: &str) -> impl Display {
    format!("{text:?}")
}

#[cfg(test)]
mod tests {
    use super::super::{Config, ConfigError, Options};
    use crate::Machine;
    use myriad_shard::{DataFormat, RecoveryMode, SlowConsumer};
    use std::path::Path;
    use std::time::Duration;

    const FILE: &str = "a.toml";

    fn resolve(text: &str) -> Result<Config, ConfigError> {
        let machine = Machine::OF_TESTS;
        Options::from_text(text, Path::new(FILE))?.resolve(&machine)
    }

    const CHANNELS: &str = include_str!("../../../../docs/channels.md");

    /// The TOML files of a page, in their order.
    fn files_of(page: &str) -> Vec<&str> {
        page.split("```toml\n")
            .skip(1)
            .map(|rest| rest.split_once("```").expect("its end").0)
            .collect()
    }

    #[test]
    fn the_recipes_let_in_whom_they_say() {
        let files = files_of(CHANNELS);
        let recipe = |index: usize| resolve(files[index]).expect("a recipe is a whole file");
        let allowed = |config: &Config, channel: &str| {
            let options = config.settings.namespaces.check_name(channel).unwrap();
            let (subscribe, publish) = (options.subscribe, options.publish);
            // An anonymous client, a user, and a user who has subscribed.
            [
                subscribe.allows(true, false),
                subscribe.allows(false, false),
                publish.allows(false, false),
                publish.allows(false, true),
            ]
        };
        let news = recipe(0);
        assert_eq!(allowed(&news, "news:world"), [true, true, false, false]);
        let room = recipe(1);
        assert_eq!(allowed(&room, "room:lobby"), [false, true, false, true]);
        // The server subscribes users to their own channels. Nobody does so by command.
        let own = recipe(2);
        assert_eq!(allowed(&own, "me:#42"), [false; 4]);
        for config in [news, room, own] {
            assert_eq!(config.remarks, [""; 0]);
        }
    }

    #[test]
    fn the_chat_to_build_lets_in_users_alone() {
        let page = include_str!("../../../../docs/build-a-chat.md");
        let config = resolve(files_of(page)[0]).unwrap();
        assert_eq!(config.remarks, [""; 0]);
        assert!(!config.settings.client.allow_anonymous_connect_without_token);
        let room = config.settings.namespaces.check_name("room:lobby").unwrap();
        assert!(room.subscribe.allows(false, false) && !room.subscribe.allows(true, false));
        assert_eq!(room.data_format, DataFormat::JsonObject);
    }

    #[test]
    fn the_documented_example_is_good() {
        let example = files_of(CHANNELS)[3];
        let config = resolve(example).unwrap();
        assert_eq!(config.limits.history_bytes_max, 256 << 20);
        let namespaces = &config.settings.namespaces;
        let news = namespaces.check_name("news").unwrap();
        assert!(news.subscribe.allows(false, false) && !news.has_history());
        // Whoever tries it has no user yet.
        for channel in ["news", "chat:1", "prices:EURUSD"] {
            let options = namespaces.check_name(channel).unwrap();
            assert!(options.subscribe.allows(true, false), "{channel}");
        }
        let chat = namespaces.check_name("chat:1").unwrap();
        assert!(chat.presence && chat.force_recovery && chat.publish.allows(true, true));
        assert!(chat.presence_read.allows(true, true));
        assert_eq!(chat.history_ttl, Duration::from_secs(300));
        assert_eq!(chat.history_meta_ttl, Duration::from_hours(720));
        assert_eq!(chat.slow_consumer, SlowConsumer::GapThenRecover);
        // Clients may publish there.
        assert_eq!(chat.data_format, DataFormat::Json);
        assert_eq!(config.remarks, [""; 0]);
        let prices = namespaces.check_name("prices:EURUSD").unwrap();
        assert_eq!(prices.recovery_mode, RecoveryMode::Cache);
        assert!(prices.auto_cache_recover, "a new subscriber sees a price");
        assert_eq!(prices.batch_delay, Duration::from_millis(50));
        assert!(namespaces.check_name("prices:euro").is_err());
        assert!(config.settings.client.allow_anonymous_connect_without_token);
    }

    #[test]
    fn every_key_is_documented() {
        let pages = [
            CHANNELS,
            include_str!("../../../../docs/application.md"),
            include_str!("../../../../docs/tokens.md"),
        ];
        for key in super::super::keys::of_tables() {
            let key = format!("`{key}`");
            assert!(
                pages.iter().any(|page| page.contains(&key)),
                "{key} is not documented"
            );
        }
    }

    #[test]
    fn development_allows_everything_until_there_is_a_table() {
        let allows = |text: &str| {
            let settings = resolve(text).unwrap().settings;
            let options = settings.namespaces.check_name("news").unwrap();
            let can_connect = settings.client.allow_anonymous_connect_without_token;
            (can_connect, options.subscribe.allows(true, false))
        };
        assert_eq!(allows(""), (false, false));
        assert_eq!(allows("dev = true"), (true, true));
        assert_eq!(allows("dev = true\n[channel]"), (true, false));
        assert_eq!(allows("dev = true\n[client]"), (true, true));
        assert_eq!(
            allows("dev = true\n[client]\nallow_anonymous_connect_without_token = false"),
            (false, true)
        );
    }

    #[test]
    fn values_of_channel_stand_where_a_namespace_says_nothing() {
        let text = "[channel]\nhistory_meta_ttl = \"2h\"\npublication_data_format = \"json\"\nmax_length = 10\n\
                    [[channel.namespaces]]\nname = \"own\"\nhistory_meta_ttl = \"1h\"\npublication_data_format = \"binary\"";
        let namespaces = resolve(text).unwrap().settings.namespaces;
        let shared = namespaces.check_name("a").unwrap();
        assert_eq!(shared.history_meta_ttl, Duration::from_hours(2));
        assert_eq!(shared.data_format, DataFormat::Json);
        let own = namespaces.check_name("own:a").unwrap();
        assert_eq!(own.history_meta_ttl, Duration::from_hours(1));
        assert_eq!(own.data_format, DataFormat::Binary);
        assert!(namespaces.check_name("elevenbytes").is_err());
    }

    #[test]
    fn options_of_clients_are_taken() {
        let text = "[client]\nchannel_limit = 5\nping_interval = \"8s\"\npong_timeout = \"4s\"\ninsecure = true\n\
                    user_id_http_header = \"X-User\"\nstale_close_delay = \"3s\"\n\
                    [client.subscribe_to_user_personal_channel]\nenabled = true\nsingle_connection = true";
        let settings = resolve(text).unwrap().settings;
        assert_eq!(settings.subscriptions_max, 5);
        assert_eq!(settings.ping_interval, Duration::from_secs(8));
        assert_eq!(settings.pong_timeout, Duration::from_secs(4));
        let client = settings.client;
        assert!(client.insecure);
        assert_eq!(client.stale_close_delay, Duration::from_secs(3));
        assert_eq!(client.user_id_http_header.as_deref(), Some("x-user"));
        let personal = client.personal_channel.expect("enabled");
        assert_eq!(
            (personal.namespace, personal.single_connection),
            (None, true)
        );
    }

    /// Each refusal: what is written after `[channel.without_namespace]`, and what is said about it.
    #[test]
    fn options_that_contradict_each_other_are_refused() {
        let history = "history_size = 9\nhistory_ttl = \"300s\"\n";
        for (written, refusal) in [
            (
                "history_size = 9",
                "history_size = 9: write history_ttl too",
            ),
            (
                "history_ttl = \"9s\"",
                "history_ttl = 9s: write history_size too",
            ),
            (
                "history_ttl = \"721h\"\nhistory_meta_ttl = \"721h\"",
                "history_ttl = 721h: choose 720h",
            ),
            (
                "history_size = \"5000m\"",
                "history_size = 5,000,000,000: choose 0 to",
            ),
            (
                "history_meta_ttl = \"60s\"\nhistory_size = 9\nhistory_ttl = \"300s\"",
                "history_meta_ttl = 1m: choose at least 5m",
            ),
            (
                "force_recovery = true",
                "force_recovery = true: needs history",
            ),
            (
                "auto_cache_recover = true",
                "auto_cache_recover = true: needs force_recovery",
            ),
            (
                "force_push_join_leave = true",
                "force_push_join_leave = true: needs join_leave",
            ),
            (
                "allowed_delta_types = [\"fossil\"]",
                "allowed_delta_types = [\"fossil\"]: needs history",
            ),
            (
                "allowed_delta_types = [\"xdelta\"]",
                "allowed_delta_types = \"xdelta\": the only type",
            ),
            (
                "delta_publish = true",
                "delta_publish = true: needs allowed_delta_types",
            ),
            (
                "slow_consumer = \"gap_then_recover\"",
                "slow_consumer = \"gap_then_recover\": needs history",
            ),
            (
                "batch_delay = \"11s\"",
                "batch_delay = 11s: choose 10s or less",
            ),
            (
                "channel_regex = \"(\"",
                "channel_regex = \"(\": regex parse error",
            ),
            ("name = \"ab\"", "name = ab: remove it"),
        ] {
            let text = format!("[channel.without_namespace]\n{written}");
            let error = resolve(&text).expect_err(written).to_string();
            let expected = format!(": channel.without_namespace.{refusal}");
            assert!(error.starts_with("config file a.toml: line "), "{error}");
            assert!(error.contains(&expected), "{error}");
        }
        let lossy = format!(
            "[channel.without_namespace]\n{history}force_recovery = true\nslow_consumer = \"keep_latest\""
        );
        assert!(resolve(&lossy).is_ok());
    }

    #[test]
    fn tables_that_cannot_be_meant_are_refused() {
        for (written, refusal) in [
            (
                "[[channel.namespaces]]",
                "channel.namespaces[0].name = \"\": choose 2 or more",
            ),
            (
                "[[channel.namespaces]]\nname = \"a:b\"",
                "channel.namespaces[0].name = \"a:b\": choose",
            ),
            (
                "[[channel.namespaces]]\nname = \"ab\"\n[[channel.namespaces]]\nname = \"ab\"",
                "channel.namespaces[1].name = \"ab\": is the name of another",
            ),
            (
                "[[channel.namespaces]]\nname = \"ab\"\nhistory_size = 1",
                "namespace \"ab\": channel.namespaces[0].history_size = 1: write history_ttl too",
            ),
            (
                "[channel]\nmax_length = 256",
                "channel.max_length = 256: choose 1 to 255",
            ),
            (
                "[channel]\nhistory_bytes_max = 1",
                "channel.history_bytes_max = 1B: choose at least 1MiB",
            ),
            (
                "[channel]\nhistory_meta_ttl = \"9s\"\n[[channel.namespaces]]\nname = \"ab\"\nhistory_size = 1\nhistory_ttl = \"10s\"",
                "channel.history_meta_ttl = 9s: choose at least 10s, the history_ttl of namespace \"ab\"",
            ),
        ] {
            let error = resolve(written).expect_err(written).to_string();
            assert!(error.starts_with("config file a.toml: line "), "{error}");
            assert!(error.contains(refusal), "{error}");
        }
    }

    #[test]
    fn options_of_clients_that_cannot_be_meant_are_refused() {
        for (written, refusal) in [
            (
                "[client]\nchannel_limit = 0",
                "client.channel_limit = 0: choose 1 to 255",
            ),
            (
                "[client]\nstale_close_delay = 0",
                "client.stale_close_delay = 0",
            ),
            (
                "[client]\nhistory_max_publication_limit = 0",
                "client.history_max_publication_limit = 0: choose",
            ),
            (
                "[client]\nrecovery_max_publication_limit = 0",
                "client.recovery_max_publication_limit = 0: choose",
            ),
            (
                "[client]\ntags_filter_work_limit = 0",
                "client.tags_filter_work_limit = 0: choose 1 to 4096",
            ),
            (
                "[client]\ntags_bytes_limit = 100000",
                "client.tags_bytes_limit = 100,000: choose 1 to 65536",
            ),
            (
                "[client]\nuser_id_http_header = \"X User\"",
                "client.user_id_http_header = \"X User\": choose",
            ),
            (
                "[client.subscribe_to_user_personal_channel]\npersonal_channel_namespace = \"me\"",
                "client.subscribe_to_user_personal_channel.personal_channel_namespace = \"me\": no such namespace",
            ),
            (
                "ping-interval = \"25s\"\n[client]\nping_interval = \"25s\"",
                "client.ping_interval = 25s: is the same as ping-interval",
            ),
            (
                "pong-timeout = \"9s\"\n[client]\npong_timeout = \"8s\"",
                "client.pong_timeout = 8s: is the same as pong-timeout",
            ),
            (
                "[channel]\nnamespace = []",
                "config file a.toml: line 2: channel.namespace: there is no such key; did you mean namespaces?",
            ),
        ] {
            let error = resolve(written).expect_err(written).to_string();
            assert!(error.starts_with("config file a.toml: line "), "{error}");
            assert!(error.contains(refusal), "{error}");
        }
        let error = resolve("[channel.without_namespace]\nslow_consumer = \"drop\"").unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains("line 2") && error.contains("\"drop_oldest\""),
            "{error}"
        );
    }
}
