//! Echoes: a server that answers late, twice, wrong, to somebody else or never, and what is counted then.

use super::{Manners, State, Temper, World};
use crate::clock::Nanos;
use crate::config::Config;
use crate::engine::plan::{Answer, AnsweredPlan};
use crate::engine::shared::Ending;
use crate::measure::round_trip::RoundTrips;
use crate::target::Target;
use myriad_reactor::Driver;
use myriad_reactor::sim::{Faults, Prng, SimNet};
use myriad_report::RoundTripReport;
use myriad_wire::deflate::Deflater;
use myriad_wire::ws::{Kind, Opcode, encode_compressed_frame, encode_frame};
use std::time::Duration;

impl World {
    /// Answers what a terminal said, as the server's manners are.
    pub(super) fn answer_echoes(&mut self, index: usize) {
        if self.manners == Manners::Stalled {
            return;
        }
        while self.manners != Manners::Any || !self.prng.one_in(4) {
            let Some(text) = self.peers[index].answers.pop_front() else {
                return;
            };
            match self.manners {
                Manners::Any if self.temper == Temper::Unkind => self.answer_unkindly(index, text),
                Manners::Twice => {
                    self.answer(index, &text);
                    self.answer(index, &text);
                    self.wrong_answers += 1;
                }
                Manners::Wrong => self.answer_wrong(index, text),
                Manners::ToOne => {
                    self.answer(0, &text);
                    self.wrong_answers += u64::from(index > 0);
                }
                _ => self.answer(index, &text),
            }
        }
    }

    fn answer_unkindly(&mut self, index: usize, text: Vec<u8>) {
        match self.prng.below(12) {
            0 => {}
            1 => self.answer_wrong(index, text),
            2 => {
                let other = self.prng.below(self.peers.len());
                self.answer(other, &text);
                self.wrong_answers += 1;
            }
            3 => {
                self.answer(index, &text);
                self.answer(index, &text);
                self.wrong_answers += 1;
            }
            _ => self.answer(index, &text),
        }
    }

    /// The right stamp, or the beginning of it, and something that was not sent.
    fn answer_wrong(&mut self, index: usize, mut text: Vec<u8>) {
        match self.prng.below(3) {
            0 => text.push(b'.'),
            1 => text.truncate(20),
            _ => text.insert(0, b'"'),
        }
        self.wrong_answers += 1;
        self.answer(index, &text);
    }

    /// Sends text in a frame of any form.
    fn answer(&mut self, index: usize, text: &[u8]) {
        let peer = &self.peers[index];
        if peer.state != State::Open {
            return;
        }
        let mut frames = Vec::new();
        let mut compressed = Vec::new();
        if let Some(window) = peer.window
            && Deflater::default().deflate(window, text, &mut compressed)
        {
            encode_compressed_frame(&mut frames, Kind::Text, None, &compressed);
        } else if self.prng.one_in(3) {
            let (first, last) = text.split_at(self.prng.below(text.len()));
            encode_frame(&mut frames, Opcode::Text, false, None, first);
            encode_frame(&mut frames, Opcode::Continuation, true, None, last);
        } else {
            encode_frame(&mut frames, Opcode::Text, true, None, text);
        }
        self.run.net.write(peer.id, &frames);
    }

    fn echoes(&self) -> RoundTrips {
        let mut whole = RoundTrips::default();
        self.run
            .shared
            .accounts()
            .for_each(|account| whole.merge(&account.answered));
        whole
    }

