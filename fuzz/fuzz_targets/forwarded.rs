//! Fuzz target: any bytes as what a client sends before proxies append to it.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| myriad_wire::fuzzing::forwarded(bytes));
