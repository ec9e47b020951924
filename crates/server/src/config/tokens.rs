//! `[client.token]` and `[client.subscription_token]`: keys for tokens, and what tokens must say.

use super::secrets::SecretText;
use super::secrets::{UrlText, shown_url};
use super::tables::ClientTable;
use super::{ConfigError, refuse};
use crate::auth::{Demand, Endpoint, Keys, Rules, Secret, TokenRules, pem};
use crate::nodes::KeysMark;
use myriad_shard::Access;
use myriad_units::option::Count;
use regex::{Regex, RegexBuilder};
use serde::Deserialize;

/// Bytes of a secret that nobody guesses: those of the shortest hash.
const SECRET_BYTES_GOOD: usize = 32;
/// Bytes that the compiled form of a pattern may take.
const PATTERN_BYTES_MAX: usize = 1 << 20;

/// What to say of a secret for tokens that is too short. `name` is the option that has it.
#[must_use]
pub fn secret_remark(name: &str, secret: &str) -> Option<String> {
    (secret.len() < SECRET_BYTES_GOOD).then(|| {
        format!(
            "{name} has {} bytes: whoever sees one token can try secrets; make one of {SECRET_BYTES_GOOD} random bytes, such as by openssl rand -hex 32",
            secret.len()
        )
    })
}

/// `[client.token]`, or `[client.subscription_token]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TokenTable {
    /// Only for subscription tokens: whether they have keys of their own.
    pub enabled: Option<bool>,
    /// The secret of HS256, HS384 and HS512.
    pub hmac_secret_key: SecretText,
    /// The secret before this one.
    pub hmac_previous_secret_key: SecretText,
    /// Until when the secret before this one counts, in seconds since 1970; 0 for ever.
    pub hmac_previous_secret_key_valid_until: Option<Count>,
    /// The key of RS256, RS384 and RS512, as PEM.
    pub rsa_public_key: String,
    /// The key of ES256, ES384 or ES512, as PEM.
    pub ecdsa_public_key: String,
    /// The key of EdDSA (Ed25519), as PEM.
    pub eddsa_public_key: String,
    /// Where other keys are, instead of these: a JWK Set.
    pub jwks_public_endpoint: UrlText,
    /// A text that `aud` must have.
    pub audience: String,
    /// A pattern that one of `aud` must match.
    pub audience_regex: String,
    /// What `iss` must be.
    pub issuer: String,
    /// A pattern that `iss` must match.
    pub issuer_regex: String,
    /// The claim with the user's id.
    pub user_id_claim: String,
}

impl TokenTable {
    /// The keys, and where they are. Whatever else a token must say may be changed node by node.
    fn key_texts(&self) -> [&[u8]; 5] {
        [
            self.hmac_secret_key.secret().unwrap_or_default().as_ref(),
            self.rsa_public_key.trim().as_bytes(),
            self.ecdsa_public_key.trim().as_bytes(),
            self.eddsa_public_key.trim().as_bytes(),
            self.jwks_public_endpoint.as_bytes(),
        ]
    }
}

impl ClientTable {
    /// A mark of the keys of tokens, by which nodes of a cluster notice that theirs differ.
    pub(super) fn keys_mark(&self) -> KeysMark {
        let has_own = self.subscription_token.enabled.unwrap_or(false);
        let own = has_own.then(|| self.subscription_token.key_texts());
        let keys = self.token.key_texts();
        KeysMark::of(keys.into_iter().chain(own.into_iter().flatten()))
    }

    /// How clients prove who they are. The server that runs adds what verifies tokens.
    pub(super) fn access(&self) -> Access {
        Access {
            disallow_anonymous_connection_tokens: self.disallow_anonymous_connection_tokens,
            ..Access::default()
        }
    }

    /// What is demanded of tokens.
    ///
    /// # Errors
    /// The first value that cannot be used.
    pub(crate) fn token_rules(&self) -> Result<TokenRules, ConfigError> {
        if let Some(enabled) = self.token.enabled {
            let advice = "remove it: it belongs to [client.subscription_token]";
            return Err(refuse("client.token.enabled", enabled, advice));
        }
        let subscription = self
            .subscription_token
            .resolve("client.subscription_token")?;
        let has_own = self.subscription_token.enabled.unwrap_or(false);
        Ok(TokenRules {
            connection: self.token.resolve("client.token")?,
            subscription: has_own.then_some(subscription),
            skips_signatures: self.insecure_skip_token_signature_verify,
        })
    }

