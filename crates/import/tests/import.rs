//! Whole configurations: the same one in every layout and language, and what each rule makes of its options.

use myriad_import::{
    Fate, ImportError, Imported, Layout, Place, Source, Variables, import, read_env_file,
};
use std::path::{Path, PathBuf};

const EXPECTED: &str = include_str!("fixtures/expected.toml");

fn fixture(name: &str) -> (PathBuf, String) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let path = folder.join(name);
    let text = std::fs::read_to_string(&path).expect("a fixture");
    (path, text)
}

fn of_text(name: &str, text: &str) -> Result<Imported, ImportError> {
    let source = Source {
        file: Some((Path::new(name), text)),
        ..Source::default()
    };
    import(source, &|_| true)
}

fn of_variables(variables: &Variables) -> Result<Imported, ImportError> {
    let source = Source {
        variables: Some(variables),
        ..Source::default()
    };
    import(source, &|_| true)
}

/// The file without its comments.
fn bare(imported: &Imported) -> String {
    let lines = imported.text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| format!("{line}\n")).collect()
}

/// What became of an option, and what that means.
fn fate(imported: &Imported, name: &str) -> Option<(Fate, bool)> {
    let mut notes = imported.report.notes.iter();
    let note = notes.find(|note| note.name == name)?;
    Some((note.fate, note.needs_decision))
}

#[test]
fn one_configuration_comes_out_the_same_from_every_layout_and_language() {
    for name in [
        "v5.json", "v5.yaml", "v5.toml", "v5.env", "v6.json", "v6.yaml", "v6.toml", "v6.env",
    ] {
        let (path, text) = fixture(name);
        let imported = match name.ends_with(".env") {
            true => of_variables(&read_env_file(&text).unwrap()),
            false => of_text(&path.to_string_lossy(), &text),
        };
        let imported = imported.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(bare(&imported), EXPECTED, "{name}");
        assert_eq!(format!("v{}", imported.report.version), name[..2], "{name}");
        let unknown: Vec<_> = imported.report.with(&[Fate::Unknown]).collect();
        assert!(unknown.is_empty(), "{name}: {unknown:?}");
        // The engine; the web interface is missed, too, and nothing hangs on it.
        assert_eq!(
            imported.report.decisions(),
            1,
            "{name}: {}",
            imported.report.text()
        );
        let report = format!("{}{}", imported.report.text(), imported.report.json());
        for secret in ["a-secret-of", "a-key-of", "hidden-", "redis://"] {
            assert!(!report.contains(secret), "{name}: {secret}");
        }
        toml::from_str::<toml::Table>(&imported.text).unwrap();
    }
}

#[test]
fn defaults_that_differ_are_written_with_their_reason() {
    let imported = of_text("a.json", "{}").unwrap_err();
    assert_eq!(
        imported.to_string(),
        "there is no option of Centrifugo in it"
    );
    let imported = of_text("a.json", "{\"client\": {\"channel_limit\": 128}}").unwrap();
    let expected = "\n# Centrifugo listens at every address of the machine; the default here is 127.0.0.1:8000\nlisten = \":8000\"\n";
    assert!(imported.text.contains(expected), "{}", imported.text);
    for line in ["compression = \"off\"", "pong_timeout = \"8s\""] {
        let (before, _) = imported.text.split_once(&format!("\n{line}\n")).unwrap();
        assert!(before.lines().last().unwrap().starts_with("# "), "{line}");
    }
    assert_eq!(
        fate(&imported, "client.channel_limit"),
        Some((Fate::Idle, false))
    );
    assert_eq!(
        fate(&imported, "client.pong_timeout"),
        Some((Fate::Stated, false))
    );
}

