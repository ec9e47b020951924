//! A node of the simulated cluster: the reader and the publisher that ship, and a real home.

use super::cloud::{Client, Cloud, lock};
use super::crowd::{Crowd, Next};
use super::frozen::Freezer;
use super::plan::Plan;
use super::{CHANNELS, STREAM_NAMESPACE};
use crate::broker::State;
use crate::broker::by_channel::Hearer;
use crate::broker::homes::Homes;
use crate::broker::link::Link;
use crate::broker::publisher;
use crate::broker::reader::Reader;
use crate::broker::servers::Servers;
use crate::broker::settings::BrokerInterest;
use crate::mailbox::{Mailbox, mailbox};
use myriad_broker::Subjects;
use myriad_hub::{Home, HomeSettings, Pool, Recover};
use myriad_reactor::sim::Prng;
use myriad_shard::{
    Asker, BrokerTask, ChannelOptions, Content, Epoch, LogEntry, LogEvent, LogId, Namespaces,
    NotPublished, Now, Partitions, Payload, Permit, Position, PublishRefused, RecoveryMode,
    RequestId, Since, Submission, Ticket,
};
use myriad_wheel::Key;
use std::cell::RefCell;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, interval};

/// Bytes of publications in flight on a node.
const POOL_BYTES: u64 = 1 << 20;
const TICK: Duration = Duration::from_millis(50);
/// Publications that a recovery may have.
const RECOVERED_MAX: u32 = 300;

thread_local! {
    static RANDOM: RefCell<Prng> = RefCell::new(Prng::new(0));
}

/// Seeds what nodes take for the kernel's random numbers.
pub(super) fn seed_random(prng: Prng) {
    RANDOM.set(prng);
}

/// The home of a node, and those who wait there.
pub(super) struct NodeHomes {
    node: u64,
    began: Instant,
    pool: Pool,
    home: Mutex<Home>,
    cloud: Arc<Cloud>,
    crowd: Arc<Mutex<Crowd>>,
    /// Where the home's wishes go.
    letters: Arc<Mailbox<BrokerTask>>,
}

impl NodeHomes {
    fn now(&self) -> Now {
        Now(u64::try_from(self.began.elapsed().as_nanos()).expect("a run is short"))
    }

    /// Tells the home something, and its subscribers what it says.
    fn with(&self, tell: impl FnOnce(&mut Home, Now)) {
        let now = self.now();
        let mut home = lock(&self.home);
        tell(&mut home, now);
        while let Some(effect) = home.poll_effect() {
            let handle = |truth: &_| lock(&self.crowd).handle(truth, self.node, effect);
            let (subscriber, since) = match self.cloud.with_truth(handle) {
                None => continue,
                Some(Next::Recover { subscriber, since }) => (subscriber, Some(since)),
                Some(Next::Leave { subscriber }) => (subscriber, None),
            };
            let (channel, serial) = {
                let crowd = lock(&self.crowd);
                let known = &crowd.subscribers[subscriber];
                (CHANNELS[known.channel], known.serial)
            };
            let Some(since) = since else {
                lock(&self.crowd).subscribers[subscriber].leave();
                home.handle_leave(channel, subscriber, now);
                continue;
            };
            let request = Recover {
                channel: channel.into(),
                ticket: ticket(subscriber, serial),
                since: Since {
                    offset: since.offset,
                    epoch: since.epoch.as_str().into(),
                },
                mode: RecoveryMode::Stream,
                is_asked: true,
                max: RECOVERED_MAX,
            };
            home.handle_recover(request, now);
        }
        while let Some(wish) = home.poll_wish() {
            let node = self.node;
            self.cloud.say(|| format!("node {node}: {wish:?}"));
            lock(&self.crowd).note_wish(wish.wanting);
            self.letters.post(BrokerTask::Wish(wish));
        }
    }

    fn pass(&self) {
        self.with(|home, now| {
            while home.next_deadline().is_some_and(|due| due <= now.tick()) {
                home.handle_time(now);
            }
        });
    }
}

fn ticket(subscriber: usize, serial: u32) -> Ticket {
    Ticket {
        mark: 0,
        shard: u16::try_from(subscriber).expect("they are few"),
        connection: Key {
            index: 0,
            generation: 0,
        },
        command: serial,
    }
}

