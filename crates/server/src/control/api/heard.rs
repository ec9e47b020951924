//! What a traced connection heard in HTTP chunks: its messages.

use myriad_shard::{Framing, Transport};
use myriad_wire::http::ChunkedBody;
use myriad_wire::varint::split_varint;

/// Takes messages out of the chunks of a response, whatever the pieces they come in.
#[derive(Debug)]
pub(super) struct Heard {
    transport: Transport,
    chunks: ChunkedBody,
    /// Data of chunks that is no whole message yet.
    data: Vec<u8>,
}

impl Heard {
    /// From a chunk's first byte on.
    pub(super) fn new(transport: Transport) -> Self {
        Self {
            transport,
            chunks: ChunkedBody::default(),
            data: Vec::new(),
        }
    }

    /// The messages that are whole with these bytes, and whether the body has ended. None if a message has more than `bytes_max` bytes,
    /// or the bytes are no chunks.
    pub(super) fn read(&mut self, bytes: &[u8], bytes_max: usize) -> Option<(Vec<Vec<u8>>, bool)> {
        self.chunks
            .decode(bytes, &mut self.data, bytes_max)
            .ok()??;
        let mut messages = Vec::new();
        while let Some((message, rest)) = next_message(self.transport, &self.data) {
            if !message.is_empty() {
                messages.push(message.to_vec());
            }
            let taken = self.data.len() - rest;
            self.data.drain(..taken);
        }
        Some((messages, self.chunks.is_done()))
    }
}

/// The first message, and how many bytes stand behind it.
fn next_message(transport: Transport, data: &[u8]) -> Option<(&[u8], usize)> {
    if transport == Transport::HttpStreamProtobuf {
        let (length, rest) = split_varint(data).ok()?;
        let begin = data.len() - rest.len();
        let end = begin.checked_add(usize::try_from(length).ok()?)?;
        return Some((data.get(..end)?, data.len() - end));
    }
    let end = data.iter().position(|byte| *byte == b'\n')?;
    let line = &data[..end];
    // Events have one line of data each, and a blank line behind them.
    let message = match transport.framing() {
        Framing::Event => line.strip_prefix(b"data: ").unwrap_or_default(),
        Framing::Chunk | Framing::WebSocket => line,
    };
    Some((message, data.len() - end - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(transport: Transport, body: &[u8], step: usize) -> (Vec<Vec<u8>>, bool) {
        let mut heard = Heard::new(transport);
        let (mut messages, mut ended) = (Vec::new(), false);
        for piece in body.chunks(step) {
            let (more, end) = heard.read(piece, 1000).expect("chunks");
            messages.extend(more);
            ended = end;
        }
        (messages, ended)
    }

    #[test]
    fn messages_come_out_of_chunks() {
        for step in [1, 3, 1000] {
            let lines = read(
                Transport::UniHttpStream,
                b"7\r\n{}\n{1}\n\r\n3\r\n{}\n\r\n0\r\n\r\n",
                step,
            );
            let expected = [&b"{}"[..], b"{1}", b"{}"].map(<[u8]>::to_vec).to_vec();
            assert_eq!(lines, (expected, true));
            let events = read(Transport::Sse, b"15\r\ndata: {}\n\ndata: [1]\n\n\r\n", step);
            let expected = [&b"{}"[..], b"[1]"].map(<[u8]>::to_vec).to_vec();
            assert_eq!(events, (expected, false));
            let bytes = read(Transport::HttpStreamProtobuf, b"4\r\n\x00\x02ab\r\n", step);
            let expected = [&b"\x00"[..], b"\x02ab"].map(<[u8]>::to_vec).to_vec();
            assert_eq!(bytes, (expected, false));
        }
        assert_eq!(Heard::new(Transport::HttpStreamJson).read(b"x", 10), None);
        assert_eq!(
            Heard::new(Transport::HttpStreamJson).read(b"b\r\n01234567890", 10),
            None
        );
    }
}
