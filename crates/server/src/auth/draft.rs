//! Tokens for trying things out, as `myriad token` makes them.

use super::rules::Demand;
use super::{Rules, unix_now};
use crate::config::{ConfigError, Options};
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::{Map, Value};
use std::time::Duration;
use thiserror::Error;

/// A token that is not signed yet.
#[derive(Clone, Debug, Default)]
pub struct TokenDraft {
    /// The user; empty for an anonymous client.
    pub user: String,
    /// The channel of a subscription token; none for a connection token.
    pub channel: Option<String>,
    /// How long it counts; none for ever.
    pub expires_in: Option<Duration>,
    /// What other clients are told: JSON.
    pub info: Option<String>,
    /// Its id (`jti`).
    pub id: Option<String>,
    /// Who signs it (`iss`), instead of the issuer that the configuration demands.
    pub issuer: Option<String>,
    /// For whom it is (`aud`), instead of the audience that the configuration demands.
    pub audience: Option<String>,
}

/// Why there is no token.
#[derive(Debug, Error)]
pub enum TokenDraftError {
    /// The information is not JSON.
    #[error("--info {info}: {source}; write JSON, such as '{{\"name\": \"Ada\"}}'")]
    Info {
        /// What it was.
        info: String,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// The configuration has no secret to sign with.
    #[error(
        "there is no secret: write --secret, or --config FILE with hmac_secret_key in [{0}]; a token for a public key can only be signed by whoever has the private one"
    )]
    NoSecret(&'static str),
    /// The configuration demands a claim by a pattern, and nobody said which text.
    #[error(
        "the configuration has {pattern}, which says no text to write: add {flag} TEXT that it matches"
    )]
    Pattern {
        /// The key with the pattern.
        pattern: &'static str,
        /// The option that says a text.
        flag: &'static str,
    },
    /// The text for such a claim is not one that the configuration takes.
    #[error("{flag} {text}: the configuration takes another one only")]
    Unmet {
        /// The option.
        flag: &'static str,
        /// What it said.
        text: String,
    },
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

impl TokenDraft {
    /// Signs it by HS256 with a secret.
    ///
    /// # Errors
    /// The information is not JSON.
    pub fn sign(&self, secret: &str) -> Result<String, TokenDraftError> {
        self.sign_for(&Rules::default(), secret)
    }

    /// Signs it by HS256 with the secret in a configuration, and with the issuer, the audience and the name of the user's claim
    /// that it demands.
    ///
    /// # Errors
    /// There is no secret, or something else cannot be used.
    pub fn sign_by(&self, options: &Options) -> Result<String, TokenDraftError> {
        let client = options.client.clone().unwrap_or_default();
        let rules = client.token_rules()?;
        let (place, table, rules) = match &rules.subscription {
            Some(rules) if self.channel.is_some() => (
                "client.subscription_token",
                &client.subscription_token,
                rules,
            ),
            _ => ("client.token", &client.token, &rules.connection),
        };
        let secret = table.hmac_secret_key.secret();
        self.sign_for(rules, secret.ok_or(TokenDraftError::NoSecret(place))?)
    }

