//! The hub against a naive model: random operations, the sweep after each, and what every client must have seen.

use super::Hub;
use crate::{
    Batch, ChannelOptions, Chunk, ClientIds, ClientInfo, CloseReason, Content, DefectScope,
    Delivery, Due, Encoding, Epoch, Lease, Namespaces, Now, Overflown, Payload, Phase, Pool,
    Position, PresenceChange, PresenceEvent, Publication, Reader, SlowConsumer, StreamEnd,
    StreamEndKind, Subscribed, SubscriptionFlags, SubscriptionId, Target, Ticket, Timing, ToldBy,
    Transport, Variant,
};
use myriad_wheel::Tick;
use myriad_wire::centrifuge::{Filter, FilterNode};
use myriad_wire::reads::Persistence;
use myriad_wire::streams::MediaType;
use proptest::prelude::*;
use std::collections::HashMap;
use std::io::IoSlice;
use std::sync::Arc;
use std::time::Duration;

const SECOND: u64 = 1_000_000_000;

fn timing(ping_s: u64, pong_s: u64, idle_s: u64) -> Timing {
    let s = Duration::from_secs;
    Timing::new(s(10), s(ping_s), s(pong_s), s(idle_s), s(5), s(10))
}

fn hub(timing: Timing) -> Hub {
    Hub::new(timing, 1000, Lease::new(Pool::new(1 << 20), 100), 7, Now(0))
}

fn at(offset: u64) -> Position {
    Position {
        epoch: Epoch::new(7),
        offset,
    }
}

fn publication(channel: &str, offset: u64) -> Delivery {
    Delivery::Publication(one(channel, offset))
}

fn one(channel: &str, offset: u64) -> Arc<Publication> {
    let payload = Payload::Binary(offset.to_be_bytes().into());
    Arc::new(Publication::new(
        channel.into(),
        at(offset),
        Arc::new(Content::new(payload)),
        Now(0),
        1,
        None,
    ))
}

/// A publication without an offset, behind this one.
fn publication_after(channel: &str, offset: u64) -> Delivery {
    let publication = Arc::into_inner(one(channel, 0)).expect("one owner");
    Delivery::Publication(Arc::new(publication.without_offset_after(offset)))
}

fn batch(channel: &str, offsets: &[u64]) -> Delivery {
    let publications = offsets.iter().map(|&offset| one(channel, offset));
    Delivery::Batch(Arc::new(Batch::new(publications.collect())))
}

/// A connection that is admitted and subscribed to `channel`, whose home has confirmed.
fn member(hub: &mut Hub, channel: &str) -> u32 {
    member_by(hub, Transport::Raw, channel)
}

fn member_by(hub: &mut Hub, transport: Transport, channel: &str) -> u32 {
    let index = hub.open(0, Now(0)).index;
    hub.connection_mut(index).set_transport(transport);
    if transport.has_sessions() {
        hub.open_session(index, None);
    }
    let subscribed = hub.subscribe(index, channel);
    hub.connection_mut(index).phase = Phase::Joining;
    if let Subscribed::Ask { name, serial } = subscribed {
        hub.handle_joined(&name, serial, at(0), &mut Vec::new());
    }
    hub.admit(index, Now(0));
    index
}

fn admit(hub: &mut Hub, index: u32) {
    hub.admit(index, Now(0));
    hub.connection_mut(index).set_transport(Transport::Raw);
}

fn deliver_slice(hub: &mut Hub, max: usize) -> (Vec<u32>, bool) {
    let mut targets = Vec::new();
    let slice = hub
        .poll_delivery(max, &mut targets, &mut Vec::new(), &mut Vec::new())
        .expect("a delivery");
    hub.end_batch(&targets);
    (
        targets
            .into_iter()
            .map(|target| target.connection)
            .collect(),
        slice.finished,
    )
}

#[test]
fn a_member_that_leaves_in_the_middle_is_skipped_and_nobody_else_is() {
    let mut hub = hub(timing(0, 1, 0));
    let members: Vec<u32> = (0..6).map(|_| member(&mut hub, "x")).collect();
    assert!(hub.deliver(publication("x", 1)));
    assert_eq!(deliver_slice(&mut hub, 2), (members[..2].to_vec(), false));
    for gone in [0, 3] {
        hub.release(members[gone], &mut Vec::new());
        hub.check();
    }
    let late = member(&mut hub, "x");
    assert_eq!(
        deliver_slice(&mut hub, 10),
        (vec![members[2], members[4], members[5]], true)
    );
    hub.check();
    assert!(hub.deliver(publication("x", 2)));
    let mut next = deliver_slice(&mut hub, 10).0;
    next.sort_unstable();
    let mut expected = vec![members[1], members[2], members[4], members[5], late];
    expected.sort_unstable();
    assert_eq!(next, expected);
}

/// A reader of the stream `x`, whose home is asked.
fn reader(hub: &mut Hub) -> (u32, SubscriptionId) {
    let index = hub.open(0, Now(0)).index;
    if let Subscribed::Ask { name, serial } = hub.subscribe(index, "x") {
        hub.handle_joined(&name, serial, at(0), &mut Vec::new());
    }
    let subscription = hub.find_subscription(index, "x");
    let subscription = subscription.expect("it has subscribed");
    hub.set_waiting(subscription);
    (index, subscription)
}

/// The home has answered: the reader's request is held.
fn hold_request(hub: &mut Hub, (index, subscription): (u32, SubscriptionId)) {
    hub.note_stream(subscription, &MediaType::json(), false, true);
    let reader = Reader {
        subscription,
        last: 0,
        cursor: None,
        variant: Variant::new(Persistence::KeepAlive, true),
        expires_at: Tick(u32::MAX),
        bearer: None,
    };
    hub.park(index, reader, Now(0));
}

/// The hub forgot the stream when its end had reached everybody, and the time-out of a poll that had come meanwhile, for the next
/// stream of that name, ended the shard.
#[test]
fn a_poll_that_is_held_while_the_end_of_an_earlier_stream_is_told_is_answered() {
    let mut hub = hub(timing(0, 1, 0));
    let [late, early] = [(); 2].map(|()| reader(&mut hub));
    hold_request(&mut hub, early);
    assert!(hub.deliver(stream_end("x", StreamEndKind::Deleted)));
    assert!(hub.known_stream("x").is_none(), "its home has to be asked");
    assert_eq!(deliver_slice(&mut hub, 1), (vec![], false));
    // What its home knows by now is another stream.
    hold_request(&mut hub, late);
    assert_eq!(deliver_slice(&mut hub, 10), (vec![], true));
    let told: Vec<u32> = hub
        .take_ended()
        .iter()
        .map(|ended| ended.connection)
        .collect();
    assert_eq!(told, [early.0]);
    assert!(hub.known_stream("x").is_some(), "its home was asked");
    let answer = hub.idle_answer(late.0, false, false, Now(0));
    assert!(answer.starts_with(b"HTTP/1.1 204 "));
    hub.check();
}

fn stream_end(channel: &str, kind: StreamEndKind) -> Delivery {
    Delivery::StreamEnd(Arc::new(StreamEnd {
        channel: channel.into(),
        kind,
        tail: at(0),
        ended_at: Tick(0),
    }))
}

/// A client that connects keeps what is delivered to it. The end of a stream has no frame that could be kept, and asking for one
/// ended the process.
#[test]
fn the_end_of_a_stream_passes_every_member_that_reads_none() {
    for kind in [StreamEndKind::Closed, StreamEndKind::Deleted] {
        let mut hub = hub(timing(0, 1, 0));
        let held = reader(&mut hub);
        hold_request(&mut hub, held);
        let raw = member(&mut hub, "x");
        let [connecting, connected] =
            [(); 2].map(|()| member_by(&mut hub, Transport::CentrifugeProtobuf, "x"));
        let waits = hub.find_subscription(connecting, "x").expect("subscribed");
        hub.hold(connecting, waits);
        assert!(hub.deliver(stream_end("x", kind)));
        assert_eq!(deliver_slice(&mut hub, 10), (vec![], true));
        for index in [raw, connecting, connected] {
            assert!(!hub.connection(index).has_outbound());
        }
        let told = hub.take_ended();
        assert_eq!(told.len(), 1);
        assert_eq!((told[0].connection, told[0].kind), (held.0, kind));
        hub.check();
        // What follows is kept, and comes behind the answer to the connect command.
        assert!(hub.deliver(publication("x", 1)));
        deliver_slice(&mut hub, 10);
        assert!(hub.held_bytes() > 0);
        hub.release_held(connecting);
        assert!(hub.connection(connecting).has_outbound());
        hub.check();
    }
}

