//! One request for a set of keys.

use super::set::{Set, SetFault};
use std::sync::OnceLock;
use std::time::Duration;
use thiserror::Error;

/// Bytes of an answer.
const ANSWER_BYTES_MAX: usize = 256 << 10;
/// Time for an answer. A client waits for it, and its shard for 4 s at most.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

/// Why there are no keys.
#[derive(Debug, Error)]
pub(super) enum FetchError {
    /// The endpoint could not be reached, or did not answer in time.
    #[error("no answer: {}", causes(.0))]
    Request(reqwest::Error),
    /// It answered with another status. Redirects are not followed.
    #[error("status {0}")]
    Status(u16),
    /// Its answer is too long.
    #[error("the answer is longer than {ANSWER_BYTES_MAX} bytes")]
    Size,
    /// It answered with something else.
    #[error("the answer is not a JSON object with a list keys")]
    Malformed,
    /// It has no key that can be used.
    #[error("the answer has no key with a kid for RS, ES or EdDSA signatures")]
    NoKeys,
    /// No key of the set can be read.
    #[error(
        "the numbers of its keys are no base64url without padding (RFC 7515): no token that they sign is let in"
    )]
    Unreadable,
}

/// Without the URL, whose query may be secret: whoever logs the error says what may be said of it.
impl From<reqwest::Error> for FetchError {
    fn from(error: reqwest::Error) -> Self {
        Self::Request(error.without_url())
    }
}

/// The library's message names the innermost cause last, in a chain.
fn causes(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// Fetches the set at a URL.
pub(super) async fn fetch(url: &str) -> Result<Set, FetchError> {
    let request = client()?.get(url).header("accept", "application/json");
    let mut answer = request.send().await?;
    if answer.status() != reqwest::StatusCode::OK {
        return Err(FetchError::Status(answer.status().as_u16()));
    }
    let mut body = Vec::new();
    while let Some(chunk) = answer.chunk().await? {
        if body.len() + chunk.len() > ANSWER_BYTES_MAX {
            return Err(FetchError::Size);
        }
        body.extend_from_slice(&chunk);
    }
    Set::read(&body).map_err(|fault| match fault {
        SetFault::Malformed => FetchError::Malformed,
        SetFault::NoKeys => FetchError::NoKeys,
        SetFault::Unreadable => FetchError::Unreadable,
    })
}

/// Made when it is needed first: reading the machine's certificates takes time.
fn client() -> Result<reqwest::Client, reqwest::Error> {
    static CLIENT: OnceLock<reqwest::Client> = OnceLock::new();
    if let Some(client) = CLIENT.get() {
        return Ok(client.clone());
    }
    let client = reqwest::Client::builder()
        .timeout(ANSWER_TIMEOUT)
        .redirect(reqwest::redirect::Policy::none())
        // Requests are an hour apart, so connections are not kept for the next one. A test's server would not end, either.
        .pool_max_idle_per_host(0)
        .user_agent(concat!("myriad/", env!("CARGO_PKG_VERSION")))
        .build()?;
    Ok(CLIENT.get_or_init(|| client).clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpListener};

    const KEY: &str = r#"{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo","kid":"a"}]}"#;

    /// What becomes of a request to a server that answers with these bytes and closes.
    fn answered(answer: impl Into<Vec<u8>>) -> Result<Set, FetchError> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/keys?sesame", listener.local_addr().unwrap());
        let answer = answer.into();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() > 0 {
                head.push(byte[0]);
            }
            // The client may have seen enough.
            let _ = stream.write_all(&answer);
            let _ = stream.shutdown(Shutdown::Write);
            String::from_utf8(head).unwrap()
        });
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let fetched = runtime.unwrap().block_on(fetch(&url));
        let head = server.join().unwrap();
        assert!(head.starts_with("GET /keys?sesame HTTP/1.1\r\n"), "{head}");
        fetched
    }

    fn with_length(body: &str) -> String {
        let length = body.len();
        format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}")
    }

    #[test]
    fn a_set_is_fetched() {
        assert_eq!(answered(with_length(KEY)).unwrap().names(), ["a"]);
    }

    #[test]
    fn answers_that_are_no_set_are_told_apart() {
        let long = format!("{KEY}{}", " ".repeat(ANSWER_BYTES_MAX));
        let moved =
            "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n";
        for (answer, cause) in [
            (
                "HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n".to_owned(),
                "status 500",
            ),
            (moved.to_owned(), "status 302"),
            (with_length("<html>"), "not a JSON object"),
            (with_length(r#"{"keys":[]}"#), "no key with a kid"),
            (with_length(&long), "longer than"),
            // Without a length, until the end.
            (format!("HTTP/1.1 200 OK\r\n\r\n{long}"), "longer than"),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{".to_owned(),
                "no answer",
            ),
            ("SSH-2.0\r\n".to_owned(), "no answer"),
            (String::new(), "no answer"),
        ] {
            let error = answered(answer).unwrap_err().to_string();
            assert!(error.contains(cause), "{error}");
            assert!(!error.contains("sesame"), "{error}");
        }
    }
}
