//! A server that upgrades fewer than the crowd asks for: the window of handshakes under way shrinks, and grows back.

use super::{Temper, World};
use crate::config::Config;
use crate::engine::shared::{Ending, Stage};
use crate::engine::window::FLOOR;
use crate::failure::Failure;
use crate::target::Target;
use myriad_reactor::Driver;
use myriad_reactor::sim::{Faults, Prng, SimNet};
use std::time::Duration;

const CEILING: u32 = 256;

fn world(connections: u64, prng: &mut Prng) -> World {
    let target = Target::parse("ws://127.0.0.1:8000/raw").unwrap();
    let mut config = Config::new(vec![target], connections);
    config.driver = Some(Driver::Epoll);
    config.threads = Some(1);
    config.connecting_max = CEILING;
    config.handshake_timeout = Duration::from_millis(500);
    config.retries = 100;
    let mut plan = config.prepare().unwrap().plan;
    plan.seed = prng.bits();
    let net = SimNet::new(plan.seed, Faults::NONE);
    World::of(plan, net, prng.clone(), Temper::Kind, Ending::Reset)
}

fn timeouts(world: &World) -> u64 {
    let accounts = world.run.shared.accounts();
    accounts
        .filter_map(|account| account.failures.get(&Failure::HandshakeTimeout).copied())
        .sum()
}

#[test]
fn the_window_shrinks_while_handshakes_time_out_and_grows_back() {
    for seed in 0..5 {
        let mut world = world(3_000, &mut Prng::new(seed));
        // 100 upgrades a second, and time for half a second of them.
        world.upgrades_per_step = Some(1);
        for _ in 0..20 {
            world.step_slowly(1_000);
        }
        let slow = world.run.totals();
        assert!(timeouts(&world) > 0);
        assert!(slow.opened > 0, "the server is not drowned");
        assert!(
            slow.window_least >= u64::from(FLOOR),
            "{}",
            slow.window_least
        );
        assert!(slow.window <= u64::from(CEILING) / 2, "{}", slow.window);

        world.upgrades_per_step = None;
        for _ in 0..20 {
            world.step_slowly(1_000);
        }
        let fast = world.run.totals();
        assert_eq!(fast.opened, 3_000);
        assert_eq!(fast.window, u64::from(CEILING), "it has grown back");
        assert_eq!(fast.window_least, slow.window_least);
        let held = world
            .run
            .shared
            .accounts()
            .all(|account| account.stage == Stage::Holding);
        assert!(held);
        world.close();
    }
}

#[test]
fn a_server_that_keeps_up_sees_the_whole_window() {
    let mut world = world(1_000, &mut Prng::new(1));
    world.step_slowly(1_000);
    let totals = world.run.totals();
    assert_eq!((totals.opened, timeouts(&world)), (1_000, 0));
    assert_eq!(totals.window_least, u64::from(CEILING));
    world.close();
}
