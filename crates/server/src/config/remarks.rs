//! What somebody reading the log should know about a configuration that is valid: who gets in, and keys that do nothing.

use super::Options;
use super::api::HttpApiTable;
use super::tables::{ChannelTable, NamespaceTable};
use crate::auth::TokenRules;
use myriad_shard::{ClientOptions, OriginPattern, RecoveryMode, Settings};
use myriad_wire::http::is_ambient;
use std::net::SocketAddr;

impl Options {
    /// Who gets in, where that is nobody or more than most people want.
    pub(super) fn access_remarks(
        &self,
        listen: SocketAddr,
        settings: &Settings,
        tokens: &TokenRules,
    ) -> Vec<String> {
        let mut remarks = Vec::new();
        let client = &settings.client;
        let has_tokens = tokens.lets_in();
        let has_users = self.names_users(client) || has_tokens;
        let asks = settings.access.connect_proxy;
        let lets_sessions_in =
            client.insecure || client.allow_anonymous_connect_without_token || has_users || asks;
        if !settings.anonymous && !lets_sessions_in {
            remarks.push(
                "nobody can connect: start the server with --anonymous, or give it a key for tokens ([client.token]), or ask the application ([client.proxy.connect]), or let a proxy name the user (client.user_id_http_header), or certificates (tls-client-user)".to_owned(),
            );
        }
        // A subscription token lets its client subscribe to anything, and the application subscribes its clients to what it likes.
        let lets_in = settings.anonymous || lets_sessions_in;
        if lets_in && !has_tokens && !asks && !self.lets_subscribe(client) {
            let anonymous = if has_users {
                ""
            } else {
                " and allow_subscribe_for_anonymous = true"
            };
            remarks.push(format!(
                "clients may subscribe to nothing (error 103; 403 at /raw and for readers of streams): write allow_subscribe_for_client = true{anonymous} in the config file, for a namespace or under [channel.without_namespace]"
            ));
        }
        let mut addresses = [Some(listen), self.internal_listen].into_iter().flatten();
        if self.dev.unwrap_or(false)
            && let Some(address) = addresses.find(|address| !address.ip().is_loopback())
        {
            remarks.push(format!(
                "--dev on {address}: whoever reaches this address may connect and publish; keep a development server on 127.0.0.1"
            ));
        }
        remarks.extend(self.reach_remarks(listen));
        remarks.extend(self.page_remark(settings));
        remarks.extend(self.http_api.iter().flat_map(HttpApiTable::remarks));
        if client.insecure {
            remarks.push(
                "client.insecure = true: every client has every right, whoever it is; never for production".to_owned(),
            );
        }
        remarks
    }

    /// Whether somebody names users without a token: a proxy in front, or certificates.
    fn names_users(&self, client: &ClientOptions) -> bool {
        client.user_id_http_header.is_some() || self.certificates_name_users()
    }

    /// Whose pages may act for a user, where something that his browser adds by itself says who he is.
    fn page_remark(&self, settings: &Settings) -> Option<String> {
        let headers = &settings.access.headers;
        let forwarded = headers.iter().find(|name| is_ambient(name));
        let how = match (&settings.client.user_id_http_header, forwarded) {
            (Some(header), _) => format!("a proxy names users in {header}"),
            _ if self.certificates_name_users() => {
                "certificates name users, and browsers show them to every page (tls-client-user)"
                    .to_owned()
            }
            (None, Some(header)) => format!("the application is sent {header} (http_headers)"),
            (None, None) => return None,
        };
        if settings.allowed_origins.iter().any(OriginPattern::is_any) {
            return Some(format!(
                "allowed-origins has *, and {how}: any web page that a user visits may connect and act for this user; list the pages of your application instead"
            ));
        }
        self.allowed_origins.is_none().then(|| {
            format!(
                "{how}, and allowed-origins is not written: web pages of other hosts are refused with 403, because they could act for their visitors; list the pages of your application, or write allowed-origins = [] if all are at this server's own host"
            )
        })
    }

