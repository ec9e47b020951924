//! Channels that are read by themselves.

use super::logs::{at, publication, recover, settings};
use super::{TICK_NS, TICKET, drain, pass, submission};
use crate::home::{
    Home, HomeEffect, HomeSettings, LogEntry, LogEvent, LogId, NotRecovered, ReadHistory,
    RequestId, Wanting, Wish,
};
use crate::{Asker, Epoch, Now, RecoveryMode};

fn home() -> Home {
    let settings = HomeSettings {
        by_channel: true,
        ..settings()
    };
    Home::new(settings, Now(0))
}

fn wishes(home: &mut Home) -> Vec<(String, Wanting)> {
    let wishes = std::iter::from_fn(|| home.poll_wish());
    wishes
        .map(|Wish { channel, wanting }| (channel.to_string(), wanting))
        .collect()
}

fn say(home: &mut Home, channel: &str, offset: u64, event: LogEvent, now: Now) {
    let channel = Some(channel.into());
    home.handle_log(
        LogEntry {
            log: LogId(0),
            channel,
            offset,
            event,
        },
        now,
    );
}

fn catch_up(home: &mut Home, channel: &str, offset: u64, now: Now) {
    say(home, channel, 0, LogEvent::Began(Epoch::new(1)), now);
    say(home, channel, offset, LogEvent::CaughtUp { floor: 0 }, now);
    say(home, channel, offset, LogEvent::Whole, now);
}

fn minutes(count: u64) -> Now {
    Now(count * 60_000_000_000)
}

fn publication_of(channel: &str, offset: u64) -> LogEvent {
    publication(channel, offset, 0).event
}

#[test]
fn a_channel_is_wanted_from_its_first_join_and_joined_when_it_has_caught_up() {
    let mut home = home();
    home.handle_join("log:a".into(), 1, 5, Now(0));
    home.handle_join("log:a".into(), 0, 6, Now(0));
    assert!(drain(&mut home).is_empty());
    let wanted = [("log:a".to_owned(), Wanting::Hear)];
    assert_eq!(wishes(&mut home), wanted);
    // What concerns another channel, or all of the log, changes nothing.
    catch_up(&mut home, "log:b", 3, Now(0));
    assert!(drain(&mut home).is_empty());
    catch_up(&mut home, "log:a", 7, Now(0));
    let joined = drain(&mut home).into_iter().map(|effect| match effect {
        HomeEffect::Joined {
            shard, position, ..
        } => (shard, position),
        other => panic!("{other:?}"),
    });
    assert_eq!(joined.collect::<Vec<_>>(), [(0, at(7)), (1, at(7))]);
    assert!(wishes(&mut home).is_empty());
}

#[test]
fn a_channel_is_wanted_for_a_minute_after_its_last_use() {
    let mut home = home();
    home.handle_join("log:a".into(), 1, 5, Now(0));
    catch_up(&mut home, "log:a", 7, Now(0));
    drain(&mut home);
    wishes(&mut home);
    for minute in [1, 10] {
        pass(&mut home, minutes(minute));
        assert!(wishes(&mut home).is_empty(), "somebody has subscribed");
    }
    home.handle_leave("log:a", 1, minutes(10));
    pass(&mut home, Now(minutes(11).0 - TICK_NS));
    assert!(wishes(&mut home).is_empty());
    pass(&mut home, Now(minutes(11).0 + TICK_NS));
    let unwanted = [("log:a".to_owned(), Wanting::Nothing)];
    assert_eq!(wishes(&mut home), unwanted);
    assert!(home.is_empty(), "its history is the log's to keep");
    // What was on its way is of no use.
    let late = publication_of("log:a", 9);
    say(&mut home, "log:a", 9, late, minutes(11));
    assert!(drain(&mut home).is_empty() && home.is_empty());
    // Whoever comes back begins as the first one did.
    home.handle_join("log:a".into(), 1, 5, minutes(12));
    assert_eq!(wishes(&mut home), [("log:a".to_owned(), Wanting::Hear)]);
    let late = publication_of("log:a", 10);
    say(&mut home, "log:a", 10, late, minutes(12));
    say(&mut home, "log:a", 10, LogEvent::Whole, minutes(12));
    assert!(drain(&mut home).is_empty() && home.is_empty());
}

