//! Events for a log: what happens to single connections, and what clients publish. They are plain data and bounded, and off
//! unless [`Settings::events`] is set. Noting one changes nothing of a shard.
//!
//! A shard notes an event, and the control plane takes it out of the [`Mesh`]. The shard wakes nobody and writes nothing:
//! its thread may have a descriptor table of its own. Deliveries are no events, so they cost nothing here.
//!
//! [`Settings::events`]: crate::Settings::events
//! [`Mesh`]: crate::Mesh

use crate::shard::Shard;
use crate::thinned::Thinned;
use myriad_hub::{ClientId, CloseReason, Now, Publication};
use myriad_reactor::{Reactor, Refusal};
use myriad_wheel::Key;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// Events that are kept of each second; the others are only counted.
const EVENTS_PER_SECOND_MAX: u32 = 200;

/// Events that wait to be taken, should the control plane be late; the others are only counted.
const WAITING_MAX: usize = 1_000;

const NANOSECONDS_PER_SECOND: u64 = 1_000_000_000;

/// The name of a connection in the log: `SHARD:SLOT:GENERATION`. No two connections of a shard have the same one, until the
/// generation of a slot wraps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionName {
    /// The shard's number.
    pub shard: usize,
    /// The index of its record.
    pub slot: u32,
    /// The generation of its record.
    pub generation: u32,
}

impl fmt::Display for ConnectionName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{}:{}:{}",
            self.shard, self.slot, self.generation
        )
    }
}

/// What a log may tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Something happened to a connection. No name: it ended before it had a record.
    Connection(Option<ConnectionName>, ConnectionEvent),
    /// A client's publication has left its channel's home.
    Published(ClientPublication),
}

impl Event {
    fn kind(&self) -> EventKind {
        match self {
            Self::Connection(_, event) => event.kind(),
            Self::Published(_) => ("published", ""),
        }
    }
}

/// What a client has published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientPublication {
    /// The channel's name.
    pub channel: Arc<str>,
    /// The client.
    pub client: ClientId,
    /// Its place in the channel's order.
    pub offset: u64,
    /// The bytes that a client of `/raw` gets.
    pub bytes: usize,
}

/// What happened to one connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectionEvent {
    /// It was accepted.
    Accepted,
    /// The control plane had it, and its next request is for a shard.
    HandedBack,
    /// It is a stream now.
    Upgraded {
        /// The path of its transport.
        path: &'static str,
        /// Channels it is subscribed to.
        channels: usize,
        /// Whether compression was agreed to.
        compressed: bool,
    },
    /// Its request was refused; its close follows.
    Refused {
        /// The status of the answer.
        status: u16,
        /// The refusal's label, as in `myriad_upgrades_refused_total`.
        label: &'static str,
        /// What its client is not told.
        cause: Option<&'static str>,
        /// The client's address, if it is known.
        address: Option<IpAddr>,
    },
    /// TLS could not go on with its client; its close follows.
    TlsRefused {
        /// Why.
        why: Refusal,
        /// The client's address, if it is known.
        address: Option<IpAddr>,
    },
    /// Its client has connected.
    Connected(Box<Who>),
    /// Its client has subscribed, or was subscribed by the server.
    Subscribed {
        /// The client's id.
        client: ClientId,
        /// The channel.
        channel: Arc<str>,
    },
    /// A command of its client was not carried out.
    CommandRefused(Box<RefusedCommand>),
    /// It ended, for the reason that `myriad_closes_total` counts.
    Closed {
        /// The reason.
        reason: CloseReason,
        /// The client, if it has a session.
        who: Option<Box<Who>>,
    },
}

/// A client with a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Who {
    /// Its id.
    pub client: ClientId,
    /// Its user; none of an anonymous client.
    pub user: Option<Arc<str>>,
}

/// A command that was answered with an error, or ended its connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedCommand {
    /// The client.
    pub who: Who,
    /// The command's name, or `message` for a message that is no command.
    pub command: &'static str,
    /// The channel, cut to what a name may have; empty where none was named.
    pub channel: Box<str>,
    /// The error's number, or the code that the connection is closed with.
    pub code: u32,
    /// Why: the option that is missing, the words of the application, or the error's text.
    pub reason: Cow<'static, str>,
}

