//! A node and its clients, whoever they are: how it settles, how time passes for it, and how it drains.

use crate::verdict::ns;
use crate::world::World;
use myriad_reactor::sim::Faults;
use std::time::Duration;

/// Rounds in which nothing may happen before a node counts as quiet: longer than any pause of the simulated listener.
const QUIET_ROUNDS: usize = 6;
/// Turns of each shard between two pauses of a drain, unless all sleep before.
const DRAIN_TURNS_MAX: usize = 1_000;

pub(crate) trait Node {
    /// Rounds after which it should be quiet.
    const ROUNDS_MAX: usize = 100_000;

    fn world(&mut self) -> &mut World;

    /// Clients read, and write if `writes`. True when anything came or went.
    fn exchange(&mut self, writes: bool) -> bool;

    /// Nothing is under way.
    fn note_settled(&mut self) {}

    fn advance(&mut self, duration: Duration) {
        self.world().advance(duration);
    }

    /// Lets everything that is under way arrive, without time passing.
    fn settle(&mut self) {
        let faults = self.world().scene.plan.faults;
        self.world().net.set_faults(Faults {
            kernel_bytes: faults.kernel_bytes,
            ..Faults::NONE
        });
        let mut quiet = 0;
        for round in 0.. {
            assert!(round < Self::ROUNDS_MAX, "it never gets quiet");
            let mut is_moving = self.world().turn_all();
            is_moving |= self.exchange(true);
            is_moving |= self.world().net.attend();
            quiet = if is_moving { 0 } else { quiet + 1 };
            if quiet == QUIET_ROUNDS {
                break;
            }
        }
        self.world().net.note_quiet();
        self.world().net.set_faults(faults);
        self.note_settled();
    }

    /// Moves time on by `duration`, from one deadline to the next, and lets each of them have its effect.
    fn walk(&mut self, duration: Duration) {
        let end = self.world().scene.now + ns(duration);
        loop {
            self.settle();
            let world = self.world();
            match world.next_deadline() {
                Some(next) if next < end => world.scene.now = next,
                _ => break,
            }
        }
        self.world().scene.now = end;
        self.settle();
    }

    /// The node drains while clients go on: `step` does something that takes no time. All shards end in time.
    fn drain_while(&mut self, mut step: impl FnMut(&mut Self)) {
        let over = Duration::from_millis(*self.world().prng.pick(&[0, 300, 3_000]));
        self.world().log(format_args!("drains over {over:?}"));
        let deadline = self.world().begin_drain(over);
        while self.world().is_still_draining(deadline) {
            for _ in 0..self.world().prng.below(10) {
                step(self);
            }
            for _ in 0..DRAIN_TURNS_MAX {
                let is_awake = self.world().turn_all();
                self.exchange(false);
                if !is_awake {
                    break;
                }
            }
            let pause = 20 + self.world().prng.below(30) as u64;
            self.advance(Duration::from_millis(pause));
        }
    }
}