#[test]
fn a_history_that_is_read_is_wanted_for_a_minute() {
    let mut home = home();
    let read = |home: &mut Home, now| {
        home.handle_history(
            ReadHistory {
                channel: "log:a".into(),
                asker: Asker::Control(RequestId(1)),
                limit: None,
                since: None,
                reverse: false,
            },
            now,
        );
    };
    read(&mut home, Now(0));
    assert_eq!(wishes(&mut home), [("log:a".to_owned(), Wanting::Hear)]);
    say(
        &mut home,
        "log:a",
        0,
        LogEvent::Began(Epoch::new(1)),
        Now(0),
    );
    say(&mut home, "log:a", 4, publication_of("log:a", 4), Now(0));
    say(
        &mut home,
        "log:a",
        7,
        LogEvent::CaughtUp { floor: 0 },
        Now(0),
    );
    assert!(
        !drain(&mut home)
            .iter()
            .any(|effect| matches!(effect, HomeEffect::History { .. }))
    );
    say(&mut home, "log:a", 7, LogEvent::Whole, Now(0));
    assert!(
        drain(&mut home)
            .iter()
            .any(|effect| matches!(effect, HomeEffect::History { .. }))
    );
    // Each use begins the minute anew.
    let half = Now(minutes(1).0 / 2);
    read(&mut home, half);
    pass(&mut home, Now(minutes(1).0 + TICK_NS));
    assert!(wishes(&mut home).is_empty());
    pass(&mut home, minutes(2));
    assert_eq!(wishes(&mut home), [("log:a".to_owned(), Wanting::Nothing)]);
    assert!(home.is_empty());
}

#[test]
fn a_subscriber_who_has_seen_more_waits_until_the_channel_is_known_to_have_come_so_far() {
    let mut home = home();
    home.handle_join("log:a".into(), 1, 5, Now(0));
    catch_up(&mut home, "log:a", 7, Now(0));
    drain(&mut home);
    wishes(&mut home);
    let seen = recover("log:a", at(9), RecoveryMode::Stream);
    home.handle_recover(seen, Now(0));
    let effects = drain(&mut home);
    assert!(
        matches!(effects[..], [HomeEffect::Held { ticket }] if ticket == TICKET),
        "{effects:?}"
    );
    let confirm = [("log:a".to_owned(), Wanting::Confirm(9))];
    assert_eq!(wishes(&mut home), confirm);
    say(&mut home, "log:b", 9, LogEvent::Passed, Now(0));
    assert!(drain(&mut home).is_empty());
    say(&mut home, "log:a", 9, LogEvent::Passed, Now(0));
    let effects = drain(&mut home);
    let [HomeEffect::Recovered(recovered)] = &effects[..] else {
        panic!("{effects:?}")
    };
    assert_eq!(recovered.position, at(9));
    assert_eq!(recovered.publications.as_deref(), Ok(&[][..]));
}

#[test]
fn a_channel_that_lost_something_tells_its_own_subscribers() {
    let mut home = home();
    for channel in ["log:a", "log:b"] {
        home.handle_join(channel.into(), 1, 5, Now(0));
        catch_up(&mut home, channel, 7, Now(0));
    }
    drain(&mut home);
    say(&mut home, "log:a", 8, LogEvent::Lost, Now(0));
    let effects = drain(&mut home);
    assert_eq!(effects.len(), 1, "{effects:?}");
    let since = recover("log:a", at(7), RecoveryMode::Stream);
    home.handle_recover(since, Now(0));
    let effects = drain(&mut home);
    let [HomeEffect::Recovered(recovered)] = &effects[..] else {
        panic!("{effects:?}")
    };
    assert_eq!(recovered.publications, Err(NotRecovered::Lost));
}

#[test]
fn what_no_log_has_goes_to_subscribers_of_a_wanted_channel() {
    let mut home = home();
    home.handle_publish(submission("log:a", None), Now(0));
    assert!(drain(&mut home).is_empty() && home.is_empty());
    home.handle_join("log:a".into(), 1, 5, Now(0));
    catch_up(&mut home, "log:a", 7, Now(0));
    drain(&mut home);
    home.handle_publish(submission("log:a", None), Now(0));
    let effects = drain(&mut home);
    assert!(matches!(effects[..], [HomeEffect::Deliver { .. }]));
}
