//! What a reload changes, in words.

use super::catalogue::{Described, find};
use super::keys::Table;
use super::written::{Written, flat};
use std::collections::BTreeSet;

/// One difference between what was written before and now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// What changes, from what to what. Without the values of secrets.
    pub sentence: String,
    /// It needs a restart, so the server does not follow it.
    pub needs_restart: bool,
}

/// What a server was started with, as far as it decides which changes the server follows.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StartedWith {
    /// A broker. Then no change of `[channel]` is followed: the logs are those of the namespaces at the start.
    pub(crate) broker: bool,
    /// Endpoints of webhooks. Without any, shards note nothing for those that come later.
    pub(crate) endpoints: bool,
}

impl StartedWith {
    /// Whether the server keeps what stands at this path until it is started again, although another server would follow it.
    fn keeps(self, path: &str) -> bool {
        self.broker && path.starts_with("channel.")
            || !self.endpoints && path.starts_with("webhooks.endpoints[")
    }
}

impl Written {
    /// What has changed since `before`, and what of it a server follows that was started with this.
    pub(crate) fn changes_since(&self, before: &Self, started_with: StartedWith) -> Vec<Change> {
        let (old, new) = (flat(&before.values), flat(&self.values));
        let mut changes = Vec::new();
        let (was, is) = (before.lists(), self.lists());
        for element in was.symmetric_difference(&is) {
            changes.push(change_of_element(
                element,
                is.contains(element),
                started_with,
            ));
        }
        let is_of_one = |path: &str| {
            let mut elements = was.symmetric_difference(&is);
            elements.any(|element| path.starts_with(&**element))
        };
        let paths: BTreeSet<_> = old.keys().chain(new.keys()).collect();
        for path in paths {
            if self.flags.contains(path) || is_of_one(path) {
                continue;
            }
            let Some((table, key, _)) = new.get(path).or_else(|| old.get(path)) else {
                continue;
            };
            let option = find(*table, key);
            let shown = |flat: &std::collections::BTreeMap<String, (Table, String, String)>| {
                let written = flat.get(path).map(|(_, _, value)| value.as_str());
                option.map_or_else(
                    || written.unwrap_or_default().to_owned(),
                    |option| shown(option, written),
                )
            };
            let (from, to) = (shown(&old), shown(&new));
            if from == to {
                let is_hidden = option.is_some_and(|option| option.is_secret);
                let is_same = old.get(path).map(|one| &one.2) == new.get(path).map(|one| &one.2);
                if !is_hidden || is_same {
                    continue;
                }
            }
            let needs_restart =
                started_with.keeps(path) || option.is_some_and(|option| !option.reloads);
            let sentence = match option {
                Some(option) if option.is_secret => format!("{path} changed"),
                _ => format!("{path}: {from} -> {to}"),
            };
            changes.push(Change {
                sentence,
                needs_restart,
            });
        }
        changes
    }

    /// The tables of lists that have names, by their paths.
    fn lists(&self) -> BTreeSet<String> {
        let flat = flat(&self.values);
        let elements = flat
            .keys()
            .filter_map(|path| Some(path[..=path.rfind(']')?].to_owned()));
        elements.collect()
    }
}

/// A table of a list that has come, or has gone.
fn change_of_element(element: &str, is_new: bool, started_with: StartedWith) -> Change {
    let is_namespace = element.starts_with("channel.namespaces[");
    let what = match (is_new, is_namespace) {
        (false, _) => "has gone",
        (true, false) => "is new",
        (true, true) if started_with.broker => "is new: all nodes need it before anybody uses it",
        (true, true) => "is new, and works at once",
    };
    Change {
        sentence: format!("{element} {what}"),
        needs_restart: started_with.keeps(element),
    }
}

