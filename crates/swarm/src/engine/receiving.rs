//! What a terminal receives once it is a WebSocket: frames.
//!
//! The common case is one whole frame, the same bytes as the frame before it at another terminal: it is
//! recognised by one comparison. Other whole frames are read in place. Only cut, fragmented or unusual
//! frames get a decoder, and the terminal keeps it only while it is needed.

use crate::clock::{Nanos, Ticks};
use crate::engine::crowd::{MessageBody, Partial, PartialMessage, World};
use crate::engine::terminal::Phase;
use crate::engine::unwell::StallEnd;
use crate::failure::Failure;
use crate::measure::push::PushKey;
use crate::measure::sequence::Observed;
use myriad_reactor::{Reactor, Token};
use myriad_wire::ws::{
    CONTROL_BYTES_MAX, CloseCode, Decoder, Event, Extension, Kind, Opcode, ProtocolError, Reason,
    Role, encode_close, encode_frame,
};

impl World {
    pub(super) fn handle_received<R: Reactor>(
        &mut self,
        reactor: &mut R,
        token: Token,
        bytes: &mut [u8],
        now: Nanos,
    ) {
        let Some(index) = self.current(token) else {
            return;
        };
        let phase = self.terminals[index].phase;
        if self.http.is_some() && matches!(phase, Phase::Open | Phase::Stalled | Phase::Upgrading) {
            return self.handle_http(reactor, token, bytes, now);
        }
        match phase {
            Phase::Open | Phase::Stalled | Phase::Joining if self.plan.framing.is_some() => {
                self.handle_stream(reactor, token, bytes, now);
            }
            Phase::Open | Phase::Stalled | Phase::Joining => {
                self.handle_frames(reactor, token, bytes, now);
            }
            Phase::Upgrading => self.handle_answer(reactor, token, bytes, now),
            // After a close frame of ours, and where nothing is to be known of the peer, its end alone is of interest.
            _ => {}
        }
    }

    /// Reads frames: whole ones in place, the rest through a decoder.
    pub(super) fn handle_frames<R: Reactor>(
        &mut self,
        reactor: &mut R,
        token: Token,
        bytes: &mut [u8],
        now: Nanos,
    ) {
        let mut rest = bytes;
        if self.partials.is_empty() || !self.partials.contains_key(&token.index) {
            while !rest.is_empty() {
                if self.recall(token, rest, now) {
                    return;
                }
                let Some(frame) = PlainFrame::read(rest, self.plan.extension) else {
                    break;
                };
                let (whole, after) = rest.split_at_mut(frame.frame_bytes);
                let payload = &whole[frame.header_bytes..];
                if let Some(kind) = frame.compressed {
                    let Ok(message) = self.inflate(kind, payload) else {
                        return self.fail_terminal(reactor, token, Failure::Protocol, now);
                    };
                    if !self.hear(reactor, token, (kind, whole, &message), now) {
                        return;
                    }
                    rest = after;
                    continue;
                }
                match frame.opcode {
                    Opcode::Ping => self.answer_ping(token, payload),
                    Opcode::Pong => self.note_pong(token, payload, now),
                    opcode => {
                        let kind = match opcode {
                            Opcode::Binary => Kind::Binary,
                            _ => Kind::Text,
                        };
                        if !self.hear(reactor, token, (kind, whole, payload), now) {
                            return;
                        }
                    }
                }
                rest = after;
            }
        }
        if !rest.is_empty() {
            self.decode(reactor, token, rest, now);
        }
    }

    /// Hears the input if it is exactly the frame that was heard last.
    fn recall(&mut self, token: Token, input: &[u8], now: Nanos) -> bool {
        if self.sessions.is_some() {
            return self.hear_again(token, input, now);
        }
        // Who has heard the same before is counted by the ledger, for each terminal.
        if self.flows.is_some() {
            return false;
        }
        let recalled = self.arrivals.recall(input);
        if let Some((key, payload_bytes)) = recalled {
            self.note_message(token, key, payload_bytes);
        }
        recalled.is_some()
    }

    /// Hears a message that came in one frame: its kind, the frame and the message. Returns false if the terminal's connection
    /// has ended over it.
    pub(super) fn hear<R: Reactor>(
        &mut self,
        reactor: &mut R,
        token: Token,
        (kind, frame, message): (Kind, &[u8], &[u8]),
        now: Nanos,
    ) -> bool {
        if self.sessions.is_some() {
            return self.hear_message(reactor, token, Some(frame), message, now);
        }
        if self.hear_talk(token, message, now) {
            return true;
        }
        if !self.hear_answer(token, kind, message, now) {
            let key = self.arrivals.recognise_frame(frame, message);
            self.note_heard(token, key, message.len());
        }
        true
    }

