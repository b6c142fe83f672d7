//! The notes of AMD code objects.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gpustream_build::fuzzing::code_object(data));
