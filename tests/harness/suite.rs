//! The suite: every test on every backend that this machine has, and one ignored entry for each backend it lacks.
//!
//! A test is a function of a device. It appears once per device, as `cpu::streams::kernels_overlap`; a backend without
//! a device appears as one ignored entry that says why. `GPUSTREAM_TEST_DEVICES` (a comma list such as `cuda:0,cpu`)
//! names the devices instead; a missing one of these ends the run as failed.
//!
//! Tests that break a device, or that need the process's environment, run in a child: this executable again, with the
//! name of its part in the environment. Under tools that run kernels one after another, such as sanitizers, tests would
//! hang if they wait for one kernel while another runs: `GPUSTREAM_TEST_SERIAL=1` skips these and names them. The
//! executable does not need the source tree, so it runs anywhere.

use std::env;
use std::panic::{self, AssertUnwindSafe};
use std::process::exit;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{PoisonError, RwLock};
use std::thread;
use std::time::Duration;

use gpustream::{Device, DeviceOptions, Result};
use libtest_mimic::{Arguments, Failed, Trial};
use linkme::distributed_slice;

use crate::child::{Child, Ended, PART, SKIPPED};
use crate::device::{WIDE, open};
use crate::gate::{SERIAL, gave_up};

/// The variable that lists the devices to test on.
pub(crate) const DEVICES: &str = "GPUSTREAM_TEST_DEVICES";
/// The variable with the seconds after which a test counts as hanging.
const TIMEOUT: &str = "GPUSTREAM_TEST_TIMEOUT";

/// The way a test runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A test on every device; on the CPU, several run at once.
    Plain,
    /// A plain test that also runs on the CPU with warps of 64 lanes.
    Warps,
    /// A plain test during which no other test runs.
    Alone,
    /// A test in a process of its own.
    Isolated,
    /// An isolated test on the CPU alone, for faults that only that backend detects.
    CpuOnly,
    /// An isolated test over all devices of a backend, of which the CPU then has three.
    Several,
    /// A part for a child to play; it is not a test.
    Part,
}

/// One test.
#[derive(Clone, Copy, Debug)]
pub struct Test {
    /// The name of the test's function.
    pub name: &'static str,
    /// The way the test runs.
    pub kind: Kind,
    /// The conditions for the test; on a device that does not fulfil all of them, the test does nothing.
    pub needs: &'static [fn(&Device) -> bool],
    /// The test's function.
    pub body: fn(&Device) -> Result<()>,
}

impl Test {
    /// Opens the device, and runs the test there if the device has what the test needs.
    fn run(&self, device: &str) -> thread::Result<Result<()>> {
        panic::catch_unwind(AssertUnwindSafe(|| {
            let device = open(device, DeviceOptions::default())?;
            if self.needs.iter().all(|has| has(&device)) { (self.body)(&device) } else { Ok(()) }
        }))
    }
}

/// The tests of one file.
#[derive(Clone, Copy, Debug)]
pub struct File {
    /// The path of its module, which ends in the file's name.
    pub module: &'static str,
    /// The file's tests in the order in which they run, as the groups of its [`tests!`](crate::tests).
    pub groups: &'static [&'static [Test]],
}

impl File {
    fn name(&self) -> &'static str {
        self.module.rsplit("::").next().unwrap_or(self.module)
    }

    fn tests(&self) -> impl Iterator<Item = &'static Test> {
        self.groups.iter().copied().flatten()
    }
}

/// The test program's files. The linker gathers them, in no order.
#[distributed_slice]
pub static FILES: [File];

/// Lists a file's tests by kind, and by what their devices must have:
/// `tests! { Plain: one, two; Plain if overlaps, has_textures: three; }`.
#[macro_export]
macro_rules! tests {
    ($($kind:ident $(if $($needs:path),+)?: $($name:ident),* $(,)?;)*) => {
        #[$crate::linkme::distributed_slice($crate::FILES)]
        #[linkme(crate = $crate::linkme)]
        static TESTS: $crate::File = $crate::File {
            module: module_path!(),
            groups: &[$({
                const NEEDS: &[fn(&gpustream::Device) -> bool] = &[$($($needs),+)?];
                &[$($crate::Test {
                    name: stringify!($name),
                    kind: $crate::Kind::$kind,
                    needs: NEEDS,
                    body: $name,
                }),*]
            }),*],
        };
    };
}

