//! Tokens that cost more than a shard has time for.
//!
//! Where the key is configured, [`Authority::take`] hands the whole question to the threads of the pool, and they answer its shard:
//! a task of the runtime for each token would cost a quarter as much as the signature itself. Where an endpoint publishes the keys,
//! the control plane waits for the key in [`Authority::answer`], and leaves only the signature to the pool.

use super::claims::Claims;
use super::jwks::KeyFault;
use super::keys::{PublicKey, WRONG_SIGNATURE};
use super::parts::Parts;
use super::pool::Told;
use super::rules::Rules;
use super::{Authority, Kind, Signature, TokenRules, check_signature, grants, unix_now};
use crate::shards::monotonic_now;
use myriad_shard::{Ask, AskAnswer, AskingClient, ConnectGrant, Mesh, Question, TokenFault};
use std::sync::Arc;

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

/// Why the token of a request grants nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BearerFault {
    /// It is at fault.
    Token(TokenFault),
    /// It could not be verified now.
    Unavailable,
}

/// The token that a question comes with.
fn token_of(question: &Question) -> Option<(Kind, &str)> {
    let (kind, token) = match question {
        Question::Read { token } => return Some((Kind::Connection, token)),
        Question::Connect { token, .. } | Question::Refresh { token } => (Kind::Connection, token),
        Question::Subscribe { token, .. } | Question::SubRefresh { token, .. } => {
            (Kind::Subscription, token)
        }
        Question::Publish { .. } | Question::Rpc { .. } => return None,
    };
    token.as_deref().map(|token| (kind, token))
}

impl Authority {
    /// Takes a question whose token the pool's threads can answer alone. They use nothing of the runtime: a shard calls this.
    /// Gives it back if it has no token, if its key has to be fetched, or if too many wait.
    pub(crate) fn take(self: &Arc<Self>, mesh: &Mesh, ask: Ask) -> Option<Ask> {
        let Some((kind, _)) = token_of(ask.question()) else {
            return Some(ask);
        };
        // One configuration for all of it, also when a reload comes between.
        let rules = self.rules.load_full();
        if rules.of(kind).endpoint.is_some() {
            return Some(ask);
        }
        let (authority, mesh) = (Arc::clone(self), mesh.clone());
        let taken = self.pool.run_with(ask, move |ask| {
            // Its shard has answered the client at the deadline.
            if ask.deadline() <= monotonic_now() {
                return None;
            }
            let answer = authority.answer_now(&rules, ask.asker(), ask.question());
            Some(Told { mesh, ask, answer })
        });
        taken.err()
    }

    /// Answers a question with a token whose key is configured.
    fn answer_now(
        &self,
        rules: &TokenRules,
        asker: &AskingClient,
        question: &Question,
    ) -> AskAnswer {
        let Some((kind, token)) = token_of(question) else {
            return AskAnswer::Unavailable;
        };
        let granted = Parts::read(token)
            .map_err(TokenFault::Invalid)
            .and_then(|parts| {
                check_now(rules, kind, &parts)?;
                self.grant(rules.of(kind), &parts, asker, question)
            });
        self.counts.count(kind, &granted);
        granted.unwrap_or_else(AskAnswer::Token)
    }

    /// Answers a question that comes with a token. None if it has no token: then it is the application's.
    pub(crate) async fn answer(
        &self,
        asker: &AskingClient,
        question: &Question,
    ) -> Option<AskAnswer> {
        let (kind, token) = token_of(question)?;
        // One configuration for all of it, also when a reload comes between.
        let rules = self.rules.load_full();
        let granted = match Parts::read(token) {
            Ok(parts) => match self.check(&rules, kind, token, &parts).await {
                Ok(()) => self.grant(rules.of(kind), &parts, asker, question),
                Err(Fault::Token(fault)) => Err(fault),
                Err(Fault::Unavailable) => {
                    self.counts.count_unavailable(kind);
                    return Some(AskAnswer::Unavailable);
                }
            },
            Err(cause) => Err(TokenFault::Invalid(cause)),
        };
        self.counts.count(kind, &granted);
        Some(granted.unwrap_or_else(AskAnswer::Token))
    }

