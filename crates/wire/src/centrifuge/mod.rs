//! The client protocol of Centrifuge, version 2, in JSON and in protobuf.
//!
//! * [`Decoder`] turns a client's frame into [`Command`]s that borrow from it;
//! * [`EmulationRequest`] has commands that come apart from their connection;
//! * [`client`] is the other side: it writes commands and reads replies;
//! * [`FrameWriter`] writes replies and pushes, [`make_delta`] and [`make_text_delta`] Fossil deltas;
//! * [`Filter`] says which publications pass a client's tags filter;
//! * [`ErrorCode`], [`UnsubscribeCode`] and [`DisconnectCode`] are the protocol's numbers and texts.
//!
//! Each message is described once, with the number and the JSON name of each field (`message.rs`), for both encodings.

pub mod client;
mod codes;
mod command;
mod delta;
mod emulation;
mod error;
mod event_id;
mod filter;
mod frame;
mod json;
mod message;
mod protobuf;
mod push;
mod reply;
mod writer;

pub use codes::{DisconnectCode, ErrorCode, UnsubscribeCode, disconnect_is_terminal};
pub use command::{
    Command, ConnectRequest, Decoder, FilterNode, FilterNodes, HistoryRequest, KeyedItem,
    PresenceRequest, PresenceStatsRequest, PublishRequest, RefreshRequest, Request, RpcRequest,
    SendRequest, StreamPosition, SubRefreshRequest, SubscribeRequest, TrackBatch,
    UnsubscribeRequest,
};
pub use delta::{Delta, apply_delta, make_delta, make_text_delta};
pub use emulation::EmulationRequest;
pub use error::CommandError;
pub use event_id::EventId;
pub use filter::{Filter, FilterError};
pub use json::{is_json, is_nested_too_deep, json_without_line_breaks};
pub use push::{EndReason, Push, ServerSubscription};
pub use reply::{
    ClientInfo, ConnectResult, FrameWriter, PublicationFields, ReplyError, SubscribeResult,
};

/// How the messages of a connection are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// Objects, separated by line feeds.
    Json,
    /// Messages, each after its length as a varint.
    Protobuf,
}

/// A payload. The server passes it on and does not look into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data<'a> {
    /// The text of one JSON value, as it was written, without the space around it.
    Json(&'a str),
    /// Any bytes.
    Binary(&'a [u8]),
}

impl<'a> Data<'a> {
    /// The bytes; of JSON, those of its text.
    #[must_use]
    pub fn as_bytes(&self) -> &'a [u8] {
        match self {
            Self::Json(text) => text.as_bytes(),
            Self::Binary(bytes) => bytes,
        }
    }

    /// Whether there is no payload, or one of no bytes. The protocol does not tell these apart.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.as_bytes().is_empty()
    }
}

impl Default for Data<'_> {
    fn default() -> Self {
        Self::Binary(&[])
    }
}
