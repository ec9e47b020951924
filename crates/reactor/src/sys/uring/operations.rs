//! The operations the driver makes on a ring, each one or a few submission entries.

use super::super::slots::SlotFlag;
use super::super::tag::{EventKind, Tag};
use super::ring::Ring;
use super::state::State;
use crate::Token;
use io_uring::opcode;
use io_uring::squeue::{Entry, Flags};
use io_uring::types::{CancelBuilder, DestinationSlot, Fd, Fixed};
use rustix::io::Errno;
use socket2::SockAddr;
use std::os::fd::RawFd;

/// Events a socket is watched for. Errors and hang-ups are always reported.
const READABLE: u32 = (libc::POLLIN | libc::POLLRDHUP) as u32;
const WRITABLE: u32 = libc::POLLOUT as u32;

/// `IORING_ACCEPT_DONTWAIT` (6.10): an accept with nobody at the door fails with EAGAIN at once.
const ACCEPT_DONTWAIT: u16 = 1 << 1;

/// SO_LINGER on with no time: closing sends RST.
static LINGER_ZERO: libc::linger = libc::linger {
    l_onoff: 1,
    l_linger: 0,
};
static ON: libc::c_int = 1;

/// The two ends of an outgoing connection, as the kernel reads them.
pub(super) struct Addresses {
    pub(super) source: Option<SockAddr>,
    pub(super) target: SockAddr,
}

/// The operations. All of them but sends, receives and connects borrow nothing.
impl Ring {
    /// Empties a slot: cancels what is armed for its socket, and closes that, in this order, because an armed
    /// request keeps the socket open, and the peer would see no FIN.
    pub(super) fn cancel_and_close(&mut self, slot: u32, token: Token) {
        self.cancel_all(slot, token);
        self.push(ignoring_result(opcode::Close::new(Fixed(slot)).build()));
        self.slots.close_keeping_armed(slot);
        if self.slots.is_vacant(slot) {
            self.vacate(slot);
        }
        // Otherwise the last completion of what was cancelled vacates it.
    }

    /// Watches a socket for input until cancelled.
    pub(super) fn watch(&mut self, slot: u32, token: Token) {
        self.slots.set(slot, SlotFlag::Watched);
        let tag = Tag::new(EventKind::Readable, slot, token);
        self.push(
            opcode::PollAdd::new(Fixed(slot), READABLE)
                .multi(true)
                .build()
                .user_data(tag.to_bits()),
        );
    }

    /// Watches a socket for room, once.
    pub(super) fn watch_writable(&mut self, slot: u32, token: Token) {
        let tag = Tag::new(EventKind::Writable, slot, token);
        self.push(
            opcode::PollAdd::new(Fixed(slot), WRITABLE)
                .build()
                .user_data(tag.to_bits()),
        );
    }

    /// Watches the listener until cancelled.
    pub(super) fn watch_listener(&mut self, listener: RawFd, tag: Tag) {
        self.push(
            opcode::PollAdd::new(Fd(listener), READABLE)
                .multi(true)
                .build()
                .user_data(tag.to_bits()),
        );
    }

    /// Cancels the request with that tag; it completes with ECANCELED, if it is still there.
    ///
    /// Not `POLL_REMOVE`, which gives up with EALREADY on a poll that is firing right now.
    pub(super) fn cancel(&mut self, tag: Tag) {
        self.push(ignoring_result(
            opcode::AsyncCancel2::new(CancelBuilder::user_data(tag.to_bits())).build(),
        ));
    }

    /// Cancels whatever is armed for the socket, by the facts known of its slot.
    fn cancel_all(&mut self, slot: u32, token: Token) {
        for (flag, kind) in [
            (SlotFlag::Watched, EventKind::Readable),
            (SlotFlag::WantsWritable, EventKind::Writable),
            (SlotFlag::Connecting, EventKind::Connect),
        ] {
            if self.slots.has(slot, flag) {
                self.cancel(Tag::new(kind, slot, token));
            }
        }
    }

    /// Makes closing the socket send RST.
    pub(super) fn set_linger_zero(&mut self, slot: u32) {
        let value = (&raw const LINGER_ZERO).cast();
        let size = u32::try_from(size_of::<libc::linger>()).expect("8 bytes");
        let (level, name) = (
            libc::SOL_SOCKET.cast_unsigned(),
            libc::SO_LINGER.cast_unsigned(),
        );
        self.push(ignoring_result(
            opcode::SetSockOpt::new(Fixed(slot), level, name, value, size).build(),
        ));
    }

