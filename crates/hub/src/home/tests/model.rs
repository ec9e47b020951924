//! Random operations against a naive model, and against shards that follow what the home sends.

mod streams;

use super::streams::{append, ask, entries, plain, read_at_most};
use super::{TICKET, drain, home, namespaces, pass, recover, submission, text, tick};
use crate::home::{HistoryAnswer, Home, HomeEffect, Kept, NotRecovered, ReadHistory, Submission};
use crate::{
    AppendToStream, Asker, ChannelOptions, CreateStream, Delivery, Epoch, Namespaces, Payload,
    Position, ReadFrom, RecoveryMode, RequestId, StreamCommand, StreamEndKind,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, HashSet};

const CHANNELS: [&str; 5] = ["plain", "kept:a", "kept:b", "batch:a", "loose:a"];
const SHARDS: usize = 3;

#[derive(Clone, Debug)]
enum Op {
    Publish {
        channel: usize,
        skip_history: bool,
        key: Option<u8>,
    },
    Join {
        channel: usize,
        shard: usize,
    },
    Leave {
        channel: usize,
        shard: usize,
    },
    /// From so far before the top.
    Recover {
        channel: usize,
        behind: u64,
        of_old_epoch: bool,
    },
    Read {
        channel: usize,
        limit: Option<u32>,
        behind: Option<u64>,
        reverse: bool,
    },
    Remove {
        channel: usize,
    },
    Pass {
        ticks: u64,
    },
    Create {
        channel: usize,
        count: usize,
        is_closed: bool,
    },
    Append {
        channel: usize,
        count: usize,
        closes: bool,
    },
    Delete {
        channel: usize,
    },
    /// From so far before the top; none: from the start.
    ReadStream {
        channel: usize,
        behind: Option<u64>,
        max: u32,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let channel = || 0..CHANNELS.len();
    let key = prop_oneof![4 => Just(None), 1 => (0..3_u8).prop_map(Some)];
    prop_oneof![
        8 => (channel(), prop::bool::weighted(0.1), key).prop_map(|(channel, skip_history, key)| {
            Op::Publish { channel, skip_history, key }
        }),
        4 => (channel(), 0..SHARDS).prop_map(|(channel, shard)| Op::Join { channel, shard }),
        4 => (channel(), 0..SHARDS).prop_map(|(channel, shard)| Op::Leave { channel, shard }),
        3 => (channel(), 0..6_u64, prop::bool::weighted(0.1)).prop_map(
            |(channel, behind, of_old_epoch)| Op::Recover { channel, behind, of_old_epoch }
        ),
        2 => (channel(), prop::option::of(0..4_u32), prop::option::of(0..5_u64), any::<bool>())
            .prop_map(|(channel, limit, behind, reverse)| Op::Read { channel, limit, behind, reverse }),
        1 => channel().prop_map(|channel| Op::Remove { channel }),
        6 => prop_oneof![3 => 0..6_u64, 2 => 0..120_u64, 1 => 900..1200_u64]
            .prop_map(|ticks| Op::Pass { ticks }),
        2 => (channel(), 0..3_usize, prop::bool::weighted(0.1)).prop_map(|(channel, count, is_closed)| {
            Op::Create { channel, count, is_closed }
        }),
        4 => (channel(), 0..6_usize, prop::bool::weighted(0.1)).prop_map(|(channel, count, closes)| {
            Op::Append { channel, count, closes: closes || count == 0 }
        }),
        1 => channel().prop_map(|channel| Op::Delete { channel }),
        3 => (channel(), prop::option::of(0..6_u64), 1..4_u32)
            .prop_map(|(channel, behind, max)| Op::ReadStream { channel, behind, max }),
    ]
}

/// One life of a channel with history, with everything that was ever published in it.
#[derive(Debug, Default)]
struct Life {
    /// As the home has told it.
    epoch: Option<Epoch>,
    /// Number and tick, by offset from 1 on.
    published: Vec<(u64, u64)>,
    /// Offsets up to this one were removed.
    removed: u64,
    subscribed: BTreeSet<usize>,
    last_used: u64,
    stream: StreamLife,
}

/// What a life is as a stream.
#[derive(Debug, Default)]
struct StreamLife {
    /// By PUT, as text; otherwise it is JSON.
    is_created: bool,
    is_closed: bool,
    begins_after: u64,
}

impl Life {
    fn top(&self) -> u64 {
        self.published.len() as u64
    }

