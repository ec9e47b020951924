//! Publications of terminals: a server that invents some, and what is counted then.

use super::{Manners, World};
use crate::clock::Nanos;
use crate::config::Config;
use crate::echo_stamp::EchoStamp;
use crate::engine::plan::{Answer, EchoPlan};
use crate::measure::deliveries::Deliveries;
use crate::protocol::Protocol;
use crate::target::Target;
use myriad_reactor::Driver;
use myriad_reactor::sim::{Faults, Prng, SimNet};
use std::time::Duration;

const SETTLE: Duration = Duration::from_secs(5);

/// A crowd of ten on two threads, connected, that begins to publish now and ends ten seconds later.
fn crowd(rate_per_s: f64, outstanding_max: usize, manners: Manners) -> World {
    let target = Target::parse("ws://127.0.0.1:8000/connection/websocket").unwrap();
    let mut config = Config::new(vec![target], 10);
    config.driver = Some(Driver::Epoll);
    config.threads = Some(2);
    config.protocol = Protocol::CentrifugeJson;
    config.channels = vec!["x".to_owned()];
    let mut plan = config.prepare().unwrap().plan;
    plan.echo = Some(EchoPlan {
        answer: Answer::Reply,
        rate_per_s,
        payload_bytes: 64,
        settle: SETTLE,
        outstanding_max,
    });
    let mut world = World::of(plan, SimNet::new(1, Faults::NONE), Prng::new(1));
    world.manners = manners;
    world.pass(Duration::from_millis(200));
    assert_eq!(world.totals().open, 10);
    let from = world.clock.0.get();
    let until = Nanos(from + 10_000_000_000);
    world.shared.begin_echoes(Nanos(from), Some(until));
    world
}

impl World {
    fn pass(&mut self, time: Duration) {
        for _ in 0..time.as_millis() {
            self.serve();
            self.turn();
            self.clock.0.set(self.clock.0.get() + 1_000_000);
        }
    }

    fn deliveries(&self) -> Deliveries {
        let mut whole = Deliveries::default();
        let accounts = self.shared.accounts();
        accounts.for_each(|account| whole.merge(&account.deliveries));
        whole
    }
}

/// Their numbers would be due millions of years from now, or are those of the thread whose turn to publish does not come.
#[test]
fn a_publication_that_nobody_made_is_no_delivery() {
    let mut world = crowd(1e-6, 100, Manners::Accepting);
    world.pass(Duration::from_millis(100));
    assert_eq!(world.deliveries().counts.received, 10);
    let run = world.plan.run;
    for number in [(1 << 48) - 1, 1, 2] {
        let invented = EchoStamp { run, number };
        world.deliver(format!("\"{}\"", invented.payload(64)).as_bytes());
    }
    world.pass(Duration::from_millis(100));
    let deliveries = world.deliveries();
    let counts = (deliveries.counts.expected, deliveries.counts.received);
    assert_eq!(counts, (10, 10));
    assert_eq!(deliveries.times.len(), 10);
    let totals = world.totals();
    assert_eq!((totals.unmeasured, totals.unexpected), (30, 0));
    world.close();
}
