//! Cases by hand. `model` has random operations.

mod ahead;
mod defects;
mod durable;
mod elsewhere;
mod logs;
mod model;
mod reload;
mod streams;
mod wanted;

use super::{
    HistoryAnswer, Home, HomeEffect, HomeSettings, Kept, ReadHistory, Recover, RequestId, Since,
    Submission,
};
use crate::{
    Asker, ChannelOptions, ClientId, ClientInfo, Content, Delivery, Epoch, JoinLeaveBy, Namespaces,
    Now, Payload, Permit, Pool, Position, PresenceChange, PresenceEvent, RecoveryMode, Ticket,
};
use myriad_wheel::{Key, Tick};
use std::sync::Arc;
use std::time::Duration;

const TICK_NS: u64 = 50_000_000;

fn tick(tick: u64) -> Now {
    Now(tick * TICK_NS)
}

/// Channels of the namespace `kept` keep three publications for 100 ticks, and their positions for 1000.
fn kept() -> ChannelOptions {
    ChannelOptions {
        history_size: 3,
        history_ttl: Duration::from_secs(5),
        history_meta_ttl: Duration::from_secs(50),
        ..ChannelOptions::default()
    }
}

fn namespaces() -> Namespaces {
    let batch_delay = Duration::from_millis(200);
    let named = [
        ("kept", kept()),
        (
            "batch",
            ChannelOptions {
                batch_delay,
                delta_publish: true,
                ..kept()
            },
        ),
        (
            "loose",
            ChannelOptions {
                batch_delay,
                join_leave_by: JoinLeaveBy::User,
                ..ChannelOptions::default()
            },
        ),
        (
            "long",
            ChannelOptions {
                history_size: 1000,
                ..kept()
            },
        ),
    ];
    let named = named.map(|(name, options)| (name.into(), options));
    Namespaces::new(ChannelOptions::default(), named)
}

fn home_with(history_bytes_max: u64) -> Home {
    let settings = HomeSettings {
        vacated_delay: None,
        epoch: Epoch::new(7),
        epoch_seed: 99,
        logs: 0,
        by_channel: false,
        namespaces: Arc::new(namespaces()),
        history_bytes_max,
        batch_bytes_max: 256 << 10,
    };
    Home::new(settings, Now(0))
}

fn home() -> Home {
    home_with(1 << 20)
}

const TICKET: Ticket = Ticket {
    mark: 0,
    shard: 1,
    connection: Key {
        index: 2,
        generation: 3,
    },
    command: 4,
};

fn text(text: &str) -> Content {
    Content::new(Payload::Text(text.into()))
}

fn say(home: &mut Home, channel: &str, what: &str, now: Now) {
    let content = text(what).into();
    let plain = submission(channel, None);
    home.handle_publish(Submission { content, ..plain }, now);
}

fn recover(channel: &str, offset: u64, epoch: &str, mode: RecoveryMode) -> Recover {
    Recover {
        channel: channel.into(),
        ticket: TICKET,
        since: Since {
            offset,
            epoch: epoch.into(),
        },
        mode,
        is_asked: true,
        max: 300,
    }
}

/// The answer: the position, and the offsets of what was missed.
fn recovered(home: &mut Home, request: Recover, now: Now) -> (Position, Option<Vec<u64>>) {
    home.handle_recover(request, now);
    match home.poll_effect() {
        Some(HomeEffect::Recovered(recovered)) => {
            assert_eq!(recovered.ticket, TICKET);
            (recovered.position, recovered.publications.ok().map(offsets))
        }
        other => panic!("{other:?}"),
    }
}

fn offsets(kept: Vec<Kept>) -> Vec<u64> {
    kept.into_iter().map(|kept| kept.offset).collect()
}