#[test]
fn what_nobody_knows_is_named_with_its_line() {
    let text = "client:\n  chanel_limit: 5\n  token:\n    hmac: x\nextra: [1]\nchannel:\n  namespaces:\n    - name: ab\n      histroy_size: 3\n";
    let imported = of_text("a.yaml", text).unwrap();
    let unknown = imported.report.with(&[Fate::Unknown]);
    let unknown: Vec<_> = unknown
        .map(|note| (&*note.name, note.place.clone()))
        .collect();
    let line = |name, line| (name, Place::Line(line));
    let expected = [
        line("client.chanel_limit", 2),
        line("client.token.hmac", 4),
        line("extra", 5),
        line("channel.namespaces[0].histroy_size", 9),
    ];
    assert_eq!(unknown, expected);
    let words = imported.report.text();
    let heading = "not an option of Centrifugo v5 or v6 that this program knows (4):\n  client.chanel_limit (line 2)\n";
    assert!(words.contains(heading), "{words}");
}

#[test]
fn wrong_values_are_named_with_their_field_and_place() {
    let text = "{\"client\": {\n\"channel_limit\": \"many\",\n\"ping_interval\": {},\n\"token\": {\"hmac_secret_key\": [\"S3CRET\"]}},\n\
                \"channel\": {\"namespaces\": [\n5,\n{\"presence\": true},\n{\"name\": \"ab\", \"force_recovery_mode\": \"best\"}]},\n\
                \"http_server\": {\"port\": 99999},\n\"http_api\": 5, \"rpc\": {\"proxy\": true}}";
    let error = of_text("a.json", text).unwrap_err();
    let ImportError::Values(faults) = error else {
        panic!("{error}");
    };
    let found: Vec<_> = faults.iter().map(ToString::to_string).collect();
    let found = found.join("\n");
    for expected in [
        "line 2: client.channel_limit = many: write a whole number",
        "line 3: client.ping_interval = a table: write a time",
        "line 4: client.token.hmac_secret_key = (hidden): write one text",
        "line 6: channel.namespaces[0] = (no name): write a table with a name",
        "line 7: channel.namespaces[1] = (no name): write a table with a name",
        "line 8: channel.namespaces[2].force_recovery_mode = best: choose \"\", \"stream\", \"cache\"",
        "line 9: http_server.port = 99999: write a port",
        "line 10: http_api = (no table): write a table",
        "line 10: rpc.proxy = (no table): write a table",
    ] {
        assert!(found.contains(expected), "{expected}\n{found}");
    }
    assert!(!found.contains("S3CRET"));
    let variables = Variables::from_iter([("CENTRIFUGO_PING_INTERVAL".into(), "25".into())]);
    let error = of_variables(&variables).unwrap_err();
    let ImportError::Values(faults) = error else {
        panic!("{error}");
    };
    let words = faults[0].to_string();
    assert!(
        words.starts_with("variable CENTRIFUGO_PING_INTERVAL = 25: write a time"),
        "{words}"
    );
}

#[test]
fn rights_that_an_application_decides_are_not_open_without_it() {
    let text = "[channel.proxy.publish]\nendpoint = \"grpc://a:1\"\n[channel.proxy.subscribe]\nendpoint = \"a:1\"\n\
                [[channel.namespaces]]\nname = \"ab\"\npublish_proxy_enabled = true\nsubscribe_proxy_enabled = true\n\
                allow_publish_for_client = true\nallow_publish_for_anonymous = true\nallow_subscribe_for_client = true\n\
                allow_history_for_client = true\n[[channel.namespaces]]\nname = \"cd\"\n\
                subscribe_stream_proxy_enabled = true\nallow_subscribe_for_client = true\n";
    let imported = of_text("a.toml", text).unwrap();
    assert!(
        !imported.text.contains("allow_publish"),
        "{}",
        imported.text
    );
    assert!(
        !imported.text.contains("allow_subscribe"),
        "{}",
        imported.text
    );
    assert!(
        !imported.text.contains("_proxy_enabled"),
        "{}",
        imported.text
    );
    assert!(imported.text.contains("allow_history_for_client = true"));
    for key in [
        "publish_proxy_enabled",
        "allow_publish_for_client",
        "allow_subscribe_for_client",
    ] {
        let name = format!("channel.namespaces[0].{key}");
        assert_eq!(
            fate(&imported, &name),
            Some((Fate::Missing, true)),
            "{name}"
        );
    }
}

