//! What peers send: request heads, good and bad, and frames, good and bad.

use crate::compression::{Offer, deflate};
use myriad_reactor::sim::Prng;
use myriad_shard::Settings;

/// The headers of a handshake, with the key of RFC 6455, section 1.3.
const HANDSHAKE: &str = "Host: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n";

/// The head of a handshake for a target.
pub(crate) fn handshake(target: &str) -> Vec<u8> {
    format!("GET {target} HTTP/1.1\r\n{HANDSHAKE}\r\n").into_bytes()
}

/// The same, with an offer to compress.
pub(crate) fn handshake_with(target: &str, offer: Option<Offer>) -> Vec<u8> {
    let extensions = offer.map_or(String::new(), |offer| {
        format!("Sec-WebSocket-Extensions: {}\r\n", offer.header)
    });
    format!("GET {target} HTTP/1.1\r\n{HANDSHAKE}{extensions}\r\n").into_bytes()
}

/// A request that must be refused.
#[derive(Clone, Debug)]
pub(crate) struct BadRequest {
    pub(crate) bytes: Vec<u8>,
    pub(crate) status: u16,
    /// Found only after the checks for room and rights.
    pub(crate) is_found_late: bool,
}

/// One of the ways to get a request wrong.
pub(crate) fn bad_request(prng: &mut Prng, settings: &Settings) -> BadRequest {
    if prng.one_in(10) {
        return bad_body(prng);
    }
    let late_with = |status, target: &str| BadRequest {
        bytes: handshake(target),
        status,
        is_found_late: true,
    };
    let late = |target: &str| late_with(400, target);
    let without = |line: &str| {
        format!(
            "GET /raw?channel=a HTTP/1.1\r\n{}\r\n",
            HANDSHAKE.replace(line, "")
        )
    };
    match prng.below(22) {
        0 => early(
            405,
            format!("POST /raw?channel=a HTTP/1.1\r\n{HANDSHAKE}\r\n"),
        ),
        1 => early(
            505,
            format!("GET /raw?channel=a HTTP/1.0\r\n{HANDSHAKE}\r\n"),
        ),
        2 => early(400, without("Host: x\r\n")),
        3 => early(426, without("Upgrade: websocket\r\n")),
        4 => early(400, without("Connection: Upgrade\r\n")),
        5 => early(
            400,
            without("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"),
        ),
        6 => early(426, without("13").replace("Version: ", "Version: 12")),
        7 => early(
            400,
            without("\0").replace("Host", "Content-Length: 3\r\nHost"),
        ),
        15 => early(
            501,
            without("\0").replace("Host", "Transfer-Encoding: gzip\r\nHost"),
        ),
        16 => {
            let lengths = "Content-Length: 3\r\nContent-Length: 3\r\nHost";
            early(400, without("\0").replace("Host", lengths))
        }
        17 => early(
            403,
            without("\0").replace("Host", "Origin: https://evil.test\r\nHost"),
        ),
        8 => early(400, "\u{16}\u{3}\u{1}\u{2}\0\u{1}\0\u{1}\u{fc}".into()),
        9 => early(431, with_many_headers(settings.headers_max + 1)),
        10 => early(431, with_long_header(settings.head_bytes_max)),
        11 => late("/raw"),
        12 => late("/raw?channel="),
        13 => late("/raw?channel=%ff"),
        18 => late("/raw?channel=unknown:a"),
        19 => late_with(403, "/raw?channel=a&channel=%24a"),
        20 => early(501, without("\0").replace("GET", "CONNECT")),
        21 => early(417, without("\0").replace("Host", "Expect: x\r\nHost")),
        _ => {
            let many: Vec<String> = (0..=settings.subscriptions_max.min(255))
                .map(|number| format!("channel={number}"))
                .collect();
            let target = format!("/raw?{}", many.join("&"));
            if target.len() + 200 > settings.head_bytes_max {
                return late(&format!("/raw?channel={}", "x".repeat(256)));
            }
            late(&target)
        }
    }
}

/// A request that is refused whatever room and rights there are.
fn early(status: u16, text: String) -> BadRequest {
    BadRequest {
        bytes: text.into_bytes(),
        status,
        is_found_late: false,
    }
}

/// A request for a response that goes on, whose body is not taken.
fn bad_body(prng: &mut Prng) -> BadRequest {
    let (status, length, body) = *prng.pick(&[(413, 1_u64 << 40, ""), (400, 7, "no JSON")]);
    let head = format!(
        "POST /connection/uni_http_stream HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n"
    );
    BadRequest {
        bytes: (head + body).into_bytes(),
        status,
        is_found_late: true,
    }
}

fn with_many_headers(count: usize) -> String {
    let headers = "A: b\r\n".repeat(count);
    format!("GET /raw?channel=a HTTP/1.1\r\n{headers}\r\n")
}

/// A head that does not end.
fn with_long_header(bytes: usize) -> String {
    format!("GET /raw?channel=a HTTP/1.1\r\nA: {}", "y".repeat(bytes))
}

