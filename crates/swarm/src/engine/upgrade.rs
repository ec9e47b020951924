//! The answer to an upgrade request: granted, refused, or none at all.
//!
//! The crowd keeps the server's answer of the first refusal of each kind, for people to read. That connection waits for
//! the body too. All others are judged by the head alone.

use crate::clock::Nanos;
use crate::engine::crowd::{Partial, World};
use crate::engine::opening::PROTOBUF_OFFER;
use crate::engine::terminal::Phase;
use crate::failure::Failure;
use myriad_reactor::{Reactor, Token};
use myriad_wire::centrifuge::Encoding;
use myriad_wire::handshake::{Agreed, ResponseRefused, check_response, check_response_to_offer};
use myriad_wire::http::{HeadError, HeadLimits, ResponseHead, parse_response};
use myriad_wire::ws::Extension;
use std::collections::BTreeMap;

/// The largest head of an answer: twice what clients in Node.js take by default. Servers send policies and cookies of several KiB.
pub(super) const HEAD_LIMITS: HeadLimits = HeadLimits {
    bytes_max: 32 * 1024,
    headers_max: 64,
};

/// What to say of a head beyond [`HEAD_LIMITS`]; none if the bytes are no HTTP.
pub(super) fn oversize(error: HeadError) -> Option<String> {
    let HeadLimits {
        bytes_max,
        headers_max,
    } = HEAD_LIMITS;
    match error {
        HeadError::TooLong => Some(format!("a head of more than {bytes_max} bytes")),
        HeadError::TooManyHeaders => Some(format!("a head of more than {headers_max} headers")),
        _ => None,
    }
}

/// Bytes that are kept of an answer.
const SAID_BYTES_MAX: usize = 200;

/// Kinds of refusals of which an answer is kept. A server may answer with any status.
const KINDS_MAX: usize = 16;

/// Whose answer is kept, by the kind of refusal.
#[derive(Debug, Default)]
pub(crate) struct Refusals(BTreeMap<Failure, Token>);

impl Refusals {
    /// Whether this connection's answer is the one to keep: the first of its kind.
    pub(super) fn is_kept(&mut self, failure: Failure, token: Token) -> bool {
        if self.0.len() >= KINDS_MAX && !self.0.contains_key(&failure) {
            return false;
        }
        *self.0.entry(failure).or_insert(token) == token
    }
}

/// What an answer to an upgrade request amounts to.
enum Answer {
    /// The head has not ended.
    Incomplete,
    /// Hints; the answer that counts begins after so many bytes.
    Interim { head_bytes: usize },
    /// A WebSocket; frames begin after so many bytes.
    Granted { head_bytes: usize, agreed: Agreed },
    /// A head that is larger than is read.
    TooLarge(String),
    /// No WebSocket.
    Refused {
        failure: Failure,
        /// What the server says about it begins after so many bytes.
        said_from: usize,
        /// More of that is to come.
        more: bool,
    },
}

impl World {
    /// Reads the upgrade's answer, and frames that came with it.
    pub(super) fn handle_answer<R: Reactor>(
        &mut self,
        reactor: &mut R,
        token: Token,
        bytes: &mut [u8],
        now: Nanos,
    ) {
        match self.take_partial(token.index) {
            Some(Partial::Head(mut head)) => {
                head.extend_from_slice(bytes);
                self.handle_head(reactor, token, &mut head, now);
            }
            _ => self.handle_head(reactor, token, bytes, now),
        }
    }

    fn handle_head<R: Reactor>(
        &mut self,
        reactor: &mut R,
        token: Token,
        bytes: &mut [u8],
        now: Nanos,
    ) {
        let index = token.index as usize;
        let mut bytes = bytes;
        loop {
            match self.judge_answer(token, bytes) {
                Answer::Interim { head_bytes } => bytes = &mut bytes[head_bytes..],
                Answer::Incomplete => return self.await_more(token, bytes),
                Answer::Granted { head_bytes, agreed } => {
                    self.note_agreed(token.index, agreed);
                    if self.sessions.is_some() {
                        self.begin_session(token);
                    } else if self.begin_talk(token) {
                        self.terminals[index].phase = Phase::Joining;
                    } else {
                        self.note_opened(index, now);
                    }
                    return self.handle_frames(reactor, token, &mut bytes[head_bytes..], now);
                }
                Answer::TooLarge(said) => {
                    let failure = Failure::HandshakeInvalid;
                    if self.refusals.is_kept(failure, token) {
                        self.keep_answer(failure, said.as_bytes());
                    }
                    return self.fail_attempt(reactor, index, failure, now);
                }
                Answer::Refused {
                    failure,
                    said_from,
                    more,
                } => {
                    let is_kept = self.refusals.is_kept(failure, token);
                    if is_kept && more {
                        return self.await_more(token, bytes);
                    }
                    if is_kept {
                        self.keep_answer(failure, &bytes[said_from..]);
                    }
                    return self.fail_attempt(reactor, index, failure, now);
                }
            }
        }
    }