    fn is_stream(&self) -> bool {
        self.stream.is_created || self.top() > self.stream.begins_after
    }

    /// Offsets and numbers of what is kept.
    fn kept(&self, options: &ChannelOptions, now: u64) -> Vec<(u64, u64)> {
        let ttl = ticks_of(options.history_ttl);
        let oldest = self
            .top()
            .saturating_sub(u64::from(options.history_size))
            .max(self.removed);
        let numbered = (1..).zip(&self.published);
        numbered
            .filter(|(offset, (_, at))| *offset > oldest && at + ttl > now)
            .map(|(offset, (number, _))| (offset, *number))
            .collect()
    }
}

fn ticks_of(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).expect("short") / 50
}

/// What a shard knows of a channel that it has joined.
#[derive(Debug)]
struct View {
    last: Position,
    /// Publications without an offset.
    unnumbered: usize,
}

struct Test {
    home: Home,
    namespaces: Namespaces,
    now: u64,
    published: u64,
    lives: BTreeMap<usize, Life>,
    epochs: HashSet<Epoch>,
    /// By channel and key: number of the publication and when its key is forgotten.
    keys: BTreeMap<(usize, u8), (Position, u64)>,
    views: BTreeMap<(usize, usize), View>,
    serial: u64,
}

impl Test {
    fn new() -> Self {
        Self {
            home: home(),
            namespaces: namespaces(),
            now: 0,
            published: 0,
            lives: BTreeMap::new(),
            epochs: HashSet::new(),
            keys: BTreeMap::new(),
            views: BTreeMap::new(),
            serial: 0,
        }
    }

    fn options(&self, channel: usize) -> &ChannelOptions {
        self.namespaces
            .options_of(CHANNELS[channel])
            .expect("a namespace")
    }

    fn has_history(&self, channel: usize) -> bool {
        self.options(channel).has_history()
    }

    /// The life of a channel with history, which is used now.
    fn touch(&mut self, channel: usize) -> Option<&mut Life> {
        if !self.has_history(channel) {
            return None;
        }
        let life = self.lives.entry(channel).or_default();
        life.last_used = self.now;
        Some(life)
    }

    fn forget_unused(&mut self) {
        let now = self.now;
        let namespaces = &self.namespaces;
        self.lives.retain(|channel, life| {
            let options = namespaces
                .options_of(CHANNELS[*channel])
                .expect("a namespace");
            !life.subscribed.is_empty() || life.last_used + ticks_of(options.history_meta_ttl) > now
        });
        self.keys.retain(|_, (_, until)| *until > now);
    }

    fn run(&mut self, op: &Op) {
        match *op {
            Op::Publish {
                channel,
                skip_history,
                key,
            } => self.publish(channel, skip_history, key),
            Op::Join { channel, shard } => self.join(channel, shard),
            Op::Leave { channel, shard } => {
                if self.views.remove(&(channel, shard)).is_some() {
                    if let Some(life) = self.touch(channel) {
                        life.subscribed.remove(&shard);
                    }
                    self.home
                        .handle_leave(CHANNELS[channel], shard, tick(self.now));
                }
            }
            Op::Recover {
                channel,
                behind,
                of_old_epoch,
            } => {
                self.recover(channel, behind, of_old_epoch);
            }
            Op::Read {
                channel,
                limit,
                behind,
                reverse,
            } => {
                self.read(channel, limit, behind, reverse);
            }
            Op::Remove { channel } => {
                if let Some(life) = self.lives.get_mut(&channel) {
                    life.removed = life.top();
                    life.last_used = self.now;
                }
                let asker = Asker::Session(TICKET);
                self.home
                    .handle_remove_history(CHANNELS[channel], asker, tick(self.now));
            }
            Op::Pass { ticks } => {
                self.now += ticks;
            }
            Op::Create {
                channel,
                count,
                is_closed,
            } => self.create(channel, count, is_closed),
            Op::Append {
                channel,
                count,
                closes,
            } => self.append(channel, count, closes),
            Op::Delete { channel } => self.delete(channel),
            Op::ReadStream {
                channel,
                behind,
                max,
            } => self.read_stream(channel, behind, max),
        }
        // A shard that sleeps until the next deadline wakes in every tick that has one.
        pass(&mut self.home, tick(self.now));
        self.forget_unused();
        for effect in drain(&mut self.home) {
            self.follow(effect);
        }
        self.check_stats();
    }