/// A request for the control plane.
pub(crate) fn api_request(prng: &mut Prng) -> Vec<u8> {
    let size = *prng.pick(&[0, 10, 3000, 20_000]);
    let body: String = (0..size)
        .map(|_| char::from(b'a' + prng.bits().to_le_bytes()[0] % 26))
        .collect();
    format!("POST /api/publish HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n{body}")
        .into_bytes()
}

/// Appends a frame as a client sends it.
pub(crate) fn frame(out: &mut Vec<u8>, first: u8, payload: &[u8], prng: &mut Prng) {
    out.push(first);
    let length = payload.len();
    match length {
        0..=125 => out.push(0x80 | low_byte(length)),
        126..=0xffff => {
            out.push(0x80 | 126);
            out.extend([low_byte(length >> 8), low_byte(length)]);
        }
        _ => {
            out.push(0x80 | 127);
            out.extend((length as u64).to_be_bytes());
        }
    }
    let mask = prng.bits().to_le_bytes();
    out.extend(&mask[..4]);
    out.extend(
        payload
            .iter()
            .enumerate()
            .map(|(at, byte)| byte ^ mask[at % 4]),
    );
}

fn low_byte(number: usize) -> u8 {
    number.to_le_bytes()[0]
}

/// Content of a message; text is full of code points that fragments will cut.
pub(crate) fn message(is_text: bool, size: usize, prng: &mut Prng) -> Vec<u8> {
    let mut content = Vec::with_capacity(size);
    while content.len() < size {
        let next = *prng.pick(&["a", "ü", "€", "😀"]);
        if is_text && content.len() + next.len() <= size {
            content.extend(next.bytes());
        } else {
            content.push(if is_text {
                b'.'
            } else {
                prng.bits().to_le_bytes()[0]
            });
        }
    }
    content
}

/// Frames that break a rule of compression, where that was agreed to, and the code that answers them.
fn bad_compressed_frames(prng: &mut Prng, settings: &Settings) -> (Vec<u8>, u16) {
    let mut out = Vec::new();
    let code = match prng.below(7) {
        0 => {
            frame(&mut out, 0xc9, b"", prng);
            1002
        }
        1 => {
            frame(&mut out, 0x42, &[0], prng);
            frame(&mut out, 0xc0, &[0], prng);
            1002
        }
        2 => {
            frame(&mut out, 0xc2, b"no DEFLATE data", prng);
            1007
        }
        3 => {
            let whole = deflate(b"to be cut off, to be cut off", prng);
            frame(&mut out, 0xc2, &whole[..whole.len() - 2], prng);
            1007
        }
        4 => {
            let payload = deflate(b"ok \xff", prng);
            frame(&mut out, 0xc1, &payload, prng);
            1007
        }
        // The second message of RFC 7692, section 7.2.3.2, which refers to the first.
        5 => {
            frame(&mut out, 0xc2, &[0xf2, 0x00, 0x11, 0x00, 0x00], prng);
            1007
        }
        _ => {
            let max = usize::try_from(settings.message_bytes_max).expect("a small limit");
            let bomb = deflate(&vec![b'x'; max + 1], prng);
            frame(&mut out, 0xc2, &bomb, prng);
            1009
        }
    };
    (out, code)
}

/// Frames that break a rule, and the code that answers them.
pub(crate) fn bad_frames(prng: &mut Prng, settings: &Settings, compresses: bool) -> (Vec<u8>, u16) {
    if compresses && prng.one_in(2) {
        return bad_compressed_frames(prng, settings);
    }
    let mut out = Vec::new();
    let max = settings.message_bytes_max;
    let code = match prng.below(14) {
        0 => {
            out.extend([0x81, 1, b'x']);
            1002
        }
        1 => {
            frame(&mut out, if compresses { 0xe1 } else { 0xc1 }, b"x", prng);
            1002
        }
        2 => {
            frame(&mut out, 0x83, b"x", prng);
            1002
        }
        3 => {
            frame(&mut out, 0x09, b"", prng);
            1002
        }
        4 => {
            frame(&mut out, 0x89, &[0; 126], prng);
            1002
        }
        5 => {
            frame(&mut out, 0x80, b"x", prng);
            1002
        }
        6 => {
            frame(&mut out, 0x01, b"x", prng);
            frame(&mut out, 0x82, b"y", prng);
            1002
        }
        7 => {
            frame(&mut out, 0x81, b"ok \xff", prng);
            1007
        }
        8 => {
            out.extend([0x82, 0xfe, 0, 1, 0, 0, 0, 0, b'x']);
            1002
        }
        9 => {
            out.extend([0x82, 0xff]);
            out.extend((max.max(65_535) + 1).to_be_bytes());
            out.extend([0; 8]);
            1009
        }
        10 => {
            let half = vec![b'x'; usize::try_from(max / 2 + 1).expect("a small limit")];
            frame(&mut out, 0x02, &half, prng);
            frame(&mut out, 0x80, &half, prng);
            1009
        }
        11 => {
            frame(&mut out, 0x88, b"x", prng);
            1002
        }
        12 => {
            frame(&mut out, 0x88, &1005_u16.to_be_bytes(), prng);
            1002
        }
        _ => {
            frame(&mut out, 0x01, b"", prng);
            (0..settings.fragments_max).for_each(|_| frame(&mut out, 0x00, b"", prng));
            1009
        }
    };
    (out, code)
}
