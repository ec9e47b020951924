//! The life of a stream: how it begins, how long it lasts, and how it ends.

use super::producers::Producers;
use super::{
    Appender, CreateStream, Producer, StreamAnswer, StreamCommand, StreamDone, StreamEnd,
    StreamEndKind, StreamRefused, StreamRequest, StreamState,
};
use crate::home::logs::Question;
use crate::home::{Home, HomeEffect};
use crate::{Delivery, Now, Position};
use myriad_wheel::Tick;
use myriad_wire::streams::MediaType;
use std::sync::Arc;
use std::time::Duration;

/// When a stream ends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamExpiry {
    /// Never.
    Never,
    /// So many seconds after its last use. While somebody has subscribed it is in use.
    Idle(u64),
    /// At this time: milliseconds since 1970, UTC.
    At(u64),
}

/// What is known of a stream beside its publications, in figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::home) struct StreamHolding {
    /// All bytes.
    pub(in crate::home) bytes: u64,
    pub(in crate::home) producers: usize,
    /// Those of its producers.
    pub(in crate::home) producer_bytes: u64,
}

/// Who closed a stream.
#[derive(Debug)]
pub(super) enum Closed {
    Not,
    /// Without a producer.
    Plainly,
    /// A repeat of this request is recognised.
    By(Appender, Producer),
}

/// What a channel's record does not know of the stream that it is.
#[derive(Debug)]
pub(in crate::home) struct Stream {
    pub(super) content_type: MediaType,
    /// Somebody created it. Otherwise it exists from its first publication on.
    pub(super) is_created: bool,
    /// The offset of the last publication of an earlier stream of the same name.
    pub(super) begins_after: u64,
    pub(super) expiry: StreamExpiry,
    /// When it ends; of one that ends when it is idle, if it is not used before.
    pub(super) deadline: Option<Tick>,
    pub(super) closed: Closed,
    pub(super) producers: Producers,
    /// The last `Stream-Seq` of the application, and that of all clients: none of theirs shuts it out.
    pub(super) last_seq: Option<Box<str>>,
    pub(super) last_seq_of_clients: Option<Box<str>>,
}

impl Stream {
    /// What a channel is as a stream by being published to, after this offset.
    pub(in crate::home) fn published_after(begins_after: u64) -> Self {
        Self {
            content_type: MediaType::json(),
            is_created: false,
            begins_after,
            expiry: StreamExpiry::Never,
            deadline: None,
            closed: Closed::Not,
            producers: Producers::default(),
            last_seq: None,
            last_seq_of_clients: None,
        }
    }

    /// The last `Stream-Seq` among those that count for whoever appends.
    pub(super) fn last_seq_of(&mut self, by: &Appender) -> &mut Option<Box<str>> {
        match by {
            Appender::Application(_) => &mut self.last_seq,
            Appender::User(_) | Appender::Anonymous => &mut self.last_seq_of_clients,
        }
    }

    /// Bytes that it takes.
    fn bytes(&self) -> u64 {
        let closed_by = match &self.closed {
            Closed::By(by, producer) => by.bytes() + producer.id.len(),
            Closed::Not | Closed::Plainly => 0,
        };
        let seqs = [&self.last_seq, &self.last_seq_of_clients];
        let seqs: usize = seqs.into_iter().flatten().map(|seq| seq.len()).sum();
        let texts = self.content_type.as_str().len() + closed_by + seqs;
        (size_of::<Self>() + texts) as u64 + self.producers.bytes()
    }

    /// What counts of it.
    pub(in crate::home) fn holding(&self) -> StreamHolding {
        StreamHolding {
            bytes: self.bytes(),
            producers: self.producers.len(),
            producer_bytes: self.producers.bytes(),
        }
    }

    /// Whether this is the last use of one of its producers.
    pub(in crate::home) fn has_use(&self, number: u64) -> bool {
        self.producers.has(number)
    }

    /// Forgets the producer whose last use this is.
    pub(in crate::home) fn forget_use(&mut self, number: u64) {
        self.producers.forget(number);
    }

    /// Last uses of its producers, for checks.
    #[cfg(test)]
    pub(in crate::home) fn uses(&self) -> impl Iterator<Item = u64> {
        self.producers.uses()
    }

    pub(in crate::home) fn is_closed(&self) -> bool {
        !matches!(self.closed, Closed::Not)
    }

