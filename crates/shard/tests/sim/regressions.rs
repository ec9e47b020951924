//! What the simulation has found, distilled.

use crate::ending::break_off;
use crate::node::Node;
use crate::peer::{Errand, Manners};
use crate::plan::Plan;
use crate::secured::Secured;
use crate::world::World;
use myriad_reactor::sim::{Chance, Faults, Prng};
use myriad_shard::{
    ChannelOptions, CloseReason, Content, Namespaces, Payload, PublishOptions, PublishRefused,
    Right, Transports,
};
use std::sync::Arc;
use std::time::Duration;

/// A world in which one kilobyte may be queued for a connection.
fn narrow(faults: Faults) -> World {
    let mut plan = Plan::plain();
    plan.settings.outbound_bytes_max = 1024;
    plan.faults = faults;
    World::new(plan, Prng::new(1), false)
}

/// A subscriber of channel 1 that does nothing wrong.
fn subscriber(world: &mut World) {
    world.connect_for(Errand::Stream, &[1]);
    let peer = world.peers.last_mut().expect("just connected");
    peer.manners = Manners::GOOD;
    world.settle();
    assert_eq!(world.peers.last().expect("still there").status, Some(101));
}

/// Everybody who was upgraded has seen the 101 and been told why it ended, or `check_end` would not have let it pass.
fn assert_slow_consumer_was_told(world: &mut World) {
    world.settle();
    assert_eq!(
        world.closes_by_reason()[CloseReason::SlowConsumer as usize],
        1
    );
    assert_eq!(world.former_peers.upgrades, 1);
    world.leave();
}

/// The close frame of a connection that was over its budget before its 101 had left took the place of the 101.
#[test]
fn a_close_frame_does_not_overtake_the_upgrade() {
    let mut world = narrow(Faults::NONE);
    world.connect_for(Errand::Stream, &[1]);
    let peer = world.peers.last_mut().expect("just connected");
    let mut prng = Prng::new(1);
    (0..40).for_each(|_| peer.ping(&mut prng));
    assert_slow_consumer_was_told(&mut world);
}

/// The second publication of a turn that was too much reset the connection, and the close frame with it.
#[test]
fn two_publications_too_many_are_one_close() {
    let mut world = narrow(Faults {
        kernel_bytes: (300, 300),
        ..Faults::NONE
    });
    subscriber(&mut world);
    // The first is sent in part, the others do not fit behind it.
    (0..4).for_each(|_| world.publish_to(1, 800));
    assert_slow_consumer_was_told(&mut world);
}

/// A publisher waited for ever when its publication reached the inbox of a shard that ended, and so did its permit.
#[test]
fn a_shard_that_ends_answers_publishers_it_has_not_handled() {
    let mut world = narrow(Faults::NONE);
    (0..3).for_each(|_| world.publish_to(1, 100));
    world.publish_to(2, 100);
    assert!(world.mesh.publication_bytes() > 0);
    world.seats.clear();
    let answers = world.ledger.replies.take();
    let mut ids: Vec<u64> = answers.iter().map(|(id, _)| id.0).collect();
    ids.sort_unstable();
    assert_eq!(ids, [0, 1, 2, 3]);
    assert!(answers.iter().all(|(_, position)| position.is_none()));
    assert_eq!(world.mesh.publication_bytes(), 0, "permits have gone back");
    // Too late for an answer: refused at once.
    let late = world.mesh.publish("a", Payload::Text("".into()), None);
    assert_eq!(late, Err(PublishRefused::Draining));
}

/// The unsent tail of a publication that was taken in part did not fit because the next one was queued, and the
/// connection was reset, although the tail alone fits.
#[test]
fn the_unsent_tail_of_a_publication_makes_room_for_itself() {
    let mut world = narrow(Faults {
        kernel_bytes: (300, 300),
        ..Faults::NONE
    });
    subscriber(&mut world);
    (0..2).for_each(|_| world.publish_to(1, 800));
    assert_slow_consumer_was_told(&mut world);
}

/// Of a request that one wait of the reactor brought in pieces, the control plane got the first.
#[test]
fn a_request_in_pieces_is_handed_over_whole() {
    let mut plan = Plan::plain();
    plan.faults.split_receive = Chance(1000);
    let mut world = World::new(plan, Prng::new(1), false);
    for _ in 0..20 {
        world.connect_for(Errand::Api, &[]);
        let peer = world.peers.last_mut().expect("just connected");
        peer.write_all(&world.net, 0);
        // With the faults, which a settled world does not have.
        (0..3).for_each(|_| {
            world.turn(0);
        });
    }
    world.settle();
    assert_eq!(world.sum(|metrics| &metrics.handed_over), 20);
    world.leave();
}