/// A page: the top, and the offsets. None: unrecoverable.
fn page(
    home: &mut Home,
    channel: &str,
    limit: Option<u32>,
    since: Option<(u64, &str)>,
    reverse: bool,
    now: Now,
) -> Option<(u64, Vec<u64>)> {
    let since = since.map(|(offset, epoch)| Since {
        offset,
        epoch: epoch.into(),
    });
    let request = ReadHistory {
        channel: channel.into(),
        asker: Asker::Session(TICKET),
        limit,
        since,
        reverse,
    };
    home.handle_history(request, now);
    match home.poll_effect() {
        Some(HomeEffect::History {
            answer:
                HistoryAnswer::Page {
                    position,
                    publications,
                },
            ..
        }) => Some((position.offset, offsets(publications))),
        Some(HomeEffect::History {
            answer: HistoryAnswer::Unrecoverable,
            ..
        }) => None,
        other => panic!("{other:?}"),
    }
}

fn drain(home: &mut Home) -> Vec<HomeEffect> {
    home.check();
    std::iter::from_fn(|| home.poll_effect()).collect()
}

/// Lets time pass, as a shard does.
fn pass(home: &mut Home, now: Now) {
    while home.next_deadline().is_some_and(|due| due <= now.tick()) {
        home.handle_time(now);
    }
}

impl Home {
    fn check(&self) {
        self.check_budget();
        assert_eq!(self.names.len(), self.channels.len());
        for index in self.channels.indices() {
            let record = &self.channels[index];
            assert_eq!(self.names.get(&record.name), Some(&index));
            match &record.history {
                Some(history) => {
                    history.check(record.last_offset);
                    if record.log().is_none() {
                        history.check_consecutive(record.last_offset);
                    }
                }
                None => assert!(!record.subscribed.is_empty()),
            }
            assert!(record.batch.is_none() || !record.subscribed.is_empty());
            assert!(record.batch.as_ref().is_none_or(|batch| batch.len() > 0));
            let timer = myriad_wheel::Timed::timer(record);
            if let Some(deadline) = self.deadline_of(index) {
                assert!(timer.is_armed() && timer.deadline() <= deadline);
            }
        }
    }
}

fn at(offset: u64) -> Position {
    Position {
        epoch: Epoch::new(7),
        offset,
    }
}

fn submission(channel: &str, id: Option<RequestId>) -> Submission {
    Submission {
        channel: channel.into(),
        content: text("").into(),
        permit: Permit::take(&Pool::new(10), 1, 0).expect("ten"),
        asker: id.map(Asker::Control),
        sender: None,
        idempotency_key: None,
        delta: false,
        skip_history: false,
        version: 0,
        version_epoch: "".into(),
    }
}

/// Publishes; the position and the shards.
fn publish(home: &mut Home, channel: &str, id: Option<RequestId>) -> (Position, Vec<usize>) {
    home.handle_publish(submission(channel, id), Now(3));
    let Some(HomeEffect::Deliver {
        delivery: Delivery::Publication(publication),
        shards,
    }) = home.poll_effect()
    else {
        panic!("the publication is delivered first")
    };
    if let Some(id) = id {
        let Some(HomeEffect::Published {
            asker: answered,
            position,
        }) = home.poll_effect()
        else {
            panic!("then the publisher is answered")
        };
        assert_eq!(answered, Asker::Control(id));
        assert_eq!(position.epoch, Epoch::new(7));
    }
    assert!(home.poll_effect().is_none());
    assert_eq!(&**publication.channel(), channel);
    (publication.position(), shards.iter().collect())
}

/// Joins; the position.
fn join(home: &mut Home, channel: &str, shard: usize) -> Position {
    home.handle_join(channel.into(), shard, 5, Now(3));
    match home.poll_effect() {
        Some(HomeEffect::Joined {
            shard: answered,
            serial: 5,
            position,
            ..
        }) if answered == shard => position,
        other => panic!("{other:?}"),
    }
}

