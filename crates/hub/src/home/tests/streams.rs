//! Streams, case by case.

use super::{TICK_NS, TICKET, drain, home, home_with, pass, say, submission, tick};
use crate::home::{Home, HomeEffect};
use crate::{
    AppendToStream, Asker, Content, CreateStream, Delivery, Now, Payload, Permit, Pool, Position,
    Producer, ProducerPosition, ReadFrom, ReadRefused, ReadStream, RequestId, StreamAnswer,
    StreamCommand, StreamDone, StreamEntry, StreamExpiry, StreamPage, StreamRead, StreamRefused,
    StreamRequest, StreamState,
};
use myriad_wire::streams::{MediaType, StreamOffset};
use std::time::Duration;

const ASKER: Asker = Asker::Control(RequestId(77));

fn media_type(text: &str) -> MediaType {
    MediaType::parse(text).expect("a media type")
}

pub(super) fn entries(texts: &[&str]) -> Vec<StreamEntry> {
    let entry = |text: &&str| StreamEntry {
        content: Content::new(Payload::Text((*text).into())).into(),
        permit: Permit::take(&Pool::new(1000), 1, 0).expect("room"),
    };
    texts.iter().map(entry).collect()
}

pub(super) fn plain() -> CreateStream {
    CreateStream {
        content_type: media_type("text/plain"),
        expiry: StreamExpiry::Never,
        expires_in: Duration::ZERO,
        is_closed: false,
        entries: Vec::new(),
    }
}

pub(super) fn append(texts: &[&str]) -> AppendToStream {
    AppendToStream {
        content_type: media_type("text/plain"),
        entries: entries(texts),
        by: crate::Appender::Application("".into()),
        producer: None,
        stream_seq: None,
        closes: false,
    }
}

fn by(epoch: u64, seq: u64) -> Option<Producer> {
    let id = "p".into();
    Some(Producer { id, epoch, seq })
}

/// Asks, and takes the answer, which comes first.
pub(super) fn ask(
    home: &mut Home,
    channel: &str,
    command: StreamCommand,
    now: Now,
) -> StreamAnswer {
    home.handle_stream(
        StreamRequest {
            channel: channel.into(),
            asker: ASKER,
            command,
        },
        now,
    );
    loop {
        match home.poll_effect() {
            Some(HomeEffect::Stream { asker, answer }) => {
                assert_eq!(asker, ASKER);
                return *answer;
            }
            // A stream whose time was over before.
            Some(HomeEffect::Deliver { delivery, .. }) => {
                assert!(matches!(delivery, Delivery::StreamEnd(_)));
            }
            other => panic!("{other:?}"),
        }
    }
}

fn create(home: &mut Home, channel: &str, stream: CreateStream, now: Now) -> StreamAnswer {
    ask(home, channel, StreamCommand::Create(stream), now)
}

fn append_to(home: &mut Home, channel: &str, data: AppendToStream, now: Now) -> StreamAnswer {
    let answer = ask(home, channel, StreamCommand::Append(data), now);
    drain(home);
    answer
}

fn describe(home: &mut Home, channel: &str, now: Now) -> Option<StreamState> {
    match ask(home, channel, StreamCommand::Describe, now) {
        Ok(StreamDone::Described(state)) => Some(state),
        Err(StreamRefused::NotFound) => None,
        other => panic!("{other:?}"),
    }
}

pub(super) fn read_at_most(
    home: &mut Home,
    channel: &str,
    from: ReadFrom,
    publications_max: u32,
    now: Now,
) -> StreamRead {
    let request = ReadStream {
        channel: channel.into(),
        asker: Asker::Session(TICKET),
        from,
        bytes_max: 1 << 20,
        publications_max,
    };
    home.handle_read_stream(request, now);
    loop {
        match home.poll_effect() {
            Some(HomeEffect::StreamRead { asker, answer }) => {
                assert_eq!(asker, Asker::Session(TICKET));
                return *answer;
            }
            Some(HomeEffect::Deliver { delivery, .. }) => {
                assert!(matches!(delivery, Delivery::StreamEnd(_)));
            }
            other => panic!("{other:?}"),
        }
    }
}

