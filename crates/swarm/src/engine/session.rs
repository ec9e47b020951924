//! Sessions: what a terminal of the Centrifuge protocol says and hears, where one of `raw` only listens.
//!
//! After the upgrade a terminal sends `connect` and a `subscribe` for each of its channels at once, as the JavaScript SDK
//! does. It is open when all of them are answered. A terminal whose place in a channel the server can recover asks for
//! what it missed.
//!
//! An idle terminal keeps eight bytes per channel, its [`Place`], and one bit: whether pings want an answer.

mod memory;
mod place;
mod publications;
mod receipts;
mod replies;

use crate::clock::Nanos;
use crate::engine::crowd::World;
use crate::engine::plan::{Plan, Subscription};
use crate::engine::terminal::Phase;
use crate::failure::Failure;
use crate::measure::sequence::{Observed, Sequence};
use memory::{Heard, Memory};
use myriad_reactor::{Close, Reactor, Token};
use myriad_wire::centrifuge::Encoding;
use myriad_wire::centrifuge::client::{
    CommandWriter, Publication, Recovery, ServerEvent, ServerMessage, ServerMessages,
};
use myriad_wire::ws::{Opcode, encode_frame};
pub(crate) use place::EPOCH_BYTES_MAX;
use place::{Epoch, Epochs, Place};
pub(super) use publications::Delivered;
use receipts::Receipts;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Who the crowd says it is, in `connect`.
const NAME: &str = "myriad-swarm";

/// The command ids of a terminal: `connect`, and the first channel's `subscribe`.
const CONNECT_ID: u32 = 1;
const SUBSCRIBE_ID: u32 = 2;

/// Bytes of commands in one message, roughly. Servers take 64 KiB by default.
const COMMAND_BYTES_MAX: usize = 32 * 1024;

/// Bytes that are kept of the first failure of each kind.
const EXAMPLE_BYTES_MAX: usize = 200;

/// Kinds of failures of which an example is kept. A server may answer with any code.
const EXAMPLES_MAX: usize = 64;

/// The sessions of one thread's terminals.
#[derive(Debug)]
pub(super) struct Sessions {
    encoding: Encoding,
    /// By terminal, `stride` each.
    places: Vec<Place>,
    stride: usize,
    /// One bit a terminal: the server wants its pings answered.
    answers_pings: Vec<u64>,
    /// Ids of commands that are not answered yet, by terminal: those that are joining, and a few others.
    awaited: HashMap<u32, Vec<u32>>,
    epochs: Epochs,
    memory: Memory,
    /// Who has got which publication of a terminal.
    receipts: Receipts,
    /// Failures of which an example was kept.
    exemplified: BTreeSet<Failure>,
}

impl Sessions {
    /// None where terminals speak no protocol of their own.
    pub(super) fn new(plan: &Plan, count: u32) -> Option<Box<Self>> {
        let session = plan.session.as_ref()?;
        let subscriptions = plan.targets.iter().map(|target| target.subscriptions.len());
        let of_groups = usize::from(session.group_channels_from.is_some());
        let stride = subscriptions.max().unwrap_or(0) + of_groups;
        let mut epochs = Epochs::default();
        // The one channel of the run.
        let beginning = session
            .recover_from
            .as_ref()
            .map_or(Place::NONE, |(epoch, offset)| {
                Place::at(epochs.find_or_add(0, epoch), *offset)
            });
        Some(Box::new(Self {
            encoding: session.encoding,
            places: vec![beginning; stride * count as usize],
            stride,
            answers_pings: vec![0; (count as usize).div_ceil(64)],
            awaited: HashMap::new(),
            epochs,
            memory: Memory::default(),
            receipts: Receipts::new(plan.answered.map(|answered| answered.settle)),
            exemplified: BTreeSet::new(),
        }))
    }

    fn place_mut(&mut self, index: u32, slot: usize) -> &mut Place {
        assert!(slot < self.stride);
        &mut self.places[index as usize * self.stride + slot]
    }

    fn place(&self, index: u32, slot: usize) -> Place {
        assert!(slot < self.stride);
        self.places[index as usize * self.stride + slot]
    }

