//! What answers mean.

use super::*;
use myriad_shard::{ConnectGrant, PublishGrant, RefreshGrant, Refreshed, SubscribeGrant};
use std::time::{SystemTime, UNIX_EPOCH};

fn connected(body: &str) -> ConnectGrant {
    match answered(body, &connect(None)) {
        AskAnswer::Connect(grant) => *grant,
        other => panic!("{other:?}"),
    }
}

fn subscribed(body: &str) -> SubscribeGrant {
    match answered(body, &subscribe()) {
        AskAnswer::Subscribe(grant) => *grant,
        other => panic!("{other:?}"),
    }
}

fn published(body: &str) -> PublishGrant {
    match answered(body, &publish(json("1"))) {
        AskAnswer::Publish(grant) => *grant,
        other => panic!("{other:?}"),
    }
}

/// A refresh and a sub_refresh mean the same.
fn refreshed(body: &str) -> RefreshGrant {
    let of = |question| match answered(body, &question) {
        AskAnswer::Refresh(grant) | AskAnswer::SubRefresh(grant) => *grant,
        other => panic!("{other:?}"),
    };
    let grants = [of(refresh()), of(sub_refresh())];
    assert_eq!(grants[0].info, grants[1].info);
    let [grant, _] = grants;
    grant
}

fn disconnect_code(answer: &AskAnswer) -> u16 {
    match answer {
        AskAnswer::Refused(Refusal::Disconnect(close)) => close.code(),
        other => panic!("{other:?}"),
    }
}

fn now_s() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs()
}

