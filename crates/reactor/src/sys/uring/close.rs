//! The ends of a socket: half, whole, and given away.

use super::super::slots::{Epoch, SlotFlag};
use super::Uring;
use crate::{Close, Socket, Token};
use rustix::io::Errno;
use rustix::net::Shutdown;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// Descriptors installed at once for shutdowns.
const SHUTDOWNS_PER_BATCH: usize = 64;

/// Task work of a busy ring may stand before that of the cancelled poll, twenty pieces per enter.
const PUMPS_AFTER_TRANSFER: u32 = 16;

/// A shutdown asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingShutdown {
    socket: Socket,
    /// Guards against a close in the same turn, which sends FIN by itself.
    epoch: Epoch,
}

impl Uring {
    pub(super) fn queue_shutdown(&mut self, socket: Socket) {
        if let Some(ring) = self.ring_of(socket) {
            let epoch = ring.slots.epoch(socket.slot());
            self.shutdowns.push(PendingShutdown { socket, epoch });
        }
    }

    /// Shuts down those that asked for it.
    ///
    /// The kernel gives every `IORING_OP_SHUTDOWN` to a worker thread, where it costs several times the
    /// system call and may run after a later close. So ordinary descriptors are installed for a moment.
    pub(super) fn flush_shutdowns(&mut self) {
        let mut stops = std::mem::take(&mut self.shutdowns);
        for some in stops.chunks(SHUTDOWNS_PER_BATCH) {
            self.shutdown_some(some);
        }
        stops.clear();
        self.shutdowns = stops;
    }

    fn shutdown_some(&mut self, stops: &[PendingShutdown]) {
        let first = self.state.installs.begin(stops.len());
        for (number, stop) in (first..).zip(stops) {
            let (table, slot) = (stop.socket.table(), stop.socket.slot());
            let ring = &mut self.rings[table];
            if !ring.slots.has(slot, SlotFlag::Open) || ring.slots.epoch(slot) != stop.epoch {
                continue;
            }
            ring.install(slot, number);
            if !self.batch_tables.contains(&table) {
                self.batch_tables.push(table);
            }
        }
        while let Some(table) = self.batch_tables.pop() {
            let _ = self.rings[table].submit(&mut self.state);
        }
        for (number, stop) in (first..).zip(stops) {
            match self.state.installs.take(number) {
                // A connection that is gone already has nothing to shut down.
                Some(Ok(fd)) => drop(rustix::net::shutdown(&fd, Shutdown::Write)),
                Some(Err(_)) => {
                    if let Some(ring) = self.ring_of(stop.socket) {
                        ring.shutdown(stop.socket.slot());
                    }
                }
                None => {}
            }
        }
    }

    /// Queues the end; it happens in order, with many others, in one of the next kernel entries.
    pub(super) fn close_socket(&mut self, socket: Socket, token: Token, how: Close) {
        let slot = socket.slot();
        let Some(ring) = self.ring_of(socket) else {
            return;
        };
        if how == Close::Reset {
            ring.set_linger_zero(slot);
        }
        ring.cancel_and_close(slot, token);
    }

    pub(super) fn transfer_socket(&mut self, socket: Socket, token: Token) -> io::Result<OwnedFd> {
        self.flush_shutdowns();
        let slot = socket.slot();
        let number = self.state.installs.begin(1);
        let ring = self.ring_of(socket).ok_or(Errno::BADF)?;
        ring.install(slot, number);
        ring.cancel_and_close(slot, token);
        let ring = &mut self.rings[socket.table()];
        let submitted = ring.submit(&mut self.state);
        // The cancelled poll holds on to the socket until its task work has run: the new owner's close
        // would send no FIN before this thread's next wait.
        let mut tries = 0;
        while ring.needs_enter() && tries < PUMPS_AFTER_TRANSFER {
            ring.pump(&mut self.state)?;
            tries += 1;
        }
        let result = self.state.installs.take(number);
        submitted?;
        Ok(result.ok_or(Errno::AGAIN)??)
    }
}

/// Descriptors made from sockets in slots, each known by a number of its own: one that the kernel was late
/// to make must not be taken for another.
#[derive(Debug, Default)]
pub(super) struct Installs {
    next: u32,
    made: Vec<(u32, Result<OwnedFd, Errno>)>,
}

impl Installs {
    /// The first of `count` numbers. Whatever nobody has taken is closed.
    pub(super) fn begin(&mut self, count: usize) -> u32 {
        self.made.clear();
        let count = u32::try_from(count).expect("installs are few");
        // Wraps long after everything of the former round is gone, and never within a round.
        let first = if self.next.checked_add(count).is_some() {
            self.next
        } else {
            0
        };
        self.next = first + count;
        first
    }

    /// Takes in the result of an `IORING_OP_FIXED_FD_INSTALL`.
    pub(super) fn complete(&mut self, number: u32, result: i32) {
        let outcome = if result < 0 {
            Err(Errno::from_raw_os_error(result.wrapping_neg()))
        } else {
            // SAFETY: the kernel has just made this descriptor for us.
            Ok(unsafe { OwnedFd::from_raw_fd(result) })
        };
        self.made.push((number, outcome));
    }

    pub(super) fn take(&mut self, number: u32) -> Option<Result<OwnedFd, Errno>> {
        let index = self.made.iter().position(|(made, _)| *made == number)?;
        Some(self.made.swap_remove(index).1)
    }
}
