//! Sessions of connections whose clients send commands.

use super::Hub;
use crate::defects::DefectScope;
use crate::session::Session;
use crate::{Now, SessionState};
use myriad_wheel::NONE;
use std::sync::Arc;

impl Hub {
    /// Makes the session of a connection that is about to open. Its client has the stale timeout to send its connect command.
    pub fn open_session(&mut self, index: u32, user: Option<Arc<str>>) {
        let session = self.sessions.insert(Session::new(index, user)).index;
        self.users.insert(&mut self.sessions, session);
        if self.connections[index].set_session(session) != NONE {
            self.defects.note(
                DefectScope::Connection(index),
                "a session comes before the first subscription",
            );
        }
    }

    /// Says whose the session of a connection is, which has one.
    pub fn set_user(&mut self, index: u32, user: Option<Arc<str>>) {
        let Some(session) = self.session_index(index) else {
            return;
        };
        self.users.remove(&mut self.sessions, session);
        self.sessions[session].user = user;
        self.users.insert(&mut self.sessions, session);
    }

    /// The connections of a user, the one that was known last first.
    pub fn connections_of_user(&self, user: &str) -> impl Iterator<Item = u32> {
        let sessions = self.users.sessions_of(&self.sessions, user);
        sessions.map(|session| self.sessions[session].connection)
    }

    /// Begins a walk over the connections that a user has, instead of the walk that was under way.
    pub fn begin_user_walk(&mut self, user: &str) {
        self.users.begin_walk(&self.sessions, user);
    }

    /// The next connection of the walk. Connections may come and go between two calls: it meets every one that was there when
    /// it began and still is, once, and no newer one.
    pub fn walk_user(&mut self) -> Option<u32> {
        let session = self.users.walk_on(&self.sessions)?;
        Some(self.sessions[session].connection)
    }

    /// The connection of the first session in the order of their records, from `from` on, and where to look for the next one.
    #[must_use]
    pub fn session_from(&self, from: u32) -> Option<(u32, u32)> {
        let session = self.sessions.index_from(from)?;
        Some((self.sessions[session].connection, session + 1))
    }

    /// The place of a connection's session in the order of [`Hub::session_from`].
    #[must_use]
    pub fn session_number(&self, index: u32) -> u32 {
        self.session_index(index).unwrap_or(NONE)
    }

    /// The index of the session of a connection, which has one.
    fn session_index(&self, index: u32) -> Option<u32> {
        let session = self.connections[index].session();
        if session.is_none() {
            self.defects.note(
                DefectScope::Connection(index),
                "the connection has a session",
            );
        }
        session
    }

    /// Users with a session. An anonymous one does not count.
    #[must_use]
    pub fn user_count(&self) -> usize {
        self.users.user_count()
    }

    /// The session of a connection, which has one.
    #[must_use]
    pub fn session(&self, index: u32) -> &Session {
        match self.session_index(index) {
            Some(session) => &self.sessions[session],
            None => &self.no_session,
        }
    }

    /// The session of a connection, which has one, to change.
    pub fn session_mut(&mut self, index: u32) -> &mut Session {
        match self.session_index(index) {
            Some(session) => &mut self.sessions[session],
            None => {
                self.spare_session = Session::default();
                &mut self.spare_session
            }
        }
    }

    /// The connect command is answered: pings begin.
    pub fn note_connected(&mut self, index: u32, now: Now) {
        let session = self.session_mut(index);
        session.state = SessionState::Connected;
        self.arm_open(index, now);
    }

    /// Notes that a ping is about to be sent.
    pub(crate) fn note_ping(&mut self, index: u32) {
        if let Some(session) = self.connections[index].session() {
            let pings = &mut self.sessions[session].unanswered_pings;
            *pings = pings.saturating_add(1);
        }
    }

    /// Notes the answer to a ping; false if no ping is unanswered.
    ///
    /// Several pings may be unanswered. Any input in time shows that the client is alive, so its pongs may come late and
    /// together.
    #[must_use]
    pub fn take_pong(&mut self, index: u32) -> bool {
        let pings = &mut self.session_mut(index).unanswered_pings;
        let is_answer = *pings > 0;
        *pings = pings.saturating_sub(1);
        is_answer
    }

    /// Sessions of all connections.
    #[must_use]
    pub fn session_count(&self) -> usize {
        self.sessions.len()
    }

    pub(super) fn release_session(&mut self, index: u32) {
        if let Some(session) = self.connections[index].session() {
            self.connections[index].set_session(NONE);
            self.users.remove(&mut self.sessions, session);
            self.sessions.remove(session);
        }
    }
}
