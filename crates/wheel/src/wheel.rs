//! A hierarchical timing wheel whose lists run through the records of a slab.

use crate::slab::INDEX_END;
use crate::{NONE, Slab, Tick, Timed};

/// Six digits of 6 bits hold every `u32` tick.
const LEVELS: usize = 6;
const DIGIT_BITS: u32 = 6;
const SLOTS: usize = 1 << DIGIT_BITS;
const _: () = assert!(LEVELS * DIGIT_BITS as usize >= u32::BITS as usize);

/// In a link: names a slot of the wheel and not a record.
const SLOT_FLAG: u32 = INDEX_END;

/// The ends of a slot's list: record indices, or the slot's own link when it is empty.
#[derive(Clone, Copy, Debug)]
struct ListEnds {
    first: u32,
    last: u32,
}

/// Timers of the records of one slab, one each.
///
/// A tick is a number of six digits in base 64. A timer is in the level of the highest digit in which its deadline
/// differs from the wheel's time, and there in the slot of that digit. So level 0 is exact. When the time reaches the
/// start of a slot of a higher level, its timers cascade to lower levels. Arming and disarming are O(1). Bitmaps find
/// the next occupied slot, so a jump of years costs no more than the timers that become due.
///
/// Pass every call the same slab, and [`Wheel::disarm`] a record before it is removed.
#[derive(Debug)]
pub struct Wheel {
    slots: Box<[ListEnds]>,
    /// A set bit means that the slot has timers.
    occupied: [u64; LEVELS],
    /// The time up to which timers were cascaded and made due. All armed timers are due at or after it, or were late
    /// when armed. It is before `now` only while an `advance` has work left.
    cascaded_to: Tick,
    /// The latest time seen.
    now: Tick,
    len: usize,
}

impl Wheel {
    /// Empty.
    #[must_use]
    pub fn new(now: Tick) -> Self {
        let slots = (0..).take(LEVELS * SLOTS).map(|slot| {
            let link = SLOT_FLAG | slot;
            ListEnds {
                first: link,
                last: link,
            }
        });
        Self {
            slots: slots.collect(),
            occupied: [0; LEVELS],
            cascaded_to: now,
            now,
            len: 0,
        }
    }

    /// Number of armed timers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no timer is armed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Arms the record's timer, or moves it to another deadline.
    ///
    /// A deadline at or before now is due at the next [`Wheel::advance`], after the timers that were due before it.
    pub fn arm<T: Default + Timed>(&mut self, slab: &mut Slab<T>, index: u32, deadline: Tick) {
        assert!(index < INDEX_END);
        self.disarm(slab, index);
        slab[index].timer_mut().deadline = deadline;
        self.link(slab, index);
        self.len += 1;
    }

    /// Disarms the record's timer, if it is armed.
    pub fn disarm<T: Default + Timed>(&mut self, slab: &mut Slab<T>, index: u32) {
        if slab[index].timer().is_armed() {
            self.unlink(slab, index);
            self.len -= 1;
        }
    }

    /// Moves time forward and appends the indices of due records to `due`, in the order of their
    /// deadlines. Their timers are disarmed.
    ///
    /// `max` bounds the work of one call: the number of timers that become due or cascade to a lower level. So at most
    /// that many are appended, and possibly none. Returns true if work is left for the same `now`: call again, after
    /// more urgent work. A `now` before an earlier `now` counts as the earlier one.
    ///
    /// # Panics
    /// If `max` is 0: the work would never end.
    pub fn advance<T: Default + Timed>(
        &mut self,
        slab: &mut Slab<T>,
        now: Tick,
        max: usize,
        due: &mut Vec<u32>,
    ) -> bool {
        assert!(max > 0);
        self.now = self.now.max(now);
        let mut budget = max;
        while let Some((level, slot, start)) = self.next_occupied() {
            if start > self.now {
                break;
            }
            self.cascaded_to = start;
            while let Some(index) = self.first_in(level, slot) {
                if budget == 0 {
                    return true;
                }
                budget -= 1;
                self.unlink(slab, index);
                if level == 0 {
                    self.len -= 1;
                    due.push(index);
                } else {
                    self.link(slab, index);
                }
            }
        }
        self.cascaded_to = self.now;
        false
    }

