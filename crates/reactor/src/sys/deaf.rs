//! A socket filter that lets a connection vanish for its peer, and needs no privilege.
//!
//! The kernel runs the filter of a TCP socket before TCP looks at a segment (`tcp_filter` in `tcp_v4_rcv`). A segment that it
//! drops is not acknowledged and not answered with RST, as if the machine were gone. What has FIN or RST passes, so that the
//! owner learns when the peer has given up. The peer cannot tell: it has ended the connection by then.

use socket2::{SockFilter, SockRef};
use std::os::fd::BorrowedFd;

/// Instructions of classic BPF (`linux/bpf_common.h`): load a byte, jump if bits are set, return.
const LOAD_BYTE: u16 = 0x30;
const JUMP_IF_SET: u16 = 0x45;
const RETURN: u16 = 0x06;

/// Offset of a segment's flags from the beginning of its TCP header, where filters of TCP sockets begin to count (RFC 9293,
/// section 3.1).
const FLAGS_AT: u32 = 13;
/// FIN and RST.
const ENDS: u32 = 0x01 | 0x04;

const fn instruction(code: u16, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt, jf, k }
}

/// Keeps a segment whole that ends the connection, and nothing of any other.
static ONLY_ENDS: [libc::sock_filter; 4] = [
    instruction(LOAD_BYTE, 0, 0, FLAGS_AT),
    instruction(JUMP_IF_SET, 0, 1, ENDS),
    instruction(RETURN, 0, 0, u32::MAX),
    instruction(RETURN, 0, 0, 0),
];

/// The filter as the kernel reads it from the value of `SO_ATTACH_FILTER`.
#[repr(transparent)]
pub(super) struct Program(libc::sock_fprog);

// SAFETY: the program points to a static that nobody writes.
unsafe impl Sync for Program {}

pub(super) static PROGRAM: Program = Program(libc::sock_fprog {
    len: 4,
    filter: (&raw const ONLY_ENDS)
        .cast::<libc::sock_filter>()
        .cast_mut(),
});

/// Attaches the filter. It fails only without kernel memory, and then the peer's bytes go on to be acknowledged.
pub(super) fn attach(fd: BorrowedFd<'_>) {
    let program = ONLY_ENDS.map(|one| SockFilter::new(one.code, one.jt, one.jf, one.k));
    let _ = SockRef::from(&fd).attach_filter(&program);
}