    fn sign_for(&self, rules: &Rules, secret: &str) -> Result<String, TokenDraftError> {
        let claims = Value::Object(self.claims(rules)?).to_string();
        let encode = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
        let header = encode(br#"{"alg":"HS256","typ":"JWT"}"#);
        let signed = format!("{header}.{}", encode(claims.as_bytes()));
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        let signature = hmac::sign(&key, signed.as_bytes());
        Ok(format!("{signed}.{}", encode(signature.as_ref())))
    }

    fn claims(&self, rules: &Rules) -> Result<Map<String, Value>, TokenDraftError> {
        let now = unix_now();
        let mut claims = Map::new();
        let issuer = demanded(&self.issuer, &rules.issuer, "issuer_regex", "--issuer")?;
        let audience = demanded(
            &self.audience,
            &rules.audience,
            "audience_regex",
            "--audience",
        )?;
        let info = self.info.as_deref().map(|info| {
            serde_json::from_str(info).map_err(|source| TokenDraftError::Info {
                info: info.into(),
                source,
            })
        });
        let expires = self
            .expires_in
            .map(|time| now.saturating_add(time).as_secs());
        let user = rules.user_id_claim.as_deref().unwrap_or("sub");
        for (name, value) in [
            (user, Some(Value::from(&*self.user))),
            ("channel", self.channel.as_deref().map(Value::from)),
            ("iat", Some(now.as_secs().into())),
            ("exp", expires.map(Value::from)),
            ("jti", self.id.as_deref().map(Value::from)),
            ("info", info.transpose()?),
            ("iss", issuer),
            ("aud", audience),
        ] {
            if let Some(value) = value {
                claims.insert(name.into(), value);
            }
        }
        Ok(claims)
    }
}

/// The text of a claim that a configuration demands: what somebody said, or the only text that it takes.
fn demanded(
    said: &Option<String>,
    demand: &Option<Demand>,
    pattern: &'static str,
    flag: &'static str,
) -> Result<Option<Value>, TokenDraftError> {
    match (said, demand) {
        (Some(text), Some(demand)) if !demand.is_met(text) => Err(TokenDraftError::Unmet {
            flag,
            text: text.clone(),
        }),
        (Some(text), _) => Ok(Some(Value::from(&**text))),
        (None, Some(Demand::Text(text))) => Ok(Some(Value::from(&**text))),
        (None, Some(_)) => Err(TokenDraftError::Pattern { pattern, flag }),
        (None, None) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Authority, Kind};
    use super::*;
    use myriad_shard::{Tokens as _, Verdict};

    fn options(text: &str) -> Options {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn a_draft_is_signed_so_that_the_same_configuration_takes_it() {
        let options = options(
            "[client.token]\nhmac_secret_key = \"a\"\nissuer = \"me\"\naudience = \"you\"\nuser_id_claim = \"uid\"\n[client.subscription_token]\nenabled = true\nhmac_secret_key = \"b\"",
        );
        let rules = options.client.clone().unwrap().token_rules().unwrap();
        let authority = Authority::start(rules).unwrap();
        let mut draft = TokenDraft {
            user: "42".into(),
            expires_in: Some(Duration::from_mins(1)),
            info: Some("{\"a\": 1}".into()),
            ..TokenDraft::default()
        };
        let Verdict::Now(Ok(grant)) = authority.connection(&draft.sign_by(&options).unwrap())
        else {
            panic!("{:?}", Kind::Connection)
        };
        assert_eq!(grant.user.as_deref(), Some("42"));
        assert_eq!(grant.info.as_deref(), Some(&br#"{"a":1}"#[..]));
        assert!(grant.expires_in.is_some());
        draft.channel = Some("news".into());
        let token = draft.sign_by(&options).unwrap();
        let verdict = authority.subscription(&token, "news", "42", "c");
        // This table has no user_id_claim: the user is in `sub`.
        assert!(matches!(verdict, Verdict::Now(Ok(_))), "{verdict:?}");
    }

    #[test]
    fn a_pattern_needs_a_text_that_it_matches() {
        let options = options(
            "[client.token]\nhmac_secret_key = \"a\"\nissuer_regex = \"ada|bob\"\naudience_regex = \"m.*\"",
        );
        let rules = options.client.clone().unwrap().token_rules().unwrap();
        let authority = Authority::start(rules).unwrap();
        let mut draft = TokenDraft::default();
        let refused = |draft: &TokenDraft| draft.sign_by(&options).unwrap_err().to_string();
        assert!(refused(&draft).contains("add --issuer TEXT"));
        draft.issuer = Some("eve".into());
        assert!(refused(&draft).starts_with("--issuer eve: "));
        draft.issuer = Some("bob".into());
        assert!(refused(&draft).contains("add --audience TEXT"));
        draft.audience = Some("me".into());
        let verdict = authority.connection(&draft.sign_by(&options).unwrap());
        assert!(matches!(verdict, Verdict::Now(Ok(_))), "{verdict:?}");
    }

    #[test]
    fn what_cannot_be_signed_has_advice() {
        let draft = TokenDraft {
            info: Some("x".into()),
            ..TokenDraft::default()
        };
        let error = draft.sign("a").unwrap_err().to_string();
        assert!(error.contains("write JSON"), "{error}");
        let error = TokenDraft::default().sign_by(&options("dev = true"));
        let error = error.unwrap_err().to_string();
        assert!(error.contains("--secret"), "{error}");
    }
}
