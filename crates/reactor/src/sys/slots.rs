//! A driver's state of each socket: two bytes per slot of a table.

/// One flag of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(super) enum SlotFlag {
    /// A socket is in the slot.
    Open = 1,
    /// The caller wants the socket's bytes, and neither the end nor a failure was reported.
    Receiving = 1 << 1,
    /// The kernel watches the socket for input (io_uring: a poll is armed; epoll: it is in the set).
    Watched = 1 << 2,
    /// The socket is in the queue of sockets to receive from.
    Queued = 1 << 3,
    /// The kernel reported the end after the buffered bytes: receive until the end.
    Ended = 1 << 4,
    /// The caller requested [`crate::Completion::Writable`].
    WantsWritable = 1 << 5,
    /// A connect is under way.
    Connecting = 1 << 6,
    /// The caller does not want the socket's bytes for now. Never together with `Receiving`.
    Paused = 1 << 7,
}

/// Number of bits for flags. The other bits count the closes of the slot.
const FLAG_BITS: u32 = 8;
const FLAG_MASK: u16 = (1 << FLAG_BITS) - 1;
/// Flags that each stand for a request in the kernel.
const ARMED_FLAGS: u16 =
    SlotFlag::Watched as u16 | SlotFlag::WantsWritable as u16 | SlotFlag::Connecting as u16;

/// Counts the sockets that have been in a slot. Wraps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Epoch(u16);

#[derive(Clone, Copy, Debug, Default)]
struct State(u16);

/// The states of a table's slots, grown to the highest slot ever used.
#[derive(Debug, Default)]
pub(super) struct SlotTable(Vec<State>);

impl SlotTable {
    /// Whether the flag is set. False for slots never used.
    pub(super) fn has(&self, slot: u32, flag: SlotFlag) -> bool {
        self.0
            .get(slot as usize)
            .is_some_and(|state| state.0 & flag as u16 != 0)
    }

    pub(super) fn set(&mut self, slot: u32, flag: SlotFlag) {
        self.0[slot as usize].0 |= flag as u16;
    }

    /// Clears the flag and returns whether it was set.
    pub(super) fn take(&mut self, slot: u32, flag: SlotFlag) -> bool {
        let held = self.has(slot, flag);
        if held {
            self.0[slot as usize].0 &= !(flag as u16);
        }
        held
    }

    /// Stops receiving from the slot's socket. Where the end was reported already, what is left is received instead.
    pub(super) fn pause(&mut self, slot: u32) {
        if !self.has(slot, SlotFlag::Ended) && self.take(slot, SlotFlag::Receiving) {
            self.set(slot, SlotFlag::Paused);
        }
    }

    /// Goes on receiving, and returns whether the socket was paused.
    pub(super) fn resume(&mut self, slot: u32) -> bool {
        let was_paused = self.take(slot, SlotFlag::Paused);
        if was_paused {
            self.set(slot, SlotFlag::Receiving);
        }
        was_paused
    }

    /// Marks the slot as holding a socket.
    pub(super) fn open(&mut self, slot: u32) {
        let index = slot as usize;
        if index >= self.0.len() {
            // Grow by a quarter instead of doubling: a table of 16,000 sockets should not pay for 32,000.
            if index >= self.0.capacity() {
                let target = index + 1 + (index / 4).max(256);
                self.0.reserve_exact(target - self.0.len());
            }
            self.0.resize(index + 1, State::default());
        }
        self.set(slot, SlotFlag::Open);
    }

    /// Clears every flag and begins a new epoch. False if the slot held no socket.
    pub(super) fn close(&mut self, slot: u32) -> bool {
        let closed = self.close_keeping_armed(slot);
        if closed {
            self.0[slot as usize].0 &= !FLAG_MASK;
        }
        closed
    }