    /// Every echo has ended one way, and one only; returns the messages that had to do with echoes.
    pub(super) fn check_echoes(&self) -> u64 {
        let trips = self.echoes();
        let counts = &trips.counts;
        if self.run.plan.answered.is_none() || self.run.shared.schedule().is_none() {
            assert_eq!(counts.sent, 0);
            return 0;
        }
        assert!(
            self.run
                .shared
                .accounts()
                .all(|account| account.answered_ended)
        );
        assert_eq!(counts.sent, counts.received + counts.lost + counts.departed);
        assert_eq!(trips.times.len(), counts.received);
        // What comes after it was given up is an error too.
        assert!(counts.errors <= self.wrong_answers + counts.lost);
        let heard: u64 = self.peers.iter().map(|peer| peer.echoes).sum();
        assert!(counts.received <= heard && heard <= counts.sent);
        assert!(self.run.plan.is_changing() || counts.departed == 0);
        if self.temper == Temper::Kind && self.manners == Manners::Any {
            assert_eq!((counts.lost, counts.errors), (0, 0));
        }
        counts.received + counts.errors + self.run.totals().unwell.late_answers
    }
}

const SETTLE: Duration = Duration::from_secs(5);

/// A crowd of ten on two threads, connected, whose echoes begin now and end ten seconds later.
fn crowd(rate_per_s: f64, outstanding_max: usize, manners: Manners) -> World {
    let target = Target::parse("ws://127.0.0.1:8000/raw").unwrap();
    let mut config = Config::new(vec![target], 10);
    config.driver = Some(Driver::Epoll);
    config.threads = Some(2);
    let mut plan = config.prepare().unwrap().plan;
    plan.answered = Some(AnsweredPlan {
        answer: Answer::Echo,
        rate_per_s,
        payload_bytes: 64,
        settle: SETTLE,
        outstanding_max,
    });
    let net = SimNet::new(1, Faults::NONE);
    let mut world = World::of(plan, net, Prng::new(1), Temper::Kind, Ending::Reset);
    world.manners = manners;
    world.pass(100);
    assert!(world.run.holds());
    let from = world.run.clock.0.get();
    let until = Nanos(from + 10_000_000_000);
    world.run.shared.begin_schedule(Nanos(from), Some(until));
    world
}

fn report(world: &World) -> RoundTripReport {
    let window = world.run.shared.schedule().unwrap();
    let rate_per_s = world.run.plan.answered.unwrap().rate_per_s;
    world.echoes().report(rate_per_s, window.from, window.until)
}

/// Whether every thread has ended its echoes.
fn ended(world: &World) -> bool {
    world
        .run
        .shared
        .accounts()
        .all(|account| account.answered_ended)
}

#[test]
fn the_schedule_goes_round_the_crowd_and_all_of_it_comes_back() {
    let mut world = crowd(1000.0, 1000, Manners::AtOnce);
    world.pass(10_100);
    let report = report(&world);
    assert!(ended(&world));
    assert_eq!((report.sent, report.received), (10_000, 10_000));
    assert_eq!((report.lost, report.errors, report.unsent), (0, 0, 0));
    assert!((report.received_per_s - 1000.0).abs() < 1.0);
    assert!(report.round_trip_ms.max.unwrap() < 5.0);
    assert!(world.peers.iter().all(|peer| peer.echoes == 1000));
    assert_eq!(world.echoes().counts.held, Duration::ZERO);
}

/// A second in which the server does nothing is a second for whatever fell due at its beginning, half of one for what
/// fell due in its middle: 1 in 10 of all was due in it. A measurement from the time of sending that waits for answers
/// before it sends on would show one slow message in a thousand.
#[test]
fn a_stall_of_the_server_is_charged_for_all_that_fell_due_in_it() {
    for outstanding_max in [1000, 2] {
        let mut world = crowd(100.0, outstanding_max, Manners::AtOnce);
        world.pass(3000);
        world.manners = Manners::Stalled;
        world.pass(1000);
        world.manners = Manners::AtOnce;
        world.pass(6200);
        let report = report(&world);
        assert!(ended(&world));
        assert_eq!((report.sent, report.received), (1000, 1000));
        assert_eq!((report.lost, report.unsent), (0, 0));
        let times = report.round_trip_ms;
        assert!(times.p50.unwrap() < 5.0, "{times:?}");
        let p99 = times.p99.unwrap();
        assert!((880.0..930.0).contains(&p99), "{times:?}");
        assert!((980.0..1010.0).contains(&times.max.unwrap()), "{times:?}");
        let slow = world.echoes().times.count_between(500_000, 2_000_000);
        assert!(
            (48..=60).contains(&slow),
            "{slow} were slower than half of it"
        );
        let held = world.echoes().counts.held >= Duration::from_millis(900);
        assert_eq!(held, outstanding_max == 2);
    }
}

