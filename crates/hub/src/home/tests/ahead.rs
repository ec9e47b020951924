//! Questions of those who have seen more of a log than their home has read.

use super::logs::{
    answered, at, began, caught_up, entry, offsets_of, publication, recover, settings,
};
use super::{TICKET, drain, pass, tick};
use crate::home::{
    HistoryAnswer, Home, HomeEffect, LogEvent, NotRecovered, ReadFrom, ReadHistory, ReadRefused,
    ReadStream, Since, StreamRead,
};
use crate::{Asker, Epoch, Now, Position, RecoveryMode};
use myriad_wire::streams::StreamOffset;
use std::time::Duration;

/// Why the next recovery that is answered failed; none if there is no answer yet.
fn not_recovered(home: &mut Home) -> Option<NotRecovered> {
    drain(home).into_iter().find_map(|effect| match effect {
        HomeEffect::Recovered(recovered) => recovered.publications.err(),
        _ => None,
    })
}

#[test]
fn a_position_behind_the_end_of_a_log_is_lost_once_the_log_gives_out_an_earlier_place() {
    let mut home = caught_up();
    let seconds = |count| LogEvent::Beat(Duration::from_secs(count));
    let request = recover("log:a", at(50), RecoveryMode::Stream);
    home.handle_recover(request, tick(0));
    let since = StreamOffset {
        epoch: Epoch::new(1).letters(),
        offset: 50,
    };
    home.handle_log(publication("log:a", 4, 0), tick(1));
    drain(&mut home);
    home.handle_read_stream(read_after("log:a", since), tick(1));
    // It may have been stored before they came, or not long enough after that.
    home.handle_log(entry(9, seconds(2)), tick(40));
    home.handle_log(entry(9, seconds(0)), tick(20));
    // This one stands behind all that they have seen: they will be answered when it is read.
    home.handle_log(entry(51, seconds(0)), tick(40));
    assert!(drain(&mut home).is_empty());
    home.handle_log(entry(9, seconds(0)), tick(40));
    let effects = drain(&mut home);
    let [
        HomeEffect::Recovered(recovered),
        HomeEffect::StreamRead { answer, .. },
    ] = &effects[..]
    else {
        panic!("{effects:?}")
    };
    assert_eq!(recovered.publications, Err(NotRecovered::Lost));
    assert!(matches!(**answer, Err(ReadRefused::Unrecoverable(_))));
}

#[test]
fn a_home_that_does_not_hear_its_log_knows_no_other_epoch() {
    let mut home = caught_up();
    home.handle_log(publication("log:a", 4, 0), Now(0));
    drain(&mut home);
    let since = Position {
        epoch: Epoch::new(2),
        offset: 3,
    };
    let after = StreamOffset {
        epoch: since.epoch.letters(),
        offset: 3,
    };
    for is_heard in [true, false, true] {
        home.handle_log(entry(4, LogEvent::Heard(is_heard)), Now(0));
        home.handle_recover(recover("log:a", since, RecoveryMode::Stream), Now(0));
        let expected = if is_heard {
            NotRecovered::Lost
        } else {
            NotRecovered::Behind
        };
        assert_eq!(not_recovered(&mut home), Some(expected));
        home.handle_read_stream(read_after("log:a", after), Now(0));
        let gone = matches!(read(&mut home), Err(ReadRefused::Unrecoverable(_)));
        assert_eq!(gone, is_heard);
        // A channel of which it has heard nothing may be there all the same.
        home.handle_read_stream(read_after("log:new", after), Now(0));
        let missing = read(&mut home) == Err(ReadRefused::NotFound);
        assert_eq!(missing, is_heard);
    }
}

fn read_after(channel: &str, after: StreamOffset) -> ReadStream {
    ReadStream {
        channel: channel.into(),
        asker: Asker::Session(TICKET),
        from: ReadFrom::After(after),
        bytes_max: 1 << 20,
        publications_max: 100,
    }
}

/// The answer to the reader of a stream.
fn read(home: &mut Home) -> StreamRead {
    match drain(home).pop() {
        Some(HomeEffect::StreamRead { answer, .. }) => *answer,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_reader_that_has_seen_more_waits_for_the_log() {
    let mut home = caught_up();
    home.handle_log(publication("log:a", 4, 0), tick(1));
    drain(&mut home);
    let after = |offset| StreamOffset {
        epoch: Epoch::new(1).letters(),
        offset,
    };
    home.handle_read_stream(read_after("log:a", after(6)), tick(1));
    assert!(drain(&mut home).is_empty());
    // Its offset is what another node had read of the log then, and no publication of the channel.
    home.handle_log(publication("log:b", 7, 0), tick(2));
    let page = read(&mut home).expect("a page");
    assert!(page.publications.is_empty() && page.is_at_tail());
    assert_eq!((page.start, page.next), (at(6), at(6)));
    home.handle_log(publication("log:a", 9, 0), tick(2));
    drain(&mut home);
    home.handle_read_stream(read_after("log:a", after(6)), tick(2));
    let page = read(&mut home).expect("a page");
    assert_eq!(offsets_of(page.publications.clone()), [9]);
    assert!(page.is_at_tail());
    home.handle_read_stream(read_after("log:a", after(10)), tick(2));
    pass(&mut home, tick(52));
    assert_eq!(read(&mut home), Err(ReadRefused::Behind));
}

#[test]
fn a_history_is_read_when_the_log_has_come_as_far_as_its_reader() {
    let mut home = caught_up();
    let request = |since: u64| ReadHistory {
        channel: "log:a".into(),
        asker: Asker::Session(TICKET),
        limit: None,
        since: Some(Since {
            offset: since,
            epoch: "".into(),
        }),
        reverse: false,
    };
    let offsets = |home: &mut Home| match drain(home).pop() {
        Some(HomeEffect::History {
            answer:
                HistoryAnswer::Page {
                    position,
                    publications,
                },
            ..
        }) => Some((position, offsets_of(publications))),
        _ => None,
    };
    home.handle_history(request(5), tick(1));
    assert_eq!(offsets(&mut home), None);
    home.handle_log(publication("log:a", 6, 0), tick(1));
    home.handle_history(request(5), tick(1));
    assert_eq!(offsets(&mut home), Some((at(6), vec![6])));
    home.handle_history(request(60), tick(1));
    assert_eq!(offsets(&mut home), None);
    pass(&mut home, tick(51));
    assert_eq!(offsets(&mut home), Some((at(6), vec![])));
}

#[test]
fn a_removal_says_how_far_nothing_was_missed() {
    // Each has read the log from its beginning, or came when the history had gone.
    for behind in [None, Some(4)] {
        let mut home = Home::new(settings(), Now(0));
        home.handle_log(began(Epoch::new(1), 0), Now(0));
        let channel = "log:a".into();
        home.handle_log(entry(7, LogEvent::Removed { channel, behind }), Now(0));
        home.handle_log(entry(8, LogEvent::CaughtUp { floor: 2 }), Now(0));
        home.handle_log(entry(8, LogEvent::Whole), Now(0));
        home.handle_log(publication("log:a", 9, 0), Now(0));
        drain(&mut home);
        let is_said = behind.is_some();
        for (since, is_whole) in [(3, false), (4, is_said), (6, is_said), (7, true)] {
            home.handle_recover(recover("log:a", at(since), RecoveryMode::Stream), Now(0));
            let missed = is_whole.then(|| vec![9]);
            assert_eq!(answered(&mut home), Some((at(9), missed)), "{since}");
        }
    }
}
