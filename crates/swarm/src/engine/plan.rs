//! The plan that every thread knows before it begins: the crowd, dealt to threads.

use crate::config::{Comeback, Incident};
use crate::engine::churn::SOCKETS_SPARE;
use crate::engine::deal::Deal;
use crate::engine::flows::plan::FlowsPlan;
use crate::engine::framing::Framing;
use crate::engine::ramp::Knot;
use crate::engine::sources::Sources;
use crate::engine::tls::TlsPlan;
use crate::measure::push::PushKey;
use crate::random::mix;
use crate::request_connection::RequestTls;
use crate::target::with_one_more_channel;
use myriad_wire::centrifuge::Encoding;
use myriad_wire::handshake::Key;
use myriad_wire::ws::Extension;
use std::borrow::Cow;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio_rustls::rustls::pki_types::ServerName;

/// The whole crowd, the same for all threads.
#[derive(Debug)]
pub(crate) struct Plan {
    pub connections: u32,
    pub threads: u32,
    /// Which of the threads and terminals are on which machine.
    pub deal: Deal,
    /// The terminal from which source addresses are given out: the first one that has them from here.
    pub sources_from: u64,
    pub targets: Vec<PlannedTarget>,
    /// Channels that the run publishes to.
    pub streams: u32,
    /// Addresses that terminals connect to, in turn. Several targets may have the same, for other channels.
    pub destinations: u64,
    /// What terminals say after the upgrade; none where they only listen.
    pub session: Option<SessionPlan>,
    /// What terminals ask that speak HTTP; none where they do not.
    pub http: Option<HttpPlan>,
    /// How messages are told apart where terminals speak plain TCP; none where they do not.
    pub framing: Option<Framing>,
    /// What connections with TLS need; none where no target and no request has it.
    pub tls: Option<TlsPlan>,
    pub sources: Sources,
    /// Sent with every upgrade request, and with every request over HTTP, after the protocol's own.
    pub headers: Vec<(String, String)>,
    /// Whether targets or headers have variables, which each client fills in.
    pub has_own_heads: bool,
    /// What is offered with every upgrade request.
    pub extension: Extension,
    /// Connections a second over all threads; none when the window alone bounds them, or a curve.
    pub connect_rate_per_s: Option<f64>,
    /// How the whole crowd grows, where it does not grow at one rate.
    pub arrival_curve: Option<Arc<[Knot]>>,
    /// Connections under way at once over all threads.
    pub connecting_max: u32,
    pub connect_timeout: Duration,
    pub handshake_timeout: Duration,
    /// Attempts after the first that failed.
    pub retries: u8,
    pub heartbeat: Option<Duration>,
    /// Share of the crowd that leaves and is replaced each second; none: nobody leaves.
    pub churn_per_s: Option<f64>,
    /// How terminals come back.
    pub comeback: Comeback,
    /// What happens to shares of the crowd, once it is connected.
    pub incidents: Vec<Incident>,
    /// Messages that the server answers; none: terminals only listen.
    pub answered: Option<AnsweredPlan>,
    /// Messages that terminals send by a schedule; none: no flows.
    pub flows: Option<Arc<FlowsPlan>>,
    pub limits: myriad_wire::ws::Limits,
    /// Bytes of incomplete messages that a thread keeps. Past it the terminal that has just received some is ended.
    pub partial_bytes_max: usize,
    /// Identifies the run in stamps and seeds what is random in it.
    pub run: u16,
    /// The same in marks of flows. What a flow expects is on one machine, so each has marks of its own.
    pub mark_run: u16,
    pub seed: u64,
}

/// How a terminal of HTTP gets its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HttpKind {
    /// By requests that are held, one after the other.
    LongPoll,
    /// By server-sent events.
    EventStream,
    /// By a body without end, with a message on each line.
    Lines,
    /// It gets none: it sends the requests of flows.
    Requests,
}

/// What a poll's answer says about the next request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PollPosition {
    /// Offset and cursor of Durable Streams where the answer has them, else its time and tag.
    #[default]
    Automatic,
    /// Each of these headers becomes a parameter of the query: `(header, parameter)`.
    Headers(Vec<(String, String)>),
    /// Nothing: each request is the same.
    Same,
}