    /// Takes the next piece of a message.
    fn feed(&self, body: &mut MessageBody, piece: &[u8]) {
        if self.sessions.is_some() || self.flows.is_some() {
            body.kept.extend_from_slice(piece);
        } else {
            let answer_bytes_max = self
                .answered
                .as_ref()
                .map_or(0, |answered| answered.answer_bytes_max());
            body.feed(piece, answer_bytes_max);
        }
    }

    /// Reads everything that the protocol allows a server to send, and finds violations.
    fn decode<R: Reactor>(&mut self, reactor: &mut R, token: Token, bytes: &mut [u8], now: Nanos) {
        let mut partial = match self.take_partial(token.index) {
            Some(Partial::Message(partial)) => partial,
            _ => Box::new(PartialMessage {
                decoder: Decoder::with_extension(Role::Client, self.plan.extension),
                body: MessageBody::default(),
            }),
        };
        let mut input = bytes;
        loop {
            match partial.decoder.next_event(&self.plan.limits, &mut input) {
                Ok(Some(Event::Data {
                    kind,
                    compressed,
                    bytes,
                    last,
                    ..
                })) => {
                    let body = &mut partial.body;
                    if compressed {
                        body.compressed.extend_from_slice(bytes);
                    } else {
                        self.feed(body, bytes);
                    }
                    if !last {
                        continue;
                    }
                    let mut body = std::mem::take(body);
                    if compressed {
                        let Ok(message) = self.inflate(kind, &body.compressed) else {
                            return self.fail_terminal(reactor, token, Failure::Protocol, now);
                        };
                        self.feed(&mut body, &message);
                    }
                    if !self.finish_message(reactor, token, kind, &mut body, now) {
                        return;
                    }
                }
                Ok(Some(Event::Ping(payload))) => self.answer_ping(token, &payload),
                Ok(Some(Event::Pong(payload))) => self.note_pong(token, &payload, now),
                Ok(Some(Event::Close(reason))) => {
                    return self.handle_close(reactor, token, reason, now);
                }
                Ok(None) => break,
                Err(_) => return self.fail_terminal(reactor, token, Failure::Protocol, now),
            }
        }
        if !partial.decoder.is_idle() && !self.keep_message(token.index, partial) {
            self.fail_terminal(reactor, token, Failure::Unfinished, now);
        }
    }

    /// Hears a message that came in pieces. Returns false if the terminal's connection has ended over it.
    fn finish_message<R: Reactor>(
        &mut self,
        reactor: &mut R,
        token: Token,
        kind: Kind,
        body: &mut MessageBody,
        now: Nanos,
    ) -> bool {
        if self.sessions.is_some() {
            return self.hear_message(reactor, token, None, &body.kept, now);
        }
        if self.flows.is_some() {
            if self.hear_talk(token, &body.kept, now) {
                return true;
            }
            body.scan.feed(&body.kept);
        }
        if self.hear_answer(token, kind, &body.kept, now) {
            let cut = body.scan.bytes() - body.kept.len();
            self.totals.message_bytes += cut as u64;
        } else {
            let key = body.scan.finish(self.arrivals.run());
            self.note_heard(token, key, body.scan.bytes());
        }
        true
    }

    /// A compressed message, within the limit of one.
    fn inflate(&mut self, kind: Kind, payload: &[u8]) -> Result<Vec<u8>, ProtocolError> {
        let mut message = Vec::new();
        let bytes_max = self.plan.limits.message_bytes_max;
        self.inflater
            .inflate(kind, payload, bytes_max, &mut message)?;
        Ok(message)
    }

    /// Counts a message of one terminal. Where flows are sent, one without a stamp is something that the server says, and no push of
    /// somebody else.
    pub(super) fn note_heard(&mut self, token: Token, key: PushKey, payload_bytes: usize) {
        if self.flows.is_some() && matches!(key, PushKey::Foreign(_)) {
            self.totals.messages += 1;
            self.totals.message_bytes += payload_bytes as u64;
        } else {
            self.note_message(token, key, payload_bytes);
        }
    }

