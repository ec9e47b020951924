//! What an application may do wrong.

use super::*;
use crate::proxy::caller::{CallFault, Called, http_client};
use crate::proxy::grants::{Against, read_connect, read_publish, read_rpc, read_subscribe};
use crate::proxy::metrics::Outcome;
use axum::http::StatusCode;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

pub(super) fn proxy(settings: ProxySettings) -> Proxy {
    let metrics = ProxyMetrics::registered(&mut Registry::default());
    let counts = metrics.of(&settings.name);
    let http = http_client(settings.tls.as_ref()).unwrap();
    Proxy::new(settings, http, counts)
}

/// A call of a client of its own.
pub(super) async fn call(proxy: &Proxy) -> Result<Called, CallFault> {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let client = LAST.fetch_add(1, Ordering::Relaxed);
    call_of(proxy, u128::from(client)).await
}

async fn call_of(proxy: &Proxy, client: u128) -> Result<Called, CallFault> {
    let request = || (HeaderMap::new(), b"{}".to_vec());
    proxy.call(&anonymous(client), request).await
}

fn anonymous(client: u128) -> AskingClient {
    AskingClient {
        client: ClientId(client.to_be_bytes()),
        user: None,
        ..asker()
    }
}

/// An address where nobody listens.
async fn dead_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap()
}

/// How a call of an application ends that always does the same.
fn fault(act: Act, timeout: Duration) -> CallFault {
    run(async {
        let app = App::always(act).await;
        let settings = ProxySettings {
            timeout,
            answer_bytes_max: 1_000,
            ..settings(app.address)
        };
        call(&proxy(settings)).await.unwrap_err()
    })
}

#[test]
fn every_way_to_fail_has_its_name() {
    let short = Duration::from_millis(50);
    assert_eq!(fault(Act::Silent, short), CallFault::Timeout(short));
    for bytes in [
        &b""[..],
        b"HTTP/1.1 200 OK\r\ncontent-le",
        b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"SSH-2.0-OpenSSH\r\n\r\n",
    ] {
        let fault = fault(Act::Raw(bytes.to_vec()), PATIENCE);
        assert!(matches!(fault, CallFault::Broken(_)), "{fault:?}");
    }
    for status in [201, 204, 301, 307, 400, 404, 500, 503] {
        let expected = CallFault::Status(StatusCode::from_u16(status).unwrap());
        assert_eq!(fault(Act::Status(status), PATIENCE), expected);
    }
    let too_large = CallFault::TooLarge(1_000);
    assert_eq!(fault(Act::Endless, PATIENCE), too_large);
    assert_eq!(fault(Act::Answer("x".repeat(1_001)), PATIENCE), too_large);
    let unreachable = run(async { call(&proxy(settings(dead_address().await))).await });
    let unreachable = unreachable.unwrap_err();
    assert!(
        matches!(unreachable, CallFault::Unreachable(_)),
        "{unreachable:?}"
    );
    assert!(!unreachable.to_string().contains("secret"));
}

#[test]
fn an_application_without_tls_is_not_called_in_clear() {
    run(async {
        let app = App::always(Act::Answer("{}".into())).await;
        let mut settings = settings(app.address);
        settings.endpoint = format!("https://{}/", app.address).parse().unwrap();
        settings.timeout = Duration::from_millis(200);
        let answer = application(&settings).answer(&asker(), &subscribe()).await;
        assert!(matches!(answer, AskAnswer::Unavailable), "{answer:?}");
        assert!(app.seen().is_empty());
    });
}

#[test]
fn a_failed_call_is_unavailable_whatever_was_asked() {
    for question in questions() {
        run(async {
            let app = App::always(Act::Status(500)).await;
            let application = application(&settings(app.address));
            let answer = application.answer(&asker(), &question).await;
            assert!(matches!(answer, AskAnswer::Unavailable), "{answer:?}");
        });
    }
}

