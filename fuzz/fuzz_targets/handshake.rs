//! Fuzz target: any bytes as either side of a WebSocket handshake.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| myriad_wire::fuzzing::handshake(bytes));
