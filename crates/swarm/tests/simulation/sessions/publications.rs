//! Publications of terminals: a server that invents some, is silent, forgets or is slow, and what is counted then.

use super::{Manners, World};
use crate::clock::Nanos;
use crate::config::Config;
use crate::echo_stamp::{EchoStamp, PublishStamp};
use crate::engine::plan::{Answer, AnsweredPlan};
use crate::measure::deliveries::Deliveries;
use crate::measure::round_trip::Counts;
use crate::protocol::Protocol;
use crate::target::Target;
use myriad_reactor::Driver;
use myriad_reactor::sim::{Faults, Prng, SimNet};
use myriad_report::DeliveryReport;
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
    plan.incidents.clear();
    plan.answered = Some(AnsweredPlan {
        answer: Answer::Reply,
        rate_per_s,
        payload_bytes: 64,
        settle: SETTLE,
        outstanding_max,
    });
    let mut world = World::of(plan, SimNet::new(1, Faults::NONE), Prng::new(1));
    world.manners = manners;
    world.pass(Duration::from_millis(200));
    assert_eq!(world.run.totals().open, 10);
    let from = world.run.clock.0.get();
    let until = Nanos(from + 10_000_000_000);
    world.run.shared.begin_schedule(Nanos(from), Some(until));
    world
}

impl World {
    fn pass(&mut self, time: Duration) {
        for milli in 0..time.as_millis() {
            self.serve();
            if milli % 100 == 0
                && let Some((index, id, data)) = self.backlog.pop_front()
            {
                let slow = std::mem::replace(&mut self.manners, Manners::Accepting);
                self.answer_publish(index, id, &data);
                self.manners = slow;
            }
            self.run.turn();
            self.run.clock.0.set(self.run.clock.0.get() + 1_000_000);
        }
    }

    /// Delivers a publication of this number that was to go to this channel.
    fn invent(&mut self, number: u64, channel: u32) {
        let run = self.run.plan.run;
        let stamp = EchoStamp { run, number };
        let invented = PublishStamp { stamp, channel };
        self.deliver(format!("\"{}\"", invented.payload(64)).as_bytes());
    }

    fn deliveries(&self) -> Deliveries {
        let mut whole = Deliveries::default();
        let accounts = self.run.shared.accounts();
        accounts.for_each(|account| whole.merge(&account.deliveries));
        whole
    }

    fn replies(&self) -> Counts {
        let mut whole = Counts::default();
        let accounts = self.run.shared.accounts();
        accounts.for_each(|account| whole.merge(&account.answered.counts));
        whole
    }

    fn report(&self) -> DeliveryReport {
        let window = self.run.shared.schedule().unwrap();
        self.deliveries()
            .report(window.from, window.until, &self.replies(), true)
    }

    /// Whether every thread has ended its part of the schedule.
    fn ended(&self) -> bool {
        self.run
            .shared
            .accounts()
            .all(|account| account.answered_ended)
    }
}

/// Their numbers would be due millions of years from now, or are those of the thread whose turn to publish does not come.
#[test]
fn a_publication_that_nobody_made_is_no_delivery() {
    let mut world = crowd(1e-6, 100, Manners::Accepting);
    world.pass(Duration::from_millis(100));
    assert_eq!(world.deliveries().counts.received, 10);
    for number in [(1 << 48) - 1, 1, 2] {
        world.invent(number, 0);
    }
    world.pass(Duration::from_millis(100));
    let deliveries = world.deliveries();
    let counts = (deliveries.counts.expected, deliveries.counts.received);
    assert_eq!(counts, (10, 10));
    assert_eq!(deliveries.times.len(), 10);
    let totals = world.run.totals();
    assert_eq!((totals.unmeasured, totals.unexpected), (30, 0));
    world.close();
}

