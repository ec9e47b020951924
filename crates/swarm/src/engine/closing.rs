//! Ending connections: one after its server's close frame, or all of them at the end of the run.

use crate::clock::Nanos;
use crate::engine::crowd::World;
use crate::engine::shared::{Ending, Order};
use crate::engine::terminal::Phase;
use myriad_reactor::{Close, Reactor};
use std::time::Duration;

/// Connections ended in one turn of the closing, so that their completions do not pile up.
const CLOSES_PER_TURN: usize = 1024;

/// How long an orderly close waits for the server's side of it.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The end of the crowd, under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClosingAll {
    pub(super) ending: Ending,
    pub(super) next: usize,
    /// When orderly closes that are still unanswered become resets.
    pub(super) deadline: Nanos,
}

impl World {
    /// Looks for an order to close.
    pub(super) fn obey(&mut self, now: Nanos) {
        if self.closing_all.is_some() {
            return;
        }
        if let Order::Close(ending) = self.shared.order() {
            self.opening.stop();
            self.closing_all = Some(ClosingAll {
                ending,
                next: 0,
                deadline: now.plus(CLOSE_TIMEOUT),
            });
        }
    }

    /// Leaves the open phase by a close frame of ours, which is already queued.
    pub(super) fn begin_closing(&mut self, index: usize, phase: Phase, now: Nanos) {
        assert!(matches!(phase, Phase::Closing | Phase::Leaving));
        let terminal = &self.terminals[index];
        assert!(matches!(terminal.phase, Phase::Open | Phase::Stalled));
        let token = terminal.token(u32::try_from(index).expect("fits, it is a token"));
        if terminal.phase == Phase::Open {
            self.note_open(token.index, false);
        } else {
            self.leave_stall(token.index);
        }
        self.terminals[index].phase = phase;
        self.closing.push_back((now.plus(CLOSE_TIMEOUT), token));
    }

    /// Ends terminals whose server does not end the connection after the close handshake.
    pub(super) fn expire_closing<R: Reactor>(&mut self, reactor: &mut R, now: Nanos) {
        while let Some(&(deadline, token)) = self.closing.front() {
            let current = self.current(token).filter(|&index| {
                matches!(self.terminals[index].phase, Phase::Closing | Phase::Leaving)
            });
            if current.is_some() && now < deadline {
                break;
            }
            self.closing.pop_front();
            if let Some(index) = current {
                self.totals.impatient += 1;
                self.end_closing(reactor, index, Close::Reset, now);
            }
        }
    }

    /// Ends a terminal whose close frame went out.
    pub(super) fn end_closing<R: Reactor>(
        &mut self,
        reactor: &mut R,
        index: usize,
        how: Close,
        now: Nanos,
    ) {
        if self.terminals[index].phase == Phase::Leaving {
            self.replace(reactor, index, how, now);
        } else {
            self.end(reactor, index, how);
            self.come_back_if_lost(index, now);
        }
    }

    /// Ends the next terminals of the closing.
    pub(super) fn close_some<R: Reactor>(&mut self, reactor: &mut R, now: Nanos) {
        let Some(mut all) = self.closing_all else {
            return;
        };
        let end = (all.next + CLOSES_PER_TURN).min(self.terminals.len());
        for index in all.next..end {
            let terminal = &self.terminals[index];
            let orderly = all.ending == Ending::Orderly && now < all.deadline;
            match terminal.phase {
                Phase::Open if orderly && !self.has_farewell() => {
                    self.end(reactor, index, Close::Orderly);
                }
                Phase::Open if orderly => self.send_close(index, Phase::Closing, now),
                // Its own deadline ends it, if its peer does not.
                Phase::Closing | Phase::Leaving if orderly => {}
                _ if terminal.holds_socket() => self.end(reactor, index, Close::Reset),
                _ => {
                    self.give_up_reopening(index);
                    self.end_dormant(index);
                }
            }
        }
        all.next = end;
        self.closing_all = Some(all);
    }

    pub(super) fn is_done(&self) -> bool {
        self.closing_all
            .is_some_and(|all| all.next == self.terminals.len())
            && self.closing.is_empty()
    }
}