#[test]
fn offsets_grow_through_absence() {
    let mut home = home();
    assert_eq!(publish(&mut home, "news", None), (at(1), vec![]));
    assert_eq!(join(&mut home, "news", 3), at(1));
    assert_eq!(publish(&mut home, "news", None).0, at(2));
    let id = Some(RequestId(9));
    assert_eq!(publish(&mut home, "news", id), (at(3), vec![3]));
    home.handle_leave("news", 3, Now(0));
    assert!(home.is_empty());
    assert_eq!(publish(&mut home, "news", None).0, at(4));
    assert_eq!(join(&mut home, "news", 0), at(4));
    assert_eq!(publish(&mut home, "other", None).0, at(5));
    assert_eq!(publish(&mut home, "news", None), (at(5), vec![0]));
}

#[test]
fn effects_come_in_the_order_of_what_caused_them() {
    let mut home = home();
    home.handle_join("x".into(), 1, 1, Now(0));
    home.handle_publish(submission("x", Some(RequestId(1))), Now(0));
    home.handle_join("x".into(), 2, 2, Now(0));
    let effects = std::iter::from_fn(|| home.poll_effect());
    let kinds = effects.map(|effect| match effect {
        HomeEffect::Joined { position, .. } => ("joined", position.offset),
        HomeEffect::Published { position, .. } => ("published", position.offset),
        HomeEffect::Deliver {
            delivery: Delivery::Publication(publication),
            ..
        } => ("deliver", publication.offset()),
        other => panic!("{other:?}"),
    });
    assert_eq!(
        kinds.collect::<Vec<_>>(),
        [
            ("joined", 0),
            ("deliver", 1),
            ("published", 1),
            ("joined", 1)
        ]
    );
}

#[test]
fn a_channel_with_history_counts_from_one_in_an_epoch_of_its_own() {
    let mut home = home();
    let first = join(&mut home, "kept:a", 0);
    assert_eq!(first.offset, 0);
    let other = join(&mut home, "kept:b", 0);
    assert!(first.epoch != other.epoch && first.epoch != Epoch::new(7));
    say(&mut home, "kept:a", "1", tick(1));
    home.handle_leave("kept:a", 0, tick(2));
    drain(&mut home);
    // Its publications are forgotten first, its position later.
    assert_eq!(home.stats().publications, 1);
    pass(&mut home, tick(101));
    assert_eq!((home.stats().publications, home.len()), (0, 2));
    pass(&mut home, tick(1001));
    assert_eq!(home.len(), 2);
    let top = recovered(
        &mut home,
        recover("kept:a", 1, "", RecoveryMode::Stream),
        tick(1001),
    );
    assert_eq!(top, (Position { offset: 1, ..first }, Some(vec![])));
    pass(&mut home, tick(2000));
    assert_eq!(home.len(), 2, "used at 1001");
    pass(&mut home, tick(2001));
    assert_eq!(home.len(), 1, "the other one has a subscriber");
    let next = join(&mut home, "kept:a", 0);
    assert!(next.offset == 0 && next.epoch != first.epoch);
}

#[test]
fn a_stream_is_recovered_whole_or_not_at_all() {
    let mut home = home();
    for n in 0..5_u64 {
        say(&mut home, "kept:a", &n.to_string(), tick(n));
    }
    drain(&mut home);
    let epoch = join(&mut home, "kept:a", 0).epoch;
    let epoch = epoch.as_str();
    for (offset, asked, expected) in [
        (5, epoch, Some(vec![])),
        (4, epoch, Some(vec![5])),
        (2, epoch, Some(vec![3, 4, 5])),
        (2, "", Some(vec![3, 4, 5])),
        (1, epoch, None),
        (0, epoch, None),
        (0, "_", None),
        (5, "_", None),
        (6, epoch, None),
        (u64::MAX, epoch, None),
    ] {
        let request = recover("kept:a", offset, asked, RecoveryMode::Stream);
        let (position, publications) = recovered(&mut home, request, tick(5));
        assert_eq!(
            (position.offset, publications),
            (5, expected),
            "{offset} {asked}"
        );
    }
    // The oldest has expired.
    let request = recover("kept:a", 2, epoch, RecoveryMode::Stream);
    assert_eq!(
        recovered(&mut home, request.clone(), tick(101)).1,
        Some(vec![3, 4, 5])
    );
    assert_eq!(recovered(&mut home, request, tick(102)).1, None);
}

