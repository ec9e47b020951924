//! What goes wrong in a simulation, and how often.

use super::Prng;

/// A probability, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chance(pub u16);

impl Chance {
    /// It does not happen.
    pub const NEVER: Self = Self(0);

    pub(super) fn happens(self, prng: &mut Prng) -> bool {
        // The draw is made in any case, so that one fault's chance does not shift the others' luck.
        prng.below(1000) < usize::from(self.0)
    }
}

/// The chances of what the contract allows and a quiet loopback never shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faults {
    /// A send is taken in part although there is room for all of it.
    pub short_send: Chance,
    /// A send is not taken at all although there is room: kernel memory pressure.
    pub refused_send: Chance,
    /// Input arrives in a piece shorter than what is there.
    pub split_receive: Chance,
    /// A connection's next completion waits for a later turn.
    pub delay: Chance,
    /// Bytes the kernel took stay in it for a while.
    pub delayed_delivery: Chance,
    /// After a close, a completion with the old token still arrives.
    pub late_completion: Chance,
    /// An accept fails for want of descriptors or memory.
    pub accept_pause: Chance,
    /// A wait returns because somebody woke it, for nothing.
    pub wake: Chance,
    /// An outgoing connection is refused, or times out.
    pub connect_failure: Chance,
    /// A transfer fails for want of a descriptor.
    pub transfer_failure: Chance,
    /// Bytes that a connection's kernel buffers hold together, ours and the peer's: smallest and largest.
    pub kernel_bytes: (usize, usize),
}

impl Faults {
    /// A network that does what one hopes: everything at once and whole, 64 KiB in the kernel.
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
    /// Each fault is absent, rare or frequent. With every fault on in every run the faults would hide what
    /// only shows when one of them is missing: nothing fills a buffer that drains by drops, for instance.
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
