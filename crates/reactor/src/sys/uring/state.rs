//! The state that completions change. Nothing here touches a ring, so completions can be handled at any point: in a
//! wait, or between the submissions of a batch of sends.

use super::super::readable::ReadableQueue;
use super::super::slots::{SlotFlag, SlotTable};
use super::super::tag::{EventKind, Tag};
use super::close::Installs;
use crate::{Completion, Socket, Token};
use io_uring::cqueue::{self, Entry as Cqe};

/// Poll events after which the driver must receive until the end or an error.
const ENDED: i32 = (libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR) as i32;

/// The result of one receive of a batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReceiveResult {
    /// Number of bytes, or a negative errno.
    pub(super) result: i32,
    /// The kernel reports more input.
    pub(super) more: bool,
}

/// The state of a listener's poll, and the outcome of its accepts.
#[derive(Debug, Default)]
pub(super) struct ListenerState {
    /// Number of the current poll. Completions of earlier polls are stale.
    pub(super) poll_id: u32,
    pub(super) poll_armed: bool,
    /// A connection waits, as far as the driver knows.
    pub(super) has_pending: bool,
    /// An accept found no waiting connection.
    pub(super) found_none: bool,
}

/// A socket and the token of its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NamedSocket {
    pub(super) socket: Socket,
    pub(super) token: Token,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// Completions that the next wait reports.
    pub(super) ready: Vec<Completion>,
    pub(super) readable: ReadableQueue,
    /// By number of the listener.
    pub(super) listeners: Vec<ListenerState>,
    /// The errno of the last accept, if descriptors or memory were short.
    pub(super) shortage: Option<i32>,
    /// A connection was accepted since the driver last looked.
    pub(super) accepted: bool,
    /// Open sockets whose poll has ended and must be armed again. A poll ends when completions overflow.
    pub(super) unwatched: Vec<NamedSocket>,
    /// Closed sockets whose last request has ended: their slots may be reused.
    pub(super) vacated: Vec<Socket>,
    /// Slots reserved for an accept that failed.
    pub(super) unfilled: Vec<Socket>,
    /// Connects that failed, whose sockets must be closed.
    pub(super) failed_connects: Vec<NamedSocket>,
    /// Failed steps before a connect, kept until the connect itself completes.
    failed_steps: Vec<(NamedSocket, i32)>,
    /// Incomplete sends of the running batch: index in the batch, and number of bytes or negative errno.
    pub(super) sends: Vec<(u32, i32)>,
    /// Receives of the running batch, by index.
    pub(super) receives: Vec<Option<ReceiveResult>>,
    /// Sizes of the addresses of the running batch, by index; negative errnos where there is none.
    pub(super) peer_addresses: Vec<i32>,
    pub(super) installs: Installs,
}

impl State {
    pub(super) fn with_listeners(count: usize) -> Self {
        Self {
            listeners: std::iter::repeat_with(ListenerState::default)
                .take(count)
                .collect(),
            ..Self::default()
        }
    }

