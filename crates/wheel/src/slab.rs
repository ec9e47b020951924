//! Records in fixed-size segments, named by index and generation.

use std::ops::{Index, IndexMut};

/// Index and generation of a record.
///
/// Later records reuse the index. The generation tells them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// The record's index in its slab.
    pub index: u32,
    /// Counts the records that have had this index. Odd while the index is occupied, even while it is vacant.
    pub generation: u32,
}

/// "No record", for links that are plain indices.
pub const NONE: u32 = u32::MAX;

/// Records of one segment: 64 words of 64 bits in its vacancy map, so two instructions find a vacant slot.
const SEGMENT_RECORDS: usize = 1 << SEGMENT_BITS;
const SEGMENT_BITS: u32 = 12;

/// Indices are below the top bit. A link with the top bit set does not name a record.
pub(crate) const INDEX_END: u32 = 1 << 31;

#[derive(Debug)]
struct Slot<T> {
    /// Odd while occupied. It is stored beside the record because a check is usually followed by a read of the record,
    /// which is then in the cache. It needs no padding if `T` has an alignment of 4.
    generation: u32,
    record: T,
}

/// The vacant slots of one segment, including those never used.
#[derive(Debug)]
struct VacancyMap {
    /// A set bit means that the word with this number has a vacant slot.
    words_with_vacancy: u64,
    words: [u64; 64],
}

impl VacancyMap {
    const ALL: Self = Self {
        words_with_vacancy: u64::MAX,
        words: [u64::MAX; 64],
    };

    fn is_full(&self) -> bool {
        self.words_with_vacancy == 0
    }

    fn is_vacant(&self, offset: usize) -> bool {
        self.words[offset / 64] >> (offset % 64) & 1 == 1
    }

    /// Occupies the lowest vacant slot.
    fn take_lowest(&mut self) -> usize {
        assert!(!self.is_full());
        let word = self.words_with_vacancy.trailing_zeros() as usize;
        let bit = self.words[word].trailing_zeros() as usize;
        self.words[word] &= self.words[word] - 1;
        if self.words[word] == 0 {
            self.words_with_vacancy &= !(1 << word);
        }
        word * 64 + bit
    }

    fn release(&mut self, offset: usize) {
        self.words[offset / 64] |= 1 << (offset % 64);
        self.words_with_vacancy |= 1 << (offset / 64);
    }
}

/// Records in fixed-size segments: no doubling, no copying on growth.
///
/// A new record gets the lowest vacant index. So records stay dense after a peak, and the same calls give the same
/// indices. A removed record is replaced by `T::default()`.
///
/// A segment's memory is reserved as one piece but written only when records come: a slab of ten records occupies a
/// page, not a segment.
#[derive(Debug)]
pub struct Slab<T: Default> {
    /// Each has a capacity of [`SEGMENT_RECORDS`] and holds the slots used so far.
    segments: Vec<Vec<Slot<T>>>,
    vacancies: Vec<VacancyMap>,
    /// Every segment below this one is full.
    first_vacant_segment: usize,
    len: usize,
}

impl<T: Default> Slab<T> {
    /// Empty, with nothing allocated.
    #[must_use]
    pub fn new() -> Self {
        Self {
            segments: Vec::new(),
            vacancies: Vec::new(),
            first_vacant_segment: 0,
            len: 0,
        }
    }

    /// Number of occupied records.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no record is occupied.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The index behind the last slot that was ever used: every record has a lower one.
    #[must_use]
    pub fn slots_end(&self) -> u32 {
        let full = self.segments.len().saturating_sub(1) << SEGMENT_BITS;
        let last = self.segments.last().map_or(0, Vec::len);
        u32::try_from(full + last).expect("at most INDEX_END")
    }

    /// Bytes reserved for records, generations and vacancy maps, without the memory that records own elsewhere.
    #[must_use]
    pub fn capacity_bytes(&self) -> usize {
        let slots: usize = self.segments.iter().map(Vec::capacity).sum();
        slots * size_of::<Slot<T>>()
            + self.segments.capacity() * size_of::<Vec<Slot<T>>>()
            + self.vacancies.capacity() * size_of::<VacancyMap>()
    }

