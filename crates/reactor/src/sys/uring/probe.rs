//! Checks whether the driver works here: uses every flag and operation once, on a small ring.

use super::queues::QueueSizes;
use super::ring::Ring;
use super::state::State;
use crate::Token;
use crate::sys::slots::SlotFlag;
use crate::sys::{Waker, listen};
use io_uring::opcode;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, socketpair};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

const TOKEN: Token = Token {
    index: 0,
    generation: 0,
};
// Slots of the trial ring: for a socket that stays open, for one that is closed, and for an accept.
const KEPT_SLOT: u32 = 0;
const CLOSED_SLOT: u32 = 1;
const ACCEPT_SLOT: u32 = 2;

/// Tries everything. The error is a sentence that names what is missing.
pub(in super::super) fn probe() -> Result<(), String> {
    let waker = Waker::new().map_err(|error| format!("no eventfd: {error}"))?;
    let eventfd = waker.fd().map_err(|error| error.to_string())?;
    let sizes = QueueSizes {
        submissions: 16,
        completions: 32,
    };
    let mut ring = Ring::new(0, 8, eventfd, sizes).map_err(|error| explain_setup(&error))?;
    require_operations(&ring)?;
    let mut state = State::with_listeners(1);
    accepts_without_waiting(&mut ring, &mut state)?;
    installs_and_closes(&mut ring, &mut state)
}

fn explain_setup(error: &io::Error) -> String {
    let release = rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned();
    match error.raw_os_error() {
        Some(libc::ENOSYS) => format!("this kernel ({release}) is built without io_uring, or a seccomp filter hides it (ENOSYS)"),
        Some(libc::EPERM | libc::EACCES) => match disabled_sysctl().as_deref() {
            Some("2") => "the sysctl kernel.io_uring_disabled is 2: no process may use io_uring".into(),
            Some("1") => "the sysctl kernel.io_uring_disabled is 1: only members of kernel.io_uring_group may use io_uring".into(),
            _ => format!("a seccomp filter or security module forbids io_uring ({error}); container runtimes do so by default"),
        },
        Some(libc::EINVAL) => format!("this kernel ({release}) does not know the flags needed; Linux 6.13 or later does"),
        _ => format!("io_uring could not be set up: {error}"),
    }
}

fn disabled_sysctl() -> Option<String> {
    std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled")
        .ok()
        .map(|text| text.trim().to_owned())
}

fn require_operations(ring: &Ring) -> Result<(), String> {
    let known = ring
        .operations()
        .map_err(|error| format!("io_uring operations cannot be probed: {error}"))?;
    let needed = [
        (opcode::Accept::CODE, "ACCEPT"),
        (opcode::AsyncCancel2::CODE, "ASYNC_CANCEL"),
        (opcode::Bind::CODE, "BIND"),
        (opcode::Close::CODE, "CLOSE"),
        (opcode::Connect::CODE, "CONNECT"),
        (opcode::FixedFdInstall::CODE, "FIXED_FD_INSTALL"),
        (opcode::PollAdd::CODE, "POLL_ADD"),
        (opcode::Recv::CODE, "RECV"),
        (opcode::Send::CODE, "SEND"),
        (opcode::SendMsg::CODE, "SENDMSG"),
        (opcode::SetSockOpt::CODE, "URING_CMD"),
        (opcode::Shutdown::CODE, "SHUTDOWN"),
        (opcode::Socket::CODE, "SOCKET"),
    ];
    let missing: Vec<&str> = needed
        .iter()
        .filter(|(code, _)| !known.is_supported(*code))
        .map(|(_, name)| *name)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(format!(
        "this kernel's io_uring lacks {}; Linux 6.13 or later has them",
        missing.join(", ")
    ))
}

/// Checks `IORING_ACCEPT_DONTWAIT` (Linux 6.10).
fn accepts_without_waiting(ring: &mut Ring, state: &mut State) -> Result<(), String> {
    let failed =
        |error: &dyn std::fmt::Display| format!("io_uring accept cannot be tried: {error}");
    let listener =
        listen(([127, 0, 0, 1], 0).into(), 1, None, false).map_err(|error| failed(&error))?;
    ring.accept_one(listener.as_raw_fd(), 0, ACCEPT_SLOT);
    ring.submit(state).map_err(|errno| failed(&errno))?;
    if !state.listeners[0].found_none {
        return Err(
            "this kernel's io_uring has no accept that does not wait; Linux 6.10 or later has it"
                .into(),
        );
    }
    Ok(())
}

/// Checks that closing a direct descriptor closes its socket although an older request on the ring is still armed.
///
/// Before Linux 6.13 the kernel released such a file only after every older request had ended. With an armed poll on
/// each idle connection, closed connections would stay open.
fn installs_and_closes(ring: &mut Ring, state: &mut State) -> Result<(), String> {
    let failed = |error: io::Error| format!("io_uring descriptors cannot be tried: {error}");
    let (kept, _peer) = pair().map_err(|errno| failed(errno.into()))?;
    let (closed, closed_peer) = pair().map_err(|errno| failed(errno.into()))?;
    for (slot, fd) in [(KEPT_SLOT, &kept), (CLOSED_SLOT, &closed)] {
        ring.register_descriptor(slot, fd.as_fd()).map_err(failed)?;
        ring.slots.open(slot);
        ring.watch(slot, TOKEN);
    }
    drop(closed);
    let number = state.installs.begin(1);
    ring.install(KEPT_SLOT, number);
    ring.set_linger_zero(CLOSED_SLOT);
    ring.cancel_and_close(CLOSED_SLOT, TOKEN);
    while ring.needs_enter() {
        ring.pump(state).map_err(failed)?;
    }
    if !ring.slots.has(KEPT_SLOT, SlotFlag::Watched) {
        return Err("this kernel's io_uring does not poll direct descriptors".into());
    }
    match state.installs.take(number) {
        Some(result) => drop(result.map_err(|errno| failed(errno.into()))?),
        None => return Err(
            "this kernel's io_uring does not install direct descriptors; Linux 6.8 or later does"
                .into(),
        ),
    }
    match rustix::net::recv(&closed_peer, &mut [0; 1], RecvFlags::DONTWAIT) {
        Ok((0, _)) | Err(Errno::CONNRESET) => Ok(()),
        _ => Err("this kernel's io_uring keeps closed direct descriptors open; Linux 6.13 or later does not".into()),
    }
}

fn pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )
}
