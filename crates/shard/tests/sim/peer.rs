//! A virtual client: what it wants, how it behaves, what it has sent, and what it must and may get.

use crate::compression::{self, Offer};
use crate::decoder::{Decoder, Item, close_of};
use crate::ledger::{Ledger, NAMED_BYTES_MIN, TINY};
use crate::plan::Plan;
use crate::request;
use crate::secured::Net;
use myriad_reactor::sim::{PeerEnd, PeerId, Prng};
use myriad_shard::Compression;
use std::collections::VecDeque;
use std::rc::Rc;

/// What a peer connects for.
#[derive(Clone, Debug)]
pub(crate) enum Errand {
    Stream,
    Echo,
    /// A request that must be refused: the status, and whether room and rights are checked before.
    Refused {
        status: u16,
        is_found_late: bool,
    },
    /// A request for the control plane.
    Api,
    /// A head without an end.
    Unfinished,
}

/// How a peer behaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manners {
    /// Answers pings and closes at once.
    pub(crate) is_prompt: bool,
    /// Sends its FIN after the server's.
    pub(crate) ends_its_side: bool,
    /// Writes byte by byte.
    pub(crate) is_slow_writer: bool,
}

impl Manners {
    /// A peer that does nothing wrong.
    pub(crate) const GOOD: Self = Self {
        is_prompt: true,
        ends_its_side: true,
        is_slow_writer: false,
    };
}

/// One of the channels of a peer.
#[derive(Debug)]
pub(crate) struct Subscription {
    pub(crate) channel: usize,
    /// Nothing before this place may come: it was delivered before the peer connected.
    pub(crate) earliest: usize,
    /// Everything from this place on must come: it was accepted after the peer had seen the 101.
    pub(crate) required: Option<usize>,
    /// The place that comes next, once something has come.
    pub(crate) next: Option<usize>,
    /// What came of the channel whose publications have no names.
    pub(crate) tiny: Vec<(bool, Vec<u8>)>,
}

/// What a peer can know of the node at this moment.
#[derive(Clone, Debug)]
pub(crate) struct Scene {
    pub(crate) now: u64,
    pub(crate) is_draining: bool,
    /// When that began.
    pub(crate) draining_since: u64,
    pub(crate) plan: Rc<Plan>,
}

#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) id: PeerId,
    pub(crate) number: usize,
    pub(crate) errand: Errand,
    pub(crate) manners: Manners,
    pub(crate) connected_at: u64,
    pub(crate) decoder: Decoder,
    /// Made and not yet sent.
    outbox: VecDeque<u8>,
    pub(crate) request: Vec<u8>,
    /// What it offers of compression.
    pub(crate) offer: Option<Offer>,
    /// Its connection comes to a shard from the control plane.
    pub(crate) is_handed_back: bool,
    /// It came when every shard was draining.
    pub(crate) is_too_late: bool,
    /// Sends much behind its request.
    pub(crate) is_eager: bool,
    pub(crate) status: Option<u16>,
    pub(crate) subscriptions: Vec<Subscription>,
    /// Pongs and echoes that must come, in this order, with their opcodes.
    pub(crate) expected: VecDeque<(u8, Vec<u8>)>,
    /// Bytes of all replies that were ever expected, and of the largest.
    pub(crate) replies_bytes: (u64, u64),
    pub(crate) pings: u64,
    pub(crate) close_received: Option<Option<u16>>,
    pub(crate) close_sent: Option<Option<u16>>,
    /// It broke a rule: the code that answers.
    pub(crate) fault_sent: Option<u16>,
    pub(crate) is_stalled: bool,
    pub(crate) has_stalled: bool,
    pub(crate) has_sent_fin: bool,
    /// It reset, or vanished: nothing more is known of it.
    pub(crate) is_broken: bool,
    pub(crate) end: Option<PeerEnd>,
    last_write: u64,
    pub(crate) longest_silence: u64,
    /// Writes since it has seen the 101.
    pub(crate) writes_when_open: u64,
    pub(crate) deliveries: u64,
}

impl Peer {
    pub(crate) fn new(
        id: PeerId,
        number: usize,
        errand: Errand,
        manners: Manners,
        request: Vec<u8>,
        now: u64,
    ) -> Self {
        Self {
            id,
            number,
            errand,
            manners,
            connected_at: now,
            decoder: Decoder::new(),
            outbox: request.iter().copied().collect(),
            request,
            offer: None,
            is_handed_back: false,
            is_too_late: false,
            is_eager: false,
            status: None,
            subscriptions: Vec::new(),
            expected: VecDeque::new(),
            replies_bytes: (0, 0),
            pings: 0,
            close_received: None,
            close_sent: None,
            fault_sent: None,
            is_stalled: false,
            has_stalled: false,
            has_sent_fin: false,
            is_broken: false,
            end: None,
            last_write: now,
            longest_silence: 0,
            writes_when_open: 0,
            deliveries: 0,
        }
    }

    pub(crate) fn subscribe(&mut self, channel: usize, earliest: usize) {
        self.subscriptions.push(Subscription {
            channel,
            earliest,
            required: None,
            next: None,
            tiny: Vec::new(),
        });
    }

