//! Streams of events: how they open, what they are told, and that they are alive.

use super::Reading;
use super::answers::contents;
use crate::marks::hit;
use crate::shard::Shard;
use crate::transport::Refused;
use myriad_hub::{Chunk, CloseReason, Kept, Now, Phase, StreamPart};
use myriad_reactor::Reactor;
use myriad_wheel::Key;

impl<R: Reactor> Shard<R> {
    /// Opens a stream of events, if that is not done yet, and tells what there is. It is live once it is caught up.
    pub(super) fn tell_events(
        &mut self,
        key: Key,
        reading: &Reading,
        part: &StreamPart<'_>,
        kept: &[Kept],
        now: Now,
    ) {
        let is_new = self.hub.connection(key.index).phase != Phase::Open;
        let bearer = reading.bearer.as_ref().filter(|_| is_new);
        if bearer.is_some_and(|bearer| self.is_revoked(bearer)) {
            hit!(ReadRefused);
            return self.refuse(key, Refused::revoked(), now);
        }
        if is_new && reading.comes_back && part.is_closed && kept.is_empty() {
            // It would come back for ever. A 204 tells it to stop (HTML, "Server-sent events").
            return self.answer_end(key, part, now);
        }
        let mut bytes = Vec::new();
        if is_new {
            let retry_ms = self.hub.next_retry_ms();
            bytes = StreamPart::events_head(part.media_type, reading.variant, retry_ms);
        }
        let cursor = self.hub.reader_settings().cursor(reading.cursor, now);
        bytes.extend(part.events(contents(kept), cursor, reading.variant));
        let queued = self
            .hub
            .enqueue_alone(key.index, Chunk::Response(bytes.into()));
        match queued {
            // It has no head yet, so it has no last chunk either.
            Err(_) if is_new => {
                hit!(AnswerTooMuch);
                return self.refuse(key, Refused::overloaded().of_stream(), now);
            }
            Err(overflow) => return self.close_stream(key, overflow.into(), now),
            Ok(()) if is_new => self.open_events(key, reading, now),
            Ok(()) => {}
        }
        if part.is_up_to_date
            && let Some(subscription) = self.subscription_of(key, reading)
        {
            self.hub.begin_delivering(subscription, part.to);
        }
        // A client that has ended its side gets what there is. It cannot be told from one that is gone, and a stream of events has no
        // other end.
        let is_last = self.hub.connection(key.index).has_received_fin();
        if part.is_closed || is_last {
            self.end_events(key, CloseReason::Answered, now);
        }
    }

    /// The head of a stream of events is queued.
    fn open_events(&mut self, key: Key, reading: &Reading, now: Now) {
        let bearer = reading.bearer.clone();
        self.hub
            .open_events(key.index, reading.variant, bearer, now);
        // What the client sent behind its request is of no use: nobody would answer it.
        drop(self.inputs.take(&mut self.hub, key.index));
        self.note_connected(key, now);
        self.note_event(Some(key), now, |shard| shard.upgraded(key));
        self.metrics().event_streams_opened.add(1);
    }

    /// Streams of events are told that they are alive.
    pub(crate) fn ping_events(&mut self, mut due: Vec<u32>, now: Now) {
        due.sort_by_key(|&index| self.hub.variant_of(index).is_chunked());
        self.metrics().pings.add(due.len() as u64);
        let split = due.partition_point(|&index| !self.hub.variant_of(index).is_chunked());
        for alike in [&due[..split], &due[split..]] {
            if let Some(&first) = alike.first() {
                let bytes = self.hub.events_comment(first).into();
                self.send_alike(alike, &bytes, now);
            }
        }
    }

    /// Ends a stream of events behind what is queued.
    pub(crate) fn end_events(&mut self, key: Key, reason: CloseReason, now: Now) {
        let last = self.hub.events_end(key.index);
        self.close_gracefully(key, reason, last, now);
    }
}
