//! Held requests and streams of events, once they are open. How they come to be is in `reading`. Changes what `reading` changes.

use super::{Methods, websocket};
use crate::marks::hit;
use crate::shard::Shard;
use myriad_hub::Now;
use myriad_reactor::Reactor;
use myriad_wheel::Key;

impl<R: Reactor> Methods<R> {
    pub(super) const LONG_POLL: Self = Self {
        handle_input: Shard::handle_behind,
        ping: None,
        // What a reader is told last depends on it: `last_of_reader`.
        close: |_| Vec::new(),
        application_close: websocket::application_close_frame,
    };
    pub(super) const EVENTS: Self = Self {
        handle_input: Shard::ignore_behind,
        ping: None,
        // What a reader is told last depends on it: `last_of_reader`.
        close: |_| Vec::new(),
        application_close: websocket::application_close_frame,
    };
}

impl<R: Reactor> Shard<R> {
    /// The next request comes before the held one is answered.
    fn handle_behind(&mut self, key: Key, bytes: &mut [u8], now: Now) {
        hit!(RequestBehind);
        self.keep_behind(key, bytes, now);
    }

    /// A stream of events is the last answer of its connection, so nobody would answer another request.
    fn ignore_behind(&mut self, _key: Key, _bytes: &mut [u8], _now: Now) {
        hit!(IgnoredBehindEvents);
    }
}
