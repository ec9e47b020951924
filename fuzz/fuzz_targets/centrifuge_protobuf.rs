//! Fuzz target: any bytes as a frame of the Centrifuge protocol in protobuf.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| myriad_wire::fuzzing::centrifuge_protobuf(bytes));