#[test]
fn a_long_gap_is_not_recovered() {
    let mut home = home();
    for _ in 0..301 {
        say(&mut home, "long:a", "", tick(0));
    }
    drain(&mut home);
    let gap = |offset| recover("long:a", offset, "", RecoveryMode::Stream);
    assert_eq!(recovered(&mut home, gap(0), tick(0)).1, None);
    let missed = recovered(&mut home, gap(1), tick(0)).1.expect("300");
    assert_eq!((missed.len(), missed[0]), (300, 2));
}

#[test]
fn a_cache_gives_the_newest_publication() {
    let mut home = home();
    let cache = |offset, epoch: &str| recover("kept:a", offset, epoch, RecoveryMode::Cache);
    let epoch = join(&mut home, "kept:a", 0).epoch;
    let epoch = epoch.as_str();
    // Nothing was ever published.
    assert_eq!(recovered(&mut home, cache(0, epoch), tick(0)).1, None);
    say(&mut home, "kept:a", "1", tick(0));
    say(&mut home, "kept:a", "2", tick(0));
    drain(&mut home);
    for (offset, asked, expected) in [
        (0, "", vec![2]),
        (1, epoch, vec![2]),
        (2, "_", vec![2]),
        (2, epoch, vec![]),
        (9, epoch, vec![2]),
    ] {
        let (_, publications) = recovered(&mut home, cache(offset, asked), tick(0));
        assert_eq!(publications, Some(expected), "{offset} {asked}");
    }
    let is_asked = false;
    let unasked = |request| Recover {
        is_asked,
        ..request
    };
    let (_, publications) = recovered(&mut home, unasked(cache(2, epoch)), tick(0));
    assert_eq!(publications, Some(vec![2]));
    // The newest has expired.
    for (offset, asked, expected) in [(2, epoch, Some(vec![])), (1, epoch, None), (2, "_", None)] {
        let (position, publications) = recovered(&mut home, cache(offset, asked), tick(200));
        assert_eq!(
            (position.offset, publications),
            (2, expected),
            "{offset} {asked}"
        );
    }
}

#[test]
fn history_is_read_in_pages() {
    let mut home = home();
    assert_eq!(
        page(&mut home, "kept:new", None, None, false, tick(0)),
        Some((0, vec![]))
    );
    assert_eq!(
        page(&mut home, "plain", None, None, false, tick(0)),
        Some((0, vec![]))
    );
    for n in 0..5 {
        say(&mut home, "kept:a", "", tick(n));
    }
    drain(&mut home);
    for (limit, since, reverse, expected) in [
        (None, None, false, vec![3, 4, 5]),
        (Some(0), None, false, vec![]),
        (Some(2), None, false, vec![3, 4]),
        (Some(2), None, true, vec![5, 4]),
        (None, Some(0), false, vec![3, 4, 5]),
        (Some(1), Some(3), false, vec![4]),
        (None, Some(5), false, vec![]),
        (None, Some(u64::MAX), false, vec![]),
        (None, Some(5), true, vec![4, 3]),
        (None, Some(3), true, vec![]),
        (None, Some(9), true, vec![5, 4, 3]),
    ] {
        let since = since.map(|offset| (offset, ""));
        let expected = Some((5, expected));
        let read = page(&mut home, "kept:a", limit, since, reverse, tick(5));
        assert_eq!(read, expected, "{limit:?} {since:?} {reverse}");
    }
    assert_eq!(
        page(&mut home, "kept:a", None, Some((4, "_")), false, tick(5)),
        None
    );
    home.handle_remove_history("kept:a", Asker::Session(TICKET), tick(5));
    assert!(matches!(
        drain(&mut home)[..],
        [HomeEffect::HistoryRemoved { .. }]
    ));
    assert_eq!(
        page(&mut home, "kept:a", None, None, false, tick(5)),
        Some((5, vec![]))
    );
}

