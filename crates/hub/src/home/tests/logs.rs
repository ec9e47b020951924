//! Homes of channels that a log orders: random operations on several homes that read one log, against all that the log ever had.

use super::{TICK_NS, TICKET, drain, home_with, kept, pass, submission, text, tick};
use crate::home::{
    HistoryAnswer, Home, HomeEffect, HomeSettings, Kept, LogEntry, LogEvent, LogId, NotRecovered,
    Partitions, ReadHistory, Recover, RequestId, Since, StreamCommand, StreamRefused,
    StreamRequest, Submission,
};
use crate::{
    Asker, ChannelOptions, Delivery, Epoch, Namespaces, Now, Payload, Position, RecoveryMode,
    Ticket,
};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const LOG: LogId = LogId(0);
const CHANNELS: [&str; 3] = ["log:a", "log:b", "batched:a"];
const HOMES: usize = 3;
const SHARDS: usize = 2;
/// Publications of a channel that the log keeps.
const KEPT_BY_LOG: usize = 6;
/// Ticks for which it keeps them, as long as histories do.
const TTL: u64 = 100;

pub(super) fn settings() -> HomeSettings {
    let log = ChannelOptions {
        logs: Some(Partitions::one(LOG)),
        ..kept()
    };
    let batched = ChannelOptions {
        batch_delay: Duration::from_millis(200),
        ..log.clone()
    };
    let named = [("log", log), ("batched", batched)];
    let named = named.map(|(name, options)| (name.into(), options));
    HomeSettings {
        vacated_delay: None,
        epoch: Epoch::new(7),
        epoch_seed: 99,
        namespaces: Arc::new(Namespaces::new(ChannelOptions::default(), named)),
        logs: 1,
        by_channel: false,
        history_bytes_max: 1 << 20,
        batch_bytes_max: 256 << 10,
    }
}

pub(super) fn began(epoch: Epoch, offset: u64) -> LogEntry {
    let event = LogEvent::Began(epoch);
    LogEntry {
        log: LOG,
        channel: None,
        offset,
        event,
    }
}

pub(super) fn entry(offset: u64, event: LogEvent) -> LogEntry {
    LogEntry {
        log: LOG,
        channel: None,
        offset,
        event,
    }
}

pub(super) fn publication(channel: &str, offset: u64, age: u64) -> LogEntry {
    let submission = Submission {
        content: text(&offset.to_string()).into(),
        ..submission(channel, None)
    };
    let age = Duration::from_nanos(age * TICK_NS);
    entry(offset, LogEvent::Publication(Box::new(submission), age))
}

/// A home that has read an empty log.
pub(super) fn caught_up() -> Home {
    let mut home = Home::new(settings(), Now(0));
    home.handle_log(began(Epoch::new(1), 0), Now(0));
    home.handle_log(entry(0, LogEvent::CaughtUp { floor: 0 }), Now(0));
    home.handle_log(entry(0, LogEvent::Whole), Now(0));
    home
}

pub(super) fn recover(channel: &str, since: Position, mode: RecoveryMode) -> Recover {
    Recover {
        channel: channel.into(),
        ticket: TICKET,
        since: Since {
            offset: since.offset,
            epoch: since.epoch.as_str().into(),
        },
        mode,
        is_asked: true,
        max: 300,
    }
}

/// The position and the offsets of the next answer to a recovery; none if there is no answer yet.
pub(super) fn answered(home: &mut Home) -> Option<(Position, Option<Vec<u64>>)> {
    let recovered = drain(home).into_iter().find_map(|effect| match effect {
        HomeEffect::Recovered(recovered) => Some(recovered),
        _ => None,
    })?;
    let offsets = recovered.publications.ok().map(offsets_of);
    Some((recovered.position, offsets))
}

/// Offsets of publications, which say them too.
pub(super) fn offsets_of(kept: Vec<Kept>) -> Vec<u64> {
    let offset = |kept: Kept| {
        assert_eq!(
            kept.content.payload,
            Payload::Text(kept.offset.to_string().into())
        );
        kept.offset
    };
    kept.into_iter().map(offset).collect()
}

pub(super) fn at(offset: u64) -> Position {
    Position {
        epoch: Epoch::new(1),
        offset,
    }
}

