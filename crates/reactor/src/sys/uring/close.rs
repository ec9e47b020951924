//! Shutdown, close and transfer of a socket.

use super::super::slots::{Epoch, SlotFlag};
use super::Uring;
use crate::{Close, Socket, Token};
use rustix::io::Errno;
use rustix::net::Shutdown;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// Maximum number of descriptors installed at the same time for shutdowns.
const SHUTDOWNS_PER_BATCH: usize = 64;

/// Maximum number of enters until the cancelled poll's task work has run: a busy ring may have other task work first,
/// and the kernel runs about twenty pieces per enter.
const PUMPS_AFTER_TRANSFER: u32 = 16;

/// A requested shutdown.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingShutdown {
    socket: Socket,
    /// Tells whether the socket was closed in the same turn. The close then sends FIN by itself.
    epoch: Epoch,
}

impl Uring {
    pub(super) fn queue_shutdown(&mut self, socket: Socket) {
        if let Some(ring) = self.ring_of(socket) {
            let epoch = ring.slots.epoch(socket.slot());
            self.shutdowns.push(PendingShutdown { socket, epoch });
        }
    }

    /// Makes the requested shutdowns, by `shutdown(2)` on ordinary descriptors that are installed for a moment.
    ///
    /// The kernel would give every `IORING_OP_SHUTDOWN` to a worker thread. There it costs several times as much as the
    /// system call, and it may run after a later close.
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
                // An error means that the connection is already broken.
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

    /// Queues the close. It runs in order, together with others, in one of the next kernel entries.
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
        // The cancelled poll holds the socket until its task work has run. Without this loop, a close by the new owner
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

/// Ordinary descriptors made from direct ones. Each request has its own number, so a late result is never taken for
/// that of another request.
#[derive(Debug, Default)]
pub(super) struct Installs {
    next: u32,
    made: Vec<(u32, Result<OwnedFd, Errno>)>,
}

impl Installs {
    /// Reserves `count` numbers and returns the first. Closes descriptors that were never taken.
    pub(super) fn begin(&mut self, count: usize) -> u32 {
        self.made.clear();
        let count = u32::try_from(count).expect("installs are few");
        // Start again at 0 before the numbers overflow, never within one round. Old results are long gone by then.
        let first = if self.next.checked_add(count).is_some() {
            self.next
        } else {
            0
        };
        self.next = first + count;
        first
    }

    /// Records the result of an `IORING_OP_FIXED_FD_INSTALL`.
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
