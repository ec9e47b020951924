//! Counts the connections that wait at a listener.

use std::net::TcpListener;
use std::os::fd::AsRawFd;

/// `tcpi_unacked` is the seventh word of `struct tcp_info` (`linux/tcp.h`).
const UNACKED: usize = 6;

/// Number of connections that wait to be accepted (`tcpi_unacked` of a listener). None if the kernel does not report it.
///
/// This call costs a fifth of an accept that finds no connection: for such an accept the kernel makes a socket and a
/// file and destroys them again.
pub(super) fn pending_connections(listener: &TcpListener) -> Option<u32> {
    let mut info = [0_u32; UNACKED + 1];
    let mut size = libc::socklen_t::try_from(size_of_val(&info)).expect("28 bytes");
    // SAFETY: `info` has room for the `size` bytes that the kernel may write, and both live through the call.
    let result = unsafe {
        libc::getsockopt(
            listener.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut size,
        )
    };
    (result == 0 && size as usize == size_of_val(&info)).then_some(info[UNACKED])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;

    #[test]
    fn counts_waiting_connections() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(pending_connections(&listener), Some(0));
        let address = listener.local_addr().unwrap();
        let _streams: Vec<TcpStream> = (0..3)
            .map(|_| TcpStream::connect(address).unwrap())
            .collect();
        assert_eq!(pending_connections(&listener), Some(3));
        listener.accept().unwrap();
        assert_eq!(pending_connections(&listener), Some(2));
    }
}
