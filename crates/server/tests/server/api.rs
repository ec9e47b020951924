//! The HTTP API: its methods, batches of them, and how errors are told.

use crate::support::{
    Running, api, api_error, next_text, on_both_drivers, options, request, start, websocket,
};
use myriad_server::{ChannelTable, Count, DriverChoice, NamespaceTable, Options, Span};
use serde_json::{Value, json};
use std::time::Duration;

/// Channels without a namespace have no history; those of `kept` have.
fn started(driver: DriverChoice) -> Running {
    let kept = NamespaceTable {
        name: Some("kept".into()),
        history_size: Count(10),
        history_ttl: Span(Duration::from_secs(300)),
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

    fn a_malformed_command_spoils_its_batch_and_is_named(driver) {
        let server = started(driver);
        let body = r#"{"commands": [{"publish": {"channel": "kept:a", "data": 1}}, {"publish": {"channel": "a", "date": 1}}]}"#;
        let answer = request(server.address(), "POST", "/api/batch", "", body);
        assert_eq!(answer.status, 400);
        assert!(answer.body.contains("commands[1]") && answer.body.contains("`date`"), "{}", answer.body);
        let after = api(server.address(), "publish", r#"{"channel": "kept:a", "data": 2}"#);
        assert_eq!(position(&after["result"]).0, 1, "nothing of the batch was carried out");
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
        for (body, words) in [
            ("", "empty"),
            ("{", "line 1"),
            (r#"{"method": "nope"}"#, "does not exist"),
            (r#"{"method": "publish", "params": {"channel": 1}}"#, "channel"),
        ] {
            let answer = request(server.address(), "POST", "/api", "", body);
            assert_eq!(answer.status, 400, "{body}: {answer:?}");
            assert!(answer.body.contains(words), "{body}: {answer:?}");
        }
    }

    fn errors_are_statuses_for_those_who_ask(driver) {
        let server = started(driver);
        let transport = "X-Centrifugo-Error-Mode: transport\r\n";
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
}