    /// Keys of tokens that do nothing, and secrets that are too short.
    pub(super) fn token_remarks(&self, rules: &TokenRules) -> Vec<String> {
        let mut remarks = Vec::new();
        for (path, table, rules) in [
            ("client.token", &self.token, Some(&rules.connection)),
            (
                "client.subscription_token",
                &self.subscription_token,
                rules.subscription.as_ref(),
            ),
        ] {
            let endpoint = rules.and_then(|rules| rules.endpoint.as_ref());
            if endpoint.is_some_and(Endpoint::is_open) {
                remarks.push(format!(
                    "{path}.jwks_public_endpoint is not https: whoever is on the way can give the server other keys"
                ));
            }
            for (name, secret) in [
                ("hmac_secret_key", &table.hmac_secret_key),
                ("hmac_previous_secret_key", &table.hmac_previous_secret_key),
            ] {
                let consequence = "tokens that are signed without it are refused (3500, 103)";
                remarks.extend(secret.space_remark(&format!("{path}.{name}"), consequence));
            }
            let secret = table.hmac_secret_key.secret();
            let name = format!("{path}.hmac_secret_key");
            remarks.extend(secret.and_then(|secret| secret_remark(&name, secret)));
        }
        if rules.subscription.is_none() && self.subscription_token.is_written() {
            remarks
                .push("[client.subscription_token] does nothing without enabled = true".to_owned());
        }
        if rules.subscription.as_ref().is_some_and(Rules::has_no_keys) {
            remarks.push(
                "[client.subscription_token] is enabled and has no key: every subscription token is refused".to_owned(),
            );
        }
        if rules.skips_signatures {
            remarks.push(
                "client.insecure_skip_token_signature_verify = true: everybody can make tokens; never for production".to_owned(),
            );
        }
        remarks
    }
}

impl TokenTable {
    fn is_written(&self) -> bool {
        self.has_keys() || !self.jwks_public_endpoint.is_empty()
    }

    fn has_keys(&self) -> bool {
        self.hmac_secret_key.secret().is_some()
            || [
                &self.rsa_public_key,
                &self.ecdsa_public_key,
                &self.eddsa_public_key,
            ]
            .into_iter()
            .any(|text| !text.is_empty())
    }

    /// `path` is the table's.
    fn resolve(&self, path: &str) -> Result<Rules, ConfigError> {
        let key = |name: &str| format!("{path}.{name}");
        let claim = &*self.user_id_claim;
        if claim.len() > 64 || !claim.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
            let advice = "choose the name of a claim: at most 64 printable ASCII characters";
            return Err(refuse(key("user_id_claim"), format!("{claim:?}"), advice));
        }
        let audience = demand(
            path,
            ("audience", &self.audience),
            ("audience_regex", &self.audience_regex),
        )?;
        let issuer = demand(
            path,
            ("issuer", &self.issuer),
            ("issuer_regex", &self.issuer_regex),
        )?;
        Ok(Rules {
            keys: self.keys(path)?,
            endpoint: self.endpoint(path, issuer.as_ref(), audience.as_ref())?,
            audience,
            issuer,
            user_id_claim: Some(claim)
                .filter(|claim| !claim.is_empty() && *claim != "sub")
                .map(Into::into),
        })
    }

    fn endpoint(
        &self,
        path: &str,
        issuer: Option<&Demand>,
        audience: Option<&Demand>,
    ) -> Result<Option<Endpoint>, ConfigError> {
        let url = &*self.jwks_public_endpoint;
        if url.is_empty() {
            return Ok(None);
        }
        let field = format!("{path}.jwks_public_endpoint");
        if self.has_keys() {
            let advice = "replaces the keys in the file; remove it or them";
            return Err(refuse(field, shown_url(url), advice));
        }
        Endpoint::new(url, issuer, audience)
            .map(Some)
            .map_err(|advice| refuse(field, shown_url(url), advice))
    }

    fn keys(&self, path: &str) -> Result<Keys, ConfigError> {
        let hmac = secret(path, "hmac_secret_key", &self.hmac_secret_key)?;
        let previous = secret(
            path,
            "hmac_previous_secret_key",
            &self.hmac_previous_secret_key,
        )?;
        let until = self
            .hmac_previous_secret_key_valid_until
            .map_or(0, |time| time.0);
        if previous.is_some() && hmac.is_none() {
            let field = format!("{path}.hmac_previous_secret_key");
            let advice = "needs hmac_secret_key, which replaces it";
            return Err(refuse(field, "(hidden)", advice));
        }
        if until > 0 && previous.is_none() {
            let field = format!("{path}.hmac_previous_secret_key_valid_until");
            return Err(refuse(field, until, "needs hmac_previous_secret_key"));
        }
        let until = (until > 0).then_some(until);
        Ok(Keys {
            hmac,
            previous_hmac: previous.map(|secret| (secret, until)),
            rsa: public(path, "rsa_public_key", &self.rsa_public_key, pem::rsa)?,
            ecdsa: public(path, "ecdsa_public_key", &self.ecdsa_public_key, pem::ecdsa)?,
            ed25519: public(
                path,
                "eddsa_public_key",
                &self.eddsa_public_key,
                pem::ed25519,
            )?,
        })
    }
}

