//! Channels as streams of the Durable Streams protocol: writing.

use crate::support::{
    Answer, Http, api, api_error, head, metric, next_text, on_both_drivers, options, publish_ok,
    request, start, until, websocket, with_file,
};
use myriad_server::{DriverChoice, Options, TokenDraft};
use std::io::Write;
use std::net::{SocketAddr, TcpStream};

const SECRET: &str = "a secret of at least thirty-two bytes";
/// The key of RFC 8037, appendix A.1, and a token of user 42 that is signed by it.
const PUBLIC_KEY: &str = "-----BEGIN PUBLIC KEY-----\\nMCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\\n-----END PUBLIC KEY-----\\n";
const SIGNED: &str = "eyJhbGciOiJFZERTQSIsImtpZCI6ImEifQ.eyJzdWIiOiI0MiJ9.FT6M12HPQAH0a-0KNQgLzQMdcokvxVQyKcnpX_9gTlMtSnBuJTL23P-rWM0kRU1IHopg7kE5NqmFymiKRPX-BQ";
const JSON: &str = "Content-Type: application/json\r\n";
const UPGRADE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
const TEXT: &str = "Content-Type: text/plain\r\n";

fn from_text(text: &str, driver: DriverChoice) -> Options {
    let base = Options {
        dev: None,
        ..options(driver)
    };
    with_file(text, base)
}

fn ask(address: SocketAddr, method: &str, name: &str, headers: &str, body: &str) -> Answer {
    request(
        address,
        method,
        &format!("/v1/stream/{name}"),
        headers,
        body,
    )
}

fn status(address: SocketAddr, method: &str, name: &str, headers: &str, body: &str) -> u16 {
    ask(address, method, name, headers, body).status
}

/// The status of a HEAD, whose answer has no body whatever its length says.
fn look(address: SocketAddr, name: &str, headers: &str) -> u16 {
    let mut http = Http::connect(address);
    http.send(
        head(
            "HEAD",
            &format!("/v1/stream/{name}"),
            &format!("Connection: close\r\n{headers}"),
        )
        .as_bytes(),
    );
    let answer = http.all();
    assert!(answer.ends_with("\r\n\r\n"), "{answer}");
    answer[9..12].parse().expect("a status")
}

/// Connections of strangers that hold the last byte of a body back.
fn held_bodies(address: SocketAddr, count: usize, length: usize) -> Vec<TcpStream> {
    let head = head(
        "POST",
        "/v1/stream/a",
        &format!("{JSON}Content-Length: {length}\r\n"),
    );
    let body = vec![b'1'; length - 1];
    let hold = |_| {
        let mut stream = TcpStream::connect(address).expect("a listening server");
        // A server that ends it under way may do so.
        let _ = stream
            .write_all(head.as_bytes())
            .and_then(|()| stream.write_all(&body));
        stream
    };
    (0..count).map(hold).collect()
}

