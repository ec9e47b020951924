//! The protocol's messages for `prost`: a second reading of protobuf, written down apart from ours.

use std::collections::BTreeMap;

macro_rules! schema {
    ($( $name:ident { $( #[$meta:meta] $field:ident: $type:ty, )* } )*) => { $(
        #[derive(Clone, PartialEq, prost::Message)]
        pub(crate) struct $name { $( #[$meta] pub(crate) $field: $type, )* }
    )* };
}

schema! {
    Empty {}
    Command {
        #[prost(uint32, tag = 1)] id: u32,
        #[prost(message, optional, tag = 4)] connect: Option<Connect>,
        #[prost(message, optional, tag = 5)] subscribe: Option<Subscribe>,
        #[prost(message, optional, tag = 6)] unsubscribe: Option<Channel>,
        #[prost(message, optional, tag = 7)] publish: Option<Publish>,
        #[prost(message, optional, tag = 8)] presence: Option<Channel>,
        #[prost(message, optional, tag = 9)] presence_stats: Option<Channel>,
        #[prost(message, optional, tag = 10)] history: Option<History>,
        #[prost(message, optional, tag = 11)] ping: Option<Empty>,
        #[prost(message, optional, tag = 12)] send: Option<Send>,
        #[prost(message, optional, tag = 13)] rpc: Option<Rpc>,
        #[prost(message, optional, tag = 14)] refresh: Option<Refresh>,
        #[prost(message, optional, tag = 15)] sub_refresh: Option<SubRefresh>,
    }
    Connect {
        #[prost(string, tag = 1)] token: String,
        #[prost(bytes = "vec", tag = 2)] data: Vec<u8>,
        #[prost(btree_map = "string, message", tag = 3)] subs: BTreeMap<String, Subscribe>,
        #[prost(string, tag = 4)] name: String,
        #[prost(string, tag = 5)] version: String,
        #[prost(btree_map = "string, string", tag = 6)] headers: BTreeMap<String, String>,
        #[prost(int64, tag = 7)] flag: i64,
        #[prost(string, tag = 8)] dict: String,
        #[prost(string, tag = 9)] profile: String,
    }
    Subscribe {
        #[prost(string, tag = 1)] channel: String,
        #[prost(string, tag = 2)] token: String,
        #[prost(bool, tag = 3)] recover: bool,
        #[prost(string, tag = 6)] epoch: String,
        #[prost(uint64, tag = 7)] offset: u64,
        #[prost(bytes = "vec", tag = 8)] data: Vec<u8>,
        #[prost(bool, tag = 9)] positioned: bool,
        #[prost(bool, tag = 10)] recoverable: bool,
        #[prost(bool, tag = 11)] join_leave: bool,
        #[prost(string, tag = 12)] delta: String,
        #[prost(message, optional, tag = 13)] tf: Option<Filter>,
        #[prost(int64, tag = 14)] flag: i64,
        #[prost(int32, tag = 15)] kind: i32,
        #[prost(int32, tag = 16)] phase: i32,
        #[prost(string, tag = 17)] cursor: String,
        #[prost(int32, tag = 18)] limit: i32,
        #[prost(bool, tag = 19)] asc: bool,
    }
    Channel { #[prost(string, tag = 1)] channel: String, }
    Publish {
        #[prost(string, tag = 1)] channel: String,
        #[prost(bytes = "vec", tag = 2)] data: Vec<u8>,
        #[prost(int32, tag = 3)] kind: i32,
        #[prost(string, tag = 4)] key: String,
    }
    History {
        #[prost(string, tag = 1)] channel: String,
        #[prost(int32, tag = 7)] limit: i32,
        #[prost(message, optional, tag = 8)] since: Option<Position>,
        #[prost(bool, tag = 9)] reverse: bool,
    }
    Position {
        #[prost(uint64, tag = 1)] offset: u64,
        #[prost(string, tag = 2)] epoch: String,
    }
    Send { #[prost(bytes = "vec", tag = 1)] data: Vec<u8>, }
    Rpc {
        #[prost(bytes = "vec", tag = 1)] data: Vec<u8>,
        #[prost(string, tag = 2)] method: String,
    }
    Refresh { #[prost(string, tag = 1)] token: String, }
    SubRefresh {
        #[prost(string, tag = 1)] channel: String,
        #[prost(string, tag = 2)] token: String,
        #[prost(int32, tag = 3)] kind: i32,
        #[prost(message, repeated, tag = 4)] track: Vec<Batch>,
        #[prost(string, repeated, tag = 5)] untrack: Vec<String>,
    }
    Batch {
        #[prost(string, tag = 1)] signature: String,
        #[prost(message, repeated, tag = 2)] items: Vec<Item>,
    }
    Item {
        #[prost(string, tag = 1)] key: String,
        #[prost(uint64, tag = 2)] version: u64,
    }
    Filter {
        #[prost(string, tag = 1)] op: String,
        #[prost(string, tag = 2)] key: String,
        #[prost(string, tag = 3)] cmp: String,
        #[prost(string, tag = 4)] val: String,
        #[prost(string, repeated, tag = 5)] vals: Vec<String>,
        #[prost(message, repeated, tag = 6)] nodes: Vec<Filter>,
    }
}