/// A client with deltas that had recovered got a publication without an offset from before what it recovered. The next delta had
/// another base.
#[test]
fn a_publication_without_an_offset_goes_to_who_does_not_know_a_later_one() {
    let mut hub = hub(timing(0, 1, 0));
    let first = member(&mut hub, "x");
    assert!(hub.deliver(publication("x", 4)));
    assert!(hub.deliver(publication_after("x", 4)));
    // It has joined behind 4, and so behind the one without an offset: it may get that all the same.
    let second = member(&mut hub, "x");
    assert!(hub.deliver(publication("x", 5)));
    assert!(hub.deliver(publication_after("x", 5)));
    let third = member(&mut hub, "x");
    hub.check();
    let (both, all) = (vec![first, second], vec![first, second, third]);
    for expected in [vec![first], both.clone(), both, all] {
        assert_eq!(deliver_slice(&mut hub, 10), (expected, true));
        hub.check();
    }
}

#[test]
fn of_a_batch_nobody_gets_what_the_homes_answer_counted() {
    let mut hub = hub(timing(0, 1, 0));
    let index = hub.open(0, Now(0)).index;
    let Subscribed::Ask { name, serial } = hub.subscribe(index, "x") else {
        panic!("asks")
    };
    hub.connection_mut(index).phase = Phase::Joining;
    assert!(!hub.deliver(batch("x", &[1])), "not joined yet");
    hub.handle_joined(&name, serial, at(2), &mut Vec::new());
    admit(&mut hub, index);
    assert!(!hub.deliver(batch("x", &[1, 2])), "counted by the answer");
    let late = member(&mut hub, "x");
    // The second member has had 3, as if it had recovered.
    let subscription = hub.find_subscription(late, "x").expect("subscribed");
    assert!(hub.deliver(batch("x", &[2, 0, 3, 0])));
    hub.subscriptions[subscription.0].set_last(3);
    hub.check();
    assert_eq!(deliver_slice(&mut hub, 10), (vec![], true), "both in part");
    assert_eq!(queued(&hub, index), [0, 3, 0]);
    assert_eq!(queued(&hub, late), [0], "not what came before 3");
    assert!(hub.deliver(batch("x", &[4, 5])));
    let third = member(&mut hub, "x");
    let (whole, _) = deliver_slice(&mut hub, 10);
    assert!(
        whole.is_empty(),
        "two wait for what is queued, one has had all"
    );
    assert_eq!(queued(&hub, index), [0, 3, 0, 4, 5]);
    assert!(queued(&hub, third).is_empty());
    assert!(!hub.is_delivering());
}

/// The offsets in the frames that wait for a `raw` client.
fn queued(hub: &Hub, index: u32) -> Vec<u64> {
    let mut slices = Vec::new();
    if let Some(outbound) = hub.outbound(index) {
        outbound.slices(&mut slices, usize::MAX);
    }
    let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.to_vec()).collect();
    // Each frame is a head of two bytes and an offset.
    let frames = bytes.chunks_exact(10);
    frames
        .map(|frame| u64::from_be_bytes(frame[2..].try_into().expect("eight bytes")))
        .collect()
}

/// The frame of a delivery that has one.
fn frame_of(hub: &mut Hub, delivery: &Delivery, encoding: Encoding) -> Arc<[u8]> {
    let ToldBy::Frame(framed) = delivery.told() else {
        panic!("{delivery:?} has no frame");
    };
    hub.frame_for(framed, encoding, 1)
}

/// A hub whose channel `x` has this policy, and a budget of 300 bytes a connection: four publications.
fn hub_with_policy(slow_consumer: SlowConsumer) -> Hub {
    let options = ChannelOptions {
        slow_consumer,
        ..ChannelOptions::default()
    };
    let pool = Lease::new(Pool::new(1 << 20), 100);
    let hub = Hub::new(timing(0, 1, 0), 300, pool, 7, Now(0));
    hub.with_namespaces(Arc::new(Namespaces::new(options, [])))
}

/// Publishes seven times to one member who takes nothing after the first. Returns what waits for it, and what overflowed.
fn fall_behind(hub: &mut Hub, index: u32) -> (Vec<u64>, Vec<Overflown>) {
    fall_behind_from(hub, index, 0)
}

fn fall_behind_from(hub: &mut Hub, index: u32, last: u64) -> (Vec<u64>, Vec<Overflown>) {
    let mut overflown = Vec::new();
    for offset in last + 1..=last + 7 {
        let mut targets = Vec::new();
        assert!(hub.deliver(publication("x", offset)));
        end_pauses(hub);
        hub.poll_delivery(10, &mut targets, &mut overflown, &mut Vec::new());
        for target in &targets {
            let frame = frame_of(hub, &publication("x", offset), target.encoding);
            let chunk = hub.publication_chunk(frame, target.subscription, 1);
            let tail = hub.enqueue_unsent_tail(index, chunk, 3);
            tail.expect("the first one fits");
            hub.connection_mut(index).set_awaits_writable(true);
        }
        hub.end_batch(&targets);
        hub.check();
    }
    let outbound = hub.outbound(index).expect("something waits");
    let mut slices = Vec::new();
    outbound.slices(&mut slices, usize::MAX);
    let offsets = slices
        .iter()
        .map(|slice| u64::from(*slice.last().expect("not empty")));
    (offsets.collect(), overflown)
}

#[test]
fn a_slow_consumer_gets_what_its_channel_promises() {
    let queue_of = |policy| {
        let mut hub = hub_with_policy(policy);
        let index = member(&mut hub, "x");
        let (offsets, overflown) = fall_behind(&mut hub, index);
        (offsets, overflown, hub.slow_consumer_stats().dropped, index)
    };
    let (offsets, overflown, dropped, connection) = queue_of(SlowConsumer::Disconnect);
    let close = Overflown::Close {
        connection,
        reason: CloseReason::SlowConsumer,
    };
    assert_eq!((offsets, dropped), (vec![1, 2, 3, 4], 0));
    assert_eq!(overflown[0], close);
    let (offsets, overflown, dropped, _) = queue_of(SlowConsumer::DropOldest);
    // Of the first one the client has a part.
    assert_eq!((offsets, dropped), (vec![1, 5, 6, 7], 3));
    assert_eq!(overflown, []);
    let (offsets, overflown, dropped, _) = queue_of(SlowConsumer::KeepLatest);
    assert_eq!((offsets, dropped), (vec![1, 7], 5));
    assert_eq!(overflown, []);
    // A `raw` client cannot recover.
    let (offsets, overflown, ..) = queue_of(SlowConsumer::GapThenRecover);
    assert_eq!((offsets, &overflown[0]), (vec![1, 2, 3, 4], &close));
}

#[test]
fn publications_that_may_go_make_room_for_what_may_not() {
    let reply = || Chunk::Owned(vec![b'r'; 100].into());
    let enqueue = |policy| {
        let mut hub = hub_with_policy(policy);
        let index = member(&mut hub, "x");
        fall_behind(&mut hub, index);
        let before = hub.slow_consumer_stats().dropped;
        let queued = hub.enqueue(index, reply());
        hub.check();
        (queued, hub.slow_consumer_stats().dropped - before)
    };
    let refused = Err(crate::Overflow::Connection);
    assert_eq!(enqueue(SlowConsumer::Disconnect), (refused, 0));
    // A reply costs 164 bytes, and each publication that goes 74.
    assert_eq!(enqueue(SlowConsumer::DropOldest), (Ok(()), 3));
    assert_eq!(enqueue(SlowConsumer::KeepLatest), (Ok(()), 1));
    // What a subscription that has ended left behind stays.
    let mut hub = hub_with_policy(SlowConsumer::DropOldest);
    let index = member(&mut hub, "x");
    fall_behind(&mut hub, index);
    hub.unsubscribe(index, "x", &mut Vec::new());
    assert_eq!(hub.enqueue(index, reply()), refused);
}

#[test]
fn the_unsent_tail_of_a_frame_finds_room_too() {
    let mut hub = hub_with_policy(SlowConsumer::DropOldest);
    let index = member(&mut hub, "x");
    let mut overflown = Vec::new();
    let mut targets = Vec::new();
    for offset in 1..=6 {
        assert!(hub.deliver(publication("x", offset)));
        end_pauses(&mut hub);
        hub.poll_delivery(10, &mut targets, &mut overflown, &mut Vec::new());
    }
    assert_eq!(targets.len(), 1, "the others are queued behind it");
    let frame = frame_of(&mut hub, &publication("x", 1), targets[0].encoding);
    let chunk = hub.publication_chunk(frame, targets[0].subscription, 1);
    assert_eq!(hub.enqueue_unsent_tail(index, chunk, 3), Ok(()));
    hub.end_batch(&targets);
    hub.check();
    assert_eq!(overflown, []);
    assert!(hub.slow_consumer_stats().dropped > 0);
}