impl Homes for NodeHomes {
    fn epoch(&self) -> Epoch {
        Epoch::new(self.node)
    }

    fn take_in(&self, content: &Content) -> Result<Permit, PublishRefused> {
        let bytes = content.bytes() as u64;
        Permit::take(&self.pool, bytes, 0).ok_or(PublishRefused::Busy)
    }

    fn read_log(&self, entry: LogEntry) {
        self.cloud.say(|| {
            let (node, offset) = (self.node, entry.offset);
            let of = entry.channel.as_deref().unwrap_or("the log");
            match &entry.event {
                LogEvent::Publication(..) => format!("node {node} reads {offset} of {of}"),
                event => format!("node {node} reads {offset} of {of}: {event:?}"),
            }
        });
        self.with(|home, now| home.handle_log(entry, now));
    }

    fn answer_publisher(&self, asker: Asker, position: Result<Position, NotPublished>) {
        let Asker::Control(RequestId(number)) = asker else {
            panic!("{asker:?} published nothing")
        };
        let mut crowd = lock(&self.crowd);
        match position {
            Ok(_) => crowd.reached.publications += 1,
            Err(_) => crowd.reached.refused += 1,
        }
        let published = crowd.publications.get_mut(&number);
        let published = published.expect("somebody published it");
        assert_eq!(published.node, self.node);
        let before = published.answer.replace(position);
        assert!(before.is_none(), "{number} is answered twice");
    }

    fn answer_remover(&self, id: RequestId, is_removed: bool) {
        let mut crowd = lock(&self.crowd);
        crowd.reached.removals += u64::from(is_removed);
        let (node, answer) = crowd.removals.get_mut(&id.0).expect("somebody removes");
        assert_eq!(*node, self.node);
        let before = answer.replace(is_removed);
        assert!(before.is_none(), "removal {id:?} is answered twice");
    }
}

fn namespaces(plan: &Plan) -> Arc<Namespaces> {
    let options = ChannelOptions {
        logs: Some(Partitions::one(LogId(0))),
        history_size: plan.history_size,
        history_ttl: plan.history_ttl,
        ..ChannelOptions::default()
    };
    let named = [(STREAM_NAMESPACE.into(), options)];
    Arc::new(Namespaces::new(ChannelOptions::default(), named))
}

fn seam(homes: &Arc<NodeHomes>) -> Arc<dyn Homes> {
    Arc::clone(homes) as Arc<dyn Homes>
}

/// Reads the log, whole or by channel.
fn read(link: &Arc<Link>, homes: &Arc<NodeHomes>, freezer: &Freezer) -> JoinHandle<()> {
    let (homes, log) = (seam(homes), Arc::clone(&link.logs[0]));
    let link = Arc::clone(link);
    if link.interest.keeps_only_wanted() {
        tokio::spawn(freezer.task(Hearer::new(link, homes, log).run()))
    } else {
        tokio::spawn(freezer.task(Reader::new(link, homes, log).run()))
    }
}

async fn tick(homes: Arc<NodeHomes>) {
    let mut ticks = interval(TICK);
    loop {
        ticks.tick().await;
        homes.pass();
    }
}

/// A node that runs.
pub(super) struct Node {
    pub(super) number: u64,
    pub(super) client: Arc<Client>,
    state: Arc<State>,
    link: Arc<Link>,
    homes: Arc<NodeHomes>,
    letters: Arc<Mailbox<BrokerTask>>,
    pub(super) freezer: Freezer,
    publisher: JoinHandle<()>,
    /// All others.
    tasks: Vec<JoinHandle<()>>,
}

