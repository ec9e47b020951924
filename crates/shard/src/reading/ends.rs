//! Ends: of the stream that somebody reads, and of his connection.

use super::Reading;
use crate::closing::Last;
use crate::marks::hit;
use crate::shard::Shard;
use crate::transport::Refused;
use myriad_hub::{
    Chunk, CloseReason, EndedReader, Now, Phase, Position, ReadFrom, StreamEndKind, Transport,
};
use myriad_reactor::Reactor;
use myriad_wheel::Key;
use myriad_wire::reads::Live;

impl<R: Reactor> Shard<R> {
    /// Streams have ended: those who wait for more are told.
    pub(crate) fn end_readers(&mut self, ended: Vec<EndedReader>, now: Now) {
        for reader in ended {
            let Some(key) = self.hub.key_of(reader.connection) else {
                continue;
            };
            let connection = self.hub.connection(key.index);
            if connection.phase != Phase::Open || !connection.transport().reads_streams() {
                continue;
            }
            let is_poll = connection.transport() == Transport::LongPoll;
            match reader.kind {
                _ if reader.is_late && is_poll => self.ask_again(key, now),
                StreamEndKind::Deleted if is_poll => {
                    hit!(PollOfDeleted);
                    self.refuse(key, Refused::no_stream(), now);
                }
                // Its client comes back, and is told then what there is.
                StreamEndKind::Deleted => self.end_events(key, CloseReason::Answered, now),
                StreamEndKind::Closed => self.tell_closed(key, is_poll, now),
            }
        }
    }

    /// A held request came so late that its stream may be the next one of that name, although the shard did not know that yet.
    fn ask_again(&mut self, key: Key, now: Now) {
        hit!(PollAsksAgain);
        let (channel, epoch, reader) = self.hub.unpark(key.index, now);
        let position = Position {
            epoch,
            offset: reader.last,
        };
        let reading = Box::new(Reading {
            serial: Reading::NOT_ASKED,
            channel: (*channel).into(),
            from: ReadFrom::After(position.stream_offset()),
            live: Live::LongPoll,
            comes_back: false,
            cursor: reader.cursor,
            if_none_match: None,
            variant: reader.variant,
            bearer: reader.bearer,
            held_until: reader.expires_at,
        });
        self.hub.begin_reading(key.index, now);
        self.ask_stream(key, reading);
    }

    fn tell_closed(&mut self, key: Key, is_poll: bool, now: Now) {
        hit!(ReaderOfClosed);
        let bytes = self.hub.idle_answer(key.index, false, true, now);
        if let Err(overflow) = self.hub.enqueue(key.index, Chunk::Shared(bytes)) {
            return self.close_stream(key, overflow.into(), now);
        }
        if is_poll {
            self.metrics().poll_answers.add(1);
            self.finish_answer(key.index, now);
        } else {
            self.end_events(key, CloseReason::Answered, now);
        }
    }

    /// The last bytes of a reader whose connection ends.
    pub(crate) fn last_of_reader(&mut self, key: Key, now: Now) -> Last {
        if self.hub.connection(key.index).transport() == Transport::Events {
            return Last::Bytes(self.hub.events_end(key.index));
        }
        if self.hub.is_answered(key.index) {
            return Last::Nothing;
        }
        Last::Bytes(self.hub.idle_answer(key.index, true, false, now).to_vec())
    }
}
