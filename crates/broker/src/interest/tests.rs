//! Random histories of a stream that loses, repeats and delays what it republishes, read by one node: each channel is told all of it, in
//! order, or that something is missing.

use super::hearing::HELD_MAX;
use super::*;
use crate::envelope::MESSAGE_OVERHEAD;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// Messages of a channel that the stream keeps.
const KEPT: usize = 4;
const CHANNELS: [&str; 3] = ["a", "b", "c"];

/// What happens.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// A message is stored in a channel, and republished, or not.
    Store {
        channel: usize,
        fate: Fate,
    },
    /// All messages of a channel go: they are too old. That takes many audits, unless the node stands still for so long.
    Expire {
        channel: usize,
        is_frozen: bool,
    },
    /// A history is removed: a message takes the place of all before it.
    Remove {
        channel: usize,
    },
    Want {
        channel: usize,
    },
    Forget {
        channel: usize,
    },
    Confirm {
        channel: usize,
    },
    /// The oldest task that needs the servers is done.
    Work {
        lag: u64,
    },
    /// What waits on the connection comes.
    Hear,
    Audit,
    LookAgain,
    /// The connection breaks: the node listens anew.
    Cut,
    /// The node listens anew, to the whole stream if it did not before.
    ListenOtherwise,
    /// The stream loses its last messages, and has another epoch.
    Lose {
        count: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Sent,
    Lost,
    Twice,
    /// It comes behind the next one.
    Late,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let channel = 0..CHANNELS.len();
    let fate = prop_oneof![
        8 => Just(Fate::Sent),
        2 => Just(Fate::Lost),
        1 => Just(Fate::Twice),
        1 => Just(Fate::Late),
    ];
    let event = prop_oneof![
        10 => (channel.clone(), fate).prop_map(|(channel, fate)| Event::Store { channel, fate }),
        1 => (channel.clone(), any::<bool>())
            .prop_map(|(channel, is_frozen)| Event::Expire { channel, is_frozen }),
        1 => channel.clone().prop_map(|channel| Event::Remove { channel }),
        3 => channel.clone().prop_map(|channel| Event::Want { channel }),
        1 => channel.clone().prop_map(|channel| Event::Forget { channel }),
        1 => channel.prop_map(|channel| Event::Confirm { channel }),
        8 => (0..4_u64).prop_map(|lag| Event::Work { lag }),
        6 => Just(Event::Hear),
        1 => Just(Event::Audit),
        1 => Just(Event::LookAgain),
        1 => Just(Event::Cut),
        1 => Just(Event::ListenOtherwise),
        1 => (1..4_u64).prop_map(|count| Event::Lose { count }),
    ];
    prop::collection::vec(event, 1..120)
}

/// A message: which of all it is. One in the place of another is another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Message(u64);

/// A message on its way, with its channel.
type Coming = (usize, Previous, Message);

#[derive(Debug, Default)]
struct Stream {
    epoch: u64,
    last: u64,
    first: u64,
    made: u64,
    /// What is kept.
    kept: BTreeMap<u64, (usize, Message)>,
    /// Where messages stand that took the place of others.
    rollups: BTreeSet<u64>,
    /// All that this epoch has had, by channel.
    had: [BTreeMap<u64, Message>; 3],
}

impl Stream {
    fn places(&self, channel: usize) -> Vec<u64> {
        let kept = self.kept.iter();
        kept.filter(|(_, (of, _))| *of == channel)
            .map(|(place, _)| *place)
            .collect()
    }

    /// What a server has of a channel that has got no further.
    fn kept_at(&self, channel: usize, up_to: u64) -> Vec<(u64, Message)> {
        let had = self.had[channel].range(..=up_to);
        let had = had.filter(|(place, _)| **place >= self.first);
        let rollup = had.clone().rfind(|(place, _)| self.rollups.contains(place));
        let begin = rollup.map_or(0, |(place, _)| *place);
        let had = had.filter(|(place, _)| **place >= begin);
        let mut kept: Vec<_> = had.map(|(place, message)| (*place, *message)).collect();
        kept.drain(..kept.len().saturating_sub(KEPT));
        kept
    }