fn secret(path: &str, name: &str, text: &SecretText) -> Result<Option<Secret>, ConfigError> {
    let Some(text) = text.secret() else {
        return Ok(None);
    };
    if text.trim_start().starts_with("-----BEGIN") {
        // Everybody may know a public key. As a secret it would let everybody make tokens.
        let advice = "is a key in PEM, not a secret; write it as rsa_public_key, ecdsa_public_key or eddsa_public_key";
        return Err(refuse(format!("{path}.{name}"), "(hidden)", advice));
    }
    Ok(Some(Secret::new(text.as_bytes())))
}

fn public<T>(
    path: &str,
    name: &str,
    text: &str,
    read: impl FnOnce(&str) -> Result<T, String>,
) -> Result<Option<T>, ConfigError> {
    if text.is_empty() {
        return Ok(None);
    }
    // The text is not repeated: somebody may have written a private key by mistake.
    read(text)
        .map(Some)
        .map_err(|advice| refuse(format!("{path}.{name}"), "(hidden)", advice))
}

/// A text or a pattern for the same claim.
fn demand(
    path: &str,
    (text_name, text): (&str, &str),
    (pattern_name, pattern): (&str, &str),
) -> Result<Option<Demand>, ConfigError> {
    match (text, pattern) {
        ("", "") => Ok(None),
        (text, "") => Ok(Some(Demand::Text(text.into()))),
        ("", pattern) => match whole(pattern) {
            Ok(pattern) => Ok(Some(Demand::Pattern(pattern))),
            Err(error) => {
                // The library draws the pattern over several lines; its last line says what is wrong.
                let error = error.to_string();
                let cause = error.lines().last().unwrap_or_default().trim().to_owned();
                let field = format!("{path}.{pattern_name}");
                Err(refuse(field, format!("{pattern:?}"), cause))
            }
        },
        (_, pattern) => {
            let advice = format!("is another form of {text_name}, which is there too; keep one");
            let field = format!("{path}.{pattern_name}");
            Err(refuse(field, format!("{pattern:?}"), advice))
        }
    }
}