    /// Where a terminal's subscription is to begin again; none if the server cannot recover it.
    fn recovery(&self, index: u32, slot: usize, channel: u32) -> Option<Recovery<'_>> {
        let place = self.place(index, slot);
        let epoch = self.epochs.name(channel, place.epoch())?;
        let offset = place.offset();
        Some(Recovery { epoch, offset })
    }

    fn set_answers_pings(&mut self, index: u32, answers: bool) {
        let (word, bit) = (index as usize / 64, 1 << (index % 64));
        if answers {
            self.answers_pings[word] |= bit;
        } else {
            self.answers_pings[word] &= !bit;
        }
    }

    fn answers_pings(&self, index: u32) -> bool {
        self.answers_pings[index as usize / 64] >> (index % 64) & 1 == 1
    }

    /// Forgets what is not answered on a connection that ended.
    pub(super) fn forget(&mut self, index: u32) {
        if !self.awaited.is_empty() {
            self.awaited.remove(&index);
        }
    }

    /// A whole message of commands.
    fn commands(&self, write: impl FnOnce(&mut CommandWriter<'_>)) -> Vec<u8> {
        let mut message = Vec::new();
        write(&mut CommandWriter::new(self.encoding, &mut message));
        message
    }

    /// The commands with which a terminal begins, in messages of a size that servers take.
    fn first_messages(
        &self,
        index: u32,
        token: &str,
        plan: &Plan,
        subscriptions: &[Subscription],
    ) -> Vec<Vec<u8>> {
        let session = plan.session.as_ref().expect("the run has sessions");
        let channel_of =
            |subscription: &Subscription| &session.channels[subscription.channel as usize];
        let (mut messages, mut slot, mut rest) = (Vec::new(), 0, subscriptions);
        while !rest.is_empty() || messages.is_empty() {
            let mut bytes = 0;
            let fitting = rest.iter().take_while(|subscription| {
                bytes += 64 + channel_of(subscription).len();
                bytes <= COMMAND_BYTES_MAX
            });
            let (now, later) = rest.split_at(fitting.count().max(1).min(rest.len()));
            messages.push(self.commands(|writer| {
                if messages.is_empty() {
                    writer.connect(CONNECT_ID, token, NAME);
                }
                for subscription in now {
                    let recovery = self.recovery(index, slot, subscription.channel);
                    let id = subscribe_id(slot);
                    writer.subscribe(id, channel_of(subscription), recovery, false);
                    slot += 1;
                }
            }));
            rest = later;
        }
        messages
    }
}

fn subscribe_id(slot: usize) -> u32 {
    SUBSCRIBE_ID + u32::try_from(slot).expect("a URL's channels are far fewer than 2^32")
}

/// The slot of the subscription that a command of this id is about.
fn slot_of(id: u32) -> Option<usize> {
    id.checked_sub(SUBSCRIBE_ID).map(|slot| slot as usize)
}

impl World {
    fn sessions_mut(&mut self) -> &mut Sessions {
        self.sessions.as_mut().expect("the run has sessions")
    }

    /// Sends a terminal's first commands after its upgrade.
    pub(super) fn begin_session(&mut self, token: Token) {
        let plan = Arc::clone(&self.plan);
        let index = token.index as usize;
        self.terminals[index].phase = Phase::Joining;
        let subscriptions = self.subscriptions_of(token.index);
        let session = plan.session.as_ref().expect("the run has sessions");
        let shown = session.token(plan.number(self.part, token.index));
        let is_forgetful = self.is_forgetful(token.index);
        let sessions = self.sessions.as_mut().expect("the run has sessions");
        let mut awaited = vec![CONNECT_ID];
        awaited.extend((0..subscriptions.len()).map(subscribe_id));
        sessions.awaited.insert(token.index, awaited);
        sessions.set_answers_pings(token.index, false);
        if is_forgetful {
            let first = token.index as usize * sessions.stride;
            sessions.places[first..first + sessions.stride].fill(Place::NONE);
        }
        for message in sessions.first_messages(token.index, shown, &plan, &subscriptions) {
            self.send_commands(token, &message);
        }
        for (slot, subscription) in subscriptions.iter().enumerate() {
            if !self
                .sessions_mut()
                .place(token.index, slot)
                .epoch()
                .is_named()
            {
                self.forget_place(token.index, slot, *subscription);
            }
        }
    }

