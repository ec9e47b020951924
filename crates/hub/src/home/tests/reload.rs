//! Other options for channels that exist.

use super::{at, drain, home, kept, page, pass, recover, recovered, say, tick};
use crate::home::{Home, HomeEffect};
use crate::{ChannelOptions, Delivery, JoinLeaveBy, Namespaces, Now, RecoveryMode};
use std::sync::Arc;
use std::time::Duration;

fn reload(
    home: &mut Home,
    named: impl IntoIterator<Item = (&'static str, ChannelOptions)>,
    now: Now,
) {
    let named = named.into_iter();
    let named = named.map(|(name, options)| (name.into(), options));
    let namespaces = Namespaces::new(ChannelOptions::default(), named);
    home.handle_namespaces(Arc::new(namespaces));
    while home.is_reloading() {
        // One record at a time, so that every stop in between is met.
        home.reload_records(now, 1);
        home.check();
    }
}

fn join(home: &mut Home, channel: &str, now: Now) {
    home.handle_join(channel.into(), 1, 1, now);
    assert!(matches!(
        home.poll_effect(),
        Some(HomeEffect::Joined { .. })
    ));
}

#[test]
fn a_history_takes_its_new_sizes_and_times() {
    let mut home = home();
    for nth in ["1", "2", "3"] {
        say(&mut home, "kept:a", nth, tick(0));
    }
    drain(&mut home);
    let smaller = ChannelOptions {
        history_size: 2,
        history_ttl: Duration::from_secs(1),
        ..kept()
    };
    reload(&mut home, [("kept", smaller)], tick(10));
    assert_eq!(
        page(&mut home, "kept:a", None, None, false, tick(10)),
        Some((3, vec![2, 3]))
    );
    assert_eq!(
        page(&mut home, "kept:a", None, None, false, tick(20)),
        Some((3, vec![]))
    );
    let larger = ChannelOptions {
        history_size: 5,
        ..kept()
    };
    reload(&mut home, [("kept", larger)], tick(20));
    for nth in ["4", "5", "6", "7"] {
        say(&mut home, "kept:a", nth, tick(21));
    }
    drain(&mut home);
    assert_eq!(
        page(&mut home, "kept:a", None, None, false, tick(21)),
        Some((7, vec![4, 5, 6, 7]))
    );
}

#[test]
fn a_channel_in_use_gets_a_history_without_a_gap() {
    let mut home = home();
    join(&mut home, "loose:a", tick(0));
    say(&mut home, "loose:a", "1", tick(0));
    pass(&mut home, tick(10));
    drain(&mut home);
    let before = home.position_of(home.names.get("loose:a").copied());
    reload(&mut home, [("loose", kept())], tick(10));
    let (position, missed) = recovered(
        &mut home,
        recover("loose:a", before.offset, "", RecoveryMode::Stream),
        tick(10),
    );
    assert_eq!((position, missed), (before, Some(vec![])));
    say(&mut home, "loose:a", "2", tick(11));
    drain(&mut home);
    let (position, missed) = recovered(
        &mut home,
        recover("loose:a", before.offset, "", RecoveryMode::Stream),
        tick(11),
    );
    assert_eq!(position.epoch, before.epoch);
    assert_eq!(missed, Some(vec![before.offset + 1]));
    // What was published before cannot be recovered: it was not kept.
    let (_, missed) = recovered(
        &mut home,
        recover("loose:a", 0, "", RecoveryMode::Stream),
        tick(11),
    );
    assert_eq!(missed, None);
}

#[test]
fn offsets_of_the_common_epoch_never_fall() {
    let mut home = home();
    join(&mut home, "loose:a", tick(0));
    reload(&mut home, [("loose", kept())], tick(0));
    for _ in 0..9 {
        say(&mut home, "loose:a", "x", tick(1));
    }
    home.handle_leave("loose:a", 1, tick(1));
    pass(&mut home, tick(2000));
    drain(&mut home);
    assert!(home.is_empty());
    reload(
        &mut home,
        [("loose", ChannelOptions::default())],
        tick(2000),
    );
    join(&mut home, "loose:a", tick(2000));
    assert_eq!(home.position_of(home.names.get("loose:a").copied()), at(9));
}

#[test]
fn a_channel_loses_its_history_and_keeps_its_subscribers() {
    let mut home = home();
    join(&mut home, "kept:a", tick(0));
    say(&mut home, "kept:a", "1", tick(0));
    say(&mut home, "kept:unused", "1", tick(0));
    drain(&mut home);
    let before = home.position_of(home.names.get("kept:a").copied());
    reload(&mut home, [("kept", ChannelOptions::default())], tick(1));
    assert_eq!((home.len(), home.stats().bytes), (1, 0));
    say(&mut home, "kept:a", "2", tick(1));
    let delivered = drain(&mut home).into_iter().any(|effect| {
        matches!(effect, HomeEffect::Deliver { delivery: Delivery::Publication(one), shards }
            if one.offset() == before.offset + 1 && shards.len() == 1)
    });
    assert!(delivered);
    // A second life of the same record.
    reload(&mut home, [("kept", kept())], tick(2));
    say(&mut home, "kept:a", "3", tick(2));
    home.handle_leave("kept:a", 1, tick(2));
    drain(&mut home);
    assert_eq!(
        page(&mut home, "kept:a", None, None, false, tick(2)),
        Some((3, vec![3]))
    );
}

#[test]
fn a_batch_that_waits_leaves_and_a_removed_namespace_changes_nothing() {
    let mut home = home();
    for channel in ["batch:a", "kept:a"] {
        join(&mut home, channel, tick(0));
        say(&mut home, channel, "1", tick(0));
    }
    let before = drain(&mut home);
    assert!(!before.iter().any(|effect| matches!(
        effect,
        HomeEffect::Deliver {
            delivery: Delivery::Batch(_),
            ..
        }
    )));
    reload(&mut home, [("batch", kept())], tick(1));
    let after = drain(&mut home);
    assert!(matches!(
        &after[..],
        [HomeEffect::Deliver {
            delivery: Delivery::Batch(_),
            ..
        }]
    ));
    assert_eq!(
        page(&mut home, "kept:a", None, None, false, tick(1)),
        Some((1, vec![1]))
    );
}

#[test]
fn whose_joins_are_announced_changes_once_nobody_is_subscribed() {
    let mut home = home();
    join(&mut home, "kept:a", tick(0));
    let by_user = ChannelOptions {
        join_leave_by: JoinLeaveBy::User,
        ..kept()
    };
    reload(&mut home, [("kept", by_user)], tick(0));
    let by = |home: &Home| {
        let index = home.names["kept:a"];
        home.channels[index].options.join_leave_by
    };
    assert_eq!(by(&home), JoinLeaveBy::Client);
    home.handle_leave("kept:a", 1, tick(0));
    assert_eq!(by(&home), JoinLeaveBy::User);
}
