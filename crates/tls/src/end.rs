//! The two ends of a connection, as rustls has them.

use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::kernel::KernelConnection;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::UnbufferedStatus;
use rustls::{CommonState, Error, ExtractedSecrets};

use crate::records::Side;
use crate::secrets::Traffic;
use crate::suite::SECRET;

/// A connection of rustls that makes a handshake, at one of the two ends.
pub trait End: Sized + sealed::Sealed {
    #[doc(hidden)]
    type Data;
    #[doc(hidden)]
    const SIDE: Side;
    #[doc(hidden)]
    fn process<'c, 'i>(&'c mut self, input: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data>;
    #[doc(hidden)]
    fn state(&self) -> &CommonState;
    #[doc(hidden)]
    fn into_secrets(self) -> Result<(ExtractedSecrets, KernelConnection<Self::Data>), Error>;
}

mod sealed {
    use super::{UnbufferedClientConnection, UnbufferedServerConnection};

    pub trait Sealed {}
    impl Sealed for UnbufferedClientConnection {}
    impl Sealed for UnbufferedServerConnection {}
}

impl End for UnbufferedServerConnection {
    type Data = ServerConnectionData;
    const SIDE: Side = Side::Server;

    fn process<'c, 'i>(&'c mut self, input: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(input)
    }

    fn state(&self) -> &CommonState {
        self
    }

    fn into_secrets(self) -> Result<(ExtractedSecrets, KernelConnection<Self::Data>), Error> {
        self.dangerous_into_kernel_connection()
    }
}

impl End for UnbufferedClientConnection {
    type Data = ClientConnectionData;
    const SIDE: Side = Side::Client;

    fn process<'c, 'i>(&'c mut self, input: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(input)
    }

    fn state(&self) -> &CommonState {
        self
    }

    fn into_secrets(self) -> Result<(ExtractedSecrets, KernelConnection<Self::Data>), Error> {
        self.dangerous_into_kernel_connection()
    }
}

impl Side {
    /// The secrets that protect what this end reads, and what it writes.
    pub(crate) fn secrets(self, traffic: &Traffic) -> Option<(&[u8; SECRET], &[u8; SECRET])> {
        let (client, server) = (traffic.client.as_deref()?, traffic.server.as_deref()?);
        Some(match self {
            Self::Client => (server, client),
            Self::Server => (client, server),
        })
    }
}