/// A drain that had more to close than one turn does slept before it went on, and outlasted its window.
#[test]
fn a_drain_with_much_to_close_keeps_its_time() {
    let mut plan = Plan::plain();
    plan.settings.slice_max = 1;
    plan.peers_max = 200;
    plan.sockets_max = 200;
    let mut world = World::new(plan, Prng::new(1), false);
    (0..200).for_each(|_| world.connect_for(Errand::Stream, &[1]));
    world.settle();
    world.drain(Duration::from_millis(100));
}

/// The simulation gave a node that had ended no time. A channel that had paused when its last member left, and its record at its
/// home, looked like leaks.
#[test]
fn a_channel_that_pauses_outlasts_a_drain() {
    let mut plan = Plan::plain();
    plan.settings.outbound_bytes_max = 65_536;
    plan.faults.kernel_bytes = (300, 300);
    let mut world = World::new(plan, Prng::new(1), false);
    subscriber(&mut world);
    let peer = world.peers.last_mut().expect("just connected");
    peer.is_stalled = true;
    world.net.stall(peer.id);
    (0..60).for_each(|_| world.publish_to(1, 800));
    world.settle();
    assert!(world.mesh.publication_bytes() > 0, "the channel pauses");
    let peer = world.peers.last_mut().expect("still there");
    break_off(peer, |peer| world.net.reset(peer.id));
    world.settle();
    world.mesh.drain(Duration::ZERO);
    world.scene.is_draining = true;
    world.settle();
    assert!(world.seats.iter().all(|seat| seat.is_finished));
    assert!(world.mesh.publication_bytes() > 0, "it still does");
    world.check_drained();
}

/// A shard that drained ended with its last record of a connection. The stage below still had the last bytes of clients with TLS, who
/// saw no end.
#[test]
fn a_drain_waits_for_the_last_bytes_of_clients_with_tls() {
    let mut plan = Plan::plain();
    plan.secured = Some(Secured::EVERYBODY);
    plan.faults.kernel_bytes = (300, 300);
    let mut world = World::new(plan, Prng::new(1), false);
    subscriber(&mut world);
    let peer = world.peers.last_mut().expect("just connected");
    peer.is_stalled = true;
    world.net.stall(peer.id);
    world.publish_to(1, 800);
    world.settle();
    let peer = world.peers.last_mut().expect("still there");
    peer.fin(&world.net);
    world.settle();
    assert_eq!(world.seats[0].shard.connection_count(), 0);
    world.mesh.drain(Duration::ZERO);
    world.scene.is_draining = true;
    world.settle();
    assert!(!world.seats[0].is_finished, "the end has not left");
    let peer = world.peers.last_mut().expect("still there");
    peer.is_stalled = false;
    world.net.resume(peer.id);
    world.settle();
    assert!(world.seats[0].is_finished);
    world.check_drained();
}

/// The time for a request ran while the client's handshake waited for a signature. After a restart of a large server with an RSA key all
/// clients would have been late, and come again.
#[test]
fn who_waits_for_a_signature_is_not_late() {
    let mut plan = Plan::plain();
    plan.secured = Some(Secured::SLOWLY);
    let mut world = World::new(plan, Prng::new(1), false);
    let patience = world.scene.plan.settings.handshake_timeout;
    world.net.hold_signatures(true);
    world.connect_for(Errand::Stream, &[1]);
    world.peers.last_mut().expect("just connected").manners = Manners::GOOD;
    for _ in 0..5 {
        world.walk(patience);
    }
    assert_eq!(world.seats[0].shard.connection_count(), 1);
    world.net.hold_signatures(false);
    world.settle();
    assert_eq!(world.peers.last().expect("still there").status, Some(101));
    world.leave();
}

/// A simulated client that had ended its side in the middle of its handshake kept its FIN back, also when the server had shut it out. The
/// server lingered for it, and where such clients filled a table, newcomers had no end when the run ended.
#[test]
fn a_client_that_is_shut_out_of_its_handshake_ends_its_side() {
    let mut plan = Plan::plain();
    plan.secured = Some(Secured::EVERYBODY);
    // Everybody is late in the turn in which it is accepted.
    plan.settings.handshake_timeout = Duration::ZERO;
    let mut world = World::new(plan, Prng::new(1), false);
    for fins_first in [true, false].repeat(8) {
        world.connect_for(Errand::Stream, &[1]);
        let peer = world.peers.last_mut().expect("just connected");
        peer.manners = Manners::GOOD;
        peer.write_all(&world.net, 0);
        if fins_first {
            peer.fin(&world.net);
        }
    }
    let moment = Duration::from_millis(200);
    assert!(moment < world.scene.plan.settings.linger_timeout);
    world.walk(moment);
    let count = world.seats[0].shard.connection_count();
    assert_eq!(count, world.peers.len(), "nobody lingers");
    let reached = world.net.take_reached();
    assert!(reached.contains_key("tls: a client is shut out before its handshake has ended"));
    world.leave();
}

