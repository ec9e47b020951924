//! Reads what came of an answer, and says what it is: messages, heartbeats, a position, an end.
//!
//! It knows no terminal, so that what it says of a piece holds for all terminals that get the same piece.

use super::exchange::{Content, Exchange, SAID_BYTES_MAX, Trouble};
use super::positions::{POSITION_BYTES_MAX, Position, PositionId, Positions};
use super::scan::{Message, PUBLICATIONS_MAX, recognise};
use crate::engine::flows::ledger::MessageKey;
use crate::engine::flows::plan::FlowsPlan;
use crate::engine::flows::unstamped::{EXAMPLE_BYTES_MAX, is_blank};
use crate::engine::plan::{HttpPlan, PollPosition};
use crate::target::percent_encoded;
use myriad_wire::event_stream::StreamItem;
use serde::Deserialize;
use std::time::Duration;

/// The ping of the Centrifuge protocol: an empty message.
const EMPTY_MESSAGE: &[u8] = b"{}";

/// What the bytes of one answer say to a terminal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Heard {
    pub messages: Vec<Message>,
    /// Those of flows.
    pub of_flows: Vec<MessageKey>,
    /// Bytes of these.
    pub bytes_of_flows: usize,
    /// Messages in which no stamp of a flow was found, and the first of them.
    pub unstamped: u64,
    pub unstamped_first: Vec<u8>,
    /// Comments, blank lines and empty messages.
    pub heartbeats: u64,
    /// From where the next request goes on. Whoever has this holds it.
    pub position: Option<PositionId>,
    pub retry: Option<Duration>,
}

impl Heard {
    /// Whether there is no message.
    pub(super) fn is_nothing(&self) -> bool {
        self.messages.is_empty() && self.of_flows.is_empty()
    }
}

/// How far an answer has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// More of it is to come.
    Under,
    /// It is complete, and the server keeps the connection or not.
    Done { keeps: bool },
}

/// Reads answers.
pub(super) struct Reader<'a> {
    pub plan: &'a HttpPlan,
    pub positions: &'a mut Positions,
    /// The run whose stamps count.
    pub run: u16,
    /// The flows of the run, and what it is in their marks; none where there are none.
    pub flows: Option<(&'a FlowsPlan, u16)>,
    /// Largest message that is kept until it is complete.
    pub message_bytes_max: usize,
}

