//! The handshakes of an authority that asks whether a name is ours (RFC 8737): they have another certificate, and carry no data.

use crate::Offer;
use rustls::ServerConfig;
use rustls::server::Acceptor;
use std::sync::Arc;

/// The protocol that an authority asks for, and nobody else.
pub const CHALLENGE: &[u8] = b"acme-tls/1";

impl Offer {
    /// The configuration for a handshake with this first record.
    pub(crate) fn config_for(&self, record: &[u8]) -> &Arc<ServerConfig> {
        let challenge = self.challenge.as_ref();
        challenge
            .filter(|_| asks_for_challenge(record))
            .unwrap_or(&self.config)
    }
}

/// Whether a client offers this protocol and no other (RFC 8737, section 3). A hello in several records does not count.
fn asks_for_challenge(record: &[u8]) -> bool {
    // To read a hello takes memory and some microseconds. The name stands in few of them.
    let names_it = record
        .windows(CHALLENGE.len())
        .any(|bytes| bytes == CHALLENGE);
    names_it && offers_it_alone(record)
}

fn offers_it_alone(record: &[u8]) -> bool {
    let mut acceptor = Acceptor::default();
    if acceptor.read_tls(&mut &*record).is_err() {
        return false;
    }
    let Ok(Some(accepted)) = acceptor.accept() else {
        return false;
    };
    let hello = accepted.client_hello();
    hello.alpn().is_some_and(|offered| offered.eq([CHALLENGE]))
}