    /// Counts a message of one terminal.
    pub(super) fn note_message(&mut self, token: Token, key: PushKey, payload_bytes: usize) {
        self.totals.messages += 1;
        self.totals.message_bytes += payload_bytes as u64;
        let index = token.index as usize;
        // What comes while a terminal still joins is not measured: it was not counted in.
        let is_joining = self.terminals[index].phase == Phase::Joining;
        let PushKey::Own { stream, sequence } = key else {
            return self.count_arrival(key, !is_joining);
        };
        let Some(slot) = self.target(token.index).slot(stream) else {
            self.totals.unexpected += 1;
            return;
        };
        // A stamp that the server made up says nothing of the pushes before it, and must not pass for one that is still to be made.
        if !self.is_made(stream, sequence) {
            self.totals.unexpected += 1;
            return;
        }
        match self.sequence_mut(index, slot).observe(sequence) {
            Observed::InOrder => {
                self.take_absence(token.index);
            }
            Observed::AfterGap(count) => {
                let missing = self.missing_before(token, stream, sequence, count);
                match self.take_absence(token.index) {
                    true => self.totals.comeback.missed += missing,
                    false => self.totals.gaps += missing,
                }
            }
            Observed::Overtaken => self.totals.overtaken += 1,
            Observed::Repeated => {
                self.totals.duplicates += 1;
                return;
            }
        }
        if self.was_stalled_for(token, stream, sequence) {
            self.totals.unwell.received += 1;
            return;
        }
        let is_measured = !is_joining && self.was_called(token, stream, sequence);
        self.count_arrival(key, is_measured);
    }

    fn is_made(&self, stream: u16, sequence: u32) -> bool {
        let number = self.plan.number_of(stream, sequence);
        self.shared.ledger.is_made(number)
    }

    fn count_arrival(&mut self, key: PushKey, is_measured: bool) {
        if !is_measured {
            self.totals.replayed += 1;
        } else if !self.arrivals.count(key) {
            self.totals.unmeasured += 1;
        }
    }

    fn answer_ping(&mut self, token: Token, payload: &[u8]) {
        // What lay there when the server ended the connection.
        let is_stalled = self.terminals[token.index as usize].phase == Phase::Stalled;
        if is_stalled || !self.outbox.has_room(token.index) {
            return;
        }
        let mask = self.random.mask();
        self.totals.pings_answered += 1;
        self.outbox.push(token.index, token.generation, |out| {
            encode_frame(out, Opcode::Pong, true, Some(mask), payload);
        });
    }

    fn note_pong(&mut self, token: Token, payload: &[u8], now: Nanos) {
        let terminal = &mut self.terminals[token.index as usize];
        // A pong nobody asked for is a lawful heartbeat of the server (RFC 6455, section 5.5.3). One to an earlier ping is
        // too late: that ping has been counted as unanswered, and the next one has an answer of its own to come.
        let asked = terminal.waiting_since;
        if asked != Ticks(0) && payload == asked.stamp() {
            self.notes
                .pong_times
                .push(now.ticks().since(terminal.waiting_since));
            self.totals.heartbeats_answered += 1;
            terminal.waiting_since = Ticks(0);
        }
    }

    /// The server closes. A terminal that is still joining has failed to.
    fn handle_close<R: Reactor>(
        &mut self,
        reactor: &mut R,
        token: Token,
        reason: Option<(CloseCode, Reason)>,
        now: Nanos,
    ) {
        let code = reason.as_ref().map(|(code, _)| *code);
        let text = reason.map_or_else(String::new, |(_, text)| text.to_string());
        let index = token.index as usize;
        if self.terminals[index].phase == Phase::Joining {
            let failure = code.map_or(Failure::SessionEnded, |code| Failure::SessionClosed(code.0));
            self.keep_example(failure, &text);
            return self.fail_attempt(reactor, index, failure, now);
        }
        self.heed_code(token.index, code.map(|code| code.0));
        let end = StallEnd::Closed(code.map(|code| code.0));
        if !self.note_stall_end(index, end, now) {
            self.totals.lost += 1;
            self.notes.closes.push((code.map(|code| code.0), text));
        }
        self.answer_close(token, code, now);
    }

    /// Answers the server's close frame with one of the same code (RFC 6455, section 5.5.1), and awaits its end.
    fn answer_close(&mut self, token: Token, code: Option<CloseCode>, now: Nanos) {
        let mask = Some(self.random.mask());
        self.outbox
            .push(token.index, token.generation, |out| match code {
                Some(code) => encode_close(out, code, "", mask),
                None => encode_frame(out, Opcode::Close, true, mask, b""),
            });
        self.begin_closing(token.index as usize, Phase::Closing, now);
    }

    /// Leaves by a close frame of our own.
    pub(super) fn send_close(&mut self, index: usize, phase: Phase, now: Nanos) {
        let terminal = &self.terminals[index];
        let mask = Some(self.random.mask());
        let number = u32::try_from(index).expect("terminals are at most 2^32");
        self.outbox.push(number, terminal.attempt, |out| {
            encode_close(out, CloseCode::NORMAL, "", mask)
        });
        self.begin_closing(index, phase, now);
    }
}

