//! Fuzz target: any bytes as the beginning of a connection from a proxy.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| myriad_wire::fuzzing::proxy_header(bytes));