#[test]
fn who_gets_what_has_no_reply_does_not_hide_what_others_miss() {
    let mut world = crowd(1.0, 100, Manners::Accepting);
    world.pass(Duration::from_millis(2500));
    assert_eq!(world.deliveries().counts.received, 30);
    world.manners = Manners::Forgetful;
    world.pass(Duration::from_millis(1000));
    world.manners = Manners::Silent;
    world.pass(Duration::from_millis(1000));
    world.manners = Manners::Accepting;
    world.pass(Duration::from_millis(5600));
    let report = world.report();
    assert_eq!(report.received, 90, "one of ten was forgotten");
    assert_eq!((report.expected, report.missed), (None, None));
    let counts = world.deliveries().counts;
    assert_eq!((counts.expected, counts.possible), (90, 10));
    assert!(world.ended() && !counts.are_complete());
    world.close();
}

#[test]
fn who_gets_it_twice_does_not_make_up_for_who_does_not_get_it() {
    let mut world = crowd(1.0, 100, Manners::Unfair);
    world.pass(Duration::from_millis(10_100));
    let report = world.report();
    let DeliveryReport {
        expected, missed, ..
    } = report;
    assert_eq!((expected, missed), (Some(100), Some(50)), "{report:?}");
    assert_eq!((report.received, world.run.totals().duplicates), (50, 50));
    assert!(!world.deliveries().counts.are_complete());
    world.close();
}

#[test]
fn a_publication_of_another_channel_is_no_delivery() {
    let mut world = crowd(1e-6, 100, Manners::Forgetful);
    world.pass(Duration::from_millis(100));
    world.invent(0, 1);
    world.pass(Duration::from_millis(100));
    assert_eq!(world.run.totals().unexpected, 10);
    let report = world.report();
    assert_eq!((report.received, report.missed), (0, Some(10)));
    // In its own channel it is one.
    world.invent(0, 0);
    world.pass(Duration::from_millis(100));
    assert_eq!(
        (world.report().received, world.run.totals().unexpected),
        (10, 10)
    );
    world.close();
}

#[test]
fn what_was_refused_reaches_nobody_and_hides_nothing() {
    let mut world = crowd(1.0, 100, Manners::Refusing);
    world.pass(Duration::from_millis(2500));
    world.manners = Manners::Forgetful;
    world.pass(Duration::from_millis(1000));
    world.manners = Manners::Accepting;
    world.pass(Duration::from_millis(6600));
    assert!(world.ended());
    let replies = world.replies();
    assert_eq!((replies.received, replies.lost, replies.errors), (7, 3, 3));
    let report = world.report();
    let DeliveryReport {
        expected, missed, ..
    } = report;
    assert_eq!((expected, missed), (Some(70), Some(10)), "{report:?}");
    world.close();
}

/// A run that is interrupted: some replies are still under way.
#[test]
fn what_is_not_answered_yet_may_come_too() {
    let mut world = crowd(1.0, 100, Manners::Silent);
    world.pass(Duration::from_millis(500));
    assert_eq!(world.deliveries().counts.received, 10);
    assert_eq!(world.report().missed, None);
    world.close();
}

#[test]
fn a_server_that_is_slower_than_the_rate_does_not_make_the_schedule_longer() {
    let mut world = crowd(1000.0, 200, Manners::Slow);
    world.pass(Duration::from_secs(10));
    assert!(!world.ended(), "the last still have their time");
    world.pass(SETTLE + Duration::from_millis(200));
    assert!(world.ended());
    let replies = world.replies();
    assert_eq!(replies.sent + replies.unsent(), 10_000);
    // Ten a second make room, and what has no reply is given up after the settle time.
    assert!(replies.sent < 1000, "{replies:?}");
    assert!(replies.received > 0 && replies.lost > 0, "{replies:?}");
    assert_eq!(replies.outstanding(), 0);
    // It goes on with what was given up. That is no reason to wait.
    world.pass(SETTLE * 2);
    let (counts, window) = (
        world.deliveries().counts,
        world.run.shared.schedule().unwrap(),
    );
    assert!(!world.backlog.is_empty() && !counts.are_complete());
    let now = Nanos(world.run.clock.0.get());
    assert!(!counts.are_awaited(window, replies.last, SETTLE, now));
    assert_eq!(world.report().missed, None);
    world.close();
}
