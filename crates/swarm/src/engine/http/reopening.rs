//! How a terminal begins to ask, and how it goes on over another connection.

use super::{Flags, REOPEN_STREAM_AFTER, REOPEN_STREAM_AFTER_MAX};
use crate::clock::Nanos;
use crate::engine::crowd::World;
use crate::engine::terminal::Phase;
use crate::failure::Failure;
use myriad_reactor::{Close, Reactor, Token};
use std::time::Duration;

impl World {
    /// A connection is made: sends the first request on it. A poll is open from then on; a stream once its head has come.
    pub(in crate::engine) fn begin_exchange<R: Reactor>(
        &mut self,
        reactor: &mut R,
        token: Token,
        now: Nanos,
    ) {
        let index = token.index as usize;
        self.terminals[index].phase = Phase::Upgrading;
        self.totals.tcp_connected += 1;
        reactor.register(self.terminals[index].socket(), token);
        if self.is_requesting() {
            return self.begin_requests(token, now);
        }
        if !self.is_polling() {
            self.send_request(index, now);
            return self.opening.await_answer(token, now);
        }
        if self.is_reopening(index) {
            self.note_reopened(index);
        } else {
            let is_counted = !self.is_replacing() && !self.is_coming_back(token.index);
            self.note_opened(index, now);
            self.http_mut().set(index, Flags::UNCONFIRMED, is_counted);
        }
        self.send_request(index, now);
    }

    pub(super) fn is_reopening(&self, index: usize) -> bool {
        self.http
            .as_ref()
            .is_some_and(|http| http.is_reopening(index))
    }

    /// A terminal can use its connection: it is open, or is open again.
    pub(super) fn note_in_use(&mut self, index: usize, now: Nanos) {
        if self.is_reopening(index) {
            self.note_reopened(index);
        } else {
            self.note_opened(index, now);
        }
    }

    /// A terminal goes on over another connection.
    pub(super) fn note_reopened(&mut self, index: usize) {
        self.http_mut().take_reopening(index);
        self.totals.http.reopened += 1;
        self.terminals[index].phase = Phase::Open;
        let number = u32::try_from(index).expect("terminals are at most 2^32");
        self.opening.note_reopened(number);
    }

    /// The first answer to a poll has come: the server takes it.
    pub(super) fn confirm(&mut self, index: usize) {
        if self.http_mut().has(index, Flags::UNCONFIRMED) {
            self.http_mut().set(index, Flags::UNCONFIRMED, false);
            let number = u32::try_from(index).expect("terminals are at most 2^32");
            self.opening.forget_failures(number);
        }
    }

    /// Terminals of polls and streams that are between two connections. Those of an API are without one until they ask for something.
    pub(in crate::engine) fn reopening_count(&self) -> u64 {
        match self.is_requesting() {
            true => 0,
            false => self.opening.reopening() as u64,
        }
    }

    /// Frees the connection of a terminal that stays open without one.
    pub(super) fn disconnect<R: Reactor>(&mut self, reactor: &mut R, index: usize, how: Close) {
        assert_eq!(self.terminals[index].phase, Phase::Open);
        // So that `release` does not count it as gone.
        self.terminals[index].phase = Phase::Closing;
        self.release(reactor, index, how);
        self.terminals[index].phase = Phase::Waiting;
    }

    /// Connects a terminal again that goes on where it was. It is expected to get what is published meanwhile.
    pub(super) fn reopen<R: Reactor>(&mut self, reactor: &mut R, index: usize, now: Nanos) {
        let number = u32::try_from(index).expect("terminals are at most 2^32");
        self.disconnect(reactor, index, Close::Orderly);
        self.http_mut().set(index, Flags::REOPENING, true);
        let target = self.target_index(number);
        let wait = if self.is_polling() {
            Duration::ZERO
        } else {
            let told = self.http_mut().retry_by_target[target];
            let wait = told.unwrap_or(REOPEN_STREAM_AFTER);
            let wait = wait.min(REOPEN_STREAM_AFTER_MAX);
            // Up to a quarter more, so that what ended together does not come back together.
            wait + wait.mul_f64(f64::from(self.random.mask()[0]) / 1024.0)
        };
        self.opening.reopen(number, now.plus(wait));
    }

    /// Gives up a terminal between two connections. False if it was not there.
    pub(in crate::engine) fn give_up_reopening(&mut self, index: usize) -> bool {
        let Some(http) = &mut self.http else {
            return false;
        };
        if !http.take_reopening(index) {
            return false;
        }
        let number = u32::try_from(index).expect("terminals are at most 2^32");
        self.abandon_request(number, Failure::Call(0), "there was no connection any more");
        self.note_open(number, false);
        self.opening.note_reopening_ended();
        true
    }
}