#[test]
fn a_history_is_read_once_what_it_lacks_has_gone() {
    let mut home = Home::new(settings(), Now(0));
    home.handle_log(began(Epoch::new(1), 0), Now(0));
    home.handle_log(publication("log:a", 6, 0), Now(0));
    // The publication 8 of this channel went before it was read, for some that come behind 9.
    home.handle_log(entry(9, LogEvent::CaughtUp { floor: 8 }), Now(0));
    let request = ReadHistory {
        channel: "log:a".into(),
        asker: Asker::Session(TICKET),
        limit: None,
        since: None,
        reverse: false,
    };
    home.handle_history(request, Now(0));
    let effects = drain(&mut home);
    assert!(matches!(
        effects.last(),
        Some(HomeEffect::Held { ticket: TICKET })
    ));
    for offset in 10..13 {
        home.handle_log(publication("log:a", offset, 0), Now(0));
    }
    drain(&mut home);
    home.handle_log(entry(13, LogEvent::Whole), Now(0));
    let effects = drain(&mut home);
    let [
        HomeEffect::History {
            answer: HistoryAnswer::Page { publications, .. },
            ..
        },
    ] = &effects[..]
    else {
        panic!("{effects:?}")
    };
    assert_eq!(offsets_of(publications.clone()), [10, 11, 12]);
}

/// A home with all kinds of those who wait for a log that is not read: joins and recoveries of two shards, a history and a stream.
fn awaited() -> Home {
    let mut home = Home::new(settings(), Now(0));
    for (shard, came) in [(1, 0), (2, 30)] {
        home.handle_join("log:a".into(), shard, 5, tick(came));
        let ticket = Ticket {
            shard: u16::try_from(shard).expect("a small number"),
            ..TICKET
        };
        for channel in ["log:a", "log:b"] {
            let request = recover(channel, at(3), RecoveryMode::Stream);
            home.handle_recover(Recover { ticket, ..request }, tick(came));
        }
    }
    let late = recover("log:a", at(3), RecoveryMode::Stream);
    let late = Recover {
        ticket: Ticket { shard: 1, ..TICKET },
        ..late
    };
    home.handle_recover(late, tick(40));
    let asker = Asker::Control(RequestId(1));
    let history = ReadHistory {
        channel: "log:a".into(),
        asker,
        limit: None,
        since: None,
        reverse: false,
    };
    home.handle_history(history, tick(10));
    let describe = StreamRequest {
        channel: "log:a".into(),
        asker,
        command: StreamCommand::Describe,
    };
    home.handle_stream(describe, tick(10));
    drain(&mut home);
    home
}

/// All that wait for a log that stays away are told so, each once, and nothing piles up.
#[test]
fn nobody_waits_long_for_a_log_that_is_not_read() {
    let mut home = awaited();
    pass(&mut home, tick(49));
    assert!(drain(&mut home).is_empty());
    // Shard 1 waits no more, nor does anybody on it who recovers in the channel that it has joined, however late.
    pass(&mut home, tick(50));
    let effects = drain(&mut home);
    let [
        HomeEffect::Recovered(first),
        HomeEffect::Recovered(second),
        HomeEffect::Recovered(third),
        HomeEffect::NotJoined {
            shard: 1,
            serial: 5,
            ..
        },
    ] = &effects[..]
    else {
        panic!("{effects:?}")
    };
    for recovered in [first, second, third] {
        assert_eq!(recovered.publications, Err(NotRecovered::Behind));
        assert_eq!(recovered.ticket.shard, 1);
    }
    pass(&mut home, tick(60));
    let effects = drain(&mut home);
    let [
        HomeEffect::History { answer, .. },
        HomeEffect::Stream { answer: stream, .. },
    ] = &effects[..]
    else {
        panic!("{effects:?}")
    };
    assert_eq!(*answer, HistoryAnswer::Behind);
    assert_eq!(**stream, Err(StreamRefused::Behind));
    pass(&mut home, tick(80));
    assert_eq!(drain(&mut home).len(), 3);
    pass(&mut home, tick(90));
    assert!(drain(&mut home).is_empty());
    assert_eq!(home.next_deadline(), None);
    // Whoever joins again is told when the log has been read.
    home.handle_join("log:a".into(), 1, 6, tick(91));
    home.handle_log(began(Epoch::new(1), 0), tick(92));
    home.handle_log(entry(3, LogEvent::CaughtUp { floor: 0 }), tick(92));
    let effects = drain(&mut home);
    assert!(
        matches!(
            &effects[..],
            [HomeEffect::Joined {
                shard: 1,
                serial: 6,
                ..
            }]
        ),
        "{effects:?}"
    );
}

/// The time before the log was read counts: nobody waits once for its end, and then once more for what is behind it.
#[test]
fn who_has_waited_for_the_end_of_a_log_waits_no_longer_for_more_of_it() {
    let mut home = Home::new(settings(), Now(0));
    let request = recover("log:a", at(50), RecoveryMode::Stream);
    home.handle_recover(request, tick(0));
    home.handle_log(began(Epoch::new(1), 0), tick(40));
    home.handle_log(entry(3, LogEvent::CaughtUp { floor: 0 }), tick(40));
    drain(&mut home);
    pass(&mut home, tick(49));
    assert!(drain(&mut home).is_empty());
    pass(&mut home, tick(50));
    let effects = drain(&mut home);
    let [HomeEffect::Recovered(recovered)] = &effects[..] else {
        panic!("{effects:?}")
    };
    assert_eq!(recovered.publications, Err(NotRecovered::Behind));
}

