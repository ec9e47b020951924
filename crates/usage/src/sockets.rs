//! TCP sockets of this machine, as the kernel lists them.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// States that hold nothing of a server's: TIME_WAIT and LISTEN, as `/proc/net/tcp` names them.
const UNCOUNTED: [&str; 2] = ["06", "0A"];

/// Sockets of this network namespace that are one end of a connection to one of these addresses. Those that only wait for late
/// packets do not count.
///
/// It reads a line for each TCP socket of the namespace: a million take about a second.
///
/// # Errors
/// `/proc/net/tcp` cannot be read.
pub fn tcp_sockets(addresses: &[SocketAddr]) -> io::Result<u64> {
    let mut count = 0;
    for path in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let file = match File::open(path) {
            // A kernel without IPv6 has no such file.
            Err(error) if error.kind() == io::ErrorKind::NotFound && path.ends_with('6') => break,
            opened => opened?,
        };
        for line in BufReader::new(file).lines() {
            count += u64::from(is_one_of(&line?, addresses));
        }
    }
    Ok(count)
}

/// Whether a line is a socket with one of these addresses on either end.
fn is_one_of(line: &str, addresses: &[SocketAddr]) -> bool {
    let mut fields = line.split_ascii_whitespace().skip(1);
    let (Some(local), Some(remote), Some(state)) = (fields.next(), fields.next(), fields.next())
    else {
        return false;
    };
    if UNCOUNTED.contains(&state) {
        return false;
    }
    let ends = [local, remote].into_iter().filter_map(address);
    ends.into_iter().any(|end| addresses.contains(&end))
}

/// `0100007F:1F40` is 127.0.0.1:8000: words of 32 bits in the machine's order, then the port.
fn address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let mut bytes = Vec::with_capacity(16);
    for at in (0..address.len()).step_by(8) {
        let word = u32::from_str_radix(address.get(at..at + 8)?, 16).ok()?;
        bytes.extend(word.to_ne_bytes());
    }
    let address = match <[u8; 4]>::try_from(&bytes[..]) {
        Ok(bytes) => IpAddr::V4(Ipv4Addr::from(bytes)),
        Err(_) => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(&bytes[..]).ok()?)),
    };
    Some(SocketAddr::new(address.to_canonical(), port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn both_ends_of_a_connection_are_counted() {
        // An address that no other program of this machine uses: the same port of 127.0.0.1 may be some client's.
        let listener = TcpListener::bind("127.86.201.7:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert_eq!(tcp_sockets(&[address]).unwrap(), 0);
        let client = TcpStream::connect(address).unwrap();
        let (server, _) = listener.accept().unwrap();
        // The kernel reads its table in pieces. Where sockets come and go meanwhile, it may tell of one twice or not at all.
        let counted = || tcp_sockets(&[address]).unwrap();
        assert!((0..100).any(|_| counted() == 2));
        drop((client, server));
    }

    #[test]
    fn addresses_are_read_in_the_order_of_the_machine() {
        if cfg!(target_endian = "big") {
            return;
        }
        let read = |text: &str| address(text).map(|it| it.to_string());
        assert_eq!(read("0100007F:1F40").as_deref(), Some("127.0.0.1:8000"));
        let mapped = "0000000000000000FFFF00000100007F:1F40";
        assert_eq!(read(mapped).as_deref(), Some("127.0.0.1:8000"));
        let loopback = "00000000000000000000000001000000:0050";
        assert_eq!(read(loopback).as_deref(), Some("[::1]:80"));
        assert_eq!(read("local_address"), None);
    }
}
