//! The HTTP API: its methods, batches of them, and how errors are told.

use crate::support::{
    EXPLAINED, Running, api, api_error, metric, next_text, on_both_drivers, options, request,
    start, until, websocket, with_file,
};
use myriad_server::{ChannelTable, Count, DriverChoice, NamespaceTable, Options, Span};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use tungstenite::{Message, WebSocket};

/// Channels without a namespace have no history; those of `kept` have.
fn started(driver: DriverChoice) -> Running {
    let kept = NamespaceTable {
        name: Some("kept".into()),
        history_size: Count(10),
        history_ttl: Span(Duration::from_secs(300)),
        presence: true,
        allow_subscribe_for_client: true,
        allow_subscribe_for_anonymous: true,
        ..NamespaceTable::default()
    };
    let channel = ChannelTable {
        namespaces: vec![kept],
        ..ChannelTable::default()
    };
    start(Options {
        channel: Some(channel),
        ..options(driver)
    })
}

/// Options of a config file, beside those that every test has.
fn from_text(text: &str, driver: DriverChoice) -> Options {
    let base = Options {
        dev: None,
        anonymous: Some(true),
        ..options(driver)
    };
    with_file(text, base)
}

/// A client of the Centrifuge protocol that has subscribed. Returns its id too.
fn session(address: SocketAddr, channel: &str) -> (WebSocket<TcpStream>, String) {
    let mut socket = websocket(address, "/connection/websocket");
    let mut ask = |command: Value| {
        socket
            .send(Message::text(command.to_string()))
            .expect("sent");
        serde_json::from_str::<Value>(&next_text(&mut socket)).expect("JSON")
    };
    let connected = ask(json!({"id": 1, "connect": {}}));
    let client = connected["connect"]["client"].as_str().expect("an id");
    let client = client.to_owned();
    let subscribed = ask(json!({"id": 2, "subscribe": {"channel": channel}}));
    assert!(subscribed["subscribe"].is_object(), "{subscribed}");
    (socket, client)
}

fn position(result: &Value) -> (u64, String) {
    (
        result["offset"].as_u64().expect("an offset"),
        result["epoch"].as_str().expect("an epoch").to_owned(),
    )
}