    /// The home's figures are those of the model.
    fn check_stats(&self) {
        let kept: usize = CHANNELS
            .iter()
            .enumerate()
            .filter_map(|(channel, _)| {
                let life = self.lives.get(&channel)?;
                Some(life.kept(self.options(channel), self.now).len())
            })
            .sum();
        let stats = self.home.stats();
        assert_eq!(
            (stats.publications, stats.channels_with_history),
            (kept, self.lives.len())
        );
        assert_eq!(stats.evicted, 0);
    }

    fn publish(&mut self, channel: usize, skip_history: bool, key: Option<u8>) {
        for effect in self.publish_answered(channel, skip_history, key) {
            self.follow(effect);
        }
    }

    /// Publishes, and checks the answer. What came before it.
    fn publish_answered(
        &mut self,
        channel: usize,
        skip_history: bool,
        key: Option<u8>,
    ) -> Vec<HomeEffect> {
        self.published += 1;
        let number = self.published;
        let known = key.and_then(|key| self.keys.get(&(channel, key)).copied());
        self.home.handle_publish(
            Submission {
                content: text(&number.to_string()).into(),
                sender: None,
                idempotency_key: key.map(|key| key.to_string().into()),
                skip_history,
                ..submission(CHANNELS[channel], Some(RequestId(number)))
            },
            tick(self.now),
        );
        let mut effects: Vec<_> = std::iter::from_fn(|| self.home.poll_effect()).collect();
        let answer = effects.pop();
        if known.is_none()
            && self
                .life_of(channel)
                .is_some_and(|life| life.stream.is_closed)
        {
            assert!(matches!(answer, Some(HomeEffect::PublishRefused { .. })));
            self.touch(channel);
            return effects;
        }
        let Some(HomeEffect::Published { asker, position }) = answer else {
            panic!("the publisher is answered last")
        };
        assert_eq!(asker, Asker::Control(RequestId(number)));
        if let Some((first, _)) = known {
            assert_eq!(position, first);
            return effects;
        }
        if let Some(key) = key {
            self.keys
                .insert((channel, key), (position, self.now + 6000));
        }
        let now = self.now;
        let Some(life) = self.touch(channel) else {
            assert!(position.offset > 0 && position.epoch == Epoch::new(7));
            return effects;
        };
        if !skip_history {
            life.published.push((number, now));
        }
        let expected = if skip_history { 0 } else { life.top() };
        assert_eq!(position.offset, expected);
        self.learn(channel, position.epoch);
        effects
    }

    fn life_of(&self, channel: usize) -> Option<&Life> {
        self.lives.get(&channel)
    }

    /// Every life has an epoch that no other has.
    fn learn(&mut self, channel: usize, epoch: Epoch) {
        let Some(life) = self.lives.get_mut(&channel) else {
            assert_eq!(epoch, Epoch::new(7));
            return;
        };
        match life.epoch {
            Some(known) => assert_eq!(known, epoch),
            None => {
                life.epoch = Some(epoch);
                assert!(self.epochs.insert(epoch), "an epoch of an earlier life");
            }
        }
    }

