//! Fuzz target: any bytes as a base, and as a delta to it or the next publication.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| myriad_wire::fuzzing::fossil_delta(bytes));