#[test]
fn questions_wait_until_the_log_is_read() {
    let mut home = Home::new(settings(), Now(0));
    home.handle_join("log:a".into(), 1, 5, Now(0));
    home.handle_join("log:b".into(), 1, 6, Now(0));
    home.handle_leave("log:b", 1, Now(0));
    let request = recover("log:a", at(3), RecoveryMode::Stream);
    home.handle_recover(request, Now(0));
    home.handle_log(began(Epoch::new(1), 2), Now(0));
    home.handle_log(publication("log:a", 3, 0), Now(0));
    home.handle_log(publication("log:b", 4, 0), Now(0));
    home.handle_log(publication("log:a", 7, 0), Now(0));
    let (held, others): (Vec<_>, Vec<_>) = drain(&mut home)
        .into_iter()
        .partition(|effect| matches!(effect, HomeEffect::Held { .. }));
    assert_eq!(held.len(), 1);
    assert!(
        others.iter().all(
            |effect| matches!(effect, HomeEffect::Deliver { shards, .. } if shards.is_empty())
        )
    );
    home.handle_log(entry(8, LogEvent::CaughtUp { floor: 2 }), Now(0));
    let effects = drain(&mut home);
    let [
        HomeEffect::Joined {
            serial: 5,
            position,
            ..
        },
        HomeEffect::Recovered(recovered),
    ] = &effects[..]
    else {
        panic!("{effects:?}")
    };
    assert_eq!(*position, at(8));
    assert_eq!(recovered.publications.clone().map(offsets_of), Ok(vec![7]));
    // The channel that was left has no subscriber.
    home.handle_log(publication("log:b", 9, 0), Now(0));
    let effects = drain(&mut home);
    assert!(matches!(&effects[..], [HomeEffect::Deliver { shards, .. }] if shards.is_empty()));
}

#[test]
fn a_subscriber_that_has_seen_more_waits_for_the_log() {
    let mut home = caught_up();
    let request = recover("log:a", at(5), RecoveryMode::Stream);
    home.handle_recover(request.clone(), tick(1));
    home.handle_log(publication("log:a", 4, 0), tick(1));
    assert_eq!(answered(&mut home), None);
    // What another channel says counts, too.
    home.handle_log(entry(6, LogEvent::Passed), tick(2));
    assert_eq!(answered(&mut home), Some((at(6), Some(vec![]))));
    // A log that does not come does not hold anybody up for ever. What it has is not known, so nothing is said to be lost.
    for channel in ["log:a", "log:b"] {
        let request = recover(channel, at(50), RecoveryMode::Stream);
        home.handle_recover(request, tick(2));
    }
    pass(&mut home, tick(51));
    assert_eq!(answered(&mut home), None);
    pass(&mut home, tick(52));
    let answers = drain(&mut home);
    assert_eq!(answers.len(), 2, "they have waited together: {answers:?}");
    for answer in answers {
        let HomeEffect::Recovered(recovered) = answer else {
            panic!("{answer:?}")
        };
        assert_eq!(recovered.publications, Err(NotRecovered::Behind));
    }
}

#[test]
fn those_who_have_seen_more_are_answered_as_their_entries_come() {
    let mut home = caught_up();
    for offset in [9, 5, 7, 5] {
        let request = recover("log:a", at(offset), RecoveryMode::Stream);
        home.handle_recover(request, tick(1));
    }
    let held = drain(&mut home);
    assert_eq!(held.len(), 4);
    assert!(
        held.iter()
            .all(|effect| matches!(effect, HomeEffect::Held { ticket } if *ticket == TICKET))
    );
    for (offset, answers) in [(4, 0), (5, 2), (8, 1)] {
        home.handle_log(entry(offset, LogEvent::Passed), tick(2));
        assert_eq!(drain(&mut home).len(), answers, "at {offset}");
    }
    // What they have seen is of another epoch.
    home.handle_log(began(Epoch::new(2), 0), tick(3));
    assert_eq!(answered(&mut home).map(|(_, missed)| missed), Some(None));
    pass(&mut home, tick(200));
    assert!(drain(&mut home).is_empty(), "each is answered once");
}

