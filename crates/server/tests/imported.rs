//! Files that `myriad_import` makes pass the check of this server, and name options of its catalogue.

use myriad_import::table::{Form, How, Row, Scope};
use myriad_import::{Fate, ImportError, Source, Variables, import};
use myriad_server::{Machine, check_text, default_file};
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The options of the file with all defaults: their defaults by path, none where it depends on something.
fn catalogue() -> BTreeMap<String, Option<String>> {
    let mut options = BTreeMap::new();
    let mut table = String::new();
    for line in default_file().lines() {
        if let Some(header) = line.strip_prefix("#[") {
            table = header.trim_matches(['[', ']']).to_owned();
            options.insert(table.clone(), None);
            continue;
        }
        let path = |key: &str| match &*table {
            "" => key.to_owned(),
            table => format!("{table}.{key}"),
        };
        let (line, is_default) = match line.strip_prefix("# Example: ") {
            Some(line) => (line, false),
            None => (line.strip_prefix('#').unwrap_or(""), true),
        };
        match line.split_once(" = ") {
            Some((key, value)) if !key.contains(' ') => {
                options.insert(path(key), is_default.then(|| value.to_owned()));
            }
            _ => {}
        }
    }
    options
}

/// Where a row's option stands in the file with all defaults, which writes tables with the same options once.
fn path_of(scope: Scope, row: &Row) -> String {
    let place = match (scope, row.ours) {
        (Scope::Top, "client.connect_code_to_http_response") => "",
        (
            Scope::Top,
            "sse.enabled" | "uni_sse.enabled" | "uni_websocket.enabled" | "uni_http_stream.enabled",
        ) => {
            return "http_stream.enabled".into();
        }
        (Scope::Top, _) => "",
        (Scope::Token, _) => "client.token.",
        (Scope::Namespace, "name") => "channel.namespaces.",
        (Scope::Namespace, _) => "channel.without_namespace.",
        (Scope::Proxy, "name") => "proxies.",
        (Scope::Proxy, "enabled") => "client.proxy.connect.",
        (Scope::Proxy, _) => "channel.proxy.subscribe.",
        (Scope::RpcNamespace, "name") => "rpc.namespaces.",
        (Scope::RpcNamespace, _) => "rpc.without_namespace.",
    };
    format!("{place}{}", row.ours)
}

/// A value of either server, so that `"720h"` and `"720h0m0s"` are one.
fn plain(value: &str) -> String {
    let value = value.trim_matches('"');
    match value {
        "0s" => "0".into(),
        "1MiB" => "1048576".into(),
        "64KiB" => "65536".into(),
        value => value.into(),
    }
}

#[test]
fn every_row_names_an_option_that_there_is_and_its_default() {
    let options = catalogue();
    assert!(options.len() > 100);
    for scope in Scope::ALL {
        for row in scope.rows().filter(|row| !row.ours.is_empty()) {
            let path = path_of(scope, row);
            let default = options.get(&path);
            assert!(default.is_some(), "{path}: there is no such option");
            // Where only the line of a row says what becomes of it, the defaults are the same.
            let is_plain = matches!(row.how, How::Same) && row.form != Form::Any;
            if let Some(Some(default)) = default.filter(|_| is_plain) {
                assert_eq!(plain(default), plain(row.default), "{path}");
            }
        }
    }
}

