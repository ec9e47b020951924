//! From the sockets to the terminals.

use super::connection::{Connection, ConnectionFailed, Early};
use super::figures::Handshake;
use super::{ABRUPT_END, Link, Stage, TlsFailure, TlsLink, TlsReactor};
use crate::engine::plan::PlannedTarget;
use crate::failure::Failure;
use myriad_reactor::{Close, Completion, Completions, Reactor, SendOp, Socket, Token};
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Bytes that are kept of an answer in plain text.
const SAID_BYTES_MAX: usize = 200;

/// The first bytes that a record may have (RFC 8446, section 5.1, and RFC 6520, section 3).
const CONTENT_TYPES: RangeInclusive<u8> = 20..=24;

impl<R: Reactor + ?Sized> TlsReactor<R> {
    /// Takes what happened to one socket.
    pub(super) fn handle(
        &mut self,
        completion: Completion,
        bytes: &mut [u8],
        out: &mut Completions,
    ) {
        match completion {
            Completion::Connected { token } => self.handle_connected(token, out),
            Completion::ConnectFailed { token, .. } => {
                if let Some(link) = self.link(token) {
                    *link = Link::None;
                    out.list.push(completion);
                }
            }
            Completion::Received { token, range } => match self.link(token) {
                None => {}
                Some(Link::Tls { .. }) => self.decrypt(token, &mut bytes[range], out),
                Some(_) => {
                    let start = out.buffer.len();
                    out.buffer.extend_from_slice(&bytes[range]);
                    out.report_received(token, start..out.buffer.len());
                }
            },
            Completion::Finished { token } => self.handle_end(token, ABRUPT_END, out),
            Completion::Failed { token, errno } => self.handle_end(token, errno, out),
            Completion::Writable { token } => self.handle_writable(token, out),
            Completion::Accepted { .. }
            | Completion::AcceptPaused { .. }
            | Completion::Buffered { .. }
            | Completion::Refused { .. }
            | Completion::Woken => out.list.push(completion),
        }
    }

    /// The target at an address: a terminal that comes back may have gone to another one than its own.
    pub(super) fn target_at(&self, index: u32, address: SocketAddr) -> u32 {
        let number = self.plan.number(self.part, index);
        let (own, _) = self.plan.target_of(number);
        let targets = &self.plan.targets;
        let at = |target: &PlannedTarget| target.address == address;
        let found = match at(&targets[own]) {
            true => Some(own),
            false => targets.iter().position(at),
        };
        u32::try_from(found.unwrap_or(own)).expect("targets are few")
    }

    /// A TCP connection is there. With TLS its handshake begins.
    fn handle_connected(&mut self, token: Token, out: &mut Completions) {
        let Some(&mut Link::Socket {
            socket,
            generation,
            target,
        }) = self.link(token)
        else {
            return;
        };
        let name = self.plan.targets[target as usize].server_name.clone();
        let tls = self.plan.tls.as_ref().zip(name);
        let Some((tls, name)) = tls else {
            return out.list.push(Completion::Connected { token });
        };
        // Its first connection, unless it has had 256 of them.
        let is_first = generation == 1;
        let config = if is_first { &tls.first } else { &tls.again };
        match Connection::new(Arc::clone(config), name) {
            Ok(connection) => {
                let link = TlsLink {
                    connection,
                    began: self.micros(),
                    stage: Stage::Handshaking,
                    is_registered: false,
                    is_writable_wanted: false,
                    is_holding: false,
                };
                self.links[token.index as usize] = Link::Tls {
                    socket,
                    generation,
                    key: self.secured.insert(link),
                };
                self.sockets.register(socket, token);
                self.speaking.push(token.index);
            }
            Err(error) => {
                self.sockets.close(socket, token, Close::Reset);
                self.links[token.index as usize] = Link::None;
                let failure = error.kind();
                self.keep_example(failure, token, &error.to_string());
                let errno = failure.errno();
                out.list.push(Completion::ConnectFailed { token, errno });
            }
        }
    }

