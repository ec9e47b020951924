//! Keys that stand in the wrong table or have a name of another program's, and values of the wrong kind: what to write instead.

use super::catalogue::{self, Form};
use super::keys::Table;
use toml::Value;

/// Tables of which there is one, or whose place is easily said, and how people write a key there.
const PLACES: [(Table, &str); 8] = [
    (
        Table::Top,
        "at the top of the file, above the first [table]",
    ),
    (
        Table::Namespace,
        "under [channel.without_namespace] or in one of [[channel.namespaces]]",
    ),
    (Table::Channel, "under [channel]"),
    (Table::Client, "under [client]"),
    (Table::Token, "under [client.token]"),
    (
        Table::PersonalChannel,
        "under [client.subscribe_to_user_personal_channel]",
    ),
    (Table::RateLimits, "under [client.rate_limits]"),
    (Table::HttpApi, "under [http_api]"),
];

/// What other servers, and older versions of Centrifugo, call an option at the top of their files.
const OTHER_NAMES: [(&str, &str); 6] = [
    ("port", LISTEN),
    ("address", LISTEN),
    ("host", LISTEN),
    ("bind", LISTEN),
    (
        "token_hmac_secret_key",
        "write hmac_secret_key under [client.token]",
    ),
    (
        "token_jwks_public_endpoint",
        "write jwks_public_endpoint under [client.token]",
    ),
];
const LISTEN: &str = "write listen = \"127.0.0.1:8000\", address and port together";

/// Letters of a name from which its beginning says which one is meant.
const BEGINNING_MIN: usize = 4;

fn is_same(one: &str, other: &str) -> bool {
    one.replace('-', "_") == other.replace('-', "_")
}

/// What to do about a key that its table does not have and that is known all the same: in another table, by another name, or cut
/// short. A name that several tables have says nothing of its place.
pub(super) fn advice(table: Table, key: &str) -> Option<String> {
    // Only the sign between the words differs.
    if let Some(known) = table.keys().iter().find(|known| is_same(known, key)) {
        return Some(format!("there is no such key; did you mean {known}?"));
    }
    if table == Table::Top
        && let Some((_, advice)) = OTHER_NAMES.iter().find(|(name, _)| is_same(name, key))
    {
        return Some(format!("there is no such key; {advice}"));
    }
    // Entries of several lists have names.
    if key == "name" {
        return None;
    }
    let mut places = PLACES.iter().filter_map(|(table, place)| {
        let known = table.keys().iter().find(|known| is_same(known, key))?;
        Some((known, place))
    });
    // Options with a second name are ours at the top, and what [channel] has too is a default for namespaces.
    let is_first_choice = |known: &&'static str| {
        let mut first = [Table::Top, Table::Namespace].iter();
        first.any(|table| table.keys().contains(known))
    };
    match (places.next(), places.next()) {
        (Some((known, place)), other) if other.is_none() || is_first_choice(known) => {
            Some(format!("there is no such key here; write {known} {place}"))
        }
        _ => whole_name(table, key),
    }
}

/// The only name that begins so.
fn whole_name(table: Table, key: &str) -> Option<String> {
    let begins = |known: &&&str| known.replace('-', "_").starts_with(&key.replace('-', "_"));
    let mut known = table.keys().iter().filter(begins);
    match (known.next(), known.next()) {
        (Some(known), None) if key.len() >= BEGINNING_MIN => {
            Some(format!("there is no such key; did you mean {known}?"))
        }
        _ => None,
    }
}

