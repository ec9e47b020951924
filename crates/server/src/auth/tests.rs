//! Tokens from their text to what they grant. Another library makes most of them.

mod public;

use super::*;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64URL;
use jsonwebtoken::{EncodingKey, Header, encode};
use myriad_shard::Payload;
use serde_json::{Value, json};

const SECRET: &[u8] = b"a secret of at least thirty-two bytes";

fn rules(keys: Keys) -> TokenRules {
    TokenRules {
        connection: Rules {
            keys,
            ..Rules::default()
        },
        ..TokenRules::default()
    }
}

fn by_hmac() -> Authority {
    let keys = Keys {
        hmac: Some(Secret::new(SECRET)),
        ..Keys::default()
    };
    Authority::start(rules(keys)).unwrap()
}

fn token(algorithm: jsonwebtoken::Algorithm, claims: &Value, secret: &[u8]) -> String {
    let key = EncodingKey::from_secret(secret);
    encode(&Header::new(algorithm), claims, &key).unwrap()
}

fn hs256(claims: &Value) -> String {
    token(jsonwebtoken::Algorithm::HS256, claims, SECRET)
}

fn connect(authority: &Authority, token: &str) -> Result<ConnectGrant, TokenFault> {
    match authority.connection(token) {
        Verdict::Now(result) => result,
        Verdict::Later => panic!("not on a shard"),
    }
}

fn subscribe(authority: &Authority, token: &str) -> Result<SubscribeGrant, TokenFault> {
    match authority.subscription(token, "news", "42", "c1") {
        Verdict::Now(result) => result,
        Verdict::Later => panic!("not on a shard"),
    }
}

fn seconds_from_now(seconds: i64) -> i64 {
    i64::try_from(unix_now().as_secs()).unwrap() + seconds
}