#[test]
fn a_loss_ends_all_subscriptions_and_is_told_to_whoever_recovers() {
    let mut home = caught_up();
    home.handle_join("log:a".into(), 1, 5, Now(0));
    home.handle_log(publication("log:a", 1, 0), Now(0));
    home.handle_log(publication("log:b", 2, 0), Now(0));
    drain(&mut home);
    home.handle_log(entry(8, LogEvent::Lost), Now(0));
    let effects = drain(&mut home);
    let [HomeEffect::Deliver { delivery, shards }] = &effects[..] else {
        panic!("{effects:?}")
    };
    assert!(matches!(delivery, Delivery::Lost(channel) if **channel == *"log:a"));
    assert_eq!(shards.iter().collect::<Vec<_>>(), [1]);
    // The shard joins again, and its members recover.
    home.handle_leave("log:a", 1, Now(0));
    home.handle_join("log:a".into(), 1, 6, Now(0));
    drain(&mut home);
    for (channel, since, missed) in [
        ("log:a", 1, None),
        ("log:b", 2, None),
        ("log:c", 7, None),
        ("log:c", 8, Some(vec![])),
    ] {
        home.handle_recover(recover(channel, at(since), RecoveryMode::Stream), Now(0));
        assert_eq!(answered(&mut home), Some((at(8), missed)), "{channel}");
    }
    home.handle_log(publication("log:a", 9, 0), Now(0));
    let effects = drain(&mut home);
    assert!(matches!(&effects[..], [HomeEffect::Deliver { shards, .. }] if shards.len() == 1));
}

#[test]
fn a_loss_in_one_channel_leaves_the_others_alone() {
    let mut home = caught_up();
    for channel in ["log:a", "log:b"] {
        home.handle_join(channel.into(), 1, 5, Now(0));
    }
    home.handle_log(publication("log:a", 1, 0), Now(0));
    home.handle_log(publication("log:b", 2, 0), Now(0));
    drain(&mut home);
    home.handle_log(entry(3, LogEvent::LostIn("log:a".into())), Now(0));
    // Nobody has heard of this channel yet.
    home.handle_log(entry(4, LogEvent::LostIn("log:c".into())), Now(0));
    let effects = drain(&mut home);
    let [HomeEffect::Deliver { delivery, .. }] = &effects[..] else {
        panic!("{effects:?}")
    };
    assert!(matches!(delivery, Delivery::Lost(channel) if **channel == *"log:a"));
    for (channel, since, missed) in [
        ("log:a", 2, None),
        ("log:a", 3, Some(vec![])),
        ("log:b", 1, Some(vec![2])),
        ("log:c", 3, None),
        ("log:c", 4, Some(vec![])),
    ] {
        home.handle_recover(recover(channel, at(since), RecoveryMode::Stream), Now(0));
        assert_eq!(answered(&mut home), Some((at(4), missed)), "{channel}");
    }
}

#[test]
fn a_log_that_begins_again_has_another_epoch() {
    let mut home = caught_up();
    home.handle_join("log:a".into(), 1, 5, Now(0));
    home.handle_log(publication("log:a", 9, 0), Now(0));
    drain(&mut home);
    let other = Epoch::new(2);
    home.handle_log(began(other, 3), Now(0));
    let effects = drain(&mut home);
    assert!(matches!(
        &effects[..],
        [HomeEffect::Deliver {
            delivery: Delivery::Lost(_),
            ..
        }]
    ));
    // Nobody is answered before the log is read anew.
    home.handle_recover(recover("log:a", at(9), RecoveryMode::Stream), Now(0));
    assert_eq!(answered(&mut home), None);
    home.handle_log(entry(3, LogEvent::CaughtUp { floor: 3 }), Now(0));
    assert!(matches!(answered(&mut home), Some((_, None))));
    home.handle_leave("log:a", 1, Now(0));
    // Offsets that were used before come again.
    home.handle_log(publication("log:a", 5, 0), Now(0));
    drain(&mut home);
    home.handle_recover(recover("log:a", at(5), RecoveryMode::Stream), Now(0));
    let position = Position {
        epoch: other,
        offset: 5,
    };
    assert_eq!(answered(&mut home), Some((position, None)));
    let begin = Position {
        epoch: other,
        offset: 3,
    };
    home.handle_recover(recover("log:a", begin, RecoveryMode::Stream), Now(0));
    assert_eq!(answered(&mut home), Some((position, Some(vec![5]))));
}

#[test]
fn the_newest_publication_is_recovered_by_those_who_do_not_have_it() {
    let mut home = caught_up();
    home.handle_log(publication("log:a", 4, 0), Now(0));
    home.handle_log(entry(9, LogEvent::Passed), Now(0));
    drain(&mut home);
    for (since, missed) in [(0, vec![4]), (3, vec![4]), (4, vec![]), (9, vec![])] {
        home.handle_recover(recover("log:a", at(since), RecoveryMode::Cache), Now(0));
        assert_eq!(answered(&mut home), Some((at(9), Some(missed))), "{since}");
    }
}

#[test]
fn what_history_skips_comes_between_and_has_no_place() {
    let mut home = caught_up();
    home.handle_join("log:a".into(), 1, 5, Now(0));
    home.handle_log(publication("log:a", 4, 0), Now(0));
    let skipped = Submission {
        skip_history: true,
        ..submission("log:a", None)
    };
    home.handle_publish(skipped, Now(0));
    let offsets: Vec<_> = drain(&mut home)
        .iter()
        .filter_map(|effect| match effect {
            HomeEffect::Deliver { delivery, .. } => Some(delivery.offset()),
            _ => None,
        })
        .collect();
    assert_eq!(offsets, [4, 0]);
}