    fn drop_to(&mut self, channel: usize, count: usize) {
        let places = self.places(channel);
        for place in &places[..places.len().saturating_sub(count)] {
            self.kept.remove(place);
        }
    }

    /// Messages of a channel grow old together with all that stand before them.
    fn expire(&mut self, channel: usize) {
        if let Some(last) = self.places(channel).last().copied() {
            self.first = last + 1;
            self.kept.retain(|place, _| *place > last);
        }
    }
}

/// What one channel's home was told since it was wanted.
#[derive(Debug, Default)]
struct Home {
    is_caught_up: bool,
    offset: u64,
    floor: u64,
    got: BTreeMap<u64, Message>,
}

#[derive(Debug)]
struct World {
    stream: Stream,
    interest: Interest<Message>,
    homes: BTreeMap<usize, Home>,
    subscribed: BTreeSet<usize>,
    /// The node hears the whole stream, and not what is republished. What it misses shows as a hole.
    is_whole: bool,
    /// How far it has heard that.
    heard: u64,
    /// What is on its way; with the whole stream, none for what was dropped.
    wire: VecDeque<(u64, Option<Coming>)>,
    /// What comes behind the next message.
    late: Option<(u64, Coming)>,
    work: VecDeque<Task<Message>>,
    /// The place that each home's subscribers have seen.
    seen: BTreeMap<usize, u64>,
}

fn name(channel: usize) -> Arc<str> {
    CHANNELS[channel].into()
}

