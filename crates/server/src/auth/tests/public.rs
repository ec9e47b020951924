//! Public keys, and what happens on the control plane.

use super::*;
use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use aws_lc_rs::rsa;
use aws_lc_rs::signature::{self, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _};
use base64::prelude::BASE64_STANDARD;
use jsonwebtoken::Algorithm as Theirs;
use myriad_shard::{AskAnswer, AskingClient, ClientId, Question};

pub(super) fn pem_of(key: &impl AsDer<PublicKeyX509Der<'static>>) -> String {
    let der = key.as_der().unwrap();
    let body = BASE64_STANDARD.encode(der.as_ref());
    format!("-----BEGIN PUBLIC KEY-----\n{body}\n-----END PUBLIC KEY-----\n")
}

/// A key on P-256, as PEM and for the other library.
pub(super) fn p256() -> (String, EncodingKey) {
    let algorithm = &signature::ECDSA_P256_SHA256_FIXED_SIGNING;
    let pair = EcdsaKeyPair::generate(algorithm).unwrap();
    let private = pair.to_pkcs8v1().unwrap();
    (
        pem_of(pair.public_key()),
        EncodingKey::from_ec_der(private.as_ref()),
    )
}

fn rsa2048() -> (String, EncodingKey) {
    let pair = rsa::KeyPair::generate(rsa::KeySize::Rsa2048).unwrap();
    let private: aws_lc_rs::encoding::Pkcs8V1Der<'_> = pair.as_der().unwrap();
    let pem = format!(
        "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n",
        BASE64_STANDARD.encode(private.as_ref())
    );
    (
        pem_of(pair.public_key()),
        EncodingKey::from_rsa_pem(pem.as_bytes()).unwrap(),
    )
}

fn ed25519() -> (String, EncodingKey) {
    let pair = Ed25519KeyPair::generate().unwrap();
    let private = pair.to_pkcs8v1().unwrap();
    (
        pem_of(pair.public_key()),
        EncodingKey::from_ed_der(private.as_ref()),
    )
}

pub(super) fn signed(algorithm: Theirs, key: &EncodingKey, claims: &Value) -> String {
    encode(&Header::new(algorithm), claims, key).unwrap()
}

fn asker(user: Option<&str>) -> AskingClient {
    AskingClient {
        address: None,
        client: ClientId([1; 16]),
        user: user.map(Into::into),
        transport: "websocket",
        protocol: "json",
        headers: None,
        emulated_headers: None,
        meta: None,
    }
}

fn connect_question(token: &str) -> Question {
    Question::Connect {
        token: Some(token.into()),
        data: None,
        name: "".into(),
        version: "".into(),
        channels: Vec::new(),
    }
}

fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(future)
}

/// The answer of the control plane, after the shard said that it takes too long.
pub(super) fn answer(authority: &Authority, token: &str) -> Result<ConnectGrant, TokenFault> {
    let verdict = authority.connection(token);
    assert!(matches!(verdict, Verdict::Later), "{verdict:?}");
    let question = connect_question(token);
    match run(authority.answer(&asker(None), &question)) {
        Some(AskAnswer::Connect(grant)) => Ok(*grant),
        Some(AskAnswer::Token(fault)) => Err(fault),
        other => panic!("{other:?}"),
    }
}

#[test]
fn each_kind_of_public_key_verifies_its_own_algorithms_only() {
    let (rsa_pem, rsa_key) = rsa2048();
    let (p256_pem, p256_key) = p256();
    let (ed_pem, ed_key) = ed25519();
    let keys = Keys {
        rsa: Some(pem::rsa(&rsa_pem).unwrap()),
        ecdsa: Some(pem::ecdsa(&p256_pem).unwrap()),
        ed25519: Some(pem::ed25519(&ed_pem).unwrap()),
        ..Keys::default()
    };
    let authority = Authority::start(rules(keys)).unwrap();
    let claims = json!({"sub": "42", "exp": seconds_from_now(60)});
    let algorithms = [
        (Theirs::RS256, &rsa_key),
        (Theirs::RS384, &rsa_key),
        (Theirs::RS512, &rsa_key),
        (Theirs::ES256, &p256_key),
        (Theirs::EdDSA, &ed_key),
    ];
    for (algorithm, key) in algorithms {
        let token = signed(algorithm, key, &claims);
        let grant = answer(&authority, &token).unwrap();
        assert_eq!(grant.user.as_deref(), Some("42"), "{algorithm:?}");
        let expired = signed(algorithm, key, &json!({"exp": 1}));
        assert_eq!(
            answer(&authority, &expired).unwrap_err(),
            TokenFault::Expired
        );
        // The same with the claims of another token, and with another key's signature.
        let (head, signature) = token.rsplit_once('.').unwrap();
        let other = signed(algorithm, key, &json!({"sub": "admin"}));
        let (other, _) = other.rsplit_once('.').unwrap();
        let forged = format!("{other}.{signature}");
        assert!(
            answer(&authority, &forged)
                .unwrap_err()
                .cause()
                .contains("signature")
        );
        for (another, key) in algorithms {
            let foreign = signed(another, key, &claims);
            let (_, foreign) = foreign.rsplit_once('.').unwrap();
            if another != algorithm {
                answer(&authority, &format!("{head}.{foreign}")).unwrap_err();
            }
        }
    }
}

