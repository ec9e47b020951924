//! What the simulated log republishes, and who hears it.
//!
//! The leader sends each message when it has stored it, to all who want its subject by then, with the place of the message of that subject
//! before it. On each connection messages keep their order. But around a fault a message is not sent, lost, sent twice, or late: where a
//! leader goes or another one comes, and where the way between two servers breaks, which nobody is told.
//!
//! What a listener wants takes its time to the leader. Its question for a fence comes behind that, and is lost where there is no leader.

use super::client::{Client, Connection, Whom};
use super::wire::{Coming, End, Live, Wire};
use super::{Cloud, State, extent_of, lock};
use crate::broker::servers::{FeedError, Heard, Listener, Stored};
use crate::broker::tests::plan::Plan;
use myriad_nats::raw::Sid;
use myriad_reactor::sim::Prng;
use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, Sleep, sleep_until};

/// Messages that a new leader may send again.
const AGAIN_MAX: usize = 6;
/// After an election, messages may not be sent for so long.
const UNSETTLED_MAX_MS: usize = 2_000;
/// What a leader had not sent when it stood still comes within so long after the election.
const LATE_MAX_MS: usize = 3_000;
/// The way between two servers is broken for less.
const DEAF_MAX_MS: usize = 2_000;
/// Now and then a message or a subscription takes longer than others, by less than this.
const SLOW_MESSAGE_MAX_MS: usize = 50;
const SLOW_SUBSCRIPTION_MAX_MS: usize = 300;

/// A listener, as the servers know it.
#[derive(Debug)]
struct Ear {
    id: u64,
    /// The connection of its node: it ends with that.
    connection: Arc<Mutex<Connection>>,
    wanted: BTreeMap<Sid, String>,
    wire: Arc<Mutex<Wire>>,
    /// When the last message comes that was sent in its order.
    last: Instant,
    /// The way between the leader and its server is broken until then.
    deaf_until: Instant,
    prng: Prng,
}

impl Ear {
    fn wants(&self, live: &Live) -> usize {
        let wanted = self.wanted.values();
        let same = wanted.filter(|subject| **subject == *live.stored.subject);
        same.count()
    }

    fn is_deaf(&self) -> bool {
        Instant::now() < self.deaf_until
    }

    fn send(&mut self, plan: &Plan, live: &Live) {
        let mut delay = delay(&mut self.prng, plan.delay_us);
        if self.prng.one_in(8) {
            delay += below_ms(&mut self.prng, SLOW_MESSAGE_MAX_MS);
        }
        self.last = self.last.max(Instant::now() + delay);
        lock(&self.wire).send(self.last, Coming::Message(live.clone()));
    }

    /// The others may have come long before.
    fn send_late(&mut self, live: Live) {
        let at = Instant::now() + below_ms(&mut self.prng, LATE_MAX_MS);
        lock(&self.wire).send(at, Coming::Message(live));
    }

    /// Something happens to its connection, or to that of its server.
    fn break_somehow(&mut self) -> &'static str {
        match self.prng.below(3) {
            0 => {
                lock(&self.wire).end(End::Cut);
                "is cut off"
            }
            1 => {
                lock(&self.wire).end(End::Silent);
                "hears nothing any more"
            }
            _ => {
                self.deaf_until = Instant::now() + below_ms(&mut self.prng, DEAF_MAX_MS);
                "misses something"
            }
        }
    }
}

/// How a leader goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Going {
    /// It sends all that it has stored.
    StepsDown,
    /// What it has not sent is lost.
    IsKilled,
    /// What it has not sent comes when others have sent more.
    StandsStill,
}

const WAYS_TO_GO: [Going; 3] = [Going::StepsDown, Going::IsKilled, Going::StandsStill];

/// All listeners of the log.
#[derive(Debug)]
pub(super) struct Listeners {
    /// Decides whatever is no listener's own.
    pub(super) prng: Prng,
    /// A node that hears by channel has opened the log.
    is_on: bool,
    ears: Vec<Ear>,
    ears_ever: u64,
    /// The last messages that were stored.
    recent: VecDeque<Live>,
    /// How the last leader went.
    going: Going,
    /// What it will send, and to whom.
    late: Vec<(u64, Live)>,
    /// Until then the new leader leaves some messages out.
    unsettled_until: Instant,
}

impl Listeners {
    pub(super) fn new(prng: Prng) -> Self {
        Self {
            prng,
            is_on: false,
            ears: Vec::new(),
            ears_ever: 0,
            recent: VecDeque::new(),
            going: Going::StepsDown,
            late: Vec::new(),
            unsettled_until: Instant::now(),
        }
    }

    /// The log republishes from now on if somebody needs it, and never ends to.
    pub(super) fn turn_on(&mut self, is_needed: bool) {
        self.is_on |= is_needed;
    }

