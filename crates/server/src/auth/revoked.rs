//! Tokens that count no more, although their signatures and times are right.
//!
//! A token is revoked by its id (the claim `jti`), or with all tokens of its user that were issued before a time. The store
//! is in memory: a restart forgets it, except that the other nodes of a cluster tell it again. Shards read it at every verification and never wait for a writer. A writer replaces one
//! of many small tables.

use super::unix_now;
use arc_swap::ArcSwap;
use myriad_shard::{RevokedTokens, TokenIdentity, Users};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use thiserror::Error;

/// Entries that there may be, of tokens and of users together.
pub(crate) const REVOCATIONS_MAX: usize = 100_000;
/// Bytes of a token's id or a user's.
pub(crate) const NAME_BYTES_MAX: usize = 255;
/// Tables of each kind. A write copies one, which has some hundreds of entries when all are full.
const TABLES: usize = 256;

/// Why something was not revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum RevocationError {
    /// There are [`REVOCATIONS_MAX`] entries already, and none of them is over.
    #[error(
        "{REVOCATIONS_MAX} revocations are in force already; revoke with a time at which they end, or change the key"
    )]
    Full,
    /// The name is empty or too long.
    #[error("choose 1 to {NAME_BYTES_MAX} bytes")]
    Name,
    /// It would be over already.
    #[error("the time at which the revocation ends has passed")]
    Over,
}

/// Which tokens of a user are revoked, or whether one is, and until when that has to be remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    /// Seconds since 1970. Tokens of a user that were issued earlier are revoked; without meaning for a token's id.
    issued_before: u64,
    /// Seconds since 1970; `u64::MAX` for as long as the process runs.
    until: u64,
}

/// Everything that is revoked, as nodes of a cluster tell each other. Times in seconds since 1970; an end of `u64::MAX` is none.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct RevokedEntries {
    /// Ids of tokens, and until when they are revoked.
    tokens: Vec<(Box<str>, u64)>,
    /// Users, before when their tokens were issued, and until when they are revoked.
    users: Vec<(Box<str>, u64, u64)>,
}

type Table = ArcSwap<HashMap<Box<str>, Entry>>;

/// What is revoked.
pub(crate) struct Revocations {
    tokens: Tables,
    users: Tables,
    /// Entries of both; shards read no table while it is 0.
    count: AtomicUsize,
    /// Who writes. Readers do not need it.
    writer: Mutex<()>,
}

impl std::fmt::Debug for Revocations {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Revocations")
            .field("count", &self.count())
            .finish_non_exhaustive()
    }
}

impl Default for Revocations {
    fn default() -> Self {
        Self {
            tokens: Tables::new(),
            users: Tables::new(),
            count: AtomicUsize::new(0),
            writer: Mutex::new(()),
        }
    }
}

impl Revocations {
    /// Revokes the token with this id (`jti`). `until` is the time at which the token expires, in seconds since 1970: from
    /// then on nothing has to be remembered. Without it the revocation stays for as long as the process runs.
    ///
    /// Connections that exist are the caller's: [`Revocations::is_revoked`] finds them.
    ///
    /// # Errors
    /// There is no room, or the arguments make no sense.
    pub(crate) fn revoke_token(&self, id: &str, until: Option<u64>) -> Result<(), RevocationError> {
        self.insert(&self.tokens, id, 0, until)
    }

    /// Revokes all tokens of a user that were issued before a time (`iat`; seconds since 1970). A token that does not say when
    /// it was issued counts as issued before. A later time for the same user replaces an earlier one, never the other way
    /// round. `until` is a time at which all of these tokens have expired.
    ///
    /// # Errors
    /// There is no room, or the arguments make no sense.
    pub(crate) fn revoke_user(
        &self,
        user: &str,
        issued_before: u64,
        until: Option<u64>,
    ) -> Result<(), RevocationError> {
        self.insert(&self.users, user, issued_before, until)
    }

    /// Whether a token counts no more. `user` is the token's; empty for an anonymous client.
    pub(crate) fn is_revoked(&self, token: &TokenIdentity, user: &str) -> bool {
        self.is_revoked_at(token, user, unix_now().as_secs())
    }

