//! Any text, as a kernel file with contracts.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &str| gpustream_build::fuzzing::kernel_file(data));