fn index(name: &str) -> usize {
    let found = CHANNELS.iter().position(|known| *known == name);
    found.expect("one of them")
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            stream: Stream {
                first: 1,
                ..Stream::default()
            },
            interest: Interest::new(KEPT),
            homes: BTreeMap::new(),
            subscribed: BTreeSet::new(),
            is_whole: false,
            heard: 0,
            wire: VecDeque::new(),
            late: None,
            work: VecDeque::new(),
            seen: BTreeMap::new(),
        };
        world.listen();
        world
    }

    fn listen(&mut self) {
        self.wire.clear();
        self.late = None;
        self.subscribed.clear();
        self.work.clear();
        self.heard = self.stream.last;
        self.interest
            .handle_listening(Epoch::new(self.stream.epoch));
        self.carry_out();
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Store { channel, fate } => self.store(channel, fate),
            Event::Expire { channel, is_frozen } => {
                if self.is_whole && !is_frozen {
                    // It needs no audits: what is on its way comes long before that.
                    self.come_to_rest();
                } else if !is_frozen {
                    self.find_all();
                }
                self.stream.expire(channel);
                if is_frozen {
                    // No connection lives so long without its client.
                    self.listen();
                }
            }
            Event::Remove { channel } => {
                self.store(channel, Fate::Sent);
                self.stream.drop_to(channel, 1);
                self.stream.rollups.insert(self.stream.last);
            }
            Event::Want { channel } => {
                self.homes.entry(channel).or_default();
                self.interest.want(&name(channel));
            }
            Event::Forget { channel } => {
                self.homes.remove(&channel);
                self.seen.remove(&channel);
                self.interest.forget(CHANNELS[channel]);
            }
            Event::Confirm { channel } => {
                let offset = self.stream.last;
                let home = self.homes.get(&channel);
                if home.is_some_and(|home| home.is_caught_up) {
                    self.seen.insert(channel, offset);
                    self.interest.confirm(&name(channel), offset);
                }
            }
            Event::Work { lag } => self.work(lag),
            Event::Hear => self.hear(),
            Event::Audit => self.interest.audit(),
            Event::LookAgain => self.interest.look_again(),
            Event::Cut => self.listen(),
            Event::ListenOtherwise => {
                self.is_whole = !self.is_whole;
                self.listen();
            }
            Event::Lose { count } => self.lose(count),
        }
        self.carry_out();
    }

    fn store(&mut self, channel: usize, fate: Fate) {
        let stream = &mut self.stream;
        let previous = stream.places(channel).last().copied().unwrap_or(0);
        stream.last += 1;
        stream.made += 1;
        let (place, message) = (stream.last, Message(stream.made));
        stream.kept.insert(place, (channel, message));
        stream.had[channel].insert(place, message);
        stream.drop_to(channel, KEPT);
        if self.is_whole {
            let coming = (channel, Previous::InOrder, message);
            let coming = (fate != Fate::Lost).then_some(coming);
            return self.wire.push_back((place, coming));
        }
        if !self.subscribed.contains(&channel) {
            return;
        }
        let sent = (channel, Previous::of(previous), message);
        let late = self.late.take();
        match fate {
            Fate::Sent => self.wire.push_back((place, Some(sent))),
            Fate::Lost => {}
            Fate::Twice => self.wire.extend([(place, Some(sent)); 2]),
            Fate::Late => self.late = Some((place, sent)),
        }
        let late = late.map(|(place, coming)| (place, Some(coming)));
        self.wire.extend(late);
    }

    /// The stream loses its end; the node finds out, and listens to another epoch.
    fn lose(&mut self, count: u64) {
        let stream = &mut self.stream;
        stream.last = stream.last.saturating_sub(count);
        let last = stream.last;
        stream.kept.retain(|place, _| *place <= last);
        stream.rollups.retain(|place| *place <= last);
        stream.first = stream.first.min(last + 1);
        stream.epoch += 1;
        for (channel, had) in stream.had.iter_mut().enumerate() {
            // Of this epoch is what is kept.
            had.retain(|place, _| {
                let kept = stream.kept.get(place);
                kept.is_some_and(|(of, _)| *of == channel)
            });
        }
        self.seen.clear();
        self.listen();
    }

    fn hear(&mut self) {
        while let Some((place, coming)) = self.wire.pop_front() {
            self.heard = place;
            match coming {
                None => self.interest.handle_hole(),
                Some((channel, previous, message)) => {
                    let name = CHANNELS[channel];
                    assert_eq!(self.interest.wants(name), self.homes.contains_key(&channel));
                    self.interest
                        .handle_message(name, place, previous, message, 1);
                    if previous == Previous::InOrder {
                        self.interest.handle_in_order(place);
                    }
                }
            }
            self.carry_out();
        }
    }

    /// The servers answer. One that lags behind has not got the last messages.
    fn work(&mut self, lag: u64) {
        let Some(task) = self.work.pop_front() else {
            return;
        };
        let up_to = self.stream.last.saturating_sub(lag);
        match task {
            Task::Fence if self.is_whole => self.interest.handle_fence(self.heard),
            Task::Fence => self.interest.handle_fence(self.stream.last),
            Task::Ask(asked) if up_to < asked.at_least => self.work.push_back(Task::Ask(asked)),
            Task::Ask(asked) => {
                let places = asked.channels.iter().filter_map(|name| {
                    let kept = self.stream.kept_at(index(name), up_to);
                    let (last, _) = *kept.last()?;
                    Some((Arc::clone(name), last))
                });
                let answer = LastByChannel {
                    watermark: up_to,
                    first: self.stream.first,
                    places: places.collect(),
                };
                self.interest.handle_last_by_channel(&asked, &answer);
            }
            Task::Fill(fill) => {
                let kept = self.stream.kept_at(index(&fill.channel), up_to);
                let messages = kept.into_iter().filter(|(place, _)| *place >= fill.from);
                let messages: Vec<_> = messages.collect();
                let begin = messages.first().map(|(place, _)| *place);
                let begins_with_rollup =
                    begin.is_some_and(|place| self.stream.rollups.contains(&place));
                let has_reached = messages.last().is_some_and(|(place, _)| *place >= fill.to);
                if has_reached {
                    let filled = Filled {
                        messages,
                        first: self.stream.first,
                        is_cut: false,
                        begins_with_rollup,
                    };
                    self.interest.handle_filled(&fill, filled);
                } else if lag == 0 {
                    self.interest.handle_unfilled(&fill);
                } else {
                    self.work.push_back(Task::Fill(fill));
                }
            }
            other => panic!("no work of the servers: {other:?}"),
        }
    }

    fn carry_out(&mut self) {
        while let Some(task) = self.interest.poll_task() {
            match task {
                Task::Subscribe(name) => {
                    self.subscribed.insert(index(&name));
                }
                Task::Unsubscribe(name) => {
                    self.subscribed.remove(&index(&name));
                }
                Task::Tell {
                    channel,
                    offset,
                    event,
                } => self.tell(index(&channel), offset, event),
                Task::Suspect => panic!("the stream has what was told"),
                work => self.work.push_back(work),
            }
        }
    }

    fn tell(&mut self, channel: usize, offset: u64, event: ChannelEvent<Message>) {
        let home = self.homes.get_mut(&channel).expect("it is wanted");
        match event {
            ChannelEvent::Log(LogEvent::Began(_)) => *home = Home::default(),
            ChannelEvent::Log(LogEvent::CaughtUp { floor }) => {
                home.is_caught_up = true;
                home.floor = floor.max(home.floor);
                home.offset = offset.max(home.offset);
            }
            ChannelEvent::Log(LogEvent::Whole) => {}
            ChannelEvent::Log(LogEvent::Passed) => home.offset = offset.max(home.offset),
            ChannelEvent::Log(LogEvent::Lost) => {
                assert!(offset > home.offset, "a loss of what was read");
                home.floor = offset;
                home.offset = offset;
                home.got.clear();
            }
            ChannelEvent::Log(other) => panic!("no such event: {other:?}"),
            ChannelEvent::Message(message) => {
                assert!(offset > home.offset, "{offset} after {}", home.offset);
                home.offset = offset;
                home.got.insert(offset, message);
                if !home.is_caught_up && self.stream.rollups.contains(&offset) {
                    // What was removed may never have come.
                    home.floor = offset - 1;
                }
            }
        }
        self.check(channel);
    }

    /// A home has all that the epoch had from its floor on up to where it says that it has read.
    fn check(&self, channel: usize) {
        let home = &self.homes[&channel];
        if !home.is_caught_up || home.offset <= home.floor {
            return;
        }
        let had = self.stream.had[channel].range(home.floor + 1..=home.offset);
        for (place, message) in had {
            assert_eq!(home.got.get(place), Some(message), "at {place}, {home:?}");
        }
    }

    /// What is on its way comes, and what is asked is answered.
    fn come_to_rest(&mut self) {
        while !self.work.is_empty() || !self.wire.is_empty() {
            self.hear();
            self.work(0);
            self.carry_out();
        }
    }

    /// Some audits pass without faults.
    fn find_all(&mut self) {
        for _ in 0..4 {
            self.come_to_rest();
            self.interest.audit();
            self.carry_out();
            while !self.work.is_empty() {
                self.work(0);
                self.carry_out();
            }
            self.interest.look_again();
            self.interest.look_at_new();
            self.carry_out();
        }
    }

    /// The faults end: all of it is found within an audit.
    fn settle(&mut self) {
        self.find_all();
        for (&channel, home) in &self.homes {
            assert!(home.is_caught_up, "{channel}: {home:?}");
            let last = self.stream.places(channel).last().copied();
            assert!(home.offset >= last.unwrap_or(0), "{channel}: {home:?}");
            if let Some(seen) = self.seen.get(&channel) {
                assert!(home.offset >= *seen, "somebody waits: {home:?}");
            }
            self.check(channel);
        }
        assert_eq!(self.interest.behind(), 0);
        assert_eq!(self.interest.held_bytes, 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 8 } else { 3_000 }))]

    #[test]
    fn a_channel_is_told_all_of_it_in_order_or_that_it_is_not(events in events()) {
        let mut world = World::new();
        for event in events {
            world.handle(event);
        }
        world.settle();
    }
}