#[test]
fn namespaces_of_other_subscriptions_are_left_out() {
    let text = "{\"client\": {\"subscribe_to_user_personal_channel\": {\"enabled\": true, \"personal_channel_namespace\": \"maps\"}},\
                \"channel\": {\"namespaces\": [{\"name\": \"maps\", \"subscription_type\": \"map\", \"allow_subscribe_for_client\": true,\
                \"map\": {\"mode\": \"ephemeral\"}}, {\"name\": \"ab\", \"subscription_type\": \"stream\"}]}}";
    let imported = of_text("a.json", text).unwrap();
    assert!(!imported.text.contains("maps"), "{}", imported.text);
    assert!(bare(&imported).ends_with("[[channel.namespaces]]\nname = \"ab\"\n"));
    assert!(imported.report.with(&[Fate::Unknown]).next().is_none());
    let name = "channel.namespaces[0].subscription_type";
    assert_eq!(fate(&imported, name), Some((Fate::Missing, true)));
}

#[test]
fn proxies_with_names_keep_them() {
    let v5 = "{\"granular_proxy_mode\": true, \"connect_proxy_name\": \"one\", \"proxies\": [\
              {\"name\": \"one\", \"endpoint\": \"https://a.example/\", \"static_http_headers\": {\"A\": \"b\"}},\
              {\"name\": \"two\", \"endpoint\": \"grpc://a:1\", \"grpc_compression\": true},\
              {\"name\": \"three\", \"endpoint\": \"http://c.example/\", \"timeout\": \"9s\"}],\
              \"rpc_proxy_name\": \"three\", \"rpc_namespaces\": [{\"name\": \"ab\", \"rpc_proxy_name\": \"two\"}],\
              \"proxy_subscribe\": true, \"proxy_rpc_endpoint\": \"http://unused/\",\
              \"namespaces\": [{\"name\": \"cd\", \"publish_proxy_name\": \"three\", \"subscribe_proxy_name\": \"two\"}]}";
    let imported = of_text("a.json", v5).unwrap();
    let expected = "[client.proxy.connect]\nenabled = true\nendpoint = \"https://a.example/\"\n\n\
                    [client.proxy.connect.http]\nstatic_headers = { A = \"b\" }\n\n\
                    [[proxies]]\nname = \"one\"\nendpoint = \"https://a.example/\"\n\n\
                    [proxies.http]\nstatic_headers = { A = \"b\" }\n\n\
                    [[proxies]]\nname = \"three\"\ntimeout = \"4s\"\nendpoint = \"http://c.example/\"\n\n\
                    [[channel.namespaces]]\nname = \"cd\"\npublish_proxy_enabled = true\npublish_proxy_name = \"three\"\n\n\
                    [rpc.without_namespace]\nproxy_enabled = true\nproxy_name = \"three\"\n\n\
                    [[rpc.namespaces]]\nname = \"ab\"\n";
    assert!(bare(&imported).ends_with(expected), "{}", imported.text);
    assert!(imported.report.with(&[Fate::Unknown]).next().is_none());
}

#[test]
fn one_endpoint_for_all_methods_is_one_for_each_namespace() {
    let v5 =
        "{\"proxy_rpc_endpoint\": \"http://a.example/\", \"rpc_namespaces\": [{\"name\": \"ab\"}]}";
    let imported = of_text("a.json", v5).unwrap();
    let expected = "[rpc.proxy]\nendpoint = \"http://a.example/\"\n\n[rpc.without_namespace]\nproxy_enabled = true\n\n\
                    [[rpc.namespaces]]\nname = \"ab\"\nproxy_enabled = true\n";
    assert!(bare(&imported).ends_with(expected), "{}", imported.text);
}

