//! Partial input: bytes that cannot be handled before more of them arrive. Kept only while needed, here or by the reactor.

use crate::marks::{Happening, hit};
use crate::shard::Shard;
use crate::transport::Refused;
use myriad_hub::{CloseReason, Hub, Now, Phase};
use myriad_reactor::Reactor;
use myriad_wheel::{Key, NONE, Slab};
use myriad_wire::centrifuge::EventId;
use myriad_wire::deflate::Inflater;
use myriad_wire::http::RequestBody;
use myriad_wire::ws::Decoder;
use std::collections::HashMap;

/// The partial input of a connection.
#[derive(Debug, Default)]
pub(crate) enum Input {
    #[default]
    None,
    /// The beginning of a request head.
    Head(Vec<u8>),
    /// The beginning of a request's body.
    Body(Box<PartialRequest>),
    /// A request that is accepted when its channels' homes have confirmed.
    Joining {
        /// The 101.
        response: Box<[u8]>,
        /// What the client sent after its request without waiting for the answer.
        early: Vec<u8>,
    },
    /// The middle of a message.
    Frames(Box<PartialMessage>),
}

/// A request for a stream whose body, the client's first message, has begun.
#[derive(Debug)]
pub(crate) struct PartialRequest {
    pub(crate) body: RequestBody,
    /// Where the client goes on, by its request's head.
    pub(crate) position: Option<EventId<'static>>,
    /// The head of its answer, and what stands before the first message.
    pub(crate) response: Box<[u8]>,
}

/// A message that has begun.
#[derive(Debug)]
pub(crate) struct PartialMessage {
    pub(crate) decoder: Decoder,
    /// Its pieces so far, where the transport wants whole messages. Pieces of a compressed message are DEFLATE data.
    pub(crate) message: Vec<u8>,
}

impl Input {
    /// Bytes it counts for against the process's buffer budget.
    pub(crate) fn cost(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Head(bytes) => bytes.len(),
            Self::Body(partial) => {
                let position = partial.position.as_ref();
                size_of::<PartialRequest>()
                    + position.map_or(0, |position| position.channel.len())
                    + partial.response.len()
                    + partial.body.bytes().len()
            }
            Self::Joining { response, early } => response.len() + early.len(),
            Self::Frames(partial) => size_of::<PartialMessage>() + partial.message.len(),
        }
    }
}

/// All partial inputs of a shard.
#[derive(Debug)]
pub(crate) struct Inputs {
    partial: Slab<Input>,
    /// Bytes that the reactor keeps, for each connection that it keeps some for.
    below: HashMap<u32, usize>,
    /// For the compressed messages of all connections, one at a time.
    pub(crate) inflater: Inflater,
}