    /// Whether any client may have any channel.
    fn lets_subscribe(&self, client: &ClientOptions) -> bool {
        let Some(channel) = &self.channel else {
            let is_on = |option: Option<bool>| option.unwrap_or(false);
            return client.insecure || is_on(self.dev) || is_on(self.anonymous);
        };
        let has_users = self.names_users(client);
        let lets = |table: &NamespaceTable| {
            let is_open = has_users || table.allow_subscribe_for_anonymous;
            table.subscribe_proxy_enabled
                || table.allow_subscribe_for_client && is_open
                || table.allow_user_limited_channels && has_users
        };
        client.insecure
            || has_users && client.personal_channel.is_some()
            || channel.tables().any(|(_, table)| lets(table))
    }
}

impl ChannelTable {
    /// Keys that do nothing because others are not there. Centrifugo takes them, so files that it reads are taken here too.
    pub(super) fn remarks(&self) -> Vec<String> {
        let keys = self.tables().flat_map(|(place, table)| {
            idle_keys(table).map(move |(key, needs)| (place.clone(), key, needs))
        });
        keys.map(|(place, key, needs)| format!("{place}: {key} does nothing without {needs}"))
            .collect()
    }

    /// The namespaces with their places in the file, in its words.
    fn tables(&self) -> impl Iterator<Item = (String, &NamespaceTable)> {
        let without = (
            "[channel.without_namespace]".to_owned(),
            &self.without_namespace,
        );
        let named = self.namespaces.iter().map(|table| {
            let name = table.name.as_deref().unwrap_or_default();
            (format!("namespace {name:?}"), table)
        });
        std::iter::once(without).chain(named)
    }
}

/// Keys of a namespace that do nothing, and what each of them needs.
fn idle_keys(table: &NamespaceTable) -> impl Iterator<Item = (&'static str, &'static str)> {
    const HISTORY: &str = "history_size and history_ttl";
    let has_history = table.history_size.0 > 0 && !table.history_ttl.0.is_zero();
    let may_publish = table.allow_publish_for_client || table.allow_publish_for_subscriber;
    let may_see = table.allow_presence_for_client || table.allow_presence_for_subscriber;
    let may_read = table.allow_history_for_client || table.allow_history_for_subscriber;
    let recovers = has_history && (table.force_recovery || table.allow_recovery || may_read);
    let is_cache = table.force_recovery_mode == RecoveryMode::Cache;
    // The key, whether it is on, whether it has what it needs, what that is.
    [
        (
            "allow_subscribe_for_anonymous",
            table.allow_subscribe_for_anonymous,
            table.allow_subscribe_for_client,
            "allow_subscribe_for_client",
        ),
        (
            "allow_publish_for_anonymous",
            table.allow_publish_for_anonymous,
            may_publish,
            "allow_publish_for_client or allow_publish_for_subscriber",
        ),
        (
            "allow_presence_for_anonymous",
            table.allow_presence_for_anonymous,
            may_see,
            "allow_presence_for_client or allow_presence_for_subscriber",
        ),
        (
            "allow_history_for_anonymous",
            table.allow_history_for_anonymous,
            may_read,
            "allow_history_for_client or allow_history_for_subscriber",
        ),
        (
            "allow_stream_end_for_anonymous",
            table.allow_stream_end_for_anonymous,
            table.allow_stream_end_for_client,
            "allow_stream_end_for_client",
        ),
        (
            "force_recovery_mode = \"cache\"",
            is_cache,
            recovers,
            "force_recovery (or allow_recovery), history_size and history_ttl",
        ),
        ("allow_recovery", table.allow_recovery, has_history, HISTORY),
        (
            "force_positioning",
            table.force_positioning,
            has_history,
            HISTORY,
        ),
        (
            "allow_positioning",
            table.allow_positioning,
            has_history,
            HISTORY,
        ),
    ]
    .into_iter()
    .filter(|&(_, is_on, has_needs, _)| is_on && !has_needs)
    .map(|(key, _, _, needs)| (key, needs))
}