#[test]
fn a_repeated_key_is_answered_and_not_published() {
    let keyed = |channel| Submission {
        sender: None,
        idempotency_key: Some("k".into()),
        ..submission(channel, Some(RequestId(1)))
    };
    for channel in ["kept:a", "plain"] {
        let mut home = home();
        home.handle_publish(keyed(channel), tick(0));
        home.handle_publish(keyed(channel), tick(5999));
        home.handle_publish(keyed(channel), tick(6000));
        let answered: Vec<_> = drain(&mut home)
            .into_iter()
            .map(|effect| match effect {
                HomeEffect::Published { position, .. } => position.offset,
                _ => 0,
            })
            .collect();
        assert_eq!(answered, [0, 1, 1, 0, 2], "{channel}");
    }
}

#[test]
fn what_history_skips_takes_no_offset() {
    let mut home = home();
    join(&mut home, "kept:a", 0);
    let delta = true;
    let mut bases = Vec::new();
    for (what, skip_history) in [
        ("1", false),
        ("2", false),
        ("x", true),
        ("3", false),
        ("4", false),
    ] {
        let content = text(what).into();
        home.handle_publish(
            Submission {
                content,
                delta,
                skip_history,
                ..submission("kept:a", None)
            },
            tick(0),
        );
        let Some(HomeEffect::Deliver {
            delivery: Delivery::Publication(publication),
            ..
        }) = home.poll_effect()
        else {
            panic!("no publication")
        };
        let base = publication
            .delta_base()
            .map(|base| base.content.payload.clone());
        bases.push((publication.offset(), base));
    }
    let says = |what: &str| Some(Payload::Text(what.into()));
    assert_eq!(
        bases,
        [
            (1, None),
            (2, says("1")),
            (0, None),
            (3, None),
            (4, says("3"))
        ]
    );
    assert_eq!(
        page(&mut home, "kept:a", None, None, false, tick(0)),
        Some((4, vec![2, 3, 4]))
    );
}

/// A subscriber that recovers is told a position. What came before it and has no offset must not follow.
#[test]
fn what_history_skips_has_its_place_in_the_order() {
    for channel in ["kept:a", "batch:a"] {
        let mut home = home();
        join(&mut home, channel, 0);
        for skip_history in [false, true, false] {
            let plain = submission(channel, None);
            let submission = Submission {
                skip_history,
                ..plain
            };
            home.handle_publish(submission, tick(0));
        }
        home.handle_time(tick(100));
        let mut publications = Vec::new();
        while let Some(effect) = home.poll_effect() {
            if let HomeEffect::Deliver { delivery, .. } = effect {
                publications.extend_from_slice(delivery.publications());
            }
        }
        let offsets: Vec<u64> = publications.iter().map(|one| one.offset()).collect();
        assert_eq!(offsets, [1, 0, 2], "{channel}");
        let had_by = |last| publications.iter().filter(move |one| one.is_had_by(last));
        assert_eq!([0, 1, 2].map(|last| had_by(last).count()), [0, 1, 3]);
    }
}

