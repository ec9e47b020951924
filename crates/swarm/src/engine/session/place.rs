//! Where a terminal is in the stream of one channel, in eight bytes.

use crate::measure::sequence::{Newest, Observed};

/// Largest offset that is told from larger ones. A channel with a publication every microsecond reaches it in nine years.
const OFFSET_MAX: u64 = (1 << 48) - 1;

/// Longest name of an epoch that is kept. Other servers use eight letters.
pub(crate) const EPOCH_BYTES_MAX: usize = 64;

/// Epochs of one channel that are told apart. Terminals of later ones do not recover.
const EPOCHS_MAX: u8 = 254;

/// The newest offset seen, which of the eight before it are missing, and in which epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct Place(u64);

/// An epoch of a channel, by its index in [`Epochs`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Epoch(u8);

impl Epoch {
    /// No epoch, and no offset either.
    pub(super) const NONE: Self = Self(0);

    /// The server has numbered publications, but promised no recovery.
    pub(super) const UNNAMED: Self = Self(u8::MAX);

    /// Whether a client can ask for what it missed in it.
    pub(super) fn is_named(self) -> bool {
        self != Self::NONE && self != Self::UNNAMED
    }
}

impl Place {
    /// Nothing is known: the next publication's offset is taken as it is.
    pub(super) const NONE: Self = Self(0);

    /// After this offset, with nothing missing.
    pub(super) fn at(epoch: Epoch, offset: u64) -> Self {
        Self::pack(
            epoch,
            Newest {
                number: offset.min(OFFSET_MAX),
                missing: 0,
            },
        )
    }

    pub(super) fn epoch(self) -> Epoch {
        let [_, epoch, ..] = self.0.to_le_bytes();
        Epoch(epoch)
    }

    /// The newest offset seen, or the one from which the subscription begins.
    pub(super) fn offset(self) -> u64 {
        self.0 >> 16
    }

    /// Takes note of a publication's offset. `epoch` is the one that the publication names, if it does.
    pub(super) fn observe(&mut self, epoch: Epoch, offset: u64) -> Observed {
        let offset = offset.min(OFFSET_MAX);
        if *self == Self::NONE {
            *self = Self::at(Epoch::UNNAMED, offset);
            return Observed::InOrder;
        }
        // A publication names its epoch only where one begins.
        if epoch.is_named() && self.epoch().is_named() && epoch != self.epoch() {
            *self = Self::at(epoch, 0);
        }
        let [missing, ..] = self.0.to_le_bytes();
        let mut newest = Newest {
            number: self.offset(),
            missing,
        };
        let observed = newest.observe(offset);
        *self = Self::pack(self.epoch(), newest);
        observed
    }

    fn pack(epoch: Epoch, newest: Newest) -> Self {
        Self(newest.number << 16 | u64::from(epoch.0) << 8 | u64::from(newest.missing))
    }
}

/// The names of the epochs that were seen, by channel.
#[derive(Debug, Default)]
pub(super) struct Epochs(Vec<Vec<Box<str>>>);

impl Epochs {
    /// The epoch of this name in a channel. One without a name, or one too many, is [`Epoch::UNNAMED`].
    pub(super) fn find_or_add(&mut self, channel: u32, name: &str) -> Epoch {
        if name.is_empty() || name.len() > EPOCH_BYTES_MAX {
            return Epoch::UNNAMED;
        }
        let channel = channel as usize;
        if self.0.len() <= channel {
            self.0.resize_with(channel + 1, Vec::new);
        }
        let names = &mut self.0[channel];
        let found = (1..=EPOCHS_MAX).zip(names.iter());
        if let Some((index, _)) = found.into_iter().find(|(_, known)| ***known == *name) {
            return Epoch(index);
        }
        if names.len() >= usize::from(EPOCHS_MAX) {
            return Epoch::UNNAMED;
        }
        names.push(name.into());
        Epoch(u8::try_from(names.len()).expect("at most EPOCHS_MAX"))
    }

    /// The name of an epoch that has one.
    pub(super) fn name(&self, channel: u32, epoch: Epoch) -> Option<&str> {
        let index = usize::from(epoch.0).checked_sub(1)?;
        let names = self.0.get(channel as usize)?;
        names.get(index).map(|name| &**name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Observed::{AfterGap, InOrder, Overtaken, Repeated};

    #[test]
    fn who_knows_nothing_takes_the_first_offset_as_it_is() {
        let mut place = Place::NONE;
        assert_eq!(place.observe(Epoch::NONE, 1_000_000), InOrder);
        assert_eq!(place.epoch(), Epoch::UNNAMED);
        assert_eq!(place.observe(Epoch::NONE, 1_000_001), InOrder);
        assert_eq!(place.observe(Epoch::NONE, 1_000_004), AfterGap(2));
        assert_eq!(place.observe(Epoch::NONE, 1_000_003), Overtaken);
        assert_eq!(place.observe(Epoch::NONE, 1_000_003), Repeated);
        assert_eq!(place.offset(), 1_000_004);
    }

    #[test]
    fn who_subscribed_at_an_offset_wants_the_next() {
        let mut epochs = Epochs::default();
        let epoch = epochs.find_or_add(3, "abcdefgh");
        let mut place = Place::at(epoch, 0);
        assert_eq!(place.observe(epoch, 2), AfterGap(1));
        let mut place = Place::at(epoch, 41);
        assert_eq!(place.observe(Epoch::NONE, 41), Repeated);
        assert_eq!(place.observe(Epoch::NONE, 42), InOrder);
        assert_eq!((place.epoch(), place.offset()), (epoch, 42));
    }

    #[test]
    fn another_epoch_begins_again() {
        let mut epochs = Epochs::default();
        let (one, two) = (epochs.find_or_add(0, "one"), epochs.find_or_add(0, "two"));
        let mut place = Place::at(one, 500);
        assert_eq!(place.observe(two, 1), InOrder);
        assert_eq!((place.epoch(), place.offset()), (two, 1));
        // Without recovery nobody has said which epoch this was.
        let mut place = Place::at(Epoch::UNNAMED, 500);
        assert_eq!(place.observe(two, 1), Repeated);
    }

    #[test]
    fn offsets_that_no_channel_reaches_are_bounded() {
        let mut place = Place::at(Epoch::UNNAMED, u64::MAX);
        assert_eq!(place.observe(Epoch::NONE, u64::MAX), Repeated);
        assert_eq!(place.epoch(), Epoch::UNNAMED);
        let mut place = Place::at(Epoch::UNNAMED, 0);
        assert_eq!(place.observe(Epoch::NONE, u64::MAX), AfterGap(u32::MAX));
    }

    #[test]
    fn epochs_are_named_by_channel_and_bounded() {
        let mut epochs = Epochs::default();
        let one = epochs.find_or_add(7, "one");
        assert!(one.is_named());
        assert_eq!(epochs.find_or_add(7, "one"), one);
        assert_eq!(epochs.name(7, one), Some("one"));
        assert_eq!(
            (epochs.name(6, one), epochs.name(7, Epoch::NONE)),
            (None, None)
        );
        assert_eq!(epochs.find_or_add(7, ""), Epoch::UNNAMED);
        assert_eq!(epochs.find_or_add(7, &"x".repeat(65)), Epoch::UNNAMED);
        for number in 0..1000 {
            epochs.find_or_add(7, &number.to_string());
        }
        assert_eq!(epochs.find_or_add(7, "one more"), Epoch::UNNAMED);
        assert_eq!(epochs.find_or_add(7, "one"), one);
    }
}
