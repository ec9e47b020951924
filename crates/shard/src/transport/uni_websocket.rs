//! `/connection/uni_websocket`: bare pushes over WebSocket. The client's connect request is `cf_connect` in the query, or its first
//! message; what it sends after that is ignored. Changes what `frames` and `session` change.
//!
//! Beside an empty push, which clients can see, a ping of WebSocket is sent, which browsers answer by themselves: so a peer that has
//! gone is noticed, although the client sends nothing.

use super::centrifuge::{close_frame, disconnect_push, ping_frame};
use super::{Methods, told, websocket};
use crate::shard::Shard;
use myriad_hub::{Now, Transport};
use myriad_reactor::Reactor;
use myriad_wheel::Key;
use myriad_wire::ws::Kind;

impl<R: Reactor> Methods<R> {
    pub(super) const UNI_WEBSOCKET: Self = Self {
        handle_input: Shard::handle_uni_websocket_input,
        ping: Some(|| [ping_frame(Transport::UniWebSocket), websocket::ping_frame()].concat()),
        close: |reason| {
            let (code, sentence) = told(Transport::UniWebSocket, reason);
            let push = disconnect_push(Transport::UniWebSocket, code, sentence);
            [push, close_frame(reason)].concat()
        },
        application_close: |close| {
            if !close.is_told() {
                return Vec::new();
            }
            let push = disconnect_push(Transport::UniWebSocket, close.code(), close.reason());
            [push, websocket::application_close_frame(close)].concat()
        },
    };
}

impl<R: Reactor> Shard<R> {
    fn handle_uni_websocket_input(&mut self, key: Key, bytes: &mut [u8], now: Now) {
        self.handle_frames(key, bytes, Some(Self::uni_websocket_message), now);
    }

    fn uni_websocket_message(&mut self, key: Key, _kind: Kind, message: &[u8], now: Now) {
        self.handle_message_of(key, message, now);
    }
}