#[test]
fn one_fence_serves_all_that_was_wanted_before() {
    let mut interest = Interest::<()>::new(KEPT);
    interest.want(&"a".into());
    assert!(interest.poll_task().is_none(), "nobody listens");
    interest.handle_listening(Epoch::new(1));
    interest.want(&"b".into());
    interest.want(&"c".into());
    let tasks: Vec<_> = std::iter::from_fn(|| interest.poll_task()).collect();
    let fences = tasks.iter().filter(|task| matches!(task, Task::Fence));
    assert_eq!((tasks.len(), fences.count()), (4, 1), "{tasks:?}");
    // The next one is for those who came since.
    interest.handle_fence(7);
    let tasks: Vec<_> = std::iter::from_fn(|| interest.poll_task()).collect();
    let [Task::Ask(asked), Task::Fence] = &tasks[..] else {
        panic!("{tasks:?}")
    };
    assert_eq!((asked.at_least, asked.channels.len()), (7, 1));
}

#[test]
fn what_is_held_back_is_bounded_and_read_later() {
    let mut interest = Interest::<u64>::new(10_000);
    interest.handle_listening(Epoch::new(1));
    interest.want(&"a".into());
    let count = 2 * HELD_MAX as u64;
    for place in 1..=count {
        interest.handle_message("a", place, Previous::of(place - 1), place, 100);
    }
    assert_eq!(
        interest.held_bytes,
        HELD_MAX * (100 + MESSAGE_OVERHEAD as usize)
    );
    // The first fence is of no channel.
    interest.handle_fence(0);
    interest.handle_fence(0);
    let ask = std::iter::from_fn(|| interest.poll_task()).find_map(|task| match task {
        Task::Ask(asked) if !asked.channels.is_empty() => Some(asked),
        _ => None,
    });
    let answer = LastByChannel {
        watermark: 0,
        first: 1,
        places: BTreeMap::new(),
    };
    interest.handle_last_by_channel(&ask.expect("a fence is answered"), &answer);
    let tasks: Vec<_> = std::iter::from_fn(|| interest.poll_task()).collect();
    let told = tasks.iter().filter(|task| {
        matches!(
            task,
            Task::Tell {
                event: ChannelEvent::Message(_),
                ..
            }
        )
    });
    assert_eq!(told.count(), HELD_MAX);
    assert!(matches!(tasks.last(), Some(Task::Fence)), "{tasks:?}");
    assert_eq!((interest.held_bytes, interest.behind()), (0, 1));
}

