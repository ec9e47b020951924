//! Answers over HTTP that wait for what becomes of a connect request.
//!
//! A client without commands whose connect request is refused for good is answered with a status of HTTP. `EventSource` stops for
//! good at any status but 200, and comes back after a stream that ends: with the same token that was refused. So the head of the
//! stream waits until the client has connected, or is told to come back.

use crate::shard::Shard;
use myriad_hub::{ApplicationClose, Chunk, CloseReason, HttpRefusal, Overflow};
use myriad_reactor::Reactor;
use myriad_wire::centrifuge::disconnect_is_terminal;
use myriad_wire::http::{HeadLimits, parse_response, write_response};

/// Headers of a stream's answer by which a page may read it.
const PAGE_HEADERS: [&str; 3] = [
    "access-control-allow-origin",
    "access-control-allow-credentials",
    "vary",
];

impl<R: Reactor> Shard<R> {
    /// Keeps the head of an answer. False if the process has no memory for it.
    pub(crate) fn hold_answer(&mut self, index: u32, response: Vec<u8>) -> bool {
        let fits = self.hub.reserve_buffered(response.len());
        if fits {
            self.sessions.unanswered.insert(index, response);
        }
        fits
    }

    /// Queues the head of an answer, if it waits: what the client is told follows.
    pub(super) fn begin_answer(&mut self, index: u32) -> Result<(), Overflow> {
        if self.sessions.unanswered.is_empty() {
            return Ok(());
        }
        let Some(response) = self.sessions.unanswered.get(&index) else {
            return Ok(());
        };
        // Without memory for it the head still waits, so that the end of the connection finds it.
        let head = Chunk::Response(response.clone().into());
        self.hub.enqueue(index, head)?;
        self.take_answer(index);
        Ok(())
    }

    /// Takes the head of an answer that waits.
    pub(crate) fn take_answer(&mut self, index: u32) -> Option<Vec<u8>> {
        let response = self.sessions.unanswered.remove(&index)?;
        self.hub.release_buffered(response.len());
        Some(response)
    }
}

/// The last bytes for a client whose answer has not begun: a refusal, or the stream with its end.
pub(crate) fn last_for(
    response: Vec<u8>,
    reason: CloseReason,
    by_application: Option<&ApplicationClose>,
    end: &[u8],
    configured: &[HttpRefusal],
) -> Vec<u8> {
    let (code, sentence) = match by_application {
        Some(close) => (close.code(), close.reason()),
        None => (reason.code(), reason.sentence()),
    };
    let own = || format!("The client may not connect: {code} {sentence}.");
    if let Some(wish) = configured.iter().find(|wish| wish.code == code) {
        let body = wish.body.as_deref().map_or_else(own, str::to_owned);
        return refusal(&response, wish.status, &body);
    }
    match status_of(code) {
        Some(status) => refusal(&response, status, &own()),
        None => [&response, end].concat(),
    }
}

/// The status that stands for a code of a close; none if its client is to come back.
fn status_of(code: u16) -> Option<u16> {
    match code {
        3500 => Some(401),
        // The token has expired. SDKs fetch another one, and a browser would come back with the same.
        3005 => Some(401),
        3501 => Some(400),
        3504 => Some(429),
        // The server was late, or is busy.
        3502 => None,
        code if disconnect_is_terminal(code) => Some(403),
        _ => None,
    }
}

fn refusal(response: &[u8], status: u16, body: &str) -> Vec<u8> {
    let head = parse_response(response, HeadLimits::default());
    let head = head.ok().flatten();
    let mut headers: Vec<(&str, &str)> = Vec::new();
    for name in PAGE_HEADERS {
        let value = head.as_ref().and_then(|head| head.header(name));
        if let Some(Ok(value)) = value.map(str::from_utf8) {
            headers.push((name, value));
        }
    }
    if status == 401 {
        headers.push(("www-authenticate", "Bearer"));
    }
    headers.push(("cache-control", "no-store"));
    let mut refusal = Vec::with_capacity(512);
    write_response(&mut refusal, status, &headers, body);
    refusal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_to_come_back_is_told_on_the_stream() {
        for (code, status) in [
            (3500, Some(401)),
            (3005, Some(401)),
            (3501, Some(400)),
            (3507, Some(403)),
            (3504, Some(429)),
            (4501, Some(403)),
            (3004, None),
            (3502, None),
            (3001, None),
            (3013, None),
            (1013, None),
            (4100, None),
        ] {
            assert_eq!(status_of(code), status, "{code}");
        }
    }

    #[test]
    fn a_refusal_is_for_the_page_that_asked() {
        let response = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nAccess-Control-Allow-Origin: https://a.b\r\n\r\n2\r\n\r\n\r\n";
        let invalid = CloseReason::InvalidToken;
        let refused = last_for(response.to_vec(), invalid, None, b"end", &[]);
        let head = parse_response(&refused, HeadLimits::default());
        let head = head.expect("a head").expect("a whole head");
        assert_eq!(head.status(), 401);
        let origin = head.header("access-control-allow-origin");
        assert_eq!(origin, Some(&b"https://a.b"[..]));
        assert_eq!(head.header("transfer-encoding"), None);
        assert!(refused.ends_with(b"3500 invalid token."));
    }

    #[test]
    fn the_operator_says_with_which_response_a_code_refuses() {
        let wish = |code, status, body: Option<&str>| HttpRefusal {
            code,
            status,
            body: body.map(Into::into),
        };
        let wishes = [wish(3500, 402, Some("pay")), wish(3004, 503, None)];
        let last = |reason| {
            let last = last_for(b"head".to_vec(), reason, None, b" end", &wishes);
            String::from_utf8(last).expect("text")
        };
        let refused = last(CloseReason::InvalidToken);
        assert!(refused.starts_with("HTTP/1.1 402 "), "{refused}");
        assert!(refused.ends_with("\r\n\r\npay"), "{refused}");
        let busy = last(CloseReason::ConnectFailed);
        assert!(busy.starts_with("HTTP/1.1 503 "), "{busy}");
        assert!(
            busy.ends_with("3004 internal server error: reconnect."),
            "{busy}"
        );
        assert_eq!(last(CloseReason::Drain), "head end");
    }
}
