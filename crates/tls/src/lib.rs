//! TLS for very many connections.
//!
//! A connection of rustls costs 3 to 8 KB for as long as it lives. Most of that serves the handshake. So rustls makes the handshake
//! ([`Handshake`]), and gives way to 216 bytes without a pointer ([`Records`]): a traffic secret, a key, a nonce and a sequence number
//! for each direction. They seal and open records of TLS 1.3 with the primitives of aws-lc, one record at a time.
//!
//! Bytes come in and go out through arguments. This crate has no sockets, no clock and no threads, so a simulation can play it.
//!
//! | type | what it is |
//! | --- | --- |
//! | [`Handshake`] | a connection until its keys are known: takes whole records, writes its answers into a buffer |
//! | [`Records`] | a connection afterwards: `open` takes the peer's records, `seal` writes ours |
//! | [`Channel`] | a connection afterwards, whichever version it speaks: [`Records`], or [`Legacy`] |
//! | [`Secrets`] | the [`rustls::KeyLog`] without which a handshake cannot become [`Records`] |
//! | [`Fault`] | why a connection ends, and with which alert |

#![forbid(unsafe_code)]

mod alert;
mod channel;
mod encoding;
mod end;
#[doc(hidden)]
pub mod fuzzing;
mod handshake;
mod header;
mod legacy;
mod records;
mod secrets;
mod suite;

pub use alert::{Alert, Fault};
pub use channel::{Channel, ChannelFailed};
pub use end::End;
pub use handshake::{Established, Handshake, HandshakeFailed, Progress, Protection};
pub use header::{HEADER, Header, RECORD_MAX};
pub use legacy::{Heard, Legacy, LegacyFailed};
#[cfg(feature = "key-limit")]
pub use records::limit_keys;
pub use records::{Content, Opened, PLAIN_MAX, Records, STATE, Side, Unfit};
pub use secrets::Secrets;
pub use suite::Suite;