    /// Whether a server answers while there is no leader.
    pub(super) fn has_server(&mut self) -> bool {
        self.prng.one_in(2)
    }

    fn add(&mut self, connection: &Arc<Mutex<Connection>>, wire: &Arc<Mutex<Wire>>) -> u64 {
        self.ears_ever += 1;
        self.ears.push(Ear {
            id: self.ears_ever,
            connection: Arc::clone(connection),
            wanted: BTreeMap::new(),
            wire: Arc::clone(wire),
            last: Instant::now(),
            deaf_until: Instant::now(),
            prng: self.prng.fork(),
        });
        self.ears_ever
    }

    fn ear(&mut self, id: u64) -> Option<&mut Ear> {
        self.ears.iter_mut().find(|ear| ear.id == id)
    }
}

impl Cloud {
    /// A message is stored, and this was the place of the one of its subject before it.
    pub(super) fn republish(&self, state: &mut State, stored: Stored, previous: u64) {
        let State {
            listeners, reached, ..
        } = state;
        if !listeners.is_on {
            return;
        }
        let live = Live { stored, previous };
        if listeners.recent.len() == AGAIN_MAX {
            listeners.recent.pop_front();
        }
        listeners.recent.push_back(live.clone());
        let is_unsettled = Instant::now() < listeners.unsettled_until;
        if is_unsettled && listeners.prng.one_in(4) {
            let mut ears = listeners.ears.iter();
            reached.unsent += u64::from(ears.any(|ear| ear.wants(&live) > 0));
            let sequence = live.stored.sequence;
            return self.say(|| format!("{sequence} is not republished"));
        }
        self.send_to_all(state, &live);
    }

    /// Returns to how many it was sent.
    fn send_to_all(&self, state: &mut State, live: &Live) -> u64 {
        let mut sent = 0;
        for ear in &mut state.listeners.ears {
            for _ in 0..ear.wants(live) {
                let breaks = self.plan.breaks_consumers && ear.prng.one_in(60) && !self.is_calm();
                if breaks {
                    let (id, what) = (ear.id, ear.break_somehow());
                    state.reached.broken_listeners += 1;
                    self.say(|| format!("listener {id} {what}"));
                }
                if ear.is_deaf() {
                    state.reached.unheard += 1;
                } else {
                    ear.send(&self.plan, live);
                    sent += 1;
                }
            }
        }
        state.reached.republished += sent;
        sent
    }

    /// The leader goes, and what it has not sent may go with it.
    pub(super) fn stop_republishing(&self, state: &mut State) {
        let State {
            listeners, reached, ..
        } = state;
        listeners.going = *listeners.prng.pick(&WAYS_TO_GO);
        let end = match listeners.going {
            Going::StepsDown => return,
            Going::IsKilled => End::Cut,
            Going::StandsStill => End::Silent,
        };
        for ear in &mut listeners.ears {
            let unsent = lock(&ear.wire).take_unsent(&mut ear.prng);
            if listeners.going == Going::StandsStill {
                let unsent = unsent.into_iter().map(|live| (ear.id, live));
                listeners.late.extend(unsent);
            } else {
                reached.unheard += unsent.len() as u64;
            }
            // It may be the server that the listener has connected to.
            if ear.prng.one_in(3) {
                lock(&ear.wire).end(end);
                reached.broken_listeners += 1;
                let id = ear.id;
                self.say(|| format!("listener {id} has lost its server: {end:?}"));
            }
        }
    }

    /// There is a leader again. It has everything that is in the log now.
    pub(super) fn go_on_republishing(&self, state: &mut State) {
        let last = state.stream.last;
        let State {
            listeners, reached, ..
        } = state;
        listeners.recent.retain(|live| live.stored.sequence <= last);
        for (id, live) in std::mem::take(&mut listeners.late) {
            // What the log has lost, its old leader has lost.
            if live.stored.sequence <= last
                && let Some(ear) = listeners.ear(id)
            {
                ear.send_late(live);
                reached.late += 1;
            }
        }
        if listeners.going == Going::StepsDown {
            return;
        }
        let unsettled = below_ms(&mut listeners.prng, UNSETTLED_MAX_MS);
        listeners.unsettled_until = Instant::now() + unsettled;
        let count = if listeners.prng.one_in(2) {
            listeners.prng.between(1, AGAIN_MAX)
        } else {
            0
        };
        let before = listeners.recent.len().saturating_sub(count);
        let again: Vec<_> = listeners.recent.iter().skip(before).cloned().collect();
        for live in again {
            let sent = self.send_to_all(state, &live);
            state.reached.repeated += sent;
        }
    }

    /// A node's connections are lost.
    pub(super) fn cut_listeners(&self, connection: &Arc<Mutex<Connection>>) {
        let mut state = self.lock();
        let ears = state.listeners.ears.iter_mut();
        for ear in ears.filter(|ear| Arc::ptr_eq(&ear.connection, connection)) {
            lock(&ear.wire).end(End::Cut);
        }
    }