    fn await_more(&mut self, token: Token, bytes: &[u8]) {
        self.partials
            .insert(token.index, Partial::Head(bytes.to_vec()));
    }

    /// Ends an attempt whose answer is complete or took too long. The failure is that of the answer so far, or else
    /// `failure`.
    pub(super) fn fail_upgrade<R: Reactor>(
        &mut self,
        reactor: &mut R,
        index: usize,
        failure: Failure,
        now: Nanos,
    ) {
        if self.http.is_some() {
            return self.fail_stream(reactor, index, failure, now);
        }
        let number = u32::try_from(index).expect("terminals are at most 2^32");
        let token = self.terminals[index].token(number);
        let mut failure = failure;
        if let Some(Partial::Head(head)) = self.take_partial(number) {
            let mut said_from = 0;
            if let Answer::Refused {
                failure: refusal,
                said_from: from,
                ..
            } = self.judge_answer(token, &head)
            {
                (failure, said_from) = (refusal, from);
            }
            if self.refusals.is_kept(failure, token) {
                self.keep_answer(failure, &head[said_from..]);
            }
        }
        self.fail_attempt(reactor, index, failure, now);
    }

    fn keep_answer(&mut self, failure: Failure, said: &[u8]) {
        if !said.is_empty() {
            let said = said[..said.len().min(SAID_BYTES_MAX)].to_vec();
            self.notes.answers.push((failure, said));
        }
    }

    fn note_agreed(&mut self, index: u32, agreed: Agreed) {
        // As `opened` does, it counts the crowd and not those that replace some of it later.
        if !self.is_replacing() && !self.is_coming_back(index) {
            self.totals.compressed += u64::from(agreed == Agreed::Deflate);
        }
    }

    fn judge_answer(&self, token: Token, bytes: &[u8]) -> Answer {
        let invalid = Answer::Refused {
            failure: Failure::HandshakeInvalid,
            said_from: 0,
            more: false,
        };
        let head = match parse_response(bytes, HEAD_LIMITS) {
            Ok(Some(head)) => head,
            Ok(None) => return Answer::Incomplete,
            Err(error) => return oversize(error).map_or(invalid, Answer::TooLarge),
        };
        if head.is_interim() {
            let head_bytes = head.head_bytes();
            return Answer::Interim { head_bytes };
        }
        let key = self
            .plan
            .key(self.plan.number(self.part, token.index), token.generation);
        let judged = match self.plan.extension {
            Extension::None => check_response(&head, &key.accept()).map(|()| Agreed::Plain),
            Extension::Deflate => check_response_to_offer(&head, &key.accept()),
        };
        match judged {
            Ok(_) if !self.is_subprotocol_offered(&head) => invalid,
            Ok(agreed) => Answer::Granted {
                head_bytes: head.head_bytes(),
                agreed,
            },
            Err(ResponseRefused::Status(status)) => Answer::Refused {
                failure: Failure::HandshakeStatus(status),
                said_from: head.head_bytes(),
                more: has_more(&head, bytes.len() - head.head_bytes()),
            },
            Err(_) => invalid,
        }
    }
}

impl World {
    /// Whether the server speaks a subprotocol that it was offered (RFC 6455, section 4.1), or none where that will do: one that was
    /// asked for protobuf has to say that it will.
    fn is_subprotocol_offered(&self, head: &ResponseHead<'_>) -> bool {
        let encoding = self.plan.session.as_ref().map(|session| session.encoding);
        let needs_protobuf = encoding == Some(Encoding::Protobuf);
        let (name, protobuf) = PROTOBUF_OFFER;
        let mut answers = head.headers(name);
        match (answers.next(), answers.next()) {
            (None, _) => !needs_protobuf,
            (Some(answer), None) if needs_protobuf => answer == protobuf.as_bytes(),
            (Some(answer), None) => self.offers(answer),
            (Some(_), Some(_)) => false,
        }
    }

    /// Whether a header of the scenario, or of the command line, has this subprotocol in its list.
    fn offers(&self, subprotocol: &[u8]) -> bool {
        let headers = self.plan.headers.iter();
        let offers = headers.filter(|(name, _)| name.eq_ignore_ascii_case(PROTOBUF_OFFER.0));
        let mut offered = offers.flat_map(|(_, list)| list.split(','));
        offered.any(|one| one.trim().as_bytes() == subprotocol)
    }
}

/// Whether more of a body will come than the `received` bytes, and is wanted.
fn has_more(head: &ResponseHead<'_>, received: usize) -> bool {
    let length = head.header("content-length");
    let length = length.and_then(|value| std::str::from_utf8(value).ok()?.trim().parse().ok());
    // Without a length the body ends with the connection, or in chunks; then its first bytes are enough.
    match length {
        Some(length) => received < SAID_BYTES_MAX.min(length),
        None => received == 0 && !matches!(head.status(), 204 | 304),
    }
}
