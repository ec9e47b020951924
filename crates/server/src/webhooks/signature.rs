//! The signature of a request: a receiver sees by it that the server sent the body, and when.

use crate::hex::hex;
use aws_lc_rs::hmac;

/// The header that has it.
pub(super) const HEADER: &str = "x-myriad-signature";

/// The value of the header: `t=SECONDS,v1=HEX`. HEX is HMAC-SHA256 of the seconds in decimal, a dot, and the body.
///
/// The time is signed too, so that a receiver can refuse a request that somebody recorded and sends again later.
pub(super) fn sign(secret: &str, unix_seconds: u64, body: &[u8]) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let mut context = hmac::Context::with_key(&key);
    context.update(format!("{unix_seconds}.").as_bytes());
    context.update(body);
    format!("t={unix_seconds},v1={}", hex(context.sign().as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    #[test]
    fn another_implementation_finds_the_same() {
        let script = "import hmac, sys; print(hmac.new(b'sesame', b'1700000000.' + sys.stdin.buffer.read(), 'sha256').hexdigest())";
        let body = "{\"events\":[\"\u{e9}\"]}";
        let mut python = Command::new("python3")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3, which the other tests need too");
        let mut input = python.stdin.take().expect("a pipe");
        input.write_all(body.as_bytes()).expect("a reader");
        drop(input);
        let output = python.wait_with_output().expect("its end");
        let expected = String::from_utf8(output.stdout).expect("digits");
        let signed = sign("sesame", 1_700_000_000, body.as_bytes());
        assert_eq!(signed, format!("t=1700000000,v1={}", expected.trim()));
    }

    #[test]
    fn every_part_counts() {
        let base = sign("sesame", 7, b"body");
        assert_ne!(base, sign("sesamf", 7, b"body"));
        assert_ne!(base[4..], sign("sesame", 8, b"body")[4..]);
        assert_ne!(base, sign("sesame", 7, b"bodz"));
    }
}
