//! Keys that an endpoint publishes (JWKS).
//!
//! A set is fetched when it is needed first and then once an hour. A token with a key that a set does not have makes the
//! server fetch it again: that is how new keys come. However many tokens wait, there is one request for a set at a time, and
//! some seconds between two. While an endpoint is down the last set stays for a day.
//!
//! Where the URL depends on the token, strangers can make URLs up. A set is *proven* when a token's signature was good by one of its
//! keys. Sets that are not have places of their own, so whatever strangers present pushes out no proven one.

mod endpoint;
mod fetch;
mod set;

pub(crate) use endpoint::Endpoint;

use super::algorithm::Algorithm;
use super::keys::PublicKey;
use set::Set;
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

/// How long a set is believed. A key that its endpoint took away counts for so long at most.
const FRESH: Duration = Duration::from_hours(1);
/// A set that is used after this time is fetched again while it is fresh, so that nobody waits.
const REFRESH_AFTER: Duration = Duration::from_mins(50);
/// How long a set stays while its endpoint is down.
const KEPT: Duration = Duration::from_hours(24);
/// Time between two requests for one set.
const PAUSE: Duration = Duration::from_secs(3);
/// Sets in memory that have verified a token. There are several only where the URL depends on the token. The one that was not used
/// for the longest time makes room for another.
const PROVEN_MAX: usize = 64;
/// Sets that have not verified a token, or that could not be fetched. Each stays for [`PAUSE`] at least, and is not fetched again
/// meanwhile: strangers can make the server send so many requests in that time.
const UNPROVEN_MAX: usize = 16;
/// Tokens that wait for a request.
const WAITING_MAX: usize = 256;

/// Why there is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyFault {
    /// The set does not have it.
    Unknown,
    /// The set could not be fetched, or too many tokens wait for that. A client should try again.
    Unavailable,
}

/// Fetches a set; tests have another one.
type Fetch = dyn Fn(Box<str>) -> Pin<Box<dyn Future<Output = Result<Set, fetch::FetchError>> + Send>>
    + Send
    + Sync;

/// The sets that there are, by their URLs.
pub(super) struct KeySets {
    sets: Mutex<HashMap<Box<str>, Arc<Cached>>>,
    waiting: Semaphore,
    fetched: Arc<Fetches>,
    fetch: Arc<Fetch>,
}

/// Requests for sets, by how they ended.
#[derive(Debug, Default)]
pub(super) struct Fetches {
    pub(super) succeeded: AtomicU64,
    pub(super) failed: AtomicU64,
}

/// A set of keys in memory, or one that is on its way.
struct Cached {
    url: Box<str>,
    state: Mutex<State>,
}

struct State {
    /// The last set and when it came.
    set: Option<(Arc<Set>, Instant)>,
    /// When the last request ended, and whether it brought a set.
    last: Option<(Instant, bool)>,
    /// Open as long as a request is on its way.
    flight: Option<watch::Receiver<()>>,
    /// When it verified a token last, or when it was made.
    used_at: Instant,
    /// It has verified a token, or the configuration names it.
    is_proven: bool,
}

impl std::fmt::Debug for KeySets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeySets")
            .field("sets", &locked(&self.sets).len())
            .finish_non_exhaustive()
    }
}

impl Default for KeySets {
    fn default() -> Self {
        Self::with(Arc::new(|url| {
            Box::pin(async move { fetch::fetch(&url).await })
        }))
    }
}

/// What can be said of a key at once.
enum Glance {
    Found(PublicKey),
    Fault(KeyFault),
    /// After the request on its way.
    Wait(watch::Receiver<()>),
}

impl KeySets {
    fn with(fetch: Arc<Fetch>) -> Self {
        Self {
            sets: Mutex::default(),
            waiting: Semaphore::new(WAITING_MAX),
            fetched: Arc::default(),
            fetch,
        }
    }

    pub(super) fn fetches(&self) -> &Fetches {
        &self.fetched
    }

