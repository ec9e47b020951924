//! Bytes to meaning: HTTP/1.1 heads and WebSocket frames, without I/O.