fn read(home: &mut Home, channel: &str, from: ReadFrom, now: Now) -> StreamRead {
    read_at_most(home, channel, from, u32::MAX, now)
}

fn page(home: &mut Home, channel: &str, from: ReadFrom, now: Now) -> (StreamPage, Vec<String>) {
    let page = read(home, channel, from, now).expect("a page");
    let texts = page.publications.iter().map(|kept| {
        let bytes = kept.content.payload.bytes();
        String::from_utf8_lossy(bytes).into_owned()
    });
    let texts = texts.collect();
    (page, texts)
}

fn after(position: Position) -> ReadFrom {
    ReadFrom::After(position.stream_offset())
}

fn created(answer: StreamAnswer) -> StreamState {
    match answer {
        Ok(StreamDone::Created(state)) => state,
        other => panic!("{other:?}"),
    }
}

/// Kinds of what is delivered, with shards: publications by their count, ends by their kind.
fn told(home: &mut Home) -> Vec<(String, usize)> {
    drain(home)
        .into_iter()
        .filter_map(|effect| match effect {
            HomeEffect::Deliver { delivery, shards } => {
                let what = match &delivery {
                    Delivery::StreamEnd(end) => format!("{:?} at {}", end.kind, end.tail.offset),
                    other => format!("{}", other.publications().len()),
                };
                Some((what, shards.len()))
            }
            _ => None,
        })
        .collect()
}

#[test]
fn a_stream_is_created_once() {
    let mut home = home();
    let now = tick(1);
    assert_eq!(describe(&mut home, "kept:a", now), None);
    let state = created(create(&mut home, "kept:a", plain(), now));
    assert_eq!(state.tail.offset, 0);
    assert!(!state.is_closed);
    let again = create(&mut home, "kept:a", plain(), now);
    assert_eq!(again, Ok(StreamDone::Existed(state.clone())));
    let others = [
        CreateStream {
            content_type: MediaType::json(),
            ..plain()
        },
        CreateStream {
            expiry: StreamExpiry::Idle(5),
            ..plain()
        },
        CreateStream {
            expiry: StreamExpiry::At(5),
            ..plain()
        },
        CreateStream {
            is_closed: true,
            ..plain()
        },
    ];
    for other in others {
        let answer = create(&mut home, "kept:a", other, now);
        assert_eq!(answer, Err(StreamRefused::Differs(state.clone())));
    }
    assert_eq!(describe(&mut home, "kept:a", now), Some(state));
    assert_eq!(
        create(&mut home, "plain", plain(), now),
        Err(StreamRefused::NoHistory)
    );
}

#[test]
fn appends_are_publications_and_publications_are_appended() {
    let mut home = home();
    let now = tick(1);
    home.handle_join("long:a".into(), 2, 1, now);
    drain(&mut home);
    let start = created(create(
        &mut home,
        "long:a",
        CreateStream {
            entries: entries(&["a"]),
            ..plain()
        },
        now,
    ));
    assert_eq!(start.tail.offset, 1);
    assert_eq!(told(&mut home), [("1".into(), 1)]);
    let answer = ask(
        &mut home,
        "long:a",
        StreamCommand::Append(append(&["b", "c", "d"])),
        now,
    );
    let Ok(StreamDone::Appended {
        state,
        producer: None,
        count: 3,
    }) = answer
    else {
        panic!("{answer:?}")
    };
    assert_eq!(state.tail.offset, 4);
    assert_eq!(told(&mut home), [("3".into(), 1)]);
    say(&mut home, "long:a", "e", now);
    assert_eq!(told(&mut home), [("1".into(), 1)]);
    let (whole, texts) = page(&mut home, "long:a", ReadFrom::Start, now);
    assert_eq!(texts, ["a", "b", "c", "d", "e"]);
    assert!(whole.is_at_tail() && !whole.is_end());
    let (_, texts) = page(&mut home, "long:a", after(state.tail), now);
    assert_eq!(texts, ["e"]);
    let (tail, texts) = page(&mut home, "long:a", ReadFrom::Now, now);
    assert!(texts.is_empty() && tail.is_at_tail());
    let part = read_at_most(&mut home, "long:a", after(start.tail), 2, now).expect("a page");
    assert_eq!((part.start.offset, part.next.offset), (1, 3));
    assert!(!part.is_at_tail());
}

