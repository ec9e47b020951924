//! Reading a stream.

use super::{ReadFrom, ReadRefused, ReadStream, StreamPage, StreamRead};
use crate::home::logs::Question;
use crate::home::{Home, HomeEffect, Kept};
use crate::{Now, Position};

impl Home {
    /// Somebody reads a stream.
    pub fn handle_read_stream(&mut self, request: ReadStream, now: Now) {
        self.ask(Question::ReadStream(request), now, now);
    }

    pub(in crate::home) fn answer_read_stream(&mut self, request: &ReadStream, now: Now) {
        self.note_channel_use(&request.channel, now);
        let found = self.find_stream(&request.channel, now);
        let answer = match found {
            Some(index) => self.read_stream(index, request, now),
            None if self.is_deaf_to(&request.channel) => Err(ReadRefused::Behind),
            None => Err(ReadRefused::NotFound),
        };
        let asker = request.asker;
        let answer = Box::new(answer);
        self.effects
            .push_back(HomeEffect::StreamRead { asker, answer });
        self.finish_if_open(found, now);
    }

    fn read_stream(&mut self, index: u32, request: &ReadStream, now: Now) -> StreamRead {
        self.touch_stream(index, now);
        // What is too old goes first, so that the earliest position is told as it is now.
        self.current_history(index, now);
        let mut state = self.stream_state(index);
        let (tail, earliest) = (state.tail, state.earliest);
        // What has been read of a log is a position in each of its channels: another node may have given it out.
        let reached = self.position_of(Some(index)).offset.max(tail.offset);
        let has_log = self.channels[index].log().is_some();
        let start = match request.from {
            ReadFrom::Start => earliest,
            ReadFrom::Now => tail,
            ReadFrom::After(after) if after.epoch != tail.epoch.letters() => {
                // It may be of an epoch that this home has not heard of yet.
                return Err(if self.is_deaf_to(&request.channel) {
                    ReadRefused::Behind
                } else {
                    ReadRefused::Unrecoverable(state)
                });
            }
            ReadFrom::After(after) if after.offset > reached && has_log => {
                // The log has lost its end: whoever may only be ahead was held.
                return Err(ReadRefused::Unrecoverable(state));
            }
            ReadFrom::After(after) if after.offset > reached => {
                return Err(ReadRefused::InvalidOffset);
            }
            ReadFrom::After(after) if after.offset < earliest.offset => {
                return Err(ReadRefused::Unrecoverable(state));
            }
            ReadFrom::After(after) => Position {
                offset: after.offset,
                ..tail
            },
        };
        state.tail.offset = tail.offset.max(start.offset);
        let publications = self.kept_after(index, start.offset, request);
        let next = publications.last().map_or(start.offset, |last| last.offset);
        Ok(StreamPage {
            start,
            next: Position {
                offset: next,
                ..tail
            },
            publications,
            state,
        })
    }

    /// What is kept after an offset, which history reaches back to.
    fn kept_after(&self, index: u32, offset: u64, request: &ReadStream) -> Vec<Kept> {
        let Some(history) = &self.channels[index].history else {
            return Vec::new();
        };
        let mut bytes = 0;
        let is_within = |kept: &Kept| {
            let is_first = bytes == 0;
            bytes += kept.content.bytes();
            is_first || bytes <= request.bytes_max
        };
        history
            .kept_after(offset)
            .take(request.publications_max as usize)
            .take_while(is_within)
            .collect()
    }
}