#[test]
fn channels_without_history_are_ordered_at_home() {
    let mut home = home_with(1 << 20);
    let mut logged = caught_up();
    for home in [&mut home, &mut logged] {
        home.handle_join("plain".into(), 1, 5, Now(0));
        home.handle_publish(submission("plain", None), Now(0));
        let effects = drain(home);
        let [
            HomeEffect::Joined { position, .. },
            HomeEffect::Deliver { delivery, .. },
        ] = &effects[..]
        else {
            panic!("{effects:?}")
        };
        assert_eq!((position.epoch, position.offset), (Epoch::new(7), 0));
        assert_eq!(delivery.offset(), 1);
    }
}

/// A home with a log for `log:`, and another one for `other:`. Both were empty.
/// These must stay as they are: nodes of different versions share their streams.
#[test]
fn a_channel_is_in_the_same_partition_for_ever() {
    let logs = Partitions {
        first: LogId(5),
        count: 8,
    };
    let of = |channel: &str| logs.of(channel).0 - 5;
    let channels = ["", "a", "news:a", "news:b", "chat:r\u{f6}m"];
    assert_eq!(channels.map(of), [1, 0, 3, 6, 6]);
    let mut count = [0; 8];
    for number in 0..8_000 {
        count[usize::from(of(&format!("news:{number}")))] += 1;
    }
    assert!(
        count.iter().all(|count| (800..1_200).contains(count)),
        "{count:?}"
    );
    assert!(
        channels
            .iter()
            .all(|name| Partitions::one(LogId(3)).of(name) == LogId(3))
    );
}

fn with_two_logs() -> Home {
    let of = |log| ChannelOptions {
        logs: Some(Partitions::one(log)),
        ..kept()
    };
    let (one, other) = (LOG, LogId(1));
    let named = [("log", of(one)), ("other", of(other))];
    let named = named.map(|(name, options)| (name.into(), options));
    let settings = HomeSettings {
        namespaces: Arc::new(Namespaces::new(ChannelOptions::default(), named)),
        logs: 2,
        ..settings()
    };
    let mut home = Home::new(settings, Now(0));
    for log in [one, other] {
        for event in [
            LogEvent::Began(Epoch::new(1)),
            LogEvent::CaughtUp { floor: 0 },
            LogEvent::Whole,
        ] {
            let offset = 0;
            home.handle_log(
                LogEntry {
                    log,
                    channel: None,
                    offset,
                    event,
                },
                Now(0),
            );
        }
    }
    home
}

#[test]
fn a_log_says_nothing_about_channels_that_are_not_its_own() {
    let mut home = with_two_logs();
    for channel in ["other:a", "plain"] {
        home.handle_join(channel.into(), 1, 5, Now(0));
    }
    let of_other = |entry: LogEntry| LogEntry {
        log: LogId(1),
        ..entry
    };
    home.handle_log(of_other(publication("other:a", 50, 0)), Now(0));
    home.handle_publish(submission("plain", None), Now(0));
    drain(&mut home);
    // Before its last offset, and after it.
    for (offset, channel) in [
        (3, "other:a"),
        (14, "plain"),
        (70, "other:a"),
        (81, "plain"),
    ] {
        home.handle_log(publication(channel, offset, 0), Now(0));
        let removed = LogEvent::Removed {
            channel: channel.into(),
            behind: None,
        };
        home.handle_log(entry(offset + 10, removed), Now(0));
    }
    assert!(drain(&mut home).is_empty());
    home.handle_log(of_other(publication("other:a", 51, 0)), Now(0));
    let effects = drain(&mut home);
    assert!(matches!(&effects[..], [HomeEffect::Deliver { shards, .. }] if shards.len() == 1));
    home.handle_recover(recover("other:a", at(0), RecoveryMode::Stream), Now(0));
    assert_eq!(answered(&mut home), Some((at(51), Some(vec![50, 51]))));
}

#[test]
fn a_publication_without_a_place_in_its_log_takes_no_offset() {
    let mut home = caught_up();
    home.handle_log(publication("log:a", 4, 0), Now(0));
    home.handle_publish(submission("log:a", None), Now(0));
    home.handle_log(publication("log:a", 5, 0), Now(0));
    drain(&mut home);
    home.handle_recover(recover("log:a", at(0), RecoveryMode::Stream), Now(0));
    assert_eq!(answered(&mut home), Some((at(5), Some(vec![4, 5]))));
}

