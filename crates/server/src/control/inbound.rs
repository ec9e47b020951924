//! The bytes that a client sends, request by request.
//!
//! The HTTP library behind this reads heads and chunks more leniently than the shards do, and a request must mean the
//! same to both. So no byte reaches the library before it is known which request it belongs to: a head when it is
//! whole and checked, a body as far as its framing is checked, and the next request when the library asks for one.

use super::key::{self, Keys};
use myriad_shard::ShardRequests;
use myriad_wire::http::{
    BodyLength, ChunkError, ChunkedBody, HeadError, HeadLimits, RequestHead, parse_request,
};

/// The received bytes that the library has not taken, and where the request ends in them.
#[derive(Debug)]
pub(super) struct Inbound {
    received: Vec<u8>,
    /// Bytes at the front that were checked and may be taken.
    checked: usize,
    stage: Stage,
    limits: HeadLimits,
    /// Requests that are not for the library; none if all are.
    for_shards: Option<ShardRequests>,
    /// No request was served before this one.
    is_first: bool,
}

#[derive(Debug)]
enum Stage {
    /// A head is being received.
    Head,
    /// A body is being received.
    Body(Body),
    /// The request was received to its end.
    Whole,
    /// The head of a request for a shard is here.
    ForShard,
}

#[derive(Debug)]
enum Body {
    Bytes(u64),
    Chunked(ChunkedBody),
}

/// What the library can have now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// So many bytes of the request: see [`Inbound::take`].
    Bytes(usize),
    /// Nothing until more is received.
    Missing,
    /// All of the request was taken. [`Inbound::begin_next`] goes on to the next one.
    Whole,
    /// Nothing any more: the next request is for a shard. [`Inbound::into_received`] has its head, and what came with it.
    ForShard,
}

/// What the head of a request says about its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    /// It shows the API's key.
    pub(super) is_keyed: bool,
    /// It asks for health or metrics.
    pub(super) is_probe: bool,
}

/// A request that cannot be served. Always the client's doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Head(HeadError),
    Body(ChunkError),
}

impl Inbound {
    /// Begins with what was received already.
    pub(super) fn new(received: Vec<u8>, limits: HeadLimits) -> Self {
        Self {
            received,
            checked: 0,
            stage: Stage::Head,
            limits,
            for_shards: None,
            is_first: true,
        }
    }

    /// Stops at a request that is for a shard. The first one is not: its shard has decided that.
    pub(super) fn stopping_for(mut self, for_shards: Option<ShardRequests>) -> Self {
        self.for_shards = for_shards;
        self
    }

    /// What the library has not taken.
    pub(super) fn into_received(self) -> Vec<u8> {
        self.received
    }

    /// More was received.
    pub(super) fn extend(&mut self, bytes: &[u8]) {
        self.received.extend_from_slice(bytes);
    }

    /// True when a request is under way or the bytes of one wait.
    pub(super) fn has_begun(&self) -> bool {
        !matches!(self.stage, Stage::Head) || !self.received.is_empty()
    }

    /// True when a request is here to its end; at the start, and as far as its length is known beforehand.
    pub(super) fn holds_whole_request(&self) -> bool {
        let behind = self.received.len() - self.checked;
        match &self.stage {
            Stage::Body(Body::Bytes(remaining)) => *remaining <= behind as u64,
            _ => false,
        }
    }

    /// True when all of the request was received and taken.
    pub(super) fn is_taken(&self) -> bool {
        self.checked == 0
            && match &self.stage {
                Stage::Head | Stage::ForShard => false,
                Stage::Body(body) => body.is_done(),
                Stage::Whole => true,
            }
    }

