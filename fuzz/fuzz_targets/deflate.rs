//! Fuzz target: any bytes as a compressed message, compared with a plain reading of RFC 1951, and as one to compress.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| myriad_wire::fuzzing::deflate(bytes));
