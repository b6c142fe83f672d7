//! Runs every test on every backend that is there, and names those that are not.
//!
//! A test is a function of a device. It appears once per device, as `cpu::streams::overlap`; a backend without a
//! device appears as one ignored entry that says why. `GPUSTREAM_TEST_DEVICES` (a comma list such as `cuda:0,cpu`)
//! names the devices instead, and then one that is missing ends the run as failed.
//!
//! Tests that break a device, or that need the process's environment, run in a child: this executable again, told by
//! the environment which part to play. Tools that run kernels one after another, such as sanitizers, would hang tests
//! that wait for one kernel while another runs: `GPUSTREAM_TEST_SERIAL=1` skips those, by name. Nothing here refers to the source tree, so the executable runs anywhere.

use std::env;
use std::panic::{self, AssertUnwindSafe};
use std::process::exit;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{PoisonError, RwLock};
use std::thread;
use std::time::Duration;

use gpustream::{Device, DeviceOptions, Result};
use libtest_mimic::{Arguments, Failed, Trial};

use crate::child::{Child, Ended, PART, SKIPPED};
use crate::device::{WIDE, open};
use crate::gate::{SERIAL, gave_up};

/// The devices to test on.
pub(crate) const DEVICES: &str = "GPUSTREAM_TEST_DEVICES";
/// Seconds after which a test hangs.
const TIMEOUT: &str = "GPUSTREAM_TEST_TIMEOUT";

/// How a test runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// On every device, several at once where the device is the CPU.
    Plain,
    /// As `Plain`, and on the CPU with warps of 64 lanes too.
    Warps,
    /// As `Plain`, while no other test runs.
    Alone,
    /// In a process of its own.
    Isolated,
    /// As `Isolated`, on the CPU alone: it looks for what only that backend can see.
    CpuOnly,
    /// Not a test: something for a child to do.
    Part,
}

/// One test.
#[derive(Clone, Copy, Debug)]
pub struct Test {
    /// Its function's name.
    pub name: &'static str,
    /// How it runs.
    pub kind: Kind,
    /// What it does.
    pub run: fn(&Device) -> Result<()>,
}

/// The tests of one file.
#[derive(Clone, Copy, Debug)]
pub struct File {
    /// The path of its module, which ends in the file's name.
    pub module: &'static str,
    /// In the order in which they run.
    pub tests: &'static [Test],
}

impl File {
    fn name(&self) -> &'static str {
        self.module.rsplit("::").next().unwrap_or(self.module)
    }
}

/// Lists a file's tests by kind: `tests! { Plain: one, two; Isolated: three; }`.
#[macro_export]
macro_rules! tests {
    ($($kind:ident: $($name:ident),* $(,)?;)*) => {
        /// The tests of this file.
        pub(crate) const TESTS: $crate::File = $crate::File {
            module: module_path!(),
            tests: &[$($($crate::Test {
                name: stringify!($name),
                kind: $crate::Kind::$kind,
                run: $name,
            },)*)*],
        };
    };
}

/// Whether tests of this device may share it. On a GPU one test's waiting kernel would stop another's allocation.
fn shares(name: &str) -> bool {
    name.starts_with("cpu")
}

pub(crate) fn time_limit() -> Duration {
    let seconds = env::var(TIMEOUT).ok().and_then(|text| text.parse().ok()).unwrap_or(600);
    let hammer = env::var("GPUSTREAM_HAMMER_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    Duration::from_secs(seconds + 2 * hammer)
}

/// Ends the process if `work` takes too long: a hang is a failure, not a wait.
fn with_time_limit<T>(name: &str, work: impl FnOnce() -> T) -> T {
    let (done, watch) = mpsc::channel::<()>();
    let limit = time_limit();
    let name = name.to_owned();
    let watcher = thread::spawn(move || {
        if watch.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
            eprintln!("\n{name} has not ended after {} s: it hangs", limit.as_secs());
            exit(3);
        }
    });
    let result = work();
    drop(done);
    let _ = watcher.join();
    result
}