    /// It has seen the 101 and no end.
    pub(crate) fn is_open(&self) -> bool {
        self.status == Some(101) && self.close_received.is_none() && !self.is_gone()
    }

    /// Nothing more will be known of it.
    pub(crate) fn is_gone(&self) -> bool {
        self.is_broken || self.end.is_some()
    }

    /// True while it may still send valid frames.
    pub(crate) fn may_speak(&self) -> bool {
        self.is_open()
            && !self.has_sent_fin
            && self.close_sent.is_none()
            && self.fault_sent.is_none()
    }

    pub(crate) fn has_outbox(&self) -> bool {
        !self.outbox.is_empty()
    }

    // Sending.

    /// Sends the first `count` bytes of what is made.
    pub(crate) fn write(&mut self, net: &Net, count: usize, now: u64) -> bool {
        let count = count.min(self.outbox.len());
        if count == 0 || self.has_sent_fin {
            return false;
        }
        let bytes: Vec<u8> = self.outbox.drain(..count).collect();
        net.write(self.id, &bytes);
        self.longest_silence = self.silence(now);
        self.last_write = now;
        self.writes_when_open += u64::from(self.status.is_some());
        true
    }

    pub(crate) fn write_all(&mut self, net: &Net, now: u64) -> bool {
        self.write(net, usize::MAX, now)
    }

    /// The longest time in which it has sent nothing, up to now.
    pub(crate) fn silence(&self, now: u64) -> u64 {
        self.longest_silence.max(now - self.last_write)
    }

    /// FIN, which cuts off what is made and not sent.
    pub(crate) fn fin(&mut self, net: &Net) {
        net.fin(self.id);
        self.has_sent_fin = true;
        self.outbox.clear();
    }

    fn send_frame(&mut self, first: u8, payload: &[u8], prng: &mut Prng) {
        let mut bytes = Vec::new();
        request::frame(&mut bytes, first, payload, prng);
        self.outbox.extend(bytes);
    }

    fn expect(&mut self, opcode: u8, payload: Vec<u8>) {
        let bytes = payload.len() as u64 + 10;
        self.replies_bytes.0 += bytes;
        self.replies_bytes.1 = self.replies_bytes.1.max(bytes);
        self.expected.push_back((opcode, payload));
    }

    pub(crate) fn ping(&mut self, prng: &mut Prng) {
        let size = prng.below(126);
        let payload = request::message(false, size, prng);
        self.send_frame(0x89, &payload, prng);
        self.expect(10, payload);
    }

    /// A message within the limits, in fragments, with pings between them.
    pub(crate) fn message(&mut self, plan: &Plan, prng: &mut Prng) {
        let settings = &plan.settings;
        let max = usize::try_from(settings.message_bytes_max).expect("a small limit");
        let size = match prng.below(6) {
            0 => 0,
            1 => prng.between(0, max),
            _ => prng.below(max.min(200) + 1),
        };
        let is_text = prng.one_in(2);
        let opcode = if is_text { 1 } else { 2 };
        let content = request::message(is_text, size, prng);
        let mut mark = 0;
        let mut payload = content.clone();
        if self.decoder.window().is_some() && prng.one_in(2) {
            mark = 0x40;
            payload = compression::deflate(&content, prng);
        }
        let fragments = prng.between(1, (settings.fragments_max as usize).min(5));
        let mut from = 0;
        for fragment in 1..=fragments {
            let is_last = fragment == fragments;
            let to = if is_last {
                payload.len()
            } else {
                prng.between(from, payload.len())
            };
            let begin = if fragment == 1 { opcode | mark } else { 0 };
            let first = begin | if is_last { 0x80 } else { 0 };
            self.send_frame(first, &payload[from..to], prng);
            from = to;
            if !is_last && prng.one_in(3) {
                self.ping(prng);
            }
        }
        if matches!(self.errand, Errand::Echo) {
            self.expect(opcode, content);
        }
    }

    pub(crate) fn close(&mut self, prng: &mut Prng) {
        let code = *prng.pick(&[None, Some(1000_u16), Some(1001), Some(3456), Some(4999)]);
        let mut payload = code.map_or(Vec::new(), |code| code.to_be_bytes().to_vec());
        if code.is_some() && prng.one_in(2) {
            payload.extend("adiós".bytes());
        }
        self.send_frame(0x88, &payload, prng);
        self.close_sent = Some(code);
    }

    pub(crate) fn break_a_rule(&mut self, plan: &Plan, prng: &mut Prng) {
        let (bytes, code) =
            request::bad_frames(prng, &plan.settings, self.decoder.window().is_some());
        self.outbox.extend(bytes);
        self.fault_sent = Some(code);
    }

    /// Frames behind the request, without waiting for the answer.
    pub(crate) fn hurry(&mut self, plan: &Plan, frames: usize, prng: &mut Prng) {
        for _ in 0..frames {
            self.message(plan, prng);
        }
        self.ping(prng);
        self.is_eager = true;
    }

    // Receiving.