#[test]
fn an_answer_is_for_the_channel_that_was_wanted_then() {
    let mut interest = Interest::<u64>::new(10_000);
    interest.handle_listening(Epoch::new(1));
    let fill_of = |interest: &mut Interest<u64>| {
        interest.want(&"a".into());
        interest.handle_fence(9);
        interest.handle_fence(9);
        let tasks: Vec<_> = std::iter::from_fn(|| interest.poll_task()).collect();
        let asked = tasks.into_iter().find_map(|task| match task {
            Task::Ask(asked) if !asked.channels.is_empty() => Some(asked),
            _ => None,
        });
        let answer = LastByChannel {
            watermark: 9,
            first: 1,
            places: BTreeMap::from([("a".into(), 7)]),
        };
        interest.handle_last_by_channel(&asked.expect("a fence was answered"), &answer);
        match interest.poll_task() {
            Some(Task::Fill(fill)) => fill,
            other => panic!("{other:?}"),
        }
    };
    let filled = || Filled {
        messages: vec![(7, 7)],
        first: 1,
        is_cut: false,
        begins_with_rollup: false,
    };
    let former = fill_of(&mut interest);
    interest.forget("a");
    let fill = fill_of(&mut interest);
    interest.handle_filled(&former, filled());
    interest.handle_unfilled(&former);
    assert!(interest.poll_task().is_none());
    interest.handle_filled(&fill, filled());
    assert!(interest.poll_task().is_some());
}

#[test]
fn whoever_has_seen_what_nobody_stored_costs_one_question() {
    let mut interest = Interest::<u64>::new(10_000);
    interest.handle_listening(Epoch::new(1));
    interest.want(&"a".into());
    interest.handle_fence(9);
    interest.handle_fence(9);
    let asked = |interest: &mut Interest<u64>| {
        let tasks: Vec<_> = std::iter::from_fn(|| interest.poll_task()).collect();
        let asked = tasks.into_iter().filter_map(|task| match task {
            Task::Ask(asked) if !asked.channels.is_empty() => Some(asked),
            _ => None,
        });
        asked.collect::<Vec<_>>()
    };
    let first = asked(&mut interest);
    let answer = LastByChannel {
        watermark: 9,
        first: 1,
        places: BTreeMap::new(),
    };
    interest.handle_last_by_channel(&first[0], &answer);
    for _ in 0..5 {
        interest.confirm(&"a".into(), 1 << 60);
    }
    let confirming = asked(&mut interest);
    assert_eq!(confirming.len(), 1);
    interest.handle_dropped(&confirming[0]);
    // Whoever comes then has an answer of its own.
    interest.confirm(&"a".into(), 12);
    assert_eq!(asked(&mut interest).len(), 1);
}