    /// The same for a socket that still has armed requests in the kernel: their flags stay set until each request has
    /// ended. The slot may be reused when it [`SlotTable::is_vacant`]. False if the slot held no socket.
    pub(super) fn close_keeping_armed(&mut self, slot: u32) -> bool {
        if !self.has(slot, SlotFlag::Open) {
            return false;
        }
        let state = &mut self.0[slot as usize].0;
        let epoch = (*state >> FLAG_BITS).wrapping_add(1);
        *state = epoch << FLAG_BITS | *state & ARMED_FLAGS;
        true
    }

    /// Whether the slot holds no socket, and no request of its former socket is armed.
    pub(super) fn is_vacant(&self, slot: u32) -> bool {
        self.0
            .get(slot as usize)
            .is_none_or(|state| state.0 & FLAG_MASK == 0)
    }

    pub(super) fn epoch(&self, slot: u32) -> Epoch {
        Epoch(
            self.0
                .get(slot as usize)
                .map_or(0, |state| state.0 >> FLAG_BITS),
        )
    }

    /// The slots that hold a socket.
    pub(super) fn iter_open(&self) -> impl Iterator<Item = u32> + '_ {
        (0..)
            .zip(&self.0)
            .filter(|(_, state)| state.0 & SlotFlag::Open as u16 != 0)
            .map(|(slot, _)| slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_clears_flags_and_begins_an_epoch() {
        let mut slots = SlotTable::default();
        slots.open(700);
        slots.set(700, SlotFlag::Receiving);
        slots.set(700, SlotFlag::Queued);
        let before = slots.epoch(700);
        assert!(slots.close(700));
        assert!(
            !slots.has(700, SlotFlag::Open)
                && !slots.has(700, SlotFlag::Receiving)
                && !slots.has(700, SlotFlag::Queued)
        );
        assert_ne!(slots.epoch(700), before);
        assert!(!slots.close(700), "an empty slot has nothing to close");
    }

    #[test]
    fn epochs_wrap_without_touching_flags() {
        let mut slots = SlotTable::default();
        for _ in 0..2000 {
            slots.open(3);
            slots.set(3, SlotFlag::Watched);
            assert!(slots.close(3));
            assert_eq!(slots.iter_open().count(), 0);
            assert!(!slots.has(3, SlotFlag::Watched));
        }
    }

    #[test]
    fn a_slot_is_vacant_when_nothing_is_armed_for_its_former_socket() {
        let mut slots = SlotTable::default();
        slots.open(9);
        slots.set(9, SlotFlag::Receiving);
        slots.set(9, SlotFlag::Watched);
        slots.set(9, SlotFlag::WantsWritable);
        let before = slots.epoch(9);
        assert!(slots.close_keeping_armed(9));
        assert!(!slots.close_keeping_armed(9));
        assert_ne!(slots.epoch(9), before);
        assert!(!slots.has(9, SlotFlag::Open) && !slots.has(9, SlotFlag::Receiving));
        assert!(slots.take(9, SlotFlag::Watched) && !slots.is_vacant(9));
        assert!(slots.take(9, SlotFlag::WantsWritable) && slots.is_vacant(9));
    }

    #[test]
    fn a_paused_slot_does_not_receive_until_it_is_resumed() {
        let mut slots = SlotTable::default();
        slots.open(4);
        slots.pause(4);
        assert!(!slots.resume(4), "nobody wanted its bytes");
        slots.set(4, SlotFlag::Receiving);
        slots.pause(4);
        assert!(!slots.has(4, SlotFlag::Receiving));
        assert!(slots.resume(4) && slots.has(4, SlotFlag::Receiving));
        assert!(!slots.resume(4));
        slots.set(4, SlotFlag::Ended);
        slots.pause(4);
        assert!(
            slots.has(4, SlotFlag::Receiving),
            "no event will come any more"
        );
        slots.close(4);
        assert!(!slots.has(4, SlotFlag::Paused));
    }

    #[test]
    fn unused_slots_have_no_flags() {
        let slots = SlotTable::default();
        assert!(!slots.has(5, SlotFlag::Open));
    }
}
