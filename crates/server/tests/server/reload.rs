//! Other options for a running server.

use crate::support::{
    Http, api_error, head, next, next_text, on_both_drivers, options, publish_ok, start, websocket,
};
use myriad_server::{ChannelTable, Count, NamespaceTable, Options, Span};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tungstenite::Message;

/// A namespace with so much history.
fn namespace(name: &str, history_size: u64) -> NamespaceTable {
    NamespaceTable {
        name: Some(name.into()),
        history_size: Count(history_size),
        history_ttl: Span(Duration::from_secs(if history_size > 0 { 60 } else { 0 })),
        ..NamespaceTable::default()
    }
}

/// The same options with these namespaces.
fn with(options: &Options, namespaces: &[NamespaceTable]) -> Options {
    Options {
        channel: Some(ChannelTable {
            namespaces: namespaces.to_vec(),
            ..ChannelTable::default()
        }),
        ..options.clone()
    }
}

on_both_drivers! {
    fn nothing_is_lost_while_channels_change(driver) {
        const PUBLICATIONS: usize = 2_000;
        let options = options(driver);
        let server = start(with(&options, &[namespace("kept", 3), namespace("gone", 0)]));
        let mut clients = ["kept:a", "kept:b", "gone:a"]
            .map(|channel| websocket(server.address(), &format!("/raw?channel={channel}")));
        let (reloader, is_over) = (server.reloader(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut rounds = 0;
                while !is_over.load(Ordering::Relaxed) || rounds < 3 {
                    for history_size in [0, 5, 1, 100] {
                        let changed = with(&options, &[namespace("kept", history_size), namespace("new", 1)]);
                        reloader.reload(changed).expect("good options");
                    }
                    rounds += 1;
                }
            });
            let mut api = Http::connect(server.address());
            for nth in 0..PUBLICATIONS {
                for channel in ["kept:a", "kept:b"] {
                    let body = format!(r#"{{"channel": "{channel}", "data": {nth}}}"#);
                    let length = format!("Content-Length: {}\r\n", body.len());
                    api.send(head("POST", "/api/publish", &length).as_bytes());
                    api.send(body.as_bytes());
                    let answer = api.answer();
                    assert!(answer.body.contains("\"result\""), "{answer:?}");
                }
            }
            is_over.store(true, Ordering::Relaxed);
        });
        for client in &mut clients[..2] {
            for nth in 0..PUBLICATIONS {
                assert_eq!(next_text(client), nth.to_string());
            }
        }
        // A subscription of a namespace that has gone stays until its client ends it.
        let error = api_error(server.address(), "publish", r#"{"channel": "gone:a", "data": 1}"#);
        assert_eq!(error["code"], 102, "{error}");
        clients[2].send(Message::Ping("here".into())).expect("an open connection");
        assert_eq!(next(&mut clients[2]), Message::Pong("here".into()));
        let mut client = websocket(server.address(), "/raw?channel=new:a");
        publish_ok(server.address(), r#"{"channel": "new:a", "data": "new"}"#);
        assert_eq!(next_text(&mut client), "new");
    }

    fn a_mistake_changes_nothing(driver) {
        let options = options(driver);
        let server = start(with(&options, &[namespace("kept", 3)]));
        let mut wrong = with(&options, &[namespace("other", 1), namespace("other", 2)]);
        wrong.anonymous = Some(false);
        let error = server.reloader().reload(wrong).expect_err("two of the same name");
        assert!(error.to_string().contains("channel.namespaces[1].name"), "{error}");
        let mut client = websocket(server.address(), "/raw?channel=kept:a");
        publish_ok(server.address(), r#"{"channel": "kept:a", "data": "as before"}"#);
        assert_eq!(next_text(&mut client), "as before");
    }
}