#[test]
fn a_connection_token_grants_what_it_says() {
    let claims = json!({
        "sub": "42", "exp": seconds_from_now(60), "iat": 7, "jti": "t1",
        "info": {"name": "A"}, "meta": {"plan": 1},
        "subs": {
            "b": {"info": 1, "data": {"x": [1]}, "override": {"presence": {"value": true}, "force_recovery": {"value": false}}},
            "a": {"b64info": "AAE=", "b64data": "AAE="},
        },
        "channels": ["ignored"],
    });
    let grant = connect(&by_hmac(), &hs256(&claims)).unwrap();
    assert_eq!(grant.user.as_deref(), Some("42"));
    let left = grant.expires_in.unwrap();
    assert!(
        left <= Duration::from_secs(60) && left > Duration::from_secs(5),
        "{left:?}"
    );
    assert_eq!(grant.info.as_deref(), Some(&br#"{"name":"A"}"#[..]));
    assert_eq!(grant.meta.as_deref(), Some(&br#"{"plan":1}"#[..]));
    let identity = grant.token.unwrap();
    assert_eq!(identity.id.as_deref(), Some("t1"));
    assert_eq!(identity.issued_at, Some(7));
    let [(a, first), (b, second)] = &grant.subscriptions[..] else {
        panic!("{:?}", grant.subscriptions)
    };
    assert_eq!((&**a, &**b), ("a", "b"));
    assert_eq!(first.info.as_deref(), Some(&[0, 1][..]));
    assert_eq!(first.data, Some(Payload::Binary([0, 1].into())));
    assert_eq!(second.info.as_deref(), Some(&b"1"[..]));
    assert_eq!(second.data, Some(Payload::Json(r#"{"x":[1]}"#.into())));
    assert_eq!(second.overrides.presence, Some(true));
    assert_eq!(second.overrides.force_recovery, Some(false));
    assert_eq!(second.overrides.join_leave, None);
}

#[test]
fn a_token_without_a_user_is_anonymous_and_channels_are_a_list() {
    let grant = connect(&by_hmac(), &hs256(&json!({"channels": ["x", "y"]}))).unwrap();
    assert_eq!(grant.user, None);
    assert_eq!(grant.expires_in, None);
    let names: Vec<_> = grant
        .subscriptions
        .iter()
        .map(|(name, _)| &**name)
        .collect();
    assert_eq!(names, ["x", "y"]);
}

#[test]
fn names_that_the_api_could_not_name_are_refused() {
    let (long, longest) = ("x".repeat(256), "x".repeat(255));
    for claims in [
        json!({"sub": long}),
        json!({"jti": long}),
        json!({"channels": [long]}),
        json!({"channels": ["a", ""]}),
        json!({"subs": {"": {}}}),
    ] {
        let refused = connect(&by_hmac(), &hs256(&claims));
        assert!(matches!(refused, Err(TokenFault::Invalid(_))), "{claims}");
    }
    let claims = json!({"sub": longest, "jti": longest, "channels": [longest]});
    assert!(connect(&by_hmac(), &hs256(&claims)).is_ok());
}

#[test]
fn data_in_base64_that_is_json_is_json() {
    let claims = json!({"subs": {"a": {"b64data": "eyJhIjoxfQ=="}}, "b64info": "e30="});
    let grant = connect(&by_hmac(), &hs256(&claims)).unwrap();
    let data = grant.subscriptions[0].1.data.clone();
    assert_eq!(data, Some(Payload::Json(r#"{"a":1}"#.into())));
    assert_eq!(grant.info.as_deref(), Some(&b"{}"[..]));
}

#[test]
fn times_decide_whether_a_token_has_expired() {
    let authority = by_hmac();
    for (claims, expected) in [
        (json!({"exp": seconds_from_now(60)}), None),
        (
            json!({"exp": seconds_from_now(-1)}),
            Some(TokenFault::Expired),
        ),
        (json!({"exp": 0}), Some(TokenFault::Expired)),
        (
            json!({"nbf": seconds_from_now(60)}),
            Some(TokenFault::Expired),
        ),
        (json!({"nbf": seconds_from_now(-60)}), None),
        // Its own expiry is over already, or the token's is although the other is not.
        (json!({"expire_at": 5}), Some(TokenFault::Expired)),
        (
            json!({"exp": 5, "expire_at": seconds_from_now(60)}),
            Some(TokenFault::Expired),
        ),
        (json!({"exp": seconds_from_now(60), "expire_at": 0}), None),
    ] {
        let found = connect(&authority, &hs256(&claims)).err();
        assert_eq!(found, expected, "{claims}");
    }
    let never = json!({"exp": seconds_from_now(60), "expire_at": 0});
    let grant = connect(&authority, &hs256(&never)).unwrap();
    assert_eq!(grant.expires_in, None);
    let late = json!({"exp": seconds_from_now(3_600 * 24 * 400)});
    let grant = connect(&authority, &hs256(&late)).unwrap();
    assert_eq!(grant.expires_in, Some(Duration::from_hours(365 * 24)));
}

#[test]
fn a_subscription_token_is_for_one_user_channel_and_connection() {
    let authority = by_hmac();
    for (claims, expected) in [
        (json!({"sub": "42", "channel": "news"}), None),
        (
            json!({"sub": "42", "channel": "news", "client": "c1"}),
            None,
        ),
        (json!({"sub": "42", "channel": "news", "client": ""}), None),
        (
            json!({"sub": "43", "channel": "news"}),
            Some(TokenFault::OtherUser),
        ),
        (json!({"channel": "news"}), Some(TokenFault::OtherUser)),
        (
            json!({"sub": "42", "channel": "olds"}),
            Some(TokenFault::OtherChannel),
        ),
        (
            json!({"sub": "42", "channel": "news", "client": "c2"}),
            Some(TokenFault::OtherClient),
        ),
        (
            json!({"sub": "43", "channel": "news", "exp": 1}),
            Some(TokenFault::Expired),
        ),
    ] {
        let found = subscribe(&authority, &hs256(&claims)).err();
        assert_eq!(found, expected, "{claims}");
    }
    // One kind of token is never the other.
    let connection = hs256(&json!({"sub": "42"}));
    let subscription = hs256(&json!({"sub": "42", "channel": "news"}));
    let found = subscribe(&authority, &connection).unwrap_err();
    assert!(found.cause().contains("no subscription token"), "{found:?}");
    let found = connect(&authority, &subscription).unwrap_err();
    assert!(
        found.cause().contains("it is a subscription token"),
        "{found:?}"
    );
}

#[test]
fn a_subscription_token_grants_what_it_says() {
    let claims = json!({
        "sub": "42", "channel": "news", "expire_at": seconds_from_now(60), "info": {"a": 1},
        "b64info": "AA==", "data": "hi", "override": {"join_leave": {"value": true}},
    });
    let grant = subscribe(&by_hmac(), &hs256(&claims)).unwrap();
    assert!(grant.expires_in.is_some());
    assert_eq!(grant.info.as_deref(), Some(&[0][..]));
    assert_eq!(grant.data, Some(Payload::Json(r#""hi""#.into())));
    assert_eq!(grant.overrides.join_leave, Some(true));
}

#[test]
fn each_hash_of_hmac_is_taken_and_a_wrong_secret_is_not() {
    let authority = by_hmac();
    for algorithm in [
        jsonwebtoken::Algorithm::HS256,
        jsonwebtoken::Algorithm::HS384,
        jsonwebtoken::Algorithm::HS512,
    ] {
        let claims = json!({"sub": "42"});
        connect(&authority, &token(algorithm, &claims, SECRET)).unwrap();
        let found = connect(&authority, &token(algorithm, &claims, b"other")).unwrap_err();
        assert!(found.cause().contains("signature"), "{found:?}");
    }
}

#[test]
fn the_previous_secret_counts_until_its_time() {
    let old = token(jsonwebtoken::Algorithm::HS256, &json!({"sub": "1"}), b"old");
    let verdict = |until: Option<i64>| {
        let until = until.map(|seconds| u64::try_from(seconds_from_now(seconds)).unwrap());
        let keys = Keys {
            hmac: Some(Secret::new(SECRET)),
            previous_hmac: Some((Secret::new(b"old"), until)),
            ..Keys::default()
        };
        connect(&Authority::start(rules(keys)).unwrap(), &old).is_ok()
    };
    assert!(verdict(None));
    assert!(verdict(Some(60)));
    assert!(!verdict(Some(-1)));
}

#[test]
fn every_byte_counts() {
    let authority = by_hmac();
    let token = hs256(&json!({"sub": "42", "exp": seconds_from_now(600)}));
    connect(&authority, &token).unwrap();
    for at in 0..token.len() {
        for bit in 0..7 {
            let mut bytes = token.clone().into_bytes();
            bytes[at] ^= 1 << bit;
            let changed = String::from_utf8(bytes).unwrap();
            let found = connect(&authority, &changed);
            assert!(matches!(found, Err(TokenFault::Invalid(_))), "{changed}");
        }
        let cut = format!("{}{}", &token[..at], &token[at + 1..]);
        assert!(connect(&authority, &cut).is_err(), "{cut}");
        assert!(connect(&authority, &token[..at]).is_err());
        assert!(connect(&authority, &token[at + 1..]).is_err());
    }
}

#[test]
fn what_is_not_signed_is_refused() {
    let authority = by_hmac();
    let part = |value: Value| BASE64URL.encode(value.to_string());
    let claims = part(json!({"sub": "42"}));
    for algorithm in ["none", "None", "NONE", "nOnE", ""] {
        let header = part(json!({"alg": algorithm}));
        for signature in ["", "AA"] {
            let token = format!("{header}.{claims}.{signature}");
            let found = connect(&authority, &token).unwrap_err();
            assert!(found.cause().contains("alg"), "{found:?}");
        }
    }
    let header = part(json!({"alg": "HS256"}));
    let found = connect(&authority, &format!("{header}.{claims}.")).unwrap_err();
    assert!(found.cause().contains("signature"), "{found:?}");
}

#[test]
fn without_a_key_every_token_is_invalid_and_a_reload_brings_one() {
    let authority = Authority::start(TokenRules::default()).unwrap();
    let token = hs256(&json!({"sub": "42"}));
    assert!(connect(&authority, &token).is_err());
    let keys = Keys {
        hmac: Some(Secret::new(SECRET)),
        ..Keys::default()
    };
    authority.replace(rules(keys));
    connect(&authority, &token).unwrap();
}

#[test]
fn issuer_and_audience_are_demanded() {
    let pattern = |text: &str| Demand::Pattern(regex::Regex::new(text).unwrap());
    let with = |issuer, audience| {
        let mut rules = rules(Keys {
            hmac: Some(Secret::new(SECRET)),
            ..Keys::default()
        });
        rules.connection.issuer = issuer;
        rules.connection.audience = audience;
        Authority::start(rules).unwrap()
    };
    let exact = with(
        Some(Demand::Text("me".into())),
        Some(Demand::Text("you".into())),
    );
    let open = with(Some(pattern("^m.$")), Some(pattern("^y.u$")));
    for (claims, is_good) in [
        (json!({"iss": "me", "aud": "you"}), true),
        (json!({"iss": "me", "aud": ["they", "you"]}), true),
        (json!({"iss": "me", "aud": ["they"]}), false),
        (json!({"iss": "me", "aud": []}), false),
        (json!({"iss": "he", "aud": "you"}), false),
        (json!({"aud": "you"}), false),
        (json!({"iss": "me"}), false),
    ] {
        for authority in [&exact, &open] {
            let found = connect(authority, &hs256(&claims));
            assert_eq!(found.is_ok(), is_good, "{claims}: {found:?}");
        }
    }
}

#[test]
fn another_claim_can_name_the_user() {
    let mut rules = rules(Keys {
        hmac: Some(Secret::new(SECRET)),
        ..Keys::default()
    });
    rules.connection.user_id_claim = Some("uid".into());
    let authority = Authority::start(rules).unwrap();
    let user = |claims| connect(&authority, &hs256(&claims)).map(|grant| grant.user);
    let found = user(json!({"sub": "x", "uid": 42})).unwrap();
    assert_eq!(found.as_deref(), Some("42"));
    assert_eq!(user(json!({"sub": "x"})).unwrap(), None);
    assert!(user(json!({"uid": {}})).is_err());
}

#[test]
fn subscription_tokens_may_have_other_keys() {
    let mut rules = rules(Keys {
        hmac: Some(Secret::new(SECRET)),
        ..Keys::default()
    });
    rules.subscription = Some(Rules {
        keys: Keys {
            hmac: Some(Secret::new(b"other")),
            ..Keys::default()
        },
        ..Rules::default()
    });
    let authority = Authority::start(rules).unwrap();
    let claims = json!({"sub": "42", "channel": "news"});
    let other = token(jsonwebtoken::Algorithm::HS256, &claims, b"other");
    subscribe(&authority, &other).unwrap();
    assert!(subscribe(&authority, &hs256(&claims)).is_err());
}

#[test]
fn signatures_can_be_skipped_but_claims_cannot() {
    let skipping = TokenRules {
        skips_signatures: true,
        ..TokenRules::default()
    };
    let authority = Authority::start(skipping).unwrap();
    connect(&authority, &hs256(&json!({"sub": "42"}))).unwrap();
    let found = connect(&authority, &hs256(&json!({"exp": 1})));
    assert_eq!(found.unwrap_err(), TokenFault::Expired);
}

#[test]
fn a_revoked_token_is_refused() {
    let authority = by_hmac();
    let token = hs256(&json!({"sub": "42", "jti": "t1", "iat": 100}));
    let subscription = hs256(&json!({"sub": "42", "channel": "news", "iat": 100}));
    connect(&authority, &token).unwrap();
    authority.revocations().revoke_token("t1", None).unwrap();
    assert_eq!(
        connect(&authority, &token).unwrap_err(),
        TokenFault::Revoked
    );
    subscribe(&authority, &subscription).unwrap();
    authority
        .revocations()
        .revoke_user("42", 101, None)
        .unwrap();
    let found = subscribe(&authority, &subscription).unwrap_err();
    assert_eq!(found, TokenFault::Revoked);
}

/// RFC 7515, appendix A.1: line breaks in header and claims, and a key of 64 bytes.
#[test]
fn the_example_of_the_rfc_is_verified() {
    let key =
        "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow";
    let token = "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
    let keys = Keys {
        hmac: Some(Secret::new(&BASE64URL.decode(key).unwrap())),
        ..Keys::default()
    };
    let authority = Authority::start(rules(keys)).unwrap();
    // The signature is right, and the time of the example is over.
    assert_eq!(connect(&authority, token).unwrap_err(), TokenFault::Expired);
}

#[test]
fn nobody_gets_json_that_parsers_fail_on() {
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    let authority = by_hmac();
    for name in ["info", "meta"] {
        let claims = BASE64URL.encode(format!("{{\"{name}\":{deep}}}"));
        let signed = format!("{}.{claims}", BASE64URL.encode(r#"{"alg":"HS256"}"#));
        let key = EncodingKey::from_secret(SECRET);
        let algorithm = jsonwebtoken::Algorithm::HS256;
        let signature = jsonwebtoken::crypto::sign(signed.as_bytes(), &key, algorithm).unwrap();
        let found = connect(&authority, &format!("{signed}.{signature}")).unwrap_err();
        assert!(found.cause().contains("nested deeper"), "{found:?}");
    }
}