#[test]
fn what_waits_of_an_ended_subscription_is_not_dropped_for_the_next_one() {
    let of = |policy| ChannelOptions {
        slow_consumer: policy,
        ..ChannelOptions::default()
    };
    let namespaces = Namespaces::new(
        of(SlowConsumer::Disconnect),
        [("lossy".into(), of(SlowConsumer::DropOldest))],
    );
    let mut hub = hub(timing(0, 1, 0)).with_namespaces(Arc::new(namespaces));
    hub.outbound_bytes_max = 1000;
    let index = member_by(&mut hub, Transport::CentrifugeProtobuf, "x");
    let before = hub.find_subscription(index, "x").expect("subscribed");
    let filler = Chunk::Owned(vec![0; 10].into());
    hub.enqueue(index, filler.clone()).expect("room");
    assert!(hub.deliver(publication("x", 1)));
    deliver_listed(&mut hub);
    hub.unsubscribe(index, "x", &mut Vec::new());
    hub.subscribe(index, "lossy:y");
    let after = hub.find_subscription(index, "lossy:y");
    assert_eq!(after, Some(before), "the index is used again");
    while hub.enqueue(index, filler.clone()).is_ok() {}
    assert_eq!(hub.slow_consumer_stats().dropped, 0);
    hub.check();
}

#[test]
fn clients_publish_later_while_much_waits() {
    let mut hub = hub(timing(0, 1, 0));
    hub.outbound_bytes_max = 1 << 20;
    let index = member(&mut hub, "x");
    for offset in 1..=1000 {
        assert!(!hub.refuses_publications("x"));
        hub.note_taken("x", 0);
        assert!(hub.deliver(publication("x", offset)));
        end_pauses(&mut hub);
    }
    assert!(hub.refuses_publications("x") && !hub.refuses_publications("nobody"));
    let (mut targets, mut overflown) = (Vec::new(), Vec::new());
    hub.poll_delivery(10, &mut targets, &mut overflown, &mut Vec::new());
    hub.end_batch(&targets);
    assert!(!hub.refuses_publications("x"), "some have left");
    while hub.is_delivering() {
        hub.poll_delivery(10, &mut targets, &mut overflown, &mut Vec::new());
        hub.drop_untouched_outbound(index);
        end_pauses(&mut hub);
    }
    // In one turn, when nothing has come back yet.
    end_pauses(&mut hub);
    for _ in 0..1000 {
        assert!(!hub.refuses_publications("x"));
        hub.note_taken("x", 10);
    }
    assert!(hub.refuses_publications("x"));
    end_pauses(&mut hub);
    hub.note_taken("x", 1 << 20);
    hub.note_taken("nobody", 1 << 20);
    assert!(hub.refuses_publications("x"), "by bytes");
    assert!(!hub.refuses_publications("nobody"), "nobody waits for it");
    end_pauses(&mut hub);
    assert!(!hub.refuses_publications("x"));
    hub.end_batch(&targets);
    hub.check();
}

/// A turn at this tick comes to its deliveries.
fn begin_deliveries_at(hub: &mut Hub, tick: u32) {
    hub.begin_turn(Tick(tick));
    hub.begin_deliveries();
}

/// Time passes: no channel has to wait for its members any longer.
fn end_pauses(hub: &mut Hub) {
    begin_deliveries_at(hub, hub.turn_tick.0 + 16);
}

/// Delivers what is listed; everything beyond the first frame of a batch is queued. Answers how many publications that was.
fn deliver_listed(hub: &mut Hub) -> (usize, Vec<Overflown>) {
    let (mut count, mut overflown) = (0, Vec::new());
    while hub.is_delivering() {
        let mut targets = Vec::new();
        let slice = hub.poll_delivery(10, &mut targets, &mut overflown, &mut Vec::new());
        for target in &targets {
            let chunk = Chunk::Owned(vec![0; 10].into());
            hub.enqueue(target.connection, chunk).expect("room");
        }
        hub.end_batch(&targets);
        hub.check();
        count += slice.map_or(0, |slice| slice.delivery.publications().len());
    }
    (count, overflown)
}

#[test]
fn a_channel_that_outruns_most_of_its_members_waits_for_them() {
    let mut hub = hub(timing(0, 1, 0));
    hub.outbound_bytes_max = 4000;
    let members: Vec<u32> = (0..3).map(|_| member(&mut hub, "x")).collect();
    for offset in 1..=100 {
        assert!(hub.deliver(publication("x", offset)));
    }
    // Until more than 2,000 of 4,000 bytes wait for each, and until 250 bytes have come on top.
    let (before, overflown) = deliver_listed(&mut hub);
    assert!(before < 60 && overflown.is_empty(), "{before}");
    // Each pause is twice as long, up to sixteen ticks.
    let mut pauses = Vec::new();
    for tick in 1..=22 {
        let due = hub.next_deadline();
        begin_deliveries_at(&mut hub, tick);
        let (count, overflown) = deliver_listed(&mut hub);
        assert_eq!(overflown, []);
        if count > 0 {
            assert_eq!(due, Some(Tick(tick)));
            pauses.push(tick);
            assert!(count < 10);
        }
    }
    assert_eq!(pauses, [1, 3, 7, 15]);
    // Too much waits: nobody is waited for.
    let mut last = 100;
    while !hub.channels[0].ends_pauses(4000) {
        assert!(!hub.is_delivering());
        last += 1;
        assert!(hub.deliver(publication("x", last)));
    }
    assert!(hub.is_delivering() && hub.paused.is_empty());
    hub.check();
    // Most keep up again, and one does not: only that one is slow.
    for &index in &members[1..] {
        hub.drop_untouched_outbound(index);
    }
    begin_deliveries_at(&mut hub, 23);
    let (count, overflown) = deliver_listed(&mut hub);
    assert!(count > 20, "{count}");
    let slow = Overflown::Close {
        connection: members[0],
        reason: CloseReason::SlowConsumer,
    };
    assert!(!overflown.is_empty() && overflown.iter().all(|overflown| *overflown == slow));
}

#[test]
fn one_member_who_is_behind_is_one_however_much_a_batch_holds_for_it() {
    let mut hub = hub(timing(0, 1, 0));
    hub.outbound_bytes_max = 40_000;
    let sender = member_by(&mut hub, Transport::CentrifugeProtobuf, "x");
    let others = [member(&mut hub, "x"), member(&mut hub, "x")];
    let filler = Chunk::Owned(vec![0; 25_000].into());
    hub.enqueue(sender, filler).expect("room");
    // Of each batch the sender gets all but one, one by one.
    let ticket = Ticket {
        mark: 0,
        shard: hub.shard,
        connection: hub.key_of(sender).expect("live"),
        command: 1,
    };
    for offset in 1..=80 {
        let its_own = (offset % 2 == 0).then_some(ticket);
        let publication = Arc::into_inner(one("x", offset)).expect("just made");
        let publication = Arc::new(publication.without_sender(its_own));
        assert!(hub.deliver(Delivery::Publication(publication)));
    }
    let (count, overflown) = deliver_listed(&mut hub);
    assert_eq!((count, overflown), (80, Vec::new()), "without a pause");
    assert!(hub.outbound_room(sender) < 15_000, "some were queued");
    assert!(
        others
            .iter()
            .all(|&other| hub.outbound_room(other) > 20_000)
    );
}

#[test]
fn a_join_does_not_end_the_pauses_of_publications() {
    let mut hub = hub(timing(0, 1, 0));
    hub.outbound_bytes_max = 40_000;
    let of_x = |_| member_by(&mut hub, Transport::CentrifugeProtobuf, "x");
    let members: Vec<u32> = (0..3).map(of_x).collect();
    let observer = hub.find_subscription(members[0], "x").expect("subscribed");
    hub.set_subscription_flags(observer, SubscriptionFlags::JOIN_LEAVE);
    for &index in &members {
        let filler = Chunk::Owned(vec![0; 21_000].into());
        hub.enqueue(index, filler).expect("room");
    }
    for offset in 1..=70 {
        assert!(hub.deliver(publication("x", offset)));
        assert!(hub.deliver(join(&hub, members[1])));
    }
    let mut pauses = Vec::new();
    for tick in 1..=8 {
        let (count, overflown) = deliver_listed(&mut hub);
        assert_eq!(overflown, []);
        if count > 0 {
            pauses.push(tick);
        }
        begin_deliveries_at(&mut hub, tick);
    }
    assert_eq!(pauses, [1, 2, 4, 8], "each pause is twice as long");
}