on_both_drivers! {
    fn one_publication_goes_to_many_channels(driver) {
        let server = started(driver);
        let mut client = websocket(server.address(), "/raw?channel=a&channel=kept:b");
        let body = r#"{"channels": ["a", "kept:b", "nope:c", ""], "data": "x"}"#;
        let answer = api(server.address(), "broadcast", body);
        let responses = answer["result"]["responses"].as_array().expect("responses");
        assert_eq!(responses.len(), 4);
        assert_eq!(responses[0], json!({"result": {}}), "no history");
        assert_eq!(position(&responses[1]["result"]).0, 1);
        assert_eq!(responses[2]["error"]["code"], 102);
        assert_eq!(responses[2]["error"]["message"], "unknown channel");
        assert_eq!(responses[3]["error"]["code"], 107);
        assert_eq!([next_text(&mut client), next_text(&mut client)], ["x", "x"]);
        for (body, words) in [
            (r#"{"channels": [], "data": 1}"#.to_owned(), "no channel"),
            (r#"{"channels": ["a"]}"#.to_owned(), "is missing"),
            (format!(r#"{{"channels": [{}], "data": 1}}"#, vec!["\"a\""; 10_001].join(",")), "at most 10000"),
        ] {
            let error = api_error(server.address(), "broadcast", &body);
            assert_eq!(error["code"], 107);
            assert!(error["detail"].as_str().expect("a sentence").contains(words), "{error}");
        }
    }

    fn a_batch_is_answered_in_order(driver) {
        let server = started(driver);
        let mut client = websocket(server.address(), "/raw?channel=kept:a");
        for parallel in [false, true] {
            let publish = |n: u32| json!({"publish": {"channel": "kept:a", "data": n}});
            let body = json!({"parallel": parallel, "commands": [
                publish(1), {"rpc": {"method": "x"}}, publish(2),
                {"broadcast": {"channels": ["kept:a", "kept:b"], "data": 3}}, {"publish": {"channel": "nope:a", "data": 4}},
                {"broadcast": {"channels": [], "data": 5}}, publish(6),
            ]});
            let answer = api(server.address(), "batch", &body.to_string());
            let replies = answer["replies"].as_array().expect("replies at the top");
            assert_eq!(replies.len(), 7);
            let first = position(&replies[0]["publish"]).0;
            assert_eq!(replies[1]["error"]["code"], 104);
            assert_eq!(position(&replies[2]["publish"]).0, first + 1);
            assert_eq!(position(&replies[3]["broadcast"]["responses"][0]["result"]).0, first + 2);
            assert_eq!(replies[4]["error"]["code"], 102);
            assert_eq!(replies[5]["error"]["code"], 107);
            assert_eq!(position(&replies[6]["publish"]).0, first + 3);
            assert_eq!([(); 4].map(|()| next_text(&mut client)), ["1", "2", "3", "6"]);
        }
        assert_eq!(api(server.address(), "batch", r#"{"commands": []}"#), json!({"replies": []}));
        let many = vec![r#"{"rpc":{"method":"x"}}"#; 10_001].join(",");
        let error = api_error(server.address(), "batch", &format!(r#"{{"commands": [{many}]}}"#));
        assert_eq!(error["code"], 107);
    }

    fn a_malformed_command_is_answered_alone(driver) {
        let server = started(driver);
        for parallel in [false, true] {
            let body = json!({"parallel": parallel, "commands": [
                {"publish": {"channel": "kept:a", "data": 1}}, {"publish": {"data": 1}}, {"nope": {}}, 5,
                {"publish": {"channel": 7}}, {"publish": {"channel": "kept:a", "data": 2}},
            ]});
            let answer = api(server.address(), "batch", &body.to_string());
            let replies = answer["replies"].as_array().expect("replies at the top");
            assert_eq!(replies.len(), 6, "{answer}");
            for (index, words) in [(1, "`channel`"), (2, "nope"), (3, "`5`"), (4, "channel")] {
                let error = &replies[index]["error"];
                assert_eq!(error["code"], 107, "{error}");
                assert!(error["detail"].as_str().expect("a sentence").contains(words), "{error}");
            }
            let first = position(&replies[0]["publish"]).0;
            assert_eq!(position(&replies[5]["publish"]).0, first + 1);
        }
    }

    fn a_request_is_read_and_answered_as_libraries_expect(driver) {
        let server = started(driver);
        let call = |headers: &str, body: &str| {
            let answer = request(server.address(), "POST", "/api/publish", headers, body);
            (answer.status, serde_json::from_str::<Value>(&answer.body).expect("JSON"))
        };
        // Newer libraries send fields that this server does not know.
        let (status, answer) = call("", r#"{"channel": "a", "data": 1, "date": 5}"#);
        assert_eq!((status, answer), (200, json!({"result": {}})));
        assert_eq!(call(EXPLAINED, r#"{"channel": "a", "data": 1, "date": 5}"#).0, 400);
        // Fields that are known, and not used.
        let error = api_error(server.address(), "rpc", r#"{"method": "x", "params": {"a": [1]}}"#);
        assert_eq!(error["code"], 104, "{error}");
        let error = json!({"error": {"code": 107, "message": "bad request"}});
        assert_eq!(call("", r#"{"data": 1}"#), (200, error));
        let (status, answer) = call(EXPLAINED, r#"{"data": 1}"#);
        assert_eq!(status, 200);
        assert!(answer["error"]["detail"].as_str().expect("a sentence").contains("`channel`"), "{answer}");
    }

    fn the_form_of_older_clients_is_answered_line_by_line(driver) {
        let server = started(driver);
        let body = concat!(
            r#"{"method": "publish", "params": {"channel": "kept:a", "data": 1}}"#, "\n",
            r#"{"method": "publish", "params": {"channel": "nope:a", "data": 1}, "id": 7}"#, "\n",
            r#"{"method": "rpc", "params": {"method": "x", "params": {}}}"#,
        );
        let answer = request(server.address(), "POST", "/api", "", body);
        assert_eq!(answer.status, 200, "{answer:?}");
        let lines: Vec<Value> = answer.body.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert_eq!(position(&lines[0]["result"]).0, 1);
        assert_eq!((&lines[1]["id"], &lines[1]["error"]["code"]), (&json!(7), &json!(102)));
        assert_eq!(lines[2]["error"]["code"], 104);
        for line in [r#"{"method": "nope"}"#, r#"{"method": "publish", "params": {"channel": 1}}"#] {
            let answer = request(server.address(), "POST", "/api", "", line);
            assert_eq!(answer.status, 200, "{line}: {answer:?}");
            assert!(answer.body.starts_with(r#"{"error":{"code":107,"#), "{answer:?}");
        }
        for (body, words) in [
            ("", "empty"),
            ("{", "line 1"),
        ] {
            let answer = request(server.address(), "POST", "/api", "", body);
            assert_eq!(answer.status, 400, "{body}: {answer:?}");
            assert!(answer.body.contains(words), "{body}: {answer:?}");
        }
    }

    fn errors_are_statuses_for_those_who_ask(driver) {
        let server = started(driver);
        let transport = "X-Centrifugo-Error-Mode: transport\r\nX-Myriad-Debug: true\r\n";
        for (method, body, status, code) in [
            ("publish", r#"{"channel": "nope:a", "data": 1}"#, 404, 102),
            ("publish", r#"{"channel": "a"}"#, 400, 107),
            ("rpc", r#"{"method": "x"}"#, 404, 104),
        ] {
            let answer = request(server.address(), "POST", &format!("/api/{method}"), transport, body);
            assert_eq!(answer.status, status, "{answer:?}");
            let error: Value = serde_json::from_str(&answer.body).expect("JSON");
            assert_eq!(error["code"], code, "the error is the whole body");
            assert_eq!(api_error(server.address(), method, body), error);
        }
        let body = r#"{"commands": [{"rpc": {"method": "x"}}]}"#;
        assert_eq!(request(server.address(), "POST", "/api/batch", transport, body).status, 200);
    }

    fn a_version_is_published_once(driver) {
        let server = started(driver);
        let mut client = websocket(server.address(), "/raw?channel=kept:a");
        let publish = |data: &str, version: u64, epoch: &str| {
            let body = json!({"channel": "kept:a", "data": data, "version": version, "version_epoch": epoch});
            position(&api(server.address(), "publish", &body.to_string())["result"]).0
        };
        assert_eq!([publish("a", 3, "x"), publish("same", 3, "x"), publish("older", 2, "")], [1, 1, 1]);
        assert_eq!([publish("b", 4, ""), publish("c", 1, "y"), publish("none", 0, "")], [2, 3, 4]);
        assert_eq!([(); 4].map(|()| next_text(&mut client)), ["a", "b", "c", "none"]);
    }

    fn history_is_read_in_pages_and_removed(driver) {
        let server = started(driver);
        let address = server.address();
        let history = |fields: Value| {
            let mut body = json!({"channel": "kept:a"});
            body.as_object_mut().expect("an object").extend(fields.as_object().expect("an object").clone());
            api(address, "history", &body.to_string())
        };
        let empty = &history(json!({}))["result"];
        assert_eq!((&empty["publications"], &empty["offset"]), (&json!([]), &json!(0)));
        let epoch = empty["epoch"].as_str().expect("an epoch").to_owned();
        for body in [
            r#"{"channel": "kept:a", "data": {"b": 1.50,  "a": null}, "tags": {"k": "v\"", "l": ""}}"#,
            r#"{"channel": "kept:a", "b64data": "AP8="}"#,
            "{\"channel\": \"kept:a\", \"data\": [1,\n2]}",
        ] {
            api(address, "publish", body);
        }
        let all = request(address, "POST", "/api/history", "", r#"{"channel": "kept:a", "limit": -1}"#).body;
        assert!(all.contains(r#"{"data":{"b": 1.50,  "a": null},"offset":1,"tags":{"k":"v\"","l":""}}"#), "byte for byte: {all}");
        let offsets = |fields: Value| {
            let answer = history(fields);
            let list = answer["result"]["publications"].as_array().expect("a list").clone();
            list.iter().map(|publication| publication["offset"].as_u64().expect("an offset")).collect::<Vec<_>>()
        };
        assert_eq!(history(json!({"limit": 2, "reverse": true}))["result"]["publications"], json!([
            {"data": [1, 2], "offset": 3}, {"data": null, "b64data": "AP8=", "offset": 2},
        ]));
        assert_eq!(offsets(json!({})), [0; 0]);
        assert_eq!(offsets(json!({"limit": 1, "since": {"offset": 1, "epoch": epoch}})), [2]);
        assert_eq!(offsets(json!({"limit": -1, "since": {"offset": 3}, "reverse": true})), [2, 1]);
        assert_eq!(history(json!({"since": {"offset": 1, "epoch": "other"}}))["error"]["code"], 112);
        assert_eq!(history(json!({"since": {"offset": 0}, "reverse": true}))["error"]["code"], 107);
        assert_eq!(api(address, "history_remove", r#"{"channel": "kept:a"}"#), json!({"result": {}}));
        let after = history(json!({"limit": -1}));
        assert_eq!(after["result"], json!({"publications": [], "epoch": epoch, "offset": 3}));
        for method in ["history", "history_remove"] {
            assert_eq!(api_error(address, method, r#"{"channel": "a"}"#)["code"], 108);
            assert_eq!(api_error(address, method, r#"{"channel": "nope:a"}"#)["code"], 102);
        }
    }

    fn a_batch_sees_what_it_has_published(driver) {
        let server = started(driver);
        let read = json!({"history": {"channel": "kept:a", "limit": -1}});
        let publish = json!({"publish": {"channel": "kept:a", "data": 1}});
        let body = json!({"commands": [publish, read, publish, read]}).to_string();
        let answer = api(server.address(), "batch", &body);
        let count = |index: usize| answer["replies"][index]["history"]["publications"].as_array().expect("a list").len();
        assert_eq!((count(1), count(3)), (1, 2));
    }

    fn members_are_told_whole_or_in_pages(driver) {
        let server = start(Options { shards: Some(2), ..options(driver) });
        let address = server.address();
        let empty = api(address, "presence", r#"{"channel": "a"}"#);
        assert_eq!(empty, json!({"result": {"presence": {}}}));
        let clients: Vec<_> = (0..5).map(|_| session(address, "a")).collect();
        let ids: BTreeSet<_> = clients.iter().map(|(_, id)| id.clone()).collect();
        let answer = api(address, "presence", r#"{"channel": "a"}"#);
        let presence = answer["result"]["presence"].as_object().expect("an object");
        assert!(presence.keys().eq(ids.iter()));
        for (id, info) in presence {
            assert_eq!(*info, json!({"user": "", "client": id}));
        }
        let stats = api(address, "presence_stats", r#"{"channel": "a"}"#);
        assert_eq!(stats["result"], json!({"num_clients": 5, "num_users": 1}));
        let (mut found, mut cursor) = (Vec::new(), String::new());
        for size in [2, 2, 1] {
            let body = json!({"channel": "a", "limit": 2, "cursor": cursor}).to_string();
            let answer = api(address, "presence", &body);
            let page = answer["result"]["presence"].as_object().expect("an object");
            assert_eq!(page.len(), size);
            found.extend(page.keys().cloned());
            cursor = answer["result"]["cursor"].as_str().unwrap_or_default().to_owned();
        }
        assert!(found.iter().eq(ids.iter()) && cursor.is_empty());
        for (fields, code) in [(r#""channel": "a", "cursor": "x""#, 107), (r#""channel": "a", "limit": -1"#, 107), (r#""channel": "nope:a""#, 102)] {
            assert_eq!(api_error(address, "presence", &format!("{{{fields}}}"))["code"], code);
        }
        let server = started(driver);
        for method in ["presence", "presence_stats"] {
            assert_eq!(api_error(server.address(), method, r#"{"channel": "a"}"#)["code"], 108);
        }
    }

    fn channels_are_listed_by_pattern_and_in_pages(driver) {
        let server = start(Options { shards: Some(2), ..options(driver) });
        let address = server.address();
        // More than a shard looks at in one turn.
        const CLIENTS: usize = 72;
        let name = |client: usize, channel: usize| format!("c{:05}", client * 128 + channel);
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let names: Vec<_> = (0..128).map(|channel| format!("channel={}", name(client, channel))).collect();
                websocket(address, &format!("/raw?{}", names.join("&")))
            })
            .collect();
        let _second = websocket(address, "/raw?channel=c00001");
        let answer = api(address, "channels", "{}");
        let all = answer["result"]["channels"].as_object().expect("an object");
        assert_eq!((all.len(), answer["result"].get("cursor")), (CLIENTS * 128, None));
        assert_eq!((&all["c00000"], &all["c00001"]), (&json!({"num_clients": 1}), &json!({"num_clients": 2})));
        let some = api(address, "channels", r#"{"pattern": "c000{07,1?}"}"#);
        assert_eq!(some["result"]["channels"].as_object().expect("an object").len(), 11);
        let (mut found, mut cursor) = (Vec::new(), String::new());
        loop {
            let body = json!({"limit": 1000, "cursor": cursor}).to_string();
            let answer = api(address, "channels", &body);
            found.extend(answer["result"]["channels"].as_object().expect("an object").keys().cloned());
            match answer["result"]["cursor"].as_str() {
                Some(next) => next.clone_into(&mut cursor),
                None => break,
            }
        }
        assert!(found.iter().eq(all.keys()));
        assert_eq!(api_error(address, "channels", r#"{"pattern": "["}"#)["code"], 107);
        drop(clients);
        until("only one is left", || {
            api(address, "channels", "{}")["result"]["channels"].as_object().expect("an object").len() == 1
        });
    }

    fn a_server_tells_its_figures(driver) {
        let server = start(Options { shards: Some(2), ..options(driver) });
        let address = server.address();
        let _raw = websocket(address, "/raw?channel=a&channel=b");
        let _sessions = [session(address, "a"), session(address, "c")];
        let answer = api(address, "info", "{}");
        let node = &answer["result"]["nodes"][0];
        for (name, value) in [("num_clients", 3), ("num_users", 1), ("num_subs", 4), ("num_channels", 3)] {
            assert_eq!(node[name], value, "{name}: {node}");
        }
        assert_eq!(node["version"], env!("CARGO_PKG_VERSION"));
        assert!(node["uid"].is_string() && node["name"].is_string() && node["uptime"].is_u64());
    }

    fn keys_have_rights_of_their_own(driver) {
        let file = r#"
            [[channel.namespaces]]
            name = "chat"
            [[http_api.keys]]
            name = "all"
            key = "k-all"
            [[http_api.keys]]
            name = "chat"
            key = "k-chat"
            methods = ["publish", "broadcast", "info", "subscribe"]
            namespaces = ["chat"]
        "#;
        let server = start(from_text(file, driver));
        let address = server.address();
        assert_eq!(server.api_key(), None, "no key was made");
        let send = |key: &str, path: &str, body: &str| request(address, "POST", path, &format!("X-API-Key: {key}\r\n"), body);
        assert_eq!(send("k-chat", "/api/subscribe", r#"{"channel": "chat:a", "user": "42", "all_users": true}"#).status, 200);
        for key in ["k-all", "k-chat"] {
            assert_eq!(send(key, "/api/publish", r#"{"channel": "chat:a", "data": 1}"#).status, 200);
        }
        assert_eq!(request(address, "POST", "/api/info?api_key=k-all", "", "{}").status, 200);
        assert_eq!(send("k-other", "/api/info", "{}").status, 401);
        assert_eq!(request(address, "POST", "/api/info?api_key=no", "", "{}").status, 401);
        for (path, body, words) in [
            ("/api/publish", r#"{"channel": "a", "data": 1}"#, "the namespace \\\"\\\""),
            ("/api/broadcast", r#"{"channels": ["chat:a", "other:b"], "data": 1}"#, "the namespace \\\"other\\\""),
            ("/api/presence", "not even JSON", "may not call presence"),
            ("/api/info", "{}", "the whole server"),
            ("/api/subscribe", r#"{"channel": "chat:a", "all_users": true}"#, "the whole server"),
            ("/api/subscribe", r#"{"channel": "chat:a", "all_users": true, "user": "", "client": ""}"#, "the whole server"),
            ("/api/batch", r#"{"commands": [{"publish": {"channel": "chat:a", "data": 1}}, {"history": {"channel": "chat:a"}}]}"#, "may not call history"),
            ("/api", r#"{"method": "history", "params": {"channel": "chat:a"}}"#, "may not call history"),
        ] {
            let answer = send("k-chat", path, body);
            assert_eq!(answer.status, 403, "{path} {body}: {answer:?}");
            assert!(answer.body.contains(words) && answer.body.contains("\"rights\""), "{words}: {answer:?}");
        }
        let calls = |key: &str, method: &str| metric(address, &format!("myriad_api_calls_total{{key=\"{key}\",method=\"{method}\"}}"));
        assert_eq!((calls("all", "publish"), calls("chat", "publish"), calls("all", "info")), (1, 1, 1));
    }

    fn other_keys_come_with_a_reload(driver) {
        let file = |key: &str, mode: &str| from_text(&format!("[http_api]\nkey = \"{key}\"\nerror_mode = \"{mode}\""), driver);
        let server = start(file("first", ""));
        let address = server.address();
        let send = |key: &str| request(address, "POST", "/api/rpc", &format!("Authorization: apikey {key}\r\n"), r#"{"method": "x"}"#).status;
        assert_eq!((send("first"), send("second")), (200, 401));
        server.reloader().reload(file("second", "transport")).expect("a good file");
        assert_eq!((send("first"), send("second")), (401, 404));
    }

    fn what_opened_the_api_is_gone_with_a_reload(driver) {
        for before in ["insecure = true", "key = \"leaked\""] {
            let server = start(from_text(&format!("[http_api]\n{before}"), driver));
            let info = || request(server.address(), "POST", "/api/info", "X-API-Key: leaked\r\n", "{}").status;
            assert_eq!(info(), 200, "{before}");
            server.reloader().reload(from_text("", driver)).expect("a good file");
            assert_eq!(info(), 401, "{before}");
            server.reloader().reload(from_text(&format!("[http_api]\n{before}"), driver)).expect("a good file");
            assert_eq!(info(), 200, "{before}");
        }
    }
}
