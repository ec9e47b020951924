//! How terminals come and go, in cases made by hand.

use super::{State, Temper, World};
use crate::config::{Arrival, Config, Endpoint, Incident, Publish, PublishBody};
use crate::engine::shared::{Ending, Order};
use crate::failure::Failure;
use crate::target::Target;
use myriad_reactor::Driver;
use myriad_reactor::sim::{Faults, Prng, SimNet};
use myriad_wire::ws::{Event, Limits, Opcode, encode_frame};
use std::time::Duration;

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
            self.run.turn();
            self.run.clock.0.set(self.run.clock.0.get() + 1_000_000);
        }
    }

    /// Makes a publication that the server drops.
    fn publish_to_nobody(&mut self) {
        let peers = std::mem::take(&mut self.peers);
        self.publish();
        self.peers = peers;
    }
}

/// The server upgrades one of the three connections that may be under way every ten milliseconds.
#[test]
fn a_full_window_is_the_servers_lateness_also_when_it_opens_by_one() {
    let mut world = world(|config| {
        config.connections = 100;
        config.threads = Some(1);
        config.connecting_max = 3;
        config.arrival = Arrival::Rate(1000.0);
    });
    let mut upgraded = 0;
    for turn in 0..1000 {
        world.accept();
        if turn % 10 == 0 && upgraded < world.peers.len() {
            world.serve(upgraded);
            upgraded += usize::from(world.peers[upgraded].state == State::Open);
        }
        world.run.turn();
        world.run.clock.0.set(world.run.clock.0.get() + 1_000_000);
    }
    let totals = world.run.totals();
    assert!(totals.opened > 50, "{totals:?}");
    assert!(
        totals.window_late > Duration::from_millis(500),
        "{totals:?}"
    );
    // The first three, and nobody after them, went out as fast as this side could.
    assert!(
        totals.schedule_late < Duration::from_millis(10),
        "{totals:?}"
    );
}

#[test]
fn interim_answers_before_the_upgrade_are_passed_over() {
    let mut world = world(|config| {
        config.connections = 1;
        config.threads = Some(1);
    });
    world.pass_unserved(10);
    world.accept();
    let peer = world.peers[0].id;
    for piece in [
        "HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early",
        " Hints\r\nlink: </a.css>\r\n\r\n",
    ] {
        world.run.net.write(peer, piece.as_bytes());
        world.pass_unserved(10);
    }
    world.pass(100);
    let failures = world.run.shared.accounts().map(|it| it.failures.len());
    assert_eq!(failures.sum::<usize>(), 0);
    assert_eq!(world.run.totals().opened, 1);
}

#[test]
fn who_waits_in_vain_for_the_answer_to_its_close_frame_owns_up_to_the_reset() {
    let mut world = world(|config| config.churn_per_s = Some(0.5));
    world.pass(100);
    assert!(world.run.holds());
    world.run.shared.set_order(Order::Churn(Ending::Orderly));
    world.pass(2000);
    world.run.shared.set_order(Order::Run);
    world.pass(50);
    assert!(world.run.totals().churned > 0);
    assert_eq!(world.run.totals().impatient, 0, "they are answered");
    let answered = world.run.totals().churned;
    world.run.shared.set_order(Order::Churn(Ending::Orderly));
    world.pass_unserved(1000);
    world.run.shared.set_order(Order::Run);
    world.pass_unserved(4000);
    let churned = world.run.totals().churned;
    assert!(churned > answered);
    world.pass_unserved(2000);
    assert_eq!(world.run.totals().impatient, churned - answered);
}

#[test]
fn who_was_to_leave_and_did_not_is_counted() {
    let mut world = world(|config| {
        config.threads = Some(1);
        config.connecting_max = 2;
        config.churn_per_s = Some(0.5);
    });
    world.pass(100);
    assert!(world.run.holds());
    world.run.shared.set_order(Order::Churn(Ending::Reset));
    // Five a second are due; two may be on their way, and the server takes none.
    world.pass_unserved(2000);
    let totals = world.run.totals();
    assert_eq!(totals.churned, 2);
    assert!((7..=8).contains(&totals.churn_forgone), "{totals:?}");
}

