//! Writers: what they do to streams by the control plane, and what they are answered.

use super::facts::{Facts, Kind, Lasts, ROOMS, STREAMS};
use super::scenario::Profile;
use crate::ledger::{OTHERS, Replies};
use crate::members::{TAG, TAGS, data_of};
use myriad_reactor::sim::Prng;
use myriad_shard::{
    AppendToStream, Content, CreateStream, InquiryAnswer, MediaType, Mesh, Payload, PublishOptions,
    RequestId, StreamCommand, StreamDone, StreamEntry, StreamExpiry, StreamOffset, StreamRefused,
    StreamState,
};
use std::collections::HashMap;
use std::time::Duration;

/// Publications of one request.
const ENTRIES_MAX: usize = 4;

/// What was asked for.
#[derive(Debug)]
enum Wish {
    Create(Vec<usize>),
    Append(Vec<usize>),
    Delete,
    Describe,
    /// Of what history keeps.
    Remove,
}

/// A request that waits for its answer.
#[derive(Debug)]
struct Sent {
    room: usize,
    wish: Wish,
    at: u64,
}

#[derive(Debug)]
pub(super) struct Writers {
    replies: Replies,
    waiting: HashMap<u64, Sent>,
    last_id: u64,
    /// The last answers to questions: none where there is no such stream.
    pub(super) described: HashMap<usize, Option<StreamState>>,
}

/// A publication as its stream's kind has it. It says which one it is.
fn payload(kind: Kind, number: usize, facts: &mut Facts, prng: &mut Prng) -> Payload {
    let data = data_of(kind, number, prng.below(facts.data_bytes_max));
    facts.ledger.attempts[number].bytes = data.clone().into_bytes();
    match kind {
        Kind::Json => Payload::Json(data.into()),
        Kind::Text => Payload::Text(data.into()),
        Kind::Bytes => Payload::Binary(data.into_bytes().into()),
    }
}

pub(super) fn media_type(kind: Kind) -> MediaType {
    match kind {
        Kind::Json => MediaType::json(),
        Kind::Text => MediaType::parse("text/plain").expect("a media type"),
        Kind::Bytes => MediaType::octets(),
    }
}

impl Writers {
    pub(super) fn new(replies: Replies) -> Self {
        Self {
            replies,
            waiting: HashMap::new(),
            last_id: 0,
            described: HashMap::new(),
        }
    }