#[test]
fn larger_curves_have_their_own_algorithms() {
    for (method, name) in [
        (&signature::ECDSA_P384_SHA384_FIXED_SIGNING, "ES384"),
        (&signature::ECDSA_P521_SHA512_FIXED_SIGNING, "ES512"),
    ] {
        let pair = EcdsaKeyPair::generate(method).unwrap();
        let keys = Keys {
            ecdsa: Some(pem::ecdsa(&pem_of(pair.public_key())).unwrap()),
            ..Keys::default()
        };
        let authority = Authority::start(rules(keys)).unwrap();
        let token = |name: &str| {
            let header = BASE64URL.encode(json!({"alg": name}).to_string());
            let signed = format!("{header}.{}", BASE64URL.encode(r#"{"sub":"42"}"#));
            let random = aws_lc_rs::rand::SystemRandom::new();
            let signature = pair.sign(&random, signed.as_bytes()).unwrap();
            format!("{signed}.{}", BASE64URL.encode(signature))
        };
        answer(&authority, &token(name)).unwrap();
        // The header cannot choose another curve for the key.
        let found = connect(&authority, &token("ES256")).unwrap_err();
        assert!(found.cause().contains("no key is configured"), "{found:?}");
    }
}

#[test]
fn a_public_key_is_no_secret_of_hmac() {
    let (pem, _) = rsa2048();
    let keys = Keys {
        rsa: Some(pem::rsa(&pem).unwrap()),
        ..Keys::default()
    };
    let authority = Authority::start(rules(keys)).unwrap();
    for secret in [&*pem, pem.trim()] {
        let forged = token(Theirs::HS256, &json!({"sub": "admin"}), secret.as_bytes());
        let found = connect(&authority, &forged).unwrap_err();
        assert!(found.cause().contains("no hmac_secret_key"), "{found:?}");
    }
}

#[test]
fn weak_and_foreign_keys_are_refused_with_advice() {
    let (p256_pem, _) = p256();
    let (ed_pem, _) = ed25519();
    assert!(pem::rsa(&p256_pem).err().unwrap().contains("no RSA key"));
    assert!(pem::ecdsa(&ed_pem).err().unwrap().contains("curves"));
    assert!(pem::ed25519(&p256_pem).err().unwrap().contains("Ed25519"));
    // 1,024 bits, made by openssl.
    let weak = "-----BEGIN PUBLIC KEY-----\nMIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQDBIVSKn+j9meQtz2csL1d/dnry\nSxVOYptT7b3QHdGKodz8gBpfvdDYeWPpLEY73Zp6gUn2MNpqQLDmpUbEOWhkInp6\nI5tZYBW7qlAv3Uw+egQlUMkIeVDaoOWCw69Ntgn0PDFtfuCjkRrv/LveDxWovWNj\nLtQGq+Fv4mjjkBMO4wIDAQAB\n-----END PUBLIC KEY-----";
    let advice = pem::rsa(weak).err().unwrap();
    assert!(advice.contains("2048"), "{advice}");
    let twice = format!("{p256_pem}{p256_pem}");
    assert!(pem::ecdsa(&twice).err().unwrap().contains("more text"));
    let cut = p256_pem.replace("-----END PUBLIC KEY-----", "");
    assert!(pem::ecdsa(&cut).err().unwrap().contains("missing"));
    // PKCS#1: what is left without the 24 bytes that name the algorithm.
    let (rsa_pem, _) = rsa2048();
    let body: String = rsa_pem
        .lines()
        .filter(|line| !line.starts_with('-'))
        .collect();
    let pkcs1 = BASE64_STANDARD.encode(&BASE64_STANDARD.decode(body).unwrap()[24..]);
    let pkcs1 = format!("-----BEGIN RSA PUBLIC KEY-----\n{pkcs1}\n-----END RSA PUBLIC KEY-----");
    pem::rsa(&pkcs1).unwrap();
    // As in a variable of the environment.
    pem::ecdsa(&p256_pem.trim().replace('\n', "\\n")).unwrap();
}

#[test]
fn a_subscription_token_is_compared_with_who_asks() {
    let (pem, key) = p256();
    let keys = Keys {
        ecdsa: Some(pem::ecdsa(&pem).unwrap()),
        ..Keys::default()
    };
    let authority = Authority::start(rules(keys)).unwrap();
    let claims = json!({"sub": "42", "channel": "news", "exp": seconds_from_now(60)});
    let question = |channel: &str| Question::Subscribe {
        channel: channel.into(),
        token: Some(signed(Theirs::ES256, &key, &claims).into()),
        data: None,
        proxy: None,
    };
    let ask = |user, channel| run(authority.answer(&asker(user), &question(channel)));
    assert!(matches!(
        ask(Some("42"), "news"),
        Some(AskAnswer::Subscribe(_))
    ));
    for (user, channel, fault) in [
        (Some("43"), "news", TokenFault::OtherUser),
        (None, "news", TokenFault::OtherUser),
        (Some("42"), "olds", TokenFault::OtherChannel),
    ] {
        let found = ask(user, channel);
        assert!(
            matches!(found, Some(AskAnswer::Token(found)) if found == fault),
            "{found:?}"
        );
    }
}

#[test]
fn questions_without_a_token_are_the_applications() {
    let authority = by_hmac();
    let question = Question::Refresh { token: None };
    assert!(run(authority.answer(&asker(None), &question)).is_none());
    let question = Question::Subscribe {
        channel: "a".into(),
        token: None,
        data: None,
        proxy: None,
    };
    assert!(run(authority.answer(&asker(None), &question)).is_none());
}

#[test]
fn revocation_holds_for_public_keys_too() {
    let (pem, key) = p256();
    let keys = Keys {
        ecdsa: Some(pem::ecdsa(&pem).unwrap()),
        ..Keys::default()
    };
    let authority = Authority::start(rules(keys)).unwrap();
    let token = signed(Theirs::ES256, &key, &json!({"sub": "42", "jti": "t"}));
    answer(&authority, &token).unwrap();
    authority.revocations().revoke_token("t", None).unwrap();
    assert_eq!(answer(&authority, &token).unwrap_err(), TokenFault::Revoked);
}
