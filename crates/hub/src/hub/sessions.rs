//! Sessions of connections whose clients send commands.

use super::Hub;
use crate::session::Session;
use crate::{Now, SessionState};
use myriad_wheel::NONE;
use std::sync::Arc;

impl Hub {
    /// Makes the session of a connection that is about to open. Its client has the stale timeout to send its connect command.
    pub fn open_session(&mut self, index: u32, user: Option<Arc<str>>) {
        let session = self.sessions.insert(Session::new(index, user)).index;
        let before = self.connections[index].set_session(session);
        assert_eq!(
            before, NONE,
            "a session comes before the first subscription"
        );
    }

    /// The session of a connection, which has one.
    #[must_use]
    pub fn session(&self, index: u32) -> &Session {
        let session = self.connections[index].session();
        &self.sessions[session.expect("the connection has a session")]
    }

    /// The session of a connection, which has one, to change.
    pub fn session_mut(&mut self, index: u32) -> &mut Session {
        let session = self.connections[index].session();
        &mut self.sessions[session.expect("the connection has a session")]
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
            self.sessions.remove(session);
        }
    }
}