/// Runs a test on a device of its own, taking turns where tests must.
fn run(device: &str, name: &str, test: Test) -> Result<(), Failed> {
    static TURN: RwLock<()> = RwLock::new(());
    let alone = test.kind == Kind::Alone || !shares(device);
    let shared = (!alone).then(|| TURN.read().unwrap_or_else(PoisonError::into_inner));
    let exclusive = alone.then(|| TURN.write().unwrap_or_else(PoisonError::into_inner));
    let result = with_time_limit(name, || {
        if matches!(test.kind, Kind::Isolated | Kind::CpuOnly) {
            return Child::new(device, name).run().map_err(Failed::from).and_then(Ended::expect_success);
        }
        let device = open(device, DeviceOptions::default())?;
        let result = panic::catch_unwind(AssertUnwindSafe(|| (test.run)(&device)));
        if gave_up() {
            return Ok(true);
        }
        let result = result.unwrap_or_else(|panic| panic::resume_unwind(panic));
        result.map(|()| false).map_err(Failed::from)
    });
    if let Ok(true) = result {
        eprintln!("{name} is skipped: it needs kernels that run at once, and {SERIAL} says that they do not");
    }
    let result = result.map(drop);
    drop((shared, exclusive));
    result
}

/// Plays a part if the environment asks for one.
fn play(files: &[File]) {
    let Ok(part) = env::var(PART) else { return };
    let (device, name) = part.split_once(' ').unwrap_or((&part, ""));
    let found = files.iter().find_map(|file| {
        file.tests.iter().find(|test| name.ends_with(&format!("{}::{}", file.name(), test.name)))
    });
    let Some(test) = found else {
        eprintln!("there is no test {name}");
        exit(2);
    };
    let outcome = panic::catch_unwind(AssertUnwindSafe(|| {
        let device = open(device, DeviceOptions::default())?;
        (test.run)(&device)
    }));
    exit(match outcome {
        _ if gave_up() => SKIPPED,
        Ok(Ok(())) => 0,
        Ok(Err(error)) => {
            eprintln!("{error:?}");
            1
        }
        Err(_) => 101,
    });
}

/// What is tested: names of devices, and entries for what is not there.
fn devices() -> (Vec<String>, Vec<Trial>) {
    if let Some(list) = env::var(DEVICES).ok().filter(|list| !list.is_empty()) {
        let mut present = Vec::new();
        for name in list.split(',').map(str::trim) {
            match open(name, DeviceOptions::default()) {
                Ok(_) => present.push(name.to_owned()),
                // Not a failing entry, which a filter could hide.
                Err(error) => {
                    eprintln!("{DEVICES} asks for {name}: {error}");
                    exit(1);
                }
            }
        }
        return (present, Vec::new());
    }
    let mut present = Vec::new();
    let mut trials = Vec::new();
    for backend in gpustream::backends() {
        let name = backend.name();
        match Device::open(name) {
            Ok(_) => present.push(name.to_owned()),
            Err(error) => {
                // All names are padded to the longest, so the full reason goes elsewhere.
                eprintln!("{name} is skipped: {error}");
                let reason = error.message().split([';', ',']).next().unwrap_or_default();
                let entry = format!("{name}::skipped ({:?}: {reason})", error.kind());
                trials.push(Trial::test(entry, || Ok(())).with_ignored_flag(true));
            }
        }
    }
    if present.iter().any(|name| name == "cpu") {
        present.push(WIDE.to_owned());
    }
    (present, trials)
}

/// Runs the suite and ends the process.
pub fn main(files: &[File]) {
    play(files);
    let arguments = Arguments::from_args();
    let (devices, mut trials) = devices();
    for device in devices {
        // Ordinal 0 goes without saying.
        let prefix = device.strip_suffix(":0").unwrap_or(&device).to_owned();
        for file in files {
            for &test in file.tests {
                let wanted = match test.kind {
                    Kind::Part => false,
                    Kind::Warps => true,
                    Kind::CpuOnly => prefix == "cpu",
                    Kind::Plain | Kind::Alone | Kind::Isolated => device != WIDE,
                };
                if wanted {
                    let (name, device) =
                        (format!("{prefix}::{}::{}", file.name(), test.name), device.clone());
                    let full = name.clone();
                    trials.push(Trial::test(name, move || run(&device, &full, test)));
                }
            }
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}
