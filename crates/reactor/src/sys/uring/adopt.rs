//! Taking in a socket that has an ordinary descriptor.

use super::Uring;
use crate::Socket;
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

impl Uring {
    /// Puts the socket into a table. The caller then closes the descriptor, and the table alone holds the socket.
    ///
    /// The kernel fills the slot at once, not in the order of the queue. The close of the slot's former socket may still be
    /// queued, and would close the new one. So everything queued is submitted first.
    pub(super) fn adopt_descriptor(&mut self, descriptor: &OwnedFd) -> io::Result<Socket> {
        let table = self.table_with_room()?;
        let ring = &mut self.rings[table];
        ring.submit_all(&mut self.state)?;
        let slot = ring.reserve().ok_or(Errno::MFILE)?;
        if let Err(error) = ring.register_descriptor(slot, descriptor.as_fd()) {
            ring.unreserve(slot);
            return Err(error);
        }
        ring.slots.open(slot);
        Ok(Socket::new(table, slot))
    }
}