    fn join(&mut self, channel: usize, shard: usize) {
        if self.views.contains_key(&(channel, shard)) {
            return;
        }
        if let Some(life) = self.touch(channel) {
            life.subscribed.insert(shard);
        }
        self.serial += 1;
        self.home
            .handle_join(CHANNELS[channel].into(), shard, self.serial, tick(self.now));
        let Some(HomeEffect::Joined {
            position, serial, ..
        }) = self.home.poll_effect()
        else {
            panic!("a join is answered")
        };
        assert_eq!(serial, self.serial);
        self.learn(channel, position.epoch);
        if let Some(life) = self.lives.get(&channel) {
            assert_eq!(position.offset, life.top());
        }
        let view = View {
            last: position,
            unnumbered: 0,
        };
        self.views.insert((channel, shard), view);
    }

    fn recover(&mut self, channel: usize, behind: u64, of_old_epoch: bool) {
        let top = self.touch(channel).map_or(0, |life| life.top());
        let offset = top.saturating_sub(behind);
        let epoch = if of_old_epoch { "_" } else { "" };
        let request = recover(CHANNELS[channel], offset, epoch, RecoveryMode::Stream);
        self.home.handle_recover(request, tick(self.now));
        let Some(HomeEffect::Recovered(recovered)) = self.home.poll_effect() else {
            panic!("a recovery is answered")
        };
        self.learn(channel, recovered.position.epoch);
        let Some(life) = self.lives.get(&channel) else {
            assert!(recovered.publications.is_err());
            return;
        };
        assert_eq!(recovered.position.offset, top);
        let kept = life.kept(self.options(channel), self.now);
        let missed: Vec<_> = kept.into_iter().filter(|kept| kept.0 > offset).collect();
        let is_whole = missed.len() as u64 == top - offset && !of_old_epoch;
        assert_eq!(
            recovered.publications.map(numbers),
            if is_whole {
                Ok(missed)
            } else {
                Err(NotRecovered::Lost)
            }
        );
    }

    fn read(&mut self, channel: usize, limit: Option<u32>, behind: Option<u64>, reverse: bool) {
        let top = self.touch(channel).map_or(0, |life| life.top());
        let since = behind.map(|behind| top.saturating_sub(behind));
        self.home.handle_history(
            ReadHistory {
                channel: CHANNELS[channel].into(),
                asker: Asker::Session(TICKET),
                limit,
                since: since.map(|offset| super::Since {
                    offset,
                    epoch: "".into(),
                }),
                reverse,
            },
            tick(self.now),
        );
        let Some(HomeEffect::History {
            answer:
                HistoryAnswer::Page {
                    position,
                    publications,
                },
            ..
        }) = self.home.poll_effect()
        else {
            panic!("a reader is answered")
        };
        self.learn(channel, position.epoch);
        let Some(life) = self.lives.get(&channel) else {
            assert!(publications.is_empty());
            return;
        };
        let mut expected = life.kept(self.options(channel), self.now);
        expected.retain(|(offset, _)| match since {
            Some(since) if reverse => *offset < since,
            Some(since) => *offset > since,
            None => true,
        });
        if reverse {
            expected.reverse();
        }
        expected.truncate(limit.map_or(usize::MAX, |limit| limit as usize));
        assert_eq!((position.offset, numbers(publications)), (top, expected));
    }

    /// Does with an effect what shards do, and checks that each publication arrives once and in order.
    fn follow(&mut self, effect: HomeEffect) {
        let HomeEffect::Deliver { delivery, shards } = effect else {
            assert!(matches!(effect, HomeEffect::HistoryRemoved { .. }));
            return;
        };
        if let Delivery::StreamEnd(end) = &delivery {
            // It comes behind everything that the stream had.
            let channel = CHANNELS.iter().position(|name| *name == &*end.channel);
            for shard in shards.iter() {
                let key = (channel.expect("one of ours"), shard);
                let view = self.views.get_mut(&key).expect("it joined");
                view.last.offset += u64::from(end.kind == StreamEndKind::Deleted);
                assert_eq!(view.last, end.tail);
            }
            return;
        }
        let is_batch = matches!(delivery, Delivery::Batch(_));
        let publications = delivery.publications();
        assert!(!publications.is_empty(), "nobody joined");
        for publication in publications {
            let name = &**publication.channel();
            let channel = CHANNELS.iter().position(|channel| *channel == name);
            let channel = channel.expect("one of ours");
            let joined: Vec<usize> = self
                .views
                .keys()
                .filter(|key| key.0 == channel)
                .map(|key| key.1)
                .collect();
            assert_eq!(shards.iter().collect::<Vec<_>>(), joined);
            for shard in &joined {
                let view = self.views.get_mut(&(channel, *shard)).expect("joined");
                let Position { epoch, offset } = publication.position();
                assert_eq!(epoch, view.last.epoch);
                if offset == 0 {
                    view.unnumbered += 1;
                } else if offset > view.last.offset {
                    assert_eq!(offset, view.last.offset + 1);
                    view.last.offset = offset;
                } else {
                    assert!(is_batch, "only a batch can begin before a join");
                }
                assert!(publication.note_shard_done() == (shard == joined.last().expect("one")));
            }
        }
    }