#[test]
fn publications_that_wait_become_one_batch() {
    let mut hub = hub(timing(0, 1, 0));
    hub.outbound_bytes_max = 1 << 20;
    let index = member(&mut hub, "x");
    let observer = hub.find_subscription(index, "x").expect("subscribed");
    hub.set_subscription_flags(observer, SubscriptionFlags::JOIN_LEAVE);
    for offset in 1..=300 {
        assert!(hub.deliver(publication("x", offset)));
        if offset == 270 {
            assert!(hub.deliver(join(&hub, index)));
        }
    }
    let mut sizes = Vec::new();
    while hub.is_delivering() {
        let mut targets = Vec::new();
        let slice = hub.poll_delivery(10, &mut targets, &mut Vec::new(), &mut Vec::new());
        let delivery = slice.expect("one").delivery;
        sizes.push(delivery.publications().len());
        if matches!(delivery, Delivery::Batch(_)) {
            let frame = frame_of(&mut hub, &delivery, targets[0].encoding);
            let alone = delivery.publications().iter().map(|one| {
                let one = Delivery::Publication(Arc::clone(one));
                frame_of(&mut hub, &one, targets[0].encoding).to_vec()
            });
            assert_eq!(frame.to_vec(), alone.collect::<Vec<_>>().concat());
        }
        hub.end_batch(&targets);
        hub.check();
    }
    // The join is in its place.
    assert_eq!(sizes, [256, 14, 0, 30]);
}

#[test]
fn after_a_gap_a_subscriber_gets_nothing_more() {
    let mut hub = hub_with_policy(SlowConsumer::GapThenRecover);
    hub.outbound_bytes_max = 2000;
    let index = member_by(&mut hub, Transport::CentrifugeProtobuf, "x");
    let mut gaps = Vec::new();
    for round in 0..4 {
        let (_, overflown) = fall_behind_from(&mut hub, index, 7 * round);
        gaps.extend(overflown);
    }
    let gap = Overflown::Gap {
        connection: index,
        channel: "x".into(),
    };
    assert_eq!(gaps, [gap], "once");
    let stats = hub.slow_consumer_stats();
    assert_eq!(stats.gaps, 1);
    assert!(stats.dropped > 0 && hub.outbound_room(index) >= 1024);
    // What is left is what came first.
    let (offsets, _) = fall_behind_from(&mut hub, index, 28);
    assert!(offsets.len() > 3 && offsets.iter().copied().eq(1..=offsets.len() as u64));
}

#[test]
fn a_loss_ends_every_subscription_behind_what_came_before() {
    let mut hub = hub(timing(0, 1, 0));
    let members: Vec<u32> = (0..3).map(|_| member(&mut hub, "x")).collect();
    let other = member(&mut hub, "y");
    assert!(hub.deliver(publication("x", 1)));
    assert!(hub.deliver(Delivery::Lost("x".into())));
    assert!(!hub.deliver(Delivery::Lost("z".into())), "nobody is there");
    let (mut targets, mut overflown) = (Vec::new(), Vec::new());
    let mut emptied = Vec::new();
    while hub
        .poll_delivery(100, &mut targets, &mut overflown, &mut emptied)
        .is_some()
    {}
    assert_eq!(targets.len(), members.len());
    hub.end_batch(&targets);
    let lost = members.iter().map(|&connection| Overflown::Lost {
        connection,
        channel: "x".into(),
    });
    assert_eq!(overflown, lost.collect::<Vec<_>>());
    for connection in members {
        assert!(hub.unsubscribe(connection, "x", &mut emptied));
    }
    assert_eq!(emptied, ["x".into()]);
    assert!(hub.find_subscription(other, "y").is_some());
    hub.check();
}

/// A channel that somebody had read as a stream was kept without members behind its loss, as one that gets publications. But its home
/// had let the shard go: whoever subscribed then heard nothing.
#[test]
fn a_channel_that_has_lost_something_is_joined_anew_though_it_was_read_as_a_stream() {
    for has_member in [true, false] {
        let mut hub = hub(timing(0, 1, 0));
        let reader = member(&mut hub, "x");
        let subscription = hub.find_subscription(reader, "x").expect("subscribed");
        hub.note_stream(subscription, &MediaType::json(), false, true);
        let mut emptied = Vec::new();
        if !has_member {
            hub.unsubscribe(reader, "x", &mut emptied);
            assert!(emptied.is_empty(), "it is kept");
        }
        assert_eq!(hub.deliver(Delivery::Lost("x".into())), has_member);
        if has_member {
            let (mut targets, mut overflown) = (Vec::new(), Vec::new());
            hub.poll_delivery(100, &mut targets, &mut overflown, &mut emptied);
            assert_eq!(overflown.len(), 1);
            hub.unsubscribe(reader, "x", &mut emptied);
            assert_eq!(emptied, ["x".into()]);
        }
        hub.check();
        let next = hub.open(0, Now(0)).index;
        assert!(matches!(hub.subscribe(next, "x"), Subscribed::Ask { .. }));
        hub.check();
    }
}

/// Somebody joins `x`.
fn join(hub: &Hub, index: u32) -> Delivery {
    join_of(hub, "x", index)
}

fn join_of(hub: &Hub, channel: &str, index: u32) -> Delivery {
    let event = PresenceEvent {
        channel: channel.into(),
        change: PresenceChange::Joined,
        info: Arc::new(ClientInfo {
            user: "u".into(),
            client: ClientIds::new(7).id_of(0, hub.key_of(index).expect("live")),
            connection_info: None,
            channel_info: None,
        }),
    };
    Delivery::Presence(Arc::new(event.into()))
}

#[test]
fn a_join_visits_who_asked_for_joins_and_nobody_else() {
    let mut hub = hub(timing(0, 1, 0));
    let members: Vec<u32> = (0..100).map(|_| member(&mut hub, "x")).collect();
    assert!(!hub.deliver(join(&hub, 0)), "nobody wants to know");
    let observe = |hub: &mut Hub, index: u32| {
        let subscription = hub.find_subscription(index, "x").expect("subscribed");
        hub.set_subscription_flags(subscription, SubscriptionFlags::JOIN_LEAVE);
        hub.set_subscription_flags(subscription, hub.subscription_flags(subscription));
        hub.check();
    };
    for index in &members[10..15] {
        observe(&mut hub, *index);
    }
    assert!(hub.deliver(join(&hub, 0)));
    // The first slice ends behind the second observer. One before the cursor and one after it leave; one comes.
    assert_eq!(
        deliver_slice(&mut hub, 2),
        (members[10..12].to_vec(), false)
    );
    for gone in [10, 13] {
        hub.release(members[gone], &mut Vec::new());
        hub.check();
    }
    observe(&mut hub, members[50]);
    let (rest, finished) = deliver_slice(&mut hub, 100);
    assert_eq!(
        (rest, finished),
        (vec![members[12], members[14], members[50]], true)
    );
    for gone in [11, 12, 14] {
        hub.release(members[gone], &mut Vec::new());
        hub.check();
    }
    assert!(hub.deliver(join(&hub, 0)));
    assert_eq!(deliver_slice(&mut hub, 100), (vec![members[50]], true));
    hub.release(members[50], &mut Vec::new());
    assert!(
        !hub.deliver(join(&hub, 0)),
        "nobody is left who wants to know"
    );
    assert_eq!(hub.dropped_announcements(), 0);
}

#[test]
fn who_comes_back_while_a_join_waits_is_told_of_the_leave_behind_it() {
    let mut hub = hub(timing(0, 1, 0));
    member(&mut hub, "x");
    let observe = |hub: &mut Hub| {
        let index = member(hub, "x");
        let subscription = hub.find_subscription(index, "x").expect("subscribed");
        hub.set_subscription_flags(subscription, SubscriptionFlags::JOIN_LEAVE);
        index
    };
    let first = observe(&mut hub);
    assert!(hub.deliver(join(&hub, 0)));
    hub.release(first, &mut Vec::new());
    assert!(hub.deliver(join(&hub, 0)), "nobody observes, but one waits");
    let second = observe(&mut hub);
    for _ in 0..2 {
        assert_eq!(deliver_slice(&mut hub, 10), (vec![second], true));
        hub.check();
    }
}

#[test]
fn joins_that_wait_are_bounded_and_publications_are_not_dropped_for_them() {
    let mut hub = hub(timing(0, 1, 0));
    let index = member(&mut hub, "x");
    let subscription = hub.find_subscription(index, "x").expect("subscribed");
    hub.set_subscription_flags(subscription, SubscriptionFlags::JOIN_LEAVE);
    let taken = (0..3000).filter(|_| hub.deliver(join(&hub, 0))).count();
    assert_eq!((taken, hub.dropped_announcements()), (1024, 3000 - 1024));
    assert!(hub.deliver(publication("x", 1)));
    let mut delivered = 0;
    while hub.is_delivering() {
        delivered += deliver_slice(&mut hub, 10).0.len();
        hub.check();
    }
    assert_eq!(delivered, 1025);
    assert!(hub.deliver(join(&hub, 0)), "there is room again");

    // The more are told of each, the fewer wait.
    for _ in 0..999 {
        let index = member(&mut hub, "y");
        let subscription = hub.find_subscription(index, "y").expect("subscribed");
        hub.set_subscription_flags(subscription, SubscriptionFlags::JOIN_LEAVE);
    }
    let taken = (0..3000)
        .filter(|_| hub.deliver(join_of(&hub, "y", 0)))
        .count();
    assert_eq!(taken, 51);
}

