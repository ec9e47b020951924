//! How many commands a client may send, and how many connections a user may have. Changes `sessions`; counts in `mesh`.

use super::Failure;
use crate::limits::Limit;
use crate::shard::Shard;
use myriad_hub::{Allowance, Arrival, Charge, CloseReason, Now, SessionState, TokenBucket};
use myriad_reactor::Reactor;
use myriad_wheel::Key;
use myriad_wire::centrifuge::{Command, CommandError, ErrorCode, Request};
use std::collections::HashMap;
use std::sync::Arc;

/// What is counted of sessions. Empty while nothing is limited.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// What clients have left of their rates, by the index of their connections.
    rates: HashMap<u32, ClientRates>,
    /// The users of connections that are counted among those of their users.
    users: HashMap<u32, Arc<str>>,
}

impl Counts {
    /// What is kept of sessions, for checks.
    pub(super) fn len(&self) -> usize {
        self.rates.len() + self.users.len()
    }
}

/// What one client has left.
#[derive(Debug, Default)]
struct ClientRates {
    commands: TokenBucket,
    publishes: TokenBucket,
    subscribes: TokenBucket,
}

impl<R: Reactor> Shard<R> {
    /// Whether a client may send this command now. Call it once for each command, also if that is handled later, or twice.
    pub(super) fn check_rates(
        &mut self,
        key: Key,
        command: &Result<Command<'_>, CommandError>,
        now: Now,
    ) -> Result<(), Failure> {
        if !self.settings.limits.count_commands() {
            return Ok(());
        }
        // What comes before the client has connected, or is a pong too many, ends the connection.
        let is_connected = self.hub.session(key.index).state == SessionState::Connected;
        let request = match command {
            Ok(command) if is_connected => &command.request,
            _ => return Ok(()),
        };
        if matches!(request, Request::Pong) {
            return Ok(());
        }
        let limits = Arc::clone(&self.settings.limits);
        let left = self.sessions.counts.rates.entry(key.index).or_default();
        if let Some(limit) = limits.commands {
            match left.commands.charge(limit, now) {
                Charge::Taken => {}
                Charge::Refused => return Err(self.too_many(Limit::Commands)),
                Charge::Exhausted => {
                    self.metrics().count_limited(Limit::Commands);
                    return Err(Failure::Close(
                        CloseReason::TooManyRequests,
                        "it went on after its commands were refused",
                    ));
                }
            }
        }
        let (limit, bucket, which) = match request {
            Request::Publish(_) => (limits.publishes, &mut left.publishes, Limit::Publishes),
            Request::Subscribe(_) => (limits.subscribes, &mut left.subscribes, Limit::Subscribes),
            _ => return Ok(()),
        };
        if limit.is_some_and(|limit| !bucket.take(limit, now)) {
            return Err(self.too_many(which));
        }
        Ok(())
    }

    /// Whether clients may publish to a channel now. Call it for those only that have the right to: nobody else may use the
    /// channel's rate up.
    pub(super) fn check_channel_rate(&self, channel: &str, now: Now) -> Result<(), Failure> {
        let Some(limit) = self.settings.limits.publishes_per_channel else {
            return Ok(());
        };
        let tallies = self.mesh.tallies();
        if tallies.channels.spend(&channel.into(), limit, now) {
            Ok(())
        } else {
            Err(self.too_many(Limit::PublishesPerChannel))
        }
    }

    /// Counts a connection among those of its user. Call it when the user is known, before the connect command is answered.
    pub(super) fn count_user(&mut self, key: Key, now: Now) -> Result<(), Failure> {
        let open_max = self.settings.limits.connections_per_user;
        let user = self.hub.session(key.index).user.clone();
        let Some(user) = user.filter(|_| open_max > 0) else {
            return Ok(());
        };
        let allowance = Allowance {
            open_max,
            rate: None,
        };
        let tallies = self.mesh.tallies();
        if tallies.users.arrive(&user, allowance, now) == Arrival::Admitted {
            self.sessions.counts.users.insert(key.index, user);
            return Ok(());
        }
        self.metrics().count_limited(Limit::ConnectionsPerUser);
        Err(Failure::Close(
            CloseReason::ConnectionLimit,
            "its user has as many connections as client.user_connection_limit allows",
        ))
    }

    /// A session ends.
    pub(super) fn forget_counts(&mut self, key: Key) {
        let counts = &mut self.sessions.counts;
        if counts.len() == 0 {
            return;
        }
        counts.rates.remove(&key.index);
        if let Some(user) = counts.users.remove(&key.index) {
            self.mesh.tallies().users.leave(&user);
        }
    }

    fn too_many(&self, limit: Limit) -> Failure {
        self.metrics().count_limited(limit);
        ErrorCode::TooManyRequests.into()
    }
}
