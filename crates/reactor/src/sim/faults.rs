//! The faults of a simulation and their probabilities.

use super::Prng;

/// A probability, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chance(pub u16);

impl Chance {
    /// Probability zero.
    pub const NEVER: Self = Self(0);

    pub(super) fn happens(self, prng: &mut Prng) -> bool {
        // Always draw a number: a chance of zero must not shift the random sequence of the other faults.
        prng.below(1000) < usize::from(self.0)
    }
}

/// The probabilities of events that the contract allows and a quiet loopback never shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faults {
    /// The kernel takes only a part of a send although there is room for all of it.
    pub short_send: Chance,
    /// The kernel takes nothing of a send although there is room (memory pressure).
    pub refused_send: Chance,
    /// A receive returns fewer bytes than there are.
    pub split_receive: Chance,
    /// A connection's next completion arrives in a later wait.
    pub delay: Chance,
    /// Bytes stay in the kernel for a while before the peer receives them.
    pub delayed_delivery: Chance,
    /// After a close, a completion with the old token still arrives.
    pub late_completion: Chance,
    /// An accept fails for want of descriptors or memory.
    pub accept_pause: Chance,
    /// A wait reports [`crate::Completion::Woken`] although nobody called the waker.
    pub wake: Chance,
    /// An outgoing connection is refused, or times out.
    pub connect_failure: Chance,
    /// A transfer, or an adoption, fails for want of a descriptor.
    pub transfer_failure: Chance,
    /// Size of a connection's kernel buffers, ours and the peer's together: smallest and largest, in bytes.
    pub kernel_bytes: (usize, usize),
}

impl Faults {
    /// No faults: everything arrives at once and whole. The kernel buffers 64 KiB.
    pub const NONE: Self = Self {
        short_send: Chance::NEVER,
        refused_send: Chance::NEVER,
        split_receive: Chance::NEVER,
        delay: Chance::NEVER,
        delayed_delivery: Chance::NEVER,
        late_completion: Chance::NEVER,
        accept_pause: Chance::NEVER,
        wake: Chance::NEVER,
        connect_failure: Chance::NEVER,
        transfer_failure: Chance::NEVER,
        kernel_bytes: (65_536, 65_536),
    };

    /// A different mix for each seed.
    ///
    /// Each fault is absent, rare or frequent. With every fault on in every run, some states would never be reached:
    /// a queue does not fill its budget, for instance, if every send is short.
    #[must_use]
    pub fn mixed(prng: &mut Prng) -> Self {
        let mut chance = |frequent: u16| Chance([0, frequent / 10, frequent][prng.below(3)]);
        let mut faults = Self {
            short_send: chance(400),
            refused_send: chance(100),
            split_receive: chance(500),
            delay: chance(500),
            delayed_delivery: chance(700),
            late_completion: chance(500),
            accept_pause: chance(100),
            wake: chance(200),
            connect_failure: chance(100),
            transfer_failure: chance(100),
            ..Self::NONE
        };
        faults.kernel_bytes =
            *prng.pick(&[(8, 256), (16, 4096), (1024, 65_536), (65_536, 1 << 20)]);
        faults
    }
}