on_both_drivers! {
    fn nobody_writes_or_ends_what_its_name_keeps_from_him(driver) {
        let text = format!(
            "anonymous = true\n[client.token]\nhmac_secret_key = \"{SECRET}\"\n[channel.without_namespace]\n\
            history_size = 10\nhistory_ttl = \"1m\"\nallow_user_limited_channels = true\n\
            allow_publish_for_client = true\nallow_publish_for_anonymous = true\n\
            allow_stream_end_for_client = true\nallow_stream_end_for_anonymous = true\n\
            [http_api]\nkey = \"k-all\""
        );
        let server = start(from_text(&text, driver));
        let address = server.address();
        let draft = TokenDraft { user: "42".into(), ..TokenDraft::default() };
        let user = format!("{JSON}Authorization: Bearer {}\r\n", draft.sign(SECRET).expect("a token"));
        let key = format!("{JSON}X-API-Key: k-all\r\n");
        // Of a user, and of nobody.
        for (name, shown, of_user, of_nobody) in [
            ("open", "open", true, true),
            ("room%237,42", "room#7,42", true, false),
            ("room%237", "room#7", false, false),
            ("$a", "$a", false, false),
        ] {
            assert_eq!(status(address, "PUT", name, &key, ""), 201, "{name}");
            for (who, may) in [(&*user, of_user), (JSON, of_nobody)] {
                let appended = ask(address, "POST", name, who, "1");
                assert_eq!(appended.status, if may { 204 } else { 403 }, "{name}: {appended:?}");
                assert!(may || appended.body.contains(shown), "{}", appended.body);
                assert!(may || status(address, "DELETE", name, who, "") == 403, "{name}");
            }
            assert_eq!(status(address, "DELETE", name, &user, ""), if of_user { 204 } else { 403 });
        }
    }

    fn a_rate_of_clients_counts_the_elements_of_an_array(driver) {
        let text = "anonymous = true\n[channel.without_namespace]\nhistory_size = 100\nhistory_ttl = \"1m\"\n\
            allow_subscribe_for_client = true\nallow_subscribe_for_anonymous = true\n\
            allow_publish_for_client = true\nallow_publish_for_anonymous = true\n\
            [client.rate_limits]\npublishes_per_channel = \"10/h\"";
        let server = start(from_text(text, driver));
        let address = server.address();
        assert_eq!(status(address, "PUT", "a", JSON, ""), 201);
        let append = |elements: usize| {
            ask(address, "POST", "a", JSON, &format!("[{}]", vec!["0"; elements].join(",")))
        };
        assert_eq!(append(8).status, 204);
        let refused = append(8);
        assert_eq!(refused.status, 429);
        let wait: u64 = refused.header("retry-after").expect("a time").parse().expect("seconds");
        assert!((6 * 360 - 60..=6 * 360).contains(&wait), "six come back in {wait} s");
        assert_eq!(append(2).status, 204, "what was refused took nothing");
        assert_eq!(append(1).status, 429);
        let never = append(11);
        assert!(never.status == 413 && never.body.contains("publishes_per_channel"), "{never:?}");
        let read = ask(address, "GET", "a", "", "");
        assert_eq!(read.body.matches('0').count(), 10, "{}", read.body);
        until("counted", || metric(address, "myriad_limited_total{limit=\"publishes_per_channel\"}") == 3);
    }

    fn strangers_who_hold_bodies_back_keep_nobody_out(driver) {
        let text = "anonymous = true\n[http_api]\nkey = \"k-all\"\n\
            [channel.without_namespace]\nhistory_size = 100\nhistory_ttl = \"1m\"\n\
            allow_publish_for_client = true\nallow_publish_for_anonymous = true";
        let server = start(from_text(text, driver));
        let address = server.address();
        assert_eq!(status(address, "PUT", "a", JSON, ""), 201);
        // More than all the memory that there is for bodies.
        let held = held_bodies(address, 9, 8 << 20);
        let data = format!("{{\"channel\":\"b\",\"data\":\"{}\"}}", "x".repeat(900_000));
        for _ in 0..3 {
            let published = request(address, "POST", "/api/publish", "X-API-Key: k-all\r\n", &data);
            assert_eq!(published.status, 200, "{published:?}");
        }
        // Another stranger from the same address has to wait until these have stood still for a second.
        let large = format!("[{}1]", "1,".repeat(9_000));
        until("a stranger gets some of the memory", || status(address, "POST", "a", JSON, &large) == 204);
        until("it was taken from the others", || metric(address, "myriad_api_bodies_evicted_total") > 0);
        drop(held);
        until("all of it is given back", || metric(address, "myriad_api_bodies_bytes") == 0);
    }

    fn appends_and_publications_have_one_order(driver) {
        let server = start(options(driver));
        let address = server.address();
        let created = ask(address, "PUT", "a%2Fb/c", JSON, "");
        assert_eq!(created.status, 201);
        assert_eq!(created.header("location"), Some("http://localhost/v1/stream/a%2Fb/c"));
        assert_eq!(created.header("stream-durability"), Some("memory"));
        let mut client = websocket(address, "/raw?channel=a/b/c");
        let first = ask(address, "POST", "a/b/c", JSON, r#"[{"n":1}, "two", [3]]"#);
        assert_eq!(first.status, 204);
        assert_eq!(publish_ok(address, r#"{"channel": "a/b/c", "data": 4}"#), 4);
        assert_eq!(status(address, "POST", "a/b/c", JSON, "5"), 204);
        let told = [(); 5].map(|()| next_text(&mut client));
        assert_eq!(told, [r#"{"n":1}"#, "two", "[3]", "4", "5"]);
        let read = ask(address, "GET", "a/b/c", "", "");
        assert_eq!(read.body, r#"[{"n":1},"two",[3],4,5]"#);
        let offset = first.header("stream-next-offset").expect("an offset");
        let read = ask(address, "GET", &format!("a/b/c?offset={offset}"), "", "");
        assert_eq!((&*read.body, read.header("stream-up-to-date")), ("[4,5]", Some("true")));
        let history = api(address, "history", r#"{"channel": "a/b/c", "limit": 10}"#);
        assert_eq!(history["result"]["offset"], 5);
    }

    fn what_was_published_is_a_stream(driver) {
        let server = start(options(driver));
        let address = server.address();
        assert_eq!(look(address, "news", ""), 404);
        publish_ok(address, r#"{"channel": "news", "data": "one"}"#);
        let read = ask(address, "GET", "news", "", "");
        assert_eq!((&*read.body, read.header("content-type")), (r#"["one"]"#, Some("application/json")));
        assert_eq!(status(address, "POST", "news", TEXT, "two"), 409);
        assert_eq!(status(address, "DELETE", "news", "", ""), 204);
        assert_eq!(status(address, "GET", "news", "", ""), 404);
    }

    fn a_closed_stream_takes_no_publications(driver) {
        let server = start(options(driver));
        let address = server.address();
        assert_eq!(status(address, "PUT", "s", TEXT, "a"), 201);
        let closed = ask(address, "POST", "s", "Content-Type: text/plain\r\nStream-Closed: true\r\n", "b");
        assert_eq!((closed.status, closed.header("stream-closed")), (204, Some("true")));
        assert_eq!(status(address, "POST", "s", "Stream-Closed: true\r\n", ""), 204);
        let refused = ask(address, "POST", "s", TEXT, "c");
        assert_eq!((refused.status, refused.header("stream-next-offset")), (409, closed.header("stream-next-offset")));
        assert_eq!(api_error(address, "publish", r#"{"channel": "s", "data": 1}"#)["code"], 108);
        let mut client = websocket(address, "/connection/websocket");
        for command in [r#"{"id":1,"connect":{}}"#, r#"{"id":2,"publish":{"channel":"s","data":1}}"#] {
            client.send(tungstenite::Message::text(command)).expect("it is open");
        }
        next_text(&mut client);
        let told = next_text(&mut client);
        assert!(told.contains(r#""code":108"#), "{told}");
        let read = ask(address, "GET", "s", "", "");
        assert_eq!((&*read.body, read.header("stream-closed")), ("ab", Some("true")));
    }

    fn bodies_are_bounded_and_may_come_in_chunks(driver) {
        let server = start(options(driver));
        let address = server.address();
        assert_eq!(status(address, "PUT", "s", TEXT, ""), 201);
        let mut http = Http::connect(address);
        http.send(head("POST", "/v1/stream/s", &format!("Transfer-Encoding: chunked\r\n{TEXT}")).as_bytes());
        http.send(b"2\r\nab\r\n1\r\nc\r\n0\r\n\r\n");
        assert_eq!(http.answer().status, 204);
        assert_eq!(ask(address, "GET", "s", "", "").body, "abc");
        assert_eq!(status(address, "POST", "s", TEXT, ""), 400);
        assert_eq!(status(address, "POST", "s", "", "x"), 400);
        assert_eq!(status(address, "POST", "s", TEXT, &"x".repeat((1 << 20) + 1)), 413);
        assert_eq!(status(address, "POST", "s", JSON, "{"), 400);
        assert_eq!(status(address, "PATCH", "s", "", ""), 405);
        assert_eq!(status(address, "PUT", &"x".repeat(256), TEXT, ""), 400);
    }

    fn what_history_no_longer_holds_is_told(driver) {
        let text = "[channel.without_namespace]\nhistory_size = 2\nhistory_ttl = \"1m\"\n[http_api]\ninsecure = true\n\
            [[channel.namespaces]]\nname = \"plain\"";
        let options = Options { anonymous: Some(true), ..from_text(text, driver) };
        let server = start(options);
        let address = server.address();
        let begin = ask(address, "PUT", "s", JSON, "0");
        let begin = begin.header("stream-next-offset").expect("an offset").to_owned();
        assert_eq!(status(address, "POST", "s", JSON, "[1,2,3]"), 204);
        let gone = ask(address, "GET", &format!("s?offset={begin}"), "", "");
        let way_on = gone.header("stream-next-offset").expect("an offset");
        assert_eq!(gone.status, 410);
        assert_eq!(ask(address, "GET", &format!("s?offset={way_on}"), "", "").body, "[2,3]");
        assert_eq!(status(address, "PUT", "plain:s", JSON, ""), 405);
        assert_eq!(status(address, "PUT", "unknown:s", JSON, ""), 404);
        assert_eq!(look(address, "s", ""), 200);
    }

    fn an_offset_of_an_earlier_stream_has_gone(driver) {
        let server = start(Options { shards: Some(1), ..options(driver) });
        let address = server.address();
        // Whoever has subscribed keeps the channel's epoch.
        let _subscriber = websocket(address, "/raw?channel=s");
        let hold = || {
            let mut http = Http::connect(address);
            http.send(head("GET", "/v1/stream/s?offset=now&live=long-poll", "").as_bytes());
            until("it is held", || metric(address, "myriad_parked_polls") == 1);
            http
        };
        for (before, after) in [("", ""), ("[1]", ""), ("", "[2]"), ("[1]", "[2]")] {
            let old = ask(address, "PUT", "s", JSON, before);
            let old = old.header("stream-next-offset").expect("an offset").to_owned();
            let mut held = hold();
            assert_eq!(status(address, "DELETE", "s", "", ""), 204);
            assert_eq!(held.answer().status, 404);
            assert_eq!(status(address, "PUT", "s", JSON, after), 201);
            // The shard knows the new stream.
            let held = hold();
            for live in ["", "&live=long-poll", "&live=sse"] {
                let gone = ask(address, "GET", &format!("s?offset={old}{live}"), "", "");
                assert_eq!(gone.status, 410, "{before} {after} {live}");
                let way_on = gone.header("stream-next-offset").expect("an offset");
                let read = ask(address, "GET", &format!("s?offset={way_on}"), "", "");
                assert_eq!(read.body, if after.is_empty() { "[]" } else { after });
            }
            assert_eq!(status(address, "DELETE", "s", "", ""), 204);
            drop(held);
            until("nobody is held", || metric(address, "myriad_parked_polls") == 0);
        }
    }

    fn keys_and_tokens_say_who_may_write(driver) {
        let text = format!(
            "[client.token]\nhmac_secret_key = \"{SECRET}\"\n\
            [channel.without_namespace]\nhistory_size = 9\nhistory_ttl = \"1m\"\n\
            [[channel.namespaces]]\nname = \"open\"\nhistory_size = 9\nhistory_ttl = \"1m\"\n\
            allow_publish_for_client = true\nallow_publish_for_anonymous = true\n\
            [[channel.namespaces]]\nname = \"chat\"\nhistory_size = 9\nhistory_ttl = \"1m\"\nallow_publish_for_client = true\n\
            [[http_api.keys]]\nname = \"all\"\nkey = \"k-all\"\n\
            [[http_api.keys]]\nname = \"some\"\nkey = \"k-some\"\nmethods = [\"publish\"]\nnamespaces = [\"chat\"]\n\
            [client.rate_limits]\npublishes_per_channel = \"2/h\""
        );
        let draft = TokenDraft { user: "42".into(), ..TokenDraft::default() };
        let token = format!("Authorization: Bearer {}\r\n", draft.sign(SECRET).expect("a token"));
        let bad = "Authorization: Bearer no.token.here\r\n";
        let (all, some) = ("X-API-Key: k-all\r\n", "Authorization: apikey k-some\r\n");
        for anonymous in [true, false] {
            let options = Options { anonymous: Some(anonymous), ..from_text(&text, driver) };
            let server = start(options);
            let address = server.address();
            let put = |who: &str, name: &str| status(address, "PUT", name, who, "");
            assert_eq!([put(all, "a"), put(all, "chat:a"), put(all, "open:a")], [201; 3]);
            assert_eq!([put(some, "a"), put(some, "chat:b")], [403, 201]);
            assert_eq!(status(address, "DELETE", "chat:b", some, ""), 403);
            assert_eq!(put("X-API-Key: k-other\r\n", "chat:c"), 401);
            assert_eq!([put(&token, "a"), put(&token, "chat:d"), put(&token, "open:d")], [403, 201, 201]);
            // No more than clients over WebSocket are told: the cause helps whoever makes up tokens.
            let refused = ask(address, "PUT", "chat:e", bad, "");
            assert_eq!(refused.status, 401);
            assert!(refused.body.contains("the token is not valid; ask the application"), "{}", refused.body);
            let nobody = if anonymous { [403, 403, 201] } else { [401; 3] };
            assert_eq!([put("", "a"), put("", "chat:f"), put("", "open:f")], nobody);
            // Limits on clients bind clients.
            let append = |who: &str| {
                let headers = format!("Content-Type: application/octet-stream\r\n{who}");
                status(address, "POST", "chat:d", &headers, "x")
            };
            assert_eq!([append(&token), append(&token), append(&token)], [204, 204, 429]);
            assert_eq!(append(all), 204);
        }
    }

    fn ends_need_a_right_of_their_own(driver) {
        let namespace = |name: &str, ends: &str| format!(
            "[[channel.namespaces]]\nname = \"{name}\"\nhistory_size = 9\nhistory_ttl = \"1m\"\n\
            allow_publish_for_client = true\nallow_publish_for_anonymous = true\n{ends}\n"
        );
        let users = "allow_stream_end_for_client = true";
        let text = format!(
            "anonymous = true\n[client.token]\nhmac_secret_key = \"{SECRET}\"\n{}{}{}\
            [[http_api.keys]]\nname = \"all\"\nkey = \"k-all\"\n\
            [[http_api.keys]]\nname = \"some\"\nkey = \"k-some\"\nmethods = [\"publish\"]\n",
            namespace("none", ""),
            namespace("users", users),
            namespace("open", &format!("{users}\nallow_stream_end_for_anonymous = true")),
        );
        let server = start(from_text(&text, driver));
        let address = server.address();
        let draft = TokenDraft { user: "42".into(), ..TokenDraft::default() };
        let user = format!("Authorization: Bearer {}\r\n", draft.sign(SECRET).expect("a token"));
        let (all, some) = ("X-API-Key: k-all\r\n", "X-API-Key: k-some\r\n");
        for (who, name, may) in [
            ("", "none:s", false),
            ("", "users:s", false),
            ("", "open:s", true),
            (&*user, "none:s", false),
            (&*user, "users:s", true),
            (&*user, "open:s", true),
            (some, "none:s", false),
            (all, "none:s", true),
        ] {
            let told = |answer: Answer| {
                if answer.status == 403 {
                    let option = if who == some { "history_remove" } else { "allow_stream_end_for_client" };
                    assert!(answer.body.contains(option), "{}", answer.body);
                    let names_anonymous = answer.body.contains("allow_stream_end_for_anonymous");
                    assert_eq!(names_anonymous, who.is_empty(), "{}", answer.body);
                }
                answer.status
            };
            let ask = |method: &str, headers: &str, body: &str| {
                told(ask(address, method, name, &format!("{JSON}{headers}{who}"), body))
            };
            let expected = |status: u16| if may { status } else { 403 };
            let seen = [
                ask("PUT", "Stream-TTL: 60\r\n", ""),
                ask("PUT", "Stream-Expires-At: 2100-01-01T00:00:00Z\r\n", ""),
                ask("PUT", "Stream-Closed: true\r\n", ""),
                ask("PUT", if may { "Stream-TTL: 60\r\n" } else { "" }, ""),
                ask("POST", "", "1"),
                ask("POST", "Stream-Closed: true\r\n", "2"),
                ask("DELETE", "", ""),
            ];
            let put = if may { 200 } else { 201 };
            assert_eq!(seen, [expected(201), expected(409), expected(409), put, 204, expected(204), expected(204)], "{who} {name}");
            assert_eq!(status(address, "DELETE", name, all, ""), if may { 404 } else { 204 });
        }
    }

    fn readers_may_read_where_they_may_subscribe(driver) {
        let rights = |name: &str, rights: &str| {
            format!("[[channel.namespaces]]\nname = \"{name}\"\nhistory_size = 9\nhistory_ttl = \"1m\"\n{rights}\n")
        };
        let users = "allow_subscribe_for_client = true";
        let text = format!(
            "anonymous = true\n[client.token]\nhmac_secret_key = \"{SECRET}\"\n\
            [channel.without_namespace]\nhistory_size = 9\nhistory_ttl = \"1m\"\nallow_publish_for_client = true\nallow_publish_for_anonymous = true\n\
            {}{}[[http_api.keys]]\nname = \"all\"\nkey = \"k-all\"\n",
            rights("users", users),
            rights("open", &format!("{users}\nallow_subscribe_for_anonymous = true")),
        );
        let server = start(from_text(&text, driver));
        let address = server.address();
        let draft = TokenDraft { user: "42".into(), ..TokenDraft::default() };
        let user = format!("Authorization: Bearer {}\r\n", draft.sign(SECRET).expect("a token"));
        let key = "X-API-Key: k-all\r\n";
        for (name, of_nobody, of_user) in [("a", 403, 403), ("users:a", 403, 200), ("open:a", 200, 200)] {
            assert_eq!(status(address, "PUT", name, &format!("{JSON}{key}"), "1"), 201);
            for (who, expected) in [("", of_nobody), (&*user, of_user), (key, 200)] {
                assert_eq!(look(address, name, who), expected, "HEAD {name}: {who}");
                for query in ["", "?offset=-1&live=long-poll", "?offset=-1&live=sse"] {
                    let mut http = Http::connect(address);
                    http.send(head("GET", &format!("/v1/stream/{name}{query}"), who).as_bytes());
                    if query.ends_with("sse") && expected == 200 {
                        assert_eq!(http.bytes(12), b"HTTP/1.1 200");
                        continue;
                    }
                    let answer = http.answer();
                    assert_eq!(answer.status, expected, "GET {name}{query}: {who}");
                    if expected == 403 {
                        assert!(answer.body.contains("allow_subscribe_for_client"), "{}", answer.body);
                        let names_anonymous = answer.body.contains("allow_subscribe_for_anonymous");
                        assert_eq!(names_anonymous, who.is_empty(), "{}", answer.body);
                    }
                }
            }
        }
        // One rule for all who have no session.
        for (name, expected) in [("a", 403), ("users:a", 403), ("open:a", 101)] {
            let mut http = Http::connect(address);
            http.send(head("GET", &format!("/raw?channel={name}"), UPGRADE).as_bytes());
            assert_eq!(http.answer().status, expected, "{name}");
        }
    }

    fn shared_caches_keep_no_answer_of_a_private_channel(driver) {
        let text = "[channel.without_namespace]\nhistory_size = 9\nhistory_ttl = \"1m\"\n\
            allow_subscribe_for_client = true\nallow_subscribe_for_anonymous = true\n\
            [[channel.namespaces]]\nname = \"users\"\nhistory_size = 9\nhistory_ttl = \"1m\"\nallow_subscribe_for_client = true\n\
            [[http_api.keys]]\nname = \"all\"\nkey = \"k\"";
        let server = start(Options { anonymous: Some(true), ..from_text(text, driver) });
        let address = server.address();
        let key = "X-API-Key: k\r\n";
        for (name, caching) in [("s", "public"), ("$s", "private"), ("users:s", "private")] {
            let headers = format!("{JSON}{key}Stream-Closed: true\r\n");
            assert_eq!(status(address, "PUT", name, &headers, "[7]"), 201);
            let answer = ask(address, "GET", &format!("{name}?offset=-1"), key, "");
            let kept = answer.header("cache-control").unwrap_or_default();
            assert!(answer.status == 200 && kept.contains(caching), "{name}: {kept}");
            let live = format!("{name}?offset=-1&live=long-poll");
            let answer = ask(address, "GET", &live, key, "");
            let kept = answer.header("cache-control").unwrap_or_default();
            assert!(answer.status == 200 && kept.contains(caching), "{name}: {kept}");
        }
    }

    fn keys_of_the_api_and_public_keys_let_live_reads_in(driver) {
        let text = |key: &str| format!(
            "[client.token]\neddsa_public_key = \"\"\"{PUBLIC_KEY}\"\"\"\n\
            [channel.without_namespace]\nhistory_size = 9\nhistory_ttl = \"1m\"\nallow_subscribe_for_client = true\n\
            [[http_api.keys]]\nname = \"all\"\nkey = \"{key}\"\n\
            [[http_api.keys]]\nname = \"some\"\nkey = \"k-some\"\nmethods = [\"publish\"]\n"
        );
        let options = |key: &str| Options { anonymous: Some(false), ..from_text(&text(key), driver) };
        let server = start(options("k-all"));
        let address = server.address();
        let (all, some) = ("X-API-Key: k-all\r\n", "Authorization: apikey k-some\r\n");
        assert_eq!(status(address, "PUT", "s", &format!("{JSON}{all}"), ""), 201);
        let user = format!("Authorization: Bearer {SIGNED}\r\n");
        let live = |who: &str| {
            let mut http = Http::connect(address);
            http.send(head("GET", "/v1/stream/s?offset=now&live=long-poll", who).as_bytes());
            http
        };
        for who in [all, &user] {
            let mut reader = live(who);
            until("it is held", || metric(address, "myriad_parked_polls") == 1);
            let written = status(address, "POST", "s", &format!("{JSON}{all}"), "7");
            assert_eq!((written, reader.answer().body.as_str()), (204, "[7]"));
            // Figures follow answers. The next reader is not to be taken for held because this one was.
            until("it is not held", || metric(address, "myriad_parked_polls") == 0);
        }
        let forged = user.replacen("eyJzdWIiOiI0MiJ9", "eyJzdWIiOiI0MyJ9", 1);
        for (who, status) in [(some, 403), (&forged, 401), ("X-API-Key: none\r\n", 401), ("", 401)] {
            assert_eq!(live(who).answer().status, status, "{who}");
        }
        let told = live(&forged).answer().body;
        assert!(told.contains("The token is not valid: ask the application"), "{told}");
        // Keys are those of the last reload.
        server.reloader().reload(options("k-new")).expect("good options");
        assert_eq!(live(all).answer().status, 401);
        let read = ask(address, "GET", "s", "X-API-Key: k-new\r\n", "");
        assert_eq!(read.body, "[7,7]");
    }

    fn an_event_source_stops_at_the_end_of_a_closed_stream(driver) {
        let server = start(options(driver));
        let address = server.address();
        assert_eq!(status(address, "PUT", "s", TEXT, "x"), 201);
        assert_eq!(status(address, "POST", "s", "Stream-Closed: true\r\n", ""), 204);
        let mut http = Http::connect(address);
        http.send(head("GET", "/v1/stream/s?offset=-1&live=sse", "").as_bytes());
        let told = http.all();
        assert!(told.contains("streamClosed"), "{told}");
        let id = told.rsplit("\nid:").next().and_then(|rest| rest.lines().next());
        let id = id.expect("an id").trim();
        // It comes back by its first address, and says what came last.
        let back = |id: &str| ask(address, "GET", "s?offset=-1&live=sse", &format!("Last-Event-ID: {id}\r\n"), "");
        let answer = back(id);
        assert_eq!((answer.status, answer.header("stream-closed")), (204, Some("true")), "{answer:?}");
        assert_eq!(answer.header("stream-next-offset"), Some(id));
        assert_eq!(answer.header("access-control-allow-origin"), Some("*"));
        assert_eq!(back("-1").status, 200, "it has missed something");
        let end = ask(address, "GET", &format!("s?offset={id}&live=sse"), "", "");
        assert_eq!(end.status, 200, "a client of the protocol is told by an event");
        until("nobody is left", || metric(address, "myriad_connections") == 0);
    }

    fn pages_of_other_hosts_stay_out_of_a_development_server(driver) {
        let server = start(options(driver));
        let address = server.address();
        let from = |origin: &str| ask(address, "PUT", "s", &format!("Origin: {origin}\r\n"), "");
        assert_eq!(from("https://evil.test").status, 403);
        assert_eq!(from("http://localhost:3000").header("access-control-allow-origin"), Some("*"));
        let preflight = ask(address, "OPTIONS", "s", "Origin: https://evil.test\r\n", "");
        assert_eq!((preflight.status, preflight.header("access-control-allow-origin")), (204, None));
    }
}
