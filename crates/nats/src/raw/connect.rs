//! How a connection comes about: a server of the cluster, TLS, and who we are.

use super::credentials::Login;
use super::link::Link;
use super::tls::{self, TlsError};
use super::{Op, RawConnection, RawError, random};
use crate::{Nats, NatsError, PATIENCE};
use async_nats::ServerAddr;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::io;
use std::net::SocketAddr;
use thiserror::Error;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::rustls::pki_types::ServerName;

/// What we need to know of a server.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Info {
    /// The id that it gives itself.
    pub(super) server_id: String,
    tls_required: bool,
    tls_available: bool,
    /// What is to be signed.
    nonce: String,
    /// Bytes that it takes of a message, with its headers.
    pub(super) max_payload: Option<usize>,
    /// The servers of its cluster that it knows: HOST:PORT.
    pub(super) connect_urls: Vec<String>,
}

/// What a server is told about us, in the words of the protocol.
#[derive(Serialize)]
struct Hello<'a> {
    verbose: bool,
    pedantic: bool,
    tls_required: bool,
    name: &'a str,
    lang: &'static str,
    version: &'static str,
    protocol: u8,
    /// Messages of this connection come to its own subscriptions, too.
    echo: bool,
    headers: bool,
    no_responders: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pass: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    auth_token: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    jwt: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sig: Option<String>,
}

