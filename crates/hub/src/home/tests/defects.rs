//! A channel with a defect is forgotten, and its subscribers are told.

use super::{home, say, tick};
use crate::home::{Home, HomeEffect};
use crate::{DefectScope, Delivery, Plant, Position};

/// Joins a channel, and says at which position.
fn join(home: &mut Home, channel: &str, serial: u64) -> Position {
    home.handle_join(channel.into(), 1, serial, tick(0));
    match home.poll_effect() {
        Some(HomeEffect::Joined { position, .. }) => position,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_offset_that_comes_twice_ends_its_channel_and_no_other() {
    for channel in ["kept:a", "batch:a"] {
        let mut home = home();
        home.survive_defects();
        let before = join(&mut home, channel, 1);
        let other = join(&mut home, "kept:other", 1);
        for text in ["1", "2"] {
            say(&mut home, channel, text, tick(0));
        }
        home.plant(&Plant::Home(channel.into()));
        say(&mut home, channel, "3", tick(0));
        let (noted, more) = home.take_defects();
        assert_eq!((noted.len(), more), (1, 0));
        assert_eq!(noted[0].scope, DefectScope::Home(channel.into()));
        assert_eq!(noted[0].statement, "an order has each offset once");
        while home.poll_effect().is_some() {}
        assert!(home.describe_channel(channel).contains("2 publications"));
        home.end_channel(channel, tick(0));
        match home.poll_effect() {
            Some(HomeEffect::Deliver {
                delivery: Delivery::Lost(lost),
                shards,
            }) => assert_eq!((&*lost, shards.len()), (channel, 1)),
            other => panic!("{other:?}"),
        }
        assert!(home.poll_effect().is_none(), "what waited is lost, too");
        home.check();
        let after = join(&mut home, channel, 2);
        assert_ne!(after.epoch, before.epoch, "nobody recovers what was");
        assert_eq!(join(&mut home, "kept:other", 2).epoch, other.epoch);
        say(&mut home, channel, "4", tick(0));
        assert!(!home.has_defects());
        home.check();
    }
}

#[test]
fn a_channel_that_is_not_there_has_nothing_to_end() {
    let mut home = home();
    home.end_channel("kept:a", tick(0));
    assert!(home.poll_effect().is_none());
    home.check();
}
