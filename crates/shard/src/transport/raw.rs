//! `/raw`: one publication is one WebSocket frame (`Protocol::Raw` of the hub). Messages of the client are ignored. Changes what
//! `frames` changes.

use super::{Methods, websocket};
use crate::shard::Shard;
use myriad_hub::Now;
use myriad_reactor::Reactor;
use myriad_wheel::Key;

impl<R: Reactor> Methods<R> {
    pub(super) const RAW: Self = Self {
        handle_input: Shard::handle_raw_input,
        ping: Some(websocket::ping_frame),
        close: websocket::close_frame,
        application_close: websocket::application_close_frame,
    };
}

impl<R: Reactor> Shard<R> {
    fn handle_raw_input(&mut self, key: Key, bytes: &mut [u8], now: Now) {
        self.handle_frames(key, bytes, None, now);
    }
}
