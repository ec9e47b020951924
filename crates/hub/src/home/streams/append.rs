//! Appending to a stream, and closing it.

use super::life::Closed;
use super::producers::Verdict;
use super::{
    AppendToStream, Producer, ProducerPosition, StreamDone, StreamEndKind, StreamEntry,
    StreamRefused,
};
use crate::home::batch::{Accepted, WaitingBatch};
use crate::home::{Home, HomeEffect};
use crate::{Asker, Now};

/// What an append is, beside what came before.
enum Step {
    /// It is to be done.
    Append,
    /// It was done before; where its producer is.
    Repeat(Option<ProducerPosition>),
}

impl Home {
    /// Appends to a stream, closes it, or both at once. Nothing is done unless all of it is.
    pub(super) fn append_to_stream(
        &mut self,
        channel: &str,
        asker: Asker,
        data: AppendToStream,
        now: Now,
    ) {
        let Some(index) = self.find_stream(channel, now) else {
            self.answer_stream(asker, Err(StreamRefused::NotFound));
            return;
        };
        match self.judge_append(index, &data, now) {
            Err(refused) => self.answer_stream(asker, Err(refused)),
            Ok(Step::Repeat(producer)) => {
                self.touch_stream(index, now);
                let state = self.stream_state(index);
                self.answer_stream(asker, Ok(StreamDone::Repeated { state, producer }));
            }
            Ok(Step::Append) => self.append(index, asker, data, now),
        }
        self.finish(index, now);
    }

    fn append(&mut self, index: u32, asker: Asker, data: AppendToStream, now: Now) {
        let AppendToStream {
            entries,
            by,
            producer,
            stream_seq,
            closes,
            ..
        } = data;
        let position = producer.as_ref().map(Producer::position);
        if producer.is_some() || stream_seq.is_some() || closes {
            let number = producer.as_ref().map(|_| self.note_producer_use(index));
            self.change_stream(index, |stream| {
                if let (Some(producer), Some(number)) = (&producer, number) {
                    stream.producers.note(&by, producer, number, now.tick());
                }
                if let Some(seq) = stream_seq {
                    *stream.last_seq_of(&by) = Some(seq);
                }
                if closes {
                    stream.closed = match producer {
                        Some(producer) => Closed::By(by, producer),
                        None => Closed::Plainly,
                    };
                }
            });
        }
        self.touch_stream(index, now);
        let accepted = self.accept_entries(index, entries, now);
        let done = StreamDone::Appended {
            state: self.stream_state(index),
            producer: position,
            count: accepted.len(),
        };
        self.answer_stream(asker, Ok(done));
        self.dispatch_entries(index, accepted, now);
        if closes {
            self.tell_stream_end(index, StreamEndKind::Closed, now);
        }
    }

    /// Compares an append with what the stream has. The order of the rules is the protocol's: end, content type, producer,
    /// `Stream-Seq`.
    fn judge_append(
        &mut self,
        index: u32,
        data: &AppendToStream,
        now: Now,
    ) -> Result<Step, StreamRefused> {
        let state = self.stream_state(index);
        let Some(stream) = self.channels[index].stream.as_deref_mut() else {
            // It was only published to: nothing is known that an append could contradict, but its type.
            let begins = data.producer.as_ref().is_none_or(|one| one.seq == 0);
            return if !data.entries.is_empty() && !state.content_type.matches(&data.content_type) {
                Err(StreamRefused::ContentType(state))
            } else if begins {
                Ok(Step::Append)
            } else {
                let received = data.producer.as_ref().map_or(0, |one| one.seq);
                Err(StreamRefused::ProducerGap {
                    expected: 0,
                    received,
                })
            };
        };
        match (&stream.closed, &data.producer) {
            (Closed::Not, _) => {}
            (Closed::By(by, closing), Some(producer)) if (by, closing) == (&data.by, producer) => {
                return Ok(Step::Repeat(Some(closing.position())));
            }
            (_, None) if data.entries.is_empty() => return Ok(Step::Repeat(None)),
            _ => return Err(StreamRefused::Closed(state)),
        }
        if !data.entries.is_empty() && !state.content_type.matches(&data.content_type) {
            return Err(StreamRefused::ContentType(state));
        }
        if let Some(producer) = &data.producer {
            match stream.producers.judge(&data.by, producer, now.tick()) {
                Verdict::Next => {}
                Verdict::Repeat(position) => return Ok(Step::Repeat(Some(position))),
                Verdict::Stale { epoch } => return Err(StreamRefused::StaleProducer { epoch }),
                Verdict::NotAtBegin => return Err(StreamRefused::ProducerBegin),
                Verdict::Gap { expected } => {
                    let received = producer.seq;
                    return Err(StreamRefused::ProducerGap { expected, received });
                }
            }
        }
        match (&*stream.last_seq_of(&data.by), &data.stream_seq) {
            (Some(last), Some(seq)) if seq.as_bytes() <= last.as_bytes() => {
                let last = last.clone();
                Err(StreamRefused::StreamSeq { last })
            }
            _ => Ok(Step::Append),
        }
    }

    /// Gives entries their positions, one behind the other, and keeps them.
    pub(super) fn accept_entries(
        &mut self,
        index: u32,
        entries: Vec<StreamEntry>,
        now: Now,
    ) -> Vec<Accepted> {
        let accept = |StreamEntry { content, permit }| {
            let (position, delta_base) = self.accept(index, &content, false, false, now);
            Accepted {
                position,
                last_offset: position.offset,
                content,
                delta_base,
                is_kept: true,
                sender: None,
                published_at: now,
                permit,
            }
        };
        entries.into_iter().map(accept).collect()
    }

    /// Delivers entries: those of one append together, as far as a batch holds them.
    pub(super) fn dispatch_entries(&mut self, index: u32, accepted: Vec<Accepted>, now: Now) {
        let record = &self.channels[index];
        if accepted.len() < 2 || !record.options.batch_delay.is_zero() {
            for one in accepted {
                self.dispatch(index, one, now);
            }
            return;
        }
        let (name, shards) = (record.name.clone(), record.subscribed);
        let mut batch = WaitingBatch::new(now.tick());
        let mut deliver = |batch: WaitingBatch| {
            let delivery = batch.into_delivery(&name, shards.len());
            self.effects
                .push_back(HomeEffect::Deliver { delivery, shards });
        };
        let mut is_empty = true;
        for one in accepted {
            is_empty = batch.push(one, self.settings.batch_bytes_max);
            if is_empty {
                let full = std::mem::replace(&mut batch, WaitingBatch::new(now.tick()));
                deliver(full);
            }
        }
        if !is_empty {
            deliver(batch);
        }
    }
}