#[test]
fn a_connect_is_granted_with_all_its_fields() {
    let expire_at = now_s() + 1_000;
    let body = format!(
        r#"{{"result": {{"user": "56", "expire_at": {expire_at}, "info": {{"n":
            1}}, "data": [1, 2], "meta": {{"m": true}}, "channels": ["news", "chat:2", "news", "chat:1"],
            "subs": {{"chat:1": {{"info": 1, "data": 2, "override": {{"presence": {{"value": true}},
            "force_recovery": {{"value": false}}}}, "cache_recover": true}}}}, "caps": ["ignored"]}}}}"#
    );
    let grant = connected(&body);
    assert_eq!(grant.user.as_deref(), Some("56"));
    let left = grant.expires_in.unwrap();
    assert!(left <= Duration::from_secs(1_000) && left > Duration::from_secs(900));
    let info = grant.info.unwrap();
    assert!(!info.contains(&b'\n') && info.starts_with(br#"{"n":"#));
    assert_eq!(grant.data, Some(json("[1, 2]")));
    assert_eq!(grant.meta.as_deref(), Some(&br#"{"m": true}"#[..]));
    let names: Vec<_> = grant
        .subscriptions
        .iter()
        .map(|(name, _)| &**name)
        .collect();
    assert_eq!(names, ["chat:1", "chat:2", "news"]);
    let (_, chat) = &grant.subscriptions[0];
    assert_eq!(chat.info.as_deref(), Some(&b"1"[..]));
    assert_eq!(chat.data, Some(json("2")));
    assert_eq!(chat.overrides.presence, Some(true));
    assert_eq!(chat.overrides.force_recovery, Some(false));
    assert_eq!(chat.overrides.cache_recover, Some(true));
    assert_eq!(chat.overrides.join_leave, None);
}

#[test]
fn a_connect_with_an_empty_result_is_anonymous_and_without_one_nobody() {
    let grant =
        connected(r#"{"result": {"user": "", "expire_at": 0, "info": null, "subs": null}}"#);
    assert_eq!(
        (grant.user, grant.expires_in, grant.info),
        (None, None, None)
    );
    assert!(grant.subscriptions.is_empty());
    let nobody = answered("{}", &connect(None));
    assert!(
        matches!(nobody, AskAnswer::Refused(Refusal::Nobody)),
        "{nobody:?}"
    );
    let allowed = run(async {
        let app = App::always(Act::Answer("{}".into())).await;
        let mut application = application(&settings(app.address));
        application.allows_anonymous = true;
        application.answer(&asker(), &connect(None)).await
    });
    assert!(matches!(allowed, AskAnswer::Connect(grant) if grant.user.is_none()));
}

#[test]
fn what_has_expired_already_is_said_so() {
    let past = now_s() - 1;
    for (body, question) in [
        (
            format!(r#"{{"result": {{"expire_at": {past}}}}}"#),
            connect(None),
        ),
        (
            format!(r#"{{"result": {{"expire_at": {past}}}}}"#),
            subscribe(),
        ),
        (
            format!(r#"{{"result": {{"subs": {{"a": {{}}, "b": {{"expire_at": {past}}}}}}}}}"#),
            connect(None),
        ),
    ] {
        assert_eq!(error_code(&answered(&body, &question)), 110, "{body}");
    }
    // Nothing overflows, and nothing lasts longer than a year.
    let grant = connected(&format!(r#"{{"result": {{"expire_at": {}}}}}"#, u64::MAX));
    assert_eq!(grant.expires_in, Some(Duration::from_hours(365 * 24)));
}

#[test]
fn base64_is_taken_before_json() {
    // "e30=" is {}, "AP8=" is no text.
    let body = r#"{"result": {"info": 1, "b64info": "AP8=", "data": 1, "b64data": "e30="}}"#;
    for (info, data) in [
        {
            let grant = connected(body);
            (grant.info, grant.data)
        },
        {
            let grant = subscribed(body);
            (grant.info, grant.data)
        },
    ] {
        assert_eq!(info.as_deref(), Some(&[0, 255][..]));
        assert_eq!(data, Some(json("{}")));
    }
    let data = published(r#"{"result": {"data": 1, "b64data": "AP8="}}"#).data;
    assert_eq!(data, Some(Payload::Binary([0, 255].into())));
    let empty = published(r#"{"result": {"data": 1, "b64data": ""}}"#).data;
    assert_eq!(empty, Some(json("1")));
}

#[test]
fn an_empty_answer_allows_to_subscribe_and_publish_and_returns_nothing() {
    for body in [
        "{}",
        r#"{"result": {}}"#,
        r#"{"result": null, "error": null}"#,
    ] {
        let grant = subscribed(body);
        assert_eq!((grant.expires_in, grant.data), (None, None));
        let grant = published(body);
        assert!(grant.data.is_none() && !grant.skip_history && grant.tags.is_empty());
        match answered(body, &rpc("m", json("1"))) {
            AskAnswer::Rpc(data) => assert!(data.bytes().is_empty()),
            other => panic!("{other:?}"),
        }
    }
    // A method may return null, which is not nothing.
    match answered(r#"{"result": {"data": null}}"#, &rpc("m", json("1"))) {
        AskAnswer::Rpc(data) => assert_eq!(data, json("null")),
        other => panic!("{other:?}"),
    }
    assert!(published(r#"{"result": {"data": null}}"#).data.is_none());
}

#[test]
fn a_publication_may_be_changed() {
    let grant = published(
        r#"{"result": {"data": {"b": 1}, "skip_history": true, "tags": {"a": "1", "b": "2"},
            "idempotency_key": "k", "delta": true, "version": 18446744073709551615, "version_epoch": "e"}}"#,
    );
    assert_eq!(grant.data, Some(json(r#"{"b": 1}"#)));
    assert!(grant.skip_history && grant.delta);
    assert_eq!(
        grant.tags,
        [("a".into(), "1".into()), ("b".into(), "2".into())]
    );
    assert_eq!(grant.idempotency_key.as_deref(), Some("k"));
    assert_eq!((grant.version, &*grant.version_epoch), (u64::MAX, "e"));
}

#[test]
fn a_refresh_goes_on_or_is_over() {
    for body in [
        "{}",
        r#"{"result": null}"#,
        r#"{"result": {"expired": true, "expire_at": 99999999999}}"#,
        r#"{"result": {"expire_at": 1}}"#,
        // Nothing but the result counts.
        r#"{"error": {"code": 1}, "disconnect": {"code": 4000}}"#,
    ] {
        assert_eq!(refreshed(body).refreshed, Refreshed::Expired, "{body}");
    }
    let grant = refreshed(r#"{"result": {}, "disconnect": 5}"#);
    assert_eq!(grant.refreshed, Refreshed::For(None));
    let body = format!(
        r#"{{"result": {{"expire_at": {}, "info": 5, "meta": 6}}}}"#,
        now_s() + 100
    );
    let grant = refreshed(&body);
    assert!(
        matches!(grant.refreshed, Refreshed::For(Some(left)) if left <= Duration::from_secs(100))
    );
    assert_eq!(grant.info.as_deref(), Some(&b"5"[..]));
    assert_eq!(grant.meta.as_deref(), Some(&b"6"[..]));
}

#[test]
fn a_disconnect_is_looked_at_before_an_error_and_an_error_before_a_result() {
    let body = r#"{"result": {}, "error": {"code": 400, "message": "m", "temporary": true},
        "disconnect": {"code": 4500, "reason": "banned"}}"#;
    for question in [
        connect(None),
        subscribe(),
        publish(json("1")),
        rpc("m", json("1")),
    ] {
        let answer = answered(body, &question);
        assert_eq!(disconnect_code(&answer), 4500);
        for without_code in [r#"{"disconnect": {}}"#, r#"{"disconnect": {"code": 0}}"#] {
            let answer = answered(without_code, &question);
            assert_eq!(disconnect_code(&answer), 3000, "clients come back");
        }
        let answer = answered(r#"{"result": 5, "error": {"code": 1999}}"#, &question);
        match answer {
            AskAnswer::Refused(Refusal::Error {
                code,
                message,
                temporary,
            }) => {
                assert!(code == 1999 && !message.is_empty() && !temporary);
            }
            other => panic!("{other:?}"),
        }
    }
    // The protocol's own errors keep their texts.
    match answered(r#"{"error": {"code": 103}}"#, &subscribe()) {
        AskAnswer::Refused(Refusal::Error { message, .. }) => {
            assert_eq!(&*message, "permission denied");
        }
        other => panic!("{other:?}"),
    }
}
