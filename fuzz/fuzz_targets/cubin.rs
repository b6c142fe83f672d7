//! The parameter tables of cubins.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gpustream_build::fuzzing::cubin(data));
