//! What a table of the configuration demands of tokens.

use super::claims::{Claims, custom};
use super::grants::Bearer;
use super::jwks::Endpoint;
use super::keys::Keys;
use myriad_shard::{TokenFault, TokenIdentity};
use regex::Regex;
use std::borrow::Cow;
use std::time::Duration;

/// Bytes of the id of a user or a token. The API takes no longer ones: whom a token names, it can also disconnect and revoke.
const ID_BYTES_MAX: usize = 255;

/// `[client.token]` or `[client.subscription_token]`, checked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rules {
    /// Keys that are in the configuration.
    pub(crate) keys: Keys,
    /// Where other keys are, instead of these.
    pub(crate) endpoint: Option<Endpoint>,
    /// What the claim `aud` must have.
    pub(crate) audience: Option<Demand>,
    /// What the claim `iss` must be.
    pub(crate) issuer: Option<Demand>,
    /// The claim that names the user, instead of `sub`.
    pub(crate) user_id_claim: Option<Box<str>>,
}

/// What a claim must be.
#[derive(Clone, Debug)]
pub(crate) enum Demand {
    /// This text.
    Text(Box<str>),
    /// A text that the pattern matches from its begin to its end.
    Pattern(Regex),
}

impl Demand {
    pub(super) fn is_met(&self, text: &str) -> bool {
        match self {
            Self::Text(wanted) => **wanted == *text,
            Self::Pattern(pattern) => pattern.is_match(text),
        }
    }
}

/// What is configured about tokens, as one value that is replaced as a whole.
#[derive(Clone, Debug, Default)]
pub(crate) struct TokenRules {
    /// For tokens of connect and refresh commands.
    pub(crate) connection: Rules,
    /// For tokens of subscribe and sub_refresh commands; none for the same.
    pub(crate) subscription: Option<Rules>,
    /// Signatures are not checked.
    pub(crate) skips_signatures: bool,
}

impl TokenRules {
    /// Whether there is a key by which a client with a token may connect.
    pub(crate) fn lets_in(&self) -> bool {
        self.skips_signatures || !self.connection.has_no_keys()
    }

    pub(super) fn of(&self, kind: super::Kind) -> &Rules {
        match kind {
            super::Kind::Connection => &self.connection,
            super::Kind::Subscription => self.subscription.as_ref().unwrap_or(&self.connection),
        }
    }
}

impl Rules {
    pub(crate) fn has_no_keys(&self) -> bool {
        self.keys.is_empty() && self.endpoint.is_none()
    }

    /// Checks what every token must have, and reads whose it is. `text` is the claims'.
    pub(super) fn check(
        &self,
        claims: &Claims<'_>,
        text: &str,
        now: Duration,
    ) -> Result<Bearer, TokenFault> {
        let expires = claims.expires().map_err(TokenFault::Invalid)?;
        let begins = claims.begins().map_err(TokenFault::Invalid)?;
        let issued = claims.issued().map_err(TokenFault::Invalid)?;
        let id = claims.id().map_err(TokenFault::Invalid)?;
        self.check_source(claims)?;
        let user = self.user(claims, text)?;
        if user.len() > ID_BYTES_MAX {
            return Err(TokenFault::Invalid("the user's id has more than 255 bytes"));
        }
        if id.as_ref().is_some_and(|id| id.len() > ID_BYTES_MAX) {
            return Err(TokenFault::Invalid("the claim jti has more than 255 bytes"));
        }
        if expires.is_some_and(|time| time <= now) || begins.is_some_and(|time| time > now) {
            return Err(TokenFault::Expired);
        }
        Ok(Bearer {
            user: user.into(),
            identity: TokenIdentity {
                id: id.map(|id| id.into()),
                issued_at: issued.map(|time| time.as_secs()),
            },
        })
    }

    /// Who made the token, and for whom.
    fn check_source(&self, claims: &Claims<'_>) -> Result<(), TokenFault> {
        if let Some(demand) = &self.issuer {
            let issuer = claims.issuer().map_err(TokenFault::Invalid)?;
            if !issuer.is_some_and(|issuer| demand.is_met(&issuer)) {
                return Err(TokenFault::Invalid(
                    "the claim iss is not the configured issuer",
                ));
            }
        }
        if let Some(demand) = &self.audience {
            let audiences = claims.audiences().map_err(TokenFault::Invalid)?;
            if !audiences.iter().any(|audience| demand.is_met(audience)) {
                return Err(TokenFault::Invalid(
                    "the claim aud does not have the configured audience",
                ));
            }
        }
        Ok(())
    }

    fn user<'a>(&self, claims: &Claims<'a>, text: &str) -> Result<Cow<'a, str>, TokenFault> {
        match &self.user_id_claim {
            None => claims.subject().map_err(TokenFault::Invalid),
            Some(name) => {
                let user = custom(text, name).map_err(TokenFault::Invalid)?;
                Ok(Cow::Owned(user.unwrap_or_default()))
            }
        }
    }
}
