//! The ends of a socket: half, whole, and given away.

use super::super::slots::{Epoch, Fact};
use super::Uring;
use crate::{Close, Socket, Token};
use rustix::io::Errno;
use rustix::net::Shutdown;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// Descriptors installed at once for shutdowns.
const STOPS_AT_ONCE: usize = 64;

/// A shutdown asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stop {
    socket: Socket,
    /// Guards against a close in the same turn, which sends FIN by itself.
    epoch: Epoch,
}

impl Uring {
    pub(super) fn queue_shutdown(&mut self, socket: Socket) {
        if let Some(ring) = self.ring_of(socket) {
            let epoch = ring.slots.epoch(socket.slot());
            self.shutdowns.push(Stop { socket, epoch });
        }
    }

    /// Shuts down those that asked for it.
    ///
    /// The kernel gives every `IORING_OP_SHUTDOWN` to a worker thread, where it costs several times the
    /// system call and may run after a later close. So ordinary descriptors are installed for a moment.
    pub(super) fn flush_shutdowns(&mut self) {
        let mut stops = std::mem::take(&mut self.shutdowns);
        for some in stops.chunks(STOPS_AT_ONCE) {
            self.shutdown_some(some);
        }
        stops.clear();
        self.shutdowns = stops;
    }

    fn shutdown_some(&mut self, stops: &[Stop]) {
        for (place, stop) in (0..).zip(stops) {
            let (table, slot) = (stop.socket.table(), stop.socket.slot());
            let ring = &mut self.rings[table];
            if !ring.slots.is(slot, Fact::Open) || ring.slots.epoch(slot) != stop.epoch {
                continue;
            }
            ring.install(slot, place);
            if !self.touched.contains(&table) {
                self.touched.push(table);
            }
        }
        while let Some(table) = self.touched.pop() {
            let _ = self.rings[table].submit(&mut self.state);
        }
        while let Some((place, result)) = self.state.installed.pop() {
            if let Some(fd) = installed(result) {
                // A connection that is gone already has nothing to shut down.
                let _ = rustix::net::shutdown(&fd, Shutdown::Write);
            } else if let Some(stop) = stops.get(place as usize) {
                self.rings[stop.socket.table()].shutdown(stop.socket.slot());
            }
        }
    }

    /// Queues the end; it happens in order, with many others, in one of the next kernel entries.
    pub(super) fn close_socket(&mut self, socket: Socket, token: Token, how: Close) {
        let slot = socket.slot();
        let Some(ring) = self.ring_of(socket) else {
            return;
        };
        ring.cancel_all(slot, token);
        if how == Close::Reset {
            ring.linger_not(slot);
        }
        ring.close_slot(slot);
        ring.slots.close(slot);
        ring.retire(slot);
    }

    pub(super) fn transfer_socket(&mut self, socket: Socket, token: Token) -> io::Result<OwnedFd> {
        self.flush_shutdowns();
        let slot = socket.slot();
        let ring = self.ring_of(socket).ok_or(Errno::BADF)?;
        ring.cancel_all(slot, token);
        ring.install(slot, 0);
        ring.close_slot(slot);
        ring.slots.close(slot);
        ring.retire(slot);
        let submitted = self.rings[socket.table()].submit(&mut self.state);
        let result = self.state.installed.pop();
        submitted?;
        let (_, result) = result.ok_or(Errno::AGAIN)?;
        installed(result).ok_or_else(|| io::Error::from_raw_os_error(result.wrapping_neg()))
    }
}

/// The descriptor of an `IORING_OP_FIXED_FD_INSTALL`'s result.
pub(super) fn installed(result: i32) -> Option<OwnedFd> {
    // SAFETY: a result that is not negative is a descriptor that the kernel has just made for us.
    (result >= 0).then(|| unsafe { OwnedFd::from_raw_fd(result) })
}