#[test]
fn what_was_published_with_history_is_a_stream_of_json() {
    let mut home = home();
    let now = tick(1);
    say(&mut home, "kept:a", "1", now);
    say(&mut home, "plain", "1", now);
    drain(&mut home);
    let state = describe(&mut home, "kept:a", now).expect("a stream");
    assert!(state.content_type.is_json());
    assert_eq!(describe(&mut home, "plain", now), None);
    let read = read(&mut home, "plain", ReadFrom::Start, now);
    assert_eq!(read, Err(ReadRefused::NotFound));
    assert!(matches!(
        append_to(&mut home, "kept:a", append(&["text"]), now),
        Err(StreamRefused::ContentType(_))
    ));
    let json = AppendToStream {
        content_type: MediaType::json(),
        ..append(&["2"])
    };
    assert!(append_to(&mut home, "kept:a", json, now).is_ok());
}

#[test]
fn what_history_no_longer_holds_is_told() {
    let mut home = home();
    let now = tick(1);
    let begin = created(create(&mut home, "kept:a", plain(), now)).tail;
    append_to(&mut home, "kept:a", append(&["1", "2", "3", "4"]), now).expect("appended");
    let Err(ReadRefused::Unrecoverable(state)) = read(&mut home, "kept:a", after(begin), now)
    else {
        panic!("the first is gone")
    };
    assert_eq!(state.earliest.offset, 1);
    let (_, texts) = page(&mut home, "kept:a", after(state.earliest), now);
    assert_eq!(texts, ["2", "3", "4"]);
    let (_, texts) = page(&mut home, "kept:a", ReadFrom::Start, now);
    assert_eq!(texts, ["2", "3", "4"]);
    // They are too old now, and no timer has fired.
    let later = tick(101);
    let gone = read(&mut home, "kept:a", after(state.earliest), later);
    assert!(matches!(gone, Err(ReadRefused::Unrecoverable(state)) if state.earliest == state.tail));
    let ahead = StreamOffset {
        offset: 5,
        ..state.tail.stream_offset()
    };
    let ahead = read(&mut home, "kept:a", ReadFrom::After(ahead), later);
    assert_eq!(ahead, Err(ReadRefused::InvalidOffset));
    let other = StreamOffset {
        epoch: *b"aaaaaaaa",
        offset: 4,
    };
    let other = read(&mut home, "kept:a", ReadFrom::After(other), later);
    assert!(matches!(other, Err(ReadRefused::Unrecoverable(_))));
}

#[test]
fn a_closed_stream_takes_nothing_and_its_close_can_be_repeated() {
    let mut home = home();
    let now = tick(1);
    created(create(&mut home, "kept:a", plain(), now));
    home.handle_join("kept:a".into(), 0, 1, now);
    drain(&mut home);
    let close = |texts: &[&str], producer| AppendToStream {
        closes: true,
        producer,
        ..append(texts)
    };
    let first = ask(
        &mut home,
        "kept:a",
        StreamCommand::Append(close(&["end"], by(0, 0))),
        now,
    );
    let Ok(StreamDone::Appended {
        state,
        producer,
        count: 1,
    }) = first
    else {
        panic!("{first:?}")
    };
    assert!(state.is_closed);
    assert_eq!(producer, Some(ProducerPosition { epoch: 0, seq: 0 }));
    assert_eq!(
        told(&mut home),
        [("1".into(), 1), ("Closed at 1".into(), 1)]
    );
    let repeat = append_to(&mut home, "kept:a", close(&["other"], by(0, 0)), now);
    let repeated = Ok(StreamDone::Repeated {
        state: state.clone(),
        producer,
    });
    assert_eq!(repeat, repeated);
    let plainly = append_to(&mut home, "kept:a", close(&[], None), now);
    let repeated = Ok(StreamDone::Repeated {
        state: state.clone(),
        producer: None,
    });
    assert_eq!(plainly, repeated);
    for refused in [
        close(&["x"], None),
        append(&["x"]),
        close(&[], by(0, 1)),
        close(&["x"], by(1, 0)),
    ] {
        let answer = append_to(&mut home, "kept:a", refused, now);
        assert_eq!(answer, Err(StreamRefused::Closed(state.clone())));
    }
    home.handle_publish(submission("kept:a", Some(RequestId(1))), now);
    let effects = drain(&mut home);
    assert!(matches!(effects[..], [HomeEffect::PublishRefused { .. }]));
    let (page, texts) = page(&mut home, "kept:a", ReadFrom::Start, now);
    assert!(page.is_end());
    assert_eq!(texts, ["end"]);
}