    /// Gives ciphertext to its connection, and reports what it says.
    fn decrypt(&mut self, token: Token, bytes: &mut [u8], out: &mut Completions) {
        let is_resuming = self.plan.tls.as_ref().is_some_and(|tls| tls.is_resuming);
        let Some(link) = self.tls(token) else { return };
        if link.stage == Stage::Ended {
            return;
        }
        let is_handshaking = link.stage == Stage::Handshaking;
        let incomplete_before = link.connection.incomplete_bytes();
        // A record begins here. Whoever sends something else is quoted.
        if is_handshaking && incomplete_before == 0 && !CONTENT_TYPES.contains(&bytes[0]) {
            return self.fail_plain(token, bytes, out);
        }
        // What waits for the socket is sent when that takes bytes again.
        let is_waiting = !link.connection.output().is_empty();
        let start = out.buffer.len();
        let mut early = Vec::new();
        let plain = match link.is_registered {
            true => &mut out.buffer,
            false => &mut early,
        };
        let received = link.connection.receive(bytes, plain, is_resuming);
        if !early.is_empty() {
            let keep = |kept: &mut Early| kept.plain.append(&mut early);
            link.connection.change_early(keep);
        }
        let incomplete = link.connection.incomplete_bytes();
        let is_speaking = !is_waiting && !link.connection.output().is_empty();
        out.report_received(token, start..out.buffer.len());
        self.incomplete_bytes = self.incomplete_bytes - incomplete_before + incomplete;
        if is_speaking {
            self.speaking.push(token.index);
        }
        let received = match received {
            Ok(received) => received,
            Err(error) => return self.fail(token, &error, out),
        };
        if self.incomplete_bytes > self.plan.partial_bytes_max && incomplete > incomplete_before {
            let text = "records that were begun and not finished fill the memory for them";
            return self.end_with(token, TlsFailure::Unfinished, text, out);
        }
        if let Some(is_resumed) = received.established {
            self.establish(token, is_resumed, out);
        }
        if received.is_closed {
            self.end(token, 0, out);
        }
    }

    /// The handshake is over.
    fn establish(&mut self, token: Token, is_resumed: bool, out: &mut Completions) {
        let now = self.micros();
        let Some(link) = self.tls(token) else { return };
        link.stage = Stage::Established;
        link.is_holding = !link.connection.output().is_empty();
        let is_holding = link.is_holding;
        let handshake = Handshake {
            micros: now.wrapping_sub(link.began),
            is_resumed,
            is_tls12: link.connection.is_tls12(),
        };
        self.handshakes.push(handshake);
        if is_holding {
            self.holding.push(token.index);
        }
        out.list.push(Completion::Connected { token });
    }

    /// The server does not speak TLS.
    fn fail_plain(&mut self, token: Token, bytes: &[u8], out: &mut Completions) {
        let said = String::from_utf8_lossy(&bytes[..bytes.len().min(SAID_BYTES_MAX)]);
        let is_text = bytes[0].is_ascii_graphic() || bytes[0].is_ascii_whitespace();
        let failure = match is_text {
            true => TlsFailure::PlainText,
            false => TlsFailure::Invalid,
        };
        self.end_with(token, failure, &said, out);
    }

    /// A connection cannot go on.
    fn fail(&mut self, token: Token, error: &ConnectionFailed, out: &mut Completions) {
        self.end_with(token, error.kind(), &error.to_string(), out);
    }

    fn end_with(&mut self, token: Token, failure: TlsFailure, text: &str, out: &mut Completions) {
        self.keep_example(failure, token, text);
        self.end(token, failure.errno(), out);
    }

    /// Keeps the first example of a kind of failure, with where it was.
    fn keep_example(&mut self, failure: TlsFailure, token: Token, text: &str) {
        if !self.said.insert(failure) {
            return;
        }
        let number = self.plan.number(self.part, token.index);
        let (target, _) = self.plan.target_of(number);
        let host = &self.plan.targets[target].host;
        let text = match failure {
            TlsFailure::PlainText => text.to_owned(),
            _ => format!("{text} ({host})"),
        };
        let mut account = self.shared.account(self.part.thread as usize);
        let first = account.answers.entry(Failure::Tls(failure));
        first.or_insert_with(|| text.into_bytes());
    }

