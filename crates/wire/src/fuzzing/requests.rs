//! A connection's requests as one stream of bytes: where each of them ends, whoever reads and however the bytes are cut.

use super::requests_model::{Verdict, read_requests_by_the_book};
use super::spread;
use crate::http::{BodyLength, ChunkedBody, HeadLimits, check_request, parse_request};

/// The most places at which an input is cut.
const CUTS_MAX: usize = if cfg!(any(fuzzing, miri)) { 8 } else { 384 };
/// Longer inputs are not fed byte by byte, because a head is parsed anew with each byte.
const BYTEWISE_BYTES_MAX: usize = 2048;

/// How a stream of requests was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requests {
    /// Where each request that was accepted ends, in bytes from the start.
    pub ends: Vec<usize>,
    /// What came behind them.
    pub last: LastRequest,
}

/// What comes behind the requests that were accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastRequest {
    /// Nothing.
    None,
    /// A request that has not come to its end.
    Partial,
    /// A request that is refused with this status, and this label of metrics.
    Refused(u16, &'static str),
}

/// Fuzz target: any bytes as the requests of one connection. The first byte chooses the limits, the rest is the input.
///
/// # Panics
/// If a property does not hold.
pub fn http_requests(bytes: &[u8]) {
    let Some((setting, input)) = bytes.split_first() else {
        return;
    };
    let limits = match setting & 3 {
        0 | 3 => HeadLimits::default(),
        1 => HeadLimits {
            bytes_max: 64,
            headers_max: 3,
        },
        _ => HeadLimits {
            bytes_max: usize::MAX,
            headers_max: usize::MAX,
        },
    };
    check_requests(input, limits);
}

/// Checks that a stream of requests is read the same way wherever it is cut, and as a second reader reads it that was written from
/// the RFCs alone. Returns how it is read.
///
/// # Panics
/// If it is not.
pub fn check_requests(input: &[u8], limits: HeadLimits) -> Requests {
    let whole = read_requests([input], limits);
    for cut in spread(input, CUTS_MAX) {
        let (front, back) = input.split_at(cut);
        assert_eq!(read_requests([front, back], limits), whole, "cut at {cut}");
    }
    if input.len() <= BYTEWISE_BYTES_MAX {
        assert_eq!(read_requests(input.chunks(1), limits), whole, "in bytes");
    }
    let (ends, verdict) = read_requests_by_the_book(input, limits);
    assert_eq!(whole.ends, ends, "{verdict:?}");
    let agrees = match (whole.last, &verdict) {
        (LastRequest::None, Verdict::Nothing) | (LastRequest::Partial, Verdict::Partial) => true,
        // A head whose end has not come may be refused already.
        (LastRequest::Refused(..) | LastRequest::Partial, Verdict::HeadWithoutEnd) => true,
        (LastRequest::Refused(status, _), Verdict::Refused(statuses)) => statuses.contains(&status),
        _ => false,
    };
    assert!(agrees, "{:?}, and by the book {verdict:?}", whole.last);
    whole
}

/// Reads a stream of requests as servers do: a head when it is whole, then its body, then the next head.
///
/// # Panics
/// If a head that was checked announces no length.
pub fn read_requests<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
    limits: HeadLimits,
) -> Requests {
    let mut reader = Reader {
        limits,
        held: Vec::new(),
        taken: 0,
        body: Body::None,
        ends: Vec::new(),
    };
    for piece in pieces {
        reader.held.extend_from_slice(piece);
        if let Err((status, label)) = reader.advance() {
            let last = LastRequest::Refused(status, label);
            return Requests {
                ends: reader.ends,
                last,
            };
        }
    }
    let is_between = matches!(reader.body, Body::None) && reader.held.is_empty();
    Requests {
        ends: reader.ends,
        last: if is_between {
            LastRequest::None
        } else {
            LastRequest::Partial
        },
    }
}

struct Reader {
    limits: HeadLimits,
    /// What was received and not yet taken.
    held: Vec<u8>,
    /// Bytes in front of it.
    taken: usize,
    body: Body,
    ends: Vec<usize>,
}

enum Body {
    /// A head is being received.
    None,
    Bytes(u64),
    Chunked(ChunkedBody),
}

impl Reader {
    /// Goes on as far as it can. The error has the status and the label of a refusal.
    fn advance(&mut self) -> Result<(), (u16, &'static str)> {
        loop {
            let (count, is_end) = match &mut self.body {
                Body::None => {
                    let head = parse_request(&self.held, self.limits)
                        .map_err(|error| (error.status(), error.label()))?;
                    let Some(head) = head else {
                        return Ok(());
                    };
                    check_request(&head).map_err(|error| (error.status(), error.label()))?;
                    self.body = match BodyLength::of(&head).expect("a checked head has one") {
                        BodyLength::Bytes(length) => Body::Bytes(length),
                        BodyLength::Chunked => Body::Chunked(ChunkedBody::default()),
                    };
                    (head.head_bytes(), matches!(self.body, Body::Bytes(0)))
                }
                Body::Bytes(remaining) => {
                    let here = self.held.len();
                    let count = usize::try_from(*remaining).map_or(here, |most| most.min(here));
                    *remaining -= count as u64;
                    (count, *remaining == 0)
                }
                Body::Chunked(chunked) => {
                    let count = chunked.advance(&self.held).map_err(|_| (400, "body"))?;
                    (count, chunked.is_done())
                }
            };
            self.held.drain(..count);
            self.taken += count;
            if is_end {
                self.body = Body::None;
                self.ends.push(self.taken);
            }
            if self.held.is_empty() {
                return Ok(());
            }
        }
    }
}
