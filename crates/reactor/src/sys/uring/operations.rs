//! The driver's operations on a ring. Each makes one or a few submission entries.

use super::super::deaf;
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

/// Poll events. The kernel always reports errors and hang-ups too.
const READABLE: u32 = (libc::POLLIN | libc::POLLRDHUP) as u32;
const WRITABLE: u32 = libc::POLLOUT as u32;

/// `IORING_ACCEPT_DONTWAIT` (Linux 6.10): without a waiting connection, an accept fails with EAGAIN at once.
const ACCEPT_DONTWAIT: u16 = 1 << 1;

/// The command of `IORING_OP_URING_CMD` that reads a socket option (Linux 6.7). Its fields are those of the command that sets one.
const SOCKET_URING_OP_GETSOCKOPT: u32 = 2;

/// SO_LINGER with a time of zero: closing sends RST.
static LINGER_ZERO: libc::linger = libc::linger {
    l_onoff: 1,
    l_linger: 0,
};
static ON: libc::c_int = 1;
static OFF: libc::c_int = 0;

/// An outgoing connection: source and target, as the kernel reads them.
pub(super) struct Addresses {
    pub(super) source: Option<SockAddr>,
    pub(super) target: SockAddr,
    /// As in `Setup`.
    pub(super) speaks_first: bool,
}

/// The operations. Only sends, receives and connects borrow memory.
impl Ring {
    /// Cancels all requests that are armed for a socket, then closes it. In this order, because an armed request keeps
    /// the socket open, and the peer would see no FIN.
    pub(super) fn cancel_and_close(&mut self, slot: u32, token: Token) {
        self.cancel_all(slot, token);
        self.push(ignoring_result(opcode::Close::new(Fixed(slot)).build()));
        self.slots.close_keeping_armed(slot);
        if self.slots.is_vacant(slot) {
            self.vacate(slot);
        }
        // Otherwise the last completion of the cancelled requests vacates the slot.
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

    /// Cancels the request with this tag. It completes with ECANCELED, unless it has completed already.
    ///
    /// `POLL_REMOVE` would not do: it fails with EALREADY on a poll that is just firing.
    pub(super) fn cancel(&mut self, tag: Tag) {
        self.push(ignoring_result(
            opcode::AsyncCancel2::new(CancelBuilder::user_data(tag.to_bits())).build(),
        ));
    }

    /// Cancels all requests that are armed for the socket, as the flags of its slot say.
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

    /// Lets nothing through but the end of the connection.
    pub(super) fn deafen(&mut self, slot: u32) {
        let value = (&raw const deaf::PROGRAM).cast();
        let size = u32::try_from(size_of::<libc::sock_fprog>()).expect("16 bytes");
        let (level, name) = (
            libc::SOL_SOCKET.cast_unsigned(),
            libc::SO_ATTACH_FILTER.cast_unsigned(),
        );
        self.push(ignoring_result(
            opcode::SetSockOpt::new(Fixed(slot), level, name, value, size).build(),
        ));
    }

    /// Makes an ordinary descriptor, close-on-exec, of the socket in the slot (Linux 6.8).
    pub(super) fn install(&mut self, slot: u32, index: u32) {
        let tag = Tag::plain(EventKind::Install, index);
        self.push(
            opcode::FixedFdInstall::new(Fixed(slot), 0)
                .build()
                .user_data(tag.to_bits()),
        );
    }

    /// `shutdown(SHUT_WR)`. The kernel always runs this operation on a worker thread.
    pub(super) fn shutdown(&mut self, slot: u32) {
        self.push(ignoring_result(
            opcode::Shutdown::new(Fixed(slot), libc::SHUT_WR).build(),
        ));
    }

    /// Accepts one connection into the slot, if one waits at the listener of that number.
    pub(super) fn accept_one(&mut self, listener: RawFd, number: u32, slot: u32) {
        let destination = DestinationSlot::try_from_slot_target(slot).expect("slots have 20 bits");
        let tag = Tag::new(
            EventKind::Accepted,
            slot,
            Token {
                index: number,
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

    /// Queues the steps of a connection: make a socket, bind it, connect it.
    ///
    /// Only the last step always posts a completion; the steps before it post one only if they fail.
    ///
    /// # Safety
    /// `addresses` lives until the entries are submitted or discarded.
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
        step(option(slot, libc::IPPROTO_TCP, libc::TCP_NODELAY, &ON))?;
        if addresses.speaks_first {
            // See `outgoing::open` for what this saves.
            step(option(slot, libc::IPPROTO_TCP, libc::TCP_QUICKACK, &OFF))?;
        }
        if let Some(source) = &addresses.source {
            // See `outgoing::open` for why the port is left to the connect.
            step(option(
                slot,
                libc::IPPROTO_IP,
                libc::IP_BIND_ADDRESS_NO_PORT,
                &ON,
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

/// An entry that writes the address of a socket's peer to `buffer`, and completes with the number of bytes.
pub(super) fn peer_address(slot: u32, buffer: &mut [u8]) -> Entry {
    let size = u32::try_from(buffer.len()).expect("an address is small");
    let mut entry = opcode::SetSockOpt::new(
        Fixed(slot),
        libc::SOL_SOCKET.cast_unsigned(),
        libc::SO_PEERNAME.cast_unsigned(),
        buffer.as_mut_ptr().cast_const().cast(),
        size,
    )
    .build();
    set_command(&mut entry, SOCKET_URING_OP_GETSOCKOPT);
    entry
}

/// An entry whose outcome is ignored. It posts a completion only if it fails, which means that the socket is gone.
fn ignoring_result(entry: Entry) -> Entry {
    entry
        .flags(Flags::SKIP_SUCCESS)
        .user_data(Tag::plain(EventKind::Ignored, 0).to_bits())
}

/// Turns a socket option on or off.
fn option(slot: u32, level: libc::c_int, name: libc::c_int, value: &'static libc::c_int) -> Entry {
    let size = u32::try_from(size_of_val(value)).expect("an int's size is small");
    opcode::SetSockOpt::new(
        Fixed(slot),
        level.cast_unsigned(),
        name.cast_unsigned(),
        std::ptr::from_ref(value).cast(),
        size,
    )
    .build()
}

/// Writes `ioprio`, the field for flags of socket operations, because the crate has no setter for this flag.
fn set_priority(entry: &mut Entry, flags: u16) {
    const { assert!(size_of::<Entry>() == 64) };
    // SAFETY: an entry is the kernel's `io_uring_sqe` and nothing else; `ioprio` is its second u16
    // (`linux/io_uring.h`), and any value of it is valid.
    unsafe { (&raw mut *entry).cast::<u16>().add(1).write(flags) };
}

/// Writes `cmd_op`, the command of `IORING_OP_URING_CMD`, because the crate only makes the one that sets an option.
fn set_command(entry: &mut Entry, command: u32) {
    const { assert!(size_of::<Entry>() == 64) };
    // SAFETY: an entry is the kernel's `io_uring_sqe` and nothing else; `cmd_op` is its third u32 (`linux/io_uring.h`),
    // and any value of it is valid.
    unsafe { (&raw mut *entry).cast::<u32>().add(2).write(command) };
}
