//! Bytes to meaning: HTTP/1.1 heads and WebSocket frames, without I/O.
//!
//! Four layers, each usable alone:
//!
//! * [`http`] finds and reads a request or response head, and writes short responses;
//! * [`handshake`] judges a head as a WebSocket opening handshake (RFC 6455, section 4), for both ends;
//! * [`ws`] turns received bytes into [`ws::Event`]s with a [`ws::Decoder`], and writes frames
//!   (RFC 6455, sections 5 to 8);
//! * [`deflate`] compresses and inflates messages (RFC 7692).
//!
//! Nothing here reads a socket, a clock or a source of randomness: bytes come in as slices, time does
//! not come in at all, and masks and keys are arguments. The same bytes therefore always mean the same,
//! however they were cut on their way.

#![forbid(unsafe_code)]

pub mod deflate;
#[doc(hidden)]
pub mod fuzzing;
pub mod handshake;
pub mod http;
pub mod ws;
