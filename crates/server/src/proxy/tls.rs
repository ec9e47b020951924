//! TLS to the application: whom we trust, and how we show who we are.

use reqwest::{Certificate, Client, ClientBuilder, Identity};
use std::error::Error;
use std::fmt;

/// How calls to an `https` address are protected. All of it is PEM text.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Tls {
    /// The only CAs that may sign for the application; none for those that the machine trusts.
    ca: Option<Box<str>>,
    /// Our certificate with its chain, and its key.
    identity: Option<Box<str>>,
}

/// Which part of it cannot be used, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TlsFault {
    /// What should be certificates of CAs.
    Ca(String),
    /// What should be our certificate and its key.
    Identity(String),
}

/// Without the key.
impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("has_ca", &self.ca.is_some())
            .field("has_identity", &self.identity.is_some())
            .finish()
    }
}

impl Tls {
    /// What is written, if it can be used. `identity` is a certificate with its chain, and its key.
    ///
    /// # Errors
    /// One of them is not what it should be.
    pub(crate) fn new(ca: Option<&str>, identity: Option<(&str, &str)>) -> Result<Self, TlsFault> {
        let trusting = Self {
            ca: ca.map(Into::into),
            identity: None,
        };
        if ca.is_some() {
            // Only making a client reads all of it.
            let made = trusting
                .apply(Client::builder())
                .and_then(|made| made.build());
            made.map_err(|error| TlsFault::Ca(innermost(&error)))?;
        }
        let Some((certificate, key)) = identity else {
            return Ok(trusting);
        };
        let whole = Self {
            identity: Some(format!("{certificate}\n{key}").into()),
            ..trusting
        };
        let made = whole.apply(Client::builder()).and_then(|made| made.build());
        made.map_err(|error| TlsFault::Identity(innermost(&error)))?;
        Ok(whole)
    }

    /// A client that uses it.
    pub(super) fn apply(&self, builder: ClientBuilder) -> reqwest::Result<ClientBuilder> {
        let builder = match &self.ca {
            Some(pem) => builder.tls_certs_only(Certificate::from_pem_bundle(pem.as_bytes())?),
            None => builder,
        };
        Ok(match &self.identity {
            Some(pem) => builder.identity(Identity::from_pem(pem.as_bytes())?),
            None => builder,
        })
    }
}

/// The last cause: the ones before it name only what was tried.
pub(crate) fn innermost(error: &reqwest::Error) -> String {
    let mut cause: &dyn Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