/// A value that Centrifugo takes for an option; some of ours that it takes and we do not.
fn value(row: &Row, pick: u8) -> Value {
    let of = |values: &[Value]| values[usize::from(pick) % values.len()].clone();
    match row.v6 {
        "http_server.address" => of(&[
            json!(""),
            json!("127.0.0.1"),
            json!("::1"),
            json!("localhost"),
            json!("my-host"),
        ]),
        "http_server.port" => of(&[json!(8000), json!("9000")]),
        "http_server.internal_port" => of(&[json!(""), json!("9001")]),
        "http_server.internal_address" => of(&[json!(""), json!("127.0.0.1"), json!("10.0.0.1")]),
        "endpoint" => of(&[
            json!(""),
            json!("http://127.0.0.1:3000/x"),
            json!("https://a.example"),
            json!("grpc://a:1"),
        ]),
        "jwks_public_endpoint" => of(&[json!(""), json!("https://a.example/keys")]),
        "rsa_public_key" | "ecdsa_public_key" => json!(""),
        "audience_regex" | "issuer_regex" | "channel_regex" => of(&[json!(""), json!("^[a-z]+$")]),
        "client.user_id_http_header" => of(&[json!(""), json!("X-User-Id")]),
        "client.allowed_origins" => of(&[
            json!([]),
            json!(["*"]),
            json!(["https://*.example.com"]),
            json!("https://a.example"),
        ]),
        "client.ping_interval" => of(&[
            json!("25s"),
            json!(-1),
            json!("0s"),
            json!("9s"),
            json!(30_000_000_000_u64),
        ]),
        "client.pong_timeout" => of(&[json!("8s"), json!(-1), json!("0s"), json!("1500ms")]),
        "client.queue_max_size" => of(&[json!(0), json!(1_048_576), json!(65_536)]),
        "http_headers" | "emulated_headers" => of(&[json!([]), json!(["Cookie", "X-A"])]),
        "http.static_headers" => of(&[json!({}), json!({"Authorization": "Bearer x"})]),
        "http.status_to_code_transforms" => of(&[
            json!([]),
            json!([{"status_code": 404, "to_error": {"code": 404, "message": "m", "temporary": false}, "to_disconnect": {"code": 0}}]),
        ]),
        "http.tls" => of(&[
            json!({}),
            json!({"enabled": false, "cert_pem": ""}),
            json!({"enabled": true, "cert_pem": "/nowhere.pem"}),
        ]),
        "allowed_delta_types" => of(&[json!([]), json!(["fossil"])]),
        "http_api.handler_prefix" => of(&[json!("/api"), json!("/other/api")]),
        "client.subscribe_to_user_personal_channel.personal_channel_namespace" => json!(""),
        "rpc.ping.method" => of(&[json!("ping"), json!("echo")]),
        "user_id_claim" => of(&[json!(""), json!("uid")]),
        "http_server.tls.cert_pem"
        | "http_server.tls.key_pem"
        | "http_server.tls.client_ca_pem" => {
            of(&[json!(""), json!("/nowhere.pem"), json!("-----BEGIN X-----")])
        }
        _ => value_of_form(row.form, pick),
    }
}

fn value_of_form(form: Form, pick: u8) -> Value {
    let of = |values: &[Value]| values[usize::from(pick) % values.len()].clone();
    match form {
        Form::Flag => of(&[json!(true), json!(false), json!("true"), json!("0")]),
        Form::Count { .. } => of(&[
            json!(0),
            json!(1),
            json!(100),
            json!("77"),
            json!(4_000_000_000_u64),
        ]),
        Form::Size { .. } => of(&[json!(0), json!(1024), json!("4096")]),
        Form::Time { .. } => of(&[json!("0s"), json!("3s"), json!("1h2m3s"), json!("800h")]),
        Form::Text | Form::Secret => of(&[json!(""), json!("a-text-of-many-letters"), json!("x")]),
        Form::Word(words) => json!(words[usize::from(pick) % words.len()]),
        Form::List => of(&[json!([]), json!(["a"])]),
        Form::Map => of(&[json!({}), json!({"a": "b"})]),
        Form::Any => of(&[json!({}), json!([]), json!({"anything": [1, {"x": null}]})]),
    }
}

/// Sets a value at a path.
fn set(table: &mut Map<String, Value>, path: &str, value: Value) {
    match path.split_once('.') {
        None => {
            table.insert(path.to_owned(), value);
        }
        Some((name, rest)) => {
            let inner = table.entry(name).or_insert_with(|| json!({}));
            if let Some(inner) = inner.as_object_mut() {
                set(inner, rest, value);
            }
        }
    }
}

/// Which of the rows are written, and with which of their values.
type Picks = Vec<(bool, u8)>;

/// A table with these rows of a scope.
fn table_of(scope: Scope, picks: &Picks, offset: usize, but: &[&str]) -> Map<String, Value> {
    let mut table = Map::new();
    for (index, row) in scope.rows().enumerate() {
        let (is_written, pick) = picks[(index + offset) % picks.len()];
        if is_written && !row.v6.is_empty() && !but.contains(&row.v6) {
            set(&mut table, row.v6, value(row, pick));
        }
    }
    agree(&mut table);
    table
}