    /// What a listener asks has come to the servers.
    fn handle_asked(&self, state: &mut State, id: u64, asked: Asked) {
        self.expire(state);
        let (last, has_leader) = (extent_of(state).last, state.has_leader);
        let State {
            listeners, reached, ..
        } = state;
        let Some(ear) = listeners.ear(id) else {
            return;
        };
        match asked {
            Asked::Subscribe(sid, subject) => {
                ear.wanted.insert(sid, subject);
            }
            Asked::Unsubscribe(sid) => {
                ear.wanted.remove(&sid);
            }
            Asked::Fence => {
                let loses = self.plan.loses_answers && ear.prng.one_in(40) && !self.is_calm();
                if !has_leader || loses || ear.is_deaf() {
                    reached.lost_fences += 1;
                    return;
                }
                let at = Instant::now() + delay(&mut ear.prng, self.plan.delay_us);
                lock(&ear.wire).send(at, Coming::Fence(last));
            }
        }
    }
}

fn delay(prng: &mut Prng, max_us: usize) -> Duration {
    Duration::from_micros(prng.below(max_us) as u64)
}

fn below_ms(prng: &mut Prng, max_ms: usize) -> Duration {
    Duration::from_millis(prng.below(max_ms) as u64)
}

/// What a listener asks of the servers.
#[derive(Debug)]
enum Asked {
    Subscribe(Sid, String),
    Unsubscribe(Sid),
    Fence,
}

/// Takes to the servers what a listener asks, each at its time, until the listener has gone.
async fn carry(cloud: Arc<Cloud>, id: u64, mut coming: UnboundedReceiver<(Instant, Asked)>) {
    while let Some((at, asked)) = coming.recv().await {
        sleep_until(at).await;
        cloud.handle_asked(&mut cloud.lock(), id, asked);
    }
    cloud.lock().listeners.ears.retain(|ear| ear.id != id);
}

/// A node's end of a connection by which it listens.
pub(super) struct SimListener {
    delay_us: usize,
    prng: Prng,
    wire: Arc<Mutex<Wire>>,
    asks: UnboundedSender<(Instant, Asked)>,
    /// When the last of them comes to the servers: they keep their order.
    last: Instant,
    last_sid: Sid,
    alarm: Pin<Box<Sleep>>,
}

impl SimListener {
    pub(super) async fn open(client: &Client) -> Result<Self, FeedError> {
        let made = client.ask(Whom::Any, |_, state| state.listeners.prng.fork());
        let prng = made.await.map_err(|why| FeedError::Make(why.into()))?;
        if client.connection().is_down {
            return Err(FeedError::Cut);
        }
        let (asks, coming) = unbounded_channel();
        let wire = Arc::default();
        let cloud = &client.cloud;
        let id = cloud.lock().listeners.add(&client.connection, &wire);
        tokio::spawn(carry(Arc::clone(cloud), id, coming));
        let now = Instant::now();
        Ok(Self {
            delay_us: cloud.plan.delay_us,
            prng,
            wire,
            asks,
            last: now,
            last_sid: Sid(0),
            alarm: Box::pin(sleep_until(now)),
        })
    }

    fn ask(&mut self, asked: Asked, slow_max_ms: usize) {
        let mut delay = delay(&mut self.prng, self.delay_us);
        if slow_max_ms > 0 && self.prng.one_in(4) {
            delay += below_ms(&mut self.prng, slow_max_ms);
        }
        self.last = self.last.max(Instant::now() + delay);
        // Its other end goes after this one.
        let _ = self.asks.send((self.last, asked));
    }
}

impl Listener for SimListener {
    fn subscribe(&mut self, subject: &str) -> Option<Sid> {
        assert!(!subject.contains(['*', '>']), "{subject} is of many");
        self.last_sid.0 += 1;
        let asked = Asked::Subscribe(self.last_sid, subject.to_owned());
        self.ask(asked, SLOW_SUBSCRIPTION_MAX_MS);
        Some(self.last_sid)
    }

    fn unsubscribe(&mut self, sid: Sid) {
        self.ask(Asked::Unsubscribe(sid), 0);
    }

    fn ask_fence(&mut self) {
        self.ask(Asked::Fence, 0);
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Heard, FeedError>> {
        loop {
            let next = {
                let mut wire = lock(&self.wire);
                if let Some(heard) = wire.take(Instant::now()) {
                    return Poll::Ready(heard);
                }
                wire.next_at(context.waker())
            };
            let Some(at) = next else {
                return Poll::Pending;
            };
            self.alarm.as_mut().reset(at);
            ready!(self.alarm.as_mut().poll(context));
        }
    }
}
