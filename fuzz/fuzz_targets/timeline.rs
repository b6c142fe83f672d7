//! Timelines in Perfetto's format.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = gpustream_timeline_view::perfetto::read(data);
});