/// Makes what Centrifugo itself would refuse fit together, and two forms of one demand on tokens, of which we take one: leaving out
/// either would let more tokens in, so the operator has to choose.
fn agree(table: &mut Map<String, Value>) {
    for prefix in ["", "token_", "subscription_token_"] {
        for name in ["audience", "issuer"] {
            table.remove(&format!("{prefix}{name}_regex"));
            if table.len().is_multiple_of(2) {
                let pattern = json!("^[a-z]+$");
                let is_there = table.remove(&format!("{prefix}{name}")).is_some();
                is_there.then(|| table.insert(format!("{prefix}{name}_regex"), pattern));
            }
        }
    }
    let is_set = |table: &Map<String, Value>, key: &str| {
        let value = table.get(key);
        value.is_some_and(|value| !["0", "\"0\"", "\"0s\""].contains(&&*value.to_string()))
    };
    if is_set(table, "history_size") != is_set(table, "history_ttl") {
        table.insert("history_size".into(), json!(10));
        table.insert("history_ttl".into(), json!("60s"));
    }
    if !is_set(table, "history_size") {
        table.remove("force_recovery");
    } else {
        table.remove("history_meta_ttl");
    }
    if table.get("hmac_secret_key") == Some(&json!("")) || !table.contains_key("hmac_secret_key") {
        table.remove("hmac_previous_secret_key");
    }
}

/// A configuration of version 6 with any of its options.
fn v6(picks: &Picks) -> Value {
    let mut top = table_of(
        Scope::Top,
        picks,
        0,
        &["channel.history_meta_ttl", "consumers"],
    );
    for (place, offset) in [("client.token", 3), ("client.subscription_token", 17)] {
        let inner = table_of(Scope::Token, picks, offset, &[]);
        for (key, value) in inner {
            set(&mut top, &format!("{place}.{key}"), value);
        }
    }
    let proxies = [
        "client.proxy.connect",
        "client.proxy.refresh",
        "channel.proxy.subscribe",
        "channel.proxy.publish",
        "channel.proxy.sub_refresh",
        "rpc.proxy",
    ];
    for (place, offset) in proxies.into_iter().zip(1..) {
        let but = if place.starts_with("client") {
            &["name"][..]
        } else {
            &["name", "enabled"]
        };
        let inner = table_of(Scope::Proxy, picks, offset * 11, but);
        set(&mut top, place, Value::Object(inner));
    }
    let named = |scope: Scope, name: &str, offset: usize| {
        let mut table = table_of(scope, picks, offset, &["name", "enabled"]);
        table.insert("name".into(), json!(name));
        Value::Object(table)
    };
    let but = &["name"][..];
    let without = table_of(Scope::Namespace, picks, 5, but);
    set(
        &mut top,
        "channel.without_namespace",
        Value::Object(without),
    );
    let namespaces = json!([
        named(Scope::Namespace, "ab", 7),
        named(Scope::Namespace, "c.d-e", 23)
    ]);
    set(&mut top, "channel.namespaces", namespaces);
    set(
        &mut top,
        "proxies",
        json!([
            named(Scope::Proxy, "a-text-of-many-letters", 2),
            named(Scope::Proxy, "xy", 9)
        ]),
    );
    let without = table_of(Scope::RpcNamespace, picks, 4, but);
    set(&mut top, "rpc.without_namespace", Value::Object(without));
    set(
        &mut top,
        "rpc.namespaces",
        json!([named(Scope::RpcNamespace, "ab", 6)]),
    );
    Value::Object(top)
}

/// A configuration of version 5 with any of its options.
fn v5(picks: &Picks) -> Value {
    let mut top = Map::new();
    let flat = |scope: Scope, prefix: &str, offset: usize, top: &mut Map<String, Value>| {
        for (index, row) in scope.rows().enumerate() {
            let (is_written, pick) = picks[(index + offset) % picks.len()];
            for name in row.v5_names().filter(|_| is_written) {
                top.insert(format!("{prefix}{name}"), value(row, pick));
            }
        }
    };
    flat(Scope::Top, "", 0, &mut top);
    flat(Scope::Namespace, "", 5, &mut top);
    flat(Scope::Token, "token_", 3, &mut top);
    flat(Scope::Token, "subscription_token_", 17, &mut top);
    flat(Scope::Proxy, "proxy_", 8, &mut top);
    for (index, kind) in [
        "connect",
        "refresh",
        "subscribe",
        "publish",
        "sub_refresh",
        "rpc",
    ]
    .into_iter()
    .enumerate()
    {
        let (is_written, pick) = picks[(index + 31) % picks.len()];
        if is_written {
            let endpoint = [
                json!("http://127.0.0.1:3000/"),
                json!("grpc://a:1"),
                json!(""),
            ];
            top.insert(
                format!("proxy_{kind}_endpoint"),
                endpoint[usize::from(pick) % 3].clone(),
            );
            top.insert(format!("proxy_{kind}_timeout"), json!("2s"));
        }
    }
    let mut namespace = Map::new();
    flat(Scope::Namespace, "", 7, &mut namespace);
    namespace.insert("name".into(), json!("ab"));
    for table in [&mut top, &mut namespace] {
        agree(table);
        table.remove("history_meta_ttl");
        table.remove("global_history_meta_ttl");
    }
    top.insert("namespaces".into(), json!([namespace]));
    let (is_granular, _) = picks[0];
    top.insert("granular_proxy_mode".into(), json!(is_granular));
    top.insert(
        "proxies".into(),
        json!([{"name": "a-text-of-many-letters", "endpoint": "http://a.example/"}]),
    );
    top.insert("user_personal_channel_namespace".into(), json!("ab"));
    Value::Object(top)
}

