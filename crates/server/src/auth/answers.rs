//! Tokens that cost more than a shard has time for: the control plane's part.

use super::claims::Claims;
use super::grants::Bearer;
use super::jwks::KeyFault;
use super::keys::{PublicKey, WRONG_SIGNATURE};
use super::parts::Parts;
use super::rules::Rules;
use super::{Authority, Kind, Signature, TokenRules, check_signature, grants, unix_now};
use myriad_shard::{AskAnswer, AskingClient, Question, TokenFault};

/// Why a token has no grant.
enum Fault {
    /// It is at fault.
    Token(TokenFault),
    /// It could not be verified now.
    Unavailable,
}

impl From<TokenFault> for Fault {
    fn from(fault: TokenFault) -> Self {
        Self::Token(fault)
    }
}

impl Authority {
    /// Answers a question that comes with a token. None if it has no token: then it is the application's.
    pub(crate) async fn answer(
        &self,
        asker: &AskingClient,
        question: &Question,
    ) -> Option<AskAnswer> {
        Some(match question {
            Question::Connect {
                token: Some(token), ..
            }
            | Question::Refresh { token: Some(token) } => {
                let granted = self
                    .verified(Kind::Connection, token, |rules, claims| {
                        grants::connection(rules, claims, unix_now())
                    })
                    .await;
                answered(granted, |grant| AskAnswer::Connect(Box::new(grant)))
            }
            Question::Subscribe {
                channel,
                token: Some(token),
                ..
            }
            | Question::SubRefresh {
                channel,
                token: Some(token),
                ..
            } => {
                let user = asker.user.as_deref().unwrap_or_default();
                let client = asker.client.to_string();
                let granted = self
                    .verified(Kind::Subscription, token, |rules, claims| {
                        grants::subscription(rules, claims, channel, user, &client, unix_now())
                    })
                    .await;
                answered(granted, |grant| AskAnswer::Subscribe(Box::new(grant)))
            }
            Question::Connect { .. }
            | Question::Refresh { .. }
            | Question::Subscribe { .. }
            | Question::SubRefresh { .. }
            | Question::Publish { .. }
            | Question::Rpc { .. } => return None,
        })
    }

    /// What a token grants, if its signature is good, with the result counted.
    async fn verified<T>(
        &self,
        kind: Kind,
        token: &str,
        read: impl FnOnce(&Rules, &str) -> Result<(Bearer, T), TokenFault>,
    ) -> Result<T, Fault> {
        // One configuration for all of it, also when a reload comes between.
        let rules = self.rules.load_full();
        let granted = match Parts::read(token) {
            Ok(parts) => match self.check_public(&rules, kind, token, &parts).await {
                Ok(()) => self.granted(rules.of(kind), &parts, read),
                Err(Fault::Token(fault)) => Err(fault),
                Err(Fault::Unavailable) => {
                    self.counts.count_unavailable(kind);
                    return Err(Fault::Unavailable);
                }
            },
            Err(cause) => Err(TokenFault::Invalid(cause)),
        };
        self.counts.count(kind, &granted);
        granted.map_err(Fault::Token)
    }

    /// The key that a token asks for, from the configuration or from an endpoint.
    async fn public_key(&self, rules: &Rules, parts: &Parts<'_>) -> Result<PublicKey, Fault> {
        let invalid = |cause| Fault::Token(TokenFault::Invalid(cause));
        let Some(endpoint) = &rules.endpoint else {
            let key = rules.keys.public(parts.algorithm).cloned();
            return key.ok_or_else(|| invalid(NO_KEY));
        };
        let name = parts.key_id.as_deref().ok_or_else(|| invalid(NO_KEY_ID))?;
        let url = match endpoint.fixed() {
            Some(url) => url.to_owned(),
            None => {
                let text = parts.claims().map_err(invalid)?;
                let claims = Claims::read(&text).map_err(invalid)?;
                endpoint.url(rules, &claims).map_err(invalid)?
            }
        };
        match self.key_sets.key(&url, name, parts.algorithm).await {
            Ok(key) => Ok(key),
            Err(KeyFault::Unknown) => Err(invalid(
                "jwks_public_endpoint has no key with the kid of the token for its algorithm",
            )),
            Err(KeyFault::Unavailable) => Err(Fault::Unavailable),
        }
    }

    async fn check_public(
        &self,
        rules: &TokenRules,
        kind: Kind,
        token: &str,
        parts: &Parts<'_>,
    ) -> Result<(), Fault> {
        // A reload may have changed everything since the shard asked.
        match check_signature(rules, kind, parts, unix_now()) {
            Signature::Good => return Ok(()),
            Signature::Bad(cause) => return Err(TokenFault::Invalid(cause).into()),
            Signature::Later => {}
        }
        let key = self.public_key(rules.of(kind), parts).await?;
        let verified = self.pool.verify(key, token, parts.signature.clone()).await;
        match verified {
            Ok(true) => Ok(()),
            Ok(false) => Err(TokenFault::Invalid(WRONG_SIGNATURE).into()),
            Err(_) => Err(Fault::Unavailable),
        }
    }
}

/// There is no key for a token's algorithm.
pub(super) const NO_KEY: &str = "no key is configured for the algorithm of the token";
/// A set of keys is no use without the name of one.
pub(super) const NO_KEY_ID: &str =
    "the header names no key (kid), and keys come from jwks_public_endpoint";

fn answered<T>(granted: Result<T, Fault>, answer: impl FnOnce(T) -> AskAnswer) -> AskAnswer {
    match granted {
        Ok(grant) => answer(grant),
        Err(Fault::Token(fault)) => AskAnswer::Token(fault),
        Err(Fault::Unavailable) => AskAnswer::Unavailable,
    }
}