    /// Adds a record at the lowest vacant index.
    ///
    /// # Panics
    /// At 2^31 records.
    pub fn insert(&mut self, value: T) -> Key {
        let segment = self.segment_with_vacancy();
        let offset = self.vacancies[segment].take_lowest();
        let slots = &mut self.segments[segment];
        if let Some(slot) = slots.get_mut(offset) {
            debug_assert!(slot.generation.is_multiple_of(2));
            slot.generation = slot.generation.wrapping_add(1);
            slot.record = value;
        } else {
            // The lowest vacant slot of a segment is at most one past the slots used so far.
            assert_eq!(offset, slots.len());
            slots.push(Slot {
                generation: 1,
                record: value,
            });
        }
        self.len += 1;
        let index = u32::try_from(segment << SEGMENT_BITS | offset).expect("below INDEX_END");
        Key {
            index,
            generation: slots[offset].generation,
        }
    }

    fn segment_with_vacancy(&mut self) -> usize {
        while self
            .vacancies
            .get(self.first_vacant_segment)
            .is_some_and(|vacancy| vacancy.is_full())
        {
            self.first_vacant_segment += 1;
        }
        if self.first_vacant_segment == self.segments.len() {
            assert!(
                self.segments.len() < (INDEX_END >> SEGMENT_BITS) as usize,
                "a slab ends at 2^31 records"
            );
            self.segments.push(Vec::with_capacity(SEGMENT_RECORDS));
            self.vacancies.push(VacancyMap::ALL);
        }
        self.first_vacant_segment
    }

    /// Removes a record. Its keys find nothing from now on.
    ///
    /// Disarm its [`crate::Timer`] first: the wheel would otherwise walk into a vacant record.
    ///
    /// # Panics
    /// If the index is vacant or was never used.
    pub fn remove(&mut self, index: u32) -> T {
        let (segment, offset) = locate(index);
        let slot = &mut self.segments[segment][offset];
        assert!(
            !slot.generation.is_multiple_of(2),
            "record {index} is vacant"
        );
        slot.generation = slot.generation.wrapping_add(1);
        self.vacancies[segment].release(offset);
        self.first_vacant_segment = self.first_vacant_segment.min(segment);
        self.len -= 1;
        std::mem::take(&mut slot.record)
    }

    /// Whether the key's record is still there. False if a later record has the same index.
    #[must_use]
    pub fn contains(&self, key: Key) -> bool {
        self.get(key).is_some()
    }

    /// The key's record. None if it was removed.
    #[must_use]
    pub fn get(&self, key: Key) -> Option<&T> {
        let (segment, offset) = locate(key.index);
        let slot = self.segments.get(segment)?.get(offset)?;
        (slot.generation == key.generation && !key.generation.is_multiple_of(2))
            .then_some(&slot.record)
    }

    /// The key's record. None if it was removed.
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let (segment, offset) = locate(key.index);
        let slot = self.segments.get_mut(segment)?.get_mut(offset)?;
        (slot.generation == key.generation && !key.generation.is_multiple_of(2))
            .then_some(&mut slot.record)
    }

    /// The key of the record at this index. None if the index is vacant or out of range.
    #[must_use]
    pub fn key_of(&self, index: u32) -> Option<Key> {
        let (segment, offset) = locate(index);
        let generation = self.segments.get(segment)?.get(offset)?.generation;
        (!generation.is_multiple_of(2)).then_some(Key { index, generation })
    }

    /// The index of the first occupied record from `from` on. Vacant ones are passed over by 64.
    #[must_use]
    pub fn index_from(&self, from: u32) -> Option<u32> {
        let (mut segment, mut offset) = locate(from);
        while let Some(slots) = self.segments.get(segment) {
            while offset < slots.len() {
                let vacant = self.vacancies[segment].words[offset / 64];
                let occupied = !vacant >> (offset % 64);
                if occupied != 0 {
                    // Slots that were never used are vacant.
                    let offset = offset + occupied.trailing_zeros() as usize;
                    return u32::try_from(segment << SEGMENT_BITS | offset).ok();
                }
                offset = (offset / 64 + 1) * 64;
            }
            segment += 1;
            offset = 0;
        }
        None
    }

    /// Indices of the occupied records, ascending.
    pub fn indices(&self) -> impl Iterator<Item = u32> + '_ {
        self.segments
            .iter()
            .zip(&self.vacancies)
            .zip(0_u32..)
            .flat_map(|((slots, vacancy), segment)| {
                (0_u32..)
                    .take(slots.len())
                    .filter(move |&offset| !vacancy.is_vacant(offset as usize))
                    .map(move |offset| segment << SEGMENT_BITS | offset)
            })
    }
}

