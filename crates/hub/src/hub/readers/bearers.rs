//! Who has shown a token for a live read, so that orders find it.

use crate::hub::Hub;
use crate::{NEVER, TokenIdentity};
use myriad_wheel::Tick;
use std::sync::Arc;

/// Who has shown a token to read a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bearer {
    /// The user; none if the token names nobody.
    pub user: Option<Arc<str>>,
    /// The token, so that it can be revoked.
    pub token: Option<Arc<TokenIdentity>>,
    /// When the token's time is over; [`NEVER`] for never.
    pub expires_at: Tick,
}

impl Hub {
    /// Notes whom a live read is for, so that orders find it.
    pub(super) fn note_bearer(&mut self, index: u32, bearer: Option<Bearer>) {
        let Some(bearer) = bearer else {
            return;
        };
        let user = bearer.user.clone();
        self.readers
            .bearers_of
            .extend(user.map(|user| (user, index)));
        self.readers.bearers.insert(index, bearer);
    }

    /// The first live read from this connection on for which a token was shown: of this user, or of anybody.
    #[must_use]
    pub fn bearer_from(&self, user: Option<&Arc<str>>, from: u32) -> Option<(u32, &Bearer)> {
        let Some(user) = user else {
            let (index, bearer) = self.readers.bearers.range(from..).next()?;
            return Some((*index, bearer));
        };
        let of_user = (Arc::clone(user), from)..=(Arc::clone(user), u32::MAX);
        let (_, index) = self.readers.bearers_of.range(of_user).next()?;
        Some((*index, &self.readers.bearers[index]))
    }

    /// When the token of a stream of events is over.
    pub(super) fn bearer_expiry(&self, index: u32) -> Tick {
        let bearer = self.readers.bearers.get(&index);
        bearer.map_or(NEVER, |bearer| bearer.expires_at)
    }

    /// Whether a stream of events ends with its token.
    #[must_use]
    pub fn events_expire(&self, index: u32) -> bool {
        self.bearer_expiry(index) != NEVER
    }

    /// Nobody reads on a connection any more.
    pub(super) fn forget_bearer(&mut self, index: u32) {
        if !self.readers.bearers.is_empty()
            && let Some(bearer) = self.readers.bearers.remove(&index)
            && let Some(user) = bearer.user
        {
            self.readers.bearers_of.remove(&(user, index));
        }
    }
}
