//! The WebSocket opening handshake (RFC 6455, section 4), both ends of it, without extensions.

mod client;
mod key;
mod refusal;
mod server;

pub use client::{ResponseRefused, check_response, write_request};
pub use key::Key;
pub use refusal::Refusal;
pub use server::{Upgrade, check_upgrade};

/// The only version of the protocol there is (RFC 6455, section 11.6).
const VERSION: &str = "13";