/// What homes are told, in words.
fn told(interest: &mut Interest<u64>) -> Vec<String> {
    let (told, others): (Vec<_>, Vec<_>) = std::iter::from_fn(|| interest.poll_task())
        .partition(|task| matches!(task, Task::Tell { .. }));
    interest.tasks.extend(others);
    let words = told.into_iter().filter_map(|task| match task {
        Task::Tell { offset, event, .. } => match event {
            ChannelEvent::Message(_) => Some(format!("message {offset}")),
            ChannelEvent::Log(LogEvent::Lost) => Some(format!("lost {offset}")),
            ChannelEvent::Log(LogEvent::Passed) => Some(format!("read {offset}")),
            ChannelEvent::Log(_) => None,
        },
        _ => None,
    });
    words.collect()
}

#[test]
fn what_a_server_has_denied_is_a_loss_and_not_news() {
    let mut interest = following(&[], 20);
    interest.audit();
    answer(&mut interest, &[9, 12], 1, 20);
    interest.look_again();
    answer(&mut interest, &[9, 12], 1, 20);
    fenced(&mut interest, 20, &[9, 12], 20);
    // A message that is stored at 21 later would be part of a loss there.
    assert_eq!(told(&mut interest), [""; 0]);
    assert_eq!(interest.behind(), 1);
    interest.look_at_new();
    fenced(&mut interest, 22, &[9, 12, 21], 22);
    assert_eq!(told(&mut interest), ["lost 22"]);
    interest.handle_message("a", 25, Previous::Place(21), 25, 1);
    assert_eq!(told(&mut interest), ["message 25"]);
    assert_eq!(interest.behind(), 0);
}

#[test]
fn a_loss_is_told_where_its_home_knows_less_than_the_log_has() {
    let mut interest = following(&[9], 20);
    // Nobody waits for it, so the home is not told that this is all up to 20.
    interest.audit();
    answer(&mut interest, &[9], 1, 20);
    interest.audit();
    answer(&mut interest, &[9, 12], 1, 20);
    interest.look_again();
    answer(&mut interest, &[9, 12], 1, 20);
    fenced(&mut interest, 20, &[9, 12], 20);
    assert_eq!(told(&mut interest), ["lost 20"]);
    interest.handle_message("a", 21, Previous::Place(12), 21, 1);
    assert_eq!(told(&mut interest), ["message 21"]);
}

#[test]
fn what_comes_in_order_shows_what_a_server_has_denied() {
    let mut interest = following(&[5], 9);
    // A server of another time has got further, as it says.
    interest.confirm(&"a".into(), 20);
    answer(&mut interest, &[5], 1, 20);
    assert_eq!(told(&mut interest), ["read 20"]);
    for place in [12, 21, 23] {
        interest.handle_message("a", place, Previous::InOrder, place, 1);
        interest.handle_in_order(place);
    }
    fenced(&mut interest, 23, &[5, 12, 21, 23], 23);
    assert_eq!(told(&mut interest), ["lost 23"]);
    interest.handle_message("a", 24, Previous::InOrder, 24, 1);
    assert_eq!(told(&mut interest), ["message 24"]);
}

#[test]
fn what_only_one_server_has_dropped_because_of_its_age_is_no_loss() {
    let mut interest = following(&[], 500);
    // Another one has it still.
    interest.confirm(&"a".into(), 600);
    answer(&mut interest, &[100], 101, 600);
    assert_eq!(told(&mut interest), ["read 600"]);
    // It was asked for before the leader had dropped it, too.
    interest.audit();
    let asked = std::iter::from_fn(|| interest.poll_task()).find_map(|task| match task {
        Task::Ask(asked) => Some(asked),
        _ => None,
    });
    let places = LastByChannel {
        watermark: 600,
        first: 100,
        places: BTreeMap::from([("a".into(), 100)]),
    };
    interest.handle_last_by_channel(&asked.expect("an audit"), &places);
    interest.look_again();
    answer(&mut interest, &[100], 101, 600);
    interest.handle_message("a", 601, Previous::None, 601, 1);
    assert_eq!(told(&mut interest), ["message 601"]);
}

