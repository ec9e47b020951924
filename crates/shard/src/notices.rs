//! Notices for an application: which channels are occupied, and which clients are connected. They are plain data and bounded, and
//! off unless [`Settings::notices`] asks for them. Noting one changes nothing of a shard.
//!
//! A shard notes, and the control plane takes the notices out of the [`Mesh`], as it does with [`crate::Events`]. Events are for a
//! log and are thinned out by a budget. Notices are for a program, so each of them counts. Past the bound the oldest is dropped, and
//! counted.
//!
//! Notices of one channel are noted by its home and have one order, and so have those of one client.
//!
//! [`Settings::notices`]: crate::Settings::notices
//! [`Mesh`]: crate::Mesh

use crate::shard::Shard;
use crate::transport::centrifuge::names_of;
use crate::transport::told;
use myriad_hub::{ApplicationClose, ClientId, CloseReason, Now, Phase, SessionState, Transport};
use myriad_reactor::Reactor;
use myriad_wheel::Key;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Notices of one shard that wait to be taken: more than a second's worth, should the control plane be late.
const WAITING_MAX: usize = 65_536;

/// Bytes of them, should names be long.
const WAITING_BYTES_MAX: usize = 32 << 20;

/// Which notices are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NoticeSettings {
    /// Those of clients that connect and disconnect.
    pub clients: bool,
    /// Those of channels, and how long a channel must be empty before it counts as vacated.
    pub vacated_delay: Option<Duration>,
}

/// What an application may be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A channel has its first subscriber on this node.
    Occupied(Arc<str>),
    /// A channel has had no subscriber on this node for the delay.
    Vacated(Arc<str>),
    /// A client is connected.
    Connected(NoticedClient),
    /// A client that was told as connected has gone.
    Disconnected(NoticedClient, ClientEnd),
}

/// A client, in a notice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoticedClient {
    /// Its id.
    pub client: ClientId,
    /// Its user; none of an anonymous client.
    pub user: Option<Arc<str>>,
    /// What its connection is.
    pub transport: &'static str,
    /// What it speaks.
    pub protocol: &'static str,
}

/// How a client ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientEnd {
    /// Why, as `myriad_closes_total` counts it.
    pub cause: CloseReason,
    /// The close code that it is told; 1000 where it ended by itself.
    pub code: u16,
    /// What it is told beside the code; empty where it ended by itself.
    pub reason: Cow<'static, str>,
    /// How long its connection was open, to a tick.
    pub duration: Duration,
}

/// The kinds of notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum NoticeKind {
    /// [`Notice::Occupied`].
    Occupied,
    /// [`Notice::Vacated`].
    Vacated,
    /// [`Notice::Connected`].
    Connected,
    /// [`Notice::Disconnected`].
    Disconnected,
}

impl NoticeKind {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 4] = [
        Self::Occupied,
        Self::Vacated,
        Self::Connected,
        Self::Disconnected,
    ];
}

impl Notice {
    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> NoticeKind {
        match self {
            Self::Occupied(_) => NoticeKind::Occupied,
            Self::Vacated(_) => NoticeKind::Vacated,
            Self::Connected(_) => NoticeKind::Connected,
            Self::Disconnected(..) => NoticeKind::Disconnected,
        }
    }

    /// Bytes that it may hold in memory. Names are shared, and counted in full: their owner may have gone.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let name = match self {
            Self::Occupied(channel) | Self::Vacated(channel) => channel.len(),
            Self::Connected(client) | Self::Disconnected(client, _) => {
                client.user.as_deref().map_or(0, str::len)
            }
        };
        size_of::<(Now, Self)>() + name
    }
}

/// Notices of one shard that the control plane has not taken yet.
#[derive(Debug, Default)]
pub struct Notices {
    /// In the order they were noted, with their times.
    pub kept: VecDeque<(Now, Notice)>,
    /// How many older ones were dropped, by [`NoticeKind`].
    pub dropped: [u64; NoticeKind::ALL.len()],
    bytes: usize,
}

