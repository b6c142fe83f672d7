//! What a subscriber of the crate `tracing` hears from the library, on drivers that log.
//!
//! The subscriber uses the library whenever it hears an event, because your code may do so. If the library held one of
//! its locks while it reports, that would hang.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod fakes;

use std::cell::Cell;
use std::fmt::{Debug, Write as _};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use fake_cuda::codes;
use fake_hip::Profile;
use gpustream::{Device, Stream};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::fakes::in_child;

/// An event from the library.
#[derive(Debug)]
struct Heard {
    target: &'static str,
    level: Level,
    /// The fields, each as `name=value` and a space.
    text: String,
}

/// Uses the library for each event, and then sends on what it heard.
struct Listener {
    heard: Mutex<Sender<Heard>>,
    most: Level,
}

/// The stream that the listener uses.
static STREAM: OnceLock<Stream> = OnceLock::new();

thread_local!(static IS_USING: Cell<bool> = const { Cell::new(false) });

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.most
    }
    fn max_level_hint(&self) -> Option<tracing::level_filters::LevelFilter> {
        Some(self.most.into())
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        // The use makes events too, and must not listen to those.
        if !IS_USING.replace(true) {
            use_the_library();
            IS_USING.set(false);
        }
        let mut text = Fields(String::new());
        event.record(&mut text);
        let (target, level) = (event.metadata().target(), *event.metadata().level());
        let _ = self.heard.lock().unwrap().send(Heard { target, level, text: text.0 });
    }
}

/// Takes the locks of the device, the pools, the stream, the modules and the tables that all devices share. A call may
/// fail, because the device may be lost.
fn use_the_library() {
    drop(Device::open("cuda:1"));
    if let Some(stream) = STREAM.get() {
        let memory = (stream.zeros::<u8>(3 << 20), stream.zeros::<u8>(10));
        drop((memory, stream.synchronize(), stream.device().stream()));
        drop((stream.device().memory_snapshot(), stream.device().trim()));
        drop(fakes::load_module(&fakes::FAKES[0], stream.device()));
    }
}

struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{field}={value:?} ").unwrap();
    }
}

/// Sets the subscriber for this process.
fn listen(most: Level) -> Receiver<Heard> {
    let (sender, heard) = mpsc::channel();
    tracing::subscriber::set_global_default(Listener { heard: Mutex::new(sender), most }).unwrap();
    heard
}

/// Waits for an event that has this target, this level and these words.
#[track_caller]
fn hear(heard: &Receiver<Heard>, target: &str, level: Level, words: &[&str]) {
    loop {
        let event = heard.recv_timeout(Duration::from_mins(2)).expect("an event");
        if event.target == target && words.iter().all(|word| event.text.contains(word)) {
            assert_eq!(event.level, level, "{event:?}");
            return;
        }
    }
}

/// Ends a test that hangs because a lock is held.
fn watched(scene: impl FnOnce()) {
    thread::spawn(|| {
        thread::sleep(Duration::from_mins(4));
        eprintln!("it hangs");
        std::process::abort();
    });
    scene();
}

const NAMELESS: (&str, &str) = ("GPUSTREAM_DEVICE", "");

#[test]
fn choice_says_the_device_the_library_and_why() {
    in_child(&[NAMELESS], || {
        watched(|| {
            let heard = listen(Level::DEBUG);
            let none = fake_cuda::Options { init: codes::NO_DEVICE, ..fake_cuda::Options::default() };
            drop(fake_cuda::load_with(none));
            let _driver = fake_hip::load(Profile::Rocm6);
            let _device = Device::best().unwrap();
            let passed = ["backend=\"cuda\"", "finds no NVIDIA GPU"];
            hear(&heard, "gpustream::device", Level::INFO, &passed);
            let opened = [
                "device=\"hip:0\"",
                "gfx90a",
                "uuid=\"GPU-AAAAAAAAAAAAAAAA\"",
                "pci=\"0000:3b:00.0\"",
                "gpustream-shim",
                "library_found_by=\"libamdhip64.so.7\"",
                "first backend with a driver and a device",
            ];
            hear(&heard, "gpustream::device", Level::INFO, &opened);
            let _named = Device::open("hip:1").unwrap();
            hear(&heard, "gpustream::device", Level::INFO, &["device=\"hip:1\"", "asks for hip:1"]);
        });
    });
}

