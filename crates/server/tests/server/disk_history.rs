//! Histories on the disk: what was acknowledged is there after a start, whatever ended the server before.

use crate::support::{
    Running, api, next_text, on_both_drivers, options, publish_ok, publish_position, request,
    start, websocket, with_file,
};
use myriad_server::{DriverChoice, Options};
use serde_json::json;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use tungstenite::Message;

/// A directory that goes with its test.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("myriad-history-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).expect("a directory");
        Self(path)
    }

    /// What a server would find whose process ends now: the kernel has what was written.
    fn as_now(&self) -> Self {
        let copy = Self::new();
        for entry in fs::read_dir(&self.0).expect("a directory") {
            let entry = entry.expect("an entry");
            let to = copy.0.join(entry.file_name());
            fs::copy(entry.path(), to).expect("a copy");
        }
        copy
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const TABLES: &str = "[channel.without_namespace]\nhistory_size = 10\nhistory_ttl = \"1h\"\nforce_recovery = true\n\
    allow_subscribe_for_client = true\nallow_subscribe_for_anonymous = true\n\
    [[channel.namespaces]]\nname = \"gone\"\nhistory_size = 10\nhistory_ttl = \"1h\"\nhistory_durability = \"memory\"\n";

fn with_disk(directory: &Path, driver: DriverChoice) -> Options {
    let base = Options {
        history_dir: Some(directory.to_owned()),
        ..options(driver)
    };
    with_file(TABLES, base)
}

fn server(directory: &Directory, driver: DriverChoice) -> (Running, SocketAddr) {
    let server = start(with_disk(&directory.0, driver));
    let address = server.address();
    (server, address)
}

fn history(address: SocketAddr, channel: &str) -> serde_json::Value {
    let body = json!({ "channel": channel, "limit": 100 }).to_string();
    api(address, "history", &body)["result"].clone()
}

fn stream(address: SocketAddr, method: &str, headers: &str, body: &str) -> u16 {
    request(address, method, "/v1/stream/letters", headers, body).status
}

on_both_drivers! {
    fn what_was_acknowledged_outlives_an_end_at_any_time(driver) {
        let directory = Directory::new();
        let (first, address) = server(&directory, driver);
        let mut epoch = String::new();
        for n in 1..=15 {
            let body = format!(r#"{{"channel":"news","data":{{"n":{n}}},"tags":{{"a":"b"}}}}"#);
            let position = publish_position(address, &body);
            assert_eq!(position.1, n);
            epoch = position.0;
        }
        let keyed = r#"{"channel":"keyed","data":1,"idempotency_key":"once"}"#;
        assert_eq!(publish_ok(address, keyed), 1);
        publish_ok(address, r#"{"channel":"removed","data":1}"#);
        api(address, "history_remove", r#"{"channel":"removed"}"#);
        publish_ok(address, r#"{"channel":"gone:a","data":1}"#);
        let text = "Content-Type: text/plain\r\n";
        let producer =
            "Content-Type: text/plain\r\nProducer-Id: p\r\nProducer-Epoch: 0\r\nProducer-Seq: 0\r\n";
        assert_eq!(stream(address, "PUT", text, ""), 201);
        assert_eq!(stream(address, "POST", producer, "a"), 200);
        let before = history(address, "news");

        let as_killed = directory.as_now();
        first.stop();
        for found in [as_killed, directory] {
            let (second, address) = server(&found, driver);
            assert_eq!(history(address, "news"), before);
            let removed = history(address, "removed");
            assert_eq!(
                (&removed["offset"], &removed["publications"]),
                (&json!(1), &json!([]))
            );
            assert_eq!(publish_ok(address, keyed), 1, "the same key");
            let next = publish_position(address, r#"{"channel":"news","data":16}"#);
            assert_eq!(next, (epoch.clone(), 16));
            assert_eq!(publish_ok(address, r#"{"channel":"gone:a","data":1}"#), 1);
            // Its type, and its producer.
            let json = "Content-Type: application/json\r\n";
            assert_eq!(stream(address, "POST", json, "[1]"), 409);
            assert_eq!(stream(address, "POST", producer, "a"), 204, "a repeat");
            second.stop();
        }
    }

    fn clients_recover_over_a_restart_and_go_on(driver) {
        let directory = Directory::new();
        let (first, address) = server(&directory, driver);
        let (epoch, _) = publish_position(address, r#"{"channel":"news","data":1}"#);
        publish_ok(address, r#"{"channel":"news","data":2}"#);
        first.stop();
        let (second, address) = server(&directory, driver);
        let mut socket = websocket(address, "/connection/websocket");
        let commands = format!(
            "{{\"id\":1,\"connect\":{{}}}}\n{{\"id\":2,\"subscribe\":{{\"channel\":\"news\",\"recover\":true,\"epoch\":\"{epoch}\",\"offset\":1}}}}"
        );
        socket.send(Message::text(commands)).expect("a send");
        let mut told = String::new();
        while !told.contains("\"recovered\"") {
            told += &next_text(&mut socket);
        }
        assert!(told.contains("\"recovered\":true"), "{told}");
        assert!(told.contains("\"offset\":2"), "{told}");
        publish_ok(address, r#"{"channel":"news","data":3}"#);
        let push = next_text(&mut socket);
        assert!(push.contains("\"offset\":3"), "{push}");
        second.stop();
    }
}

#[test]
fn one_directory_has_one_server() {
    let directory = Directory::new();
    let (_server, _) = server(&directory, DriverChoice::Epoll);
    let config = with_disk(&directory.0, DriverChoice::Epoll)
        .resolve(&myriad_server::Machine::here())
        .expect("a good configuration");
    let error = myriad_server::Server::start(config).expect_err("a second server");
    assert!(
        error
            .to_string()
            .contains("another process has the directory"),
        "{error}"
    );
}