    /// Entries there are, some of which may be over.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    pub(super) fn is_revoked_at(&self, token: &TokenIdentity, user: &str, now: u64) -> bool {
        if self.count.load(Ordering::Acquire) == 0 {
            return false;
        }
        let by_id = token.id.as_deref().and_then(|id| self.tokens.find(id));
        let by_user = || {
            let entry = self.users.find(user)?;
            token
                .issued_at
                .is_none_or(|issued| issued < entry.issued_before)
                .then_some(entry)
        };
        by_id
            .filter(|entry| entry.until > now)
            .or_else(|| by_user().filter(|entry| entry.until > now))
            .is_some()
    }

    /// Everything that is revoked.
    pub(crate) fn entries(&self) -> RevokedEntries {
        let mut entries = RevokedEntries::default();
        self.tokens
            .visit(|id, entry| entries.tokens.push((id.into(), entry.until)));
        self.users.visit(|user, entry| {
            let entry = (user.into(), entry.issued_before, entry.until);
            entries.users.push(entry);
        });
        entries
    }

    /// Takes what another node has revoked. Returns what was not revoked here: connections with such tokens may exist.
    pub(crate) fn learn(&self, others: RevokedEntries) -> Vec<(Users, RevokedTokens)> {
        let mut learnt = Vec::new();
        for (id, until) in others.tokens {
            let is_known = self.tokens.find(&id).is_some();
            if self.insert(&self.tokens, &id, 0, Some(until)).is_ok() && !is_known {
                learnt.push((Users::All, RevokedTokens::Id(id)));
            }
        }
        for (user, before, until) in others.users {
            let known = self.users.find(&user);
            let is_known = known.is_some_and(|entry| entry.issued_before >= before);
            let inserted = self.insert(&self.users, &user, before, Some(until));
            if inserted.is_ok() && !is_known {
                let users = Users::One((*user).into());
                learnt.push((users, RevokedTokens::IssuedBefore(before)));
            }
        }
        learnt
    }

    fn insert(
        &self,
        tables: &Tables,
        name: &str,
        issued_before: u64,
        until: Option<u64>,
    ) -> Result<(), RevocationError> {
        let now = unix_now().as_secs();
        let until = until.unwrap_or(u64::MAX);
        if until <= now {
            return Err(RevocationError::Over);
        }
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Err(RevocationError::Name);
        }
        let _writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let table = tables.table_of(name);
        let mut entries = HashMap::clone(&table.load());
        if !entries.contains_key(name) {
            if self.count() >= REVOCATIONS_MAX {
                self.sweep(now);
                entries = HashMap::clone(&table.load());
            }
            if self.count() >= REVOCATIONS_MAX {
                return Err(RevocationError::Full);
            }
            self.count.fetch_add(1, Ordering::Release);
        }
        let entry = entries.entry(name.into()).or_insert(Entry {
            issued_before,
            until,
        });
        entry.issued_before = entry.issued_before.max(issued_before);
        entry.until = entry.until.max(until);
        table.store(Arc::new(entries));
        Ok(())
    }

    /// Drops what is over.
    fn sweep(&self, now: u64) {
        for table in self.tokens.tables.iter().chain(&self.users.tables) {
            let mut entries = HashMap::clone(&table.load());
            let before = entries.len();
            entries.retain(|_, entry| entry.until > now);
            let dropped = before - entries.len();
            if dropped > 0 {
                table.store(Arc::new(entries));
                self.count.fetch_sub(dropped, Ordering::Release);
            }
        }
    }
}

/// Entries by name, in many tables.
struct Tables {
    tables: Box<[Table]>,
    hasher: RandomState,
}

impl Tables {
    fn new() -> Self {
        Self {
            tables: (0..TABLES).map(|_| Table::default()).collect(),
            hasher: RandomState::new(),
        }
    }

    fn table_of(&self, name: &str) -> &Table {
        let hash = self.hasher.hash_one(name);
        // The highest bits: the maps use the others.
        &self.tables[(hash >> 56) as usize]
    }

    fn visit(&self, mut each: impl FnMut(&str, &Entry)) {
        for table in &self.tables {
            for (name, entry) in table.load().iter() {
                each(name, entry);
            }
        }
    }