    pub(super) fn is_answered(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Something is done to some channel.
    pub(super) fn act(&mut self, mesh: &Mesh, facts: &mut Facts, prng: &mut Prng) {
        let room = facts.draw_room(prng);
        if facts.profile == Profile::Sessions || room >= STREAMS {
            for _ in 0..*prng.pick(&[1, 1, 3]) {
                self.publish(room, mesh, facts, prng);
            }
            return;
        }
        match prng.below(40) {
            0 if facts.profile == Profile::Together && prng.one_in(2) => {
                self.remove_history(room, mesh, facts);
            }
            0 => self.delete(room, mesh, facts),
            1 => self.append(room, 0, true, mesh, facts, prng),
            2 => self.append(room, 1, true, mesh, facts, prng),
            3 => self.describe(room, mesh, facts),
            4..=8 => self.create(room, mesh, facts, prng),
            _ if !facts.streams[room].is_wanted => self.create(room, mesh, facts, prng),
            9..=20 if facts.is_json(room) => self.publish(room, mesh, facts, prng),
            _ => {
                let count = prng.between(1, ENTRIES_MAX);
                self.append(room, count, false, mesh, facts, prng);
            }
        }
    }

    /// New publications: their numbers, and what a command carries. None if the node drains.
    fn entries(
        room: usize,
        count: usize,
        mesh: &Mesh,
        facts: &mut Facts,
        prng: &mut Prng,
    ) -> Option<(Vec<usize>, Vec<StreamEntry>)> {
        let numbers: Vec<usize> = (0..count).map(|_| facts.issue(room, false)).collect();
        let kind = ROOMS[room].kind;
        let content = |number: &usize| Content::new(payload(kind, *number, facts, prng));
        let contents = numbers.iter().map(content).collect();
        let entries = mesh.stream_entries(contents, false).ok();
        assert!(entries.is_some() || facts.is_draining, "there is room");
        Some((numbers, entries?))
    }

    fn send(
        &mut self,
        room: usize,
        wish: Wish,
        command: StreamCommand,
        mesh: &Mesh,
        facts: &mut Facts,
    ) {
        self.last_id += 1;
        let at = facts.tick();
        self.waiting.insert(self.last_id, Sent { room, wish, at });
        mesh.ask_stream(RequestId(self.last_id), ROOMS[room].name, command);
    }

    fn create(&mut self, room: usize, mesh: &Mesh, facts: &mut Facts, prng: &mut Prng) {
        let count = prng.below(3);
        let is_closed = prng.one_in(15);
        self.create_with(room, count, is_closed, mesh, facts, prng);
    }

    pub(super) fn create_with(
        &mut self,
        room: usize,
        count: usize,
        is_closed: bool,
        mesh: &Mesh,
        facts: &mut Facts,
        prng: &mut Prng,
    ) {
        let Some((numbers, entries)) = Self::entries(room, count, mesh, facts, prng) else {
            return;
        };
        let expires_in = Duration::from_secs(prng.between(1, 6) as u64);
        let expiry = match ROOMS[room].lasts {
            Lasts::Forever => StreamExpiry::Never,
            Lasts::WhileUsed => StreamExpiry::Idle(expires_in.as_secs()),
            Lasts::Until => StreamExpiry::At(1_000 * facts.moment),
        };
        let stream = &mut facts.streams[room];
        stream.is_wanted = true;
        stream.may_be_closed |= is_closed;
        let create = CreateStream {
            content_type: media_type(ROOMS[room].kind),
            expiry,
            expires_in,
            is_closed,
            entries,
        };
        let command = StreamCommand::Create(create);
        self.send(room, Wish::Create(numbers), command, mesh, facts);
    }

    pub(super) fn append(
        &mut self,
        room: usize,
        count: usize,
        closes: bool,
        mesh: &Mesh,
        facts: &mut Facts,
        prng: &mut Prng,
    ) {
        let Some((numbers, entries)) = Self::entries(room, count, mesh, facts, prng) else {
            return;
        };
        facts.streams[room].may_be_closed |= closes;
        let append = AppendToStream {
            content_type: media_type(ROOMS[room].kind),
            entries,
            by: myriad_shard::Appender::Application("".into()),
            producer: None,
            stream_seq: None,
            closes,
        };
        let command = StreamCommand::Append(append);
        self.send(room, Wish::Append(numbers), command, mesh, facts);
    }

    /// As the API publishes: mostly with a tag, and history may not keep it.
    fn publish(&mut self, room: usize, mesh: &Mesh, facts: &mut Facts, prng: &mut Prng) {
        let skip_history = prng.one_in(8);
        let number = facts.issue(room, skip_history);
        let tag = (!prng.one_in(4)).then(|| *prng.pick(&TAGS));
        facts.ledger.attempts[number].tag = tag;
        let content = Content {
            tags: tag
                .map(|tag| (TAG.into(), tag.into()))
                .into_iter()
                .collect(),
            ..Content::new(payload(ROOMS[room].kind, number, facts, prng))
        };
        let options = PublishOptions {
            skip_history,
            ..PublishOptions::default()
        };
        let id = Some(RequestId(OTHERS + number as u64));
        let taken = mesh.publish_content(ROOMS[room].name, content, options, id);
        assert!(taken.is_ok() || facts.is_draining, "there is room");
    }

    /// Deletes a stream and creates it again, while somebody may read it.
    pub(super) fn renew(&mut self, room: usize, mesh: &Mesh, facts: &mut Facts, prng: &mut Prng) {
        if prng.one_in(2) {
            self.append(room, 0, true, mesh, facts, prng);
        }
        self.delete(room, mesh, facts);
        self.create_with(room, 0, false, mesh, facts, prng);
    }

    pub(super) fn delete(&mut self, room: usize, mesh: &Mesh, facts: &mut Facts) {
        self.send(room, Wish::Delete, StreamCommand::Delete, mesh, facts);
        let moment = facts.moment;
        let stream = &mut facts.streams[room];
        stream.deleted_at = Some(moment);
        stream.is_wanted = false;
        stream.is_known = false;
    }

    fn remove_history(&mut self, room: usize, mesh: &Mesh, facts: &mut Facts) {
        self.last_id += 1;
        let (wish, at) = (Wish::Remove, facts.tick());
        self.waiting.insert(self.last_id, Sent { room, wish, at });
        facts.takings[room].publications = true;
        mesh.remove_history(RequestId(self.last_id), ROOMS[room].name);
    }

    pub(super) fn describe(&mut self, room: usize, mesh: &Mesh, facts: &mut Facts) {
        self.described.remove(&room);
        self.send(room, Wish::Describe, StreamCommand::Describe, mesh, facts);
    }

    /// Takes what shards have answered; true if anything came.
    pub(super) fn take_answers(&mut self, facts: &mut Facts) -> bool {
        let answers = self.replies.take_answers();
        let is_moving = !answers.is_empty();
        for (id, answer) in answers {
            let sent = self.waiting.remove(&id.0).expect("answered once");
            match answer {
                Some(InquiryAnswer::Stream(answer)) => self.take_answer(sent, *answer, facts),
                Some(InquiryAnswer::HistoryRemoved) => {
                    assert!(matches!(sent.wish, Wish::Remove), "{sent:?}");
                    facts.note("sessions: a history is removed");
                }
                Some(other) => panic!("{sent:?} is answered {other:?}"),
                None => assert!(facts.is_draining, "its home lives"),
            }
        }
        is_moving
    }

    fn take_answer(
        &mut self,
        sent: Sent,
        answer: Result<StreamDone, StreamRefused>,
        facts: &mut Facts,
    ) {
        let Sent { room, wish, at } = sent;
        let state = match (wish, answer) {
            (Wish::Create(numbers), Ok(StreamDone::Created(state))) => {
                place_all(room, &numbers, &state, facts);
                if facts.streams[room].deleted_at.is_some() && state.tail.offset > 0 {
                    facts.note("readers: a stream begins again behind a deleted one");
                }
                state
            }
            (Wish::Append(numbers), Ok(StreamDone::Appended { state, count, .. })) => {
                assert_eq!(count, numbers.len(), "all or nothing");
                place_all(room, &numbers, &state, facts);
                state
            }
            (
                Wish::Create(_),
                Ok(StreamDone::Existed(state)) | Err(StreamRefused::Differs(state)),
            )
            | (
                Wish::Append(_),
                Ok(StreamDone::Repeated { state, .. }) | Err(StreamRefused::Closed(state)),
            ) => state,
            (Wish::Describe, Ok(StreamDone::Described(state))) => {
                self.described.insert(room, Some(state.clone()));
                state
            }
            (Wish::Delete, Ok(StreamDone::Deleted)) => return,
            (Wish::Create(_), Err(StreamRefused::NoHistory)) if facts.has_lost_history(room) => {
                return;
            }
            (wish, Err(StreamRefused::NotFound)) => {
                assert!(
                    facts.may_be_missing(room, at, false),
                    "{wish:?}: {} is there",
                    ROOMS[room].name
                );
                if let Wish::Describe = wish {
                    self.described.insert(room, None);
                }
                return;
            }
            (wish, answer) => panic!("{wish:?} is answered {answer:?}"),
        };
        assert!(
            !state.is_closed || facts.streams[room].may_be_closed,
            "nobody closed {}",
            ROOMS[room].name
        );
        facts.confirm(room, at);
    }
}

/// Publications have got the last places of a stream.
fn place_all(room: usize, numbers: &[usize], state: &StreamState, facts: &mut Facts) {
    let tail = state.tail.stream_offset();
    let before = tail.offset - numbers.len() as u64;
    for (offset, number) in (before + 1..).zip(numbers) {
        facts.place(room, StreamOffset { offset, ..tail }, *number);
        facts.ledger.attempts[*number].is_acknowledged = true;
    }
}
