//! Tokens that cost more than a shard has time for: the control plane's part.

use super::grants::Bearer;
use super::keys::WRONG_SIGNATURE;
use super::parts::Parts;
use super::rules::Rules;
use super::{Algorithm, Authority, Kind, TokenRules, grants, unix_now};
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

    async fn check_public(
        &self,
        rules: &TokenRules,
        kind: Kind,
        token: &str,
        parts: &Parts<'_>,
    ) -> Result<(), Fault> {
        let keys = &rules.of(kind).keys;
        if rules.skips_signatures {
            return Ok(());
        }
        if let Algorithm::Hmac(hash) = parts.algorithm {
            // A reload took the public key away since the shard asked.
            let verified = keys.verify_hmac(parts, hash, unix_now().as_secs());
            return verified.map_err(|cause| TokenFault::Invalid(cause).into());
        }
        let Some(key) = keys.public(parts.algorithm) else {
            return Err(TokenFault::Invalid(NO_KEY).into());
        };
        let verified = self
            .pool
            .verify(key.clone(), token, parts.signature.clone())
            .await;
        match verified {
            Ok(true) => Ok(()),
            Ok(false) => Err(TokenFault::Invalid(WRONG_SIGNATURE).into()),
            Err(_) => Err(Fault::Unavailable),
        }
    }
}

/// There is no key for a token's algorithm.
pub(super) const NO_KEY: &str = "no key is configured for the algorithm of the token";

fn answered<T>(granted: Result<T, Fault>, answer: impl FnOnce(T) -> AskAnswer) -> AskAnswer {
    match granted {
        Ok(grant) => answer(grant),
        Err(Fault::Token(fault)) => AskAnswer::Token(fault),
        Err(Fault::Unavailable) => AskAnswer::Unavailable,
    }
}
