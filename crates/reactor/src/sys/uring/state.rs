//! What completions change. Nothing here touches a ring, so that completions can be taken in wherever
//! they turn up: at a wait, or between the submissions of a batch of sends.

use super::super::readable::ReadableQueue;
use super::super::slots::{Fact, Slots};
use super::super::tag::{Matter, Tag};
use super::close::Installs;
use crate::{Completion, Socket, Token};
use io_uring::cqueue::{self, Entry as Cqe};

/// Poll events after which receiving goes on to the end or the error.
const ENDED: i32 = (libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR) as i32;

/// How one receive of a batch went.
#[derive(Clone, Copy, Debug)]
pub(super) struct Receipt {
    /// Bytes, or a negative errno.
    pub(super) result: i32,
    /// The kernel says that there is more.
    pub(super) more: bool,
}

/// The listener's side of accepting.
#[derive(Debug, Default)]
pub(super) struct Door {
    /// Number of the poll on the listener: completions of earlier ones are stale.
    pub(super) watch: u32,
    pub(super) watched: bool,
    /// Somebody waits, as far as known.
    pub(super) crowded: bool,
    /// An accept found nobody.
    pub(super) found_nobody: bool,
    /// Why the last accept failed, when trying again at once would fail again.
    pub(super) shortage: Option<i32>,
    /// Whether somebody was accepted since the driver last looked.
    pub(super) accepted: bool,
}

/// An outgoing connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attempt {
    pub(super) socket: Socket,
    pub(super) token: Token,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// What the next wait reports.
    pub(super) ready: Vec<Completion>,
    pub(super) readable: ReadableQueue,
    pub(super) door: Door,
    /// Sockets whose poll ended although they are still wanted, as it does when completions overflow.
    pub(super) unwatched: Vec<Attempt>,
    /// Closed sockets whose last request has ended: their slots may be used again.
    pub(super) vacated: Vec<Socket>,
    /// Slots reserved for an accept that failed.
    pub(super) unfilled: Vec<Socket>,
    /// Connects that failed; their sockets are to be closed.
    pub(super) failed_connects: Vec<Attempt>,
    /// Failed steps before a connect, until the connect itself completes.
    failed_steps: Vec<(Attempt, i32)>,
    /// Sends of the running batch that did not go out whole: place in the batch, and bytes or negative errno.
    pub(super) sends: Vec<(u32, i32)>,
    /// Receives of the running batch, by place.
    pub(super) receipts: Vec<Option<Receipt>>,
    pub(super) installs: Installs,
}

impl State {
    pub(super) fn complete(&mut self, table: usize, slots: &mut Slots, cqe: &Cqe) {
        let tag = Tag::from_bits(cqe.user_data());
        let result = cqe.result();
        match tag.matter() {
            Matter::Send => self.sends.push((tag.index(), result)),
            Matter::Receive => {
                let receipt = Receipt {
                    result,
                    more: cqueue::sock_nonempty(cqe.flags()),
                };
                if let Some(place) = self.receipts.get_mut(tag.index() as usize) {
                    *place = Some(receipt);
                }
            }
            Matter::Readable => self.complete_poll(table, slots, tag, cqe),
            Matter::Writable => {
                slots.take(tag.slot(), Fact::WantsWritable);
                if slots.is(tag.slot(), Fact::Open) {
                    self.ready.push(Completion::Writable { token: tag.token() });
                } else {
                    self.vacate(table, slots, tag.slot());
                }
            }
            Matter::Listener => self.complete_listener(tag, cqe),
            Matter::Accepted => self.complete_accept(table, slots, tag, result),
            Matter::Prepare => {
                let attempt = Attempt {
                    socket: Socket::new(table, tag.slot()),
                    token: tag.token(),
                };
                // Only the first failure is the cause; those after it follow from it.
                if !self
                    .failed_steps
                    .iter()
                    .any(|(failed, _)| *failed == attempt)
                {
                    self.failed_steps.push((attempt, -result));
                }
            }
            Matter::Connect => self.complete_connect(table, slots, tag, result),
            Matter::Install => self.installs.complete(tag.index(), result),
            Matter::Ignored | Matter::Wake => {}
        }
    }

    fn complete_poll(&mut self, table: usize, slots: &mut Slots, tag: Tag, cqe: &Cqe) {
        let (slot, token, result) = (tag.slot(), tag.token(), cqe.result());
        let socket = Socket::new(table, slot);
        let ends = !cqueue::more(cqe.flags());
        if ends {
            slots.take(slot, Fact::Watched);
        }
        if !slots.is(slot, Fact::Open) {
            if ends {
                self.vacate(table, slots, slot);
            }
            return;
        }
        if result < 0 {
            if slots.take(slot, Fact::Receiving) {
                self.ready.push(Completion::Failed {
                    token,
                    errno: -result,
                });
            }
            return;
        }
        if ends {
            self.unwatched.push(Attempt { socket, token });
        }
        if result & ENDED != 0 {
            slots.set(slot, Fact::Ended);
        }
        self.readable.push(slots, socket, token);
    }

    /// A request of a closed socket has ended.
    fn vacate(&mut self, table: usize, slots: &Slots, slot: u32) {
        if slots.is_vacant(slot) {
            self.vacated.push(Socket::new(table, slot));
        }
    }

    fn complete_listener(&mut self, tag: Tag, cqe: &Cqe) {
        if tag.index() != self.door.watch {
            return;
        }
        self.door.crowded = true;
        if !cqueue::more(cqe.flags()) {
            self.door.watched = false;
        }
    }

    fn complete_accept(&mut self, table: usize, slots: &mut Slots, tag: Tag, result: i32) {
        let socket = Socket::new(table, tag.slot());
        if result >= 0 {
            slots.open(tag.slot());
            self.door.accepted = true;
            self.ready.push(Completion::Accepted { socket });
            return;
        }
        self.unfilled.push(socket);
        if result == -libc::EAGAIN {
            self.door.found_nobody = true;
        } else if super::super::gate::is_shortage(-result) {
            self.door.shortage = Some(-result);
        }
    }

    fn complete_connect(&mut self, table: usize, slots: &mut Slots, tag: Tag, result: i32) {
        let attempt = Attempt {
            socket: Socket::new(table, tag.slot()),
            token: tag.token(),
        };
        let failed_step = self
            .failed_steps
            .iter()
            .position(|(failed, _)| *failed == attempt);
        let step_errno = failed_step.map(|place| self.failed_steps.swap_remove(place).1);
        slots.take(tag.slot(), Fact::Connecting);
        if !slots.is(tag.slot(), Fact::Open) {
            // Closed meanwhile: nobody wants to hear of it any more.
            self.vacate(table, slots, tag.slot());
            return;
        }
        let errno = step_errno.or((result < 0).then_some(-result));
        match errno {
            None => self.ready.push(Completion::Connected {
                token: attempt.token,
            }),
            Some(errno) => {
                self.failed_connects.push(attempt);
                self.ready.push(Completion::ConnectFailed {
                    token: attempt.token,
                    errno,
                });
            }
        }
    }
}