/// A value as it is compared and shown; the default, if nothing is written.
fn shown(option: &Described, written: Option<&str>) -> String {
    match written {
        Some(_) if option.is_secret => "(hidden)".into(),
        Some(value) => value.to_owned(),
        None => match option.standard {
            super::catalogue::Standard::Value(_) => option.example(),
            super::catalogue::Standard::Depends { on, .. } => format!("the default ({on})"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn changes(before: &str, now: &str) -> Vec<(String, bool)> {
        changes_of(before, now, StartedWith::default())
    }

    fn changes_of(before: &str, now: &str, started_with: StartedWith) -> Vec<(String, bool)> {
        let written = |text| Written::from_text(text, Path::new("a.toml")).unwrap();
        let changes = written(now).changes_since(&written(before), started_with);
        let pair = |change: Change| (change.sentence, change.needs_restart);
        changes.into_iter().map(pair).collect()
    }

    #[test]
    fn each_difference_is_told_from_what_to_what() {
        for (before, now, sentence, needs_restart) in [
            (
                "",
                "handshake-timeout = \"5s\"",
                "handshake-timeout: \"10s\" -> \"5s\"",
                false,
            ),
            (
                "shards = 2",
                "",
                "shards: 2 -> the default (one per core, more where descriptor tables are small)",
                true,
            ),
            (
                "ping-interval = \"10s\"",
                "ping-interval = \"20s\"",
                "ping-interval: \"10s\" -> \"20s\"",
                true,
            ),
            (
                "api-key = \"first-secret\"",
                "api-key = \"other-secret\"",
                "api-key changed",
                false,
            ),
            ("", "api-key = \"other-secret\"", "api-key changed", false),
            (
                "[client]\nchannel_limit = 5",
                "[client]\nchannel_limit = 9",
                "client.channel_limit: 5 -> 9",
                false,
            ),
            (
                "[[channel.namespaces]]\nname = \"ab\"\n[[channel.namespaces]]\nname = \"cd\"\npresence = true",
                "[[channel.namespaces]]\nname = \"cd\"\n[[channel.namespaces]]\nname = \"ab\"",
                "channel.namespaces[\"cd\"].presence: true -> false",
                false,
            ),
            (
                "",
                "[[channel.namespaces]]\nname = \"ab\"\npresence = true",
                "channel.namespaces[\"ab\"] is new, and works at once",
                false,
            ),
            (
                "[[channel.namespaces]]\nname = \"ab\"",
                "",
                "channel.namespaces[\"ab\"] has gone",
                false,
            ),
        ] {
            assert_eq!(
                changes(before, now),
                [(sentence.to_owned(), needs_restart)],
                "{now}"
            );
        }
    }

    #[test]
    fn with_a_broker_channels_change_with_a_restart() {
        let broker = StartedWith {
            broker: true,
            ..StartedWith::default()
        };
        let with = |line: &str| format!("[[channel.namespaces]]\nname = \"ab\"\n{line}");
        let without = String::new();
        for (before, now, sentence) in [
            (
                &without,
                &with(""),
                "channel.namespaces[\"ab\"] is new: all nodes need it before anybody uses it",
            ),
            (&with(""), &without, "channel.namespaces[\"ab\"] has gone"),
            (
                &with("presence = true"),
                &with(""),
                "channel.namespaces[\"ab\"].presence: true -> false",
            ),
        ] {
            let told = changes_of(before, now, broker);
            assert_eq!(told, [(sentence.to_owned(), true)], "{now}");
        }
        let limit = |limit: u8| format!("[client]\nchannel_limit = {limit}");
        let told = changes_of(&limit(5), &limit(9), broker);
        assert_eq!(told, [("client.channel_limit: 5 -> 9".to_owned(), false)]);
    }

    #[test]
    fn what_means_the_same_is_no_change() {
        for (before, now) in [
            ("", "handshake-timeout = \"10s\""),
            ("[client]", "[client]\nchannel_limit = 128"),
            ("# nothing", ""),
            ("api-key = \"same\"", "api-key = \"same\" # still"),
        ] {
            assert_eq!(changes(before, now), [], "{now}");
        }
    }

    #[test]
    fn a_flag_stands_over_a_change() {
        let mut now = Written::from_text("log = \"debug\"", Path::new("a.toml")).unwrap();
        now.flags = vec!["log".into()];
        let changes = now.changes_since(&Written::default(), StartedWith::default());
        assert_eq!(changes, []);
    }
}
