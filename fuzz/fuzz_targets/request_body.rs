//! Fuzz target: any bytes as the body of a request, in chunks or with a length.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| myriad_wire::fuzzing::request_body(bytes));