    /// A subscription begins anew: what came before is none of the terminal's business.
    fn forget_place(&mut self, index: u32, slot: usize, subscription: Subscription) {
        *self.sessions_mut().place_mut(index, slot) = Place::NONE;
        // One that comes back is to find out what it missed.
        if let Some(stream_slot) = subscription.stream_slot
            && !self.is_coming_back(index)
        {
            *self.sequence_mut(index as usize, usize::from(stream_slot)) = Sequence::NONE;
        }
    }

    /// What a terminal subscribes to, by slot: the channels of its target, then that of its group.
    fn subscriptions_of(&self, index: u32) -> Vec<Subscription> {
        let of_target = self.target(index).subscriptions.iter().copied();
        of_target.chain(self.group_subscription(index)).collect()
    }

    fn group_subscription(&self, index: u32) -> Option<Subscription> {
        let number = self.plan.number(self.part, index);
        self.plan.group_subscription(number)
    }

    fn subscription_at(&self, index: u32, slot: usize) -> Option<Subscription> {
        let of_target = &self.target(index).subscriptions;
        match of_target.get(slot) {
            Some(subscription) => Some(*subscription),
            None => self
                .group_subscription(index)
                .filter(|_| slot == of_target.len()),
        }
    }

    /// Where a terminal keeps its place in a channel; none if it does not subscribe to it.
    fn slot_of_channel(&self, index: u32, channel: u32) -> Option<usize> {
        let target = self.target(index);
        let of_target = target.slot_of_channel(channel);
        of_target.or_else(|| {
            let own = self.group_subscription(index)?;
            (own.channel == channel).then_some(target.subscriptions.len())
        })
    }

    /// Queues a command, in a message of its own.
    pub(super) fn send_command(
        &mut self,
        token: Token,
        write: impl FnOnce(&mut CommandWriter<'_>),
    ) {
        let message = self.sessions_mut().commands(write);
        self.send_commands(token, &message);
    }

    /// Takes the line breaks out of data in JSON, where a line is a command.
    pub(super) fn break_no_lines(&mut self, data: &mut [u8]) {
        if self.sessions_mut().encoding == Encoding::Json {
            for byte in data.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')) {
                *byte = b' ';
            }
        }
    }

    fn send_commands(&mut self, token: Token, message: &[u8]) {
        let opcode = match self.sessions_mut().encoding {
            Encoding::Json => Opcode::Text,
            Encoding::Protobuf => Opcode::Binary,
        };
        let mask = Some(self.random.mask());
        self.outbox.push(token.index, token.generation, |out| {
            encode_frame(out, opcode, true, mask, message);
        });
    }

    /// Hears the input if it is exactly the frame that was heard last.
    pub(super) fn hear_again(&mut self, token: Token, input: &[u8], now: Nanos) -> bool {
        let Some(heard) = self.sessions_mut().memory.recall(input) else {
            return false;
        };
        for one in &heard {
            self.hear_publication(token, *one, now);
        }
        self.sessions_mut().memory.give_back(heard);
        true
    }

    /// Handles a message of the server. `frame` is the whole frame that it came in, unless it came in pieces. Returns false if
    /// the terminal's connection has ended over it.
    pub(super) fn hear_message<R: Reactor>(
        &mut self,
        reactor: &mut R,
        token: Token,
        frame: Option<&[u8]>,
        message: &[u8],
        now: Nanos,
    ) -> bool {
        let encoding = self.sessions_mut().encoding;
        if message == ping(encoding) {
            self.answer_server_ping(token);
            return true;
        }
        let mut heard = self.sessions_mut().memory.forget();
        let mut repeatable = frame.filter(|frame| Memory::fits(frame));
        let mut is_pinged = false;
        for message in ServerMessages::new(encoding, message) {
            match message {
                Err(error) => {
                    let said = error.to_string();
                    self.fail_session(reactor, token, Failure::SessionInvalid, &said, now);
                    return false;
                }
                Ok(ServerMessage::Push {
                    channel,
                    event: ServerEvent::Publication(publication),
                    ..
                }) => {
                    let one = self.recognise(&channel, &publication);
                    self.hear_publication(token, one, now);
                    if repeatable.is_some() {
                        heard.push(one);
                    }
                }
                Ok(ServerMessage::Ping) => {
                    repeatable = None;
                    // Pings are far apart. A message full of them is not worth as many answers.
                    if !std::mem::replace(&mut is_pinged, true) {
                        self.answer_server_ping(token);
                    }
                }
                Ok(message) => {
                    repeatable = None;
                    if !self.handle_server_message(reactor, token, message, now) {
                        return false;
                    }
                }
            }
        }
        if let Some(frame) = repeatable {
            self.sessions_mut().memory.remember(frame, heard);
        }
        true
    }