    /// The age of the oldest set that may be used.
    pub(super) fn age(&self) -> Option<Duration> {
        let sets = locked(&self.sets);
        let ages = sets.values().filter_map(|cached| {
            let state = locked(&cached.state);
            state.set.as_ref().map(|(_, came)| came.elapsed())
        });
        ages.filter(|age| *age < KEPT).max()
    }

    /// Begins to fetch a set, so that it is there when the first token comes.
    pub(super) fn warm_up(&self, url: &str) {
        if let Some(cached) = self.cached(url, Instant::now()) {
            self.prove(&cached);
            let mut state = locked(&cached.state);
            if state.set.is_none() {
                drop(self.fly(&cached, &mut state));
            }
        }
    }

    /// A token's signature was good by a key of the set at this URL.
    pub(super) fn verified(&self, url: &str) {
        let cached = locked(&self.sets).get(url).cloned();
        if let Some(cached) = cached {
            self.prove(&cached);
        }
    }

    fn prove(&self, cached: &Arc<Cached>) {
        let mut state = locked(&cached.state);
        state.used_at = Instant::now();
        let was_proven = std::mem::replace(&mut state.is_proven, true);
        drop(state);
        if was_proven {
            return;
        }
        let mut sets = locked(&self.sets);
        let proven = sets.values().filter(|one| locked(&one.state).is_proven);
        if proven.clone().count() <= PROVEN_MAX {
            return;
        }
        let others = proven.filter(|one| !Arc::ptr_eq(one, cached));
        let oldest = others.min_by_key(|one| locked(&one.state).used_at);
        if let Some(url) = oldest.map(|one| one.url.clone()) {
            sets.remove(&url);
        }
    }

    /// The key with this name, for this algorithm, in the set at this URL.
    pub(super) async fn key(
        &self,
        url: &str,
        name: &str,
        algorithm: Algorithm,
    ) -> Result<PublicKey, KeyFault> {
        let now = Instant::now();
        let cached = self.cached(url, now).ok_or(KeyFault::Unavailable)?;
        let mut flight = match self.glance(&cached, name, algorithm, now) {
            Glance::Found(key) => return Ok(key),
            Glance::Fault(fault) => return Err(fault),
            Glance::Wait(flight) => flight,
        };
        let _place = self
            .waiting
            .try_acquire()
            .map_err(|_| KeyFault::Unavailable)?;
        // It ends with an error: the sender is dropped, and never sends.
        while flight.changed().await.is_ok() {}
        let state = locked(&cached.state);
        let found = state.set.as_ref().filter(|(_, came)| came.elapsed() < KEPT);
        if let Some(key) = found.and_then(|(set, _)| set.find(name, algorithm)) {
            return Ok(key.clone());
        }
        match state.last {
            Some((_, true)) => Err(KeyFault::Unknown),
            _ => Err(KeyFault::Unavailable),
        }
    }

    fn glance(
        &self,
        cached: &Arc<Cached>,
        name: &str,
        algorithm: Algorithm,
        now: Instant,
    ) -> Glance {
        let mut state = locked(&cached.state);
        let has_just_failed =
            matches!(state.last, Some((at, false)) if now.duration_since(at) < PAUSE);
        let is_down = matches!(state.last, Some((_, false)));
        let found = state.set.as_ref().and_then(|(set, came)| {
            let key = set.find(name, algorithm)?;
            Some((key.clone(), now.duration_since(*came)))
        });
        match found {
            Some((key, age)) if age < FRESH || is_down && age < KEPT => {
                if age >= REFRESH_AFTER && !has_just_failed {
                    drop(self.fly(cached, &mut state));
                }
                Glance::Found(key)
            }
            // Nobody waits for an endpoint that is known to be down.
            _ if has_just_failed && state.flight.is_none() => Glance::Fault(KeyFault::Unavailable),
            _ => Glance::Wait(self.fly(cached, &mut state)),
        }
    }