    fn find(&self, name: &str) -> Option<Entry> {
        self.table_of(name).load().get(name).copied()
    }
}

const _: () = assert!(TABLES == 1 << 8);

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn until_after(time: Duration) -> u64 {
        unix_now().saturating_add(time).as_secs()
    }

    fn token(id: Option<&str>, issued_at: Option<u64>) -> TokenIdentity {
        TokenIdentity {
            id: id.map(Into::into),
            issued_at,
        }
    }

    #[test]
    fn a_token_is_revoked_by_its_id_until_it_expires() {
        let revocations = Revocations::default();
        let (now, until) = (unix_now().as_secs(), until_after(Duration::from_hours(1)));
        revocations.revoke_token("a", Some(until)).unwrap();
        assert!(revocations.is_revoked(&token(Some("a"), None), "42"));
        assert!(!revocations.is_revoked(&token(Some("b"), None), "42"));
        assert!(!revocations.is_revoked(&token(None, None), "a"));
        assert!(revocations.is_revoked_at(&token(Some("a"), None), "", until - 1));
        assert!(!revocations.is_revoked_at(&token(Some("a"), None), "", until));
        assert_eq!(
            revocations.revoke_token("c", Some(now)),
            Err(RevocationError::Over)
        );
        assert_eq!(
            revocations.revoke_token("", None),
            Err(RevocationError::Name)
        );
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        assert_eq!(
            revocations.revoke_user(&long, 1, None),
            Err(RevocationError::Name)
        );
    }

    #[test]
    fn tokens_of_a_user_from_before_a_time_are_revoked_and_newer_ones_are_not() {
        let revocations = Revocations::default();
        revocations.revoke_user("42", 1_000, None).unwrap();
        for (issued_at, user, revoked) in [
            (Some(999), "42", true),
            (Some(1_000), "42", false),
            (None, "42", true),
            (Some(1), "43", false),
            (None, "", false),
        ] {
            let found = revocations.is_revoked(&token(Some("x"), issued_at), user);
            assert_eq!(found, revoked, "{issued_at:?} {user}");
        }
        // An earlier time does not bring tokens back.
        revocations.revoke_user("42", 500, None).unwrap();
        assert!(revocations.is_revoked(&token(None, Some(999)), "42"));
        assert_eq!(revocations.count(), 1);
    }

    #[test]
    fn another_node_learns_what_is_revoked() {
        let (ours, theirs) = (Revocations::default(), Revocations::default());
        let until = until_after(Duration::from_hours(1));
        theirs.revoke_token("a", Some(until)).unwrap();
        theirs.revoke_token("b", None).unwrap();
        theirs.revoke_user("42", 1_000, None).unwrap();
        ours.revoke_token("a", None).unwrap();
        ours.revoke_user("42", 500, None).unwrap();
        let told = serde_json::to_vec(&theirs.entries()).unwrap();
        let mut learnt = ours.learn(serde_json::from_slice(&told).unwrap());
        assert_eq!(
            learnt.pop(),
            Some((Users::One("42".into()), RevokedTokens::IssuedBefore(1_000)))
        );
        assert_eq!(learnt, [(Users::All, RevokedTokens::Id("b".into()))]);
        assert!(ours.is_revoked(&token(Some("b"), None), ""));
        assert!(ours.is_revoked(&token(None, Some(999)), "42"));
        // It was revoked for ever here.
        assert!(ours.is_revoked_at(&token(Some("a"), None), "", until));
        assert!(ours.learn(theirs.entries()).is_empty());
    }

    #[test]
    fn a_full_store_says_so_and_forgets_what_is_over() {
        let revocations = Revocations::default();
        let soon = until_after(Duration::from_hours(1));
        for nth in 0..REVOCATIONS_MAX {
            let id = nth.to_string();
            revocations.revoke_token(&id, Some(soon)).unwrap();
        }
        assert_eq!(
            revocations.revoke_user("u", 1, None),
            Err(RevocationError::Full)
        );
        // What is there already can be changed.
        revocations.revoke_token("7", None).unwrap();
        revocations.sweep(soon);
        assert_eq!(revocations.count(), 1);
        assert!(revocations.is_revoked(&token(Some("7"), None), ""));
        revocations.revoke_user("u", 1, None).unwrap();
    }
}
