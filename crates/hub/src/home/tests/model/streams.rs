//! What happens to streams.

use super::super::streams::{append, ask, entries, plain, read_at_most};
use super::super::tick;
use super::{CHANNELS, Life, StreamLife, Test, numbers};
use crate::{
    AppendToStream, CreateStream, Position, ReadFrom, ReadRefused, StreamCommand, StreamDone,
    StreamRefused,
};

impl Test {
    /// The next numbers, as entries of an append.
    fn number(&mut self, count: usize) -> (Vec<u64>, Vec<crate::StreamEntry>) {
        let first = self.published + 1;
        self.published += count as u64;
        let numbers: Vec<u64> = (first..=self.published).collect();
        let texts: Vec<String> = numbers.iter().map(ToString::to_string).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        (numbers, entries(&texts))
    }

    pub(super) fn create(&mut self, channel: usize, count: usize, is_closed: bool) {
        let (numbers, entries) = self.number(count);
        let wish = CreateStream {
            is_closed,
            entries,
            ..plain()
        };
        let command = StreamCommand::Create(wish);
        let answer = ask(&mut self.home, CHANNELS[channel], command, tick(self.now));
        let now = self.now;
        let Some(life) = self.touch(channel) else {
            assert_eq!(answer, Err(StreamRefused::NoHistory));
            return;
        };
        if life.is_stream() {
            let is_same = life.stream.is_created && life.stream.is_closed == is_closed;
            assert_eq!(matches!(answer, Ok(StreamDone::Existed(_))), is_same);
            assert_eq!(matches!(answer, Err(StreamRefused::Differs(_))), !is_same);
            return;
        }
        life.published
            .extend(numbers.into_iter().map(|number| (number, now)));
        life.stream.is_created = true;
        life.stream.is_closed = is_closed;
        let top = life.top();
        let Ok(StreamDone::Created(state)) = answer else {
            panic!("{answer:?}")
        };
        assert_eq!((state.tail.offset, state.is_closed), (top, is_closed));
        self.learn(channel, state.tail.epoch);
    }

    pub(super) fn append(&mut self, channel: usize, count: usize, closes: bool) {
        let (numbers, entries) = self.number(count);
        let data = AppendToStream {
            entries,
            closes,
            ..append(&[])
        };
        let command = StreamCommand::Append(data);
        let answer = ask(&mut self.home, CHANNELS[channel], command, tick(self.now));
        if !self.life_of(channel).is_some_and(Life::is_stream) {
            assert_eq!(answer, Err(StreamRefused::NotFound));
            return;
        }
        let now = self.now;
        let life = self.touch(channel).expect("a stream has a life");
        match answer {
            Err(StreamRefused::Closed(_)) => assert!(life.stream.is_closed && count > 0),
            Ok(StreamDone::Repeated { .. }) => assert!(life.stream.is_closed && count == 0),
            Err(StreamRefused::ContentType(_)) => {
                assert!(!life.stream.is_closed && !life.stream.is_created && count > 0);
            }
            Ok(StreamDone::Appended { state, .. }) => {
                assert!(!life.stream.is_closed && (life.stream.is_created || count == 0));
                life.published
                    .extend(numbers.into_iter().map(|number| (number, now)));
                life.stream.is_closed = closes;
                assert_eq!((state.tail.offset, state.is_closed), (life.top(), closes));
            }
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn delete(&mut self, channel: usize) {
        let command = StreamCommand::Delete;
        let answer = ask(&mut self.home, CHANNELS[channel], command, tick(self.now));
        if !self.life_of(channel).is_some_and(Life::is_stream) {
            assert_eq!(answer, Err(StreamRefused::NotFound));
            return;
        }
        assert_eq!(answer, Ok(StreamDone::Deleted));
        let life = self.touch(channel).expect("a stream has a life");
        if life.subscribed.is_empty() {
            self.lives.remove(&channel);
            return;
        }
        // An offset that no publication has.
        life.published.push((0, life.last_used));
        life.removed = life.top();
        life.stream = StreamLife {
            begins_after: life.top(),
            ..StreamLife::default()
        };
    }

    pub(super) fn read_stream(&mut self, channel: usize, behind: Option<u64>, max: u32) {
        let life = self.life_of(channel);
        let top = life.map_or(0, Life::top);
        let offset = behind.map(|behind| top.saturating_sub(behind));
        let epoch = life.and_then(|life| life.epoch);
        let from = match (offset, epoch) {
            (Some(offset), Some(epoch)) => {
                ReadFrom::After(Position { epoch, offset }.stream_offset())
            }
            _ => ReadFrom::Start,
        };
        let (name, now) = (CHANNELS[channel], self.now);
        let answer = read_at_most(&mut self.home, name, from, max, tick(now));
        if !self.life_of(channel).is_some_and(Life::is_stream) {
            assert_eq!(answer, Err(ReadRefused::NotFound));
            return;
        }
        self.touch(channel);
        let options = self.options(channel);
        let life = self.life_of(channel).expect("a stream has a life");
        let kept = life.kept(options, now);
        let earliest = kept.first().map_or(top, |first| first.0 - 1);
        let start = match from {
            ReadFrom::After(after) => after.offset,
            _ => earliest,
        };
        if start < earliest {
            assert!(
                matches!(&answer, Err(ReadRefused::Unrecoverable(state)) if state.earliest.offset == earliest)
            );
            return;
        }
        let page = answer.expect("a page");
        assert_eq!((page.start.offset, page.state.tail.offset), (start, top));
        assert_eq!(page.state.is_closed, life.stream.is_closed);
        let mut expected = kept;
        expected.retain(|(offset, _)| *offset > start);
        expected.truncate(max as usize);
        let next = expected.last().map_or(start, |last| last.0);
        assert_eq!(page.next.offset, next);
        assert_eq!(numbers(page.publications), expected);
    }
}
