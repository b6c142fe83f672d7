//! The description of itself in a module for the CPU.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gpustream_cpu::fuzzing::module(data));
