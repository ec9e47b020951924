//! Clients without commands: their connect request, and what becomes of it.
//!
//! A connect request is what the first command of other clients has in it. It is handled as that command, so that tokens, proxies and
//! limits judge both alike.

use super::bad_request;
use super::refused::Asked;
use crate::shard::Shard;
use myriad_hub::{CloseReason, Now, Phase, SessionState};
use myriad_reactor::Reactor;
use myriad_wheel::Key;
use myriad_wire::centrifuge::{ErrorCode, is_json, json_without_line_breaks};

impl<R: Reactor> Shard<R> {
    pub(super) fn is_unidirectional(&self, key: Key) -> bool {
        let transport = self.hub.connection(key.index).transport();
        transport.is_unidirectional()
    }

    /// Handles what a client without commands sends. After its connect request that is ignored: it may be anything.
    pub(crate) fn handle_connect_request(&mut self, key: Key, request: &[u8], now: Now) {
        if self.hub.connection(key.index).phase != Phase::Open
            || self.hub.session(key.index).state != SessionState::New
        {
            return;
        }
        match command_of(request) {
            Some(command) => self.handle_commands(key, command.as_bytes(), now),
            None => {
                let failure = bad_request("its connect request is no JSON");
                let asked = || Asked::command("connect", "");
                self.note_refused(key, asked, failure, now);
                self.tell_failure(key, 0, failure, now);
            }
        }
    }

    /// Ends the connection of a client whose connect request failed. It is told a code of a close, because it reads no errors.
    pub(super) fn end_connect_request(&mut self, key: Key, error: u32, now: Now) {
        self.close_behind_replies(key, reason_of(error), now);
    }
}

/// The command that a connect request stands for; none if it is no JSON. What is JSON may be a part of other JSON.
fn command_of(request: &[u8]) -> Option<String> {
    if !is_json(request) {
        return None;
    }
    let request = json_without_line_breaks(str::from_utf8(request).ok()?);
    Some(format!("{{\"id\":1,\"connect\":{request}}}"))
}

/// Why a connection ends whose connect request fails with this error.
fn reason_of(error: u32) -> CloseReason {
    let known = ErrorCode::ALL.iter().find(|known| known.code() == error);
    match known {
        Some(ErrorCode::TokenExpired | ErrorCode::Expired) => CloseReason::Expired,
        Some(ErrorCode::TooManyRequests) => CloseReason::TooManyRequests,
        Some(ErrorCode::PermissionDenied) => CloseReason::PermissionDenied,
        _ => CloseReason::ConnectFailed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connect_request_is_one_command_whatever_is_in_it() {
        let command = |request: &str| command_of(request.as_bytes());
        let expected = r#"{"id":1,"connect":{"token":"a"}}"#;
        assert_eq!(command("{\"token\":\"a\"}").as_deref(), Some(expected));
        assert_eq!(
            command("{\n\"token\":\"a\"\r\n}").map(|text| text.contains('\n')),
            Some(false)
        );
        for broken in [
            "",
            "{",
            "{}{}",
            "{},\"publish\":{}",
            "{}}\n{\"id\":2}",
            "\u{feff}{}",
        ] {
            assert_eq!(command(broken), None, "{broken}");
        }
    }

    #[test]
    fn errors_become_closes() {
        for (error, code) in [
            (109, 3005),
            (110, 3005),
            (111, 3013),
            (103, 3507),
            (100, 3004),
            (1000, 3004),
        ] {
            assert_eq!(reason_of(error).code(), code);
        }
    }
}