/// Why one server is not connected.
#[derive(Debug, Error)]
pub(super) enum AttemptError {
    #[error("its name has no address: {0}")]
    Resolve(io::Error),
    #[error("its name has no address")]
    NoAddress,
    #[error("no answer in {} s", PATIENCE.as_secs())]
    TimedOut,
    #[error("{0}")]
    Connect(io::Error),
    #[error("{0}")]
    Raw(#[from] RawError),
    #[error("it does not introduce itself as a NATS server does")]
    NoInfo,
    #[error("it has no TLS, which the URL or a file of certificates demands")]
    NoTls,
    #[error("it sent more than its introduction before TLS, as somebody between us would")]
    BeforeTls,
    #[error("its name cannot stand in a certificate")]
    Name,
    #[error("{0}")]
    Tls(#[from] TlsError),
    #[error("no TLS: {0}")]
    Handshake(io::Error),
}

impl Nats {
    /// Connects with a client of our own, for very many subscriptions: see [`raw`](crate::raw).
    ///
    /// The servers are tried in random order, each for 5 s, and those in [`Nats::avoided`] are taken only where no other one can be reached. A server that does not let us in ends the attempt, as with [`Nats::connect`].
    /// TLS is demanded where the URL says `tls://` and where a CA or a certificate of ours is configured, and taken where the server
    /// demands it.
    ///
    /// # Errors
    /// An address is none, a file cannot be used, no server can be reached, or one does not let us in.
    pub async fn connect_raw(&self, name: &str) -> Result<RawConnection, NatsError> {
        self.connect_raw_or(name, &[]).await
    }

    /// The same. If no server of the URL can be reached, those that another connection has found are tried
    /// ([`RawConnection::found_servers`]).
    ///
    /// # Errors
    /// As [`Nats::connect_raw`].
    pub async fn connect_raw_or(
        &self,
        name: &str,
        found: &[String],
    ) -> Result<RawConnection, NatsError> {
        self.check()?;
        let login = Login::read(self).await?;
        let url = self.shown();
        let mut servers: Vec<ServerAddr> =
            url.split(',').filter_map(|it| it.parse().ok()).collect();
        servers.sort_by_cached_key(|_| u64::from_ne_bytes(random()));
        // Nobody between us may talk a connection out of the TLS that the URL demands.
        let scheme = match servers.iter().any(ServerAddr::tls_required) {
            true => "tls",
            false => "nats",
        };
        let found = found.iter().map(|it| format!("{scheme}://{it}"));
        let found = found.filter_map(|it| it.parse().ok());
        let is_new = |one: &ServerAddr| {
            let mut known = servers.iter();
            !known.any(|it| (it.host(), it.port()) == (one.host(), one.port()))
        };
        let others: Vec<ServerAddr> = found.filter(is_new).collect();
        servers.extend(others);
        let mut failures = Vec::new();
        let mut avoided = None;
        for server in &servers {
            match self.try_server(server, name, &login).await {
                // Known by its id alone: it may have several addresses.
                Ok(link) if self.avoided.has(&link.server_id) => avoided = Some(link),
                Ok(link) => return Ok(RawConnection::over(link)),
                Err(AttemptError::Raw(RawError::Server(why))) if is_refusal(&why) => {
                    return Err(NatsError::Refused { url, why });
                }
                Err(error) => {
                    failures.push(format!("{}:{}: {error}", server.host(), server.port()))
                }
            }
        }
        if let Some(link) = avoided {
            return Ok(RawConnection::over(link));
        }
        let why = failures.join("; ");
        Err(NatsError::Connect { url, why })
    }

    /// Tries all addresses of a server.
    async fn try_server(
        &self,
        server: &ServerAddr,
        name: &str,
        login: &Login,
    ) -> Result<Link, AttemptError> {
        let found = timeout(PATIENCE, lookup_host((server.host(), server.port()))).await;
        let found = found.map_err(|_| AttemptError::TimedOut)?;
        let addresses: Vec<SocketAddr> = found.map_err(AttemptError::Resolve)?.collect();
        let mut last = AttemptError::NoAddress;
        for address in addresses {
            let attempt = timeout(PATIENCE, self.try_address(address, server, name, login)).await;
            match attempt {
                Ok(Ok(link)) => return Ok(link),
                Ok(Err(error @ AttemptError::Raw(RawError::Server(_)))) => return Err(error),
                Ok(Err(error)) => last = error,
                Err(_) => last = AttemptError::TimedOut,
            }
        }
        Err(last)
    }

    async fn try_address(
        &self,
        address: SocketAddr,
        server: &ServerAddr,
        name: &str,
        login: &Login,
    ) -> Result<Link, AttemptError> {
        let stream = TcpStream::connect(address).await;
        let stream = stream.map_err(AttemptError::Connect)?;
        stream.set_nodelay(true).map_err(AttemptError::Connect)?;
        let mut link = Link::over(Box::new(stream));
        let mut info = match link.next_op().await? {
            Op::Info(info) => Info::parse(&info)?,
            Op::Error(text) => return Err(RawError::Server(text).into()),
            _ => return Err(AttemptError::NoInfo),
        };
        let is_tls_ours = server.tls_required() || self.ca.is_some() || self.identity.is_some();
        let has_tls = is_tls_ours || info.tls_required;
        if has_tls {
            if !info.tls_required && !info.tls_available {
                return Err(AttemptError::NoTls);
            }
            link = self.start_tls(link, server.host()).await?;
        }
        let hello = hello(name, &info, login, has_tls);
        link.outgoing.line(format_args!("CONNECT {hello}"));
        link.outgoing.line(format_args!("PING"));
        expect_pong(&mut link).await?;
        if has_tls {
            // It came before TLS, and so from anybody. What comes by TLS names them again.
            info.connect_urls.clear();
        }
        link.note_info(info);
        Ok(link)
    }

    async fn start_tls(&self, link: Link, host: &str) -> Result<Link, AttemptError> {
        // What came before TLS may be anybody's, and must not be taken for what came by it.
        let socket = link.into_socket().ok_or(AttemptError::BeforeTls)?;
        let name = ServerName::try_from(host.to_owned()).map_err(|_| AttemptError::Name)?;
        let connector = tls::connector(self).await?;
        let stream = connector.connect(name, socket).await;
        Ok(Link::over(Box::new(
            stream.map_err(AttemptError::Handshake)?,
        )))
    }
}

impl Info {
    pub(super) fn parse(json: &Bytes) -> Result<Self, AttemptError> {
        serde_json::from_slice(json).map_err(|_| AttemptError::NoInfo)
    }
}

/// Waits until the server has taken what we said.
async fn expect_pong(link: &mut Link) -> Result<(), RawError> {
    loop {
        match link.next_op().await? {
            Op::Pong => return Ok(()),
            Op::Error(text) => return Err(RawError::Server(text)),
            Op::Ping => link.outgoing.line(format_args!("PONG")),
            Op::Info(_) | Op::Ok | Op::Message(_) => {}
        }
    }
}

fn hello(name: &str, info: &Info, login: &Login, tls_required: bool) -> String {
    let credentials = login.credentials.as_ref();
    let hello = Hello {
        verbose: false,
        pedantic: false,
        tls_required,
        name,
        lang: "rust",
        version: env!("CARGO_PKG_VERSION"),
        protocol: 1,
        echo: true,
        headers: true,
        no_responders: true,
        user: login.user.as_deref(),
        pass: login.password.as_deref(),
        auth_token: login.token.as_deref(),
        jwt: credentials.map(|it| &*it.jwt),
        sig: credentials.map(|it| URL_SAFE_NO_PAD.encode(it.sign(&info.nonce))),
    };
    serde_json::to_string(&hello).expect("texts and flags can be written as JSON")
}

/// Whether an error of a server says that we may not come in. A timeout of the authentication says that somebody was slow.
fn is_refusal(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    text.contains("authorization violation")
        || text.contains("authentication expired")
        || text.contains("authentication revoked")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw::credentials::Credentials;
    use nkeys::KeyPair;
    use serde_json::{Value, json};

    fn said(info: &str, login: &Login) -> Value {
        let info = Info::parse(&Bytes::copy_from_slice(info.as_bytes())).unwrap();
        serde_json::from_str(&hello("me", &info, login, false)).unwrap()
    }

    #[test]
    fn a_server_is_told_who_we_are() {
        let login = Login {
            user: Some("ann".to_owned()),
            password: Some("\"\r\nPUB a 0".to_owned()),
            token: None,
            credentials: None,
        };
        let expected = json!({
            "verbose": false, "pedantic": false, "tls_required": false, "name": "me", "lang": "rust",
            "version": env!("CARGO_PKG_VERSION"), "protocol": 1, "echo": true, "headers": true,
            "no_responders": true, "user": "ann", "pass": "\"\r\nPUB a 0",
        });
        assert_eq!(said("{}", &login), expected);
        let info = Info::default();
        assert!(!hello("me", &info, &login, false).contains(['\r', '\n']));
    }

    #[test]
    fn the_nonce_is_signed() {
        let (key, jwt) = (KeyPair::new_user(), "eyJ0.a.b".to_owned());
        let login = Login {
            user: None,
            password: None,
            token: Some("t".to_owned()),
            credentials: Some(Credentials {
                jwt,
                key: key.clone(),
            }),
        };
        let said = said(r#"{"nonce": "abc", "version": "2.12.0"}"#, &login);
        assert_eq!(said["jwt"], "eyJ0.a.b");
        assert_eq!(said["auth_token"], "t");
        let signature = URL_SAFE_NO_PAD.decode(said["sig"].as_str().unwrap());
        assert!(key.verify(b"abc", &signature.unwrap()).is_ok());
    }

    #[test]
    fn refusals_are_told_from_other_errors() {
        for text in [
            "Authorization Violation",
            "User Authentication Expired",
            "User Authentication Revoked",
            "Account Authentication Expired",
        ] {
            assert!(is_refusal(text), "{text}");
        }
        for text in ["Authentication Timeout", "maximum connections exceeded", ""] {
            assert!(!is_refusal(text), "{text}");
        }
    }
}
