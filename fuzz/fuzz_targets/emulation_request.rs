//! Fuzz target: any bytes as the body of a request with commands.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| myriad_wire::fuzzing::emulation_request(bytes));