#[test]
fn a_batch_leaves_in_time_or_when_it_is_full() {
    let mut home = home();
    say(&mut home, "batch:a", "nobody waits", tick(0));
    assert!(matches!(drain(&mut home)[..], [HomeEffect::Deliver { .. }]));
    assert_eq!(join(&mut home, "batch:a", 2).offset, 1);
    home.handle_publish(submission("batch:a", Some(RequestId(1))), tick(10));
    say(&mut home, "batch:a", "", tick(11));
    assert!(matches!(
        drain(&mut home)[..],
        [HomeEffect::Published { .. }]
    ));
    // A shard that joins now has had the first two.
    assert_eq!(join(&mut home, "batch:a", 3).offset, 3);
    pass(&mut home, tick(13));
    assert!(drain(&mut home).is_empty());
    pass(&mut home, tick(14));
    let effects = drain(&mut home);
    let [
        HomeEffect::Deliver {
            delivery: Delivery::Batch(batch),
            shards,
        },
    ] = &effects[..]
    else {
        panic!("{effects:?}")
    };
    let delivery = Delivery::Batch(Arc::clone(batch));
    let publications = delivery.publications();
    let offsets: Vec<_> = publications.iter().map(|one| one.offset()).collect();
    assert_eq!((offsets, shards.iter().collect()), (vec![2, 3], vec![2, 3]));
    assert!(publications[1].delta_base().is_some());
    for publication in publications {
        assert!(!publication.note_shard_done() && publication.note_shard_done());
    }
    let large = "x".repeat(200 << 10);
    for what in [&*large, &large] {
        say(&mut home, "batch:a", what, tick(20));
    }
    assert_eq!(drain(&mut home).len(), 1, "full by its bytes");
    for _ in 0..256 {
        say(&mut home, "batch:a", "", tick(20));
    }
    assert_eq!(drain(&mut home).len(), 1, "full by its number");
    let permit = Permit::take(&Pool::new(10), 6, 0).expect("ten");
    let plain = submission("batch:a", None);
    home.handle_publish(Submission { permit, ..plain }, tick(20));
    assert_eq!(drain(&mut home).len(), 1, "the process holds too much");
    // The last subscriber leaves: nobody gets what waits, and its permits go back.
    say(&mut home, "loose:a", "", tick(20));
    home.handle_join("loose:a".into(), 1, 1, tick(20));
    say(&mut home, "loose:a", "", tick(20));
    home.handle_leave("loose:a", 1, tick(20));
    let effects = drain(&mut home);
    let [
        _,
        HomeEffect::Joined { .. },
        HomeEffect::Deliver { shards, .. },
    ] = &effects[..]
    else {
        panic!("{effects:?}")
    };
    assert!(shards.is_empty());
}

#[test]
fn users_are_announced_once() {
    let mut home = home();
    let event = |channel: &str, user: &str, change| PresenceEvent {
        channel: channel.into(),
        change,
        info: Arc::new(ClientInfo {
            user: user.into(),
            client: ClientId([0; 16]),
            connection_info: None,
            channel_info: None,
        }),
    };
    use PresenceChange::{Joined, Left};
    for (channel, announced) in [("loose:a", [1, 0, 0, 1, 1, 1]), ("kept:a", [1; 6])] {
        home.handle_presence_event(event(channel, "u", Joined));
        assert!(drain(&mut home).is_empty(), "nobody has subscribed");
        join(&mut home, channel, 0);
        let events = [
            ("u", Joined),
            ("u", Joined),
            ("u", Left),
            ("u", Left),
            ("", Joined),
            ("", Joined),
        ];
        let told = events.map(|(user, change)| {
            home.handle_presence_event(event(channel, user, change));
            drain(&mut home).len()
        });
        assert_eq!(told, announced, "{channel}");
    }
}

#[test]
fn the_oldest_publication_of_all_makes_room() {
    let mut home = home_with(20_000);
    let kilobyte = "x".repeat(1000);
    for n in 0..60_u64 {
        let channel = if n % 3 == 0 { "long:a" } else { "long:b" };
        say(&mut home, channel, &kilobyte, tick(n));
        drain(&mut home);
    }
    let stats = home.stats();
    assert!(stats.bytes <= 20_000 && stats.bytes > 18_000, "{stats:?}");
    assert_eq!(stats.publications as u64 + stats.evicted, 60);
    let kept = stats.publications as u64;
    let (_, a) = page(&mut home, "long:a", None, None, false, tick(60)).expect("a page");
    let (_, b) = page(&mut home, "long:b", None, None, false, tick(60)).expect("a page");
    assert_eq!((a.len() + b.len()) as u64, kept);
    assert!(a.len().abs_diff(b.len() / 2) <= 1, "of both, the oldest");
    assert_eq!((a.last(), b.last()), (Some(&20), Some(&40)));
}

