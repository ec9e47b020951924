//! Fuzz target: any bytes as a request or response head, and as a query string.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| myriad_wire::fuzzing::http_head(bytes));
