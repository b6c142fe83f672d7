//! What a module for the CPU says about itself.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gpustream_cpu::fuzzing::module(data));