#[test]
fn a_repeat_of_a_producer_appends_nothing() {
    let mut home = home();
    let now = tick(1);
    created(create(&mut home, "kept:a", plain(), now));
    let send = |home: &mut Home, producer, seq: Option<&str>| {
        let data = AppendToStream {
            producer,
            stream_seq: seq.map(Into::into),
            ..append(&["x"])
        };
        append_to(home, "kept:a", data, now)
    };
    assert!(matches!(
        send(&mut home, by(0, 0), Some("b")),
        Ok(StreamDone::Appended { .. })
    ));
    // The producer's repeat counts before the sequence of the stream.
    assert!(matches!(
        send(&mut home, by(0, 0), Some("b")),
        Ok(StreamDone::Repeated { .. })
    ));
    let regressed = Err(StreamRefused::StreamSeq { last: "b".into() });
    assert_eq!(send(&mut home, by(0, 1), Some("b")), regressed);
    assert_eq!(send(&mut home, None, Some("a")), regressed);
    // What was refused was not noted.
    assert!(matches!(
        send(&mut home, by(0, 1), Some("ba")),
        Ok(StreamDone::Appended { .. })
    ));
    assert_eq!(
        send(&mut home, by(0, 3), None),
        Err(StreamRefused::ProducerGap {
            expected: 2,
            received: 3
        })
    );
    assert_eq!(
        send(&mut home, by(2, 1), None),
        Err(StreamRefused::ProducerBegin)
    );
    assert!(send(&mut home, by(2, 0), None).is_ok());
    assert_eq!(
        send(&mut home, by(1, 0), None),
        Err(StreamRefused::StaleProducer { epoch: 2 })
    );
    assert_eq!(
        describe(&mut home, "kept:a", now)
            .expect("a stream")
            .tail
            .offset,
        3
    );
}

#[test]
fn a_deleted_stream_is_another_one_when_it_comes_back() {
    for has_subscriber in [false, true] {
        let mut home = home();
        let now = tick(1);
        let wish = CreateStream {
            entries: entries(&["old"]),
            ..plain()
        };
        let old = created(create(&mut home, "kept:a", wish, now));
        drain(&mut home);
        if has_subscriber {
            home.handle_join("kept:a".into(), 0, 1, now);
            drain(&mut home);
        }
        let deleted = ask(&mut home, "kept:a", StreamCommand::Delete, now);
        assert_eq!(deleted, Ok(StreamDone::Deleted));
        let ends = told(&mut home);
        assert_eq!(ends.len(), usize::from(has_subscriber), "{ends:?}");
        assert_eq!(describe(&mut home, "kept:a", now), None);
        let gone = read(&mut home, "kept:a", after(old.tail), now);
        assert_eq!(gone, Err(ReadRefused::NotFound));
        let again = ask(&mut home, "kept:a", StreamCommand::Delete, now);
        assert_eq!(again, Err(StreamRefused::NotFound));
        let wish = CreateStream {
            content_type: MediaType::octets(),
            entries: entries(&["new"]),
            ..plain()
        };
        let new = created(create(&mut home, "kept:a", wish, now));
        drain(&mut home);
        assert_eq!(new.tail.epoch == old.tail.epoch, has_subscriber);
        let (_, texts) = page(&mut home, "kept:a", ReadFrom::Start, now);
        assert_eq!(texts, ["new"]);
        let begin = Position {
            offset: 0,
            ..old.tail
        };
        for of_old in [begin, old.tail] {
            let gone = read(&mut home, "kept:a", after(of_old), now);
            let Err(ReadRefused::Unrecoverable(state)) = gone else {
                panic!("{gone:?}");
            };
            let on = read(&mut home, "kept:a", after(state.earliest), now).expect("a way on");
            assert_eq!(on.publications.len(), 1);
        }
    }
}

