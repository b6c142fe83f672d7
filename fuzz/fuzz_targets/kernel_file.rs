//! What a kernel file's parser and its contracts make of any text.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &str| gpustream_build::fuzzing::kernel_file(data));
