//! Who clients are: tokens (JWT), their keys, and revocation.
//!
//! [`Authority`] verifies tokens. Shards ask it on their own threads ([`Tokens`]): a signature by HMAC takes a few microseconds.
//! Signatures by public keys take longer than a shard has. For them it answers [`Verdict::Later`], the shard asks the control
//! plane, and [`Authority::answer`] answers there.
//!
//! | file | what it does |
//! | --- | --- |
//! | `parts.rs` | the three parts of a token, and its header |
//! | `algorithm.rs`, `keys.rs` | what verifies a signature |
//! | `rules.rs` | what the configuration demands of a token |
//! | `claims.rs`, `grants.rs` | what a token says, and what follows |
//! | `answers.rs`, `pool.rs` | signatures by public keys: what the control plane answers, and the threads that verify |
//! | `jwks/` | keys that an endpoint publishes |
//! | `draft.rs` | tokens for `myriad token` |
//! | `revoked.rs` | tokens that count no more |
//! | `counts.rs` | metrics |

mod algorithm;
mod answers;
mod claims;
mod counts;
mod draft;
mod grants;
mod jwks;
mod keys;
mod parts;
pub(crate) mod pem;
mod pool;
mod revoked;
mod rules;

pub(crate) use answers::BearerFault;
use counts::Kind;
pub(crate) use counts::ShownTokens;
pub use draft::{TokenDraft, TokenDraftError};
pub(crate) use jwks::Endpoint;
pub(crate) use keys::{Keys, Secret};
pub(crate) use revoked::{RevocationError, Revocations, RevokedEntries};
pub(crate) use rules::{Demand, Rules, TokenRules};

use crate::shards::monotonic_now;
use algorithm::Algorithm;
use arc_swap::ArcSwap;
use counts::Counts;
use grants::Bearer;
use jwks::KeySets;
use myriad_shard::{
    ConnectGrant, SubscribeGrant, Thinned, TokenFault, TokenIdentity, Tokens, Verdict,
};
use parts::Parts;
use pool::Pool;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// Verifies tokens.
#[derive(Debug)]
pub(crate) struct Authority {
    /// Shards read it and never wait: a reload replaces it.
    rules: ArcSwap<TokenRules>,
    revocations: Revocations,
    counts: Counts,
    pool: Pool,
    key_sets: KeySets,
    /// Causes of refused tokens that the log has told of late.
    refused: Mutex<Thinned<&'static str>>,
}

/// Whether a signature can be believed.
enum Signature {
    Good,
    Bad(&'static str),
    /// A public key has to say it.
    Later,
}

impl Authority {
    /// # Errors
    /// The threads for signatures could not be started.
    pub(crate) fn start(rules: TokenRules) -> io::Result<Self> {
        Ok(Self {
            rules: ArcSwap::from_pointee(rules),
            revocations: Revocations::default(),
            counts: Counts::default(),
            pool: Pool::start(pool::threads())?,
            key_sets: KeySets::default(),
            refused: Mutex::default(),
        })
    }

    /// Takes other keys and demands from now on. Connections that exist stay until they expire.
    pub(crate) fn replace(&self, rules: TokenRules) {
        self.rules.store(Arc::new(rules));
        self.warm_up();
    }

    /// Begins to fetch the sets of keys that are known to be needed. Only on the control plane's runtime.
    pub(crate) fn warm_up(&self) {
        let rules = self.rules.load();
        let tables = [Some(&rules.connection), rules.subscription.as_ref()];
        let endpoints = tables
            .into_iter()
            .flatten()
            .filter_map(|rules| rules.endpoint.as_ref());
        for url in endpoints.filter_map(Endpoint::fixed) {
            self.key_sets.warm_up(url);
        }
    }

    /// Says in the log why a token of a request to the control plane is refused, once a second for each cause. Shards note their own.
    pub(crate) fn note_refused(&self, fault: TokenFault) {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let may = refused.note(fault.cause(), monotonic_now());
        drop(refused);
        if may {
            tracing::info!(target: "myriad::refusals", "a request for a stream refused: 401 token: {}", fault.cause());
        }
    }

    /// What is revoked, to be read and changed.
    pub(crate) fn revocations(&self) -> &Revocations {
        &self.revocations
    }

    /// Verifies a token as far as that is cheap, and gives its claims to `read`.
    fn verify<T>(
        &self,
        kind: Kind,
        token: &str,
        now: Duration,
        read: impl FnOnce(&Rules, &str) -> Result<(Bearer, T), TokenFault>,
    ) -> Verdict<T> {
        let rules = self.rules.load();
        let parts = match Parts::read(token) {
            Ok(parts) => parts,
            Err(cause) => return self.decided(kind, Err(TokenFault::Invalid(cause))),
        };
        match check_signature(&rules, kind, &parts, now) {
            Signature::Later => Verdict::Later,
            Signature::Bad(cause) => self.decided(kind, Err(TokenFault::Invalid(cause))),
            Signature::Good => {
                let granted = self.granted(rules.of(kind), &parts, read);
                self.decided(kind, granted)
            }
        }
    }

    /// What a token grants whose signature is good.
    fn granted<T>(
        &self,
        rules: &Rules,
        parts: &Parts<'_>,
        read: impl FnOnce(&Rules, &str) -> Result<(Bearer, T), TokenFault>,
    ) -> Result<T, TokenFault> {
        let claims = parts.claims().map_err(TokenFault::Invalid)?;
        let (bearer, grant) = read(rules, &claims)?;
        if self.revocations.is_revoked(&bearer.identity, &bearer.user) {
            return Err(TokenFault::Revoked);
        }
        Ok(grant)
    }

    fn decided<T>(&self, kind: Kind, result: Result<T, TokenFault>) -> Verdict<T> {
        self.counts.count(kind, &result);
        Verdict::Now(result)
    }
}

fn check_signature(rules: &TokenRules, kind: Kind, parts: &Parts<'_>, now: Duration) -> Signature {
    if rules.skips_signatures {
        return Signature::Good;
    }
    let rules = rules.of(kind);
    let keys = &rules.keys;
    match parts.algorithm {
        Algorithm::Hmac(_) if rules.endpoint.is_some() => {
            Signature::Bad("the token is signed with HMAC, and keys come from jwks_public_endpoint")
        }
        _ if rules.endpoint.is_some() => match &parts.key_id {
            Some(_) => Signature::Later,
            None => Signature::Bad(answers::NO_KEY_ID),
        },
        Algorithm::Hmac(hash) => match keys.verify_hmac(parts, hash, now.as_secs()) {
            Ok(()) => Signature::Good,
            Err(cause) => Signature::Bad(cause),
        },
        algorithm => match keys.public(algorithm) {
            Some(_) => Signature::Later,
            None => Signature::Bad(answers::NO_KEY),
        },
    }
}

impl Tokens for Authority {
    fn connection(&self, token: &str) -> Verdict<ConnectGrant> {
        let now = unix_now();
        self.verify(Kind::Connection, token, now, |rules, claims| {
            grants::connection(rules, claims, now)
        })
    }

    fn subscription(
        &self,
        token: &str,
        channel: &str,
        user: &str,
        client: &str,
    ) -> Verdict<SubscribeGrant> {
        let now = unix_now();
        self.verify(Kind::Subscription, token, now, |rules, claims| {
            grants::subscription(rules, claims, channel, user, client, now)
        })
    }

    fn is_revoked(&self, token: &TokenIdentity, user: &str) -> bool {
        self.revocations.is_revoked(token, user)
    }
}

/// The time since 1970, as tokens count it.
fn unix_now() -> Duration {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests;
