//! If the library cannot wait for the end of its use, memory must stay with the process.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod fakes;

use fake_cuda::codes;
use gpustream::Device;

use crate::fakes::{Fake, play};

/// Neither the device's own memory may be freed, nor the other device's memory that it works on.
#[test]
fn memory_of_work_without_a_known_end_is_never_freed() {
    play(|&Fake { name, .. }, recorder| {
        let [first, second] = [0, 1].map(|ordinal| Device::open(&format!("{name}:{ordinal}")).unwrap());
        let (a, b) = (first.stream().unwrap(), second.stream().unwrap());
        let x = a.full(1 << 20, 0x0102_0304u32).unwrap();
        let (mut y, mut host) = (b.alloc::<u32>(1 << 20).unwrap(), second.pinned::<u32>(1000).unwrap());
        a.synchronize().unwrap();
        recorder.hold();
        b.copy(&x, &mut y).unwrap();
        b.copy(&y.slice(..1000).unwrap(), &mut host).unwrap();
        let held = recorder.live();
        drop((x, a, y, host, b));
        for call in ["sync device", "sync stream"] {
            recorder.fail_next(call, codes::OUT_OF_MEMORY);
        }
        drop(second);
        assert!(recorder.disarm(), "{name}: {:?}", recorder.words());
        first.trim();
        let live = recorder.live();
        let kept = (live.bytes, live.pinned) == (held.bytes, held.pinned);
        assert!(kept, "{name}: freed while it may be in use");
        recorder.release();
        drop(first);
        assert!(recorder.live().bytes < held.bytes, "{name}: the other device's memory was never freed");
    });
}