#[test]
fn a_status_may_be_given_a_meaning() {
    let refusal = Refusal::Error {
        code: 404,
        message: "no".into(),
        temporary: false,
    };
    run(async {
        let app = App::start(|seen| {
            Act::Status(if seen.body.contains("chat:1") {
                404
            } else {
                403
            })
        })
        .await;
        let mut settings = settings(app.address);
        settings.transforms = HashMap::from([(404, refusal.clone())]);
        let application = application(&settings);
        let answer = application.answer(&asker(), &subscribe()).await;
        assert!(matches!(answer, AskAnswer::Refused(said) if said == refusal));
        let answer = application.answer(&asker(), &connect(None)).await;
        assert!(matches!(answer, AskAnswer::Unavailable));
        // What expires is not over because of a status.
        let answer = application.answer(&asker(), &sub_refresh()).await;
        assert!(matches!(answer, AskAnswer::Unavailable));
    });
}

/// Answers to a connect, and how each is refused.
const LIES: &[(&str, &str)] = &[
    (r#"{"result": {"user": 42}}"#, "result.user: invalid type"),
    (
        r#"{"result": {"expire_at": 1.5}}"#,
        "result.expire_at: invalid type",
    ),
    (
        r#"{"result": {"expire_at": -1}}"#,
        "result.expire_at: invalid value",
    ),
    (
        r#"{"result": {"b64info": "%"}}"#,
        "result.b64info: is not base64",
    ),
    (
        r#"{"result": {"channels": "a"}}"#,
        "result.channels: invalid type",
    ),
    (
        r#"{"result": {"channels": ["a", 5]}}"#,
        "result.channels[1]: invalid type",
    ),
    (
        r#"{"result": {"channels": [""]}}"#,
        "result.channels: a channel has no name",
    ),
    (
        r#"{"result": {"channels": ["x:y"]}}"#,
        "result.channels: the namespace of channel \"x:y\"",
    ),
    (
        r#"{"result": {"subs": {"x:y": {}}}}"#,
        "result.subs: the namespace",
    ),
    (
        r#"{"result": {"subs": {"a": {"override": {"presence": true}}}}}"#,
        "result.subs.a.override.presence: invalid type",
    ),
    (
        r#"{"result": {"subs": {"a": {"b64data": "%"}}}}"#,
        "result.subs.a.b64data: is not base64",
    ),
    (r#"{"result": []}"#, "result: "),
    (r#"{"error": {"code": 0}}"#, "error.code: "),
    (r#"{"error": {"code": 99}}"#, "error.code: "),
    (r#"{"error": {"code": 2000}}"#, "error.code: "),
    (r#"{"error": {"code": "1"}}"#, "error.code: invalid type"),
    (r#"{"error": {}}"#, "error.code: "),
    (r#"{"disconnect": {"code": 2999}}"#, "disconnect.code: "),
    (r#"{"disconnect": {"code": 5000}}"#, "disconnect.code: "),
    (
        r#"{"disconnect": {"code": 70000}}"#,
        "disconnect.code: code 70000",
    ),
    (
        r#"{"disconnect": {"code": 4000, "reason": "{}"}}"#,
        "disconnect.reason: the reason begins",
    ),
    ("", "EOF"),
    ("[]", "invalid type: sequence, expected an object"),
    (
        r#"{"result": {"subs": {"a": []}}}"#,
        "result.subs.a: invalid type",
    ),
    ("{} {}", "trailing characters"),
    (r#"{"result": {"data": {"a":}}}"#, ""),
    ("\"\u{0}\"", ""),
];

fn said_of_connect(body: &str) -> String {
    let namespaces = Namespaces::default();
    let read = read_connect(body.as_bytes(), against(&namespaces));
    read.map(|_| ()).expect_err(body).to_string()
}

fn against(namespaces: &Namespaces) -> Against<'_> {
    Against {
        now_s: 1_000,
        namespaces,
    }
}

#[test]
fn an_answer_that_lies_is_refused_by_the_name_of_its_field() {
    for (body, start) in LIES {
        let said = said_of_connect(body);
        assert!(said.starts_with(start), "{body}: {said}");
    }
    let namespaces = Namespaces::default();
    let against = against(&namespaces);
    assert!(read_connect(b"\xff", against).is_err());
    assert!(read_subscribe(br#"{"result": {"override": 5}}"#, against).is_err());
    assert!(read_rpc(br#"{"result": {"data": }}"#).is_err());
}

#[test]
fn an_answer_that_is_too_much_is_refused() {
    let many = vec![r#""a""#; 1_001].join(",");
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    let (reason, message) = ("r".repeat(124), "m".repeat(1_025));
    for (body, start) in [
        (
            format!(r#"{{"result": {{"channels": [{many}]}}}}"#),
            "result.channels: has 1001 channels",
        ),
        (
            format!(r#"{{"result": {{"meta": {deep}}}}}"#),
            "result.meta: is nested deeper",
        ),
        (
            format!(r#"{{"disconnect": {{"code": 4000, "reason": "{reason}"}}}}"#),
            "disconnect.reason: the reason has",
        ),
        (
            format!(r#"{{"error": {{"code": 400, "message": "{message}"}}}}"#),
            "error.message: has 1025",
        ),
    ] {
        let said = said_of_connect(&body);
        assert!(said.starts_with(start), "{said}");
    }
}

#[test]
fn a_publication_that_lies_is_refused() {
    let key = "k".repeat(256);
    let tags: Vec<_> = (0..65).map(|tag| format!("\"{tag}\": \"\"")).collect();
    let tags = tags.join(",");
    for (fields, start) in [
        (
            format!(r#""idempotency_key": "{key}""#),
            "result.idempotency_key: has more",
        ),
        (
            format!(r#""version_epoch": "{key}""#),
            "result.version_epoch: has more",
        ),
        (format!(r#""tags": {{{tags}}}"#), "result.tags: has 65"),
        (
            r#""tags": {"a": 1}"#.to_owned(),
            "result.tags.a: invalid type",
        ),
        (
            r#""version": -1"#.to_owned(),
            "result.version: invalid value",
        ),
    ] {
        let body = format!(r#"{{"result": {{{fields}}}}}"#);
        let fault = read_publish(body.as_bytes()).expect_err(&body);
        assert!(fault.to_string().starts_with(start), "{body}: {fault}");
    }
}

#[test]
fn a_lie_is_counted_and_the_client_may_try_again() {
    run(async {
        let app = App::always(Act::Answer(r#"{"result": {"user": 1}}"#.into())).await;
        let application = application(&settings(app.address));
        let answer = application.answer(&asker(), &connect(None)).await;
        assert!(matches!(answer, AskAnswer::Unavailable));
        let counts = application.connect.as_ref().unwrap().counts();
        assert_eq!(counts.value(Outcome::Malformed), 1);
        assert_eq!(counts.value(Outcome::Result), 0);
    });
}

/// Polls a condition that other tasks of the runtime bring about.
pub(super) async fn until(mut holds: impl FnMut() -> bool) {
    while !holds() {
        tokio::task::yield_now().await;
    }
}

#[test]
fn calls_and_those_that_wait_are_bounded() {
    run(async {
        let gate = Arc::new(Semaphore::new(0));
        let app = App::always(Act::Gated(Arc::clone(&gate), "{}".into())).await;
        let settings = ProxySettings {
            calls_max: 2,
            ..settings(app.address)
        };
        let proxy = Arc::new(proxy(settings));
        let calls: Vec<_> = (0..10)
            .map(|_| {
                let proxy = Arc::clone(&proxy);
                tokio::spawn(async move { call(&proxy).await })
            })
            .collect();
        until(|| proxy.counts().waiting.get() == 8 && app.seen().len() == 2).await;
        assert_eq!(proxy.counts().under_way.get(), 2);
        assert_eq!(call(&proxy).await, Err(CallFault::Busy));
        for done in 1..=8 {
            gate.add_permits(1);
            until(|| app.seen().len() == 2 + done).await;
            assert_eq!(proxy.counts().under_way.get(), 2);
        }
        gate.add_permits(2);
        for call in calls {
            assert_eq!(call.await.unwrap(), Ok(Called::Body(b"{}".to_vec())));
        }
        assert_eq!(
            proxy.counts().under_way.get() + proxy.counts().waiting.get(),
            0
        );
    });
}

#[test]
fn one_client_holds_no_more_than_its_share_of_a_proxy() {
    run(async {
        let gate = Arc::new(Semaphore::new(0));
        let app = App::always(Act::Gated(Arc::clone(&gate), "{}".into())).await;
        let proxy = Arc::new(proxy(ProxySettings {
            calls_max: 4,
            ..settings(app.address)
        }));
        let spawned = |client| {
            let proxy = Arc::clone(&proxy);
            tokio::spawn(async move { call_of(&proxy, client).await })
        };
        let greedy: Vec<_> = (0..8).map(|_| spawned(1)).collect();
        until(|| proxy.counts().waiting.get() == 4 && app.seen().len() == 4).await;
        assert_eq!(call_of(&proxy, 1).await, Err(CallFault::Share));
        // Another client's call goes before those that wait already, but for the first.
        let other = spawned(2);
        until(|| proxy.counts().waiting.get() == 5).await;
        gate.add_permits(2);
        until(|| app.seen().len() == 6).await;
        assert_eq!(proxy.counts().waiting.get(), 3);
        gate.add_permits(20);
        for call in greedy.into_iter().chain([other]) {
            assert!(call.await.unwrap().is_ok());
        }
    });
}

#[test]
fn a_crowd_that_connects_waits() {
    run(async {
        let gate = Arc::new(Semaphore::new(0));
        let app = App::always(Act::Gated(Arc::clone(&gate), "{}".into())).await;
        let proxy = Arc::new(proxy(ProxySettings {
            calls_max: 2,
            asks: Asks::Connects,
            // A place that is free only later than this is still in time.
            timeout: Duration::from_millis(1_500),
            ..settings(app.address)
        }));
        // More than may wait with commands.
        let calls: Vec<_> = (0..50)
            .map(|_| {
                let proxy = Arc::clone(&proxy);
                tokio::spawn(async move { call(&proxy).await })
            })
            .collect();
        until(|| proxy.counts().waiting.get() == 48).await;
        gate.add_permits(50);
        for call in calls {
            assert!(call.await.unwrap().is_ok());
        }
    });
}

#[test]
fn a_wait_for_a_place_has_an_end() {
    run(async {
        let app = App::always(Act::Silent).await;
        let proxy = Arc::new(proxy(ProxySettings {
            calls_max: 1,
            timeout: Duration::from_millis(50),
            ..settings(app.address)
        }));
        let first = Arc::clone(&proxy);
        let first = tokio::spawn(async move { call(&first).await });
        let second = call(&proxy);
        let (first, second) = tokio::join!(first, second);
        // Whichever was first held the only place all the time.
        let ends = [first.unwrap().unwrap_err(), second.unwrap_err()];
        assert!(
            ends.contains(&CallFault::Timeout(Duration::from_millis(50))),
            "{ends:?}"
        );
    });
}

async fn fail_until_open(proxy: &Proxy) {
    for _ in 0..10 {
        let fault = call(proxy).await.unwrap_err();
        assert_ne!(fault, CallFault::CircuitOpen);
    }
    assert_eq!(call(proxy).await, Err(CallFault::CircuitOpen));
    assert_eq!(proxy.counts().circuit.get(), 2);
}

#[test]
fn an_application_that_is_gone_is_left_alone_and_found_again() {
    run(async {
        let address = dead_address().await;
        let proxy = proxy(settings(address));
        fail_until_open(&proxy).await;
        let listener = TcpListener::bind(address).await.unwrap();
        let app = App::listen(listener, |_| Act::Answer("{}".into()));
        // The time of the back-off, in which nobody is called.
        while call(&proxy).await == Err(CallFault::CircuitOpen) {
            assert!(app.seen().is_empty());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(app.seen().len(), 1);
        assert_eq!(proxy.counts().circuit.get(), 0);
        assert!(call(&proxy).await.is_ok());
    });
}

#[test]
fn what_a_client_can_provoke_opens_no_circuit() {
    for act in [
        Act::Status(500),
        Act::Status(404),
        Act::Answer("x".repeat(70 << 10)),
        Act::Answer("no JSON".into()),
    ] {
        run(async {
            let app = App::always(act).await;
            let proxy = proxy(settings(app.address));
            for _ in 0..20 {
                assert_ne!(call(&proxy).await, Err(CallFault::CircuitOpen));
            }
            assert_eq!(app.seen().len(), 20);
        });
    }
}

#[test]
fn one_client_that_makes_an_application_slow_opens_no_circuit_for_others() {
    run(async {
        let app = App::start(|seen| match &*seen.body {
            "slow" => Act::Silent,
            _ => Act::Answer("{}".into()),
        })
        .await;
        let proxy = proxy(ProxySettings {
            timeout: Duration::from_millis(50),
            ..settings(app.address)
        });
        let slow = || (HeaderMap::new(), b"slow".to_vec());
        let client = |client, user: Option<&str>| AskingClient {
            user: user.map(Into::into),
            ..anonymous(client)
        };
        for nth in 0..30 {
            // One that is nobody, and a user with many connections.
            for asker in [client(1, None), client(100 + nth, Some("42"))] {
                let called = proxy.call(&asker, slow).await;
                assert!(matches!(called, Err(CallFault::Timeout(_))), "{called:?}");
            }
        }
        assert_eq!(proxy.counts().circuit.get(), 0);
        // On a busy machine one answer may be late, but not ten in a row.
        let mut is_served = false;
        for _ in 0..10 {
            is_served = is_served || call(&proxy).await.is_ok();
        }
        assert!(is_served);
    });
}

#[test]
fn a_gateway_without_application_opens_the_circuit() {
    run(async {
        let app = App::always(Act::Status(502)).await;
        fail_until_open(&proxy(settings(app.address))).await;
        assert_eq!(app.seen().len(), 10);
    });
}

#[test]
fn a_call_that_was_given_up_frees_its_place() {
    run(async {
        let app = App::start(|seen| match &*seen.body {
            "silent" => Act::Silent,
            _ => Act::Answer("{}".into()),
        })
        .await;
        let proxy = proxy(ProxySettings {
            calls_max: 1,
            ..settings(app.address)
        });
        let asker = anonymous(0);
        tokio::select! {
            _ = proxy.call(&asker, || (HeaderMap::new(), b"silent".to_vec())) => panic!("an answer"),
            () = until(|| app.seen().len() == 1) => {}
        }
        assert_eq!(proxy.counts().under_way.get(), 0);
        assert!(call(&proxy).await.is_ok());
    });
}

#[test]
fn connections_are_used_again() {
    run(async {
        let app = App::start(|_| Act::Status(404)).await;
        let mut settings = settings(app.address);
        settings.transforms = HashMap::from([(
            404,
            Refusal::Error {
                code: 400,
                message: "m".into(),
                temporary: false,
            },
        )]);
        let proxy = proxy(settings);
        for _ in 0..5 {
            assert!(matches!(call(&proxy).await, Ok(Called::Refused(_))));
        }
        assert_eq!(app.seen().len(), 5);
        assert_eq!(app.connections(), 1);
    });
}