    fn recognise(&mut self, channel: &str, publication: &Publication<'_>) -> Heard {
        let data = publication.data.as_bytes();
        let flow = self.recognise_flow(data);
        if flow.is_none() && self.flows.is_some() {
            self.keep_unstamped(data);
        }
        let session = self.plan.session.as_ref().expect("the run has sessions");
        let epochs = &mut self.sessions.as_mut().expect("the run has sessions").epochs;
        let channel = session.index_of(channel);
        let named = channel.filter(|_| !publication.epoch.is_empty());
        let epoch = named.map_or(Epoch::NONE, |channel| {
            epochs.find_or_add(channel, &publication.epoch)
        });
        let (key, published) = (
            self.arrivals.recognise(data),
            self.recognise_published(data),
        );
        Heard {
            channel,
            epoch,
            offset: publication.offset,
            key,
            published,
            flow,
            payload_bytes: data.len(),
        }
    }

    /// Counts a publication at one terminal, and judges it by its offset and by its stamp.
    fn hear_publication(&mut self, token: Token, heard: Heard, now: Nanos) {
        let is_unstamped = heard.flow.is_none() && self.flows.is_some();
        self.totals.unstamped += u64::from(is_unstamped);
        let slot = heard
            .channel
            .and_then(|channel| self.slot_of_channel(token.index, channel));
        let Some(slot) = slot else {
            self.totals.messages += 1;
            self.totals.message_bytes += heard.payload_bytes as u64;
            self.totals.unexpected += 1;
            if let Some(key) = heard.flow {
                self.note_flow_unexpected(key);
            }
            return;
        };
        if heard.offset > 0 {
            // What did not come to one that stalls is counted apart.
            let is_excused = self.excuses_gap(token.index, slot, now);
            let place = self.sessions_mut().place_mut(token.index, slot);
            match place.observe(heard.epoch, heard.offset) {
                Observed::InOrder => {}
                Observed::AfterGap(_) if is_excused => {}
                Observed::AfterGap(count) => self.totals.offset_gaps += u64::from(count),
                Observed::Overtaken => self.totals.offset_overtaken += 1,
                Observed::Repeated => self.totals.offset_duplicates += 1,
            }
        }
        let phase = self.terminals[token.index as usize].phase;
        if let Some(key) = heard.flow {
            self.totals.messages += 1;
            self.totals.message_bytes += heard.payload_bytes as u64;
            // Who still joins was not counted in.
            if matches!(phase, Phase::Open | Phase::Stalled) {
                self.note_flow_delivery(token, key, now);
            }
            return;
        }
        match heard.published {
            Some(published) if phase == Phase::Open => {
                let is_in_place = heard.channel == Some(published.channel);
                self.note_published(token, published, is_in_place, heard.payload_bytes, now);
            }
            _ => self.note_heard(token, heard.key, heard.payload_bytes),
        }
    }

    fn answer_server_ping(&mut self, token: Token) {
        if self.sessions_mut().answers_pings(token.index) {
            self.totals.pings_answered += 1;
            let encoding = self.sessions_mut().encoding;
            self.send_commands(token, ping(encoding));
        }
    }

    /// Ends a terminal over what its server said.
    fn fail_session<R: Reactor>(
        &mut self,
        reactor: &mut R,
        token: Token,
        failure: Failure,
        said: &str,
        now: Nanos,
    ) {
        self.keep_example(failure, said);
        self.fail_terminal(reactor, token, failure, now);
    }

    /// Keeps what the server said, if it is the first failure of its kind.
    pub(super) fn keep_example(&mut self, failure: Failure, said: &str) {
        let exemplified = match (&mut self.sessions, &mut self.flows) {
            (Some(sessions), _) => &mut sessions.exemplified,
            (None, Some(flows)) => &mut flows.exemplified,
            (None, None) => return,
        };
        let is_first =
            exemplified.len() < EXAMPLES_MAX && !said.is_empty() && exemplified.insert(failure);
        if is_first {
            let said = &said[..said.floor_char_boundary(EXAMPLE_BYTES_MAX)];
            self.notes.answers.push((failure, said.as_bytes().to_vec()));
        }
    }

