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
use std::io::Read;
use std::panic::{self, AssertUnwindSafe};
use std::process::{Command, Stdio, exit};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use gpustream::hal::{self, Probe};
use gpustream::{Backend, Device, DeviceOptions, Error, ErrorKind, Flag, Result};
use gpustream_cpu::CpuOptions;
use libtest_mimic::{Arguments, Failed, Trial};

/// The devices to test on.
const DEVICES: &str = "GPUSTREAM_TEST_DEVICES";
/// The part a child plays: device and test.
const PART: &str = "GPUSTREAM_TEST_PART";
/// Seconds after which a test hangs.
const TIMEOUT: &str = "GPUSTREAM_TEST_TIMEOUT";
/// Set to 1 where a tool runs kernels one after another, whatever their streams.
const SERIAL: &str = "GPUSTREAM_TEST_SERIAL";
/// How long a gate stays closed under such a tool.
const PATIENCE: Duration = Duration::from_secs(5);
/// A child's exit code for a test that was skipped.
const SKIPPED: i32 = 4;
/// The CPU with warps of 64 lanes.
const WIDE: &str = "cpu64";

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

/// Lists a file's tests by kind: `tests! { Plain: one, two; Isolated: three; }`.
#[macro_export]
macro_rules! tests {
    ($($kind:ident: $($name:ident),* $(,)?;)*) => {
        /// The tests of this file.
        pub(crate) const TESTS: &[$crate::harness::Test] = &[$($($crate::harness::Test {
            name: stringify!($name),
            kind: $crate::harness::Kind::$kind,
            run: $name,
        },)*)*];
    };
}

/// A file's name and its tests.
pub type File = (&'static str, &'static [Test]);

/// The CPU as a device with warps of 64 lanes, which the driver's own list does not have.
struct Wide;

// SAFETY: the CPU backend makes a device of its own at each opening.
unsafe impl Backend for Wide {
    fn name(&self) -> &'static str {
        "cpu"
    }
    fn device_count(&self) -> Result<usize> {
        Ok(1)
    }
    fn open(&self, _: usize) -> Result<Arc<dyn hal::Device>> {
        // A value of its own each time, as the trait promises.
        gpustream_cpu::open_with(CpuOptions::from_env().warp_size(64))
    }
    fn probe(&self) -> Probe {
        Probe::default()
    }
}

/// Opens a device by the name it has in tests.
///
/// # Errors
/// Those of [`Device::open_with`].
pub fn open(name: &str, options: DeviceOptions) -> Result<Device> {
    if name == WIDE { Device::open_on(&Wide, 0, options) } else { Device::open_with(name, options) }
}

/// The device again, with nothing shared but the driver's context, and other options.
///
/// # Errors
/// Those of [`Device::open_with`].
pub fn open_again(device: &Device, options: DeviceOptions) -> Result<Device> {
    let info = device.info();
    if info.backend == "cpu" && info.warp_size == 64 {
        return open(WIDE, options);
    }
    open(&format!("{}:{}", info.backend, info.ordinal), options)
}

/// Whether tests of this device may share it. On a GPU one test's waiting kernel would stop another's allocation.
fn shares(name: &str) -> bool {
    name.starts_with("cpu")
}

fn is_serial() -> bool {
    env::var(SERIAL).is_ok_and(|value| value == "1")
}

/// Whether kernels of two streams run at once.
pub fn overlaps(device: &Device) -> bool {
    device.info().concurrent_kernels && !is_serial()
}

/// Whether work runs beside a closure that blocks. Where it does not, the test is skipped, by name.
pub fn runs_beside_closures() -> bool {
    GAVE_UP.fetch_or(is_serial(), Ordering::SeqCst);
    !is_serial()
}

/// Whether a stream that is blocked holds up itself alone.
pub fn streams_are_independent(device: &Device) -> bool {
    device.info().hardware_queues == 0
}

/// Whether a gate opened by itself since the last look: then the test waited for what cannot run beside another
/// kernel here, and its outcome says nothing.
fn gave_up() -> bool {
    GAVE_UP.swap(false, Ordering::SeqCst)
}

static GAVE_UP: AtomicBool = AtomicBool::new(false);