    /// What the connection token of a request grants that comes by HTTP.
    ///
    /// # Errors
    /// It is at fault, or could not be verified.
    pub(crate) async fn bearer(&self, token: &str) -> Result<ConnectGrant, BearerFault> {
        let kind = Kind::Connection;
        let rules = self.rules.load_full();
        let granted = match Parts::read(token) {
            Ok(parts) => match self.check(&rules, kind, token, &parts).await {
                Ok(()) => {
                    let now = unix_now();
                    let read = |rules: &Rules, claims: &str| grants::connection(rules, claims, now);
                    self.granted(rules.of(kind), &parts, read)
                }
                Err(Fault::Token(fault)) => Err(fault),
                Err(Fault::Unavailable) => {
                    self.counts.count_unavailable(kind);
                    return Err(BearerFault::Unavailable);
                }
            },
            Err(cause) => Err(TokenFault::Invalid(cause)),
        };
        self.counts.count(kind, &granted);
        granted.map_err(BearerFault::Token)
    }

    /// What a token grants whose signature is good.
    fn grant(
        &self,
        rules: &Rules,
        parts: &Parts<'_>,
        asker: &AskingClient,
        question: &Question,
    ) -> Result<AskAnswer, TokenFault> {
        let now = unix_now();
        match question {
            Question::Subscribe { channel, .. } | Question::SubRefresh { channel, .. } => {
                let user = asker.user.as_deref().unwrap_or_default();
                let client = asker.client.to_string();
                let read = |rules: &Rules, claims: &str| {
                    grants::subscription(rules, claims, channel, user, &client, now)
                };
                let grant = self.granted(rules, parts, read)?;
                Ok(AskAnswer::Subscribe(Box::new(grant)))
            }
            _ => {
                let read = |rules: &Rules, claims: &str| grants::connection(rules, claims, now);
                let grant = self.granted(rules, parts, read)?;
                Ok(AskAnswer::Connect(Box::new(grant)))
            }
        }
    }

    /// The key that a token asks for, from the configuration or from an endpoint: then with the URL of its set.
    async fn public_key(
        &self,
        rules: &Rules,
        parts: &Parts<'_>,
    ) -> Result<(PublicKey, Option<String>), Fault> {
        let invalid = |cause| Fault::Token(TokenFault::Invalid(cause));
        let Some(endpoint) = &rules.endpoint else {
            let key = rules.keys.public(parts.algorithm).cloned();
            let key = key.ok_or_else(|| invalid(NO_KEY));
            return key.map(|key| (key, None));
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
            Ok(key) => Ok((key, Some(url))),
            Err(KeyFault::Unknown) => Err(invalid(
                "jwks_public_endpoint has no key with the kid of the token for its algorithm",
            )),
            Err(KeyFault::Unavailable) => Err(Fault::Unavailable),
        }
    }

    async fn check(
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
        let (key, url) = self.public_key(rules.of(kind), parts).await?;
        let verified = self.pool.verify(key, token, parts.signature.clone()).await;
        match verified {
            Ok(true) => {
                if let Some(url) = url {
                    self.key_sets.verified(&url);
                }
                Ok(())
            }
            Ok(false) => Err(TokenFault::Invalid(WRONG_SIGNATURE).into()),
            Err(_) => Err(Fault::Unavailable),
        }
    }
}

/// Checks a signature whose key is configured.
fn check_now(rules: &TokenRules, kind: Kind, parts: &Parts<'_>) -> Result<(), TokenFault> {
    let cause = match check_signature(rules, kind, parts, unix_now()) {
        Signature::Good => return Ok(()),
        Signature::Bad(cause) => cause,
        Signature::Later => match rules.of(kind).keys.public(parts.algorithm) {
            Some(key) if key.verifies(parts.signed, &parts.signature) => return Ok(()),
            Some(_) => WRONG_SIGNATURE,
            None => NO_KEY,
        },
    };
    Err(TokenFault::Invalid(cause))
}

/// There is no key for a token's algorithm.
pub(super) const NO_KEY: &str = "no key is configured for the algorithm of the token";
/// A set of keys is no use without the name of one.
pub(super) const NO_KEY_ID: &str =
    "the header names no key (kid), and keys come from jwks_public_endpoint";
