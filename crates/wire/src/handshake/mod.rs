//! Both ends of the WebSocket opening handshake (RFC 6455, section 4), with the negotiation of compression
//! (RFC 7692, section 7.1).
//!
//! ```
//! use myriad_wire::handshake::{Key, check_response, check_upgrade, write_request};
//! use myriad_wire::http::{HeadLimits, parse_request, parse_response, write_response};
//!
//! let key = Key::from([7; 16]);
//! let (mut asked, mut answered) = (Vec::new(), Vec::new());
//! write_request(&mut asked, "localhost:8000", "/raw?channel=news", &key, &[]);
//!
//! let head = parse_request(&asked, HeadLimits::default())?.expect("it came whole");
//! match check_upgrade(&head) {
//!     Ok(upgrade) => upgrade.write_response(None, None, &mut answered),
//!     Err(no) => write_response(&mut answered, no.status(), no.headers(), no.sentence()),
//! }
//!
//! let head = parse_response(&answered, HeadLimits::default())?.expect("it came whole");
//! assert_eq!(check_response(&head, &key.accept()), Ok(()));
//! # Ok::<(), myriad_wire::http::HeadError>(())
//! ```

mod client;
mod extensions;
mod key;
mod refusal;
mod server;

pub use client::{Agreed, ResponseRefused, check_response, check_response_to_offer, write_request};
pub use extensions::{DEFLATE_OFFER, Deflate};
pub use key::Key;
pub use refusal::Refusal;
pub use server::{Upgrade, asks_for_websocket, check_upgrade};

/// The only version of the protocol (RFC 6455, section 11.6).
const VERSION: &str = "13";