#[test]
fn pool_growth_faults_and_lint_are_reported_without_a_lock() {
    in_child(&[NAMELESS, ("GPUSTREAM_LINT", "1")], || {
        watched(|| {
            let heard = listen(Level::DEBUG);
            let recorder = fake_cuda::load();
            let device = Device::open("cuda:0").unwrap();
            let stream = device.stream().unwrap();
            STREAM.set(device.stream().unwrap()).ok().unwrap();
            let large = stream.zeros::<u8>(40 << 20).unwrap();
            let grew = ["device=\"cuda:0\"", "memory=\"device memory\"", "bytes=41943040", "events.rs"];
            hear(&heard, "gpustream::pool", Level::DEBUG, &grew);
            device.synchronize().unwrap();
            hear(&heard, "gpustream::lint", Level::WARN, &["events.rs", "waiting for the whole device"]);
            recorder.lose_device(0, codes::ILLEGAL_ADDRESS);
            let error = stream.synchronize().unwrap_err();
            assert!(
                !error.message().starts_with("the device failed earlier"),
                "to tell is no report: {error}"
            );
            let lost = ["device=\"cuda:0\"", "illegal memory access", "compute-sanitizer"];
            hear(&heard, "gpustream::fault", Level::ERROR, &lost);
            drop((large, stream.synchronize()));
            // A device's loss is reported only once, so the next event we hear is about another device.
            let _other = Device::open("cuda:1").unwrap();
            let is_fault = |event: &Heard| event.target == "gpustream::fault";
            loop {
                let event = heard.recv_timeout(Duration::from_mins(2)).expect("an event");
                assert!(!is_fault(&event), "{event:?}");
                if event.text.contains("asks for cuda:1") {
                    break;
                }
            }
        });
    });
}

#[test]
fn compilations_report_their_time_and_cache_misses() {
    let cache = tempfile::tempdir().unwrap();
    let cache = cache.path().to_str().unwrap();
    in_child(&[NAMELESS, ("GPUSTREAM_CACHE_DIR", cache)], || {
        watched(|| {
            let heard = listen(Level::DEBUG);
            let _driver = fake_hip::load(Profile::Rocm6);
            let device = Device::open("hip").unwrap();
            let text = "extern \"C\" __global__ void scale(float* x) {}\n";
            let load = || device.compile(text).name("scale.cu").build().unwrap();
            drop(load());
            let missed = ["source=\"scale.cu\"", "arch=\"gfx90a\"", "folder=/"];
            hear(&heard, "gpustream::compile", Level::DEBUG, &missed);
            hear(&heard, "gpustream::compile", Level::INFO, &["HIPRTC 9.0", "took="]);
            drop(load());
            drop(device);
            assert!(heard.try_iter().all(|event| event.target != "gpustream::compile"), "found in the cache");
        });
    });
}

#[test]
fn a_threads_subscriber_hears_its_faults_and_only_its_levels() {
    in_child(&[NAMELESS], || {
        watched(|| {
            let recorder = fake_cuda::load();
            let (sender, heard) = mpsc::channel();
            let listener = Listener { heard: Mutex::new(sender), most: Level::ERROR };
            tracing::subscriber::with_default(listener, || {
                let device = Device::open("cuda:0").unwrap();
                let stream = device.stream().unwrap();
                drop(stream.zeros::<u8>(40 << 20).unwrap());
                recorder.lose_device(0, codes::ILLEGAL_ADDRESS);
                stream.synchronize().unwrap_err();
            });
            let event = heard.recv_timeout(Duration::from_mins(2)).expect("an event");
            assert_eq!((event.target, event.level), ("gpustream::fault", Level::ERROR));
        });
    });
}

/// A program often ends right after a fault, so it must be reported before that.
#[test]
fn fault_is_reported_before_the_process_ends() {
    struct Slow;
    impl Subscriber for Slow {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            metadata.target() == "gpustream::fault"
        }
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
        fn event(&self, _: &Event<'_>) {
            // If the process did not wait, it would end during this time.
            thread::sleep(Duration::from_millis(300));
            eprintln!("the fault was told");
        }
    }
    let said = in_child(&[NAMELESS], || {
        tracing::subscriber::set_global_default(Slow).unwrap();
        let recorder = fake_cuda::load();
        let device = Device::open("cuda:0").unwrap();
        let stream = device.stream().unwrap();
        recorder.lose_device(0, codes::ILLEGAL_ADDRESS);
        stream.synchronize().unwrap_err();
    });
    assert!(said.is_none_or(|said| said.contains("the fault was told")));
}