    /// Once no batch waits, every shard has everything.
    fn check_end(&mut self) {
        self.run(&Op::Pass { ticks: 10 });
        for ((channel, _), view) in &self.views {
            if let Some(life) = self.lives.get(channel) {
                assert_eq!(view.last.offset, life.top());
            }
        }
    }
}

/// Offsets, and the numbers that the publications say.
fn numbers(kept: Vec<Kept>) -> Vec<(u64, u64)> {
    let number = |kept: Kept| match &kept.content.payload {
        Payload::Text(text) => (kept.offset, text.parse().expect("a number")),
        other => panic!("{other:?}"),
    };
    kept.into_iter().map(number).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 256 }))]

    #[test]
    fn a_home_remembers_what_the_model_does(ops in prop::collection::vec(op(), 1..80)) {
        let mut test = Test::new();
        for op in &ops {
            test.run(op);
        }
        test.check_end();
    }

    #[test]
    fn a_home_keeps_its_budget(
        bytes_max in 0..6000_u64,
        ops in prop::collection::vec((op(), 0..300_usize), 1..80),
    ) {
        let mut home = super::home_with(bytes_max);
        let mut now = 0;
        for (op, size) in ops {
            match op {
                Op::Publish { channel, skip_history, .. } => home.handle_publish(
                    Submission {
                        content: text(&"x".repeat(size)).into(),
                        skip_history,
                        ..submission(CHANNELS[channel], None)
                    },
                    tick(now),
                ),
                Op::Join { channel, shard } => home.handle_join(CHANNELS[channel].into(), shard, 1, tick(now)),
                Op::Leave { channel, shard } => home.handle_leave(CHANNELS[channel], shard, tick(now)),
                Op::Recover { channel, .. } | Op::Read { channel, .. } => {
                    // Some of many channels that nobody uses twice.
                    let name = format!("{}{size}", CHANNELS[channel]);
                    home.handle_recover(recover(&name, 0, "", RecoveryMode::Cache), tick(now));
                }
                Op::Remove { channel } => {
                    home.handle_remove_history(CHANNELS[channel], Asker::Session(TICKET), tick(now));
                }
                Op::Pass { ticks } => {
                    now += ticks;
                    pass(&mut home, tick(now));
                }
                Op::Create { channel, count, is_closed } => {
                    let text = "x".repeat(size);
                    let entries = entries(&vec![&*text; count]);
                    let wish = CreateStream { is_closed, entries, ..plain() };
                    let _ = ask(&mut home, CHANNELS[channel], StreamCommand::Create(wish), tick(now));
                }
                Op::Append { channel, count, closes } => {
                    let text = "x".repeat(size);
                    let id = size.to_string().into();
                    let producer = Some(crate::Producer { id, epoch: now, seq: 0 });
                    let entries = entries(&vec![&*text; count]);
                    let data = AppendToStream { entries, closes, producer, ..append(&[]) };
                    let _ = ask(&mut home, CHANNELS[channel], StreamCommand::Append(data), tick(now));
                }
                Op::Delete { channel } => {
                    let _ = ask(&mut home, CHANNELS[channel], StreamCommand::Delete, tick(now));
                }
                Op::ReadStream { channel, max, .. } => {
                    let _ = read_at_most(&mut home, CHANNELS[channel], ReadFrom::Start, max, tick(now));
                }
            }
            drain(&mut home);
        }
    }
}
