//! Fuzz target: any bytes as what a peer sends behind its handshake of TLS 1.3.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| myriad_tls::fuzzing::records(bytes));