/// What to write instead of a value of the wrong kind. The parser's `refusal` of it is in the words of its types; one of another
/// cause is better.
pub(super) fn kind_advice(table: Table, key: &str, value: &Value, refusal: &str) -> Option<String> {
    let form = catalogue::find(table, key)?.form;
    let lacks_unit = matches!(form, Form::Time | Form::TimeRange)
        && value.as_integer().is_some_and(|number| number > 0);
    if !lacks_unit && !refusal.starts_with("invalid type") {
        return None;
    }
    let plain = match value {
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        Value::Boolean(flag) => flag.to_string(),
        _ => String::new(),
    };
    match (form, value) {
        (Form::Flag, Value::String(text)) if text == "true" || text == "false" => {
            Some(format!("write {key} = {text}, without quotes"))
        }
        _ if lacks_unit => Some(format!(
            "write {key} = \"{plain}s\" for seconds: a time has a unit"
        )),
        (Form::Word(words), _) if words.contains(&&*plain) => {
            Some(format!("write {key} = \"{plain}\", in quotes"))
        }
        (Form::Text, _) if !plain.is_empty() => {
            Some(format!("write {key} = \"{plain}\", in quotes"))
        }
        (Form::Text | Form::Word(_) | Form::Address, _) => {
            Some(format!("write {}, in quotes", form.sentence()))
        }
        (Form::Json | Form::Table, _) => None,
        _ => Some(format!("write {}", form.sentence())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_another_table_is_sent_there() {
        const TOP: &str = "at the top of the file, above the first [table]";
        for (table, key, expected) in [
            (Table::Namespace, "listen", TOP),
            (
                Table::Namespace,
                "tls_listen",
                "write tls-listen at the top",
            ),
            (Table::Client, "anonymous", TOP),
            (
                Table::Channel,
                "ping_interval",
                "write ping-interval at the top",
            ),
            (
                Table::Client,
                "allow_subscribe_for_client",
                "write allow_subscribe_for_client under [channel.without_namespace]",
            ),
            (Table::Top, "hmac_secret_key", "under [client.token]"),
            (Table::Client, "hmac_secret_key", "under [client.token]"),
            (
                Table::Top,
                "insecure_skip_token_signature_verify",
                "under [client]",
            ),
            (Table::Top, "user_id_http_header", "under [client]"),
            (Table::Top, "max_length", "under [channel]"),
            (
                Table::Top,
                "publication_data_format",
                "under [channel.without_namespace]",
            ),
        ] {
            let said = advice(table, key).expect(key);
            assert!(said.contains(expected), "{key}: {said}");
        }
        for key in ["enabled", "name", "zebra"] {
            assert_eq!(advice(Table::Top, key), None, "{key}");
        }
    }

    #[test]
    fn other_names_and_beginnings_lead_to_the_key() {
        for (key, expected) in [
            ("tls-cert", "did you mean tls-certificate?"),
            ("tls_cert", "did you mean tls-certificate?"),
            ("port", "write listen = "),
            ("address", "write listen = "),
            (
                "token_hmac_secret_key",
                "hmac_secret_key under [client.token]",
            ),
            ("max_connections", "did you mean max-connections?"),
        ] {
            let said = advice(Table::Top, key).expect(key);
            assert!(said.contains(expected), "{key}: {said}");
        }
        assert_eq!(advice(Table::Top, "tls-client"), None, "several begin so");
    }

    #[test]
    fn a_value_of_the_wrong_kind_is_shown_in_the_right_one() {
        let said = |table: Table, line: &str| {
            let values: toml::Table = line.parse().expect(line);
            let (key, value) = values.iter().next().expect(line);
            table.fault(key, key, value)
        };
        for (table, line, expected) in [
            (
                Table::Top,
                "tls-min-version = 1.3",
                "write tls-min-version = \"1.3\", in quotes",
            ),
            (
                Table::Top,
                "anonymous = \"true\"",
                "write anonymous = true, without quotes",
            ),
            (Table::Top, "anonymous = \"yes\"", "write true or false"),
            (
                Table::Namespace,
                "history_ttl = 300",
                "write history_ttl = \"300s\" for seconds: a time has a unit",
            ),
            (Table::Namespace, "history_ttl = \"300s\"", ""),
            (Table::Top, "api-key = 7", "write one text in quotes"),
            (
                Table::Top,
                "tls-key = 7",
                "write tls-key = \"7\", in quotes",
            ),
            (
                Table::Top,
                "listen = true",
                "write an address and a port, in quotes",
            ),
            (Table::Top, "listen = 8000", ""),
            (
                Table::Top,
                "driver = 3",
                "write auto, io_uring or epoll, in quotes",
            ),
            (Table::Client, "channel_limit = 1.5", "write a count"),
        ] {
            let said = said(table, line).unwrap_or_default();
            assert!(said.starts_with(expected), "{line}: {said}");
            assert_eq!(said.is_empty(), expected.is_empty(), "{line}: {said}");
        }
    }
}