#[cfg(test)]
mod tests {
    use super::super::Options;
    use crate::Machine;

    fn remarks(text: &str) -> Vec<String> {
        let machine = Machine::OF_TESTS;
        let options: Options = toml::from_str(text).expect(text);
        options.resolve(&machine).expect(text).remarks
    }

    #[test]
    fn who_gets_in_is_remarked_on_where_that_is_nobody_or_everybody() {
        const NOBODY: &str = "nobody can connect";
        const NOTHING: &str = "clients may subscribe to nothing";
        let development = |address: &str| format!("--dev on {address}: whoever reaches");
        for (written, expected) in [
            ("", &[NOBODY][..]),
            ("anonymous = true", &[]),
            ("anonymous = true\n[channel]", &[NOTHING]),
            ("dev = true", &[]),
            ("dev = true\nlisten = \"[::1]:8000\"", &[]),
            ("dev = true\nanonymous = false", &[NOBODY]),
            (
                "[client]\nallow_anonymous_connect_without_token = true",
                &[NOTHING],
            ),
            // Only `/raw` and streams let anybody in.
            (
                "anonymous = true\n[client]\nallow_anonymous_connect_without_token = false",
                &[],
            ),
            (
                "[client]\nuser_id_http_header = \"x-user\"",
                &[NOTHING, "a proxy names users in x-user, and allowed"],
            ),
            (
                "listen = \"0.0.0.0:8000\"\n[client]\nuser_id_http_header = \"x-user\"",
                &[
                    NOTHING,
                    "client.user_id_http_header: whoever reaches 0.0.0.0:8000",
                    "a proxy names users in x-user, and allowed",
                ],
            ),
            (
                "[client.token]\nhmac_secret_key = \"0123456789abcdef0123456789abcdef\"",
                &[],
            ),
            (
                "[client]\ninsecure = true",
                &["client.insecure = true: every client"],
            ),
            ("anonymous = true\nlisten = \"0.0.0.0:8000\"", &[]),
            (
                "dev = true\nlisten = \"0.0.0.0:8000\"",
                &[&*development("0.0.0.0:8000")],
            ),
            (
                "dev = true\ninternal-listen = \"10.0.0.1:8001\"",
                &[&*development("10.0.0.1:8001")],
            ),
        ] {
            let found = remarks(written);
            assert_eq!(found.len(), expected.len(), "{written}: {found:?}");
            for (found, remark) in found.iter().zip(expected) {
                assert!(found.starts_with(remark), "{written}: {found}");
            }
        }
    }

    #[test]
    fn a_right_to_subscribe_anywhere_is_enough() {
        const ANONYMOUS: &str = "anonymous = true";
        const USERS: &str = "allowed-origins = []\n[client]\nuser_id_http_header = \"x-user\"";
        const PERSONAL: &str = "[client.subscribe_to_user_personal_channel]\nenabled = true";
        let client = "allow_subscribe_for_client = true";
        let both = &format!("{client}\nallow_subscribe_for_anonymous = true");
        let limited = "allow_user_limited_channels = true";
        for (start, namespace, is_warned) in [
            (ANONYMOUS, "", true),
            (ANONYMOUS, client, true),
            (ANONYMOUS, both, false),
            (ANONYMOUS, limited, true),
            (USERS, "", true),
            (USERS, client, false),
            (USERS, limited, false),
        ] {
            let without = format!("{start}\n[channel.without_namespace]\n{namespace}");
            let named = format!("{start}\n[[channel.namespaces]]\nname = \"ab\"\n{namespace}");
            for text in [without, named] {
                let found = remarks(&text);
                assert_eq!(found.len(), usize::from(is_warned), "{text}: {found:?}");
                let names_anonymous = found.iter().any(|one| one.contains("for_anonymous"));
                assert_eq!(
                    names_anonymous,
                    start == ANONYMOUS && is_warned,
                    "{found:?}"
                );
            }
        }
        let personal = remarks(&format!("{USERS}\n{PERSONAL}\n[channel]"));
        assert!(personal.is_empty(), "{personal:?}");
    }