#[test]
fn a_join_is_no_publication_that_could_be_dropped() {
    let mut hub = hub_with_policy(SlowConsumer::KeepLatest);
    let index = member_by(&mut hub, Transport::CentrifugeProtobuf, "x");
    let subscription = hub.find_subscription(index, "x").expect("subscribed");
    hub.set_subscription_flags(subscription, SubscriptionFlags::JOIN_LEAVE);
    assert!(hub.deliver(join(&hub, index)));
    assert!(hub.deliver(publication("x", 1)));
    for subscription in [Target::NO_SUBSCRIPTION, subscription.0] {
        let mut targets = Vec::new();
        end_pauses(&mut hub);
        hub.poll_delivery(10, &mut targets, &mut Vec::new(), &mut Vec::new());
        assert_eq!(targets[0].subscription, subscription);
        hub.end_batch(&targets);
    }
}

#[test]
fn each_ping_may_be_answered_once_and_late() {
    let mut hub = hub(timing(1, 1, 0));
    let index = member_by(&mut hub, Transport::CentrifugeJson, "x");
    hub.note_connected(index, Now(0));
    assert!(!hub.take_pong(index), "no ping was sent");
    hub.note_ping(index);
    hub.note_ping(index);
    assert!(hub.take_pong(index) && hub.take_pong(index));
    assert!(!hub.take_pong(index), "more pongs than pings");
}

#[test]
fn an_answer_to_an_older_question_does_not_confirm() {
    let mut hub = hub(timing(0, 1, 0));
    let first = hub.open(0, Now(0)).index;
    let Subscribed::Ask { serial: old, .. } = hub.subscribe(first, "x") else {
        panic!("asks")
    };
    let mut emptied_channels = Vec::new();
    hub.release(first, &mut emptied_channels);
    assert_eq!(emptied_channels, ["x".into()]);
    let second = hub.open(0, Now(0)).index;
    let Subscribed::Ask { serial: new, .. } = hub.subscribe(second, "x") else {
        panic!("asks again")
    };
    let third = hub.open(0, Now(0)).index;
    assert_eq!(hub.subscribe(third, "x"), Subscribed::Pending);
    hub.connection_mut(second).phase = Phase::Joining;
    hub.connection_mut(third).phase = Phase::Joining;
    let mut joined = Vec::new();
    hub.handle_joined("x", old, at(1), &mut joined);
    assert!(joined.is_empty());
    assert!(!hub.deliver(publication("x", 2)), "of the old membership");
    hub.handle_joined("x", new, at(5), &mut joined);
    assert_eq!(
        joined
            .iter()
            .map(|joined| (joined.key.index, joined.position))
            .collect::<Vec<_>>(),
        [(second, at(5)), (third, at(5))]
    );
    hub.check();
}

#[test]
fn a_connection_leaves_one_channel_and_keeps_the_others() {
    // The first, the middle and the last of a connection's list of subscriptions.
    for ended in 0..3 {
        let mut hub = hub(timing(0, 1, 0));
        let index = member(&mut hub, "channel 0");
        for channel in 1..3 {
            if let Subscribed::Ask { name, serial } = hub.subscribe(index, &name(channel)) {
                hub.handle_joined(&name, serial, at(0), &mut Vec::new());
            }
        }
        let mut emptied_channels = Vec::new();
        assert!(!hub.unsubscribe(index, "another", &mut emptied_channels));
        assert!(hub.unsubscribe(index, &name(ended), &mut emptied_channels));
        assert_eq!(emptied_channels, [name(ended).into()]);
        assert!(!hub.unsubscribe(index, &name(ended), &mut emptied_channels));
        hub.check();
        for channel in 0..3 {
            let delivers = hub.deliver(publication(&name(channel), 1));
            assert_eq!(delivers, channel != ended);
        }
        assert_eq!(deliver_slice(&mut hub, 10), (vec![index], true));
        assert_eq!(deliver_slice(&mut hub, 10), (vec![index], true));
        assert_eq!(hub.subscription_count(), 2);
    }
}

#[test]
fn a_member_that_unsubscribes_in_the_middle_is_skipped() {
    let mut hub = hub(timing(0, 1, 0));
    let members: Vec<u32> = (0..4).map(|_| member(&mut hub, "x")).collect();
    assert!(hub.deliver(publication("x", 1)));
    assert_eq!(deliver_slice(&mut hub, 1), (members[..1].to_vec(), false));
    for gone in [0, 2] {
        assert!(hub.unsubscribe(members[gone], "x", &mut Vec::new()));
        hub.check();
    }
    assert_eq!(
        deliver_slice(&mut hub, 10),
        (vec![members[1], members[3]], true)
    );
    let Subscribed::Ready { position, .. } = hub.subscribe(members[0], "x") else {
        panic!("the channel is joined")
    };
    assert_eq!(position, at(1));
    hub.check();
}

#[test]
fn each_subscription_joins_by_itself() {
    let mut hub = hub(timing(0, 1, 0));
    let index = hub.open(0, Now(0)).index;
    let serials: Vec<u64> = (0..3)
        .map(|channel| match hub.subscribe(index, &name(channel)) {
            Subscribed::Ask { serial, .. } => serial,
            other => panic!("{other:?}"),
        })
        .collect();
    let Subscribed::Already(first) = hub.subscribe(index, &name(0)) else {
        panic!("subscribed twice")
    };
    assert_eq!(hub.connection(index).joins_pending(), 3);
    assert!(hub.unsubscribe(index, &name(1), &mut Vec::new()));
    assert_eq!(hub.connection(index).joins_pending(), 2);
    let mut joined = Vec::new();
    hub.handle_joined(&name(1), serials[1], at(4), &mut joined);
    assert_eq!(joined, [], "an answer to nobody");
    hub.handle_joined(&name(0), serials[0], at(7), &mut joined);
    assert_eq!(
        (
            joined[0].key.index,
            joined[0].subscription,
            joined[0].position
        ),
        (index, first, at(7))
    );
    assert_eq!(hub.connection(index).joins_pending(), 1);
    hub.handle_joined(&name(2), serials[2], at(9), &mut joined);
    assert_eq!(joined.len(), 2);
    assert_eq!(hub.connection(index).joins_pending(), 0);
    hub.check();
}

#[test]
fn budgets_of_connection_and_process_hold() {
    let pool = Pool::new(2000);
    let mut hub = Hub::new(
        timing(0, 1, 0),
        1000,
        Lease::new(pool.clone(), 10),
        7,
        Now(0),
    );
    let connections: Vec<u32> = (0..3).map(|_| hub.open(0, Now(0)).index).collect();
    let chunk = |bytes: usize| Chunk::Owned(vec![0; bytes].into());
    // Each chunk costs 64 bytes more than it has.
    assert_eq!(hub.enqueue(connections[0], chunk(836)), Ok(()));
    assert_eq!(
        hub.enqueue(connections[0], chunk(37)),
        Err(crate::Overflow::Connection)
    );
    assert_eq!(hub.enqueue(connections[1], chunk(936)), Ok(()));
    assert_eq!(
        hub.enqueue(connections[2], chunk(37)),
        Err(crate::Overflow::Process)
    );
    // A final chunk costs nothing, although no budget is left.
    hub.enqueue_final_chunk(connections[1], vec![0; 500]);
    hub.advance_outbound(connections[0], 836);
    assert_eq!(hub.enqueue(connections[2], chunk(836)), Ok(()));
    hub.check();
    for index in connections {
        hub.release(index, &mut Vec::new());
    }
    assert_eq!(hub.buffered_bytes(), 0);
    drop(hub);
    assert_eq!(pool.available(), 2000);
}

/// Runs time forward in tenths of seconds and answers what was due when, in tenths.
fn due_until(hub: &mut Hub, tenths: u64, mut at: impl FnMut(&mut Hub, u64)) -> Vec<(u64, Due)> {
    let mut seen = Vec::new();
    for tenth in 0..=tenths {
        let mut due = Vec::new();
        while hub.poll_due(Now(tenth * SECOND / 10), 1, &mut due) {}
        seen.extend(due.into_iter().map(|(_, what)| (tenth, what)));
        at(hub, tenth);
    }
    seen
}

#[test]
fn pings_come_every_interval_and_a_lost_pong_ends_it() {
    let mut hub = hub(timing(25, 10, 0));
    let index = member(&mut hub, "x");
    let answered = due_until(&mut hub, 1000, |hub, tenth| {
        hub.note_input(index, Now(tenth * SECOND / 10))
    });
    let times: Vec<u64> = answered
        .iter()
        .map(|(tenth, due)| {
            assert_eq!(*due, Due::Ping);
            *tenth
        })
        .collect();
    assert!(times[0] <= 251, "within the first interval");
    assert!(
        times
            .windows(2)
            .all(|pair| (250..=251).contains(&(pair[1] - pair[0]))),
        "{times:?}"
    );
    assert_eq!(times.len() as u64, (1000 - times[0]) / 250 + 1);

    let mut hub = self::hub(timing(25, 10, 0));
    member(&mut hub, "x");
    let silent = due_until(&mut hub, 1000, |_, _| {});
    assert_eq!(
        silent.iter().map(|(_, due)| *due).collect::<Vec<_>>(),
        [Due::Ping, Due::PongTimeout]
    );
    assert!((100..=101).contains(&(silent[1].0 - silent[0].0)));
}