#[derive(Clone, Debug)]
enum Op {
    Publish {
        channel: usize,
    },
    Remove {
        channel: usize,
    },
    /// Something that no channel is told stands in the log.
    Beat,
    /// A home reads so many entries.
    Read {
        home: usize,
        count: usize,
    },
    Join {
        home: usize,
        channel: usize,
        shard: usize,
    },
    Leave {
        home: usize,
        channel: usize,
        shard: usize,
    },
    /// A position that a home told, as many tellings ago, is recovered from at this home.
    Recover {
        home: usize,
        ago: usize,
    },
    History {
        home: usize,
        channel: usize,
    },
    /// A home goes, and another one comes that has to read the log.
    Restart {
        home: usize,
    },
    Pass {
        ticks: u64,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let (home, channel, shard) = (|| 0..HOMES, || 0..CHANNELS.len(), || 0..SHARDS);
    prop_oneof![
        8 => channel().prop_map(|channel| Op::Publish { channel }),
        1 => channel().prop_map(|channel| Op::Remove { channel }),
        3 => Just(Op::Beat),
        8 => (home(), 1..8_usize).prop_map(|(home, count)| Op::Read { home, count }),
        3 => (home(), channel(), shard())
            .prop_map(|(home, channel, shard)| Op::Join { home, channel, shard }),
        2 => (home(), channel(), shard())
            .prop_map(|(home, channel, shard)| Op::Leave { home, channel, shard }),
        6 => (home(), 0..12_usize).prop_map(|(home, ago)| Op::Recover { home, ago }),
        2 => (home(), channel()).prop_map(|(home, channel)| Op::History { home, channel }),
        1 => home().prop_map(|home| Op::Restart { home }),
        4 => prop_oneof![4 => 0..10_u64, 1 => 0..150_u64].prop_map(|ticks| Op::Pass { ticks }),
    ]
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    Publication(usize),
    Removed(usize),
    Beat,
}

/// All that a log ever had, and what of it is still there.
#[derive(Debug, Default)]
struct Log {
    /// By offset from 1 on: when, what, and whether it is still there.
    all: Vec<(u64, Said, bool)>,
}

impl Log {
    fn last(&self) -> u64 {
        self.all.len() as u64
    }

    fn append(&mut self, said: Said, now: u64) {
        self.all.push((now, said, true));
        if let Said::Publication(channel) | Said::Removed(channel) = said {
            let is_removal = said == Said::Removed(channel);
            let mut left = if is_removal { 1 } else { KEPT_BY_LOG };
            for (_, said, is_there) in self.all.iter_mut().rev() {
                if matches!(said, Said::Publication(of) | Said::Removed(of) if *of == channel) {
                    *is_there &= left > 0;
                    left = left.saturating_sub(1);
                }
            }
        }
    }

    fn expire(&mut self, now: u64) {
        for (at, _, is_there) in &mut self.all {
            *is_there &= *at + TTL > now;
        }
    }

    /// The first offset that is still there; the next one if none is.
    fn first(&self) -> u64 {
        let first = self.all.iter().position(|(.., is_there)| *is_there);
        first.map_or(self.last() + 1, |index| index as u64 + 1)
    }

    /// Publications of a channel after an offset, up to another one, that no removal has passed.
    fn published(&self, channel: usize, after: u64, to: u64) -> Vec<u64> {
        let range = (1..).zip(&self.all).filter(|(offset, _)| *offset <= to);
        let mut offsets = Vec::new();
        for (offset, (_, said, _)) in range {
            match said {
                Said::Publication(of) if *of == channel => offsets.push(offset),
                Said::Removed(of) if *of == channel => offsets.clear(),
                _ => {}
            }
        }
        offsets.retain(|offset| *offset > after);
        offsets
    }

    /// Publications of a channel after an offset, up to another one, also those that were removed.
    fn published_ever(&self, channel: usize, after: u64, to: u64) -> Vec<u64> {
        let range = (1..).zip(&self.all);
        let of_channel = range.filter(|(_, (_, said, _))| *said == Said::Publication(channel));
        let offsets = of_channel.map(|(offset, _)| offset);
        offsets
            .filter(|offset| *offset > after && *offset <= to)
            .collect()
    }

    fn has_removal(&self, channel: usize, after: u64) -> bool {
        let mut later = (1..).zip(&self.all).filter(|(offset, _)| *offset > after);
        later.any(|(_, (_, said, _))| *said == Said::Removed(channel))
    }