/// Returns whether tests may share this device. On a GPU one test's waiting kernel would block another's allocation.
fn shares(name: &str) -> bool {
    name.starts_with("cpu")
}

pub(crate) fn time_limit() -> Duration {
    let seconds = env::var(TIMEOUT).ok().and_then(|text| text.parse().ok()).unwrap_or(600);
    let hammer = env::var("GPUSTREAM_HAMMER_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    Duration::from_secs(seconds + 2 * hammer)
}

unsafe extern "C" {
    fn _exit(code: i32) -> !;
}

/// Does `work`, and ends the process if that takes too long: a hang is a failure.
fn with_time_limit<T>(name: &str, work: impl FnOnce() -> T) -> T {
    let (done, watch) = mpsc::channel::<()>();
    let limit = time_limit();
    let name = name.to_owned();
    let watcher = thread::spawn(move || {
        if watch.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
            eprintln!("\n{name} has not ended after {} s: it hangs", limit.as_secs());
            // No exit handler runs: a driver's may hang, too.
            // SAFETY: nothing of this process runs after the call.
            unsafe { _exit(3) }
        }
    });
    let result = work();
    drop(done);
    let _ = watcher.join();
    result
}

/// Runs a test on a handle of its own, and takes turns where tests cannot share the device.
fn run(device: &str, name: &str, test: Test) -> Result<(), Failed> {
    static TURN: RwLock<()> = RwLock::new(());
    let alone = test.kind == Kind::Alone || !shares(device);
    let shared = (!alone).then(|| TURN.read().unwrap_or_else(PoisonError::into_inner));
    let exclusive = alone.then(|| TURN.write().unwrap_or_else(PoisonError::into_inner));
    let result = with_time_limit(name, || {
        if matches!(test.kind, Kind::Isolated | Kind::CpuOnly | Kind::Several) {
            let child = Child::new(device, name);
            let child =
                if test.kind == Kind::Several { child.env("GPUSTREAM_CPU_DEVICES", "3") } else { child };
            return child.run().map_err(Failed::from).and_then(Ended::expect_success);
        }
        let result = test.run(device);
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
        file.tests().find(|test| name.ends_with(&format!("{}::{}", file.name(), test.name)))
    });
    let Some(test) = found else {
        eprintln!("there is no test {name}");
        exit(2);
    };
    exit(match test.run(device) {
        _ if gave_up() => SKIPPED,
        Ok(Ok(())) => 0,
        Ok(Err(error)) => {
            eprintln!("{error:?}");
            1
        }
        Err(_) => 101,
    });
}

/// Returns the names of the devices to test, and ignored entries for backends without one.
fn devices() -> (Vec<String>, Vec<Trial>) {
    if let Some(list) = env::var(DEVICES).ok().filter(|list| !list.is_empty()) {
        let mut present = Vec::new();
        for name in list.split(',').map(str::trim) {
            match open(name, DeviceOptions::default()) {
                Ok(_) => present.push(name.to_owned()),
                // The process ends, because a filter could hide a failing entry.
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
        let name = backend.name().as_str();
        match Device::open(name) {
            Ok(_) => present.push(name.to_owned()),
            Err(error) => {
                // libtest pads all names to the longest, so only the first part of the reason is in the name.
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
pub fn main() {
    let mut files = FILES.to_vec();
    files.sort_by_key(File::name);
    play(&files);
    let arguments = Arguments::from_args();
    let (devices, mut trials) = devices();
    for device in devices {
        // The name of a backend's first device has no ordinal.
        let prefix = device.strip_suffix(":0").unwrap_or(&device).to_owned();
        for file in &files {
            for &test in file.tests() {
                let wanted = match test.kind {
                    Kind::Part => false,
                    Kind::Warps => true,
                    Kind::CpuOnly => prefix == "cpu",
                    Kind::Plain | Kind::Alone | Kind::Isolated | Kind::Several => device != WIDE,
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