#[test]
fn tls_has_an_address_of_its_own() {
    let text = "[http_server]\nport = 8443\ninternal_port = 8000\ntls.enabled = true\ntls.cert_pem = \"/c.pem\"\ntls.key_pem = \"/k.pem\"\n";
    let imported = of_text("a.toml", text).unwrap();
    let bare = bare(&imported);
    let expected = "\nlisten = \"127.0.0.1:8001\"\ntls-listen = \":8443\"\ntls-certificate = \"/c.pem\"\ntls-key = \"/k.pem\"\ninternal-listen = \":8000\"\n";
    assert!(bare.starts_with(expected), "{bare}");
}

#[test]
fn without_tls_only_this_machine_is_let_in() {
    let pem = "-----BEGIN CERTIFICATE-----";
    for (tls, line) in [
        (
            format!("cert_pem = \"{pem}\"\nkey_pem = \"/k.pem\""),
            "#tls-listen = \":8443\"",
        ),
        (
            "cert_pem = \"/gone.pem\"\nkey_pem = \"/k.pem\"".into(),
            "#tls-listen = \":8443\"",
        ),
        (String::new(), "#tls-listen = \":8443\""),
        (
            "cert_pem = \"/c.pem\"\nkey_pem = \"/k.pem\"\nclient_ca_pem = \"/gone.pem\"".into(),
            "#tls-listen = \":8443\"",
        ),
    ] {
        let text =
            format!("[http_server]\nport = 8443\n[http_server.tls]\nenabled = true\n{tls}\n");
        let source = Source {
            file: Some((Path::new("a.toml"), &text)),
            ..Source::default()
        };
        let imported = import(source, &|path| path != "/gone.pem").unwrap();
        assert!(
            imported.text.contains("\nlisten = \"127.0.0.1:8000\"\n"),
            "{}",
            imported.text
        );
        assert!(
            imported.text.contains(&format!("\n{line}\n")),
            "{}",
            imported.text
        );
        assert!(!bare(&imported).contains("tls-"), "{}", imported.text);
        assert_eq!(imported.report.decisions(), 1);
    }
    let text = "{\"port\": 443, \"tls_autocert\": true, \"tls_autocert_host_whitelist\": \"a.example,b.example\", \
                \"tls_autocert_email\": \"x\\ny = 1\", \"tls_autocert_http\": true}";
    let imported = of_text("a.json", text).unwrap();
    for line in [
        "listen = \"127.0.0.1:8000\"",
        "#tls-listen = \":443\"",
        "#tls-acme = [\"a.example\", \"b.example\"]",
        "#tls-acme-accept-terms = true",
        "#tls-acme-email = \"x\\ny = 1\"",
        "#tls-acme-http = \":80\"",
    ] {
        assert!(
            imported.text.contains(&format!("\n{line}\n")),
            "{}",
            imported.text
        );
    }
}

#[test]
fn pings_and_pongs_are_those_of_centrifugo() {
    for (text, expected) in [
        (
            "{\"client\": {\"ping_interval\": -1}}",
            "ping_interval = \"0\"\npong_timeout = \"8s\"",
        ),
        (
            "{\"client\": {\"ping_interval\": \"5s\"}}",
            "ping_interval = \"5s\"\npong_timeout = \"5s\"",
        ),
        (
            "{\"client\": {\"pong_timeout\": \"0s\"}}",
            "pong_timeout = \"10s\"",
        ),
        (
            "{\"client\": {\"pong_timeout\": 3000000000}}",
            "pong_timeout = \"3s\"",
        ),
        (
            "{\"ping_interval\": \"10s\", \"pong_timeout\": \"9s\"}",
            "ping_interval = \"10s\"\npong_timeout = \"9s\"",
        ),
    ] {
        let imported = of_text("a.json", text).unwrap();
        let bare = bare(&imported);
        assert!(
            bare.ends_with(&format!("[client]\n{expected}\n")),
            "{text}: {bare}"
        );
    }
    let imported = of_text("a.json", "{\"client\": {\"pong_timeout\": \"-1s\"}}").unwrap();
    assert!(!imported.text.contains("pong_timeout"), "{}", imported.text);
    assert_eq!(
        fate(&imported, "client.pong_timeout"),
        Some((Fate::Missing, false))
    );
}