    /// Whether a publication is as young as histories keep them.
    fn is_fresh(&self, offset: u64, now: u64) -> bool {
        let mut all = (1..).zip(&self.all);
        all.any(|(one, (at, ..))| one == offset && *at + TTL > now)
    }
}

/// A home and how far it has read.
struct Reader {
    home: Home,
    read: u64,
    /// It began to read at this offset, and is caught up behind this one.
    began: u64,
    /// The end of the log when it began to read. What is missing behind that went since then, unread.
    end: u64,
    /// The end of the log when all of that was read: what went unread before did so for something up to here.
    target: Option<u64>,
    /// What is missing up to here may have gone for something behind that.
    floor: u64,
    is_caught_up: bool,
    /// The end of the log when the home was caught up: what had holes in histories by then stands up to there.
    whole: u64,
    is_whole: bool,
    views: BTreeMap<(usize, usize), u64>,
    serial: u64,
}

impl Reader {
    fn new(log: &Log, now: u64) -> Self {
        let mut home = Home::new(settings(), tick(now));
        let began_at = log.first() - 1;
        home.handle_log(began(Epoch::new(1), began_at), tick(now));
        let mut reader = Self {
            home,
            read: began_at,
            began: began_at,
            end: log.last(),
            target: None,
            floor: 0,
            is_caught_up: false,
            whole: 0,
            is_whole: false,
            views: BTreeMap::new(),
            serial: 0,
        };
        reader.catch_up(log, now);
        reader
    }

    fn catch_up(&mut self, log: &Log, now: u64) {
        if self.read >= self.end && self.target.is_none() {
            self.target = Some(log.last());
            self.floor = log.first() - 1;
        }
        let has_read = self.target.is_some_and(|target| self.read >= target);
        if has_read && !self.is_caught_up {
            self.is_caught_up = true;
            let floor = self.floor;
            let event = LogEvent::CaughtUp { floor };
            self.home.handle_log(entry(self.read, event), tick(now));
            self.began = self.began.max(floor);
            self.read = self.read.max(floor);
            self.whole = log.last();
        }
        if self.is_caught_up && !self.is_whole && self.read >= self.whole {
            self.tell_whole(now);
        }
    }

    fn tell_whole(&mut self, now: u64) {
        self.is_whole = true;
        self.home
            .handle_log(entry(self.read, LogEvent::Whole), tick(now));
    }

    /// Reads the next entry that is there. What has gone in between is lost.
    fn read(&mut self, log: &Log, now: u64) {
        let later = (1..)
            .zip(&log.all)
            .filter(|(offset, _)| *offset > self.read);
        let Some((offset, (at, said, _))) = later.into_iter().find(|(_, (.., is_there))| *is_there)
        else {
            return;
        };
        // As `Reading` of the broker has it.
        let is_hole = offset > self.read + 1;
        if is_hole && self.is_caught_up {
            let event = LogEvent::Lost;
            self.home.handle_log(entry(offset - 1, event), tick(now));
            self.began = offset - 1;
            self.tell_whole(now);
        } else if is_hole && self.target.is_some() {
            self.floor = offset - 1;
        }
        let entry = match said {
            Said::Publication(channel) => publication(CHANNELS[*channel], offset, now - at),
            Said::Removed(channel) => {
                let before = log.published_ever(*channel, 0, offset);
                let removed = LogEvent::Removed {
                    channel: CHANNELS[*channel].into(),
                    behind: Some(before.last().copied().unwrap_or(0)),
                };
                entry(offset, removed)
            }
            Said::Beat => entry(offset, LogEvent::Passed),
        };
        self.home.handle_log(entry, tick(now));
        self.read = offset;
        self.catch_up(log, now);
    }
}

struct Test {
    log: Log,
    readers: Vec<Reader>,
    now: u64,
    /// Channels and positions that homes have told.
    told: Vec<(usize, u64)>,
}

impl Test {
    fn run(&mut self, op: &Op) {
        let now = self.now;
        match *op {
            Op::Publish { channel } => self.log.append(Said::Publication(channel), now),
            Op::Remove { channel } => self.log.append(Said::Removed(channel), now),
            Op::Beat => self.log.append(Said::Beat, now),
            Op::Read { home, count } => {
                for _ in 0..count {
                    self.readers[home].read(&self.log, now);
                    self.follow(home);
                }
            }
            Op::Join {
                home,
                channel,
                shard,
            } => self.join(home, channel, shard),
            Op::Leave {
                home,
                channel,
                shard,
            } => {
                let reader = &mut self.readers[home];
                if reader.is_caught_up && reader.views.remove(&(channel, shard)).is_some() {
                    let channel = CHANNELS[channel];
                    reader.home.handle_leave(channel, shard, tick(now));
                }
            }
            Op::Recover { home, ago } => self.recover(home, ago),
            Op::History { home, channel } => self.history(home, channel),
            Op::Restart { home } => self.readers[home] = Reader::new(&self.log, now),
            Op::Pass { ticks } => {
                self.now += ticks;
                self.log.expire(self.now);
            }
        }
        for home in 0..HOMES {
            pass(&mut self.readers[home].home, tick(self.now));
            self.follow(home);
        }
    }

    fn join(&mut self, home: usize, channel: usize, shard: usize) {
        let now = tick(self.now);
        let reader = &mut self.readers[home];
        if !reader.is_caught_up || reader.views.contains_key(&(channel, shard)) {
            return;
        }
        reader.serial += 1;
        let (name, serial) = (CHANNELS[channel].into(), reader.serial);
        reader.home.handle_join(name, shard, serial, now);
        let Some(HomeEffect::Joined { position, .. }) = reader.home.poll_effect() else {
            panic!("a join is answered")
        };
        assert_eq!(position, at(reader.read));
        reader.views.insert((channel, shard), position.offset);
        self.told.push((channel, position.offset));
    }

