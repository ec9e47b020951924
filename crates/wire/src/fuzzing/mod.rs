//! Properties of the decoders, for fuzz targets and for tests alike.
//!
//! One function per fuzz target takes any bytes and panics when a property does not hold. The fuzz
//! targets in `fuzz/` call them with what the fuzzer invents, the tests with the committed corpora.
//! [`check_frames`] is the part of them that tests of single vectors use too.
//!
//! Not part of the crate's interface.

mod frames;
mod heads;
mod model;

pub use frames::{Cuts, Item, Transcript, check_frames, read_frames};
pub use heads::{handshake, http_head};
pub use model::read_by_the_book;

use crate::ws::{Limits, Role};

/// Fuzz target: any bytes as frames. The first byte chooses role and limits, the rest is the input.
pub fn ws_decoder(bytes: &[u8]) {
    let Some((setting, input)) = bytes.split_first() else {
        return;
    };
    let role = if setting & 1 == 0 {
        Role::Server
    } else {
        Role::Client
    };
    let limits = match setting >> 1 & 3 {
        0 => Limits::default(),
        1 => Limits {
            frame_bytes_max: 16,
            message_bytes_max: 24,
            fragments_max: 3,
        },
        2 => Limits {
            frame_bytes_max: u64::MAX,
            message_bytes_max: u64::MAX,
            fragments_max: u32::MAX,
        },
        _ => Limits {
            frame_bytes_max: 0,
            message_bytes_max: 0,
            fragments_max: 1,
        },
    };
    check_frames(role, &limits, input);
}