/// A frame that lies in the input whole and needs no state: an unfragmented message, a ping or a pong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PlainFrame {
    opcode: Opcode,
    /// A compressed message of this kind: its payload has not been looked at.
    compressed: Option<Kind>,
    header_bytes: usize,
    frame_bytes: usize,
}

impl PlainFrame {
    /// Reads the frame at the front of `bytes` (RFC 6455, section 5.2). `None` leaves it to the decoder:
    /// whether it is incomplete, a fragment, large, a close, or against the protocol.
    fn read(bytes: &[u8], extension: Extension) -> Option<Self> {
        let &[first, second, ..] = bytes else {
            return None;
        };
        let opcode = Opcode::from_bits(first & 0x0f)?;
        // FIN set, RSV2 and RSV3 clear; MASK clear, which lets the second byte be the length alone.
        let compressed = match (first & 0xf0, extension, opcode) {
            (0x80, ..) => None,
            (0xc0, Extension::Deflate, Opcode::Text) => Some(Kind::Text),
            (0xc0, Extension::Deflate, Opcode::Binary) => Some(Kind::Binary),
            _ => return None,
        };
        let (header_bytes, payload_bytes) = match second {
            0..=125 => (2, usize::from(second)),
            126 => {
                let length = usize::from(u16::from_be_bytes([*bytes.get(2)?, *bytes.get(3)?]));
                // The shortest form is mandatory; the decoder says so.
                if length <= CONTROL_BYTES_MAX {
                    return None;
                }
                (4, length)
            }
            _ => return None,
        };
        let frame_bytes = header_bytes + payload_bytes;
        let payload = bytes.get(header_bytes..frame_bytes)?;
        let plain = match opcode {
            Opcode::Text => compressed.is_some() || std::str::from_utf8(payload).is_ok(),
            Opcode::Binary => true,
            Opcode::Ping | Opcode::Pong => payload_bytes <= CONTROL_BYTES_MAX,
            Opcode::Continuation | Opcode::Close => false,
        };
        plain.then_some(Self {
            opcode,
            compressed,
            header_bytes,
            frame_bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use myriad_wire::ws::encode_compressed_frame;

    fn frame(opcode: Opcode, fin: bool, mask: Option<[u8; 4]>, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        encode_frame(&mut out, opcode, fin, mask, payload);
        out
    }

    #[test]
    fn whole_unfragmented_frames_are_plain() {
        for (payload_bytes, header_bytes) in [(0, 2), (125, 2), (126, 4), (4000, 4)] {
            let mut bytes = frame(Opcode::Text, true, None, &vec![b'a'; payload_bytes]);
            let frame_bytes = bytes.len();
            bytes.extend_from_slice(b"more");
            assert_eq!(
                PlainFrame::read(&bytes, Extension::None),
                Some(PlainFrame {
                    opcode: Opcode::Text,
                    compressed: None,
                    header_bytes,
                    frame_bytes
                })
            );
            assert_eq!(
                PlainFrame::read(&bytes[..frame_bytes - 1], Extension::None),
                None
            );
        }
    }

    #[test]
    fn everything_else_is_left_to_the_decoder() {
        let read = |bytes: &[u8]| PlainFrame::read(bytes, Extension::None);
        assert_eq!(read(&frame(Opcode::Text, false, None, b"a")), None);
        assert_eq!(read(&frame(Opcode::Continuation, true, None, b"a")), None);
        assert_eq!(read(&frame(Opcode::Close, true, None, b"")), None);
        assert_eq!(
            read(&frame(Opcode::Text, true, Some([1, 2, 3, 4]), b"a")),
            None
        );
        assert_eq!(read(&frame(Opcode::Text, true, None, b"\xff")), None);
        assert_eq!(read(&[0xc1, 0]), None, "a reserved bit");
        assert_eq!(
            read(&[0x81, 126, 0, 5, 1, 2, 3, 4, 5]),
            None,
            "a length in a longer form than needed"
        );
        assert_eq!(
            read(&[0x89, 126, 0, 126]),
            None,
            "a control frame that is too long"
        );
        assert_eq!(read(&[0x81]), None);
    }

    #[test]
    fn compressed_frames_are_plain_where_they_were_offered() {
        let mut bytes = Vec::new();
        encode_compressed_frame(&mut bytes, Kind::Text, None, &[0xff; 5]);
        let read = |extension| PlainFrame::read(&bytes, extension);
        assert_eq!(read(Extension::None), None);
        let frame = read(Extension::Deflate).expect("whole");
        assert_eq!((frame.compressed, frame.frame_bytes), (Some(Kind::Text), 7));
        assert_eq!(
            PlainFrame::read(&[0xc9, 0], Extension::Deflate),
            None,
            "a marked ping"
        );
    }
}
