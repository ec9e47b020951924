//! Tokens: verified here where that is cheap, by the control plane where it is not. Changes nothing.

use super::{Failure, INVALID_TOKEN};
use crate::access::{ConnectGrant, SubscribeGrant, TokenFault, Verdict};
use crate::asks::AskAnswer;
use crate::shard::Shard;
use myriad_hub::{CloseReason, Payload};
use myriad_reactor::Reactor;
use myriad_wheel::Key;
use myriad_wire::centrifuge::{Encoding as Format, ErrorCode};
use std::time::Duration;

/// A token that this shard leaves to the control plane.
pub(super) struct Later;

/// What is verified of a token, or [`Later`].
pub(super) type Verified<T> = Result<T, Later>;

/// What a client is told whose token for a connection is at fault.
pub(super) fn connection_failure(fault: TokenFault) -> Failure {
    match fault {
        TokenFault::Expired => Failure::Caused(ErrorCode::TokenExpired, fault.cause()),
        fault => Failure::Close(CloseReason::InvalidToken, fault.cause()),
    }
}

/// What a client is told whose token for a subscription is at fault. It keeps its connection if the token itself is bad, and loses
/// it with a token that was made for somebody else.
pub(super) fn subscription_failure(fault: TokenFault) -> Failure {
    match fault {
        TokenFault::Expired => Failure::Caused(ErrorCode::TokenExpired, fault.cause()),
        TokenFault::Invalid(_) | TokenFault::Revoked => {
            Failure::Caused(ErrorCode::PermissionDenied, fault.cause())
        }
        TokenFault::OtherUser | TokenFault::OtherChannel | TokenFault::OtherClient => {
            Failure::Close(CloseReason::InvalidToken, fault.cause())
        }
    }
}

/// The longest time that a client is told until it has to refresh.
const TTL_MAX: Duration = Duration::from_hours(365 * 24);

/// Whole seconds until something expires, rounded up: at least 1.
pub(super) fn ttl_of(left: Duration) -> u32 {
    let left = left.min(TTL_MAX);
    let seconds = left.as_secs() + u64::from(left.subsec_nanos() > 0);
    u32::try_from(seconds.max(1)).unwrap_or(u32::MAX)
}

/// The end of a connection whose client reads only JSON, and which the application gives bytes.
const UNREADABLE: Failure = Failure::Close(
    CloseReason::InappropriateProtocol,
    "the application gave it data that is not JSON",
);

/// Whether a client of a format can read what the application gives it.
pub(super) fn check_readable(format: Format, data: Option<&Payload>) -> Result<(), Failure> {
    match data {
        Some(data) if format == Format::Json && !data.is_json() => Err(UNREADABLE),
        _ => Ok(()),
    }
}

/// Time after which what a client is to refresh ends.
pub(super) fn time_to_refresh(left: Duration, by_server: bool, delay: Duration) -> Duration {
    if by_server {
        left
    } else {
        left.saturating_add(delay)
    }
}

impl<R: Reactor> Shard<R> {
    pub(super) fn verify_connection(&self, token: &str) -> Result<Verified<ConnectGrant>, Failure> {
        let Some(tokens) = &self.settings.access.tokens else {
            return Err(INVALID_TOKEN);
        };
        match tokens.connection(token) {
            Verdict::Now(Ok(grant)) => Ok(Ok(grant)),
            Verdict::Now(Err(fault)) => Err(connection_failure(fault)),
            Verdict::Later => Ok(Err(Later)),
        }
    }

    pub(super) fn verify_subscription(
        &self,
        key: Key,
        token: &str,
        channel: &str,
    ) -> Result<Verified<SubscribeGrant>, TokenFault> {
        let Some(tokens) = &self.settings.access.tokens else {
            return Err(TokenFault::Invalid("no key for tokens is configured"));
        };
        let user = self.hub.session(key.index).user.as_deref();
        let client = self.client_id(key).to_string();
        match tokens.subscription(token, channel, user.unwrap_or_default(), &client) {
            Verdict::Now(verified) => verified.map(Ok),
            Verdict::Later => Ok(Err(Later)),
        }
    }

    /// The answer to a question with a token, unless the token was revoked after it was verified. A revocation is in force before
    /// its order comes, so whoever connects behind the order is refused here, and whoever connects before it is ended by it.
    pub(super) fn unrevoked(&self, key: Key, answer: AskAnswer) -> AskAnswer {
        let Some(tokens) = &self.settings.access.tokens else {
            return answer;
        };
        let (token, user) = match &answer {
            AskAnswer::Connect(grant) => (&grant.token, grant.user.as_deref()),
            AskAnswer::Subscribe(grant) => {
                let session = self.hub.session(key.index);
                (&grant.token, session.user.as_deref())
            }
            _ => return answer,
        };
        match token {
            Some(token) if tokens.is_revoked(token, user.unwrap_or_default()) => {
                AskAnswer::Token(TokenFault::Revoked)
            }
            _ => answer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Duration, time_to_refresh, ttl_of};

    #[test]
    fn a_client_is_told_whole_seconds_and_never_none() {
        for (left, told) in [
            (Duration::from_millis(1), 1),
            (Duration::from_secs(60), 60),
            (Duration::from_millis(60_001), 61),
            (Duration::MAX, 365 * 24 * 3600),
        ] {
            assert_eq!(ttl_of(left), told, "{left:?}");
        }
    }

    #[test]
    fn only_clients_have_time_after_the_end() {
        let (left, delay) = (Duration::from_secs(5), Duration::from_secs(25));
        assert_eq!(time_to_refresh(left, false, delay), Duration::from_secs(30));
        assert_eq!(time_to_refresh(left, true, delay), left);
        assert_eq!(time_to_refresh(Duration::MAX, false, delay), Duration::MAX);
    }
}