#[test]
fn values_beyond_our_bounds_are_written_as_the_bound() {
    let text = "{\"client\": {\"channel_limit\": 1000, \"history_max_publication_limit\": 0, \"stale_close_delay\": \"0s\"},\
                \"channel\": {\"max_length\": 500, \"history_meta_ttl\": \"2000h\"}}";
    let imported = of_text("a.json", text).unwrap();
    for line in [
        "channel_limit = 255",
        "history_max_publication_limit = 4294967295",
        "history_meta_ttl = \"720h\"",
    ] {
        assert!(
            imported.text.contains(&format!("\n{line}\n")),
            "{}",
            imported.text
        );
    }
    assert_eq!(
        fate(&imported, "client.channel_limit"),
        Some((Fate::Changed, false))
    );
    assert_eq!(
        fate(&imported, "client.stale_close_delay"),
        Some((Fate::Changed, false))
    );
    assert_eq!(
        fate(&imported, "channel.max_length"),
        Some((Fate::Changed, false))
    );
}

#[test]
fn brokers_are_for_the_operator_to_decide() {
    for (text, name, line) in [
        (
            "{\"broker\": \"nats\", \"nats_url\": \"nats://u:p@a:4222\"}",
            "broker",
            "#broker = \"nats://u:p@a:4222\"",
        ),
        (
            "{\"broker\": {\"enabled\": true, \"type\": \"nats\"}}",
            "broker.type",
            "#broker = \"nats://127.0.0.1:4222\"",
        ),
    ] {
        let imported = of_text("a.json", text).unwrap();
        assert!(
            imported.text.contains(&format!("\n{line}\n")),
            "{}",
            imported.text
        );
        assert_eq!(fate(&imported, name), Some((Fate::Missing, true)));
    }
    let off = of_text(
        "a.json",
        "{\"broker\": {\"enabled\": false, \"type\": \"nats\"}}",
    )
    .unwrap();
    assert_eq!(off.report.decisions(), 0, "{}", off.report.text());
}

#[test]
fn options_of_the_other_version_do_nothing_there_and_are_named() {
    let text =
        "{\"client\": {\"channel_limit\": 5}, \"channel\": {}, \"token_hmac_secret_key\": \"x\"}";
    let imported = of_text("a.json", text).unwrap();
    assert_eq!(imported.report.version, 6);
    assert!(!imported.text.contains("hmac"), "{}", imported.text);
    assert_eq!(
        fate(&imported, "token_hmac_secret_key"),
        Some((Fate::Missing, false))
    );
    let engine = of_text(
        "a.json",
        "{\"client\": {\"insecure\": true}, \"engine\": \"redis\"}",
    )
    .unwrap();
    assert_eq!(fate(&engine, "engine"), Some((Fate::Missing, false)));
    let source = Source {
        file: Some((Path::new("a.json"), text)),
        layout: Some(Layout::V5),
        ..Source::default()
    };
    let imported = import(source, &|_| true).unwrap();
    assert!(imported.text.contains("hmac_secret_key = \"x\""));
    assert_eq!(fate(&imported, "client"), Some((Fate::Missing, false)));
}

#[test]
fn variables_stand_over_the_file() {
    let variables = Variables::from_iter([
        ("CENTRIFUGO_CLIENT_CHANNEL_LIMIT".into(), "9".into()),
        (
            "CENTRIFUGO_CHANNEL_NAMESPACES_AB_PRESENCE".into(),
            "true".into(),
        ),
        ("CENTRIFUGO_CLIENT_CHANEL_LIMIT".into(), "9".into()),
        ("OTHER".into(), "9".into()),
    ]);
    let text =
        "{\"client\": {\"channel_limit\": 5}, \"channel\": {\"namespaces\": [{\"name\": \"ab\"}]}}";
    let source = Source {
        file: Some((Path::new("a.json"), text)),
        variables: Some(&variables),
        layout: None,
    };
    let imported = import(source, &|_| true).unwrap();
    assert!(imported.text.contains("channel_limit = 9"));
    assert!(
        imported.text.contains("name = \"ab\"\npresence = true"),
        "{}",
        imported.text
    );
    let unknown: Vec<_> = imported.report.with(&[Fate::Unknown]).collect();
    assert_eq!(unknown.len(), 1);
    assert_eq!(unknown[0].name, "CENTRIFUGO_CLIENT_CHANEL_LIMIT");
}