impl PollPosition {
    /// Reads headers and the parameters that they become, as `HEADER=PARAMETER`; a header alone gives its name to the
    /// parameter, and `none` stands for no header.
    #[must_use]
    pub fn parse(given: &[String]) -> Self {
        if given.is_empty() {
            return Self::Automatic;
        }
        let headers = given.iter().filter(|text| *text != "none").map(|text| {
            let (header, parameter) = text.split_once('=').unwrap_or((text, text));
            (header.trim().to_owned(), parameter.trim().to_owned())
        });
        let headers: Vec<(String, String)> = headers.collect();
        if headers.is_empty() {
            Self::Same
        } else {
            Self::Headers(headers)
        }
    }
}

/// What terminals of HTTP ask.
#[derive(Clone, Debug)]
pub(crate) struct HttpPlan {
    pub kind: HttpKind,
    /// Makes each request a POST.
    pub body: Option<String>,
    pub position: PollPosition,
    /// How long a poll without a delivery is to be held: the shortest and the longest time.
    pub expect_held: Option<(Duration, Duration)>,
    /// How much of the answer to a request of a flow is looked at.
    pub answer_bytes_max: usize,
}

/// What answers a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The message itself, sent back.
    Echo,
    /// The reply to the command that published it.
    Reply,
}

/// The messages that the server answers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct AnsweredPlan {
    pub answer: Answer,
    /// Messages a second over the whole crowd.
    pub rate_per_s: f64,
    /// Bytes of a message, its stamp included.
    pub payload_bytes: usize,
    /// How long an answer may take.
    pub settle: Duration,
    /// Limit of unanswered messages over all threads. Past it, due messages are held back.
    pub outstanding_max: usize,
}

/// The sessions that terminals begin.
#[derive(Debug)]
pub(crate) struct SessionPlan {
    pub encoding: Encoding,
    /// Sent with `connect`: the clients take them in turn. Empty for none.
    pub tokens: Vec<String>,
    /// The position from which every terminal's one subscription begins: an epoch and an offset.
    pub recover_from: Option<(String, u64)>,
    /// All channels that terminals subscribe to.
    pub channels: Vec<String>,
    /// Where those of groups begin among them, one for each group; none where groups have none.
    pub group_channels_from: Option<u32>,
    /// By channel: terminals of the whole crowd that subscribe to it.
    pub subscribers: Vec<u32>,
    indices: HashMap<String, u32>,
}

impl SessionPlan {
    pub(crate) fn new(encoding: Encoding, tokens: Vec<String>, channels: Vec<String>) -> Self {
        let indices = channels.iter().cloned().zip(0..).collect();
        Self {
            encoding,
            tokens,
            recover_from: None,
            subscribers: vec![0; channels.len()],
            channels,
            group_channels_from: None,
            indices,
        }
    }

    /// Adds a channel for each group.
    pub(crate) fn add_channels_of_groups(&mut self, flows: &FlowsPlan) {
        if flows.channels.is_empty() {
            return;
        }
        let from = u32::try_from(self.channels.len()).expect("far fewer than 2^32");
        self.group_channels_from = Some(from);
        let named = flows.channels.iter().cloned().zip(from..);
        self.indices
            .extend(named.filter(|(name, _)| !name.is_empty()));
        self.channels.extend_from_slice(&flows.channels);
        let groups = (0..).take(flows.channels.len());
        let sizes = groups.map(|group| flows.groups.size(group));
        self.subscribers.extend(sizes);
    }

    /// What a client of the run shows with `connect`; empty for nothing.
    pub(crate) fn token(&self, number: u64) -> &str {
        let count = self.tokens.len().max(1) as u64;
        let turn = usize::try_from(number % count).expect("less than the count");
        self.tokens.get(turn).map_or("", String::as_str)
    }

    /// Counts the subscribers of each channel in a crowd that is dealt to targets in turn.
    pub(crate) fn count_subscribers(&mut self, targets: &[PlannedTarget], connections: u32) {
        let target_count = u32::try_from(targets.len()).expect("far fewer than 2^32");
        for (target, number) in targets.iter().zip(0..) {
            let more = u32::from(number < connections % target_count);
            for subscription in &target.subscriptions {
                let subscribers = &mut self.subscribers[subscription.channel as usize];
                *subscribers += connections / target_count + more;
            }
        }
    }