impl Node {
    pub(super) fn start(
        number: u64,
        interest: BrokerInterest,
        plan: &Plan,
        cloud: &Arc<Cloud>,
        crowd: &Arc<Mutex<Crowd>>,
        subjects: &Subjects,
        began: Instant,
    ) -> Self {
        let namespaces = namespaces(plan);
        let (letters, coming) = mailbox().expect("a pipe");
        let settings = HomeSettings {
            vacated_delay: None,
            epoch: Epoch::new(number),
            epoch_seed: number,
            namespaces: Arc::clone(&namespaces),
            logs: 1,
            by_channel: interest.keeps_only_wanted(),
            history_bytes_max: 1 << 20,
            batch_bytes_max: 256 << 10,
        };
        let homes = Arc::new(NodeHomes {
            node: number,
            began,
            pool: Pool::new(POOL_BYTES),
            home: Mutex::new(Home::new(settings, Now(0))),
            cloud: Arc::clone(cloud),
            crowd: Arc::clone(crowd),
            letters: Arc::clone(&letters),
        });
        let client = Arc::new(Client::new(cloud));
        let state = Arc::new(State {
            logs: 1,
            ..State::default()
        });
        let random = || Some(RANDOM.with_borrow_mut(Prng::bits));
        let link = Arc::new(Link::new(
            Arc::clone(&client) as Arc<dyn Servers>,
            subjects.clone(),
            namespaces,
            format!("node-{number}"),
            Arc::clone(&state),
            random,
            interest,
        ));
        let freezer = Freezer::default();
        let reader = read(&link, &homes, &freezer);
        let publisher = publisher::run(Arc::clone(&link), seam(&homes), coming);
        let publisher = tokio::spawn(freezer.task(publisher));
        let ticks = tokio::spawn(freezer.task(tick(Arc::clone(&homes))));
        Self {
            number,
            client,
            state,
            link,
            homes,
            letters,
            freezer,
            publisher,
            tasks: vec![reader, ticks],
        }
    }

    /// Ends at once, as a process that is killed.
    pub(super) fn kill(self) {
        self.publisher.abort();
        for task in &self.tasks {
            task.abort();
        }
        self.client.cut();
    }

    /// Begins to end in order: nobody publishes on it any more.
    pub(super) fn finish(&self) {
        self.state.finish.notify_one();
    }

    /// Whether it has nothing to publish any more.
    pub(super) fn has_finished(&self) -> bool {
        self.publisher.is_finished()
    }

    pub(super) fn join(&self, subscriber: usize, channel: usize, serial: u32) {
        let (name, serial) = (CHANNELS[channel].into(), u64::from(serial));
        self.homes
            .with(|home, now| home.handle_join(name, subscriber, serial, now));
    }

    pub(super) fn leave(&self, subscriber: usize, channel: usize) {
        self.homes
            .with(|home, now| home.handle_leave(CHANNELS[channel], subscriber, now));
    }

    pub(super) fn read_history(&self, channel: usize) {
        // The answer does not name the channel.
        let number = u32::try_from(channel).expect("they are few");
        let request = myriad_hub::ReadHistory {
            channel: CHANNELS[channel].into(),
            asker: Asker::Session(ticket(0, number)),
            limit: None,
            since: None,
            reverse: false,
        };
        self.homes
            .with(|home, now| home.handle_history(request, now));
    }

    pub(super) fn publish(&self, channel: usize, number: u64, key: Option<u64>, version: u64) {
        let content = Content::new(Payload::Text(number.to_string().into()));
        let permit = self.homes.take_in(&content).expect("there is room");
        self.letters.post(BrokerTask::Publish(Submission {
            channel: CHANNELS[channel].into(),
            content: content.into(),
            permit,
            asker: Some(Asker::Control(RequestId(number))),
            sender: None,
            idempotency_key: key.map(|key| key.to_string().into()),
            delta: false,
            skip_history: false,
            version,
            version_epoch: "".into(),
        }));
    }

    pub(super) fn remove(&self, channel: usize, number: u64) {
        self.letters.post(BrokerTask::RemoveHistory {
            channel: CHANNELS[channel].into(),
            id: RequestId(number),
        });
    }

    /// Asserts that it has read all, and holds nothing. The epoch of its log.
    pub(super) fn check(&self) -> Epoch {
        let number = self.number;
        assert!(
            self.state.has_caught_up(),
            "node {number} has not caught up"
        );
        assert_eq!(
            self.homes.pool.available(),
            POOL_BYTES,
            "node {number} holds publications"
        );
        let known = self.link.logs[0].known_up_to();
        known.epoch.expect("it has read the log")
    }
}
