//! Terminals that speak plain TCP: no request, no frames but those that the scenario describes ([`framing`]).
//!
//! A terminal is open once its connection is made, or once what it says on opening is answered. It keeps nothing while it
//! is between two messages.
//!
//! [`framing`]: super::framing

use crate::clock::Nanos;
use crate::engine::crowd::{Partial, World};
use crate::engine::framing::{Front, Unfit};
use crate::engine::terminal::Phase;
use crate::failure::Failure;
use myriad_reactor::{Reactor, Token};
use myriad_wire::ws::{Kind, Opcode, encode_frame};
use std::sync::Arc;

/// Bytes of a message that are shown as an example of one that is too large.
const SHOWN_BYTES_MAX: usize = 64;

/// An incomplete message of a byte stream.
#[derive(Debug, Default)]
pub(super) struct PartialFrame {
    pub(super) bytes: Vec<u8>,
    /// So many of them need not be looked at again.
    looked_at: usize,
}

impl World {
    /// A connection is made: the terminal says what it says on opening.
    pub(super) fn begin_stream<R: Reactor>(&mut self, reactor: &mut R, token: Token, now: Nanos) {
        let index = token.index as usize;
        self.totals.tcp_connected += 1;
        reactor.register(self.terminals[index].socket(), token);
        if self.begin_talk(token) {
            self.terminals[index].phase = Phase::Joining;
            self.opening.await_answer(token, now);
        } else {
            self.note_opened(index, now);
        }
    }

    /// Takes bytes of a stream.
    pub(super) fn handle_stream<R: Reactor>(
        &mut self,
        reactor: &mut R,
        token: Token,
        bytes: &[u8],
        now: Nanos,
    ) {
        let Some(Partial::Frame(mut partial)) = self.take_partial(token.index) else {
            return self.take_frames(reactor, token, (bytes, 0), now);
        };
        partial.bytes.extend_from_slice(bytes);
        let input = (&partial.bytes[..], partial.looked_at);
        self.take_frames(reactor, token, input, now);
    }

    /// Hears the messages at the front of a stream, of which so many bytes have been looked at before.
    fn take_frames<R: Reactor>(
        &mut self,
        reactor: &mut R,
        token: Token,
        (bytes, mut looked_at): (&[u8], usize),
        now: Nanos,
    ) {
        let plan = Arc::clone(&self.plan);
        let framing = plan.framing.as_ref().expect("terminals speak plain TCP");
        let mut rest = bytes;
        while !rest.is_empty() {
            match framing.front(rest, looked_at) {
                Front::Message {
                    message,
                    frame_bytes,
                } => {
                    let (frame, after) = rest.split_at(frame_bytes);
                    if !self.hear(reactor, token, (Kind::Text, frame, &message[..]), now) {
                        return;
                    }
                    (rest, looked_at) = (after, 0);
                }
                Front::Incomplete { looked_at } => {
                    let bytes = rest.to_vec();
                    let partial = PartialFrame { bytes, looked_at };
                    if !self.keep_frame(token.index, partial) {
                        self.fail_terminal(reactor, token, Failure::Unfinished, now);
                    }
                    return;
                }
                Front::Large(bytes) => {
                    let most = framing.message_bytes_max;
                    let said = format!("a message of {bytes} bytes, and {most} are the most");
                    let failure = Failure::MessageTooLarge;
                    return self.fail_frame(reactor, token, failure, (said.as_str(), rest), now);
                }
                Front::Wrong => {
                    let said = "a length that no message can have";
                    let failure = Failure::FrameInvalid;
                    return self.fail_frame(reactor, token, failure, (said, rest), now);
                }
            }
        }
    }

    /// Keeps an incomplete message. False if all of them are more than the thread may keep.
    fn keep_frame(&mut self, index: u32, partial: PartialFrame) -> bool {
        self.partial_bytes += partial.bytes.len();
        self.partials.insert(index, Partial::Frame(partial));
        self.partial_bytes <= self.plan.partial_bytes_max
    }

    /// Ends a terminal that cannot tell messages apart any more. The first one of a kind is an example: what is wrong, and how the
    /// stream goes on.
    fn fail_frame<R: Reactor>(
        &mut self,
        reactor: &mut R,
        token: Token,
        failure: Failure,
        (said, rest): (&str, &[u8]),
        now: Nanos,
    ) {
        if self.refusals.is_kept(failure, token) {
            let begin = &rest[..rest.len().min(SHOWN_BYTES_MAX)];
            let said = format!("{said}; it begins with {}", begin.escape_ascii());
            self.notes.answers.push((failure, said.into_bytes()));
        }
        self.fail_terminal(reactor, token, failure, now);
    }

    /// Queues a message of a terminal in the form that its protocol gives it.
    pub(super) fn queue_message(&mut self, token: Token, opcode: Opcode, message: &[u8]) {
        let Some(framing) = &self.plan.framing else {
            let mask = Some(self.random.mask());
            return self.outbox.push(token.index, token.generation, |out| {
                encode_frame(out, opcode, true, mask, message);
            });
        };
        let mut written = Ok(());
        self.outbox.push(token.index, token.generation, |out| {
            written = framing.write(out, message);
        });
        if let Err(unfit) = written {
            self.note_unfit(token, unfit);
        }
    }

    /// Counts a message that was not sent, because no frame holds it.
    fn note_unfit(&mut self, token: Token, unfit: Unfit) {
        let failure = Failure::MessageUnfit;
        if self.refusals.is_kept(failure, token) {
            self.notes
                .answers
                .push((failure, unfit.to_string().into_bytes()));
        }
        self.note_failure(failure);
    }

    /// Whether terminals that leave say so before they end their connection. HTTP and plain TCP have no farewell.
    pub(super) fn has_farewell(&self) -> bool {
        self.plan.http.is_none() && self.plan.framing.is_none()
    }
}