    /// The index of a channel; none if no terminal subscribes to it.
    pub(crate) fn index_of(&self, channel: &str) -> Option<u32> {
        self.indices.get(channel).copied()
    }
}

/// A channel that the terminals of a target subscribe to by command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Subscription {
    /// Its index in [`SessionPlan::channels`].
    pub channel: u32,
    /// Which of a terminal's sequences its publications are judged by; none if this run does not publish to it.
    pub stream_slot: Option<u16>,
}

/// A target as terminals need it.
#[derive(Debug)]
pub(crate) struct PlannedTarget {
    pub address: SocketAddr,
    /// Whom the server's certificate has to name; none without TLS.
    pub server_name: Option<ServerName<'static>>,
    pub host: String,
    pub path: String,
    /// The streams that the target carries, in order. A terminal keeps a sequence for each, in this order.
    pub streams: Vec<u16>,
    /// By channel; empty where the URL alone says what terminals listen to.
    pub subscriptions: Vec<Subscription>,
}

impl PlannedTarget {
    /// Where a terminal of this target keeps the sequence of a stream.
    pub(crate) fn slot(&self, stream: u16) -> Option<usize> {
        self.streams.binary_search(&stream).ok()
    }

    /// Where a terminal of this target keeps its place in a channel.
    pub(crate) fn slot_of_channel(&self, channel: u32) -> Option<usize> {
        let of = |subscription: &Subscription| subscription.channel;
        self.subscriptions.binary_search_by_key(&channel, of).ok()
    }
}

/// One thread's part of the crowd.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    /// Which thread, from 0.
    pub thread: u32,
    /// Terminals it has.
    pub count: u32,
    /// Connections it may have under way at once.
    pub connecting_max: u32,
    /// The number of its first terminal, and the distance to the next.
    first: u64,
    step: u64,
}

impl Plan {
    /// The part of a thread. A machine's terminals are dealt to its threads in turn, so that every thread has its share of every
    /// target.
    pub(crate) fn part(&self, thread: u32) -> Part {
        assert!(thread < self.threads);
        let share = |total: u32, threads: u32, thread: u32| {
            total / threads + u32::from(thread < total % threads)
        };
        let slice = self.deal.of_thread(thread);
        let own = thread - slice.first_thread;
        let connecting_max = share(self.connecting_max, self.threads, thread);
        Part {
            thread,
            count: share(slice.terminals, slice.threads, own),
            connecting_max: connecting_max.max(1),
            first: u64::from(slice.first_terminal + own),
            step: u64::from(slice.threads),
        }
    }

    /// Whether terminals have TLS.
    pub(crate) fn has_secure_targets(&self) -> bool {
        self.targets
            .iter()
            .any(|target| target.server_name.is_some())
    }

    /// Whether no server speaks before its terminal. Clients of HTTP and TLS speak first; those of a protocol over plain TCP may not, and would
    /// wait 200 ms (`Setup::speaks_first`).
    pub(crate) fn speaks_first(&self) -> bool {
        let is_secure = |target: &PlannedTarget| target.server_name.is_some();
        self.framing.is_none() || self.targets.iter().all(is_secure)
    }

    /// What requests beside the crowd need for TLS: they are no clients that come back.
    pub(crate) fn request_tls(&self) -> RequestTls {
        self.tls.as_ref().map(|tls| Arc::clone(&tls.first))
    }

    /// Whether terminals leave, or are dropped, and others take their place.
    pub(crate) fn is_changing(&self) -> bool {
        self.churn_per_s.is_some() || self.comeback.when_lost || !self.incidents.is_empty()
    }

    /// Sockets the thread of a part may have at once.
    pub(crate) fn sockets_max(&self, part: Part) -> usize {
        let spare = if self.is_changing() || self.http.is_some() {
            SOCKETS_SPARE.min(part.count)
        } else {
            0
        };
        part.count as usize + spare as usize
    }

    /// The run-wide number of a thread's terminal.
    pub(crate) fn number(&self, part: Part, index: u32) -> u64 {
        part.first + u64::from(index) * part.step
    }