    /// Begins a request, or joins the one on its way. It goes on if nobody waits any more.
    fn fly(&self, cached: &Arc<Cached>, state: &mut State) -> watch::Receiver<()> {
        if let Some(flight) = &state.flight {
            return flight.clone();
        }
        let (landing, flight) = watch::channel(());
        state.flight = Some(flight.clone());
        let begin = state.last.map(|(at, _)| at + PAUSE);
        let cached = Arc::clone(cached);
        let (fetch, counts) = (Arc::clone(&self.fetch), Arc::clone(&self.fetched));
        tokio::spawn(async move {
            if let Some(begin) = begin {
                tokio::time::sleep_until(begin).await;
            }
            let fetched = fetch(cached.url.clone()).await;
            cached.land(fetched, &counts);
            drop(landing);
        });
        flight
    }

    /// The set at a URL, perhaps without keys yet. None if there are too many that nobody has proven.
    fn cached(&self, url: &str, now: Instant) -> Option<Arc<Cached>> {
        let mut sets = locked(&self.sets);
        if let Some(cached) = sets.get(url) {
            return Some(Arc::clone(cached));
        }
        let unproven = sets.values().filter(|one| !locked(&one.state).is_proven);
        if unproven.clone().count() >= UNPROVEN_MAX {
            // First those that have no set: perhaps there is nothing at their URLs.
            let least = unproven.filter(|one| one.may_go(now)).min_by_key(|one| {
                let state = locked(&one.state);
                (state.set.is_some(), state.used_at)
            })?;
            let url = least.url.clone();
            sets.remove(&url);
        }
        let cached = Arc::new(Cached {
            url: url.into(),
            state: Mutex::new(State {
                set: None,
                last: None,
                flight: None,
                used_at: now,
                is_proven: false,
            }),
        });
        sets.insert(url.into(), Arc::clone(&cached));
        Some(cached)
    }
}

impl Cached {
    /// The URL for the log: its query, and a password, may be secret.
    fn shown(&self) -> &str {
        let end = self.url.find(['?', '#']).unwrap_or(self.url.len());
        match &self.url[..end] {
            url if url.contains('@') => "an endpoint with a password",
            url => url,
        }
    }

    /// Whether it may make room for another one: its request has ended, and not just now.
    fn may_go(&self, now: Instant) -> bool {
        let state = locked(&self.state);
        let ended = state.last.map(|(at, _)| now.duration_since(at));
        state.flight.is_none() && ended.is_some_and(|time| time >= PAUSE)
    }

    fn land(&self, fetched: Result<Set, fetch::FetchError>, counts: &Fetches) {
        let now = Instant::now();
        let mut state = locked(&self.state);
        let was_up = !matches!(state.last, Some((_, false)));
        state.flight = None;
        state.last = Some((now, fetched.is_ok()));
        match fetched {
            Ok(set) => {
                counts.succeeded.fetch_add(1, Ordering::Relaxed);
                let before = state.set.take();
                let is_new = before
                    .as_ref()
                    .is_none_or(|(old, _)| old.names() != set.names());
                if is_new || !was_up {
                    tracing::info!("keys for tokens from {}: {:?}", self.shown(), set.names());
                    if !set.unreadable().is_empty() {
                        tracing::warn!(
                            "keys from {} are left out because their numbers are no base64url without padding (RFC 7515): {:?}; tokens that they sign are refused",
                            self.shown(),
                            set.unreadable()
                        );
                    }
                }
                state.set = Some((Arc::new(set), now));
            }
            Err(error) => {
                counts.failed.fetch_add(1, Ordering::Relaxed);
                // Once: requests go on, and the metric counts them.
                if was_up {
                    let old = if state.set.is_some() {
                        "the last ones stay for a day"
                    } else {
                        "tokens cannot be verified until it answers"
                    };
                    tracing::warn!(
                        "cannot fetch keys for tokens from {}: {error}; {old}",
                        self.shown()
                    );
                }
            }
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each change under these locks is complete before anything can panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
