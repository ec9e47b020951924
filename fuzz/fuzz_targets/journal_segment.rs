//! Fuzz target: any bytes as a segment of a history on the disk.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| myriad_journal::fuzzing::segment(bytes));
