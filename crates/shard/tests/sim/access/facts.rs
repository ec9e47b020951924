//! What is known in this simulation beside the clients: rules, publications, and what the application wanted done.

use super::desk::{Own, OwnEvent};
use super::orders::Issued;
use super::rules::{DELAY, Fixed, ROOMS, Rules, is_asked_about};
use super::tokens::{Revoked, Token};
use crate::verdict::{TICK_NS, ns};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// A publication: its room, and the client that made it; none for the application.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Issue {
    pub(crate) room: usize,
    pub(crate) publisher: Option<usize>,
    pub(crate) is_accepted: bool,
}

/// When something expires.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Due {
    /// Not before.
    pub(crate) from: u64,
    /// Nanoseconds from the moment that its shard notes it.
    pub(crate) length: u64,
    /// Not after; none until all shards have heard.
    pub(crate) to: Option<u64>,
}

/// What the application has said of its own will about a connection, or about a subscription.
#[derive(Debug, Default)]
pub(crate) struct Renewal {
    /// It has ended it.
    pub(crate) is_expired: bool,
    /// When it must be asked again.
    pub(crate) due: Option<Due>,
}

/// A client's id, and a room for one of its subscriptions.
pub(crate) type Renewed = (String, Option<usize>);

pub(crate) struct Facts {
    pub(crate) fixed: Fixed,
    /// All versions of the rules, the newest last.
    pub(crate) versions: Vec<Rules>,
    /// The oldest one that some shard may still have.
    pub(crate) oldest: usize,
    pub(crate) revoked: Revoked,
    pub(crate) issues: Vec<Issue>,
    /// Publish commands of clients to each room.
    pub(crate) attempts: [u64; ROOMS.len()],
    pub(crate) renewals: HashMap<Renewed, Renewal>,
    pub(crate) orders: Vec<Issued>,
    /// When the first order to refresh was given since the last quiet moment.
    pub(crate) refreshed_since: u64,
    /// Closes that were read, by code.
    pub(crate) closes: HashMap<u16, u64>,
    /// When each token was revoked.
    pub(crate) revoked_at: HashMap<u64, u64>,
    pub(crate) is_draining: bool,
    /// Few may wait for the control plane.
    pub(crate) is_tight: bool,
    pub(crate) now: u64,
    last_serial: u32,
    pub(crate) reached: BTreeMap<&'static str, u64>,
}

impl Facts {
    pub(crate) fn new(fixed: Fixed, rules: Rules, revoked: Revoked, now: u64) -> Self {
        Self {
            fixed,
            versions: vec![rules],
            oldest: 0,
            revoked,
            issues: Vec::new(),
            attempts: [0; ROOMS.len()],
            renewals: HashMap::new(),
            orders: Vec::new(),
            refreshed_since: now,
            closes: HashMap::new(),
            revoked_at: HashMap::new(),
            is_draining: false,
            is_tight: false,
            now,
            last_serial: 0,
            reached: BTreeMap::new(),
        }
    }

    /// A number for the next command.
    pub(crate) fn serial(&mut self) -> u32 {
        self.last_serial += 1;
        self.last_serial
    }

    pub(crate) fn rules(&self) -> &Rules {
        self.versions.last().expect("there are rules")
    }

    /// Whether some rules say so that may have held since a version.
    pub(crate) fn may_be(&self, since: usize, holds: impl Fn(&Rules) -> bool) -> bool {
        self.versions[since..].iter().any(holds)
    }

    pub(crate) fn issue(&mut self, room: usize, publisher: Option<usize>) -> usize {
        self.issues.push(Issue {
            room,
            publisher,
            is_accepted: publisher.is_none(),
        });
        self.issues.len() - 1
    }

    pub(crate) fn note(&mut self, what: &'static str) {
        *self.reached.entry(what).or_default() += 1;
    }

    /// Whether the application refreshes subscriptions of a room.
    pub(crate) fn refreshes(&self, room: usize) -> bool {
        self.fixed.sub_refresh_proxy && is_asked_about(room)
    }

    /// When something expires that was granted for so many seconds, at some time from `at` until now. None if it does not.
    pub(crate) fn due(&self, at: u64, seconds: u32, by_server: bool) -> Option<Due> {
        let delay = if by_server { Duration::ZERO } else { DELAY };
        let length = ns(Duration::from_secs(seconds.into()) + delay);
        (seconds > 0).then(|| Due {
            from: at + length,
            length,
            to: Some(self.now + length),
        })
    }

    /// The application is to be asked when this is over, unless it was asked about the same before: then nobody knows.
    pub(crate) fn renew(&mut self, of: Renewed, due: Option<Due>) {
        let renewal = self.renewals.entry(of).or_insert_with(|| Renewal {
            is_expired: false,
            due,
        });
        if renewal.due.is_some() {
            renewal.due = due;
        }
    }

    /// What the server asked of its own will, and the answers.
    pub(crate) fn take_own(&mut self, events: Vec<OwnEvent>) {
        for (client, room, own) in events {
            let now = self.now;
            let renewal = self.renewals.entry((client, room)).or_default();
            match own {
                Own::Asked => {
                    let due = renewal.due.take();
                    assert!(
                        due.is_none_or(|due| due.from <= now + TICK_NS),
                        "asked too early: {due:?} at {now}"
                    );
                    self.note("access: the application is asked about what expires");
                }
                Own::Expired => renewal.is_expired = true,
                Own::GoesOn(seconds) => {
                    let length = ns(Duration::from_secs(seconds.into()));
                    renewal.due = (seconds > 0).then(|| Due {
                        from: now + length,
                        length,
                        to: None,
                    });
                }
            }
        }
    }

    /// All shards have heard of everything.
    pub(crate) fn note_settled(&mut self) {
        self.oldest = self.versions.len() - 1;
        for renewal in self.renewals.values_mut() {
            if let Some(due) = &mut renewal.due {
                due.to.get_or_insert(self.now + due.length);
            }
        }
    }

    /// Whether a token may be good, or may have been since `at`.
    pub(crate) fn may_be_good(&self, token: &Token, at: u64) -> bool {
        let revoked_at = self.revoked_at.get(&token.id);
        token.fault.is_none() && revoked_at.is_none_or(|revoked_at| *revoked_at >= at)
    }
}
