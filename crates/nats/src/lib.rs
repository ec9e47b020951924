//! Connections to NATS: addresses, who we are there, and TLS; and a small client of our own ([`raw`]).
#![forbid(unsafe_code)]

mod avoided;
pub mod raw;

pub use avoided::Avoided;
pub use raw::{RawConnection, RawError, RawMessage, Sid};

use async_nats::{Client, ConnectErrorKind, ConnectOptions};
use std::path::PathBuf;
use std::time::Duration;
use thiserror::Error;

/// How long connecting may take, and a request that is answered at once.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of a server's address.
const ADDRESS_BYTES_MAX: usize = 1_024;

/// Where the NATS servers are, and who we are there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nats {
    /// Such as `nats://127.0.0.1:4222`, with a user and a password or a token where they are needed. Several, separated by commas,
    /// are servers of one cluster. `tls://` demands TLS.
    pub url: String,
    /// A file of credentials, as `nsc` and `nk` write them.
    pub credentials: Option<PathBuf>,
    /// A file of certificates (PEM) of authorities that are trusted instead of the machine's.
    pub ca: Option<PathBuf>,
    /// Our certificate and its key (PEM files), where the servers want one.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Servers that are connected only where no other one can be reached.
    pub avoided: Avoided,
}

/// Why there is no connection.
#[derive(Debug, Error)]
pub enum NatsError {
    /// The file of credentials cannot be used.
    #[error("cannot read the credentials of {path}: {why}; write the path of a .creds file")]
    Credentials {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// An address is none.
    #[error(
        "{address} is no address of a NATS server; write nats://HOST:PORT, several with commas between"
    )]
    Address {
        /// What was written, without a password.
        address: String,
    },
    /// No server can be reached.
    #[error("cannot connect to NATS at {url}: {why}")]
    Connect {
        /// The addresses, without passwords.
        url: String,
        /// What the client library says.
        why: String,
    },
    /// A server answers and does not let us in.
    #[error(
        "the NATS server at {url} does not let us in ({why}); check the user and the password of the URL, or the file of credentials"
    )]
    Refused {
        /// The addresses, without passwords.
        url: String,
        /// What the client library says.
        why: String,
    },
}

impl Nats {
    /// The servers at a URL.
    #[must_use]
    pub fn at(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            ..Self::default()
        }
    }

    /// Checks the addresses without connecting.
    ///
    /// # Errors
    /// One of them is none.
    pub fn check(&self) -> Result<(), NatsError> {
        for address in without_secret(&self.url).split(',') {
            let has_host = address
                .split_once("://")
                .is_some_and(|(_, rest)| !rest.is_empty() && !rest.starts_with(':'));
            let is_short = address.len() <= ADDRESS_BYTES_MAX;
            if !has_host || !is_short || address.parse::<async_nats::ServerAddr>().is_err() {
                let address = address.chars().take(100).collect();
                return Err(NatsError::Address { address });
            }
        }
        Ok(())
    }

    /// The addresses, without passwords and tokens: for people.
    #[must_use]
    pub fn shown(&self) -> String {
        without_secret(&self.url)
    }

    /// Options of a connection that names itself `name`.
    ///
    /// # Errors
    /// The file of credentials cannot be used.
    pub async fn options(&self, name: &str) -> Result<ConnectOptions, NatsError> {
        let mut options = ConnectOptions::new()
            .name(name)
            .ping_interval(PATIENCE)
            .connection_timeout(PATIENCE)
            .request_timeout(Some(PATIENCE));
        if let Some(path) = &self.credentials {
            let error = |why: String| NatsError::Credentials {
                path: path.clone(),
                why,
            };
            let text = raw::read_credentials(path).await.map_err(error)?;
            let options_with = options.credentials(&text);
            options = options_with.map_err(|why| error(why.to_string()))?;
        }
        if let Some(ca) = &self.ca {
            options = options.add_root_certificates(ca.clone());
        }
        if let Some((certificate, key)) = &self.identity {
            options = options.add_client_certificate(certificate.clone(), key.clone());
        }
        // The library reads them from no URL.
        Ok(match user_of(&self.url) {
            Some((user, Some(password))) => options.user_and_password(user, password),
            Some((token, None)) => options.token(token),
            None => options,
        })
    }

    /// Connects.
    ///
    /// # Errors
    /// An address is none, a file cannot be used, no server can be reached, or none lets us in.
    pub async fn connect(&self, name: &str) -> Result<Client, NatsError> {
        self.check()?;
        self.connect_with(self.options(name).await?).await
    }

    /// Connects with options that [`Nats::options`] began.
    ///
    /// # Errors
    /// No server can be reached, or none lets us in.
    pub async fn connect_with(&self, options: ConnectOptions) -> Result<Client, NatsError> {
        let url = self.shown();
        let servers: Vec<&str> = url.split(',').collect();
        options.connect(servers).await.map_err(|error| {
            let (url, why) = (self.shown(), error.to_string());
            match error.kind() {
                ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
                    NatsError::Refused { url, why }
                }
                _ => NatsError::Connect { url, why },
            }
        })
    }
}

/// The user and the password, or the token, of the first server that has one. They are taken as they are written.
fn user_of(url: &str) -> Option<(String, Option<String>)> {
    let mut users = url.split(',').filter_map(|one| {
        let rest = one.split_once("://").map_or(one, |(_, rest)| rest);
        rest.rsplit_once('@').map(|(user, _)| user)
    });
    let user = users.next()?;
    Some(match user.split_once(':') {
        Some((user, password)) => (user.to_owned(), Some(password.to_owned())),
        None => (user.to_owned(), None),
    })
}

/// A URL as it may be shown: without what stands before the `@`.
fn without_secret(url: &str) -> String {
    let shown = url.split(',').map(|one| {
        let (scheme, rest) = one.split_once("://").unwrap_or(("nats", one));
        let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
        format!("{}://{}", scheme.trim(), host.trim())
    });
    shown.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_shown() {
        let shown = without_secret("nats://ann:se@cret@10.0.0.1:4222, tls://token@b:4222");
        assert_eq!(shown, "nats://10.0.0.1:4222,tls://b:4222");
        assert_eq!(without_secret("localhost"), "nats://localhost");
        let user = user_of("nats://ann:se@cr:et@10.0.0.1:4222");
        assert_eq!(user, Some(("ann".to_owned(), Some("se@cr:et".to_owned()))));
        assert_eq!(
            user_of("a:4222,tls://token@b"),
            Some(("token".to_owned(), None))
        );
        assert_eq!(user_of("nats://a:4222"), None);
    }

    #[test]
    fn what_is_no_address_is_named() {
        for url in ["nats://a:4222,tls://b", "localhost:4222", "10.0.0.1"] {
            assert!(Nats::at(url).check().is_ok(), "{url}");
        }
        for (url, named) in [("nats://u:p@", "nats://"), ("nats://a:x", "nats://a:x")] {
            let refused = Nats::at(url).check().expect_err(url).to_string();
            assert!(refused.starts_with(named), "{refused}");
        }
    }
}
