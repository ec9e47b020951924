//! How a crowd is dealt to machines. A fleet is one crowd whose threads are on several machines: numbers of terminals, of
//! messages and of threads are the crowd's everywhere, so that none is given twice.

use serde::{Deserialize, Serialize};

/// What one machine has of the crowd: threads and terminals with consecutive numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Slice {
    pub first_thread: u32,
    pub threads: u32,
    pub first_terminal: u32,
    pub terminals: u32,
}

impl Slice {
    /// What its marks of flows are to be told from those of other machines by: another number for each first thread, as far as a
    /// mark's 13 bits of the run allow.
    pub(crate) fn mark_offset(self) -> u16 {
        u16::try_from(self.first_thread % 0x1fff).expect("13 bits")
    }

    /// The threads of the crowd that it has.
    pub(crate) fn thread_numbers(self) -> std::ops::Range<u32> {
        self.first_thread..self.first_thread + self.threads
    }
}

/// The crowd's slices, in the order of their numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Deal {
    slices: Vec<Slice>,
    /// The index of this machine's; none where only figures are gathered.
    own: Option<usize>,
}

impl Deal {
    /// The whole crowd on this machine.
    pub(crate) fn alone(threads: u32, terminals: u32) -> Self {
        let whole = Slice {
            first_thread: 0,
            threads,
            first_terminal: 0,
            terminals,
        };
        Self {
            slices: vec![whole],
            own: Some(0),
        }
    }

    /// The crowd on several machines. None if the slices have gaps, or nothing in them.
    pub(crate) fn of(slices: Vec<Slice>, own: Option<usize>) -> Option<Self> {
        let (mut threads, mut terminals) = (0_u32, 0_u32);
        for slice in &slices {
            let follows = slice.first_thread == threads && slice.first_terminal == terminals;
            let is_whole = (1..=slice.terminals).contains(&slice.threads);
            if !follows || !is_whole {
                return None;
            }
            threads = threads.checked_add(slice.threads)?;
            terminals = terminals.checked_add(slice.terminals)?;
        }
        let has_own = own.is_none_or(|own| own < slices.len());
        (!slices.is_empty() && has_own).then_some(Self { slices, own })
    }

    pub(crate) fn slices(&self) -> &[Slice] {
        &self.slices
    }

    /// This machine's part; nothing where only figures are gathered.
    pub(crate) fn own(&self) -> Slice {
        let nothing = Slice {
            first_thread: 0,
            threads: 0,
            first_terminal: 0,
            terminals: 0,
        };
        self.own.map_or(nothing, |own| self.slices[own])
    }

    /// The slice that a thread of the crowd is in.
    pub(crate) fn of_thread(&self, thread: u32) -> Slice {
        let behind = self
            .slices
            .partition_point(|slice| slice.first_thread <= thread);
        self.slices[behind - 1]
    }

    pub(crate) fn threads(&self) -> u32 {
        self.slices.iter().map(|slice| slice.threads).sum()
    }

    pub(crate) fn terminals(&self) -> u32 {
        self.slices.iter().map(|slice| slice.terminals).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_follow_one_another() {
        let slice = |first_thread, threads, first_terminal, terminals| Slice {
            first_thread,
            threads,
            first_terminal,
            terminals,
        };
        let slices = vec![slice(0, 2, 0, 10), slice(2, 1, 10, 3)];
        let deal = Deal::of(slices.clone(), Some(1)).unwrap();
        assert_eq!((deal.threads(), deal.terminals()), (3, 13));
        assert_eq!(
            (deal.of_thread(1), deal.of_thread(2)),
            (slices[0], slices[1])
        );
        assert_eq!(deal.own(), slices[1]);
        assert_eq!(Deal::of(slices.clone(), None).unwrap().own().threads, 0);
        assert_eq!(Deal::of(slices, Some(2)), None);
        assert_eq!(Deal::of(vec![slice(0, 2, 1, 10)], None), None, "a gap");
        assert_eq!(
            Deal::of(vec![slice(0, 2, 0, 1)], None),
            None,
            "idle threads"
        );
        assert_eq!(Deal::of(Vec::new(), None), None);
        let large = vec![slice(0, 1, 0, u32::MAX), slice(1, 1, u32::MAX, 1)];
        assert_eq!(Deal::of(large, None), None);
    }
}
