//! The first bytes of a connection: a record of a handshake, or something else.
//!
//! A proxy in front may send a header of the PROXY protocol before it passes the client's bytes on. It is not protected, and belongs to
//! the caller, who knows which proxies to believe.

use crate::figures::{Failure, refusal};
use crate::{HAS_GREETED, IS_DUE, Tls};
use myriad_reactor::{Completion, Completions};
use myriad_wheel::Key;
use myriad_wire::http::write_response;
use myriad_wire::peer::parse_proxy_header;

impl Tls {
    /// Looks at the input of a connection whose handshake has not ended, and lists it if there is a record to work on.
    pub(crate) fn greet(&mut self, key: Key, out: &mut Completions) {
        loop {
            let Some(secured) = self.secured.get_mut(key) else {
                return;
            };
            let input = secured.connection.input();
            let Some(&first) = input.first() else { return };
            // A record begins with a byte from 20 to 23, and a mistaken one is told so by an alert.
            let may_be_text = first.is_ascii_uppercase() || first == b'\r';
            if !secured.connection.is_fresh() || !may_be_text {
                break;
            }
            let header = match parse_proxy_header(input) {
                Ok(Some(header)) if !secured.has(HAS_GREETED) => header.bytes,
                Ok(None) if !secured.has(HAS_GREETED) => return,
                Ok(_) | Err(_) => return self.refuse_stranger(key, first, out),
            };
            let start = out.buffer.len();
            out.buffer.extend_from_slice(&input[..header]);
            out.list.push(Completion::Received {
                token: secured.token(),
                range: start..start + header,
            });
            secured.connection.skip_input(header);
            secured.set(HAS_GREETED);
        }
        let Some(secured) = self.secured.get_mut(key) else {
            return;
        };
        if secured.connection.has_step() && !secured.has(IS_DUE) {
            secured.set(IS_DUE);
            self.due.push_back(key);
        }
    }

    /// The client does not speak TLS. If it speaks HTTP, it is told so in its language.
    fn refuse_stranger(&mut self, key: Key, first: u8, out: &mut Completions) {
        let Some(secured) = self.secured.get_mut(key) else {
            return;
        };
        if first.is_ascii_uppercase() {
            let sentence = "This port speaks TLS: connect with https:// or wss://.";
            let mut response = Vec::with_capacity(256);
            write_response(&mut response, 400, &[("connection", "close")], sentence);
            secured.connection.keep_output(&response);
        }
        secured.connection.end();
        self.touched.push(key);
        let token = secured.token();
        self.speaking.push(key);
        self.leave_place(key);
        self.setup.figures.count_failure(Failure::NotTls);
        let words = "what the client sent first is no record of TLS";
        let why = Some(refusal(Failure::NotTls.label(), words.to_owned()));
        out.list.push(Completion::Refused { token, why });
    }
}