#[test]
fn a_setup_time_counts_from_the_first_attempt() {
    let mut world = world(|config| {
        config.connections = 1;
        config.threads = Some(1);
        config.retries = 1;
    });
    world.pass_unserved(10);
    world.accept();
    let refused = &mut world.peers[0];
    assert!(!world.run.net.read(refused.id).is_empty(), "its request");
    world.run.net.write(
        refused.id,
        b"HTTP/1.1 503 Full\r\ncontent-length: 0\r\n\r\n",
    );
    world.run.net.close(refused.id);
    refused.state = State::Ended;
    world.pass(3000);
    assert_eq!(world.run.totals().opened, 1);
    let account = world.run.shared.account(0);
    assert_eq!(account.failures[&Failure::HandshakeStatus(503)], 1);
    // The second attempt begins a second after the first failed, or up to a quarter later.
    let micros = account.setup_times.max();
    assert!((1_000_000..1_300_000).contains(&micros), "{micros}");
}

#[test]
fn a_late_pong_is_not_credited_to_the_next_ping() {
    let mut world = world(|config| {
        config.connections = 1;
        config.threads = Some(1);
        config.heartbeat = Some(Duration::from_secs(1));
    });
    world.pass(100);
    assert!(world.run.holds());
    let mut pings: Vec<Vec<u8>> = Vec::new();
    while pings.len() < 2 {
        world.pass_unserved(1);
        let mut frame = world.run.net.read(world.peers[0].id);
        let mut input = &mut frame[..];
        let decoder = &mut world.peers[0].decoder;
        if let Some(event) = decoder.next_event(&Limits::default(), &mut input).unwrap() {
            let Event::Ping(payload) = event else {
                panic!("{event:?}")
            };
            pings.push(payload.to_vec());
        }
    }
    let mut answered = Vec::new();
    for ping in pings {
        let mut pong = Vec::new();
        encode_frame(&mut pong, Opcode::Pong, true, None, &ping);
        world.run.net.write(world.peers[0].id, &pong);
        world.pass_unserved(10);
        answered.push(world.run.totals().heartbeats_answered);
    }
    assert_eq!(answered, [0, 1], "the first came after the second ping");
    let account = world.run.shared.account(0);
    assert_eq!(account.failures[&Failure::HeartbeatUnanswered], 1);
    assert_eq!(account.pong_times.len(), 1);
}

/// What a server drops for clients that stall is their loss; what it drops once they read again is a gap.
#[test]
fn who_has_stalled_has_gaps_again_once_it_reads() {
    let mut world = world(|config| {
        config.targets = vec![Target::parse("ws://127.0.0.1:8000/raw?channel=x").unwrap()];
        config.incidents = vec![Incident::stall("100%@1s..3s").unwrap()];
        config.duration = Some(Duration::from_mins(1));
        let endpoint = Endpoint::parse("http://127.0.0.1:8000/publish").unwrap();
        let mut publish = Publish::new(endpoint, Duration::from_secs(1));
        publish.body = PublishBody::Plain;
        config.publish = Some(publish);
    });
    world.pass(100);
    assert!(world.run.holds());
    world.run.note_connected();
    world.publish();
    world.pass(1400);
    assert_eq!(world.run.totals().unwell.stalling, 10);
    world.publish_to_nobody();
    world.pass(2500);
    assert_eq!(world.run.totals().unwell.resumed, 10);
    world.publish();
    world.pass(100);
    assert_eq!(world.run.totals().gaps, 0);
    world.publish_to_nobody();
    world.publish();
    world.pass(100);
    assert_eq!(world.run.totals().gaps, 10);
    world.close();
}