fn locate(index: u32) -> (usize, usize) {
    (
        (index >> SEGMENT_BITS) as usize,
        index as usize % SEGMENT_RECORDS,
    )
}

impl<T: Default> Default for Slab<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// By index, for links and for completions whose generation was already checked.
///
/// An index that no record ever had ends the process. It stands in another record, and the next such link may name a stranger's
/// record: what goes there would be told to somebody who may not know it. An index of a vacant record finds `T::default()`, which
/// names nobody.
impl<T: Default> Index<u32> for Slab<T> {
    type Output = T;

    fn index(&self, index: u32) -> &T {
        let (segment, offset) = locate(index);
        let slot = &self.segments[segment][offset];
        debug_assert!(
            !slot.generation.is_multiple_of(2),
            "record {index} is vacant"
        );
        &slot.record
    }
}

impl<T: Default> IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, index: u32) -> &mut T {
        let (segment, offset) = locate(index);
        let slot = &mut self.segments[segment][offset];
        debug_assert!(
            !slot.generation.is_multiple_of(2),
            "record {index} is vacant"
        );
        &mut slot.record
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    /// A connection's record has an alignment of 4: the generation must not cost padding.
    const _: () = assert!(size_of::<Slot<[u32; 10]>>() == 44);

    impl<T: Default> Slab<T> {
        fn check(&self) {
            let mut occupied = 0;
            for (slots, vacancy) in self.segments.iter().zip(&self.vacancies) {
                assert_eq!(slots.capacity(), SEGMENT_RECORDS);
                for (word, &bits) in vacancy.words.iter().enumerate() {
                    assert_eq!(bits != 0, vacancy.words_with_vacancy >> word & 1 == 1);
                }
                for offset in 0..SEGMENT_RECORDS {
                    let is_vacant = slots
                        .get(offset)
                        .is_none_or(|slot| slot.generation.is_multiple_of(2));
                    assert_eq!(is_vacant, vacancy.is_vacant(offset));
                    occupied += usize::from(!is_vacant);
                }
            }
            assert_eq!(occupied, self.len);
            assert!(
                self.vacancies[..self.first_vacant_segment]
                    .iter()
                    .all(|vacancy| vacancy.is_full())
            );
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u16),
        /// Removes the record at this fraction of the occupied ones.
        Remove(prop::sample::Index),
        RemoveAll,
    }