impl ConnectionEvent {
    /// The kind of the event, and the label of its reason; empty where a kind has none.
    #[must_use]
    pub fn kind(&self) -> EventKind {
        match self {
            Self::Accepted => ("accepted", ""),
            Self::HandedBack => ("handed back", ""),
            Self::Upgraded { path, .. } => ("upgraded", path),
            Self::Refused { label, .. } => ("refused", label),
            Self::TlsRefused { why, .. } => ("TLS refused", why.label),
            Self::Connected(_) => ("connected", ""),
            Self::Subscribed { .. } => ("subscribed", ""),
            Self::CommandRefused(refused) => ("command refused", refused.command),
            Self::Closed { reason, .. } => ("closed", reason.label()),
        }
    }
}

/// A kind of event, and the label of its reason.
pub type EventKind = (&'static str, &'static str);

/// How many lines of a log one second may have; the others are counted.
#[derive(Debug, Default)]
pub struct EventBudget {
    /// The second of the shards' clock that is under way.
    second: u64,
    /// Events of that second that were let through.
    spent: u32,
}

impl EventBudget {
    /// Whether an event at `now` may have a line.
    pub fn spend(&mut self, now: Now) -> bool {
        let second = now.0 / NANOSECONDS_PER_SECOND;
        if second != self.second {
            *self = Self { second, spent: 0 };
        }
        let may = self.spent < EVENTS_PER_SECOND_MAX;
        self.spent += u32::from(may);
        may
    }
}

/// Events of one shard that the control plane has not taken yet: of connections, and of clients' publications.
#[derive(Debug, Default)]
pub struct Events {
    /// In the order they happened.
    pub kept: Vec<Event>,
    /// How many more there were, by kind. Bounded, because labels are.
    pub suppressed: BTreeMap<EventKind, u64>,
}

/// Clients that were refused, where there is no debug log: one a second for each reason.
#[derive(Debug, Default)]
pub struct Refusals {
    /// In the order they happened.
    pub kept: Vec<(Option<ConnectionName>, ConnectionEvent)>,
    /// How many more there were, by reason.
    pub left_out: Vec<(EventKind, u64)>,
    /// How many more there were of further reasons.
    pub beyond: u64,
}

/// A shard's [`Events`] and their budget, and its [`Refusals`].
#[derive(Debug, Default)]
pub(crate) struct EventLog {
    events: Events,
    budget: EventBudget,
    refused: Vec<(Option<ConnectionName>, ConnectionEvent)>,
    reasons: Thinned<EventKind>,
}

impl EventLog {
    pub(crate) fn note(&mut self, event: Event, now: Now) {
        if self.events.kept.len() < WAITING_MAX && self.budget.spend(now) {
            self.events.kept.push(event);
        } else {
            *self.events.suppressed.entry(event.kind()).or_default() += 1;
        }
    }

    pub(crate) fn take(&mut self) -> Events {
        std::mem::take(&mut self.events)
    }

    /// Whether a refusal may have a line.
    pub(crate) fn may_note_refusal(&mut self, reason: EventKind, now: Now) -> bool {
        self.reasons.note(reason, now) && self.refused.len() < WAITING_MAX
    }

    pub(crate) fn note_refusal(&mut self, name: Option<ConnectionName>, event: ConnectionEvent) {
        self.refused.push((name, event));
    }

    pub(crate) fn take_refusals(&mut self, now: Now) -> Refusals {
        let (left_out, beyond) = self.reasons.take_left_out(now);
        Refusals {
            kept: std::mem::take(&mut self.refused),
            left_out,
            beyond,
        }
    }
}

impl<R: Reactor> Shard<R> {
    /// Notes what happened to a connection. `event` is called only while events are on.
    pub(crate) fn note_event(
        &self,
        key: Option<Key>,
        now: Now,
        event: impl FnOnce(&Self) -> ConnectionEvent,
    ) {
        if !self.settings.events {
            return;
        }
        let event = Event::Connection(self.name_of(key), event(self));
        self.mesh.note_event(self.index, event, now);
    }

