//! Answers to readers, which are whole: to what is there, to held requests, and to those whose time is over.

use super::Reading;
use crate::marks::hit;
use crate::shard::Shard;
use crate::transport::Refused;
use myriad_hub::{Chunk, CloseReason, Content, Kept, Now, Phase, ReadFrom, StreamPart, Transport};
use myriad_reactor::Reactor;
use myriad_wheel::Key;
use myriad_wire::reads::{Caching, Persistence, Status, etag_matches};

impl<R: Reactor> Shard<R> {
    /// Answers a live request, which has something to be told at once.
    pub(super) fn answer_poll(
        &mut self,
        key: Key,
        reading: &Reading,
        part: &StreamPart<'_>,
        kept: &[Kept],
        now: Now,
    ) {
        let settings = *self.hub.reader_settings();
        let (status, caching) = if kept.is_empty() {
            (Status::NoContent, Caching::Never)
        } else {
            (Status::Ok, self.kept_caching(reading))
        };
        let cursor = Some(settings.cursor(reading.cursor, now));
        let persistence = self.persistence_of(reading);
        let bytes = part.answer(contents(kept), status, cursor, caching, persistence);
        self.metrics().poll_answers.add(1);
        self.answer_reader(key, bytes, persistence, now);
    }

    /// Answers a request that is not live.
    pub(super) fn answer_read(
        &mut self,
        key: Key,
        reading: &Reading,
        part: &StreamPart<'_>,
        kept: &[Kept],
        now: Now,
    ) {
        let settings = *self.hub.reader_settings();
        let caching = match reading.from {
            ReadFrom::Now => Caching::Never,
            _ if part.is_up_to_date && !part.is_closed => Caching::Revalidated,
            _ => self.kept_caching(reading),
        };
        let known = reading.if_none_match.as_deref();
        let is_known = caching != Caching::Never
            && known.is_some_and(|known| etag_matches(known, &part.etag()));
        let status = if is_known {
            Status::NotModified
        } else {
            Status::Ok
        };
        let cursor = Some(settings.cursor(reading.cursor, now));
        let persistence = self.persistence_of(reading);
        let bytes = part.answer(contents(kept), status, cursor, caching, persistence);
        self.metrics().stream_reads.add(1);
        self.answer_reader(key, bytes, persistence, now);
    }

    /// How caches may keep an answer whose data stays the same.
    fn kept_caching(&self, reading: &Reading) -> Caching {
        let public = self.hub.reader_settings().is_public && self.is_open(&reading.channel);
        Caching::Kept { public }
    }

    /// Answers that a closed stream has nothing more, without a body. The connection ends.
    pub(super) fn answer_end(&mut self, key: Key, part: &StreamPart<'_>, now: Now) {
        let (status, persistence) = (Status::NoContent, Persistence::Close);
        let nothing = std::iter::empty::<&Content>();
        let bytes = part.answer(nothing, status, None, Caching::Never, persistence);
        self.metrics().stream_reads.add(1);
        self.answer_reader(key, bytes, persistence, now);
    }

    /// How a request's connection goes on: while the shard drains, it does not.
    fn persistence_of(&self, reading: &Reading) -> Persistence {
        if self.admission.drain.is_some() {
            Persistence::Close
        } else {
            reading.variant.persistence()
        }
    }

    /// Answers a request. Its connection takes the next one, or ends.
    pub(crate) fn answer_reader(
        &mut self,
        key: Key,
        bytes: Vec<u8>,
        persistence: Persistence,
        now: Now,
    ) {
        if self
            .hub
            .enqueue_alone(key.index, Chunk::Response(bytes.into()))
            .is_err()
        {
            hit!(AnswerTooMuch);
            return self.refuse(key, Refused::overloaded().of_stream(), now);
        }
        self.end_answer(key, persistence, now);
    }

    /// An answer is queued, or sent. Its connection takes the next request, or ends.
    fn end_answer(&mut self, key: Key, persistence: Persistence, now: Now) {
        match persistence {
            Persistence::Close => self.close_after_queue(key, CloseReason::Answered, now),
            Persistence::KeepAlive | Persistence::KeepAliveSaid => {
                self.hub.end_answer(key.index, now);
                let connection = self.hub.connection(key.index);
                if connection.has_received_fin() && !connection.has_input() {
                    return self.close_after_queue(key, CloseReason::Client, now);
                }
                self.await_forwarded(key);
                self.note_answer_left(key);
            }
        }
    }

    /// A delivery, or its time-out, has answered a held request. False if it could not: its connection has ended.
    pub(crate) fn finish_answer(&mut self, index: u32, now: Now) -> bool {
        let Some(key) = self.hub.key_of(index) else {
            return false;
        };
        let connection = self.hub.connection(index);
        if connection.phase != Phase::Open || connection.transport() != Transport::LongPoll {
            hit!(AnswerFailed);
            return false;
        }
        let persistence = self.hub.variant_of(index).persistence();
        self.end_answer(key, persistence, now);
        true
    }

    /// Held requests have waited for as long as they may: those that are alike get the same bytes.
    pub(crate) fn end_polls(&mut self, mut due: Vec<u32>, now: Now) {
        due.retain(|&index| self.hub.connection(index).transport() == Transport::LongPoll);
        due.sort_unstable_by_key(|&index| self.hub.idle_key(index));
        let over_at = due.iter().map(|&index| self.hub.poll_end(index));
        self.turn_end.polls_over.extend(over_at);
        self.metrics().poll_timeouts.add(due.len() as u64);
        let mut rest = &due[..];
        while let Some(&first) = rest.first() {
            let idle_key = self.hub.idle_key(first);
            let count = if self.hub.variant_of(first).has_own_cursor() {
                1
            } else {
                rest.partition_point(|&index| self.hub.idle_key(index) == idle_key)
            };
            let (alike, others) = rest.split_at(count);
            self.send_idle_answer(alike, now);
            rest = others;
        }
    }

    fn send_idle_answer(&mut self, alike: &[u32], now: Now) {
        let bytes = self.hub.idle_answer(alike[0], false, false, now);
        self.send_alike(alike, &bytes, now);
        for &index in alike {
            self.finish_answer(index, now);
        }
    }
}

pub(super) fn contents(kept: &[Kept]) -> impl Iterator<Item = &Content> {
    kept.iter().map(|kept| &*kept.content)
}