    /// Few in Miri, for a sweep of all records follows each step.
    const INSERTS_MAX: u16 = if cfg!(miri) { 300 } else { 9000 };

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (1..INSERTS_MAX).prop_map(Step::Insert),
            6 => any::<prop::sample::Index>().prop_map(Step::Remove),
            1 => Just(Step::RemoveAll),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 48 }))]

        #[test]
        fn behaves_as_a_map_with_the_lowest_index_first(steps in prop::collection::vec(step(), 1..24)) {
            let mut slab = Slab::new();
            let mut model: BTreeMap<u32, (Key, u64)> = BTreeMap::new();
            let mut vacant: BTreeSet<u32> = BTreeSet::new();
            let mut gone: Vec<Key> = Vec::new();
            let mut value = 0;
            for step in steps {
                match step {
                    Step::Insert(count) => for _ in 0..count {
                        value += 1;
                        let key = slab.insert(value);
                        let lowest = vacant.pop_first().unwrap_or_else(|| u32::try_from(model.len()).unwrap());
                        prop_assert_eq!(key.index, lowest);
                        model.insert(key.index, (key, value));
                    },
                    Step::Remove(at) if !model.is_empty() => {
                        let index = *model.keys().nth(at.index(model.len())).unwrap();
                        let (key, value) = model.remove(&index).unwrap();
                        prop_assert_eq!(slab.remove(index), value);
                        vacant.insert(index);
                        gone.push(key);
                    }
                    Step::Remove(_) => {}
                    Step::RemoveAll => for (index, (key, value)) in std::mem::take(&mut model) {
                        prop_assert_eq!(slab.remove(index), value);
                        vacant.insert(index);
                        gone.push(key);
                    },
                }
                slab.check();
                prop_assert_eq!(slab.len(), model.len());
                prop_assert!(slab.indices().eq(model.keys().copied()));
                let next = |index: &u32| slab.index_from(index + 1);
                let walked = std::iter::successors(slab.index_from(0), next);
                prop_assert!(walked.eq(model.keys().copied()));
                for (&index, &(key, value)) in &model {
                    prop_assert_eq!(slab.get(key), Some(&value));
                    prop_assert_eq!(slab[index], value);
                    prop_assert_eq!(slab.key_of(index), Some(key));
                }
                for &key in &gone {
                    prop_assert!(!slab.contains(key));
                }
            }
        }
    }

    #[test]
    fn a_key_finds_only_its_own_generation() {
        let mut slab = Slab::new();
        let first = slab.insert(1);
        assert_eq!(slab.remove(first.index), 1);
        assert_eq!(slab.key_of(first.index), None);
        let second = slab.insert(2);
        assert_eq!(second.index, first.index);
        assert_eq!((slab.get(first), slab.get(second)), (None, Some(&2)));
        *slab.get_mut(second).unwrap() = 3;
        assert_eq!(slab[second.index], 3);
        assert_eq!(slab.get_mut(first), None);
        let vacant_generation = Key {
            index: first.index,
            generation: first.generation + 1,
        };
        slab.remove(second.index);
        assert_eq!(slab.get(vacant_generation), None);
        assert!(!slab.contains(Key {
            index: 70_000,
            generation: 1
        }));
        assert_eq!(slab.key_of(NONE), None);
    }

    #[test]
    fn generations_wrap_and_stay_odd_while_occupied() {
        let mut slab = Slab::new();
        let key = slab.insert(1);
        slab.segments[0][0].generation = u32::MAX;
        slab.remove(key.index);
        assert_eq!(slab.segments[0][0].generation, 0);
        assert_eq!(slab.insert(2).generation, 1);
    }

    #[test]
    fn a_vacated_record_drops_what_it_owned() {
        let owned = std::rc::Rc::new(());
        let mut slab = Slab::new();
        let key = slab.insert(Some(owned.clone()));
        drop(slab.remove(key.index));
        assert_eq!(std::rc::Rc::strong_count(&owned), 1);
    }

    #[test]
    fn growth_moves_no_record() {
        let mut slab = Slab::new();
        let first = slab.insert(0);
        let address = std::ptr::from_ref(&slab[first.index]);
        for value in 1..20_000 {
            slab.insert(value);
        }
        assert_eq!(std::ptr::from_ref(&slab[first.index]), address);
        assert!(slab.capacity_bytes() < 22_000 * size_of::<Slot<i32>>());
    }

    #[test]
    #[should_panic(expected = "vacant")]
    fn removing_twice_panics() {
        let mut slab = Slab::new();
        let key = slab.insert(1);
        slab.remove(key.index);
        slab.remove(key.index);
    }
}