    /// Whether [`Shard::note_refusal`] may be called for a client that is refused for `reason`: always where there is a debug log,
    /// and otherwise once a second for each reason.
    pub(crate) fn may_note_refusal(&self, reason: EventKind, now: Now) -> bool {
        self.settings.events || self.mesh.may_note_refusal(self.index, reason, now)
    }

    pub(crate) fn note_refusal(&self, key: Key, event: ConnectionEvent, now: Now) {
        if self.settings.events {
            self.note_event(Some(key), now, |_| event);
        } else {
            let name = self.name_of(Some(key));
            self.mesh.note_refusal(self.index, name, event);
        }
    }

    /// Notes that TLS could not go on with a client, as [`Shard::note_refusal`] does.
    pub(crate) fn note_tls_refusal(&mut self, key: Key, why: &Refusal, now: Now) {
        if self.may_note_refusal(("TLS refused", why.label), now) {
            let event = ConnectionEvent::TlsRefused {
                why: why.clone(),
                address: self.client_address(key),
            };
            self.note_refusal(key, event, now);
        }
    }

    /// A client with a session, for the log.
    pub(crate) fn who(&self, key: Key) -> Who {
        Who {
            client: self.client_id(key),
            user: self.hub.session(key.index).user.clone(),
        }
    }

    /// Notes the end of a connection. Without a debug log, ends by the server's own judgement are noted, as refusals are: their
    /// clients are told a code, and operators see nothing else of them.
    pub(crate) fn note_close(&self, key: Key, reason: CloseReason, now: Now) {
        let may_have_line =
            || reason.is_judgement() && self.may_note_refusal(("closed", reason.label()), now);
        if self.settings.events || may_have_line() {
            let has_session = self.hub.connection(key.index).has_session();
            let who = has_session.then(|| Box::new(self.who(key)));
            self.note_refusal(key, ConnectionEvent::Closed { reason, who }, now);
        }
    }

    fn name_of(&self, key: Option<Key>) -> Option<ConnectionName> {
        key.map(|key| ConnectionName {
            shard: self.index,
            slot: key.index,
            generation: key.generation,
        })
    }

    /// Notes a publication that leaves its home here, if a client published it.
    pub(crate) fn note_published(&self, publication: &Publication, now: Now) {
        if !self.settings.events {
            return;
        }
        let content = publication.content();
        let Some(publisher) = &content.publisher else {
            return;
        };
        let published = ClientPublication {
            channel: Arc::clone(publication.channel()),
            client: publisher.client,
            offset: publication.offset(),
            bytes: content.payload.raw().len(),
        };
        self.mesh
            .note_event(self.index, Event::Published(published), now);
    }

    /// The event of a connection that was answered 101.
    pub(crate) fn upgraded(&self, key: Key) -> ConnectionEvent {
        let connection = self.hub.connection(key.index);
        ConnectionEvent::Upgraded {
            path: connection.transport().path(),
            channels: self.hub.channel_count_of(key.index),
            compressed: connection.window().is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFUSED: Event = Event::Connection(
        None,
        ConnectionEvent::Refused {
            status: 503,
            label: "full",
            cause: None,
            address: None,
        },
    );

    #[test]
    fn each_second_has_its_budget_and_nothing_goes_uncounted() {
        let mut log = EventLog::default();
        for second in 1..=2_u64 {
            for nth in 0..u64::from(EVENTS_PER_SECOND_MAX) + 50 {
                let now = Now(second * NANOSECONDS_PER_SECOND + nth);
                log.note(REFUSED, now);
            }
            let events = log.take();
            assert_eq!(events.kept.len(), EVENTS_PER_SECOND_MAX as usize);
            let suppressed: Vec<_> = events.suppressed.into_iter().collect();
            assert_eq!(suppressed, [(("refused", "full"), 50)]);
        }
        assert!(log.take().suppressed.is_empty());
    }

    #[test]
    fn what_nobody_takes_is_bounded() {
        let mut log = EventLog::default();
        let total = 10 * WAITING_MAX;
        for nth in 0..total {
            log.note(REFUSED, Now(nth as u64 * NANOSECONDS_PER_SECOND));
        }
        let events = log.take();
        assert_eq!(events.kept.len(), WAITING_MAX);
        let suppressed: u64 = events.suppressed.values().sum();
        assert_eq!(suppressed, (total - WAITING_MAX) as u64);
    }
}