    /// A time to sleep until, no later than the earliest deadline. None if no timer is armed.
    ///
    /// It is exact within the current 64 ticks (3.2 s). Beyond them it is a lower bound: the start of the slot that
    /// holds the earliest deadline. Each [`Wheel::advance`] to the bound gives a better one, at most five times before
    /// the deadline itself. The time is at or before now only if `advance` has work to do.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Tick> {
        self.next_occupied().map(|(_, _, start)| start)
    }

    /// The next slot, as (level, slot, start of its time): the one whose cascade was interrupted, or else the earliest.
    fn next_occupied(&self) -> Option<(usize, usize, Tick)> {
        // Once the slots of the current digits have cascaded, only level 0 has timers at its current digit.
        let interrupted = (1..LEVELS)
            .rev()
            .find(|&level| self.is_occupied(level, digit(self.cascaded_to, level)));
        if let Some(level) = interrupted {
            return Some((level, digit(self.cascaded_to, level), self.cascaded_to));
        }
        // All slots of a level are earlier than the next slot of the level above, so the lowest occupied level wins.
        let level = (0..LEVELS).find(|&level| self.occupied[level] != 0)?;
        let slot = self.occupied[level].trailing_zeros() as usize;
        Some((level, slot, slot_start(self.cascaded_to, level, slot)))
    }

    fn is_occupied(&self, level: usize, slot: usize) -> bool {
        self.occupied[level] >> slot & 1 == 1
    }

    fn first_in(&self, level: usize, slot: usize) -> Option<u32> {
        let first = self.slots[level * SLOTS + slot].first;
        (first & SLOT_FLAG == 0).then_some(first)
    }

    /// Appends a record to the list of its deadline's slot.
    fn link<T: Default + Timed>(&mut self, slab: &mut Slab<T>, index: u32) {
        let deadline = slab[index].timer().deadline.max(self.cascaded_to);
        let level = level_of(self.cascaded_to, deadline);
        let slot = digit(deadline, level);
        self.occupied[level] |= 1 << slot;
        let number = level * SLOTS + slot;
        let slot_link = SLOT_FLAG | u32::try_from(number).expect("384 slots");
        let last = self.slots[number].last;
        let timer = slab[index].timer_mut();
        (timer.prev, timer.next) = (last, slot_link);
        self.set_next(slab, last, index);
        self.slots[number].last = index;
    }

    fn unlink<T: Default + Timed>(&mut self, slab: &mut Slab<T>, index: u32) {
        let timer = slab[index].timer_mut();
        let (prev, next) = (timer.prev, timer.next);
        (timer.prev, timer.next) = (NONE, NONE);
        self.set_next(slab, prev, next);
        self.set_prev(slab, next, prev);
        if prev == next && prev & SLOT_FLAG != 0 {
            let number = (prev & !SLOT_FLAG) as usize;
            self.occupied[number / SLOTS] &= !(1 << (number % SLOTS));
        }
    }

    fn set_next<T: Default + Timed>(&mut self, slab: &mut Slab<T>, link: u32, next: u32) {
        if link & SLOT_FLAG == 0 {
            slab[link].timer_mut().next = next;
        } else {
            self.slots[(link & !SLOT_FLAG) as usize].first = next;
        }
    }

    fn set_prev<T: Default + Timed>(&mut self, slab: &mut Slab<T>, link: u32, prev: u32) {
        if link & SLOT_FLAG == 0 {
            slab[link].timer_mut().prev = prev;
        } else {
            self.slots[(link & !SLOT_FLAG) as usize].last = prev;
        }
    }
}

/// The level of the highest digit in which two ticks differ; 0 for equal ones.
fn level_of(a: Tick, b: Tick) -> usize {
    let highest_bit = ((a.0 ^ b.0) | 1).ilog2();
    (highest_bit / DIGIT_BITS) as usize
}

fn shift(level: usize) -> usize {
    level * DIGIT_BITS as usize
}

fn digit(tick: Tick, level: usize) -> usize {
    (tick.0 >> shift(level)) as usize % SLOTS
}

/// The first tick of a slot: the higher digits of `time`, the slot's digit, zeros.
fn slot_start(time: Tick, level: usize, slot: usize) -> Tick {
    let higher = u64::from(time.0) >> shift(level + 1) << shift(level + 1);
    let start = higher | (slot as u64) << shift(level);
    Tick(u32::try_from(start).expect("a slot is occupied by a tick, which is no earlier"))
}

#[cfg(test)]
mod tests;
