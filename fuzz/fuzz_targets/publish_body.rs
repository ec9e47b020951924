//! Fuzz target: any bytes as the body of `POST /api/publish`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| myriad_server::fuzzing::publish_body(bytes));
