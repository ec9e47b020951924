//! Connections for requests beside the crowd, with TLS or without.

use crate::config::Endpoint;
use crate::engine::tls::TlsFailure;
use hyper::StatusCode;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, Error};

/// How requests to `https://` are protected; none where no URL has it.
pub(crate) type RequestTls = Option<Arc<ClientConfig>>;

/// Opens a connection to an endpoint. An error says why there is none.
pub(crate) async fn open_connection(
    endpoint: &Endpoint,
    tls: &RequestTls,
) -> Result<SendRequest<String>, String> {
    let stream = TcpStream::connect(endpoint.address)
        .await
        .map_err(|error| not_connected(endpoint, &error))?;
    stream
        .set_nodelay(true)
        .map_err(|error| error.to_string())?;
    let Some(name) = &endpoint.server_name else {
        return speak(stream).await;
    };
    let config = tls.as_ref().expect("a run with such an endpoint has it");
    let connector = TlsConnector::from(Arc::clone(config));
    let stream = connector.connect(name.clone(), stream).await;
    speak(stream.map_err(|error| not_secured(name, &error))?).await
}

async fn speak<S>(stream: S) -> Result<SendRequest<String>, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = handshake(TokioIo::new(stream))
        .await
        .map_err(|error| error.to_string())?;
    // Its errors come back through the sender.
    tokio::spawn(connection);
    Ok(sender)
}

/// Whether an answer says that the time of an idle connection was over while the request was on its way: the server has not read it,
/// and it is to be sent again over a new one (RFC 9110, section 15.5.9).
pub(crate) fn was_idle_too_long(status: StatusCode) -> bool {
    status == StatusCode::REQUEST_TIMEOUT
}

/// Why there is no connection. A refused one is the answer of the machine's kernel: no server has said anything.
fn not_connected(endpoint: &Endpoint, error: &io::Error) -> String {
    if error.kind() == io::ErrorKind::ConnectionRefused {
        format!("nobody listens on {}", endpoint.address)
    } else {
        format!("no connection to {} ({error})", endpoint.address)
    }
}

/// Why there is no TLS, and what to do about it.
pub(crate) fn not_secured(name: &ServerName<'_>, error: &io::Error) -> String {
    let name = name.to_str();
    let inner = error.get_ref().and_then(|error| error.downcast_ref());
    let failure = match inner {
        Some(Error::InvalidMessage(_)) => TlsFailure::PlainText,
        Some(error) => TlsFailure::of(error),
        None => return format!("no TLS with {name} ({error}): does it speak TLS on this port?"),
    };
    let step = failure.next_step();
    let step = step.map_or_else(String::new, |step| format!("; {step}"));
    format!("no TLS with {name} ({error}){step}")
}