    pub(super) fn complete(&mut self, table: usize, slots: &mut SlotTable, cqe: &Cqe) {
        let tag = Tag::from_bits(cqe.user_data());
        let result = cqe.result();
        match tag.kind() {
            EventKind::Send => self.sends.push((tag.index(), result)),
            EventKind::Receive => {
                let receive = ReceiveResult {
                    result,
                    more: cqueue::sock_nonempty(cqe.flags()),
                };
                if let Some(index) = self.receives.get_mut(tag.index() as usize) {
                    *index = Some(receive);
                }
            }
            EventKind::Readable => self.complete_poll(table, slots, tag, cqe),
            EventKind::Writable => {
                slots.take(tag.slot(), SlotFlag::WantsWritable);
                if slots.has(tag.slot(), SlotFlag::Open) {
                    self.ready.push(Completion::Writable { token: tag.token() });
                } else {
                    self.vacate(table, slots, tag.slot());
                }
            }
            EventKind::Listener => self.complete_listener(tag, cqe),
            EventKind::Accepted => self.complete_accept(table, slots, tag, result),
            EventKind::Prepare => {
                let attempt = NamedSocket {
                    socket: Socket::new(table, tag.slot()),
                    token: tag.token(),
                };
                // Keep only the first failure: the later ones follow from it.
                if !self
                    .failed_steps
                    .iter()
                    .any(|(failed, _)| *failed == attempt)
                {
                    self.failed_steps.push((attempt, -result));
                }
            }
            EventKind::Connect => self.complete_connect(table, slots, tag, result),
            EventKind::PeerAddress => {
                if let Some(length) = self.peer_addresses.get_mut(tag.index() as usize) {
                    *length = result;
                }
            }
            EventKind::Install => self.installs.complete(tag.index(), result),
            EventKind::Ignored | EventKind::Wake => {}
        }
    }

    fn complete_poll(&mut self, table: usize, slots: &mut SlotTable, tag: Tag, cqe: &Cqe) {
        let (slot, token, result) = (tag.slot(), tag.token(), cqe.result());
        let socket = Socket::new(table, slot);
        let ends = !cqueue::more(cqe.flags());
        if ends {
            slots.take(slot, SlotFlag::Watched);
        }
        if !slots.has(slot, SlotFlag::Open) {
            if ends {
                self.vacate(table, slots, slot);
            }
            return;
        }
        if result < 0 {
            slots.resume(slot);
            if slots.take(slot, SlotFlag::Receiving) {
                self.ready.push(Completion::Failed {
                    token,
                    errno: -result,
                });
            }
            return;
        }
        if ends {
            self.unwatched.push(NamedSocket { socket, token });
        }
        if result & ENDED != 0 {
            slots.resume(slot);
            slots.set(slot, SlotFlag::Ended);
        }
        self.readable.push(slots, socket, token);
    }

    /// A request of a closed socket has ended.
    fn vacate(&mut self, table: usize, slots: &SlotTable, slot: u32) {
        if slots.is_vacant(slot) {
            self.vacated.push(Socket::new(table, slot));
        }
    }

    fn complete_listener(&mut self, tag: Tag, cqe: &Cqe) {
        let listener = self.listeners.get_mut(tag.slot() as usize);
        let Some(listener) = listener.filter(|listener| tag.index() == listener.poll_id) else {
            return;
        };
        listener.has_pending = true;
        if !cqueue::more(cqe.flags()) {
            listener.poll_armed = false;
        }
    }

    fn complete_accept(&mut self, table: usize, slots: &mut SlotTable, tag: Tag, result: i32) {
        let socket = Socket::new(table, tag.slot());
        if result >= 0 {
            slots.open(tag.slot());
            self.accepted = true;
            let listener = u8::try_from(tag.index()).expect("listeners are few");
            self.ready.push(Completion::Accepted { socket, listener });
            return;
        }
        self.unfilled.push(socket);
        if result == -libc::EAGAIN {
            if let Some(listener) = self.listeners.get_mut(tag.index() as usize) {
                listener.found_none = true;
            }
        } else if super::super::accept_throttle::is_shortage(-result) {
            self.shortage = Some(-result);
        }
    }

    fn complete_connect(&mut self, table: usize, slots: &mut SlotTable, tag: Tag, result: i32) {
        let attempt = NamedSocket {
            socket: Socket::new(table, tag.slot()),
            token: tag.token(),
        };
        let failed_step = self
            .failed_steps
            .iter()
            .position(|(failed, _)| *failed == attempt);
        let step_errno = failed_step.map(|index| self.failed_steps.swap_remove(index).1);
        slots.take(tag.slot(), SlotFlag::Connecting);
        if !slots.has(tag.slot(), SlotFlag::Open) {
            // The socket was closed meanwhile: do not report the outcome.
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
