//! Fuzz target: any bytes as the requests of one connection.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| myriad_wire::fuzzing::http_requests(bytes));
