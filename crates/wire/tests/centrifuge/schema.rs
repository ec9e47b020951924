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
    Reply {
        #[prost(uint32, tag = 1)] id: u32,
        #[prost(message, optional, tag = 2)] error: Option<Error>,
        #[prost(message, optional, tag = 4)] push: Option<Push>,
        #[prost(message, optional, tag = 5)] connect: Option<Connected>,
        #[prost(message, optional, tag = 6)] subscribe: Option<Subscribed>,
        #[prost(message, optional, tag = 7)] unsubscribe: Option<Empty>,
        #[prost(message, optional, tag = 8)] publish: Option<Empty>,
        #[prost(message, optional, tag = 9)] presence: Option<Present>,
        #[prost(message, optional, tag = 10)] presence_stats: Option<PresenceStats>,
        #[prost(message, optional, tag = 11)] history: Option<Past>,
        #[prost(message, optional, tag = 13)] rpc: Option<Send>,
        #[prost(message, optional, tag = 14)] refresh: Option<Refreshed>,
        #[prost(message, optional, tag = 15)] sub_refresh: Option<SubRefreshed>,
    }
    Error {
        #[prost(uint32, tag = 1)] code: u32,
        #[prost(string, tag = 2)] message: String,
        #[prost(bool, tag = 3)] temporary: bool,
    }
    Connected {
        #[prost(string, tag = 1)] client: String,
        #[prost(string, tag = 2)] version: String,
        #[prost(bool, tag = 3)] expires: bool,
        #[prost(uint32, tag = 4)] ttl: u32,
        #[prost(bytes = "vec", tag = 5)] data: Vec<u8>,
        #[prost(btree_map = "string, message", tag = 6)] subs: BTreeMap<String, Subscribed>,
        #[prost(uint32, tag = 7)] ping: u32,
        #[prost(bool, tag = 8)] pong: bool,
        #[prost(string, tag = 9)] session: String,
        #[prost(string, tag = 10)] node: String,
        #[prost(int64, tag = 11)] time: i64,
    }
    Subscribed {
        #[prost(bool, tag = 1)] expires: bool,
        #[prost(uint32, tag = 2)] ttl: u32,
        #[prost(bool, tag = 3)] recoverable: bool,
        #[prost(string, tag = 6)] epoch: String,
        #[prost(message, repeated, tag = 7)] publications: Vec<Publication>,
        #[prost(bool, tag = 8)] recovered: bool,
        #[prost(uint64, tag = 9)] offset: u64,
        #[prost(bool, tag = 10)] positioned: bool,
        #[prost(bytes = "vec", tag = 11)] data: Vec<u8>,
        #[prost(bool, tag = 12)] was_recovering: bool,
        #[prost(bool, tag = 13)] delta: bool,
        #[prost(int64, tag = 14)] id: i64,
    }
    Publication {
        #[prost(bytes = "vec", tag = 4)] data: Vec<u8>,
        #[prost(message, optional, tag = 5)] info: Option<ClientInfo>,
        #[prost(uint64, tag = 6)] offset: u64,
        #[prost(btree_map = "string, string", tag = 7)] tags: BTreeMap<String, String>,
        #[prost(bool, tag = 8)] delta: bool,
        #[prost(string, tag = 10)] channel: String,
        #[prost(string, tag = 14)] epoch: String,
    }
    ClientInfo {
        #[prost(string, tag = 1)] user: String,
        #[prost(string, tag = 2)] client: String,
        #[prost(bytes = "vec", tag = 3)] conn_info: Vec<u8>,
        #[prost(bytes = "vec", tag = 4)] chan_info: Vec<u8>,
    }
    Present {
        #[prost(btree_map = "string, message", tag = 1)] presence: BTreeMap<String, ClientInfo>,
        // Our extension.
        #[prost(string, tag = 1002)] cursor: String,
    }
    PresenceStats {
        #[prost(uint32, tag = 1)] num_clients: u32,
        #[prost(uint32, tag = 2)] num_users: u32,
    }
    Past {
        #[prost(message, repeated, tag = 1)] publications: Vec<Publication>,
        #[prost(string, tag = 2)] epoch: String,
        #[prost(uint64, tag = 3)] offset: u64,
    }
    Refreshed {
        #[prost(bool, tag = 3)] expires: bool,
        #[prost(uint32, tag = 4)] ttl: u32,
    }
    SubRefreshed {
        #[prost(bool, tag = 1)] expires: bool,
        #[prost(uint32, tag = 2)] ttl: u32,
    }
    Push {
        #[prost(int64, tag = 1)] id: i64,
        #[prost(string, tag = 2)] channel: String,
        #[prost(message, optional, tag = 4)] publication: Option<Publication>,
        #[prost(message, optional, tag = 5)] join: Option<Info>,
        #[prost(message, optional, tag = 6)] leave: Option<Info>,
        #[prost(message, optional, tag = 7)] unsubscribe: Option<Unsubscribed>,
        #[prost(message, optional, tag = 8)] message: Option<Send>,
        #[prost(message, optional, tag = 9)] subscribe: Option<ServerSubscribed>,
        #[prost(message, optional, tag = 11)] disconnect: Option<Disconnected>,
        #[prost(message, optional, tag = 12)] refresh: Option<SubRefreshed>,
    }
    Info { #[prost(message, optional, tag = 1)] info: Option<ClientInfo>, }
    Unsubscribed {
        #[prost(uint32, tag = 2)] code: u32,
        #[prost(string, tag = 3)] reason: String,
    }
    ServerSubscribed {
        #[prost(bool, tag = 1)] recoverable: bool,
        #[prost(string, tag = 4)] epoch: String,
        #[prost(uint64, tag = 5)] offset: u64,
        #[prost(bool, tag = 6)] positioned: bool,
        #[prost(bytes = "vec", tag = 7)] data: Vec<u8>,
    }
    Disconnected {
        #[prost(uint32, tag = 1)] code: u32,
        #[prost(string, tag = 2)] reason: String,
    }
}