    #[test]
    fn pages_that_may_act_for_users_are_remarked_on() {
        let proxy = |headers: &str| {
            format!(
                "[client.proxy.connect]\nenabled = true\nendpoint = \"http://127.0.0.1:9/\"\nhttp_headers = [{headers}]"
            )
        };
        let header = "[client]\nuser_id_http_header = \"x-user\"\ninsecure = true";
        let list = |origins: &str, rest: &str| format!("allowed-origins = [{origins}]\n{rest}");
        let cookie = proxy("\"X-Trace\", \"Cookie\"");
        for (text, expected) in [
            (cookie.clone(), Some("allowed-origins is not written")),
            (
                proxy("\"Authorization\""),
                Some("allowed-origins is not written"),
            ),
            (header.to_owned(), Some("allowed-origins is not written")),
            (list("\"*\"", &cookie), Some("allowed-origins has *")),
            (list("\"*\"", header), Some("allowed-origins has *")),
            (list("\"https://a.example\"", &cookie), None),
            (list("", &cookie), None),
            (proxy("\"X-Trace\""), None),
            (list("\"*\"", "anonymous = true"), None),
        ] {
            let found = remarks(&text);
            let about_pages = |remark: &&String| remark.contains("allowed-origins");
            let found: Vec<_> = found.iter().filter(about_pages).collect();
            assert_eq!(
                found.len(),
                usize::from(expected.is_some()),
                "{text}: {found:?}"
            );
            if let Some(expected) = expected {
                assert!(found[0].contains(expected), "{text}: {found:?}");
            }
        }
    }

    #[test]
    fn keys_that_do_nothing_are_named_with_what_they_need() {
        let open = "allow_subscribe_for_client = true\nallow_subscribe_for_anonymous = true";
        let history = "history_size = 9\nhistory_ttl = \"9s\"";
        let cache = "force_recovery_mode = \"cache\"";
        for (written, needs) in [
            (
                "allow_publish_for_anonymous = true",
                "allow_publish_for_client or allow_publish_for_subscriber",
            ),
            (
                "allow_publish_for_anonymous = true\nallow_publish_for_subscriber = true",
                "",
            ),
            (
                "allow_presence_for_anonymous = true",
                "allow_presence_for_client",
            ),
            (
                "allow_history_for_anonymous = true",
                "allow_history_for_client",
            ),
            (
                "allow_stream_end_for_anonymous = true",
                "allow_stream_end_for_client",
            ),
            (cache, "force_recovery (or allow_recovery)"),
            (&format!("{cache}\n{history}"), "force_recovery"),
            (
                &format!("{cache}\n{history}\nallow_history_for_subscriber = true"),
                "",
            ),
            (&format!("{cache}\n{history}\nforce_recovery = true"), ""),
            ("allow_recovery = true", "history_size and history_ttl"),
            ("force_positioning = true", "history_size and history_ttl"),
            ("allow_positioning = true", "history_size and history_ttl"),
        ] {
            let key = written.lines().next().unwrap_or_default();
            let key = key.strip_suffix(" = true").unwrap_or(key);
            for (table, place) in [
                ("[channel.without_namespace]", "[channel.without_namespace]"),
                ("[[channel.namespaces]]\nname = \"ab\"", "namespace \"ab\""),
            ] {
                let found = remarks(&format!("anonymous = true\n{table}\n{open}\n{written}"));
                let expected = format!("{place}: {key} does nothing without {needs}");
                match &found[..] {
                    [] => assert_eq!(needs, "", "{written}"),
                    [one] => assert!(one.starts_with(&expected), "{written}: {one}"),
                    more => panic!("{written}: {more:?}"),
                }
            }
        }
        let alone = remarks(
            "dev = true\n[channel.without_namespace]\nallow_subscribe_for_anonymous = true",
        );
        assert!(
            alone[1].contains("without allow_subscribe_for_client"),
            "{alone:?}"
        );
    }
}