#[test]
fn an_empty_stream_has_no_offset_of_the_one_before() {
    let mut home = home();
    let now = tick(1);
    home.handle_join("kept:a".into(), 0, 1, now);
    drain(&mut home);
    let mut offsets = Vec::new();
    for _ in 0..3 {
        let new = created(create(&mut home, "kept:a", plain(), now));
        for old in &offsets {
            let gone = read(&mut home, "kept:a", after(*old), now);
            assert!(matches!(gone, Err(ReadRefused::Unrecoverable(_))));
        }
        read(&mut home, "kept:a", after(new.tail), now).expect("an empty page");
        offsets.push(new.tail);
        ask(&mut home, "kept:a", StreamCommand::Delete, now).expect("deleted");
        drain(&mut home);
    }
}

/// A client that names the application's producer has one of its own. It neither passes for it nor shuts it out, and its `Stream-Seq`
/// counts among clients only.
#[test]
fn a_client_takes_nothing_of_the_applications_producer() {
    let mut home = home();
    let now = tick(1);
    created(create(&mut home, "long:a", plain(), now));
    let of = |who: &crate::Appender, epoch, seq, text: &str, order: &str| AppendToStream {
        by: who.clone(),
        producer: by(epoch, seq),
        stream_seq: Some(order.into()),
        ..append(&[text])
    };
    let (application, stranger) = (
        crate::Appender::Application("".into()),
        crate::Appender::Anonymous,
    );
    for (who, epoch, seq, text, order) in [
        (&application, 0, 0, "one", "1"),
        (&stranger, 0, 0, "foreign", "z"),
        (&stranger, Producer::NUMBER_MAX, 0, "foreign", "zz"),
        (&application, 0, 1, "two", "2"),
        (&application, 1, 0, "three", "3"),
    ] {
        let appended = append_to(&mut home, "long:a", of(who, epoch, seq, text, order), now);
        assert!(
            matches!(appended, Ok(StreamDone::Appended { .. })),
            "{text}: {appended:?}"
        );
    }
    let (_, texts) = page(&mut home, "long:a", ReadFrom::Start, now);
    assert_eq!(texts, ["one", "foreign", "foreign", "two", "three"]);
    let closing = AppendToStream {
        closes: true,
        ..of(&application, 1, 1, "end", "4")
    };
    append_to(&mut home, "long:a", closing, now).expect("closed");
    // The same numbers are no repeat of it if they come from somebody else.
    let again = append_to(&mut home, "long:a", of(&stranger, 1, 1, "end", "4"), now);
    assert!(matches!(again, Err(StreamRefused::Closed(_))), "{again:?}");
}

/// An append by a producer that nobody has seen before.
fn by_new_producer(n: usize) -> AppendToStream {
    AppendToStream {
        producer: Some(Producer {
            id: format!("{n:0>200}").into(),
            epoch: 0,
            seq: 0,
        }),
        ..append(&["x"])
    }
}

#[test]
fn producers_take_a_part_of_the_budget_at_most() {
    const BYTES_MAX: u64 = 160_000;
    for has_subscriber in [false, true] {
        let mut home = home_with(BYTES_MAX);
        let now = tick(1);
        let wish = CreateStream {
            entries: entries(&["kept"]),
            ..plain()
        };
        created(create(&mut home, "long:other", wish, now));
        drain(&mut home);
        for channel in ["kept:a", "kept:b"] {
            created(create(&mut home, channel, plain(), now));
            if has_subscriber {
                home.handle_join(channel.into(), 0, 1, now);
                drain(&mut home);
            }
            for n in 0..600 {
                append_to(&mut home, channel, by_new_producer(n), now).expect("appended");
            }
        }
        home.check_budget();
        assert!(home.stats().bytes <= BYTES_MAX, "{}", home.stats().bytes);
        let (_, texts) = page(&mut home, "long:other", ReadFrom::Start, now);
        assert_eq!(texts, ["kept"], "producers push out no publications");
        // The last one is known, and the first one is not.
        let again = append_to(&mut home, "kept:b", by_new_producer(599), now);
        assert!(
            matches!(again, Ok(StreamDone::Repeated { .. })),
            "{again:?}"
        );
        let next = AppendToStream {
            producer: Some(Producer {
                seq: 1,
                ..by_new_producer(0).producer.expect("one")
            }),
            ..append(&["x"])
        };
        let refused = append_to(&mut home, "kept:a", next, now);
        assert!(matches!(refused, Err(StreamRefused::ProducerGap { .. })));
    }
}

