//! Who a client is when proxies stand before the server: the PROXY protocol, and headers such as X-Forwarded-For.
//!
//! Anybody can write such a header. So both are believed only where a proxy of the operator's has written them: the
//! caller has a list of [`Networks`] for that.

mod forwarded;
mod network;
mod proxy_header;

pub use forwarded::{AddressHeader, AddressHeaderError, forwarded_address};
pub use network::{Network, NetworkError, Networks};
pub use proxy_header::{PROXY_HEADER_BYTES_MAX, ProxyHeader, ProxyHeaderError, parse_proxy_header};