impl Inputs {
    pub(crate) fn new() -> Self {
        Self {
            partial: Slab::new(),
            below: HashMap::new(),
            inflater: Inflater::default(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.partial.len()
    }

    /// Bytes that the reactor keeps.
    pub(crate) fn buffered_below(&self) -> usize {
        self.below.values().sum()
    }

    fn below_of(&self, connection: u32) -> usize {
        self.below.get(&connection).copied().unwrap_or(0)
    }

    /// Asserts that those for which the reactor keeps something are live.
    pub(crate) fn check_below(&self, hub: &Hub) {
        for (&connection, &bytes) in &self.below {
            assert!(bytes > 0 && hub.key_of(connection).is_some());
        }
    }

    /// The reactor keeps so much for a connection now; false when the process has no buffer memory left for it.
    #[must_use]
    fn note_below(&mut self, hub: &mut Hub, connection: u32, bytes: usize) -> bool {
        let before = self.below_of(connection);
        if bytes > before && !hub.reserve_input(connection, bytes - before) {
            return false;
        }
        if bytes < before {
            hub.release_buffered_of(connection, before - bytes);
        }
        match bytes {
            0 => self.below.remove(&connection),
            bytes => self.below.insert(connection, bytes),
        };
        true
    }

    /// The reactor keeps nothing more for a connection. Answers what that was.
    pub(crate) fn release_below(&mut self, hub: &mut Hub, connection: u32) -> usize {
        // Each connection without TLS comes here, too, when it ends.
        if self.below.is_empty() {
            return 0;
        }
        let Some(bytes) = self.below.remove(&connection) else {
            return 0;
        };
        hub.release_buffered_of(connection, bytes);
        bytes
    }

    /// A partial input that is kept.
    pub(crate) fn at(&self, index: u32) -> &Input {
        &self.partial[index]
    }

    /// Takes a connection's partial input, giving its bytes back to the budget.
    pub(crate) fn take(&mut self, hub: &mut Hub, connection: u32) -> Input {
        let index = std::mem::replace(&mut hub.connection_mut(connection).input, NONE);
        if index == NONE {
            return Input::None;
        }
        let input = self.partial.remove(index);
        hub.release_buffered_of(connection, input.cost());
        input
    }

    /// Keeps a connection's partial input; false when the process has no buffer memory left for it.
    #[must_use]
    fn keep(&mut self, hub: &mut Hub, connection: u32, input: Input) -> bool {
        assert_eq!(
            hub.connection(connection).input,
            NONE,
            "one partial input a connection"
        );
        if !hub.reserve_input(connection, input.cost()) {
            return false;
        }
        hub.connection_mut(connection).input = self.partial.insert(input).index;
        true
    }
}

/// Clients that one newcomer ends to make room. More would hold up the turn; then the newcomer is refused.
const ENDED_MAX: usize = 16;

/// While less than this part of the buffer budget is free, clients that have not connected are ended.
const RESERVE_DIVISOR: u64 = 8;

impl<R: Reactor> Shard<R> {
    /// Keeps a connection's partial input; false when there is no memory for it. Of a client that has not connected, those make room
    /// that have waited longest without connecting.
    #[must_use]
    pub(crate) fn keep_input(&mut self, key: Key, input: Input, now: Now) -> bool {
        if self.hub.has_strange_input(key.index) {
            self.make_unconnected_room(Some(key), input.cost() as u64, now);
        }
        self.inputs.keep(&mut self.hub, key.index, input)
    }

    /// The reactor keeps so many bytes for a connection now. They count as its input, and if there is no memory for more, it ends.
    pub(crate) fn note_buffered_below(&mut self, key: Key, bytes: usize, now: Now) {
        let is_strange = self.hub.has_strange_input(key.index);
        let more = bytes.saturating_sub(self.inputs.below_of(key.index));
        if is_strange && more > 0 {
            self.make_unconnected_room(Some(key), more as u64, now);
        }
        if self.inputs.note_below(&mut self.hub, key.index, bytes) {
            return;
        }
        match self.hub.connection(key.index).phase {
            Phase::Open if !is_strange => self.close_stream(key, CloseReason::Overloaded, now),
            _ => self.reset(key, CloseReason::Overloaded, now),
        }
    }

    /// Ends clients that have not connected until there is room for `bytes` of another one, or for all of those that have.
    pub(crate) fn make_unconnected_room(&mut self, besides: Option<Key>, bytes: u64, now: Now) {
        let room = self.mesh.unconnected().clone();
        // Who wants more than all may have gains nothing by the end of others.
        if bytes > room.size() {
            return;
        }
        for _ in 0..ENDED_MAX {
            if room.available() >= bytes || !self.end_oldest_unconnected(besides, now) {
                return;
            }
        }
    }

    /// When the budget of all runs short, those who have not connected go first.
    pub(crate) fn end_unconnected_in_need(&mut self, now: Now) {
        let reserve = self.mesh.buffered().size() / RESERVE_DIVISOR;
        for _ in 0..ENDED_MAX {
            let is_short =
                self.hub.unconnected_bytes() > 0 && self.mesh.buffered().available() < reserve;
            if !is_short || !self.end_oldest_unconnected(None, now) {
                return;
            }
        }
    }

    fn end_oldest_unconnected(&mut self, besides: Option<Key>, now: Now) -> bool {
        let besides = besides.map(|key| key.index);
        let Some(index) = self.hub.poll_oldest_unconnected(besides) else {
            return false;
        };
        hit!(UnconnectedEnded);
        self.metrics().unconnected_ended.add(1);
        self.note_happening(index, Happening::Overloaded);
        if self.inputs.release_below(&mut self.hub, index) > 0 {
            // The reactor's memory comes back with the connection alone. A client that is answered could keep it for the linger time.
            if let Some(key) = self.hub.key_of(index) {
                self.reset(key, CloseReason::Overloaded, now);
            }
            return true;
        }
        match self.hub.connection(index).phase {
            Phase::Handshake | Phase::Joining => {
                self.refuse_index(index, Refused::overloaded(), now);
            }
            Phase::Open | Phase::Closing => self.close_index(index, CloseReason::Overloaded, now),
        }
        true
    }
}
