//! Runs every test on every backend of this machine. A backend that the machine lacks gets one ignored entry.
//!
//! A test is a function that takes a device. It appears once for each device, for example as
//! `cpu::streams::kernels_overlap`. If a backend has no device, its ignored entry says why. You can name the devices in
//! `GPUSTREAM_TEST_DEVICES`, a comma list such as `cuda:0,cpu`. Then the run fails if one of them is missing.
//!
//! Some tests break a device or change the process's environment. They run in a child, which is this executable again
//! with the name of its part in the environment. So the suite needs no source tree, and you can copy the executable to
//! any machine.
//!
//! Some tools, such as sanitizers, run one kernel at a time. There a test would hang if it waits for one kernel while
//! another one runs. Set `GPUSTREAM_TEST_SERIAL=1` for such tools: it skips these tests and names them.

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

/// The variable that lists the devices to test.
pub(crate) const DEVICES: &str = "GPUSTREAM_TEST_DEVICES";
/// The variable that says after how many seconds a test counts as hanging.
const TIMEOUT: &str = "GPUSTREAM_TEST_TIMEOUT";

/// How a test runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// On every device. On the CPU, several such tests may run at once.
    Plain,
    /// Like `Plain`, and also on the CPU with warps of 64 lanes.
    Warps,
    /// Like `Plain`, but no other test runs meanwhile.
    Alone,
    /// In its own process.
    Isolated,
    /// In its own process and only on the CPU, because other backends cannot detect these faults.
    CpuOnly,
    /// In its own process, once for all devices of a backend. The CPU pretends to have three.
    Several,
    /// Not a test. A child runs it if a test asks for it.
    Part,
}

/// One test.
#[derive(Clone, Copy, Debug)]
pub struct Test {
    /// What the test's function is called.
    pub name: &'static str,
    /// How the test runs.
    pub kind: Kind,
    /// What the device must have. If it lacks anything, the test passes without running.
    pub needs: &'static [fn(&Device) -> bool],
    /// The test's function.
    pub body: fn(&Device) -> Result<()>,
}

impl Test {
    /// Opens the device, and runs the test if the device has what it needs.
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
    /// The path to the module. It ends in the file's name.
    pub module: &'static str,
    /// The file's tests in running order, grouped as in its [`tests!`](crate::tests).
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

/// The files of the test program. The linker collects them in any order, so `main` sorts them.
#[distributed_slice]
pub static FILES: [File];

/// Lists a file's tests by how they run and by what their devices must have: `tests! { Plain: one, two; Plain if
/// overlaps, has_textures: three; }`.
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

/// Returns true if several tests may use this device at once. They may not on a GPU, because one test's waiting kernel
/// would block another test's allocation.
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

/// Does `work`. If it takes too long, we end the process, because a hang is a failure.
fn with_time_limit<T>(name: &str, work: impl FnOnce() -> T) -> T {
    let (done, watch) = mpsc::channel::<()>();
    let limit = time_limit();
    let name = name.to_owned();
    let watcher = thread::spawn(move || {
        if watch.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
            eprintln!("\n{name} has not ended after {} s: it hangs", limit.as_secs());
            // We skip the exit handlers, because the driver's may hang too.
            // SAFETY: nothing of this process runs after the call.
            unsafe { _exit(3) }
        }
    });
    let result = work();
    drop(done);
    let _ = watcher.join();
    result
}

/// Runs a test with its own handle of the device. If tests cannot share the device, they take turns.
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

/// Returns the names of the devices to test, and an ignored entry for each backend that has none.
fn devices() -> (Vec<String>, Vec<Trial>) {
    if let Some(list) = env::var(DEVICES).ok().filter(|list| !list.is_empty()) {
        let mut present = Vec::new();
        for name in list.split(',').map(str::trim) {
            match open(name, DeviceOptions::default()) {
                Ok(_) => present.push(name.to_owned()),
                // We end the process instead of adding an entry that fails, because a filter could hide the entry.
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
                // libtest pads all names to the longest one, so we put only the beginning of the reason into the name.
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
        // A backend's first device needs no number.
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