    /// The subscription of a terminal to the channel of its group, by command; none where there is none.
    pub(crate) fn group_subscription(&self, number: u64) -> Option<Subscription> {
        let from = self.session.as_ref()?.group_channels_from?;
        let (group, _) = self.flows.as_ref()?.groups.of(number);
        Some(Subscription {
            channel: from + group,
            stream_slot: None,
        })
    }

    /// The group whose channel is in the URL of a terminal; none where it is not.
    pub(crate) fn group_in_url(&self, number: u64) -> Option<u32> {
        let flows = self.flows.as_ref()?;
        let has_one = self.session.is_none() && !flows.channels.is_empty();
        has_one.then(|| flows.groups.of(number).0)
    }

    /// The channel of a group.
    pub(crate) fn channel_of_group(&self, group: u32) -> &str {
        let channels = self.flows.as_ref().map(|flows| &flows.channels[..]);
        let channel = channels.unwrap_or_default().get(group as usize);
        channel.map_or("", String::as_str)
    }

    /// Path and query of a target, for the members of a group whose channel is in the URL.
    pub(crate) fn path(&self, target: usize, group: Option<u32>) -> Cow<'_, str> {
        let path = &self.targets[target].path;
        group.map_or(Cow::Borrowed(path), |group| {
            Cow::Owned(with_one_more_channel(path, self.channel_of_group(group)))
        })
    }

    /// Which target a terminal belongs to, and how many terminals before it connect to the same address from here.
    pub(crate) fn target_of(&self, number: u64) -> (usize, u64) {
        let targets = self.targets.len() as u64;
        let target = usize::try_from(number % targets).expect("the index of a target");
        (target, (number - self.sources_from) / self.destinations)
    }

    /// The position of a publication of this run in the order they are made, from 1: rounds of all streams.
    pub(crate) fn number_of(&self, stream: u16, sequence: u32) -> u64 {
        u64::from(sequence - 1) * self.stream_count() + u64::from(stream) + 1
    }

    /// The number of the last publication of so many rounds.
    pub(crate) fn numbers_of_rounds(&self, rounds: u64) -> u64 {
        rounds.saturating_mul(self.stream_count())
    }

    /// Whether any terminal of the run subscribes to a stream. With fewer terminals than targets, the last targets have
    /// none.
    pub(crate) fn is_wanted(&self, stream: u16) -> bool {
        let used = self.targets.len().min(self.connections as usize);
        self.targets[..used]
            .iter()
            .any(|target| target.slot(stream).is_some())
    }

    /// The publication of a number.
    pub(crate) fn key_of_number(&self, number: u64) -> PushKey {
        let fits = "numbers are made of a stream and a sequence";
        let (round, stream) = (
            (number - 1) / self.stream_count(),
            (number - 1) % self.stream_count(),
        );
        PushKey::Own {
            stream: u16::try_from(stream).expect(fits),
            sequence: u32::try_from(round + 1).expect(fits),
        }
    }

    fn stream_count(&self) -> u64 {
        u64::from(self.streams).max(1)
    }

    /// The key of one attempt. Made again when the answer comes, instead of being kept.
    pub(crate) fn key(&self, number: u64, attempt: u8) -> Key {
        let high = mix(self.seed ^ mix(number << 8 | u64::from(attempt)));
        let low = mix(high ^ self.seed);
        let mut nonce = [0; 16];
        nonce[..8].copy_from_slice(&high.to_le_bytes());
        nonce[8..].copy_from_slice(&low.to_le_bytes());
        Key::from(nonce)
    }

    /// Sequences a terminal keeps beside the one inside its record.
    pub(crate) fn more_sequences(&self) -> usize {
        self.targets
            .iter()
            .map(|target| target.streams.len())
            .max()
            .unwrap_or(0)
            .saturating_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::{Encoding, SessionPlan};

    #[test]
    fn clients_take_the_tokens_in_turn() {
        let plan = |tokens: &[&str]| {
            let tokens = tokens.iter().map(ToString::to_string).collect();
            SessionPlan::new(Encoding::Json, tokens, Vec::new())
        };
        let two = plan(&["a", "b"]);
        assert_eq!([0, 1, 2].map(|number| two.token(number)), ["a", "b", "a"]);
        assert_eq!(plan(&["one"]).token(7), "one");
        assert_eq!(plan(&[]).token(7), "");
    }
}
