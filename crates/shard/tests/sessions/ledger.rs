//! What was published, and the one order that everybody must have seen.

use crate::plan::has_history;
use myriad_shard::{Ask, ControlPlane, InquiryAnswer, Mesh, NotPublished, Position, RequestId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// An answer to the application: the position of its publication, if it got one.
type Answer = (RequestId, Option<Position>);

/// Answers to the application's publications, as they came.
#[derive(Clone, Debug, Default)]
pub(crate) struct Replies(Arc<Mutex<Vec<Answer>>>);

impl ControlPlane for Replies {
    fn answered(&self, id: RequestId, _answer: Option<InquiryAnswer>) {
        panic!("nothing was asked by {id:?}");
    }

    fn published(&self, id: RequestId, position: Result<Position, NotPublished>) {
        let mut replies = self.0.lock().expect("one thread");
        replies.push((id, position.ok()));
    }

    fn ask(&self, _mesh: &Mesh, ask: Ask) {
        panic!("{ask:?}: no client asks");
    }
}

impl Replies {
    fn take(&self) -> Vec<Answer> {
        std::mem::take(&mut *self.0.lock().expect("one thread"))
    }
}

/// A publication that somebody tried.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) channel: usize,
    /// The client that published it, and its connection then; none of the application's.
    pub(crate) publisher: Option<(usize, u64)>,
    /// The publisher's command; 0 of the application's.
    pub(crate) command: u32,
    /// Its turn among all that happened.
    pub(crate) at: u64,
    /// The value of its tag.
    pub(crate) kind: Option<&'static str>,
    /// Whether it gets a place in its channel's history.
    pub(crate) has_place: bool,
    /// Whether its publisher knows that it was taken.
    pub(crate) is_acknowledged: bool,
    pub(crate) bytes: Vec<u8>,
}

/// A client was told the last place of a channel, in the answer to a command.
#[derive(Debug)]
pub(crate) struct Glimpse {
    pub(crate) channel: usize,
    pub(crate) epoch: String,
    pub(crate) offset: u64,
    pub(crate) client: (usize, u64),
    pub(crate) command: u32,
}

/// All that was published.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) replies: Replies,
    pub(crate) attempts: Vec<Attempt>,
    /// The number at each place.
    order: HashMap<(usize, String, u64), usize>,
    places: HashMap<usize, (String, u64)>,
    tops: HashMap<(usize, String), u64>,
    pub(crate) glimpses: Vec<Glimpse>,
    clock: u64,
}

impl Ledger {
    /// The next moment.
    pub(crate) fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// The data of the next publication: it names itself, and resembles the others.
    pub(crate) fn attempt(
        &mut self,
        channel: usize,
        publisher: Option<(usize, u64)>,
        filler: usize,
    ) -> (usize, Vec<u8>) {
        let number = self.attempts.len();
        let bytes = format!(
            "{{\"number\":{number},\"filler\":\"{}\"}}",
            "é~".repeat(filler)
        );
        let at = self.tick();
        self.attempts.push(Attempt {
            channel,
            publisher,
            command: 0,
            at,
            kind: None,
            has_place: has_history(channel),
            is_acknowledged: false,
            bytes: bytes.clone().into_bytes(),
        });
        (number, bytes.into_bytes())
    }

    pub(crate) fn take_replies(&mut self) -> bool {
        let replies = self.replies.take();
        for (id, position) in &replies {
            let number = usize::try_from(id.0).expect("an index");
            let position = position.expect("its home lives");
            self.attempts[number].is_acknowledged = true;
            let Attempt {
                channel, has_place, ..
            } = self.attempts[number];
            if has_place {
                self.note(channel, position.epoch.as_str(), position.offset, number);
            }
        }
        !replies.is_empty()
    }

    /// Somebody saw a publication at a place: everybody must see the same there.
    pub(crate) fn note(&mut self, channel: usize, epoch: &str, offset: u64, number: usize) {
        assert_eq!(self.attempts[number].channel, channel, "in its channel");
        assert!(self.attempts[number].has_place, "{number} is not kept");
        let known = self
            .order
            .entry((channel, epoch.to_owned(), offset))
            .or_insert(number);
        assert_eq!(
            *known, number,
            "one order for all: {channel} {epoch} {offset}"
        );
        let place = (epoch.to_owned(), offset);
        let known = self.places.entry(number).or_insert_with(|| place.clone());
        assert_eq!(*known, place, "one place for a publication");
        let top = self.tops.entry((channel, epoch.to_owned())).or_default();
        *top = offset.max(*top);
    }

    /// Commands of one connection took effect in their order: a command saw the publications before it, and none after it.
    pub(crate) fn check_glimpses(&self) {
        for glimpse in &self.glimpses {
            let own = self.attempts.iter().enumerate().filter(|(_, attempt)| {
                attempt.channel == glimpse.channel && attempt.publisher == Some(glimpse.client)
            });
            for (number, attempt) in own {
                let Some((epoch, offset)) = self.places.get(&number) else {
                    continue;
                };
                let was_before = *offset <= glimpse.offset;
                assert!(
                    *epoch != glimpse.epoch || was_before == (attempt.command < glimpse.command),
                    "{number} at {offset}, {attempt:?}, was overtaken by {glimpse:?}, or overtook it"
                );
            }
        }
    }

    /// The greatest offset at which anybody has seen a publication.
    pub(crate) fn top(&self, channel: usize, epoch: &str) -> u64 {
        let top = self.tops.get(&(channel, epoch.to_owned()));
        top.copied().unwrap_or(0)
    }

    /// The number at a place, if anybody has seen it.
    pub(crate) fn at(&self, channel: usize, epoch: &str, offset: u64) -> Option<usize> {
        let place = (channel, epoch.to_owned(), offset);
        self.order.get(&place).copied()
    }

    /// The number that data names; the data must be whole.
    pub(crate) fn number_of(&self, data: &[u8]) -> usize {
        let value: serde_json::Value = serde_json::from_slice(data).expect("JSON");
        let number = value["number"].as_u64().expect("a number");
        let number = usize::try_from(number).expect("an index");
        assert_eq!(self.attempts[number].bytes, data, "whole");
        number
    }
}