/// A pattern for a whole text: a part that fits would let `https://evil.example/https://good.example` pass.
fn whole(pattern: &str) -> Result<Regex, regex::Error> {
    // By itself first, so that a parenthesis too many is an error.
    Regex::new(pattern)?;
    RegexBuilder::new(&format!("^(?:{pattern})$"))
        .size_limit(PATTERN_BYTES_MAX)
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;
    use std::path::Path;

    fn rules(table: &str) -> Result<TokenRules, ConfigError> {
        let text = format!("[client]\n{table}");
        let options = Options::from_text(&text, Path::new("f"))?;
        options.client.unwrap_or_default().token_rules()
    }

    #[test]
    fn values_that_cannot_be_meant_are_named_with_advice_and_without_secrets() {
        let pem = "token.hmac_secret_key = \"-----BEGIN PUBLIC KEY-----\"";
        let private = "token.rsa_public_key = \"-----BEGIN PRIVATE KEY-----\\nsesame\"";
        for (table, error) in [
            (
                "token.enabled = true",
                "client.token.enabled = true: remove it",
            ),
            (
                pem,
                "client.token.hmac_secret_key = (hidden): is a key in PEM",
            ),
            (
                "token.hmac_previous_secret_key = \"sesame\"",
                "client.token.hmac_previous_secret_key = (hidden): needs hmac_secret_key",
            ),
            (
                "token.hmac_previous_secret_key_valid_until = 5",
                "client.token.hmac_previous_secret_key_valid_until = 5: needs hmac_previous_secret_key",
            ),
            (
                "token.rsa_public_key = \"x\"",
                "client.token.rsa_public_key = (hidden): write the public key as PEM",
            ),
            (
                private,
                "client.token.rsa_public_key = (hidden): this is a private key",
            ),
            (
                "token.eddsa_public_key = \"-----BEGIN CERTIFICATE-----\"",
                "client.token.eddsa_public_key = (hidden): this is a certificate",
            ),
            (
                "token.hmac_secret_key = \"sesame\"\ntoken.jwks_public_endpoint = \"https://a.example\"",
                "client.token.jwks_public_endpoint = \"https://a.example\": replaces the keys",
            ),
            (
                "token.jwks_public_endpoint = \"a.example\"",
                "client.token.jwks_public_endpoint = \"a.example\": choose a URL",
            ),
            (
                "subscription_token.issuer_regex = \"(\"",
                "client.subscription_token.issuer_regex = \"(\": error: unclosed group",
            ),
            (
                "token.issuer_regex = \"a)(b\"",
                "client.token.issuer_regex = \"a)(b\": error: unopened group",
            ),
            (
                "token.audience = \"a\"\ntoken.audience_regex = \"a\"",
                "client.token.audience_regex = \"a\": is another form of audience",
            ),
            (
                "token.user_id_claim = \"a\\n\"",
                "client.token.user_id_claim = \"a\\n\": choose the name of a claim",
            ),
        ] {
            let refused = rules(table).expect_err(table).to_string();
            assert!(refused.starts_with(error), "{refused}");
            assert!(!refused.contains("sesame"), "{refused}");
        }
    }

    #[test]
    fn subscription_tokens_have_keys_of_their_own_when_they_are_enabled() {
        let table = "subscription_token.hmac_secret_key = \"b\"\nsubscription_token.enabled = ";
        assert!(
            rules(&format!("{table}true"))
                .unwrap()
                .subscription
                .is_some()
        );
        assert!(
            rules(&format!("{table}false"))
                .unwrap()
                .subscription
                .is_none()
        );
    }

    #[test]
    fn a_pattern_is_for_the_whole_claim() {
        for pattern in ["https://a\\.example/.*", "^https://a\\.example/.*$"] {
            let pattern = whole(pattern).unwrap();
            assert!(pattern.is_match("https://a.example/x"));
            assert!(!pattern.is_match("https://evil.example/?https://a.example/x"));
        }
        assert!(!whole("a|b").unwrap().is_match("ab"));
    }

    #[test]
    fn what_does_nothing_or_is_weak_is_remarked_upon() {
        let text = "[client]\ninsecure_skip_token_signature_verify = true\ntoken.hmac_secret_key = \"short\"\nsubscription_token.hmac_secret_key = \"0123456789abcdef0123456789abcdef\"";
        let client = Options::from_text(text, Path::new("f")).unwrap().client;
        let client = client.unwrap();
        let remarks = client.token_remarks(&client.token_rules().unwrap());
        let [short, idle, skipped] = &remarks[..] else {
            panic!("{remarks:?}")
        };
        assert!(
            short.contains("client.token.hmac_secret_key has 5 bytes"),
            "{short}"
        );
        assert!(idle.contains("enabled = true"), "{idle}");
        assert!(skipped.contains("everybody can make tokens"), "{skipped}");
    }

    /// Files and `echo` add a line feed, and then every token is refused.
    #[test]
    fn space_at_an_end_of_a_secret_is_remarked_upon() {
        let secret = "0123456789abcdef0123456789abcdef";
        for (text, what) in [
            (
                format!("{secret}\\n"),
                Some("ends in a line feed, which counts: "),
            ),
            (
                format!("{secret} "),
                Some("ends in a space, which counts: "),
            ),
            (
                format!(" {secret}"),
                Some("begins with a space, which counts: "),
            ),
            (secret.to_owned(), None),
        ] {
            let text = format!("[client]\ntoken.hmac_secret_key = \"{text}\"");
            let client = Options::from_text(&text, Path::new("f")).unwrap().client;
            let client = client.unwrap();
            let remarks = client.token_remarks(&client.token_rules().unwrap());
            assert_eq!(remarks.len(), usize::from(what.is_some()), "{remarks:?}");
            for (remark, what) in remarks.iter().zip(what) {
                let begin = format!("client.token.hmac_secret_key {what}");
                assert!(
                    remark.starts_with(&begin) && !remark.contains(secret),
                    "{remark}"
                );
            }
        }
    }
}
