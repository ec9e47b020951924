//! What becomes of requests whose shards do not answer: nobody runs the shards of this server, on a clock that jumps to the next
//! deadline whenever nothing else is left to do.

use super::asking::QUESTIONS_MAX;
use super::{ANSWERS_TIMEOUT, Control};
use crate::auth::{Authority, TokenRules};
use crate::control::{Stage, router};
use crate::{ChannelTable, Count, Machine, NamespaceTable, Options, Span};
use axum::body::Body;
use axum::http::{Request, StatusCode};
use futures_util::future::join_all;
use http_body_util::BodyExt;
use myriad_reactor::Waker;
use myriad_shard::{
    Ask, ClientIds, ControlPlane, Epoch, InquiryAnswer, Mesh, NotPublished, Position, RequestId,
};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tower::ServiceExt;

const SHARDS: usize = 3;

struct Nobody;

impl ControlPlane for Nobody {
    fn published(&self, _: RequestId, _: Result<Position, NotPublished>) {}
    fn answered(&self, _: RequestId, _: Option<InquiryAnswer>) {}
    fn ask(&self, _: &Mesh, _: Ask) {}
}

fn control() -> Arc<Control> {
    let kept = NamespaceTable {
        history_size: Count(10),
        history_ttl: Span(Duration::from_secs(300)),
        presence: true,
        ..NamespaceTable::default()
    };
    let options = Options {
        dev: Some(true),
        channel: Some(ChannelTable {
            without_namespace: kept,
            ..ChannelTable::default()
        }),
        ..Options::default()
    };
    let config = options.resolve(&Machine::here()).expect("a configuration");
    let mesh = Mesh::new(
        vec![Waker::silent(); SHARDS],
        config.limits,
        Epoch::new(1),
        ClientIds::new(7),
        Box::new(Nobody),
    );
    let (_, stage) = watch::channel(Stage::Serving);
    let tokens = Authority::start(TokenRules::default()).expect("threads");
    let control = Control::new(&config, mesh, Arc::new(tokens), None, "none", stage, None);
    Arc::new(control.expect("a control plane"))
}

async fn post(control: &Arc<Control>, path: &str, body: Value) -> (StatusCode, Value) {
    let request = Request::post(path).body(Body::from(body.to_string()));
    let answer = router(Arc::clone(control)).oneshot(request.expect("a request"));
    let answer = answer.await.expect("an answer");
    let status = answer.status();
    let body = answer.into_body().collect().await.expect("a body");
    let body = serde_json::from_slice(&body.to_bytes()).expect("JSON");
    (status, body)
}

fn check_nothing_is_held(control: &Control) {
    let api = &control.api;
    assert_eq!(api.questions.available_permits(), QUESTIONS_MAX);
    assert_eq!(api.bodies.bytes(), (0, 0));
    assert_eq!(api.result_kib.available_permits(), 256 << 10);
    assert!(api.positions.is_empty() && api.inquiries.is_empty());
}

#[tokio::test(start_paused = true)]
async fn every_method_is_answered_at_the_deadline() {
    let control = control();
    for (method, body) in [
        ("publish", json!({"channel": "a", "data": 1})),
        ("presence", json!({"channel": "a"})),
        ("presence_stats", json!({"channel": "a"})),
        ("history", json!({"channel": "a"})),
        ("history_remove", json!({"channel": "a"})),
        ("channels", json!({})),
        ("info", json!({})),
        ("connections", json!({})),
        ("subscribe", json!({"user": "1", "channel": "a"})),
        ("unsubscribe", json!({"user": "1"})),
        ("disconnect", json!({"user": "1"})),
        ("refresh", json!({"user": "1"})),
        ("revoke_token", json!({"uid": "1"})),
        ("invalidate_user_tokens", json!({"user": "1"})),
    ] {
        let begin = Instant::now();
        let (status, answer) = post(&control, &format!("/api/{method}"), body).await;
        assert_eq!(
            (status, &answer["error"]["code"]),
            (StatusCode::OK, &json!(100)),
            "{method}"
        );
        assert_eq!(begin.elapsed(), ANSWERS_TIMEOUT, "{method}");
    }
    let channels = json!({"channels": ["a", "b", ""], "data": 1});
    let (_, answer) = post(&control, "/api/broadcast", channels).await;
    let responses = answer["result"]["responses"].as_array().expect("responses");
    let codes: Vec<_> = responses.iter().map(|one| &one["error"]["code"]).collect();
    assert_eq!(codes, [100, 100, 107]);
    check_nothing_is_held(&control);
}

#[tokio::test(start_paused = true)]
async fn what_needs_no_shard_goes_on() {
    let control = control();
    let stuck = post(&control, "/api/presence", json!({"channel": "a"}));
    let others = async {
        let begin = Instant::now();
        let (_, answer) = post(&control, "/api/rpc", json!({"method": "x"})).await;
        assert_eq!(answer["error"]["code"], 104);
        let nobody = json!({"client": "nobody"});
        let (_, answer) = post(&control, "/api/disconnect", nobody).await;
        assert_eq!(answer, json!({"result": {}}));
        assert_eq!(begin.elapsed(), Duration::ZERO);
    };
    tokio::join!(stuck, others);
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_for_each_other_have_one_deadline() {
    let control = control();
    for (path, body) in [
        ("/api/info", json!({})),
        ("/api/presence", json!({"channel": "a"})),
    ] {
        let (begin, before) = (Instant::now(), control.mesh.waiting_messages());
        let requests = (0..5 * QUESTIONS_MAX).map(|_| post(&control, path, body.clone()));
        for (status, answer) in join_all(requests).await {
            let is_busy = status == StatusCode::SERVICE_UNAVAILABLE;
            assert!(is_busy || answer["error"]["code"] == 100, "{answer}");
        }
        assert_eq!(begin.elapsed(), ANSWERS_TIMEOUT, "{path}");
        let asked = control.mesh.waiting_messages() - before;
        assert!(asked <= SHARDS * QUESTIONS_MAX, "{path} {asked}");
    }
    check_nothing_is_held(&control);
}

#[tokio::test(start_paused = true)]
async fn a_batch_ends() {
    let control = control();
    let presence = json!({"presence": {"channel": "a"}});
    let publish = json!({"publish": {"channel": "a", "data": 1}});
    for parallel in [false, true] {
        let mut commands = vec![presence.clone(); 500];
        commands.push(publish.clone());
        let begin = Instant::now();
        let body = json!({"commands": commands, "parallel": parallel});
        let (_, answer) = post(&control, "/api/batch", body).await;
        assert!(begin.elapsed() <= Duration::from_secs(10) + 2 * ANSWERS_TIMEOUT);
        let replies = answer["replies"].as_array().expect("replies");
        assert_eq!(replies.len(), 501);
        assert_eq!(replies[0]["error"]["code"], 100);
        assert_eq!(replies[499]["error"]["code"], 106, "not carried out");
        let code = if parallel { 100 } else { 106 };
        assert_eq!(replies[500]["error"]["code"], code);
    }
    check_nothing_is_held(&control);
}