#[test]
fn neighbours_ping_together_whenever_they_came() {
    let mut hub = hub(timing(25, 10, 0));
    let first = member(&mut hub, "x");
    let pings = |hub: &mut Hub, times: std::ops::Range<u64>| {
        let mut seen = Vec::new();
        for tenth in times {
            let mut due = Vec::new();
            while hub.poll_due(Now(tenth * SECOND / 10), 1, &mut due) {}
            for (index, what) in due {
                assert_eq!(what, Due::Ping);
                hub.note_input(index, Now(tenth * SECOND / 10));
                seen.push((tenth, index));
            }
        }
        seen
    };
    let alone = pings(&mut hub, 0..333);
    let second = hub.open(0, Now(333 * SECOND / 10)).index;
    hub.admit(second, Now(333 * SECOND / 10));
    hub.connection_mut(second).set_transport(Transport::Raw);
    let both = pings(&mut hub, 333..1000);
    let of = |index| {
        let times = both.iter().filter(move |(_, pinged)| *pinged == index);
        times.map(|(tenth, _)| *tenth).collect::<Vec<_>>()
    };
    assert_eq!(of(first), of(second), "after {alone:?}");
    assert!((2..=3).contains(&of(second).len()));
}

/// A shard that cannot look at its timers for a while pings late, and then as before: not all connections at once, in each interval.
#[test]
fn pings_that_were_late_do_not_stay_together() {
    let mut hub = hub(timing(25, 10, 0));
    // Two blocks of neighbours, whose phases differ.
    let members: Vec<u32> = (0..300).map(|_| member(&mut hub, "x")).collect();
    let (first, last) = (members[0], members[299]);
    let mut pinged: Vec<(u64, u32)> = Vec::new();
    for tenth in (0..3_500).filter(|tenth| !(600..800).contains(tenth)) {
        let mut due = Vec::new();
        let now = Now(tenth * SECOND / 10);
        while hub.poll_due(now, 100, &mut due) {}
        for (index, what) in due {
            assert_eq!(what, Due::Ping);
            hub.note_input(index, now);
            pinged.push((tenth, index));
        }
    }
    let of = |index: u32| {
        let times = pinged.iter().filter(move |(_, pinged)| *pinged == index);
        times.map(|(tenth, _)| *tenth).collect::<Vec<_>>()
    };
    let (first, last) = (of(first), of(last));
    for times in [&first, &last] {
        let gaps = |times: &[u64]| -> Vec<u64> {
            times.windows(2).map(|pair| pair[1] - pair[0]).collect()
        };
        let late = times.iter().position(|&time| time >= 800).unwrap();
        assert!(times[late] <= 801, "{times:?}");
        // They come back to their phase by an eighth of an interval at most, and then stay there.
        assert!(
            gaps(&times[late..])
                .iter()
                .all(|gap| (218..=251).contains(gap)),
            "{times:?}"
        );
        let (before, after) = (times[0] % 250, times[times.len() - 1] % 250);
        assert!(before.abs_diff(after) <= 1, "{times:?}");
    }
    assert!(
        first[first.len() - 1].abs_diff(last[last.len() - 1]) > 50,
        "{first:?} {last:?}"
    );
}

#[test]
fn an_interval_of_years_is_only_long() {
    let years = u64::from(u32::MAX / 20) - 1;
    let timing = timing(years, 10, 0);
    for spread_from in [0, u32::MAX / 2, u32::MAX] {
        let buffered = Lease::new(Pool::new(1 << 20), 100);
        let mut hub = Hub::new(timing, 1000, buffered, spread_from, Now(0));
        let index = hub.open(0, Now(0)).index;
        let now = Now((years - 1) * SECOND);
        hub.admit(index, now);
        let mut due = Vec::new();
        while hub.poll_due(now, 1, &mut due) {}
        assert_eq!(due, []);
    }
}

/// What is due of one member and one handshake, and when, in tenths of seconds. The shard has unread input during `backlog`.
fn due_with_backlog(timing: Timing, backlog: std::ops::Range<u64>) -> Vec<(u64, Due)> {
    let mut hub = hub(timing);
    member(&mut hub, "x");
    hub.open(0, Now(0));
    let mut seen = Vec::new();
    for tenth in 0..1000 {
        let now = Now(tenth * SECOND / 10);
        hub.note_input_backlog(backlog.contains(&tenth), now, now);
        let mut due = Vec::new();
        while hub.poll_due(now, 1, &mut due) {}
        seen.extend(due.into_iter().map(|(_, what)| (tenth, what)));
    }
    seen.retain(|(_, what)| *what != Due::Ping);
    seen
}

#[test]
fn no_peer_is_judged_late_while_input_is_unread() {
    let never = due_with_backlog(timing(5, 2, 0), 0..0);
    let (pong_at, handshake_at) = (never[0].0, never[1].0);
    assert_eq!(never[0].1, Due::PongTimeout);
    assert_eq!(never[1].1, Due::HandshakeTimeout);
    // A backlog from before the deadlines until 5 s after the later one: both peers are judged once it has been read.
    let until = handshake_at + 50;
    let late = due_with_backlog(timing(5, 2, 0), pong_at - 5..until);
    assert!(
        late.iter()
            .all(|(tenth, _)| (until..=until + 1).contains(tenth)),
        "{late:?}"
    );
    assert_eq!(late.len(), 2);
    // A backlog that began after the deadline: what came by then has been read.
    assert_eq!(
        due_with_backlog(timing(5, 2, 0), pong_at + 2..pong_at + 4),
        never
    );
    // A backlog without end: dead peers are closed all the same.
    let forever = due_with_backlog(timing(5, 2, 0), 0..1000);
    assert_eq!(forever.len(), 2);
    for ((tenth, what), (due, same)) in forever.iter().zip(&never) {
        assert_eq!(what, same);
        assert!((due + 300..=due + 302).contains(tenth), "{forever:?}");
    }
    let idle = due_with_backlog(timing(0, 1, 30), 290..400);
    assert!(
        idle.contains(&(400, Due::Idle)) || idle.contains(&(401, Due::Idle)),
        "{idle:?}"
    );
}

/// A process that is stopped looks at the sockets, sleeps for a minute, and finds deadlines over that it has heard nothing of.
#[test]
fn a_clock_that_jumps_makes_nobody_late_before_the_next_look() {
    let mut hub = hub(timing(5, 2, 0));
    member(&mut hub, "x");
    let handshake = hub.open(0, Now(0)).index;
    let before = Now(SECOND / 10);
    let after = Now(60 * SECOND);
    let due_at = |hub: &mut Hub, now: Now| {
        let mut due = Vec::new();
        while hub.poll_due(now, 1, &mut due) {}
        due.retain(|(_, what)| *what != Due::Ping);
        due
    };
    hub.note_input_backlog(false, before, before);
    assert_eq!(due_at(&mut hub, before), []);
    hub.note_input_backlog(false, before, after);
    assert_eq!(due_at(&mut hub, after), [], "it has not looked since");
    // More came meanwhile than one turn reads. The backlog is as young as the turn that found it.
    let next = Now(after.0 + SECOND / 10);
    hub.note_input_backlog(true, after, next);
    assert_eq!(due_at(&mut hub, next), [], "it has not read all");
    let read = Now(next.0 + SECOND / 10);
    hub.note_input_backlog(false, next, read);
    assert_eq!(due_at(&mut hub, read), [(handshake, Due::HandshakeTimeout)]);
}

#[test]
fn idle_and_handshake_timeouts_fire_on_time() {
    let mut hub = hub(timing(0, 1, 30));
    let index = member(&mut hub, "x");
    let due = due_until(&mut hub, 1000, |hub, tenth| {
        if tenth == 200 {
            hub.note_input(index, Now(20 * SECOND));
        }
    });
    assert_eq!(due.len(), 1);
    assert_eq!(due[0].1, Due::Idle);
    assert!((500..=501).contains(&due[0].0));
    let mut hub = self::hub(timing(25, 10, 0));
    hub.open(0, Now(0));
    let due = due_until(&mut hub, 1000, |_, _| {});
    assert_eq!(due.len(), 1);
    assert_eq!(due[0].1, Due::HandshakeTimeout);
    assert!((100..=101).contains(&due[0].0));
}

/// What a client of the model has been given, decoded from the bytes the hub sent it.
#[derive(Default)]
struct Client {
    bytes: Vec<u8>,
    channels: Vec<usize>,
    /// Channels it has unsubscribed from: of those it has seen a prefix of what was published until then.
    ended_channels: Vec<usize>,
    /// For each channel, offsets it must have seen by the time nothing is queued.
    expected: Vec<(usize, u64)>,
}