fn imports_and_passes(config: &Value) -> Result<(), TestCaseError> {
    let text = config.to_string();
    let source = Source {
        file: Some((Path::new("a.json"), &text)),
        ..Source::default()
    };
    let is_readable = |path: &str| fs::File::open(path).is_ok();
    let imported = match import(source, &is_readable) {
        Ok(imported) => imported,
        Err(error) => {
            let faults = match &error {
                ImportError::Values(faults) => faults
                    .iter()
                    .map(|fault| fault.to_string() + "\n")
                    .collect(),
                error => error.to_string(),
            };
            return Err(TestCaseError::fail(format!("{faults}{config:#}")));
        }
    };
    let unknown: Vec<_> = imported
        .report
        .with(&[Fate::Unknown])
        .map(|note| &note.name)
        .collect();
    prop_assert!(unknown.is_empty(), "{unknown:?}");
    let checked = check_text(&imported.text, Path::new("a.toml"), &Machine::here());
    let mistakes = checked.err().map(|error| error.to_string());
    prop_assert!(
        mistakes.is_none(),
        "{mistakes:?}\n{}\n{config:#}",
        imported.text
    );
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_options_of_version_6_pass_the_check(picks in proptest::collection::vec(any::<(bool, u8)>(), 40..160)) {
        imports_and_passes(&v6(&picks))?;
    }

    #[test]
    fn any_options_of_version_5_pass_the_check(picks in proptest::collection::vec(any::<(bool, u8)>(), 40..160)) {
        imports_and_passes(&v5(&picks))?;
    }

    #[test]
    fn no_text_stops_the_import(text in "[ -~\\n]{0,200}", name in "[a-z]{1,3}\\.(json|yaml|toml|conf)") {
        let source = Source { file: Some((Path::new(&name), &text)), ..Source::default() };
        if let Ok(imported) = import(source, &|_| false) {
            prop_assert!(toml::from_str::<toml::Table>(&imported.text).is_ok(), "{}", imported.text);
        }
    }

    #[test]
    fn no_value_of_any_type_stops_the_import(picks in proptest::collection::vec(any::<(bool, u8)>(), 40..160)) {
        let mut config = v6(&picks);
        let odd = [json!(null), json!([]), json!({}), json!([[1]]), json!("\u{1b}\n"), json!(-1), json!(1e300), json!({"a": {"b": 1}})];
        let mut count = 0;
        spoil(&mut config, &picks, &odd, &mut count);
        let text = config.to_string();
        let source = Source { file: Some((Path::new("a.json"), &text)), ..Source::default() };
        if let Ok(imported) = import(source, &|_| false) {
            prop_assert!(toml::from_str::<toml::Table>(&imported.text).is_ok(), "{}", imported.text);
        }
    }
}

/// Replaces some values by others of any type.
fn spoil(value: &mut Value, picks: &Picks, odd: &[Value], count: &mut usize) {
    *count += 1;
    let (is_spoilt, pick) = picks[*count % picks.len()];
    if is_spoilt && pick % 8 == 0 && *count > 1 {
        *value = odd[usize::from(pick / 8) % odd.len()].clone();
        return;
    }
    match value {
        Value::Object(table) => {
            for inner in table.values_mut() {
                spoil(inner, picks, odd, count);
            }
        }
        Value::Array(items) => {
            for inner in items {
                spoil(inner, picks, odd, count);
            }
        }
        _ => {}
    }
}

#[test]
fn the_variables_of_a_namespace_are_written_once() {
    let variables =
        Variables::from_iter([("CENTRIFUGO_CHANNEL_NAMESPACES".into(), "ab cd".into())]);
    let source = Source {
        variables: Some(&variables),
        ..Source::default()
    };
    let imported = import(source, &|_| false).expect("two names");
    assert_eq!(imported.text.matches("[[channel.namespaces]]").count(), 2);
    assert!(check_text(&imported.text, Path::new("a.toml"), &Machine::here()).is_ok());
}
