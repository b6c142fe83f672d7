//! Each driver call that the API makes fails once, on drivers that log. The failed operation must be undone, older
//! objects must still work, and nothing may be left behind.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

#[path = "../fakes.rs"]
mod fakes;
mod scenes;
mod stage;
mod undone;

use std::thread;
use std::time::{Duration, Instant};

use conformance::library_threads::still_drops;
use fake_cuda::codes;
use gpustream::{ErrorKind, PoolPolicy, Result};
use recorder::{Live, Recorder};

use crate::fakes::{FAKES, Fake};
use stage::Stage;

type Scene = fn(&mut Stage) -> Result<u64>;

const POLICIES: [PoolPolicy; 3] = [PoolPolicy::Library, PoolPolicy::Driver, PoolPolicy::Unpooled];

/// A failure: the driver's code, the kind of error that you get, and whether work is pending at that time.
type Failure = (u32, ErrorKind, bool);

/// If memory runs out, the library frees some and tries again. We test that with and without pending work. The last
/// code is unknown.
const FAILURES: [Failure; 3] = [
    (codes::OUT_OF_MEMORY, ErrorKind::OutOfMemory, false),
    (codes::OUT_OF_MEMORY, ErrorKind::OutOfMemory, true),
    (123_456, ErrorKind::Driver, true),
];

/// How long other threads may take to drop their handles.
const PATIENCE: Duration = Duration::from_secs(10);

/// Returns true if a call gives something back to the driver. If such a call fails, its object stays.
fn gives_back(call: &str) -> bool {
    ["Free", "Destroy", "Unload", "Unregister"].iter().any(|word| call.contains(word))
        && !call.contains("Async")
}

/// Returns how many more objects there are in `after` than in `before`.
fn left(before: Live, after: Live) -> usize {
    let counts = |live: Live| {
        let Live { streams, events, modules, graphs, graph_execs, buffers, pinned, .. } = live;
        [streams, events, modules, graphs, graph_execs, buffers, pinned]
    };
    counts(after).iter().zip(counts(before)).map(|(after, before)| after.saturating_sub(before)).sum()
}

fn play(fake: &'static Fake, policy: PoolPolicy, scene: Scene, (code, kind, put_off): Failure) {
    let recorder: Recorder = (fake.load)();
    if put_off {
        recorder.put_off();
    }
    let open = || Stage::open(&recorder, fake, policy).unwrap();
    // Threads of the library drop what belongs to you. They also drop a future's event, but only once they notice that
    // the future is gone.
    let wait_until_gone = |before, allowed, what: &str| {
        let start = Instant::now();
        // What is allowed to be left might also be something that is about to be dropped.
        while left(before, recorder.live()) > allowed || still_drops() {
            let after = recorder.live();
            assert!(start.elapsed() < PATIENCE, "{what}: before {before:?}, after {after:?}");
            thread::yield_now();
        }
    };
    let want = scene(&mut open()).unwrap();
    let (mut calls, mut failures) = (0, 0);
    for n in 0.. {
        assert!(n < 2000, "the scene has no end");
        let before = recorder.live();
        let mut stage = open();
        recorder.clear();
        recorder.fail_at(n, code);
        let result = scene(&mut stage);
        if !recorder.disarm() {
            assert_eq!(result.unwrap(), want);
            drop(stage);
            wait_until_gone(before, 0, "without a failure");
            break;
        }
        let call = recorder.calls().swap_remove(n);
        let what = format!("{}, {policy:?}, put off: {put_off}, code {code} for call {n}, {call}", fake.name);
        match result {
            Ok(got) => assert_eq!(got, want, "{what}"),
            Err(error) => {
                assert_eq!(error.kind(), kind, "{what}: {error}");
                failures += 1;
            }
        }
        let again = scene(&mut stage).unwrap_or_else(|error| panic!("after {what}: {error}"));
        assert_eq!(again, want, "after {what}");
        drop(stage);
        let allowed = usize::from(gives_back(call.name) || call.is_context_check());
        wait_until_gone(before, allowed, &what);
        assert_eq!(recorder.violations(), [""; 0], "{what}");
        calls = n + 1;
    }
    assert!(failures > 0 || calls == 0, "{}, {policy:?}: no failure became an error", fake.name);
}

fn play_all(scene: Scene) {
    for fake in &FAKES {
        for policy in POLICIES {
            for failure in FAILURES {
                play(fake, policy, scene, failure);
            }
        }
    }
}

macro_rules! scenes {
    ($($scene:ident),* $(,)?) => {$(
        #[test]
        fn $scene() {
            play_all(scenes::$scene);
        }
    )*};
}
scenes! {
    opening, streams_and_events, host_closures, device_memory, scarce_memory, arrays, host_memory, short_copies, long_copies,
    boxes, pipelines, pipelines_in_place, kernels, replayed_steps, conditions, conversions, captures, built_graphs, futures, peers, batches, parts_of_the_device,
    allocations_inside_recordings,
}