#[derive(Clone, Debug)]
enum Op {
    Open(Vec<usize>),
    Release(usize),
    Unsubscribe(usize, usize),
    Publish(usize),
    Deliver { max: usize, taken: Vec<usize> },
    Flush(Vec<usize>),
    Writable(usize),
}

fn op() -> impl Strategy<Value = Op> {
    let taken = || prop::collection::vec(0..30usize, 1..4);
    prop_oneof![
        3 => prop::collection::btree_set(0..3usize, 1..3).prop_map(|set| Op::Open(set.into_iter().collect())),
        1 => (0..64usize).prop_map(Op::Release),
        1 => (0..64usize, 0..3usize).prop_map(|(number, channel)| Op::Unsubscribe(number, channel)),
        4 => (0..3usize).prop_map(Op::Publish),
        6 => (1..5usize, taken()).prop_map(|(max, taken)| Op::Deliver { max, taken }),
        3 => taken().prop_map(Op::Flush),
        3 => (0..64usize).prop_map(Op::Writable),
    ]
}

/// The model: every client, what it must get, and the home's offsets.
struct World {
    hub: Hub,
    clients: HashMap<u32, Client>,
    offsets: [u64; 3],
}

impl World {
    fn pick(&self, number: usize) -> Option<u32> {
        let mut indices: Vec<u32> = self.clients.keys().copied().collect();
        indices.sort_unstable();
        (!indices.is_empty()).then(|| indices[number % indices.len()])
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Open(channels) => self.open(channels),
            Op::Release(number) => {
                if let Some(index) = self.pick(number) {
                    self.hub.release(index, &mut Vec::new());
                    self.clients.remove(&index);
                }
            }
            Op::Unsubscribe(number, channel) => self.unsubscribe(number, channel),
            Op::Publish(channel) => {
                self.offsets[channel] += 1;
                let offset = self.offsets[channel];
                if self.hub.deliver(publication(&name(channel), offset)) {
                    for client in self
                        .clients
                        .values_mut()
                        .filter(|client| client.channels.contains(&channel))
                    {
                        client.expected.push((channel, offset));
                    }
                }
            }
            Op::Deliver { max, taken } => self.deliver(max, &taken),
            Op::Flush(taken) => self.flush(&taken),
            Op::Writable(number) => {
                if let Some(index) = self.pick(number) {
                    self.hub.connection_mut(index).set_awaits_writable(false);
                    if self.hub.connection(index).has_outbound() {
                        self.hub.list_for_flush(index);
                    }
                }
            }
        }
        self.hub.check();
    }

    fn open(&mut self, channels: Vec<usize>) {
        let index = self.hub.open(0, Now(0)).index;
        for &channel in &channels {
            if let Subscribed::Ask { name, serial } = self.hub.subscribe(index, &name(channel)) {
                self.hub
                    .handle_joined(&name, serial, at(self.offsets[channel]), &mut Vec::new());
            }
        }
        admit(&mut self.hub, index);
        self.clients.insert(
            index,
            Client {
                channels,
                ..Client::default()
            },
        );
    }

    fn unsubscribe(&mut self, number: usize, channel: usize) {
        let Some(index) = self.pick(number) else {
            return;
        };
        let client = self.clients.get_mut(&index).expect("picked");
        let had = client.channels.contains(&channel);
        let ended = self.hub.unsubscribe(index, &name(channel), &mut Vec::new());
        assert_eq!(ended, had);
        if had {
            client.channels.retain(|subscribed| *subscribed != channel);
            client.ended_channels.push(channel);
        }
    }

    /// Two slices in one batch, of which the kernel takes as much as `taken` says.
    fn deliver(&mut self, max: usize, taken: &[usize]) {
        let (mut targets, mut overflown) = (Vec::<Target>::new(), Vec::<Overflown>::new());
        let mut frames = Vec::new();
        let now = self.hub.turn_tick.0 + 1;
        begin_deliveries_at(&mut self.hub, now);
        for _ in 0..2 {
            let from = targets.len();
            let Some(slice) =
                self.hub
                    .poll_delivery(max, &mut targets, &mut overflown, &mut Vec::new())
            else {
                break;
            };
            for target in &targets[from..] {
                let frame = frame_of(&mut self.hub, &slice.delivery, target.encoding);
                frames.push(frame);
            }
        }
        for (index, (target, frame)) in targets.iter().zip(&frames).enumerate() {
            let count = taken[index % taken.len()].min(frame.len());
            self.clients
                .get_mut(&target.connection)
                .expect("live")
                .bytes
                .extend_from_slice(&frame[..count]);
            if count < frame.len() {
                let tail = self.hub.enqueue_unsent_tail(
                    target.connection,
                    Chunk::Shared(Arc::clone(frame)),
                    count,
                );
                self.hub
                    .connection_mut(target.connection)
                    .set_awaits_writable(true);
                if tail.is_err() {
                    overflown.push(Overflown::Close {
                        connection: target.connection,
                        reason: CloseReason::SlowConsumer,
                    });
                }
            }
        }
        self.hub.end_batch(&targets);
        for overflown in overflown {
            let Overflown::Close {
                connection: index, ..
            } = overflown
            else {
                panic!("no channel of ours makes gaps");
            };
            if self.clients.remove(&index).is_some() {
                self.hub.release(index, &mut Vec::new());
            }
        }
    }

    fn flush(&mut self, taken: &[usize]) {
        let mut listed = Vec::new();
        self.hub.poll_flush(&mut listed);
        for (nth, index) in listed.into_iter().enumerate() {
            let Some(outbound) = self.hub.outbound(index) else {
                continue;
            };
            let mut slices = Vec::<IoSlice<'_>>::new();
            outbound.slices(&mut slices, 64);
            let whole: Vec<u8> = slices.iter().flat_map(|slice| slice.to_vec()).collect();
            let count = taken[nth % taken.len()].min(whole.len());
            self.clients
                .get_mut(&index)
                .expect("live")
                .bytes
                .extend_from_slice(&whole[..count]);
            self.hub.advance_outbound(index, count);
            if count < whole.len() {
                self.hub.connection_mut(index).set_awaits_writable(true);
            }
        }
    }

    /// Everything leaves; then each client has each of its publications once, in each channel's order.
    fn finish(mut self) {
        for round in 0.. {
            assert!(round < 10_000, "what is queued does not end");
            let backpressured: Vec<u32> = self
                .clients
                .keys()
                .copied()
                .filter(|&index| self.hub.connection(index).has_outbound())
                .collect();
            if backpressured.is_empty() && !self.hub.is_delivering() && self.hub.paused.is_empty() {
                break;
            }
            for index in backpressured {
                self.hub.connection_mut(index).set_awaits_writable(false);
                self.hub.list_for_flush(index);
            }
            self.deliver(100, &[1000]);
            self.flush(&[1000]);
        }
        for client in self.clients.values() {
            assert_eq!(client.bytes.len() % 10, 0);
            let seen: Vec<u64> = client
                .bytes
                .chunks(10)
                .map(|frame| {
                    u64::from_be_bytes(frame[2..].try_into().expect("eight bytes of payload"))
                })
                .collect();
            // Offsets of channel `c` are 1000 * c + n in the model, so that a frame names its channel.
            for channel in 0..3 {
                let of_channel = |offset: &u64| (*offset / 1000) as usize == channel;
                let seen: Vec<u64> = seen.iter().copied().filter(of_channel).collect();
                let expected: Vec<u64> = client
                    .expected
                    .iter()
                    .filter(|(of, _)| *of == channel)
                    .map(|(_, offset)| *offset)
                    .collect();
                if client.ended_channels.contains(&channel) {
                    assert!(expected.starts_with(&seen), "channel {channel}");
                } else {
                    assert_eq!(seen, expected, "channel {channel}");
                }
            }
        }
    }
}

fn name(channel: usize) -> String {
    format!("channel {channel}")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 3 } else { 256 }))]

    #[test]
    fn every_client_gets_every_publication_once_in_order(ops in prop::collection::vec(op(), 1..200)) {
        let hub = Hub::new(timing(0, 1, 0), 200, Lease::new(Pool::new(1 << 20), 100), 7, Now(0));
        let mut world = World { hub, clients: HashMap::new(), offsets: [0, 1000, 2000] };
        for op in ops {
            world.apply(op);
        }
        world.finish();
    }
}

/// The scopes and statements of the defects that were noted.
fn defects_of(hub: &mut Hub) -> Vec<(DefectScope, &'static str)> {
    let (noted, more) = hub.take_defects();
    assert_eq!(more, 0);
    let noted = noted.into_iter();
    noted
        .map(|defect| (defect.scope, defect.statement))
        .collect()
}

