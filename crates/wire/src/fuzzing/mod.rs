//! Properties of the decoders, for fuzz targets and for tests.
//!
//! Each fuzz target has one function that takes any bytes and panics if a property does not hold. The targets in `fuzz/`
//! call it with the fuzzer's inputs, the tests with the committed corpora. Tests of single vectors also use
//! [`check_frames`].
//!
//! Not part of the crate's interface.

mod bodies;
mod centrifuge;
mod deflate;
mod frames;
mod heads;
mod inflate;
mod model;
mod peer;
mod requests;
mod requests_model;

pub use bodies::{Members, emulation_request, request_body};
pub use centrifuge::{centrifuge_json, centrifuge_protobuf, fossil_delta};
pub use deflate::{check_deflated, check_inflated, deflate};
pub use frames::{Cuts, Item, Transcript, check_extended_frames, check_frames, read_frames};
pub use heads::{handshake, http_head};
pub use inflate::{Inflated, inflate_by_the_book};
pub use model::read_by_the_book;
pub use peer::{forwarded, proxy_header};
pub use requests::{LastRequest, Requests, check_requests, http_requests, read_requests};

use crate::ws::{Extension, Limits, Role};

/// Fuzz target: any bytes as frames. The first byte chooses role, limits and extension, the rest is the input.
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
    let extension = if setting & 8 == 0 {
        Extension::None
    } else {
        Extension::Deflate
    };
    check_extended_frames(role, extension, &limits, input);
}

/// At most this many positions in the input, evenly spread. The input's bytes decide the first one, so a fuzzer can move
/// them.
fn spread(input: &[u8], places_max: usize) -> impl Iterator<Item = usize> + use<> {
    let step = input.len() / places_max + 1;
    let sum: usize = input.iter().copied().map(usize::from).sum();
    (sum % step..input.len()).step_by(step)
}
