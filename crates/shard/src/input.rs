//! Partial input: bytes that cannot be handled before more of them arrive. Kept only while needed.

use myriad_hub::Hub;
use myriad_wheel::{NONE, Slab};
use myriad_wire::deflate::Inflater;
use myriad_wire::http::RequestBody;
use myriad_wire::ws::Decoder;

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
                size_of::<PartialRequest>() + partial.response.len() + partial.body.bytes().len()
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
    /// For the compressed messages of all connections, one at a time.
    pub(crate) inflater: Inflater,
}

impl Inputs {
    pub(crate) fn new() -> Self {
        Self {
            partial: Slab::new(),
            inflater: Inflater::default(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.partial.len()
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
        hub.release_buffered(input.cost());
        input
    }

    /// Keeps a connection's partial input; false when the process has no buffer memory left for it.
    #[must_use]
    pub(crate) fn keep(&mut self, hub: &mut Hub, connection: u32, input: Input) -> bool {
        assert_eq!(
            hub.connection(connection).input,
            NONE,
            "one partial input a connection"
        );
        if !hub.reserve_buffered(input.cost()) {
            return false;
        }
        hub.connection_mut(connection).input = self.partial.insert(input).index;
        true
    }
}