    /// Checks as far as it can. `asked` is called with each head that passes.
    ///
    /// # Errors
    /// The request is malformed. Where another one would begin is unknown.
    pub(super) fn next(&mut self, asked: impl FnOnce(&RequestHead<'_>)) -> Result<Next, Fault> {
        if self.checked > 0 {
            return Ok(Next::Bytes(self.checked));
        }
        match &mut self.stage {
            Stage::Head => {
                let head = parse_request(&self.received, self.limits).map_err(Fault::Head)?;
                let Some(head) = head else {
                    return Ok(Next::Missing);
                };
                myriad_wire::http::check_request(&head).map_err(Fault::Head)?;
                let is_for_shard = self
                    .for_shards
                    .is_some_and(|for_shards| for_shards.contain(&head));
                if is_for_shard && !self.is_first {
                    self.stage = Stage::ForShard;
                    return Ok(Next::ForShard);
                }
                let body = match body_length(&head)? {
                    BodyLength::Bytes(count) => Body::Bytes(count),
                    BodyLength::Chunked => Body::Chunked(ChunkedBody::default()),
                };
                asked(&head);
                self.checked = head.head_bytes();
                self.stage = Stage::Body(body);
            }
            Stage::Body(body) if body.is_done() => {
                self.stage = Stage::Whole;
                return Ok(Next::Whole);
            }
            Stage::Body(body) => self.checked = body.advance(&self.received)?,
            Stage::Whole => return Ok(Next::Whole),
            Stage::ForShard => return Ok(Next::ForShard),
        }
        Ok(match self.checked {
            0 => Next::Missing,
            checked => Next::Bytes(checked),
        })
    }

    /// Takes checked bytes: as many as [`Inbound::next`] named, or fewer.
    pub(super) fn take(&mut self, count: usize, into: impl FnOnce(&[u8])) {
        assert!(count <= self.checked, "only checked bytes may be taken");
        into(&self.received[..count]);
        self.received.drain(..count);
        self.checked -= count;
        if self.received.is_empty() {
            // A kept connection that waits for its next request holds no memory for it.
            self.received = Vec::new();
        }
    }

    /// The request was answered: what follows is the next one.
    pub(super) fn begin_next(&mut self) {
        assert!(
            matches!(self.stage, Stage::Whole),
            "the request has been received to its end"
        );
        self.stage = Stage::Head;
        self.is_first = false;
    }
}

impl Body {
    fn is_done(&self) -> bool {
        match self {
            Self::Bytes(remaining) => *remaining == 0,
            Self::Chunked(chunked) => chunked.is_done(),
        }
    }