    /// Ends a terminal that is joining or open, because of a failure of its server.
    pub(super) fn fail_terminal<R: Reactor>(
        &mut self,
        reactor: &mut R,
        token: Token,
        failure: Failure,
        now: Nanos,
    ) {
        let index = token.index as usize;
        if self.terminals[index].phase == Phase::Joining {
            self.fail_attempt(reactor, index, failure, now);
        } else {
            if let Failure::SessionClosed(code) = failure {
                self.heed_code(token.index, Some(code));
            }
            self.lose(reactor, index, failure, Close::Reset, now);
        }
    }
}

/// A ping, which is also its answer: an empty message.
fn ping(encoding: Encoding) -> &'static [u8] {
    match encoding {
        Encoding::Json => b"{}",
        Encoding::Protobuf => &[0],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::protocol::Protocol;
    use crate::target::Target;
    use myriad_reactor::Driver;

    /// The sessions of 100 terminals with these channels.
    fn sessions(channels: &[String]) -> (Plan, Box<Sessions>) {
        let target = Target::parse("ws://127.0.0.1:8000/connection/websocket").unwrap();
        let mut config = Config::new(vec![target], 100);
        config.driver = Some(Driver::Epoll);
        config.protocol = Protocol::CentrifugeJson;
        config.channels = channels.to_vec();
        let plan = config.prepare().unwrap().plan;
        let sessions = Sessions::new(&plan, 100).unwrap();
        (plan, sessions)
    }

    fn texts(messages: &[Vec<u8>]) -> Vec<&str> {
        let texts = messages.iter().map(|message| std::str::from_utf8(message));
        texts.collect::<Result<_, _>>().unwrap()
    }

    #[test]
    fn who_subscribes_to_nothing_connects() {
        let (plan, sessions) = sessions(&[]);
        let messages = sessions.first_messages(0, "", &plan, &plan.targets[0].subscriptions);
        assert_eq!(
            texts(&messages),
            [r#"{"id":1,"connect":{"name":"myriad-swarm"}}"#]
        );
    }

    #[test]
    fn a_terminal_asks_for_what_it_missed_where_the_server_can_recover_it() {
        let (plan, mut sessions) = sessions(&["a".to_owned(), "b".to_owned()]);
        let epoch = sessions.epochs.find_or_add(1, "abcdefgh");
        *sessions.place_mut(7, 0) = Place::at(Epoch::UNNAMED, 5);
        *sessions.place_mut(7, 1) = Place::at(epoch, 6);
        let messages = sessions.first_messages(7, "", &plan, &plan.targets[0].subscriptions);
        let [message] = texts(&messages)[..] else {
            panic!("{messages:?}");
        };
        let lines: Vec<&str> = message.lines().skip(1).collect();
        let recovering =
            r#"{"id":3,"subscribe":{"channel":"b","recover":true,"epoch":"abcdefgh","offset":6}}"#;
        assert_eq!(
            lines,
            [r#"{"id":2,"subscribe":{"channel":"a"}}"#, recovering]
        );
        let others = sessions.first_messages(6, "", &plan, &plan.targets[0].subscriptions);
        assert!(!texts(&others)[0].contains("recover"));
    }

    #[test]
    fn commands_for_many_channels_are_dealt_to_messages() {
        let channels: Vec<String> = (0..700).map(|n| format!("{n:0>200}")).collect();
        let (plan, sessions) = sessions(&channels);
        let messages = sessions.first_messages(0, "", &plan, &plan.targets[0].subscriptions);
        let mut ids = Vec::new();
        for message in texts(&messages) {
            assert!(message.len() < 64 * 1024, "{}", message.len());
            for line in message.lines() {
                let command: serde_json::Value = serde_json::from_str(line).unwrap();
                ids.push(command["id"].as_u64().unwrap());
            }
        }
        assert!(messages.len() > 4, "{}", messages.len());
        assert_eq!(ids, (1..=701).collect::<Vec<_>>());
    }

    #[test]
    fn each_terminal_has_its_own_bit() {
        let (_, mut sessions) = sessions(&[]);
        for index in [0, 63, 64, 99] {
            sessions.set_answers_pings(index, true);
        }
        sessions.set_answers_pings(63, false);
        let answering: Vec<u32> = (0..100)
            .filter(|&index| sessions.answers_pings(index))
            .collect();
        assert_eq!(answering, [0, 64, 99]);
    }
}
