//! Servers that gave no answers of late. A server that has lost its cluster still takes connections: whoever connects tries the others first.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// How long a server is avoided. It may be well again by then.
const AVOIDED_FOR: Duration = Duration::from_secs(60);

/// The servers that are avoided, by the ids that they give themselves. All clones are one.
#[derive(Clone, Debug, Default)]
pub struct Avoided(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    until: Mutex<HashMap<Box<str>, Instant>>,
    added: Notify,
}

/// It is no setting: where the servers are does not depend on it.
impl PartialEq for Avoided {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Avoided {}

impl Avoided {
    /// Avoids a server for a minute. False if it is avoided already, or has told no id.
    pub fn add(&self, id: &str) -> bool {
        if id.is_empty() {
            return false;
        }
        let now = Instant::now();
        let mut until = self.lock();
        until.retain(|_, until| *until > now);
        let is_new = until.insert(id.into(), now + AVOIDED_FOR).is_none();
        drop(until);
        if is_new {
            self.0.added.notify_one();
        }
        is_new
    }

    /// Whether a server is avoided.
    #[must_use]
    pub fn has(&self, id: &str) -> bool {
        let until = self.lock();
        until.get(id).is_some_and(|until| *until > Instant::now())
    }

    /// Waits until another server is avoided. For one task.
    pub async fn added(&self) {
        self.0.added.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Box<str>, Instant>> {
        self.0.until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_server_is_avoided_for_a_minute() {
        let avoided = Avoided::default();
        assert!(avoided.add("a") && !avoided.add("a") && !avoided.add(""));
        avoided.added().await;
        assert!(avoided.has("a") && !avoided.has("b"));
        tokio::time::sleep(AVOIDED_FOR).await;
        assert!(!avoided.has("a"));
        assert!(avoided.add("a"));
    }
}