/// A node that was stopped between its look at the sockets and its look at the clock judged clients whose requests had come meanwhile:
/// they were answered 408.
#[test]
fn a_clock_that_jumps_makes_nobody_late_whose_request_has_come() {
    let mut world = World::new(Plan::plain(), Prng::new(1), false);
    let jump = world.scene.plan.settings.handshake_timeout * 6;
    world.connect_for(Errand::Stream, &[1]);
    // Accepted, and nothing has come.
    world.turn_all();
    let now = world.now();
    for seat in &mut world.seats {
        seat.shard.wait(now).expect("the simulated reactor works");
    }
    let peer = world.peers.last_mut().expect("just connected");
    peer.manners = Manners::GOOD;
    peer.write_all(&world.net, now.0);
    world.scene.now += u64::try_from(jump.as_nanos()).expect("a minute");
    (0..world.seats.len()).for_each(|index| world.turn_now(index));
    world.settle();
    let peer = world.peers.last().expect("still there");
    assert_eq!(peer.status, Some(101));
    world.leave();
}

/// The publications that a client had missed were compared with its filter in one turn. The bounds allow 300 of 256 us each.
#[test]
fn what_a_client_missed_is_compared_with_its_filter_a_slice_at_a_time() {
    const KEPT: u64 = 40;
    let mut world = keeping_world();
    let publish = |world: &World, number: u64| {
        let mut content = Content::new(Payload::Json(number.to_string().into()));
        content.tags = [("odd".into(), (number % 2).to_string().into())].into();
        let options = PublishOptions::default();
        let published = world.mesh.publish_content("a", content, options, None);
        published.expect("there is room");
    };
    (1..=KEPT).for_each(|number| publish(&world, number));
    world.settle();
    let client = world.net.connect();
    world.connected += 1;
    let body = concat!(
        r#"{"id":1,"connect":{}}"#,
        "\n",
        r#"{"id":2,"subscribe":{"channel":"a","recover":true,"tf":{"key":"odd","cmp":"eq","val":"1"}}}"#
    );
    let length = body.len();
    let head = format!(
        "POST /connection/http_stream HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n"
    );
    world.net.write(client, (head + body).as_bytes());
    let (mut compared, mut told) = (0, String::new());
    while !told.contains("\"subscribe\"") {
        assert!(world.turn_all(), "{told}");
        let now = world.sum(|metrics| &metrics.filter_comparisons);
        // A slice is one in this plan. A home that is asked once more may answer in the same turn, and its answer has a part of its own.
        assert!(now <= compared + 2, "{now} behind {compared}");
        // Deliveries skip a subscription that waits. These come while 39 are still to be compared, and while one is.
        if now > compared && (now == 1 || now == KEPT - 1) {
            let number = KEPT + if now == 1 { 1 } else { 3 };
            (number..number + 2).for_each(|number| publish(&world, number));
        }
        compared = now;
        told.push_str(&String::from_utf8_lossy(&world.net.read(client)));
    }
    assert!(told.contains("\"recovered\":true"), "{told}");
    assert_eq!(compared, KEPT + 4);
    let offsets = told.split("\"offset\":").skip(1);
    let offsets = offsets.map(|rest| {
        rest.split_once(['}', ','])
            .map_or(rest, |(offset, _)| offset)
    });
    let odd: Vec<String> = (1..=KEPT + 4).step_by(2).map(|n| n.to_string()).collect();
    assert!(offsets.eq(odd), "{told}");
    // From here on it gets what is delivered.
    publish(&world, KEPT + 5);
    publish(&world, KEPT + 6);
    world.settle();
    let pushes = String::from_utf8_lossy(&world.net.read(client)).into_owned();
    assert_eq!(pushes.matches("\"pub\"").count(), 1, "{pushes}");
    assert!(pushes.contains("\"offset\":45"), "{pushes}");
    world.net.close(client);
    world.settle();
    // Their publishers did not wait for answers.
    world.replies += KEPT + 6;
    // The history is forgotten.
    world.walk(Duration::from_secs(1_300));
    world.leave();
}

/// A world whose channels recover and may be filtered by tags, with slices of one.
fn keeping_world() -> World {
    let mut plan = Plan::plain();
    plan.settings.slice_max = 1;
    let options = ChannelOptions {
        history_size: 100,
        history_ttl: Duration::from_secs(300),
        history_meta_ttl: Duration::from_secs(600),
        force_recovery: true,
        allow_tags_filter: true,
        subscribe: Right::ALL,
        ..ChannelOptions::default()
    };
    plan.settings.namespaces = Arc::new(Namespaces::new(options, []));
    plan.settings.transports = Transports::ALL;
    World::new(plan, Prng::new(1), false)
}
