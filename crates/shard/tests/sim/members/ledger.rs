//! What was published, and the one order that everybody must have seen: sessions, listeners and readers alike.

use crate::channels::Kind;
use myriad_shard::{Position, RequestId};
use std::collections::HashMap;

/// The name of one run of a channel's offsets.
pub(crate) type EpochName = [u8; 8];

/// A client and its connection.
pub(crate) type Owner = (usize, u64);

/// The epoch that a client was told.
pub(crate) fn epoch_named(name: &str) -> EpochName {
    name.as_bytes().try_into().expect("an epoch of ours")
}

/// A publication that somebody tried.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) room: usize,
    /// The client that published it, and its connection then; none of the application's.
    pub(crate) publisher: Option<Owner>,
    /// The publisher's command; 0 of the application's.
    pub(crate) command: u32,
    /// Its turn among all that happened.
    pub(crate) at: u64,
    /// The value of its tag.
    pub(crate) tag: Option<&'static str>,
    /// Whether it may get a place in its channel's history.
    pub(crate) has_place: bool,
    /// Whether its publisher knows that it was taken.
    pub(crate) is_acknowledged: bool,
    pub(crate) bytes: Vec<u8>,
}

/// A client was told the last place of a channel, in the answer to a command.
#[derive(Debug)]
pub(crate) struct Glimpse {
    pub(crate) room: usize,
    pub(crate) epoch: EpochName,
    pub(crate) offset: u64,
    pub(crate) client: Owner,
    pub(crate) command: u32,
}

/// All that was published.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) attempts: Vec<Attempt>,
    /// The number at each place.
    order: HashMap<(usize, EpochName, u64), usize>,
    /// The place of each number.
    places: HashMap<usize, (EpochName, u64)>,
    /// The highest offset that was given out, by room and epoch.
    tops: HashMap<(usize, EpochName), u64>,
    pub(crate) glimpses: Vec<Glimpse>,
    clock: u64,
}

impl Ledger {
    /// The next moment.
    pub(crate) fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// The number of the next publication.
    pub(crate) fn attempt(
        &mut self,
        room: usize,
        publisher: Option<Owner>,
        has_place: bool,
    ) -> usize {
        let at = self.tick();
        self.attempts.push(Attempt {
            room,
            publisher,
            command: 0,
            at,
            tag: None,
            has_place,
            is_acknowledged: false,
            bytes: Vec::new(),
        });
        self.attempts.len() - 1
    }

    /// The answer to a publication of the application.
    pub(crate) fn take_reply(&mut self, id: RequestId, position: Option<Position>) {
        let number = usize::try_from(id.0).expect("an index");
        let Some(position) = position else { return };
        self.attempts[number].is_acknowledged = true;
        let Attempt {
            room, has_place, ..
        } = self.attempts[number];
        if has_place && position.offset > 0 {
            let at = position.stream_offset();
            self.note(room, at.epoch, at.offset, number);
        }
    }

    /// Somebody saw a publication at a place: everybody must see the same there.
    pub(crate) fn note(&mut self, room: usize, epoch: EpochName, offset: u64, number: usize) {
        let attempt = &self.attempts[number];
        assert_eq!(attempt.room, room, "{number} is of another channel");
        assert!(attempt.has_place, "{number} has a place, and is not kept");
        let known = *self.order.entry((room, epoch, offset)).or_insert(number);
        assert_eq!(
            known, number,
            "one order for all: {room} {epoch:?} {offset}"
        );
        let place = (epoch, offset);
        let known = *self.places.entry(number).or_insert(place);
        assert_eq!(known, place, "{number} has one place");
        let top = self.tops.entry((room, epoch)).or_default();
        *top = offset.max(*top);
    }

    /// Commands of one connection took effect in their order: a command saw the publications before it, and none after it.
    pub(crate) fn check_glimpses(&self) {
        for glimpse in &self.glimpses {
            let own = self.attempts.iter().enumerate().filter(|(_, attempt)| {
                attempt.room == glimpse.room && attempt.publisher == Some(glimpse.client)
            });
            for (number, attempt) in own {
                // Offsets of two epochs have no order.
                let Some((epoch, offset)) = self.place_of(number) else {
                    continue;
                };
                let was_before = offset <= glimpse.offset;
                assert!(
                    epoch != glimpse.epoch || was_before == (attempt.command < glimpse.command),
                    "{number} at {offset}, {attempt:?}, was overtaken by {glimpse:?}, or overtook it"
                );
            }
        }
    }

    /// The greatest offset at which anybody has seen a publication.
    pub(crate) fn top(&self, room: usize, epoch: EpochName) -> u64 {
        self.tops.get(&(room, epoch)).copied().unwrap_or(0)
    }

    /// All tops that are known now of a room.
    pub(crate) fn tops(&self, room: usize) -> HashMap<EpochName, u64> {
        let of_room = self.tops.iter().filter(|((of, _), _)| *of == room);
        of_room.map(|((_, epoch), top)| (*epoch, *top)).collect()
    }

    /// The number at a place, if anybody has seen it.
    pub(crate) fn at(&self, room: usize, epoch: EpochName, offset: u64) -> Option<usize> {
        self.order.get(&(room, epoch, offset)).copied()
    }

    /// The place of a publication, if anybody has been told it.
    pub(crate) fn place_of(&self, number: usize) -> Option<(EpochName, u64)> {
        self.places.get(&number).copied()
    }

    /// The number that data names; the data must be whole. JSON may have lost its line breaks on the way.
    pub(crate) fn number_of(&self, data: &[u8]) -> usize {
        // Text is a string of JSON where its kind is not told.
        let unquoted: Option<String> = match data.first() {
            Some(b'"') => serde_json::from_slice(data).ok(),
            _ => None,
        };
        let data = unquoted.as_ref().map_or(data, |text| text.as_bytes());
        let is_json = data.first() == Some(&b'{');
        let number = if is_json {
            let value: serde_json::Value = serde_json::from_slice(data).expect("JSON");
            value["n"]
                .as_u64()
                .and_then(|number| usize::try_from(number).ok())
        } else {
            let end = data.iter().position(|byte| *byte == b'\n');
            let digits = end.and_then(|end| str::from_utf8(&data[..end]).ok());
            digits.and_then(|digits| digits.parse().ok())
        };
        let shown = || String::from_utf8_lossy(data).into_owned();
        let number: usize = number.unwrap_or_else(|| panic!("no data of ours: {}", shown()));
        let published = &self.attempts[number].bytes;
        let text = |byte: &&u8| !is_json || **byte != b'\n';
        assert!(
            published.iter().filter(text).eq(data.iter().filter(text)),
            "{number} comes whole"
        );
        number
    }
}

/// A publication as its stream's kind has it. It says which one it is, and resembles the others.
pub(crate) fn data_of(kind: Kind, number: usize, filler: usize) -> String {
    match kind {
        // A line break, which transports of lines take out or spread over lines.
        Kind::Json if number.is_multiple_of(2) => {
            format!("{{\"n\":{number},\n\"f\":\"{}\"}}", "é~".repeat(filler / 2))
        }
        Kind::Json => format!("{{\"n\":{number},\"f\":\"{}\"}}", "é~".repeat(filler / 2)),
        Kind::Text | Kind::Bytes => format!("{number}\n{};", "x".repeat(filler)),
    }
}