impl Reader<'_> {
    /// Reads the answer at the front of `input`, which is moved behind it.
    pub(super) fn read(
        &mut self,
        exchange: &mut Exchange,
        input: &mut &[u8],
        heard: &mut Heard,
    ) -> Result<Progress, Trouble> {
        if exchange.answer.is_none() && !exchange.read_head(input, self.plan)? {
            return Ok(Progress::Under);
        }
        let answer = exchange.answer.as_mut().expect("it was read");
        loop {
            let data = answer.body.next_data(input);
            let data = data.map_err(|error| Trouble::invalid(error.sentence()))?;
            let Some(data) = data else {
                break;
            };
            self.take(&mut answer.content, data, heard)?;
        }
        if answer.body.is_done() {
            return self.finish(exchange, heard);
        }
        Ok(Progress::Under)
    }

    /// Ends an answer: it is complete.
    pub(super) fn finish(
        &mut self,
        exchange: &mut Exchange,
        heard: &mut Heard,
    ) -> Result<Progress, Trouble> {
        let answer = exchange.answer.take().expect("it has a head");
        match answer.content {
            Content::Refusal(failure, said) => Err(Trouble { failure, said }),
            Content::Poll(mut scan) => {
                // Not before the whole answer is here: a client that loses it asks for it again.
                if let Some(position) = answer.position {
                    self.set_position(position, heard);
                }
                let is_of_flows = self.hear_flows(&scan.take_body(), heard);
                scan.finish(is_of_flows, &mut heard.messages);
                Ok(Progress::Done {
                    keeps: answer.keeps,
                })
            }
            Content::Lines(line) => {
                // What is behind the last line feed. Nothing is no line.
                if !line.is_empty() {
                    self.take_line(&line, heard);
                }
                Ok(Progress::Done { keeps: false })
            }
            // Of a poll, that its time is over. Answers to requests of flows are read elsewhere.
            Content::Whole(..) => Ok(Progress::Done {
                keeps: answer.keeps,
            }),
            // An event without its blank line is none.
            Content::Events(_) => Ok(Progress::Done { keeps: false }),
        }
    }

    fn take(
        &mut self,
        content: &mut Content,
        data: &[u8],
        heard: &mut Heard,
    ) -> Result<(), Trouble> {
        match content {
            Content::Poll(scan) => {
                scan.feed(data, self.run);
                if scan.is_overfull() {
                    return Err(Trouble::invalid(&format!(
                        "an answer with more than {PUBLICATIONS_MAX} publications"
                    )));
                }
                if self.flows.is_some() {
                    scan.keep(data);
                    self.check_kept(scan.kept_bytes())?;
                }
            }
            Content::Lines(line) => {
                self.take_lines(line, data, heard);
                self.check_kept(line.len())?;
            }
            Content::Events(events) => {
                events.read(data, |item| self.take_item(item, heard));
                self.check_kept(events.kept_bytes())?;
            }
            Content::Whole(..) => {}
            Content::Refusal(failure, said) => {
                let room = SAID_BYTES_MAX - said.len().min(SAID_BYTES_MAX);
                said.extend_from_slice(&data[..data.len().min(room)]);
                if said.len() >= SAID_BYTES_MAX {
                    return Err(Trouble {
                        failure: *failure,
                        said: std::mem::take(said),
                    });
                }
            }
        }
        Ok(())
    }

    fn check_kept(&self, bytes: usize) -> Result<(), Trouble> {
        if bytes <= self.message_bytes_max {
            return Ok(());
        }
        Err(Trouble::invalid(&format!(
            "a message of more than {} bytes",
            self.message_bytes_max
        )))
    }

    fn take_lines(&mut self, line: &mut Vec<u8>, data: &[u8], heard: &mut Heard) {
        let mut rest = data;
        while let Some(end) = memchr::memchr(b'\n', rest) {
            if line.is_empty() {
                self.take_line(&rest[..end], heard);
            } else {
                line.extend_from_slice(&rest[..end]);
                self.take_line(line, heard);
                line.clear();
            }
            rest = &rest[end + 1..];
        }
        line.extend_from_slice(rest);
    }

    fn take_line(&mut self, line: &[u8], heard: &mut Heard) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() || line == EMPTY_MESSAGE {
            heard.heartbeats += 1;
        } else {
            self.hear(line, heard);
        }
    }

    fn take_item(&mut self, item: StreamItem<'_>, heard: &mut Heard) {
        match item {
            StreamItem::Comment => heard.heartbeats += 1,
            StreamItem::Retry(millis) => heard.retry = Some(Duration::from_millis(millis)),
            StreamItem::Id(id) => {
                // A longer one is not shown when the stream is opened again, which servers take for a new client.
                let fits = (1..=POSITION_BYTES_MAX).contains(&id.len());
                if fits && self.plan.position != PollPosition::Same {
                    let line = [b"last-event-id: ", id, b"\r\n"].concat();
                    self.set_position(Position::Headers(line.into()), heard);
                }
            }
            StreamItem::Event {
                kind: b"control",
                data,
            } if self.plan.position == PollPosition::Automatic => {
                if let Some(position) = position_of_control(data) {
                    self.set_position(position, heard);
                }
            }
            StreamItem::Event { data, .. } if data == EMPTY_MESSAGE => heard.heartbeats += 1,
            StreamItem::Event { data, .. } => self.hear(data, heard),
        }
    }

    /// Hears a whole event or line.
    fn hear(&self, message: &[u8], heard: &mut Heard) {
        let is_of_flows = self.hear_flows(message, heard);
        recognise(message, self.run, is_of_flows, &mut heard.messages);
    }

    /// Hears the messages of flows in a whole event, line or body. Returns whether there are any.
    fn hear_flows(&self, bytes: &[u8], heard: &mut Heard) -> bool {
        let Some((flows, run)) = self.flows else {
            return false;
        };
        let before = heard.of_flows.len();
        flows.recognise_all(bytes, run, &mut heard.of_flows);
        let are_there = heard.of_flows.len() > before;
        if are_there {
            heard.bytes_of_flows += bytes.len();
        } else if !is_blank(bytes) {
            if heard.unstamped == 0 {
                let first = &bytes[..bytes.len().min(EXAMPLE_BYTES_MAX)];
                heard.unstamped_first = first.to_vec();
            }
            heard.unstamped += 1;
        }
        are_there
    }

    fn set_position(&mut self, position: Position, heard: &mut Heard) {
        let id = self.positions.hold_new(position);
        if let Some(previous) = heard.position.replace(id) {
            self.positions.release(previous);
        }
    }
}

/// The event with which a server of Durable Streams says how far it has come (its protocol, section 5.7).
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Control {
    stream_next_offset: String,
    #[serde(default)]
    stream_cursor: Option<String>,
}

