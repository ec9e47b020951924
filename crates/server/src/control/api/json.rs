//! Pieces of results as JSON. Every result is one line: the legacy form has one result a line.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use myriad_shard::ClientInfo;
use myriad_wire::centrifuge::{is_json, json_without_line_breaks};
use std::fmt::Write;

/// A string with its quotes.
pub(super) fn push_string(text: &str, json: &mut String) {
    json.push_str(&serde_json::to_string(text).expect("text can be quoted"));
}

/// A member of an object behind others: bytes as base64, under the name `b64..`.
pub(super) fn push_named_bytes(name: &str, bytes: &[u8], json: &mut String) {
    let encoded = BASE64_STANDARD.encode(bytes);
    write!(json, r#","b64{name}":"{encoded}""#).expect("a String takes everything");
}

/// A client: `{"user", "client", "conn_info", "chan_info"}`. Information that is no JSON is under `b64conn_info` or `b64chan_info`.
pub(super) fn push_client(info: &ClientInfo, json: &mut String) {
    json.push_str(r#"{"user":"#);
    push_string(&info.user, json);
    write!(json, r#","client":"{}""#, info.client).expect("a String takes everything");
    for (name, info) in [
        ("conn_info", &info.connection_info),
        ("chan_info", &info.channel_info),
    ] {
        let Some(bytes) = info else {
            continue;
        };
        match str::from_utf8(bytes) {
            Ok(text) if is_json(bytes) => {
                let text = json_without_line_breaks(text);
                write!(json, r#","{name}":{text}"#).expect("a String takes everything");
            }
            _ => push_named_bytes(name, bytes, json),
        }
    }
    json.push('}');
}
