//! Fuzz target: any bytes as WebSocket frames, cut in many ways and compared with a naive reading.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| myriad_wire::fuzzing::ws_decoder(bytes));
