//! HTTP/1.1 heads (RFC 9112): the line and the headers before a body, and short plain-text responses.
//!
//! A head is parsed when it is complete. Until then the caller keeps the bytes and tries again with more;
//! [`HeadLimits`] bounds them. [`write_stream_head`] begins an answer in chunks, and [`encode_chunk`] goes on with it. [`BodyLength`] and [`ChunkedBody`] find the end of a body without decoding it, because
//! every request that is not a WebSocket handshake goes to an ordinary HTTP server. [`ResponseBody`] is the
//! client's side: it reads a body.
//!
//! [`parse_request`] judges the grammar alone; a server calls [`check_request`] before it acts on a request.

mod ambient;
mod body;
mod check;
mod chunk_extension;
mod chunk_writer;
mod chunks;
mod credentials;
mod error;
mod head;
mod headers;
mod host;
mod origin;
mod own_hosts;
mod query;
mod reply;
mod request_body;
mod response_body;
mod target;

pub use ambient::{cookies_count, cookies_count_for_reading, is_ambient};
pub use body::BodyLength;
pub use check::check_request;
pub use chunk_writer::{LAST_CHUNK, encode_chunk};
pub use chunks::{ChunkError, ChunkedBody};
pub use credentials::credentials;
pub use error::{HeadError, Malformed};
pub use head::{RequestHead, ResponseHead, parse_request, parse_response};
pub use host::Host;
pub use origin::{OriginPattern, OriginPatternError, OriginRefused, check_origin};
pub use own_hosts::{HostRefused, OwnHosts};
pub use query::{QueryError, query_pairs};
pub use reply::{write_response, write_stream_head};
pub use request_body::{BodyError, RequestBody};
pub use response_body::{ResponseBody, ResponseLength};

pub(crate) use headers::{is_token, list_has_token, list_tokens};
pub(crate) use reply::{push_field, write_status_line};

/// Headers a head can hold at most, whatever [`HeadLimits::headers_max`] says.
pub const HEADERS_MAX: usize = 1024;

/// Headers that a head holds in itself. Nearly all heads have fewer; the list of one with more is allocated.
const HEADERS_INLINE: usize = 64;

/// Limits of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadLimits {
    /// Bytes of the head, with the blank line that ends it.
    pub bytes_max: usize,
    /// Header lines. More than [`HEADERS_MAX`] means [`HEADERS_MAX`].
    pub headers_max: usize,
}

impl Default for HeadLimits {
    fn default() -> Self {
        Self {
            bytes_max: 32 << 10,
            headers_max: 128,
        }
    }
}