/// The same when it is this side that does nothing.
#[test]
fn a_stall_of_the_crowd_is_in_the_times_too_and_told_apart() {
    let mut world = crowd(100.0, 1000, Manners::AtOnce);
    world.pass(3000);
    world
        .run
        .clock
        .0
        .set(world.run.clock.0.get() + 1_000_000_000);
    world.pass(6200);
    let report = report(&world);
    assert_eq!((report.sent, report.received), (1000, 1000));
    assert!((880.0..930.0).contains(&report.round_trip_ms.p99.unwrap()));
    let counts = world.echoes().counts;
    assert!(counts.late >= Duration::from_millis(980));
    assert_eq!(counts.held, Duration::ZERO);
}

#[test]
fn a_server_that_never_answers_is_sent_a_bounded_number_and_all_of_it_is_lost() {
    let mut world = crowd(1000.0, 50, Manners::Stalled);
    world.pass(10_000);
    let counts = world.echoes().counts;
    // 50 at once, and each 50 given up after the settle time, at the next look through them.
    assert!(counts.sent <= 150, "{counts:?}");
    assert!(!ended(&world), "the last still have their time");
    world.pass(u64::try_from(SETTLE.as_millis()).unwrap() + 200);
    assert!(ended(&world));
    let report = report(&world);
    assert_eq!((report.received, report.lost), (0, report.sent));
    assert_eq!(report.sent + report.unsent, 10_000);
    assert_eq!(report.round_trip_ms.p99, None);
}

#[test]
fn answers_that_are_late_repeated_wrong_or_misdirected_are_errors_and_nothing_else() {
    let settled = 10_100 + u64::try_from(SETTLE.as_millis()).unwrap() + 100;
    for (manners, received, errors) in [
        (Manners::Twice, 1000, 1000),
        (Manners::Wrong, 0, 1000),
        (Manners::ToOne, 100, 900),
    ] {
        let mut world = crowd(100.0, 1000, manners);
        world.pass(settled);
        let report = report(&world);
        assert!(ended(&world));
        assert_eq!((report.sent, report.received), (1000, received));
        assert_eq!((report.lost, report.errors), (1000 - received, errors));
        assert_eq!(world.wrong_answers, errors);
    }
    let mut world = crowd(100.0, 1000, Manners::Stalled);
    world.pass(settled);
    world.manners = Manners::AtOnce;
    world.pass(100);
    let report = report(&world);
    assert_eq!((report.received, report.lost), (0, 1000));
    assert_eq!(report.errors, 1000, "later than the settle time");
}

#[test]
fn who_loses_its_connection_loses_its_echoes_and_the_others_go_on() {
    let mut world = crowd(100.0, 1000, Manners::AtOnce);
    world.pass(5000);
    world.manners = Manners::Stalled;
    world.pass(95);
    for peer in &mut world.peers[..9] {
        peer.state = State::Ended;
        peer.answers.clear();
        world.run.net.reset(peer.id);
    }
    world.manners = Manners::AtOnce;
    world.pass(5200);
    assert!(ended(&world), "nobody waits for those that are gone");
    let report = report(&world);
    assert_eq!(report.lost, 9);
    assert_eq!(report.received + report.lost, report.sent);
    // The other thread has nobody left to send anything.
    assert!((240..=260).contains(&report.unsent), "{report:?}");
}