    /// A subscriber gets all that it missed, or is told that something is missing.
    fn recover(&mut self, home: usize, ago: usize) {
        let index = self.told.len().checked_sub(ago + 1);
        let Some(&(channel, since)) = index.and_then(|index| self.told.get(index)) else {
            return;
        };
        let now = self.now;
        let reader = &mut self.readers[home];
        if !reader.is_caught_up {
            return;
        }
        let request = recover(CHANNELS[channel], at(since), RecoveryMode::Stream);
        reader.home.handle_recover(request, tick(now));
        let Some((position, missed)) = answered_alone(&mut reader.home) else {
            assert!(since > reader.read, "only those who have seen more wait");
            // The next entries, or time, answer it.
            return;
        };
        assert_eq!(position, at(reader.read));
        let published = self.log.published(channel, since, reader.read);
        let is_removed = self.log.has_removal(channel, since);
        if let Some(missed) = &missed {
            let all = self.log.published_ever(channel, since, reader.read);
            assert_eq!(*missed, all, "at {since}");
        }
        // A home that has read all since then knows what was missed, as long as its history is long enough.
        let are_kept = published.len() <= 3
            && published
                .iter()
                .all(|offset| self.log.is_fresh(*offset, now));
        if reader.began <= since && are_kept && !is_removed {
            assert_eq!(missed, Some(published), "at {since}");
        }
        self.told.push((channel, position.offset));
    }

    fn history(&mut self, home: usize, channel: usize) {
        let reader = &mut self.readers[home];
        if !reader.is_whole {
            return;
        }
        let request = ReadHistory {
            channel: CHANNELS[channel].into(),
            asker: Asker::Session(TICKET),
            limit: None,
            since: None,
            reverse: false,
        };
        reader.home.handle_history(request, tick(self.now));
        let Some(HomeEffect::History {
            answer:
                HistoryAnswer::Page {
                    position,
                    publications,
                },
            ..
        }) = reader.home.poll_effect()
        else {
            panic!("a reader is answered")
        };
        assert_eq!(position, at(reader.read));
        // The newest ones, without a hole.
        let published = self.log.published(channel, 0, reader.read);
        let read = offsets_of(publications);
        assert!(published.ends_with(&read), "{read:?}: {published:?}");
    }

    /// Each shard gets all publications after its position, in their order, once.
    fn follow(&mut self, home: usize) {
        let reader = &mut self.readers[home];
        for effect in drain(&mut reader.home) {
            let HomeEffect::Deliver { delivery, shards } = effect else {
                assert!(
                    matches!(effect, HomeEffect::Recovered(_) | HomeEffect::Held { .. }),
                    "{effect:?}"
                );
                continue;
            };
            if let Delivery::Lost(lost) = &delivery {
                let lost = CHANNELS.iter().position(|channel| *channel == &**lost);
                let lost = lost.expect("one of ours");
                for shard in shards.iter() {
                    assert!(reader.views.remove(&(lost, shard)).is_some());
                }
            }
            for publication in delivery.publications() {
                let name = &**publication.channel();
                let channel = CHANNELS.iter().position(|channel| *channel == name);
                let channel = channel.expect("one of ours");
                for shard in shards.iter() {
                    let view = reader.views.get_mut(&(channel, shard)).expect("joined");
                    let offset = publication.offset();
                    if offset > *view {
                        let between = (1..)
                            .zip(&self.log.all)
                            .filter(|(one, _)| *one > *view && *one < offset)
                            .filter(|(_, (_, said, _))| *said == Said::Publication(channel));
                        assert_eq!(between.count(), 0, "{name}: after {view} came {offset}");
                        *view = offset;
                    } else {
                        assert!(matches!(delivery, Delivery::Batch(_)));
                    }
                }
            }
        }
    }
}

/// As [`answered`]; what else the home says stays for later.
fn answered_alone(home: &mut Home) -> Option<(Position, Option<Vec<u64>>)> {
    match home.poll_effect()? {
        HomeEffect::Recovered(recovered) => {
            let offsets = recovered.publications.ok().map(offsets_of);
            Some((recovered.position, offsets))
        }
        HomeEffect::Held { .. } => None,
        other => panic!("{other:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 512 }))]

    #[test]
    fn homes_that_read_one_log_tell_one_order(ops in prop::collection::vec(op(), 1..120)) {
        let log = Log::default();
        let readers = (0..HOMES).map(|_| Reader::new(&log, 0)).collect();
        let mut test = Test { log, readers, now: 0, told: Vec::new() };
        for op in &ops {
            test.run(op);
        }
    }
}
