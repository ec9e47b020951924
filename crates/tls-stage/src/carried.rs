//! A connection between two owners.

use crate::Connection;

/// A connection between two owners, with what protects it.
#[derive(Debug)]
pub struct Carried<H> {
    /// The socket.
    pub handle: H,
    /// Its record state; none for a connection without TLS.
    pub tls: Option<Box<Connection>>,
}

impl<H> Carried<H> {
    /// A connection without TLS.
    pub fn plain(handle: H) -> Self {
        Self { handle, tls: None }
    }
}
