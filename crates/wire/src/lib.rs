//! Parses and writes HTTP/1.1 heads, WebSocket frames and the messages of Centrifuge clients, without I/O.
//!
//! Ten layers, each usable alone:
//!
//! * [`http`] finds and reads a request or response head, and writes short responses;
//! * [`handshake`] checks whether a head is a WebSocket opening handshake (RFC 6455, section 4), for both ends;
//! * [`ws`] turns received bytes into [`ws::Event`]s with a [`ws::Decoder`], and writes frames
//!   (RFC 6455, sections 5 to 8);
//! * [`deflate`] compresses and inflates messages (RFC 7692);
//! * [`centrifuge`] reads and writes the messages of the Centrifuge client protocol;
//! * [`sse`] writes event streams, and [`event_stream`] reads them;
//! * [`peer`] reads what proxies say of their clients;
//! * [`reads`] reads requests for a channel as a Durable Stream, and writes their answers;
//! * [`streams`] has words of the Durable Streams protocol;
//! * [`varint`] reads and writes the numbers of protobuf.
//!
//! Nothing here reads a socket, a clock or a source of randomness. Bytes come in as slices, and masks and keys are
//! arguments. So the same bytes always give the same result, wherever they are cut into pieces.

#![forbid(unsafe_code)]

pub mod centrifuge;
pub mod deflate;
pub mod event_stream;
#[doc(hidden)]
pub mod fuzzing;
pub mod handshake;
pub mod http;
pub mod peer;
pub mod reads;
pub mod sse;
pub mod streams;
pub mod varint;
pub mod ws;