    /// When it ends, if nobody uses it until then.
    pub(in crate::home) fn expiry(&self, is_subscribed: bool) -> Option<Tick> {
        match self.expiry {
            StreamExpiry::Never => None,
            StreamExpiry::Idle(_) if is_subscribed => None,
            StreamExpiry::Idle(_) | StreamExpiry::At(_) => self.deadline,
        }
    }

    /// It is used.
    pub(in crate::home) fn touch(&mut self, now: Now) {
        if let StreamExpiry::Idle(seconds) = self.expiry {
            self.deadline = Some(now.tick_after(Duration::from_secs(seconds)));
        }
    }
}

impl Home {
    /// Somebody creates, changes or looks at a stream.
    pub fn handle_stream(&mut self, request: StreamRequest, now: Now) {
        self.ask(Question::Stream(request), now, now);
    }

    pub(in crate::home) fn carry_out_stream(&mut self, request: StreamRequest, now: Now) {
        self.note_channel_use(&request.channel, now);
        let StreamRequest {
            channel,
            asker,
            command,
        } = request;
        match command {
            StreamCommand::Create(stream) => self.create_stream(&channel, asker, stream, now),
            StreamCommand::Append(data) => self.append_to_stream(&channel, asker, data, now),
            StreamCommand::Describe => {
                let found = self.find_stream(&channel, now);
                let state = found.map(|index| StreamDone::Described(self.stream_state(index)));
                self.answer_stream(asker, state.ok_or(StreamRefused::NotFound));
                self.keep_budget();
            }
            StreamCommand::Delete => {
                let found = self.find_stream(&channel, now);
                let answer = found.map(|_| StreamDone::Deleted);
                self.answer_stream(asker, answer.ok_or(StreamRefused::NotFound));
                if let Some(index) = found {
                    self.delete_stream(index, now);
                }
            }
        }
    }

    pub(in crate::home) fn answer_stream(&mut self, asker: crate::Asker, answer: StreamAnswer) {
        let answer = Box::new(answer);
        self.effects.push_back(HomeEffect::Stream { asker, answer });
    }

    fn create_stream(&mut self, channel: &str, asker: crate::Asker, wish: CreateStream, now: Now) {
        if let Some(index) = self.find_stream(channel, now) {
            let state = self.stream_state(index);
            let is_same = state.content_type.matches(&wish.content_type)
                && state.expiry == wish.expiry
                && state.is_closed == wish.is_closed;
            let answer = if is_same {
                Ok(StreamDone::Existed(state))
            } else {
                Err(StreamRefused::Differs(state))
            };
            self.answer_stream(asker, answer);
            self.finish(index, now);
            return;
        }
        let index = self.find_or_open(channel, now);
        let index = index.filter(|&index| self.channels[index].history.is_some());
        let Some(index) = index else {
            self.answer_stream(asker, Err(StreamRefused::NoHistory));
            return;
        };
        let begins_after = self.channels[index].last_offset;
        let mut stream = Stream {
            content_type: wish.content_type,
            is_created: true,
            expiry: wish.expiry,
            ..Stream::published_after(begins_after)
        };
        if let StreamExpiry::At(_) = wish.expiry {
            stream.deadline = Some(now.tick_after(wish.expires_in));
        }
        if wish.is_closed {
            stream.closed = Closed::Plainly;
        }
        stream.touch(now);
        self.set_stream(index, Some(stream));
        let accepted = self.accept_entries(index, wish.entries, now);
        let state = self.stream_state(index);
        self.answer_stream(asker, Ok(StreamDone::Created(state)));
        self.dispatch_entries(index, accepted, now);
        if wish.is_closed {
            self.tell_stream_end(index, StreamEndKind::Closed, now);
        }
        self.finish(index, now);
    }

    /// The record of a channel that is a stream now.
    pub(super) fn find_stream(&mut self, channel: &str, now: Now) -> Option<u32> {
        let index = *self.names.get(channel)?;
        let index = self.after_expiry(index, now)?;
        self.is_stream(index).then_some(index)
    }

    fn is_stream(&self, index: u32) -> bool {
        let record = &self.channels[index];
        let (is_created, begins_after) = match &record.stream {
            Some(stream) => (stream.is_created, stream.begins_after),
            None => (false, 0),
        };
        record.history.is_some() && (is_created || record.last_offset > begins_after)
    }