#[test]
fn a_connection_without_its_session_has_an_empty_one_and_a_defect() {
    let mut hub = hub(timing(0, 1, 0));
    hub.survive_defects();
    let index = member(&mut hub, "x");
    hub.session_mut(index).state = crate::SessionState::Connected;
    assert_eq!(hub.session(index).state, crate::SessionState::New);
    assert!(!hub.take_pong(index), "nothing was kept");
    let (noted, more) = hub.take_defects();
    assert_eq!(more, 2, "about the same connection");
    assert_eq!(noted[0].scope, DefectScope::Connection(index));
    assert_eq!(noted[0].statement, "the connection has a session");
    assert!(!hub.has_defects());
    hub.check();
}

#[test]
fn a_channel_with_a_defect_loses_its_members_in_slices() {
    let mut hub = hub(timing(0, 1, 0));
    hub.survive_defects();
    let members: Vec<u32> = (0..5).map(|_| member(&mut hub, "x")).collect();
    let other = member(&mut hub, "y");
    for offset in 1..=2 {
        assert!(hub.deliver(publication("x", offset)));
    }
    deliver_slice(&mut hub, 2);
    hub.release(members[0], &mut Vec::new());
    // What came before comes again.
    assert!(!hub.deliver(publication("x", 1)));
    let statement = "a home delivers in order, each publication once";
    let scope = DefectScope::Channel("x".into());
    assert_eq!(defects_of(&mut hub), [(scope, statement)]);
    let mut emptied = Vec::new();
    let dropped = hub.end_channel("x", &mut emptied);
    assert_eq!(dropped.len(), 2);
    assert_eq!(emptied.len(), 0);
    hub.check();
    let mut overflown = Vec::new();
    while hub.is_delivering() {
        hub.poll_delivery(2, &mut Vec::new(), &mut overflown, &mut emptied);
    }
    let lost = |connection: &u32| Overflown::Lost {
        connection: *connection,
        channel: "x".into(),
    };
    let mut expected: Vec<_> = members[1..].iter().map(lost).collect();
    expected.sort_by_key(|one| format!("{one:?}"));
    overflown.sort_by_key(|one| format!("{one:?}"));
    assert_eq!(overflown, expected);
    for &index in &members[1..] {
        hub.release(index, &mut emptied);
    }
    assert_eq!(emptied, ["x".into()], "the home is told");
    hub.check();
    assert!(hub.deliver(publication("y", 1)));
    assert_eq!(deliver_slice(&mut hub, 9), (vec![other], true));
}

#[test]
fn publications_of_another_epoch_are_a_defect_of_their_channel() {
    let mut hub = hub(timing(0, 1, 0));
    hub.survive_defects();
    member(&mut hub, "x");
    let content = Arc::new(Content::new(Payload::Binary(b"1"[..].into())));
    let position = Position {
        epoch: Epoch::new(9),
        offset: 1,
    };
    let publication = Publication::new("x".into(), position, content, Now(0), 1, None);
    assert!(!hub.deliver(Delivery::Publication(Arc::new(publication))));
    let statement = "a home keeps its epoch while shards are joined";
    let scope = DefectScope::Channel("x".into());
    assert_eq!(defects_of(&mut hub), [(scope, statement)]);
}

#[test]
fn a_queue_that_the_peer_has_more_of_is_broken() {
    let mut hub = hub(timing(0, 1, 0));
    hub.survive_defects();
    let index = member(&mut hub, "x");
    hub.enqueue(index, Chunk::Owned(b"abc"[..].into()))
        .expect("room");
    hub.advance_outbound(index, 5);
    assert!(hub.has_broken_queue(index));
    let statement = "the kernel takes no more than it is given";
    let scope = DefectScope::Connection(index);
    assert_eq!(defects_of(&mut hub), [(scope.clone(), statement)]);
    hub.forget_broken_queues();
    assert!(!hub.has_broken_queue(index));
    hub.enqueue(index, Chunk::Owned(Box::default()))
        .expect("nothing is queued");
    assert_eq!(defects_of(&mut hub), [(scope, "a chunk has bytes")]);
    hub.check();
}

/// A filter with this many `ct` nodes, of a tag and a value.
fn filter_of(nodes: usize, value: &str) -> Filter {
    let node = || FilterNode {
        key: "t".into(),
        cmp: "ct".into(),
        val: value.into(),
        ..FilterNode::default()
    };
    let mut all = FilterNode {
        op: "or".into(),
        ..FilterNode::default()
    };
    for _ in 0..nodes {
        all.nodes.push(node()).expect("few nodes");
    }
    Filter::new(&all).expect("a filter")
}

fn with_tag(channel: &str, offset: u64, value: &str) -> Delivery {
    let content = Content {
        tags: [("t".into(), value.into())].into(),
        ..Content::new(Payload::Binary(b"1"[..].into()))
    };
    let (position, content) = (at(offset), Arc::new(content));
    let publication = Publication::new(channel.into(), position, content, Now(0), 1, None);
    Delivery::Publication(Arc::new(publication))
}

fn subscriber_with(hub: &mut Hub, filter: Filter) -> u32 {
    let index = member_by(hub, Transport::CentrifugeProtobuf, "x");
    assert!(hub.reserve_buffered(filter.bytes()));
    let subscription = hub.find_subscription(index, "x").expect("subscribed");
    hub.set_filter(subscription, filter);
    index
}

#[test]
fn equal_filters_are_one_and_a_publication_is_compared_with_it_once() {
    let mut hub = hub(timing(0, 1, 0));
    let before = hub.buffered_bytes();
    let equal: Vec<u32> = (0..50)
        .map(|_| subscriber_with(&mut hub, filter_of(2, "a")))
        .collect();
    let other = subscriber_with(&mut hub, filter_of(2, "b"));
    hub.check();
    assert_eq!(hub.filter_stats(), (2, 0));
    let bytes = filter_of(2, "a").bytes() + filter_of(2, "b").bytes();
    assert_eq!(hub.buffered_bytes() - before, bytes as u64);
    // Slices of other deliveries come between those of this one.
    assert!(hub.deliver(with_tag("x", 1, "-a-")));
    let mut told = Vec::new();
    let (mut max, mut finished) = (7, false);
    while !finished {
        let (targets, is_last) = deliver_slice(&mut hub, max);
        told.extend(targets);
        (max, finished) = (11, is_last);
    }
    assert_eq!(told, equal);
    assert_eq!(hub.filter_stats(), (2, 2), "each of them once");
    // What was compared before says nothing of the next one.
    assert!(hub.deliver(with_tag("x", 2, "-b-")));
    assert_eq!(deliver_slice(&mut hub, 100), (vec![other], true));
    assert_eq!(hub.filter_stats(), (2, 4));
    for index in equal.into_iter().chain([other]) {
        hub.release(index, &mut Vec::new());
        hub.check();
    }
    assert_eq!(hub.filter_stats().0, 0);
    assert_eq!(hub.buffered_bytes(), before);
}

#[test]
fn what_filters_compare_ends_a_slice() {
    let mut hub = hub(timing(0, 1, 0));
    for nth in 0..10 {
        subscriber_with(&mut hub, filter_of(10, &format!("value {nth}")));
    }
    let plain = member_by(&mut hub, Transport::CentrifugeProtobuf, "x");
    // Ten nodes of 16 each, times a tag of 4 KiB: as much as 160 members.
    assert!(hub.deliver(with_tag("x", 1, &"-".repeat(4095))));
    let mut slices = 0;
    loop {
        let mut targets = Vec::new();
        let slice = hub.poll_delivery(300, &mut targets, &mut Vec::new(), &mut Vec::new());
        let slice = slice.expect("under way");
        hub.end_batch(&targets);
        slices += 1;
        assert!(slice.visited < 300 + 162, "one filter beyond at most");
        if slice.finished {
            let told: Vec<u32> = targets.iter().map(|target| target.connection).collect();
            assert_eq!(told, [plain]);
            break;
        }
    }
    assert!(slices >= 5, "{slices}");
    hub.check();
}

/// An append of thousands of elements is one batch, and each of them is looked at for each member.
#[test]
fn a_large_batch_goes_to_fewer_members_at_a_time() {
    let mut hub = hub(timing(0, 1, 0));
    hub.outbound_bytes_max = 1 << 20;
    for _ in 0..40 {
        member_by(&mut hub, Transport::CentrifugeProtobuf, "x");
    }
    let offsets: Vec<u64> = (1..=2_560).collect();
    assert!(hub.deliver(batch("x", &offsets)));
    let mut sizes = Vec::new();
    let mut is_finished = false;
    while !is_finished {
        let (targets, is_last) = deliver_slice(&mut hub, 110);
        sizes.push(targets.len());
        is_finished = is_last;
    }
    assert_eq!(sizes, [10, 10, 10, 10]);
    assert!(hub.deliver(publication("x", 2_561)));
    assert_eq!(deliver_slice(&mut hub, 110).0.len(), 40);
}