/// A fence is answered, and the question behind it.
fn fenced(interest: &mut Interest<u64>, fence: u64, places: &[u64], watermark: u64) {
    answer(interest, places, 1, watermark);
    interest.handle_fence(fence);
    answer(interest, places, 1, watermark);
}

/// A node that listens to one channel, of which the stream has these places; all are told.
fn following(places: &[u64], watermark: u64) -> Interest<u64> {
    let mut interest = Interest::<u64>::new(10_000);
    interest.want(&"a".into());
    listen(&mut interest, places, 1, watermark);
    told(&mut interest);
    interest
}

/// Listens anew, and is answered what the stream has, with its first place and its last one.
fn listen(interest: &mut Interest<u64>, places: &[u64], first: u64, watermark: u64) {
    interest.handle_listening(Epoch::new(1));
    interest.handle_fence(watermark);
    answer(interest, places, first, watermark);
}

/// Answers the next question about a channel, and a fill if one follows.
fn answer(interest: &mut Interest<u64>, places: &[u64], first: u64, watermark: u64) {
    let mut later = Vec::new();
    while let Some(task) = interest.poll_task() {
        match task {
            Task::Ask(asked) if !asked.channels.is_empty() => {
                let last = places.last().map(|last| ("a".into(), *last));
                let answer = LastByChannel {
                    watermark,
                    first,
                    places: last.into_iter().collect(),
                };
                interest.handle_last_by_channel(&asked, &answer);
            }
            Task::Fill(fill) => {
                let messages = places.iter().filter(|place| **place >= fill.from);
                let filled = Filled {
                    messages: messages.map(|place| (*place, *place)).collect(),
                    first,
                    is_cut: false,
                    begins_with_rollup: false,
                };
                interest.handle_filled(&fill, filled);
            }
            other => later.push(other),
        }
    }
    interest.tasks.extend(later);
}

#[test]
fn a_quiet_channel_of_a_whole_log_has_lost_nothing_when_all_of_it_is_too_old() {
    for places in [vec![5], vec![]] {
        let mut interest = following(&places, 9);
        for place in 10..=100 {
            assert!(!interest.wants("other"));
            interest.handle_message("other", place, Previous::InOrder, place, 1);
            interest.handle_in_order(place);
        }
        // Somebody has seen more of it on another node.
        interest.confirm(&"a".into(), 120);
        answer(&mut interest, &[], 90, 120);
        assert_eq!(told(&mut interest), ["read 120"], "{places:?}");
        interest.handle_in_order(121);
        interest.handle_deaf();
        listen(&mut interest, &[], 121, 130);
        assert_eq!(told(&mut interest), [""; 0], "{places:?}");
        listen(&mut interest, &[131], 131, 140);
        assert_eq!(told(&mut interest), ["message 131"], "{places:?}");
    }
}

#[test]
fn what_did_not_fit_is_read_and_nothing_behind_it_is_told_before() {
    let mut interest = following(&[], 0);
    interest.want(&"b".into());
    // Nothing is told while the channels are listened to anew.
    interest.handle_listening(Epoch::new(1));
    const BYTES: usize = 40 << 20;
    interest.handle_message("b", 1, Previous::InOrder, 1, BYTES);
    interest.handle_message("a", 2, Previous::InOrder, 2, 1);
    interest.handle_message("a", 3, Previous::InOrder, 3, BYTES);
    // There is room again.
    interest.forget("b");
    interest.handle_message("a", 4, Previous::InOrder, 4, 1);
    interest.handle_fence(1);
    answer(&mut interest, &[], 1, 1);
    assert_eq!(told(&mut interest), ["message 2"]);
    interest.handle_fence(4);
    answer(&mut interest, &[2, 3, 4], 1, 4);
    assert_eq!(told(&mut interest), ["message 3", "message 4"]);
}
