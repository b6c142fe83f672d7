//! Entries of the cache of images compiled at run time.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gpustream::fuzzing::cache_entry(data));