    /// What a stream is.
    pub(super) fn stream_state(&self, index: u32) -> StreamState {
        let record = &self.channels[index];
        let tail = record.position();
        let history = record.history.as_ref();
        let earliest = Position {
            offset: history.map_or(tail.offset, |history| history.lost()),
            ..tail
        };
        let stream = record.stream.as_deref();
        StreamState {
            content_type: stream.map_or_else(MediaType::json, |one| one.content_type.clone()),
            tail,
            earliest,
            expiry: stream.map_or(StreamExpiry::Never, |one| one.expiry),
            is_closed: stream.is_some_and(Stream::is_closed),
        }
    }

    /// Whether a record's stream is closed.
    pub(in crate::home) fn is_closed_stream(&self, index: u32) -> bool {
        let stream = self.channels[index].stream.as_deref();
        stream.is_some_and(Stream::is_closed)
    }

    /// A record after what time has done to its stream; none if it has gone with it.
    pub(in crate::home) fn after_expiry(&mut self, index: u32, now: Now) -> Option<u32> {
        let record = &self.channels[index];
        let is_subscribed = !record.subscribed.is_empty();
        let stream = record.stream.as_deref();
        let expiry = stream.and_then(|stream| stream.expiry(is_subscribed));
        if expiry.is_none_or(|expiry| expiry > now.tick()) {
            return Some(index);
        }
        self.delete_stream(index, now)
    }

    /// Ends a stream, with everything that it keeps. Returns its record, if others need it still.
    fn delete_stream(&mut self, index: u32, now: Now) -> Option<u32> {
        self.flush_batch(index);
        if self.channels[index].subscribed.is_empty() {
            self.forget(index);
            return None;
        }
        // No publication gets this offset. So no position of the stream that ends is one of the next stream of that name: whoever
        // read to its end is told that this is gone, and not what the next one begins with.
        self.channels[index].last_offset += 1;
        self.tell_stream_end(index, StreamEndKind::Deleted, now);
        let last_offset = self.channels[index].last_offset;
        if let Some(history) = &mut self.channels[index].history {
            let before = history.holding();
            history.begin_after(last_offset);
            self.budget.note(before, history.holding());
        }
        self.note_durable_state(index);
        self.set_stream(index, Some(Stream::published_after(last_offset)));
        self.finish(index, now);
        Some(index)
    }

    /// Replaces what is known of a stream.
    pub(in crate::home) fn set_stream(&mut self, index: u32, stream: Option<Stream>) {
        self.set_stream_unkept(index, stream);
        self.note_durable_stream(index);
    }

    /// The same, of which the disk knows already.
    pub(in crate::home) fn set_stream_unkept(&mut self, index: u32, stream: Option<Stream>) {
        let record = &mut self.channels[index];
        let before = record.stream_holding();
        record.stream = stream.map(Box::new);
        self.note_stream(index, before);
    }

    /// Changes what is known of a stream.
    pub(in crate::home) fn change_stream<T>(
        &mut self,
        index: u32,
        change: impl FnOnce(&mut Stream) -> T,
    ) -> T {
        let record = &mut self.channels[index];
        let before = record.stream_holding();
        let stream = record
            .stream
            .get_or_insert_with(|| Box::new(Stream::published_after(0)));
        let changed = change(stream);
        self.note_stream(index, before);
        self.note_durable_stream(index);
        changed
    }

    /// A record's stream is used, if it has one that counts that.
    pub(in crate::home) fn touch_stream(&mut self, index: u32, now: Now) {
        if let Some(stream) = &mut self.channels[index].stream {
            stream.touch(now);
        }
    }

    /// Tells subscribers that a stream has ended, behind its last publication.
    pub(in crate::home) fn tell_stream_end(&mut self, index: u32, kind: StreamEndKind, now: Now) {
        self.flush_batch(index);
        let record = &self.channels[index];
        let shards = record.subscribed;
        if shards.is_empty() {
            return;
        }
        let delivery = Delivery::StreamEnd(Arc::new(StreamEnd {
            channel: Arc::clone(&record.name),
            kind,
            tail: record.position(),
            ended_at: now.tick(),
        }));
        self.effects
            .push_back(HomeEffect::Deliver { delivery, shards });
    }
}
