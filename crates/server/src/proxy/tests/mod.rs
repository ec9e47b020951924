//! The application over real sockets: what it is told, what its answers mean, and what it may do wrong.

mod app;
mod faults;
mod grants;
mod reload;
mod tls;

use super::caller::Proxy;
use super::{Application, ApplicationSettings, Asks, Methods, ProxyMetrics, ProxySettings};
use crate::control::Answerer;
use app::{Act, App};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use myriad_shard::{
    AskAnswer, AskingClient, ChannelOptions, ClientId, Headers, Namespaces, Payload, Question,
    Refusal,
};
use prometheus_client::registry::Registry;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Longer than any test takes.
const PATIENCE: Duration = Duration::from_secs(60);

fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(future)
}

fn settings(address: SocketAddr) -> ProxySettings {
    ProxySettings {
        name: "tried".into(),
        asks: Asks::Commands,
        endpoint: format!("http://{address}/path?secret=1").parse().unwrap(),
        tls: None,
        timeout: PATIENCE,
        calls_max: 4,
        answer_bytes_max: 64 << 10,
        http_headers: Vec::new(),
        emulated_headers: Vec::new(),
        address_header: None,
        static_headers: HeaderMap::new(),
        is_binary: false,
        includes_meta: false,
        transforms: HashMap::new(),
    }
}

/// An application where one proxy answers every question.
fn application(proxy: &ProxySettings) -> Application {
    let all = || Some(proxy.clone());
    let settings = ApplicationSettings {
        connect: all(),
        refresh: all(),
        subscribe: all(),
        publish: all(),
        sub_refresh: all(),
        rpc: all(),
        named: Vec::new(),
        methods: Methods {
            without_namespace: Some("default".into()),
            namespaces: HashMap::from([
                ("ours".into(), Some("default".into())),
                ("closed".into(), None),
            ]),
            ping: Some("ping".into()),
        },
    };
    let metrics = ProxyMetrics::registered(&mut Registry::default());
    let options = ChannelOptions::default;
    let namespaces = Namespaces::new(options(), [("chat".into(), options())]);
    Application::with(settings, Arc::new(namespaces), false, &metrics, None).unwrap()
}