fn position_of_control(data: &[u8]) -> Option<Position> {
    let control: Control = serde_json::from_slice(data).ok()?;
    let mut query = format!("offset={}", percent_encoded(&control.stream_next_offset));
    if let Some(cursor) = control.stream_cursor {
        query.push_str(&format!("&cursor={}", percent_encoded(&cursor)));
    }
    (query.len() <= POSITION_BYTES_MAX).then(|| Position::Query(query.into()))
}

/// What a refusal says so far, when no more of it will come; none if it is no refusal.
pub(super) fn refusal_so_far(exchange: &mut Exchange) -> Option<Trouble> {
    match exchange.answer.take()?.content {
        Content::Refusal(failure, said) => Some(Trouble { failure, said }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::plan::HttpKind;
    use crate::failure::Failure;
    use crate::measure::push::PushKey;
    use crate::stamp::Stamp;

    fn plan(kind: HttpKind) -> HttpPlan {
        HttpPlan {
            kind,
            body: None,
            position: PollPosition::Automatic,
            expect_held: None,
            answer_bytes_max: 0,
        }
    }

    fn push(sequence: u32) -> String {
        let stamp = Stamp {
            run: 7,
            stream: 0,
            sequence,
        };
        stamp.payload(30)
    }

    const fn own(sequence: u32) -> PushKey {
        PushKey::Own {
            stream: 0,
            sequence,
        }
    }

    /// What an answer says, whatever the pieces it comes in; its position as text.
    fn heard(kind: HttpKind, answer: &str) -> (Heard, String, Option<Progress>) {
        let read = |pieces: &[&[u8]]| {
            let (plan, mut positions) = (plan(kind), Positions::default());
            let (mut exchange, mut heard) = (Exchange::default(), Heard::default());
            let mut progress = None;
            for piece in pieces {
                let mut input = *piece;
                let mut reader = Reader {
                    plan: &plan,
                    positions: &mut positions,
                    run: 7,
                    flows: None,
                    message_bytes_max: 1000,
                };
                progress = Some(reader.read(&mut exchange, &mut input, &mut heard).unwrap());
                assert!(input.is_empty());
            }
            let position = heard.position.take().map(|id| {
                let position = format!("{:?}", positions.find(id).unwrap());
                positions.release(id);
                position
            });
            assert_eq!(positions.count(), 0, "each position is held once");
            (heard, position.unwrap_or_default(), progress)
        };
        let whole = read(&[answer.as_bytes()]);
        for cut in 1..answer.len() {
            let (front, back) = answer.as_bytes().split_at(cut);
            assert_eq!(read(&[front, back]), whole, "cut at {cut}");
        }
        let bytes: Vec<&[u8]> = answer.as_bytes().chunks(1).collect();
        assert_eq!(read(&bytes), whole);
        whole
    }

    fn keys(heard: &Heard) -> Vec<PushKey> {
        heard.messages.iter().map(|&(key, _)| key).collect()
    }

    #[test]
    fn a_poll_is_a_delivery_or_nothing() {
        let (one, two) = (push(1), push(2));
        let body = format!("{one}{two}");
        let answer = format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nstream-next-offset: 9\r\n\r\n{body}",
            body.len()
        );
        let (told, position, progress) = heard(HttpKind::LongPoll, &answer);
        assert_eq!(keys(&told), [own(1), own(2)]);
        assert_eq!(position, r#"Query("offset=9")"#);
        assert_eq!(progress, Some(Progress::Done { keeps: true }));
        let nothing = "HTTP/1.1 408 Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        let (told, _, progress) = heard(HttpKind::LongPoll, nothing);
        assert_eq!(told, Heard::default());
        assert_eq!(progress, Some(Progress::Done { keeps: false }));
    }

    #[test]
    fn events_are_messages_and_comments_are_heartbeats() {
        let (one, two) = (push(1), push(2));
        let chunk = |text: String| format!("{:x}\r\n{text}\r\n", text.len());
        let answer = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n{}{}{}",
            chunk(format!("retry: 50\n: hi\nid: 5\ndata: {one}\n\n")),
            chunk(":\n\nid: 6\nda".to_owned()),
            chunk(format!("ta: {{\"a\":\ndata: \"{two}\"}}\n\ndata: {{}}\n\n"))
        );
        let (told, position, progress) = heard(HttpKind::EventStream, &answer);
        assert_eq!(keys(&told), [own(1), own(2)]);
        assert_eq!(
            (told.heartbeats, told.retry),
            (3, Some(Duration::from_millis(50)))
        );
        assert!(position.contains("Headers"), "{position}");
        assert_eq!(progress, Some(Progress::Under));
    }

    #[test]
    fn a_durable_stream_says_where_it_is_in_events() {
        let answer = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n\
             event: data\ndata: [\"{}\",\ndata: \"{}\"]\n\n\
             event: control\ndata: {{\"streamNextOffset\":\"1_2\",\"streamCursor\":\"c\"}}\n\n",
            push(1),
            push(2)
        );
        let (told, position, _) = heard(HttpKind::EventStream, &answer);
        assert_eq!((keys(&told), told.heartbeats), (vec![own(1), own(2)], 0));
        assert_eq!(position, r#"Query("offset=1_2&cursor=c")"#);
    }

    #[test]
    fn a_stream_of_lines_has_a_message_on_each() {
        let answer = format!(
            "HTTP/1.1 200 OK\r\n\r\n{{\"connect\":{{}}}}\r\n{{}}\n\n{{\"push\":\"{}\"}}\n",
            push(3)
        );
        let (told, _, progress) = heard(HttpKind::Lines, &answer);
        assert!(matches!(keys(&told)[..], [PushKey::Foreign(_), key] if key == own(3)));
        assert_eq!((told.heartbeats, progress), (2, Some(Progress::Under)));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let plan = plan(HttpKind::Lines);
        let (mut exchange, mut heard) = (Exchange::default(), Heard::default());
        let mut reader = Reader {
            plan: &plan,
            positions: &mut Positions::default(),
            run: 7,
            flows: None,
            message_bytes_max: 1000,
        };
        let mut read = |text: &str| {
            let mut input = text.as_bytes();
            reader.read(&mut exchange, &mut input, &mut heard)
        };
        read("HTTP/1.1 200 OK\r\n\r\n").unwrap();
        read(&"x".repeat(1000)).unwrap();
        let trouble = read("x").unwrap_err();
        assert_eq!(trouble.failure, Failure::AnswerInvalid);
    }

    #[test]
    fn an_answer_has_so_many_publications_however_it_is_cut() {
        let read = |count: usize, piece_bytes: usize| -> Result<usize, Trouble> {
            let plan = plan(HttpKind::LongPoll);
            let mut positions = Positions::default();
            let mut reader = Reader {
                plan: &plan,
                positions: &mut positions,
                run: 7,
                flows: None,
                message_bytes_max: 1000,
            };
            let mut text = b"HTTP/1.1 200 OK\r\n\r\n".to_vec();
            for sequence in 1..=count {
                text.extend_from_slice(push(u32::try_from(sequence).unwrap()).as_bytes());
            }
            let (mut exchange, mut heard) = (Exchange::default(), Heard::default());
            for mut piece in text.chunks(piece_bytes) {
                reader.read(&mut exchange, &mut piece, &mut heard)?;
            }
            reader.finish(&mut exchange, &mut heard)?;
            Ok(heard.messages.len())
        };
        // Whole, and so that each piece ends within a publication.
        for piece_bytes in [usize::MAX, 3001, 29] {
            let most = PUBLICATIONS_MAX;
            assert_eq!(read(most, piece_bytes), Ok(most), "{piece_bytes}");
            let trouble = read(most + 1, piece_bytes).unwrap_err();
            assert_eq!(trouble.failure, Failure::AnswerInvalid);
            let said = String::from_utf8(trouble.said).unwrap();
            assert_eq!(said, "an answer with more than 65536 publications");
        }
    }

    #[test]
    fn a_refusal_is_told_in_full() {
        let plan = plan(HttpKind::LongPoll);
        let mut reader = Reader {
            plan: &plan,
            positions: &mut Positions::default(),
            run: 7,
            flows: None,
            message_bytes_max: 1000,
        };
        let mut said = |answer: &str| {
            let (mut exchange, mut heard) = (Exchange::default(), Heard::default());
            let mut input = answer.as_bytes();
            reader.read(&mut exchange, &mut input, &mut heard)
        };
        let answer = "HTTP/1.1 404 Not Found\r\nx: y\r\ncontent-length: 4\r\n\r\nnope";
        let trouble = said(answer).unwrap_err();
        assert_eq!(
            (trouble.failure, &trouble.said[..]),
            (Failure::Answer(404), answer.as_bytes())
        );
        let long = format!("HTTP/1.1 500 No\r\n\r\n{}", "x".repeat(5000));
        assert_eq!(said(&long).unwrap_err().said.len(), SAID_BYTES_MAX);
    }
}