/// Whoever may publish in one namespace fills the memory for all, and pushes out only what is its own.
#[test]
fn a_namespace_pushes_out_nothing_of_one_that_has_less() {
    let mut home = home_with(40_000);
    let kilobyte = "x".repeat(1000);
    for n in 0..8 {
        say(&mut home, "long:quiet", &kilobyte, tick(n));
    }
    for n in 0..200 {
        say(&mut home, &format!("kept:{n}"), &kilobyte, tick(20 + n));
        drain(&mut home);
        home.check();
    }
    let stats = home.stats();
    assert!(stats.bytes <= 40_000 && stats.evicted > 100, "{stats:?}");
    let (_, quiet) = page(&mut home, "long:quiet", None, None, false, tick(20)).expect("a page");
    assert_eq!(quiet.len(), 8, "it has less than the other");
    // Once it has as much, it makes room as well.
    for n in 0..200 {
        say(&mut home, "long:quiet", &kilobyte, tick(300 + n));
        drain(&mut home);
    }
    home.check();
    let (_, quiet) = page(&mut home, "long:quiet", None, None, false, tick(500)).expect("a page");
    let others = home.stats().publications - quiet.len();
    assert!(quiet.len().abs_diff(others) <= 2, "{others}");
}

/// Whoever may subscribe makes up names. Their records go before that of a channel which has a position and nothing else.
#[test]
fn names_that_are_made_up_make_no_position_forgotten() {
    let mut home = home_with(20_000);
    say(&mut home, "kept:a", "x", tick(1));
    home.handle_remove_history("kept:a", Asker::Session(TICKET), tick(1));
    drain(&mut home);
    let before = page(&mut home, "kept:a", None, None, false, tick(2)).expect("a page");
    assert_eq!(before, (1, vec![]));
    let epoch = home.position_of(home.names.get("kept:a").copied()).epoch;
    for n in 0..2_000 {
        let name = format!("kept:made-up-{n}");
        join(&mut home, &name, 0);
        home.handle_leave(&name, 0, tick(3));
        drain(&mut home);
    }
    home.check();
    assert!(home.stats().bytes <= 20_000 && home.len() < 60);
    let after = home.position_of(home.names.get("kept:a").copied());
    assert_eq!((after.epoch, after.offset), (epoch, 1));
}

#[test]
fn idle_channels_are_forgotten_before_they_crowd_out_history() {
    let mut home = home_with(20_000);
    let kilobyte = "x".repeat(1000);
    for n in 0..10 {
        say(&mut home, "long:a", &kilobyte, tick(n));
    }
    drain(&mut home);
    join(&mut home, "kept:busy", 0);
    for n in 0..500 {
        page(&mut home, &format!("kept:{n}"), None, None, false, tick(20));
        home.check();
    }
    let stats = home.stats();
    assert_eq!((stats.publications, stats.evicted), (10, 0));
    assert!(stats.bytes <= 20_000 && stats.channels < 30);
    let newest = page(&mut home, "kept:499", None, None, false, tick(20));
    assert_eq!(newest, Some((0, vec![])));
    // Even with no budget at all, channels with subscribers stay.
    let mut home = home_with(0);
    let position = join(&mut home, "kept:a", 0);
    say(&mut home, "kept:a", "", tick(0));
    drain(&mut home);
    assert_eq!(
        join(&mut home, "kept:a", 1),
        Position {
            offset: 1,
            ..position
        }
    );
    assert_eq!((home.stats().publications, home.len()), (0, 1));
    home.handle_leave("kept:a", 0, tick(0));
    home.handle_leave("kept:a", 1, tick(0));
    drain(&mut home);
    assert_eq!(home.len(), 0);
}

#[test]
fn the_work_of_one_call_is_bounded() {
    let mut home = home();
    for n in 0..600 {
        home.handle_join(format!("loose:{n}").into(), 0, 1, tick(0));
        say(&mut home, &format!("loose:{n}"), "", tick(0));
    }
    drain(&mut home);
    assert_eq!(home.next_deadline(), Some(Tick(4)));
    let mut calls = Vec::new();
    while home.next_deadline().is_some_and(|due| due <= Tick(4)) {
        home.handle_time(tick(4));
        calls.push(drain(&mut home).len());
    }
    assert_eq!(calls, [256, 256, 88]);
}
