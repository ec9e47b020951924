//! Addresses of peers. The kernel could write them while it accepts, but few callers want them, and those of some sockets only.

use super::super::tag::{EventKind, Tag};
use super::Uring;
use super::operations;
use crate::Socket;
use rustix::io::Errno;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Bytes of a `sockaddr_in`. The kernel refuses to write an address to a buffer that is larger than it.
const IPV4_BYTES: usize = 16;
/// Bytes of a `sockaddr_in6`.
const IPV6_BYTES: usize = 28;

impl Uring {
    /// Reads all addresses in one kernel entry for each ring.
    pub(super) fn read_peer_addresses(
        &mut self,
        sockets: &[Socket],
        addresses: &mut Vec<Option<SocketAddr>>,
    ) {
        let size = if self.acceptor.is_ipv6() {
            IPV6_BYTES
        } else {
            IPV4_BYTES
        };
        let mut buffers = vec![[0; IPV6_BYTES]; sockets.len()];
        let unread = Errno::AGAIN.raw_os_error().wrapping_neg();
        self.state.peer_addresses.clear();
        self.state.peer_addresses.resize(sockets.len(), unread);
        for ((index, socket), buffer) in (0..).zip(sockets).zip(&mut buffers) {
            let Some(ring) = self.rings.get_mut(socket.table()) else {
                continue;
            };
            if ring.begin_batch() {
                self.batch_tables.push(socket.table());
            }
            let entry = operations::peer_address(socket.slot(), &mut buffer[..size])
                .user_data(Tag::plain(EventKind::PeerAddress, index).to_bits());
            // SAFETY: the buffers live until this function returns, nobody touches them before the batch ends below, and
            // then nothing of it is left with the kernel. A refused entry has no result, so its address is unknown.
            let _ = unsafe { ring.push_borrowing(&entry, &mut self.state) };
        }
        while let Some(table) = self.batch_tables.pop() {
            self.rings[table].end_batch(&mut self.state, |_| {});
        }
        let read = self.state.peer_addresses.iter().zip(&buffers);
        addresses.extend(read.map(|(&length, buffer)| {
            let length = usize::try_from(length).ok()?;
            decode(buffer.get(..length)?)
        }));
    }
}

/// Reads a `sockaddr_in` or `sockaddr_in6`: the family as the machine writes numbers, the rest as the network does.
fn decode(bytes: &[u8]) -> Option<SocketAddr> {
    let family = u16::from_ne_bytes(*bytes.first_chunk()?);
    let port = u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?);
    let address: IpAddr = match i32::from(family) {
        libc::AF_INET => Ipv4Addr::from(*bytes.get(4..)?.first_chunk::<4>()?).into(),
        libc::AF_INET6 => Ipv6Addr::from(*bytes.get(8..)?.first_chunk::<16>()?).into(),
        _ => return None,
    };
    Some((address, port).into())
}