    /// The end of a socket's input.
    fn handle_end(&mut self, token: Token, errno: i32, out: &mut Completions) {
        match self.link(token) {
            None => return,
            Some(Link::Tls { .. }) => {}
            Some(_) if errno == ABRUPT_END => {
                return out.list.push(Completion::Finished { token });
            }
            Some(_) => return out.list.push(Completion::Failed { token, errno }),
        }
        let Some(link) = self.tls(token) else { return };
        if link.stage == Stage::Ended {
            return;
        }
        if errno != ABRUPT_END {
            return self.end(token, errno, out);
        }
        let is_cut = link.connection.incomplete_bytes() > 0;
        match link.stage {
            Stage::Handshaking => {
                let text = "the connection ended before the TLS handshake was over";
                self.end_with(token, TlsFailure::Ended, text, out);
            }
            _ if is_cut => {
                let text = "the connection ended in the middle of a record";
                self.end_with(token, TlsFailure::Truncated, text, out);
            }
            _ => self.end(token, ABRUPT_END, out),
        }
    }

    /// Reports the end of a connection's input: with an errno, or 0 where the peer has said that it is over.
    fn end(&mut self, token: Token, errno: i32, out: &mut Completions) {
        let Some(link) = self.tls(token) else { return };
        if link.stage == Stage::Handshaking {
            return self.give_up(token, errno, out);
        }
        link.stage = Stage::Ended;
        if link.is_registered {
            out.list.push(end_of(token, errno));
        } else {
            link.connection
                .change_early(|early| early.end = Some(errno));
        }
    }

    /// Ends a connection that was never established. Its alert, if there is one, goes out before.
    fn give_up(&mut self, token: Token, errno: i32, out: &mut Completions) {
        let Some(link) = self.tls(token) else { return };
        let output = link.connection.take_output();
        let socket = self.inner(Socket::from_bits(token.index));
        self.forget(token.index);
        if !output.is_empty() {
            self.sockets.send_batch(&mut [SendOp::new(socket, &output)]);
        }
        self.sockets.close(socket, token, Close::Orderly);
        // A server that sent a `close_notify` in the middle of a handshake has ended it.
        let errno = match errno {
            0 => TlsFailure::Ended.errno(),
            errno => errno,
        };
        out.list.push(Completion::ConnectFailed { token, errno });
    }

    pub(super) fn forget(&mut self, index: u32) {
        let link = std::mem::replace(&mut self.links[index as usize], Link::None);
        if let Some(key) = link.key()
            && let Some(link) = self.secured.get_mut(key)
        {
            self.incomplete_bytes -= link.connection.incomplete_bytes();
            // Keys are wiped where they are dropped, and a move would leave their bytes here.
            link.connection = Connection::default();
            self.secured.remove(key.index);
        }
    }

    fn handle_writable(&mut self, token: Token, out: &mut Completions) {
        match self.link(token) {
            None => return,
            Some(Link::Tls { .. }) => {}
            Some(_) => return out.list.push(Completion::Writable { token }),
        }
        self.speak(&[token.index]);
        let Some(link) = self.tls(token) else { return };
        if link.connection.output().is_empty() && std::mem::take(&mut link.is_writable_wanted) {
            out.list.push(Completion::Writable { token });
        }
    }

    /// Reports what came for connections before they were registered.
    pub(super) fn report_early(&mut self, out: &mut Completions) {
        for token in std::mem::take(&mut self.resumed) {
            let Some(link) = self.tls(token) else {
                continue;
            };
            let Some(early) = link.connection.take_early() else {
                continue;
            };
            let start = out.buffer.len();
            out.buffer.extend_from_slice(&early.plain);
            out.report_received(token, start..out.buffer.len());
            if let Some(errno) = early.end {
                out.list.push(end_of(token, errno));
            }
        }
    }
}

fn end_of(token: Token, errno: i32) -> Completion {
    match errno {
        0 => Completion::Finished { token },
        errno => Completion::Failed { token, errno },
    }
}
