//! What peers know of permessage-deflate (RFC 7692): what they offer, what must be answered, and messages they compress.

use flate2::{Compress, Compression, FlushCompress};
use myriad_reactor::sim::Prng;
use myriad_wire::fuzzing::{Inflated, inflate_by_the_book};
use std::cell::RefCell;
use std::collections::HashMap;

/// What a peer says of compression in its request, and the window the server has to agree to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) header: &'static str,
    window: Option<u8>,
    is_window_named: bool,
}

const OFFERS: [(&str, Option<u8>, bool); 12] = [
    ("permessage-deflate", Some(15), false),
    (
        "permessage-deflate; client_max_window_bits",
        Some(15),
        false,
    ),
    (
        "permessage-deflate; server_max_window_bits=9",
        Some(9),
        true,
    ),
    (
        "permessage-deflate; server_max_window_bits=10; client_no_context_takeover",
        Some(10),
        true,
    ),
    (
        "permessage-deflate; server_max_window_bits=\"11\"",
        Some(11),
        true,
    ),
    (
        "permessage-deflate; server_max_window_bits=12",
        Some(12),
        true,
    ),
    (
        "permessage-deflate; server_max_window_bits=13; client_max_window_bits=9",
        Some(13),
        true,
    ),
    (
        "permessage-deflate; server_max_window_bits=14",
        Some(14),
        true,
    ),
    (
        "permessage-deflate; server_max_window_bits=8, permessage-deflate; server_max_window_bits=15",
        Some(15),
        true,
    ),
    ("permessage-deflate; server_max_window_bits=8", None, false),
    (
        "permessage-deflate; server_no_context_takeover; server_no_context_takeover",
        None,
        false,
    ),
    ("x-other, permessage-deflate; x-unknown", None, false),
];

impl Offer {
    pub(crate) fn random(prng: &mut Prng) -> Self {
        let &(header, window, is_window_named) = prng.pick(&OFFERS);
        Self {
            header,
            window,
            is_window_named,
        }
    }

    /// The window agreed to, after the answer has been checked.
    pub(crate) fn judge(self, answer: Option<&str>) -> Option<u8> {
        let expected = self.window.map(|bits| {
            let named = match self.is_window_named {
                true => format!("; server_max_window_bits={bits}"),
                false => String::new(),
            };
            format!(
                "permessage-deflate; server_no_context_takeover; client_no_context_takeover{named}"
            )
        });
        assert_eq!(answer, expected.as_deref(), "{self:?}");
        self.window
    }
}

thread_local! {
    /// What was inflated lately: most frames come to many peers, and the book is slow.
    static KNOWN: RefCell<HashMap<Vec<u8>, Inflated>> = RefCell::default();
}

/// The message in a compressed frame, which keeps to the window and is a gain.
pub(crate) fn inflate(payload: &[u8], window: u8) -> Vec<u8> {
    let inflated = KNOWN.with_borrow_mut(|known| {
        if known.len() == 200 {
            known.clear();
        }
        let read = || inflate_by_the_book(payload, 1 << 24).expect("what the server compresses");
        known.entry(payload.to_vec()).or_insert_with(read).clone()
    });
    assert!(
        inflated.distance_max <= 1 << window,
        "needs a larger window"
    );
    assert!(
        payload.len() < inflated.bytes.len(),
        "compressed for nothing"
    );
    inflated.bytes
}

/// A compressed payload, at any level, in any number of blocks.
pub(crate) fn deflate(message: &[u8], prng: &mut Prng) -> Vec<u8> {
    let level = Compression::new(u32::try_from(prng.below(10)).expect("at most 9"));
    let window = u8::try_from(prng.between(9, 15)).expect("at most 15");
    let mut compress = Compress::new_with_window_bits(level, false, window);
    let pieces = prng.between(1, 3);
    let mut payload = Vec::with_capacity(message.len() * 2 + 1000);
    for piece in message.chunks(message.len() / pieces + 1) {
        compress
            .compress_vec(piece, &mut payload, FlushCompress::Sync)
            .expect("room enough");
    }
    assert!(payload.len() < payload.capacity(), "room enough");
    if message.is_empty() {
        return vec![0];
    }
    payload.truncate(payload.len() - 4);
    payload
}
