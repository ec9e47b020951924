//! How terminals come and go, in cases made by hand.

use super::{Temper, World};
use crate::config::Config;
use crate::engine::shared::{Ending, Order};
use crate::target::Target;
use myriad_reactor::Driver;
use myriad_reactor::sim::{Faults, Prng, SimNet};

/// Ten terminals on two threads that leave in an orderly way, with some changes.
fn world(change: impl FnOnce(&mut Config)) -> World {
    let target = Target::parse("ws://127.0.0.1:8000/raw").unwrap();
    let mut config = Config::new(vec![target], 10);
    config.driver = Some(Driver::Epoll);
    config.threads = Some(2);
    change(&mut config);
    let plan = config.prepare().unwrap().plan;
    let net = SimNet::new(1, Faults::NONE);
    World::of(plan, net, Prng::new(1), Temper::Kind, Ending::Orderly)
}

impl World {
    /// Takes turns for so many milliseconds, in which the server does nothing.
    fn pass_unserved(&mut self, millis: u64) {
        for _ in 0..millis {
            self.turn();
            self.clock.0.set(self.clock.0.get() + 1_000_000);
        }
    }
}

#[test]
fn who_waits_in_vain_for_the_answer_to_its_close_frame_owns_up_to_the_reset() {
    let mut world = world(|config| config.churn_per_s = Some(0.5));
    world.pass(100);
    assert!(world.all_hold());
    world.shared.give(Order::Churn(Ending::Orderly));
    world.pass(2000);
    world.shared.give(Order::Run);
    world.pass(50);
    assert!(world.totals().churned > 0);
    assert_eq!(world.totals().impatient, 0, "they are answered");
    let answered = world.totals().churned;
    world.shared.give(Order::Churn(Ending::Orderly));
    world.pass_unserved(1000);
    world.shared.give(Order::Run);
    world.pass_unserved(4000);
    let churned = world.totals().churned;
    assert!(churned > answered);
    world.pass_unserved(2000);
    assert_eq!(world.totals().impatient, churned - answered);
}