    /// Takes what has arrived, checks it, and answers if it is in the peer's manners. True when something came.
    pub(crate) fn receive(
        &mut self,
        net: &Net,
        scene: &Scene,
        ledger: &Ledger,
        prng: &mut Prng,
    ) -> bool {
        let bytes = net.read(self.id);
        let mut has_come = !bytes.is_empty();
        self.decoder.push(&bytes);
        if self.end.is_none() && !self.is_broken {
            self.end = net.end(self.id);
            // The end may have come with more bytes.
            let rest = net.read(self.id);
            self.decoder.push(&rest);
            has_come |= self.end.is_some() || !rest.is_empty();
        }
        while let Some(item) = self.decoder.next() {
            self.take(item, scene, ledger, prng);
        }
        if self.end.is_some() && has_come {
            self.check_end(net.is_heard(self.id), scene, ledger);
            if self.manners.ends_its_side {
                self.fin(net);
            }
        }
        if has_come && self.manners.is_prompt && !self.manners.is_slow_writer {
            self.write_all(net, scene.now);
        }
        has_come
    }

    fn take(&mut self, item: Item, scene: &Scene, ledger: &Ledger, prng: &mut Prng) {
        match item {
            Item::Upgraded { extension } => {
                self.agree(extension.as_deref(), scene);
                assert!(matches!(self.errand, Errand::Stream | Errand::Echo));
                assert!(scene.plan.settings.anonymous, "a stranger was let in");
                assert!(!self.is_too_late, "let in while draining");
                self.status = Some(101);
                for subscription in &mut self.subscriptions {
                    subscription.required = Some(ledger.len(subscription.channel));
                }
            }
            Item::Response {
                status,
                headers,
                body,
            } => {
                self.status = Some(status);
                self.check_response(status, &headers, &body, scene);
            }
            Item::Frame { opcode, payload } => {
                self.take_frame(opcode, payload, scene, ledger, prng)
            }
        }
    }

    /// What was agreed to of compression is what the offer allows.
    fn agree(&mut self, extension: Option<&str>, scene: &Scene) {
        let is_off = scene.plan.settings.compression == Compression::Off;
        match self.offer.filter(|_| !is_off) {
            Some(offer) => self.decoder.agree(offer.judge(extension)),
            None => assert_eq!(extension, None, "agreed to what was not offered"),
        }
    }

    fn take_frame(
        &mut self,
        opcode: u8,
        payload: Vec<u8>,
        scene: &Scene,
        ledger: &Ledger,
        prng: &mut Prng,
    ) {
        match opcode {
            1 | 2 if matches!(self.errand, Errand::Stream) => {
                self.take_publication(opcode == 1, payload, ledger);
            }
            1 | 2 | 10 => {
                let expected = self.expected.pop_front();
                assert_eq!(Some((opcode, payload)), expected, "a reply");
            }
            9 => {
                assert!(payload.is_empty(), "pings are empty");
                self.check_ping(scene);
                if self.manners.is_prompt && self.may_speak() {
                    self.send_frame(0x8a, b"", prng);
                }
            }
            _ => {
                let close = close_of(&payload);
                let code = close.as_ref().map(|(code, _)| *code);
                self.check_close(code, scene, ledger);
                self.close_received = Some(code);
                if self.manners.is_prompt && self.close_sent.is_none() && !self.has_sent_fin {
                    let payload = code.map_or(Vec::new(), |code| code.to_be_bytes().to_vec());
                    self.send_frame(0x88, &payload, prng);
                    self.close_sent = Some(code);
                }
            }
        }
    }

    fn take_publication(&mut self, is_text: bool, content: Vec<u8>, ledger: &Ledger) {
        self.deliveries += 1;
        let find = |channel: usize| {
            move |subscription: &&mut Subscription| subscription.channel == channel
        };
        if content.len() < NAMED_BYTES_MIN {
            let subscription = self.subscriptions.iter_mut().find(find(TINY));
            let subscription = subscription.expect("nothing else is that small");
            subscription.tiny.push((is_text, content));
            return;
        }
        let publication = ledger.named_in(&content);
        assert!(
            publication.content == content && publication.is_text == is_text,
            "a publication arrives as it was published"
        );
        let subscription = self
            .subscriptions
            .iter_mut()
            .find(find(publication.channel));
        let subscription = subscription.expect("only what was subscribed to arrives");
        let position = publication.position.expect("a place comes before delivery");
        subscription.arrive(position);
    }
}

impl Subscription {
    /// The publications of a channel come without gap, double or change of order.
    fn arrive(&mut self, position: usize) {
        let channel = self.channel;
        match self.next {
            Some(next) => assert_eq!(
                position, next,
                "channel {channel}: the publication at {position} in place of the one at {next}"
            ),
            None => {
                let required = self.required.expect("nothing comes before the 101");
                assert!(
                    position <= required,
                    "channel {channel}: begins at {position}, and everything from {required} was due"
                );
                assert!(
                    position >= self.earliest,
                    "channel {channel}: {position} was over before {}",
                    self.earliest
                );
            }
        }
        self.next = Some(position + 1);
    }
}