fn asker() -> AskingClient {
    AskingClient {
        client: ClientId([7; 16]),
        user: Some("42".into()),
        transport: "websocket",
        protocol: "json",
        headers: None,
        address: Some([192, 0, 2, 7].into()),
        emulated_headers: None,
        meta: Some((*br#"{"a": 1}"#).into()),
    }
}

fn json(text: &str) -> Payload {
    Payload::Json(text.into())
}

fn connect(data: Option<Payload>) -> Question {
    Question::Connect {
        token: None,
        data,
        name: "js".into(),
        version: "1.2".into(),
        channels: vec!["a".into(), "b".into()],
    }
}

fn subscribe() -> Question {
    Question::Subscribe {
        channel: "chat:1".into(),
        token: None,
        data: None,
        proxy: Some("default".into()),
    }
}

fn sub_refresh() -> Question {
    Question::SubRefresh {
        channel: "chat:1".into(),
        token: None,
        proxy: Some("default".into()),
    }
}

fn publish(data: Payload) -> Question {
    Question::Publish {
        channel: "chat:1".into(),
        data,
        proxy: "default".into(),
    }
}

fn rpc(method: &str, data: Payload) -> Question {
    Question::Rpc {
        method: method.into(),
        data,
    }
}

fn refresh() -> Question {
    Question::Refresh { token: None }
}

/// One of each kind.
fn questions() -> [Question; 6] {
    [
        connect(None),
        refresh(),
        subscribe(),
        sub_refresh(),
        publish(json("1")),
        rpc("m", json("1")),
    ]
}

/// What an application that answers `body` makes of a question.
fn answered(body: &str, question: &Question) -> AskAnswer {
    run(async {
        let app = App::always(Act::Answer(body.to_owned())).await;
        let application = application(&settings(app.address));
        application.answer(&asker(), question).await
    })
}

/// The error code that a client is told.
fn error_code(answer: &AskAnswer) -> u32 {
    match answer {
        AskAnswer::Refused(Refusal::Error { code, .. }) => *code,
        other => panic!("{other:?}"),
    }
}

/// The body of the call that a question makes.
fn asked(change: impl FnOnce(&mut ProxySettings), question: &Question) -> String {
    run(async {
        let app = App::always(Act::Answer("{}".into())).await;
        let mut settings = settings(app.address);
        change(&mut settings);
        application(&settings).answer(&asker(), question).await;
        app.last().body
    })
}

const WHO: &str =
    r#"{"client":"07070707-0707-0707-0707-070707070707","transport":"websocket","protocol":"json""#;

#[test]
fn each_call_tells_what_its_question_says() {
    for (question, fields) in [
        (
            connect(Some(json("[ 1 ]"))),
            r#""name":"js","version":"1.2","channels":["a","b"],"data":[ 1 ]}"#,
        ),
        (refresh(), r#""user":"42"}"#),
        (subscribe(), r#""user":"42","channel":"chat:1"}"#),
        (sub_refresh(), r#""user":"42","channel":"chat:1"}"#),
        (
            publish(json(r#"{"b":2,"a":1e0}"#)),
            r#""user":"42","channel":"chat:1","data":{"b":2,"a":1e0}}"#,
        ),
        (
            rpc("m", json("null")),
            r#""user":"42","method":"m","data":null}"#,
        ),
        (rpc("m", json("")), r#""user":"42","method":"m"}"#),
    ] {
        let expected = format!(r#"{WHO},"encoding":"json",{fields}"#);
        assert_eq!(asked(|_| {}, &question), expected);
    }
}

#[test]
fn binary_encoding_tells_data_in_base64() {
    let binary = |proxy: &mut ProxySettings| proxy.is_binary = true;
    let body = asked(binary, &publish(Payload::Binary((*b"\x00\xff").into())));
    assert!(body.contains(r#""encoding":"binary""#) && body.ends_with(r#""b64data":"AP8="}"#));
    let body = asked(binary, &connect(Some(json("{}"))));
    assert!(body.ends_with(r#""b64data":"e30="}"#), "{body}");
}

#[test]
fn meta_is_told_where_it_is_wished_and_never_at_the_connect() {
    let with = |proxy: &mut ProxySettings| proxy.includes_meta = true;
    assert!(asked(with, &refresh()).contains(r#""meta":{"a": 1}"#));
    assert!(!asked(|_| {}, &refresh()).contains("meta"));
    let body = asked(with, &connect(None));
    assert!(!body.contains("meta") && !body.contains("user"), "{body}");
}

#[test]
fn bytes_are_no_json() {
    let answer = answered("{}", &publish(Payload::Binary([0].into())));
    assert_eq!(error_code(&answer), 107);
}

fn kept(pairs: &[(&str, &str)]) -> Option<Headers> {
    let pairs = pairs.iter();
    Some(
        pairs
            .map(|(name, value)| ((*name).into(), value.as_bytes().into()))
            .collect(),
    )
}

#[test]
fn listed_headers_are_forwarded_and_the_real_ones_win() {
    let seen = run(async {
        let app = App::always(Act::Answer("{}".into())).await;
        let mut proxy = settings(app.address);
        let names = |names: &[&'static str]| -> Vec<HeaderName> {
            let names = names.iter();
            names.map(|name| HeaderName::from_static(name)).collect()
        };
        proxy.http_headers = names(&["cookie", "x-both", "x-static"]);
        proxy.emulated_headers = names(&["authorization", "x-both", "x-line"]);
        proxy.static_headers = HeaderMap::from_iter([(
            HeaderName::from_static("x-static"),
            HeaderValue::from_static("ours"),
        )]);
        let asker = AskingClient {
            headers: kept(&[
                ("cookie", "a=1"),
                ("cookie", "b=2"),
                ("x-both", "real"),
                ("x-static", "theirs"),
                ("authorization", "not listed"),
            ]),
            emulated_headers: kept(&[
                ("authorization", "bearer x"),
                ("x-both", "emulated"),
                ("x-line", "a\r\nx-injected: b"),
                ("cookie", "not listed"),
            ]),
            ..asker()
        };
        application(&proxy).answer(&asker, &refresh()).await;
        app.last()
    });
    assert!(seen.head.starts_with("post /path?secret=1 http/1.1\r\n"));
    for (name, values) in [
        ("cookie", &["a=1", "b=2"][..]),
        ("authorization", &["bearer x"]),
        ("x-both", &["real"]),
        ("x-static", &["ours"]),
        ("x-line", &[]),
        ("x-injected", &[]),
        ("content-type", &["application/json"]),
    ] {
        assert_eq!(seen.header(name), values, "{name}");
    }
    assert!(seen.header("user-agent")[0].starts_with("myriad/"));
}

#[test]
fn the_client_s_address_is_told_and_not_what_the_client_says_it_is() {
    let name = HeaderName::from_static("x-real-ip");
    for address in [Some([192, 0, 2, 7].into()), None] {
        let seen = run(async {
            let app = App::always(Act::Answer("{}".into())).await;
            let mut proxy = settings(app.address);
            proxy.http_headers = vec![name.clone()];
            proxy.emulated_headers = vec![name.clone()];
            proxy.address_header = Some(name.clone());
            let asker = AskingClient {
                address,
                headers: kept(&[("x-real-ip", "198.51.100.1")]),
                emulated_headers: kept(&[("x-real-ip", "198.51.100.2")]),
                ..asker()
            };
            application(&proxy).answer(&asker, &refresh()).await;
            app.last()
        });
        let expected: &[&str] = if address.is_some() {
            &["192.0.2.7"]
        } else {
            &[]
        };
        assert_eq!(seen.header("x-real-ip"), expected);
    }
}

#[test]
fn a_method_is_called_where_its_namespace_has_a_proxy() {
    let with_data = r#"{"result": {"data": {"year": 2024}}}"#;
    for method in ["m", "ours:m:n", ""] {
        match answered(with_data, &rpc(method, json("1"))) {
            AskAnswer::Rpc(data) => assert_eq!(data, json(r#"{"year": 2024}"#)),
            other => panic!("{other:?}"),
        }
    }
    for (method, code) in [("other:m", 104), (":m", 104), ("closed:m", 108)] {
        assert_eq!(
            error_code(&answered(with_data, &rpc(method, json("1")))),
            code
        );
    }
    match answered("not even JSON", &rpc("ping", json(""))) {
        AskAnswer::Rpc(data) => assert!(data.bytes().is_empty()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn without_any_proxy_nothing_is_available() {
    let metrics = ProxyMetrics::registered(&mut Registry::default());
    let settings = ApplicationSettings::default();
    let application = Application::with(settings, Arc::default(), false, &metrics, None).unwrap();
    for question in questions() {
        let answer = run(application.answer(&asker(), &question));
        assert_eq!(error_code(&answer), 108);
    }
    let answer = run(application.answer(&asker(), &rpc("a:b", json("1"))));
    assert_eq!(error_code(&answer), 108);
}

#[test]
fn what_is_secret_does_not_show() {
    let shown = format!("{:?}", settings(([127, 0, 0, 1], 80).into()));
    assert!(
        shown.contains("127.0.0.1") && !shown.contains("secret"),
        "{shown}"
    );
}