#[test]
fn responses_to_codes_are_one_list() {
    let codes = |codes: &str| format!("{{\"enabled\": true, \"transforms\": [{codes}]}}");
    let one = "{\"code\": 3005, \"to\": {\"status_code\": 403, \"body\": \"b\"}}";
    let other = "{\"code\": 3005, \"to\": {\"status_code\": 404}}, {\"code\": 109, \"to\": {\"status_code\": 401}}";
    let text = format!(
        "{{\"uni_sse\": {{\"connect_code_to_http_response\": {}}}, \"uni_http_stream\": {{\"connect_code_to_http_response\": {}}}}}",
        codes(one),
        codes(other)
    );
    let imported = of_text("a.json", &text).unwrap();
    let line = "connect_code_to_http_response = [{ code = 3005, status_code = 403, body = \"b\" }]";
    assert!(imported.text.contains(line), "{}", imported.text);
    assert_eq!(imported.report.with(&[Fate::Missing]).count(), 2);
    assert!(imported.report.with(&[Fate::Unknown]).next().is_none());
}

#[test]
fn tokens_of_subscriptions_have_keys_of_their_own_only_if_they_are_on() {
    for (is_on, expected) in [
        (
            "true",
            "[client.subscription_token]\nenabled = true\nhmac_secret_key = \"k\"\n",
        ),
        ("false", ""),
    ] {
        let v5 = format!(
            "{{\"separate_subscription_token_config\": {is_on}, \"subscription_token_hmac_secret_key\": \"k\"}}"
        );
        let v6 = format!(
            "{{\"client\": {{\"subscription_token\": {{\"enabled\": {is_on}, \"hmac_secret_key\": \"k\"}}}}}}"
        );
        for text in [v5, v6] {
            let imported = of_text("a.json", &text).unwrap();
            let bare = bare(&imported);
            assert!(bare.contains(expected), "{bare}");
            assert_eq!(
                bare.contains("subscription_token"),
                is_on == "true",
                "{bare}"
            );
        }
    }
}

#[test]
fn consumers_that_are_off_are_not_missed() {
    let text = |is_on| {
        format!(
            "{{\"consumers\": [{{\"name\": \"a\", \"enabled\": {is_on}}}], \"client\": {{\"insecure\": true}}}}"
        )
    };
    for (is_on, expected) in [(true, (Fate::Missing, true)), (false, (Fate::Idle, false))] {
        let imported = of_text("a.json", &text(is_on)).unwrap();
        assert_eq!(fate(&imported, "consumers"), Some(expected));
    }
}

#[test]
fn what_does_nothing_there_is_no_contradiction_here() {
    let text = "{\"client\": {\"token\": {\"jwks_public_endpoint\": \"https://a.example/k\", \"hmac_secret_key\": \"k\", \
                \"hmac_previous_secret_key\": \"o\", \"hmac_previous_secret_key_valid_until\": 9}}, \
                \"http_api\": {\"key\": \"k\", \"insecure\": true}}";
    let imported = of_text("a.json", text).unwrap();
    let bare = bare(&imported);
    assert!(bare.contains("[http_api]\ninsecure = true\n\n"), "{bare}");
    let tokens = "[client.token]\njwks_public_endpoint = \"https://a.example/k\"\n";
    assert!(bare.ends_with(tokens), "{bare}");
    for name in ["http_api.key", "client.token.hmac_secret_key"] {
        assert_eq!(fate(&imported, name), Some((Fate::Idle, false)));
    }
}
