//! How a crowd is divided by what machines allow.

use super::messages::Capacity;
use crate::engine::deal::Slice;

/// User space and kernel memory that a terminal is taken to need, in bytes, with some to spare for what it says.
const TERMINAL_BYTES: u64 = 6 << 10;

/// What a machine may get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bound {
    /// Threads: its processors, unless the scenario says how many.
    pub threads: u32,
    /// Most terminals.
    pub terminals: u64,
    /// What this number follows from.
    pub limit: &'static str,
}

/// What a machine allows. `destinations` is none where the targets are on the machine itself: then source addresses are many.
pub(super) fn bound(capacity: &Capacity, threads: Option<u32>, destinations: Option<u64>) -> Bound {
    let threads = threads.unwrap_or(capacity.processors).clamp(1, 1024);
    let tables = u64::from(threads).max(64);
    let descriptors = match capacity.io_uring {
        true => u64::MAX,
        // A machine starts as many threads with a table each as it needs.
        false => capacity.descriptors.saturating_mul(tables),
    };
    let ports = destinations.map_or(u64::MAX, |count| capacity.ports.saturating_mul(count));
    let memory = capacity.memory_bytes / TERMINAL_BYTES;
    let limits = [
        (memory, "memory"),
        (descriptors, "descriptors"),
        (ports, "source ports"),
    ];
    let (terminals, limit) = limits.into_iter().min().expect("three of them");
    Bound {
        threads,
        terminals,
        limit,
    }
}

/// Terminals for each machine, by its threads and within its bound. None if they do not hold so many.
fn quotas(bounds: &[Bound], terminals: u64) -> Option<Vec<u64>> {
    let mut quotas = vec![0; bounds.len()];
    let mut left = terminals;
    while left > 0 {
        let room = |at: usize, quotas: &[u64]| bounds[at].terminals.saturating_sub(quotas[at]);
        let open: Vec<usize> = (0..bounds.len())
            .filter(|&at| room(at, &quotas) > 0)
            .collect();
        let weight: u64 = open.iter().map(|&at| u64::from(bounds[at].threads)).sum();
        if open.is_empty() {
            return None;
        }
        let round = left;
        for &at in &open {
            let threads = u64::from(bounds[at].threads);
            let share = (round * threads).div_ceil(weight);
            let given = share.min(room(at, &quotas)).min(left);
            quotas[at] += given;
            left -= given;
        }
    }
    Some(quotas)
}

/// Why a crowd cannot be divided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Indivisible {
    /// The machines together hold so many.
    Capacity(u64),
    /// A machine, by its index, would get nothing: there are fewer terminals or groups than machines.
    Nothing(usize),
    /// A machine, by its index, would get a group that is larger than what it holds.
    Group(usize),
}

/// Divides the crowd. Groups, where they have to stay together, are in the order of their numbers.
pub(super) fn divide(
    bounds: &[Bound],
    terminals: u32,
    groups: Option<&[u32]>,
) -> Result<Vec<Slice>, Indivisible> {
    let allowed = bounds
        .iter()
        .fold(0_u64, |sum, it| sum.saturating_add(it.terminals));
    let quotas = quotas(bounds, u64::from(terminals)).ok_or(Indivisible::Capacity(allowed))?;
    let mut slices: Vec<Slice> = Vec::new();
    let (mut wanted, mut given, mut thread) = (0_u64, 0_u32, 0_u32);
    let mut groups = groups.map(|sizes| sizes.iter().copied().peekable());
    for (at, bound) in bounds.iter().enumerate() {
        wanted += quotas[at];
        let is_last = at + 1 == bounds.len();
        let until = match &mut groups {
            _ if is_last => terminals,
            None => u32::try_from(wanted).unwrap_or(terminals),
            Some(groups) => {
                // Up to the group's end that is nearest; at least one, which may be larger than a share.
                let mut until = given;
                while let Some(size) = groups.peek() {
                    let middle = u64::from(until) + u64::from(*size) / 2;
                    if middle > wanted && until > given {
                        break;
                    }
                    until += size;
                    groups.next();
                }
                until
            }
        };
        let count = until - given;
        if count == 0 {
            return Err(Indivisible::Nothing(at));
        }
        if u64::from(count) > bound.terminals {
            return Err(Indivisible::Group(at));
        }
        slices.push(Slice {
            first_thread: thread,
            threads: bound.threads.min(count),
            first_terminal: given,
            terminals: count,
        });
        (given, thread) = (until, thread + bound.threads.min(count));
    }
    Ok(slices)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(of: &[(u32, u64)]) -> Vec<Bound> {
        let bound = |&(threads, terminals): &(u32, u64)| Bound {
            threads,
            terminals,
            limit: "memory",
        };
        of.iter().map(bound).collect()
    }

    fn counts(slices: &[Slice]) -> Vec<u32> {
        slices.iter().map(|slice| slice.terminals).collect()
    }

    #[test]
    fn machines_get_shares_by_their_threads_and_no_more_than_they_hold() {
        let all = bounds(&[(2, 1 << 40), (8, 1 << 40), (2, 1 << 40)]);
        let slices = divide(&all, 1200, None).unwrap();
        assert_eq!(counts(&slices), [200, 800, 200]);
        assert_eq!(
            (slices[2].first_thread, slices[2].first_terminal),
            (10, 1000)
        );
        let small = bounds(&[(2, 1 << 40), (8, 100), (2, 1 << 40)]);
        assert_eq!(
            counts(&divide(&small, 1200, None).unwrap()),
            [550, 100, 550]
        );
        let full = bounds(&[(2, 10), (8, 100)]);
        assert_eq!(divide(&full, 1200, None), Err(Indivisible::Capacity(110)));
        let many = bounds(&[(4, 1 << 40), (4, 1 << 40), (4, 1 << 40)]);
        assert_eq!(divide(&many, 2, None), Err(Indivisible::Nothing(2)));
        let few = divide(&many, 5, None).unwrap();
        assert_eq!(few.iter().map(|it| it.threads).max(), Some(2), "{few:?}");
    }

    #[test]
    fn groups_stay_together() {
        let all = bounds(&[(1, 1 << 40), (1, 1 << 40), (1, 1 << 40)]);
        let sizes = [50, 20, 15, 10, 5, 10, 10];
        let slices = divide(&all, 120, Some(&sizes)).unwrap();
        assert_eq!(counts(&slices), [50, 35, 35]);
        assert_eq!(
            divide(&all, 120, Some(&[120])),
            Err(Indivisible::Nothing(1))
        );
        let small = bounds(&[(1, 60), (1, 60)]);
        let error = divide(&small, 120, Some(&[70, 50]));
        assert_eq!(error, Err(Indivisible::Group(0)));
    }

    #[test]
    fn what_a_machine_allows_follows_from_its_scarcest() {
        let capacity = Capacity {
            processors: 4,
            memory_bytes: 600 << 20,
            descriptors: 1024,
            ports: 28_000,
            io_uring: true,
        };
        let of = |capacity: &Capacity, destinations| {
            let bound = bound(capacity, None, destinations);
            (bound.terminals, bound.limit)
        };
        assert_eq!(of(&capacity, Some(1)), (28_000, "source ports"));
        assert_eq!(of(&capacity, None), (102_400, "memory"));
        let epoll = Capacity {
            io_uring: false,
            ..capacity
        };
        assert_eq!(of(&epoll, None), (65_536, "descriptors"));
    }
}