fn time_limit() -> Duration {
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

/// A child process that plays a part.
#[derive(Debug)]
pub struct Child(Command, String);

/// How a child ended.
#[derive(Debug)]
pub struct Ended {
    /// Its exit code; none where a signal ended it.
    pub code: Option<i32>,
    /// What it wrote to both streams.
    pub output: String,
}

impl Child {
    fn new(device: &str, name: &str) -> Self {
        let executable = env::current_exe().expect("the test's own executable");
        let mut command = Command::new(executable);
        command.env(PART, format!("{device} {name}")).env(DEVICES, device).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Self(command, name.to_owned())
    }

    /// A child that plays `part` (`file::name`) on the device.
    #[must_use]
    pub fn of(device: &Device, part: &str) -> Self {
        let info = device.info();
        let name = if info.backend == "cpu" && info.warp_size == 64 {
            WIDE.to_owned()
        } else {
            format!("{}:{}", info.backend, info.ordinal)
        };
        Self::new(&name, part)
    }

    /// Sets a variable of its environment.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.0.env(name, value);
        self
    }

    /// Runs it to its end, or kills it after half of a test's time.
    ///
    /// # Errors
    /// Where it cannot be started or hangs.
    pub fn run(mut self) -> Result<Ended> {
        let failed = |what: String| Error::new(ErrorKind::Driver, what);
        let mut child = self.0.spawn().map_err(|error| failed(format!("starting a child: {error}")))?;
        let output = Arc::new(Mutex::new(Vec::new()));
        let readers = [
            child.stdout.take().map(|stream| Box::new(stream) as Box<dyn Read + Send>),
            child.stderr.take().map(|stream| Box::new(stream) as Box<dyn Read + Send>),
        ];
        let readers = readers.into_iter().flatten().map(|mut stream| {
            let output = output.clone();
            thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(count @ 1..) = stream.read(&mut buffer) {
                    output.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&buffer[..count]);
                }
            })
        });
        let readers: Vec<_> = readers.collect();
        let deadline = Instant::now() + time_limit() / 2;
        let status = loop {
            match child.try_wait() {
                Ok(Some(status)) => break Some(status),
                Ok(None) if Instant::now() > deadline => break None,
                // Waiting for a process, not for something to have happened by then.
                Ok(None) => thread::sleep(Duration::from_millis(5)),
                Err(error) => return Err(failed(format!("waiting for a child: {error}"))),
            }
        };
        if status.is_none() {
            let _ = child.kill();
            let _ = child.wait();
        }
        for reader in readers {
            let _ = reader.join();
        }
        let output =
            String::from_utf8_lossy(&output.lock().unwrap_or_else(PoisonError::into_inner)).into_owned();
        match status {
            Some(status) => Ok(Ended { code: status.code(), output }),
            None => Err(failed(format!("{} hung and was killed; it had written:\n{output}", self.1))),
        }
    }
}

impl Ended {
    /// Whether it was skipped.
    fn expect_success(self) -> Result<bool, Failed> {
        match self.code {
            Some(0) => Ok(false),
            Some(SKIPPED) => Ok(true),
            code => Err(format!("the child ended with {code:?}:\n{}", self.output).into()),
        }
    }
}

/// Plays a part if the environment asks for one.
fn play(files: &[File]) {
    let Ok(part) = env::var(PART) else { return };
    let (device, name) = part.split_once(' ').unwrap_or((&part, ""));
    let found = files.iter().find_map(|(file, tests)| {
        tests.iter().find(|test| name.ends_with(&format!("{file}::{}", test.name)))
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
        for &(file, tests) in files {
            for &test in tests {
                let wanted = match test.kind {
                    Kind::Part => false,
                    Kind::Warps => true,
                    Kind::CpuOnly => prefix == "cpu",
                    Kind::Plain | Kind::Alone | Kind::Isolated => device != WIDE,
                };
                if wanted {
                    let (name, device) = (format!("{prefix}::{file}::{}", test.name), device.clone());
                    let full = name.clone();
                    trials.push(Trial::test(name, move || run(&device, &full, test)));
                }
            }
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}

/// A flag that kernels wait for, opened at the latest when it goes, so that a failed test does not hang.
#[derive(Debug)]
pub struct Gate(Flag);

impl Gate {
    /// A closed gate.
    ///
    /// # Errors
    /// Those of [`Device::flag`].
    pub fn new(device: &Device) -> Result<Self> {
        let flag = device.flag()?;
        if is_serial() {
            let flag = flag.clone();
            thread::spawn(move || {
                thread::sleep(PATIENCE);
                if flag.get() == 0 {
                    GAVE_UP.store(true, Ordering::SeqCst);
                    flag.set(1);
                }
            });
        }
        Ok(Self(flag))
    }

    /// The flag, for kernels.
    pub fn flag(&self) -> &Flag {
        &self.0
    }

    /// Lets the kernels pass.
    pub fn open(&self) {
        self.0.set(1);
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.open();
    }
}

/// Spins until `condition` holds. The test's time limit ends it where it never does.
///
/// # Errors
/// Those of the condition.
pub fn until(mut condition: impl FnMut() -> Result<bool>) -> Result<()> {
    while !condition()? {
        thread::yield_now();
    }
    Ok(())
}

/// Waits for the device, which is refused while another test of the same context captures.
///
/// # Errors
/// Those of [`Device::synchronize`].
pub fn synchronize(device: &Device) -> Result<()> {
    loop {
        match device.synchronize() {
            Err(error) if error.kind() == ErrorKind::Captured => thread::yield_now(),
            other => return other,
        }
    }
}

/// Asserts an error's kind, and that its message says each of `texts`.
///
/// # Panics
/// Where it is another one, or none.
#[track_caller]
pub fn refused<T>(result: Result<T>, kind: ErrorKind, texts: &[&str]) {
    let Err(error) = result else { panic!("this should have been refused as {kind:?}") };
    assert_eq!(error.kind(), kind, "{error}");
    let message = error.to_string();
    for text in texts {
        assert!(message.contains(text), "`{message}` does not say `{text}`");
    }
}
