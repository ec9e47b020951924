//! Two bytes per slot of a table: all that a driver remembers of a socket.

/// One fact about a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(super) enum Fact {
    /// A socket is in the slot.
    Open = 1,
    /// The caller wants its bytes, and neither the end nor a failure was reported.
    Receiving = 1 << 1,
    /// The kernel watches it for input (io_uring: a poll is armed; epoll: it is in the set).
    Watched = 1 << 2,
    /// It waits in the queue of sockets to receive from.
    Queued = 1 << 3,
    /// The kernel told that nothing comes after what is buffered: receive until the end shows.
    Ended = 1 << 4,
    /// The caller asked to be told when it takes bytes.
    WantsWritable = 1 << 5,
    /// A connect is under way.
    Connecting = 1 << 6,
}

/// Bits of the state that are facts; the rest counts the closes of the slot.
const FACT_BITS: u32 = 7;
const FACTS: u16 = (1 << FACT_BITS) - 1;
/// Facts that stand for a request in the kernel.
const ARMED: u16 = Fact::Watched as u16 | Fact::WantsWritable as u16 | Fact::Connecting as u16;

/// Which of the sockets that were in a slot, one after the other. Wraps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Epoch(u16);

#[derive(Clone, Copy, Debug, Default)]
struct State(u16);

/// The states of a table's slots, grown to the highest slot ever used.
#[derive(Debug, Default)]
pub(super) struct Slots(Vec<State>);

impl Slots {
    /// Whether the fact holds; false for slots never used.
    pub(super) fn is(&self, slot: u32, fact: Fact) -> bool {
        self.0
            .get(slot as usize)
            .is_some_and(|state| state.0 & fact as u16 != 0)
    }

    pub(super) fn set(&mut self, slot: u32, fact: Fact) {
        self.0[slot as usize].0 |= fact as u16;
    }

    /// Clears the fact and returns whether it held.
    pub(super) fn take(&mut self, slot: u32, fact: Fact) -> bool {
        let held = self.is(slot, fact);
        if held {
            self.0[slot as usize].0 &= !(fact as u16);
        }
        held
    }

    /// A socket came into the slot.
    pub(super) fn open(&mut self, slot: u32) {
        let index = slot as usize;
        if index >= self.0.len() {
            // By a quarter, not by doubling: a table that stays at 16,000 sockets should not pay for 32,000.
            if index >= self.0.capacity() {
                let target = index + 1 + (index / 4).max(256);
                self.0.reserve_exact(target - self.0.len());
            }
            self.0.resize(index + 1, State::default());
        }
        self.set(slot, Fact::Open);
    }

    /// The socket left the slot: forgets every fact and begins a new epoch. False when there was none.
    pub(super) fn close(&mut self, slot: u32) -> bool {
        let closed = self.leave(slot);
        if closed {
            self.0[slot as usize].0 &= !FACTS;
        }
        closed
    }

    /// The socket left the slot, but requests armed for it are still in the kernel: those facts stay, until
    /// each is taken; the slot may be used again when it [`Slots::is_vacant`]. False when there was no socket.
    pub(super) fn leave(&mut self, slot: u32) -> bool {
        if !self.is(slot, Fact::Open) {
            return false;
        }
        let state = &mut self.0[slot as usize].0;
        let epoch = (*state >> FACT_BITS).wrapping_add(1);
        *state = epoch << FACT_BITS | *state & ARMED;
        true
    }

    /// Whether nothing is in the slot, nor armed for what was.
    pub(super) fn is_vacant(&self, slot: u32) -> bool {
        self.0
            .get(slot as usize)
            .is_none_or(|state| state.0 & FACTS == 0)
    }

    pub(super) fn epoch(&self, slot: u32) -> Epoch {
        Epoch(
            self.0
                .get(slot as usize)
                .map_or(0, |state| state.0 >> FACT_BITS),
        )
    }

    /// The slots that hold a socket.
    pub(super) fn iter_open(&self) -> impl Iterator<Item = u32> + '_ {
        (0..)
            .zip(&self.0)
            .filter(|(_, state)| state.0 & Fact::Open as u16 != 0)
            .map(|(slot, _)| slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_forgets_facts_and_begins_an_epoch() {
        let mut slots = Slots::default();
        slots.open(700);
        slots.set(700, Fact::Receiving);
        slots.set(700, Fact::Queued);
        let before = slots.epoch(700);
        assert!(slots.close(700));
        assert!(
            !slots.is(700, Fact::Open)
                && !slots.is(700, Fact::Receiving)
                && !slots.is(700, Fact::Queued)
        );
        assert_ne!(slots.epoch(700), before);
        assert!(!slots.close(700), "an empty slot has nothing to close");
    }

    #[test]
    fn epochs_wrap_without_touching_facts() {
        let mut slots = Slots::default();
        for _ in 0..2000 {
            slots.open(3);
            slots.set(3, Fact::Watched);
            assert!(slots.close(3));
            assert_eq!(slots.iter_open().count(), 0);
            assert!(!slots.is(3, Fact::Watched));
        }
    }

    #[test]
    fn a_slot_is_vacant_when_nothing_is_armed_for_its_former_socket() {
        let mut slots = Slots::default();
        slots.open(9);
        slots.set(9, Fact::Receiving);
        slots.set(9, Fact::Watched);
        slots.set(9, Fact::WantsWritable);
        let before = slots.epoch(9);
        assert!(slots.leave(9));
        assert!(!slots.leave(9));
        assert_ne!(slots.epoch(9), before);
        assert!(!slots.is(9, Fact::Open) && !slots.is(9, Fact::Receiving));
        assert!(slots.take(9, Fact::Watched) && !slots.is_vacant(9));
        assert!(slots.take(9, Fact::WantsWritable) && slots.is_vacant(9));
    }

    #[test]
    fn unused_slots_have_no_facts() {
        let slots = Slots::default();
        assert!(!slots.is(5, Fact::Open));
    }
}