impl Notices {
    pub(crate) fn note(&mut self, notice: Notice, now: Now) {
        self.bytes += notice.bytes();
        self.kept.push_back((now, notice));
        while self.kept.len() > WAITING_MAX || self.bytes > WAITING_BYTES_MAX {
            let Some((_, oldest)) = self.kept.pop_front() else {
                break;
            };
            self.bytes -= oldest.bytes();
            self.dropped[oldest.kind() as usize] += 1;
        }
    }
}

impl<R: Reactor> Shard<R> {
    /// As a home: a channel is occupied or vacated.
    pub(crate) fn note_occupancy(&self, notice: Notice, now: Now) {
        self.mesh.note_notice(self.index, notice, now);
    }

    /// A client is connected: its session is, or it has none and its stream has opened.
    pub(crate) fn note_connected(&self, key: Key, now: Now) {
        if self.settings.notices.clients
            && let Some(client) = self.noticed_client(key)
        {
            let notice = Notice::Connected(client);
            self.mesh.note_notice(self.index, notice, now);
        }
    }

    /// A connection is about to end. Its client is told as disconnected if it was told as connected.
    pub(crate) fn note_disconnected(
        &self,
        key: Key,
        cause: CloseReason,
        application: Option<&ApplicationClose>,
        now: Now,
    ) {
        if self.settings.notices.clients
            && let Some(client) = self.noticed_client(key)
        {
            let connection = self.hub.connection(key.index);
            let opened = Now::at(connection.opened);
            let (code, reason) = match application {
                Some(close) => (close.code(), Cow::Owned(close.reason().to_owned())),
                None => {
                    let (code, reason) = told(connection.transport(), cause);
                    (code, Cow::Borrowed(reason))
                }
            };
            let end = ClientEnd {
                cause,
                code,
                reason,
                duration: Duration::from_nanos(Now::at(now.tick()).0.saturating_sub(opened.0)),
            };
            let notice = Notice::Disconnected(client, end);
            self.mesh.note_notice(self.index, notice, now);
        }
    }

    /// The client of a connection, while it is connected.
    fn noticed_client(&self, key: Key) -> Option<NoticedClient> {
        let connection = self.hub.connection(key.index);
        let transport = connection.transport();
        let ((transport, protocol), user) = match transport {
            Transport::Raw if connection.phase == Phase::Open => (("websocket", "raw"), None),
            Transport::Events if connection.phase == Phase::Open => (("sse", "stream"), None),
            _ if transport.has_sessions() => (names_of(transport), self.user_of_connected(key)?),
            _ => return None,
        };
        Some(NoticedClient {
            client: self.client_id(key),
            user,
            transport,
            protocol,
        })
    }

    /// The user of a session, anonymous or not; none if the session is not connected.
    fn user_of_connected(&self, key: Key) -> Option<Option<Arc<str>>> {
        if !self.hub.connection(key.index).has_session() {
            return None;
        }
        let session = self.hub.session(key.index);
        (session.state == SessionState::Connected).then(|| session.user.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn past_the_bound_the_oldest_goes_and_is_counted() {
        let mut notices = Notices::default();
        for nth in 0..WAITING_MAX + 10 {
            let channel = nth.to_string().into();
            let notice = if nth < 4 {
                Notice::Vacated(channel)
            } else {
                Notice::Occupied(channel)
            };
            notices.note(notice, Now(nth as u64));
        }
        assert_eq!(notices.kept.len(), WAITING_MAX);
        assert_eq!(notices.kept[0], (Now(10), Notice::Occupied("10".into())));
        assert_eq!(notices.dropped, [6, 4, 0, 0]);
    }

    #[test]
    fn long_names_count_by_their_bytes() {
        let mut notices = Notices::default();
        let user: Arc<str> = "x".repeat(1 << 20).into();
        for _ in 0..100 {
            let client = NoticedClient {
                client: ClientId([0; 16]),
                user: Some(Arc::clone(&user)),
                transport: "websocket",
                protocol: "json",
            };
            notices.note(Notice::Connected(client), Now(0));
        }
        assert_eq!(notices.kept.len(), 31, "and what they take besides");
        assert_eq!(notices.dropped[NoticeKind::Connected as usize], 69);
        assert!(notices.bytes <= WAITING_BYTES_MAX);
    }

    #[test]
    fn kinds_are_numbered_in_their_order() {
        for (number, kind) in NoticeKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, number);
        }
    }
}