    /// How many of these bytes belong to it.
    fn advance(&mut self, bytes: &[u8]) -> Result<usize, Fault> {
        match self {
            Self::Bytes(remaining) => {
                let count =
                    usize::try_from(*remaining).map_or(bytes.len(), |most| most.min(bytes.len()));
                *remaining -= count as u64;
                Ok(count)
            }
            Self::Chunked(chunked) => chunked.advance(bytes).map_err(Fault::Body),
        }
    }
}

fn body_length(head: &RequestHead<'_>) -> Result<BodyLength, Fault> {
    BodyLength::of(head).ok_or(Fault::Head(HeadError::Framing))
}

impl Asked {
    /// Reads it from a head.
    pub(super) fn of(head: &RequestHead<'_>, keys: &Keys) -> Self {
        let is_keyed = !keys.is_open()
            && key::presented(|name| head.header(name), head.query())
                .is_some_and(|presented| keys.find(&presented).is_some());
        Self {
            is_keyed,
            is_probe: matches!(head.path(), "/healthz" | "/metrics"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: HeadLimits = HeadLimits {
        bytes_max: 200,
        headers_max: 4,
    };

    /// Everything that is let through, request by request, and how it ends.
    fn requests(pieces: &[&[u8]]) -> (Vec<String>, Result<Next, Fault>) {
        let for_shards = Some(ShardRequests {
            echo: false,
            transports: myriad_shard::Transports::default(),
        });
        let mut inbound = Inbound::new(Vec::new(), LIMITS).stopping_for(for_shards);
        let (mut requests, mut pieces) = (vec![String::new()], pieces.iter());
        loop {
            match inbound.next(|_| {}) {
                Ok(Next::Bytes(count)) => inbound.take(count, |bytes| {
                    let text = str::from_utf8(bytes).expect("text");
                    requests.last_mut().expect("one").push_str(text);
                }),
                Ok(Next::Whole) => {
                    inbound.begin_next();
                    requests.push(String::new());
                }
                Ok(Next::Missing) => match pieces.next() {
                    Some(piece) => inbound.extend(piece),
                    None => return (requests, Ok(Next::Missing)),
                },
                Ok(Next::ForShard) => {
                    // The shard gets the rest from the socket.
                    let mut rest = inbound.into_received();
                    rest.extend(pieces.copied().flatten());
                    requests.push(String::from_utf8(rest).expect("text"));
                    return (requests, Ok(Next::ForShard));
                }
                Err(fault) => return (requests, Err(fault)),
            }
        }
    }

    #[test]
    fn a_request_for_a_shard_is_kept_whole_however_it_is_cut() {
        let sent = [
            "GET /raw HTTP/1.1\r\nHost: a\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nGET /",
            "",
            "GET /raw?channel=c HTTP/1.1\r\nHost: a\r\n\r\nframes",
        ];
        let all = sent.concat();
        let expected: Vec<String> = sent.iter().map(|text| (*text).to_owned()).collect();
        for cut in 0..all.len() {
            let (front, back) = all.as_bytes().split_at(cut);
            let seen = requests(&[front, back]);
            assert_eq!(seen, (expected.clone(), Ok(Next::ForShard)), "cut at {cut}");
        }
        let bytes: Vec<&[u8]> = all.as_bytes().chunks(1).collect();
        assert_eq!(requests(&bytes), (expected, Ok(Next::ForShard)));
    }

    #[test]
    fn what_is_for_a_shard() {
        let next = |head: &str| {
            let for_shards = Some(ShardRequests {
                echo: false,
                transports: myriad_shard::Transports::default(),
            });
            let first = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
            let received = format!("{first}{head}\r\nHost: a\r\n\r\n").into_bytes();
            let mut inbound = Inbound::new(received, LIMITS).stopping_for(for_shards);
            inbound.next(|_| {}).expect("the first head");
            inbound.take(first.len(), |_| {});
            inbound.next(|_| {}).expect("the first request");
            inbound.begin_next();
            inbound.next(|_| {})
        };
        for head in [
            "GET /any HTTP/1.1\r\nUpgrade: WebSocket",
            "POST /connection/websocket HTTP/1.1\r\nContent-Length: 3",
            "GET /v1/stream/a/b?offset=now&live=sse HTTP/1.1",
        ] {
            assert_eq!(next(head), Ok(Next::ForShard), "{head}");
        }
        for head in [
            "GET /echo HTTP/1.1",
            "GET /any HTTP/1.1\r\nUpgrade: h2c",
            "HEAD /v1/stream/a?live=sse HTTP/1.1",
        ] {
            assert!(matches!(next(head), Ok(Next::Bytes(_))), "{head}");
        }
        let malformed = "GET /raw HTTP/1.1\r\nHost: b";
        assert!(matches!(next(malformed), Err(Fault::Head(_))));
    }

    #[test]
    fn requests_are_told_apart_however_they_are_cut() {
        let sent = [
            "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nGET /",
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3;x\r\nGET\r\n0\r\na: b\r\n\r\n",
            "GET /last HTTP/1.0\r\n\r\n",
        ];
        let all = sent.concat();
        let mut expected: Vec<String> = sent.iter().map(|text| (*text).to_owned()).collect();
        expected.push(String::new());
        for cut in 0..all.len() {
            let (front, back) = all.as_bytes().split_at(cut);
            let seen = requests(&[front, back]);
            assert_eq!(seen, (expected.clone(), Ok(Next::Missing)), "cut at {cut}");
        }
        let bytes: Vec<&[u8]> = all.as_bytes().chunks(1).collect();
        assert_eq!(requests(&bytes).0, expected);
    }

    #[test]
    fn nothing_of_a_malformed_head_is_let_through() {
        let good = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        for bad in [
            "GET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\nHost: a\n\n",
            "GET /#x HTTP/1.1\r\nHost: a\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            &format!("GET /{} HTTP/1.1\r\n", "x".repeat(200)),
        ] {
            let (seen, end) = requests(&[good.as_bytes(), bad.as_bytes()]);
            assert!(matches!(end, Err(Fault::Head(_))), "{bad}: {end:?}");
            assert_eq!(seen, [good, ""], "{bad}");
        }
    }

    #[test]
    fn a_malformed_chunk_ends_the_request() {
        let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        let (_, end) = requests(&[head.as_bytes(), b"1;\0\r\nx\r\n0\r\n\r\n"]);
        assert_eq!(end, Err(Fault::Body(ChunkError::Extension)));
    }

    #[test]
    fn a_head_tells_who_asks_for_what() {
        let asked = |text: &str| {
            let mut seen = None;
            let mut inbound = Inbound::new(text.as_bytes().to_vec(), LIMITS);
            let keys = Keys::lone("k");
            inbound
                .next(|head| seen = Some(Asked::of(head, &keys)))
                .expect("a head");
            seen.map(|asked| (asked.is_keyed, asked.is_probe))
        };
        let head = |path: &str, header: &str| {
            asked(&format!("GET {path} HTTP/1.1\r\nHost: a\r\n{header}\r\n"))
        };
        assert_eq!(head("/healthz?x", ""), Some((false, true)));
        assert_eq!(
            head("/api/publish", "X-API-Key: k\r\n"),
            Some((true, false))
        );
        assert_eq!(
            head("/", "Authorization: apikey k\r\n"),
            Some((true, false))
        );
        assert_eq!(head("/?api_key=k", ""), Some((true, false)));
        assert_eq!(head("/", "X-API-Key: wrong\r\n"), Some((false, false)));
    }
}