    /// Installs an ordinary descriptor, close-on-exec, for the socket in the slot (Linux 6.8).
    pub(super) fn install(&mut self, slot: u32, index: u32) {
        let tag = Tag::plain(EventKind::Install, index);
        self.push(
            opcode::FixedFdInstall::new(Fixed(slot), 0)
                .build()
                .user_data(tag.to_bits()),
        );
    }

    /// `shutdown(SHUT_WR)` by a kernel thread, which is where the kernel always runs this operation.
    pub(super) fn shutdown(&mut self, slot: u32) {
        self.push(ignoring_result(
            opcode::Shutdown::new(Fixed(slot), libc::SHUT_WR).build(),
        ));
    }

    /// Accepts one connection, if there is one, into the slot.
    pub(super) fn accept_one(&mut self, listener: RawFd, slot: u32) {
        let destination = DestinationSlot::try_from_slot_target(slot).expect("slots have 20 bits");
        let tag = Tag::new(
            EventKind::Accepted,
            slot,
            Token {
                index: 0,
                generation: 0,
            },
        );
        let mut entry =
            opcode::Accept::new(Fd(listener), std::ptr::null_mut(), std::ptr::null_mut())
                .file_index(Some(destination))
                .flags(libc::SOCK_NONBLOCK)
                .build()
                .user_data(tag.to_bits());
        set_priority(&mut entry, ACCEPT_DONTWAIT);
        self.push(entry);
    }

    /// Queues making, binding and connecting a socket, each step counting on the one before.
    ///
    /// The first steps speak only when they fail; the last always does.
    ///
    /// # Safety
    /// `addresses` lives until the entries are submitted or voided.
    pub(super) unsafe fn connect(
        &mut self,
        slot: u32,
        token: Token,
        addresses: &Addresses,
        state: &mut State,
    ) -> Result<(), Errno> {
        let prepare = Tag::new(EventKind::Prepare, slot, token).to_bits();
        let destination = DestinationSlot::try_from_slot_target(slot).expect("slots have 20 bits");
        let family = i32::from(addresses.target.family());
        let make = opcode::Socket::new(
            family,
            libc::SOCK_STREAM | libc::SOCK_NONBLOCK,
            libc::IPPROTO_TCP,
        )
        .file_index(Some(destination));
        let mut step = |entry: Entry| {
            let entry = entry.flags(Flags::SKIP_SUCCESS).user_data(prepare);
            // SAFETY: the addresses live as the caller promises; the options are statics.
            unsafe { self.push_borrowing(&entry, state) }
        };
        step(make.build())?;
        step(option(slot, libc::IPPROTO_TCP, libc::TCP_NODELAY))?;
        if let Some(source) = &addresses.source {
            // See `outgoing::open` for why the port is left to the connect.
            step(option(
                slot,
                libc::IPPROTO_IP,
                libc::IP_BIND_ADDRESS_NO_PORT,
            ))?;
            step(opcode::Bind::new(Fixed(slot), source.as_ptr().cast(), source.len()).build())?;
        }
        let target = &addresses.target;
        let connect = opcode::Connect::new(Fixed(slot), target.as_ptr().cast(), target.len())
            .build()
            .user_data(Tag::new(EventKind::Connect, slot, token).to_bits());
        // SAFETY: as above.
        unsafe { self.push_borrowing(&connect, state) }
    }
}

/// An entry nobody waits for: silent unless it fails, and then ignored, because the socket is gone.
fn ignoring_result(entry: Entry) -> Entry {
    entry
        .flags(Flags::SKIP_SUCCESS)
        .user_data(Tag::plain(EventKind::Ignored, 0).to_bits())
}

/// Turns a socket option on.
fn option(slot: u32, level: libc::c_int, name: libc::c_int) -> Entry {
    let size = u32::try_from(size_of_val(&ON)).expect("an int's size is small");
    opcode::SetSockOpt::new(
        Fixed(slot),
        level.cast_unsigned(),
        name.cast_unsigned(),
        (&raw const ON).cast(),
        size,
    )
    .build()
}

/// Writes `ioprio`, where operations on sockets have flags of their own, for those the crate gives no setter.
fn set_priority(entry: &mut Entry, flags: u16) {
    const { assert!(size_of::<Entry>() == 64) };
    // SAFETY: an entry is the kernel's `io_uring_sqe` and nothing else; `ioprio` is its second u16
    // (`linux/io_uring.h`), and any value of it is valid.
    unsafe { (&raw mut *entry).cast::<u16>().add(1).write(flags) };
}