#[test]
fn producers_that_were_forgotten_for_their_age_count_no_more() {
    const WEEK: u64 = 7 * 24 * 3_600_000;
    let mut home = home();
    home.handle_join("kept:a".into(), 0, 1, tick(1));
    drain(&mut home);
    created(create(&mut home, "kept:a", plain(), tick(1)));
    for n in 0..10 {
        append_to(&mut home, "kept:a", by_new_producer(n), tick(1)).expect("appended");
    }
    let later = Now::at(tick(1).tick().plus_ms(WEEK));
    append_to(&mut home, "kept:a", by_new_producer(10), later).expect("appended");
    home.check_budget();
}

#[test]
fn an_idle_stream_ends_and_a_look_at_it_is_no_use() {
    let mut home = home();
    let second = 1_000_000_000 / TICK_NS;
    let wish = || CreateStream {
        expiry: StreamExpiry::Idle(2),
        ..plain()
    };
    created(create(&mut home, "kept:a", wish(), tick(0)));
    let uses = [second, 2 * second, 3 * second];
    append_to(&mut home, "kept:a", append(&["x"]), tick(uses[0])).expect("appended");
    read(&mut home, "kept:a", ReadFrom::Now, tick(uses[1])).expect("a page");
    let close = AppendToStream {
        closes: true,
        ..append(&[])
    };
    append_to(&mut home, "kept:a", close, tick(uses[2])).expect("closed");
    let end = uses[2] + 2 * second;
    assert!(describe(&mut home, "kept:a", tick(end - 1)).is_some());
    // Whether or not its timer has fired.
    assert_eq!(describe(&mut home, "kept:a", tick(end)), None);
    created(create(&mut home, "kept:a", wish(), tick(end)));
    pass(&mut home, tick(end + 2 * second));
    assert_eq!((home.len(), home.stats().bytes), (0, 0));
}

#[test]
fn a_stream_in_use_ends_at_its_time_only() {
    let mut home = home();
    let second = 1_000_000_000 / TICK_NS;
    for (channel, expiry) in [
        ("kept:idle", StreamExpiry::Idle(1)),
        ("kept:at", StreamExpiry::At(9)),
    ] {
        let wish = CreateStream {
            expiry,
            expires_in: Duration::from_secs(1),
            ..plain()
        };
        created(create(&mut home, channel, wish, tick(0)));
        home.handle_join(channel.into(), 0, 1, tick(0));
        drain(&mut home);
    }
    pass(&mut home, tick(second));
    assert_eq!(told(&mut home), [("Deleted at 1".into(), 1)]);
    assert_eq!(describe(&mut home, "kept:at", tick(second)), None);
    assert!(describe(&mut home, "kept:idle", tick(second)).is_some());
    home.handle_leave("kept:idle", 0, tick(5 * second));
    assert!(describe(&mut home, "kept:idle", tick(6 * second - 1)).is_some());
    assert_eq!(describe(&mut home, "kept:idle", tick(6 * second)), None);
}

#[test]
fn an_end_comes_behind_what_waits_to_be_delivered() {
    let mut home = home();
    let now = tick(1);
    home.handle_join("batch:a".into(), 0, 1, now);
    drain(&mut home);
    created(create(&mut home, "batch:a", plain(), now));
    let close = AppendToStream {
        closes: true,
        ..append(&["a", "b"])
    };
    ask(&mut home, "batch:a", StreamCommand::Append(close), now).expect("closed");
    assert_eq!(
        told(&mut home),
        [("2".into(), 1), ("Closed at 2".into(), 1)]
    );
}
