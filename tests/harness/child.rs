//! Child processes of tests. A child is this executable again, with the name of the part it plays in its environment.

use std::io::Read;
use std::process::{self, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use std::{env, fs};

use gpustream::{Device, Error, ErrorKind, Result};
use libtest_mimic::Failed;

use crate::device::name_of;
use crate::suite::{DEVICES, time_limit};

/// The variable that tells a child its device and its test.
pub(crate) const PART: &str = "GPUSTREAM_TEST_PART";
/// A child exits with this code if its test was skipped.
pub(crate) const SKIPPED: i32 = 4;

/// If a child uses no processor time for so long, we say that it hangs.
const QUIET: Duration = Duration::from_secs(45);
/// If a child works for longer than this, we print its name, so that you see what the suite is waiting for.
const SLOW: Duration = Duration::from_secs(50);
/// How long we wait for a killed child to end. It may never end, because the system cannot kill a process that is stuck
/// inside the kernel.
const GONE: Duration = Duration::from_secs(10);
/// How often we look at the child.
const PERIOD: Duration = Duration::from_millis(5);

/// A child process that plays a part for a test.
#[derive(Debug)]
pub struct Child {
    command: Command,
    name: String,
    quiet: Duration,
}

/// What a child leaves when it ends.
#[derive(Debug)]
pub struct Ended {
    /// The exit code, or `None` if a signal ended the child.
    pub code: Option<i32>,
    /// What the child wrote to standard output and standard error.
    pub output: String,
}

impl Child {
    pub(crate) fn new(device: &str, name: &str) -> Self {
        let executable = env::current_exe().expect("the test's own executable");
        let mut command = Command::new(executable);
        command.env(PART, format!("{device} {name}")).env(DEVICES, device);
        Self::of_command(name, command)
    }

    /// Makes a child from a command. `name` appears in messages.
    #[must_use]
    pub fn of_command(name: &str, mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self { command, name: name.to_owned(), quiet: QUIET }
    }

    /// Makes a child that plays `part`, which is `file::name` of a test, on the device.
    #[must_use]
    pub fn of(device: &Device, part: &str) -> Self {
        Self::new(&name_of(device), part)
    }

    /// Sets a variable in the child's environment.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// Runs the child until it ends.
    ///
    /// Kills the child if it uses no processor time for 45 s, or if it takes more than half the time limit for a test.
    /// The error then says what each of its threads was doing. A slow child is also named on standard error while it
    /// runs.
    ///
    /// # Errors
    /// If the child cannot be started, or hangs.
    pub fn run(mut self) -> Result<Ended> {
        let failed = |what: String| Error::new(ErrorKind::Driver, what);
        let mut child = self.command.spawn().map_err(|error| failed(format!("starting a child: {error}")))?;
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
        let written = || {
            let output = output.lock().unwrap_or_else(PoisonError::into_inner);
            String::from_utf8_lossy(&output).into_owned()
        };
        let wait = |error| failed(format!("waiting for a child: {error}"));
        let mut watch = Watch::new(child.id(), self.quiet);
        let status = loop {
            if let Some(status) = child.try_wait().map_err(wait)? {
                break status;
            }
            if let Some(hung) = watch.look(&self.name, written) {
                let threads = threads_of(child.id());
                let killed = kill(&mut child);
                // We don't join the readers: they may never end, because another process may hold the pipes open or the
                // child may survive the kill.
                return Err(failed(format!(
                    "{} {hung}, and {killed}; its threads:\n{threads}it had written:\n{}",
                    self.name,
                    written()
                )));
            }
            // This only sets how often we ask whether the process has ended. Nothing depends on the time.
            thread::sleep(PERIOD);
        };
        for reader in readers {
            let _ = reader.join();
        }
        Ok(Ended { code: status.code(), output: written() })
    }

    /// Runs the child until it ends, asserts that its part succeeds, and returns what it wrote.
    ///
    /// # Errors
    /// If the child cannot be started, or hangs.
    ///
    /// # Panics
    /// If the part fails.
    #[track_caller]
    pub fn succeeds(self) -> Result<String> {
        let Ended { code, output } = self.run()?;
        assert_eq!(code, Some(0), "{output}");
        Ok(output)
    }
}

/// Decides whether a child hangs.
struct Watch {
    process: u32,
    quiet: Duration,
    begun: Instant,
    /// The child's processor time, and the moment when we last saw it change.
    used: Option<u64>,
    changed: Instant,
    looked: Instant,
    is_named: bool,
}

impl Watch {
    fn new(process: u32, quiet: Duration) -> Self {
        let now = Instant::now();
        Self { process, quiet, begun: now, used: None, changed: now, looked: now, is_named: false }
    }

    /// Returns the reason if the child counts as hanging.
    fn look(&mut self, name: &str, written: impl Fn() -> String) -> Option<String> {
        let now = Instant::now();
        if now - self.looked < 50 * PERIOD {
            return None;
        }
        self.looked = now;
        let used = processor_time(self.process);
        if used.is_none() || used != self.used {
            (self.used, self.changed) = (used, now);
        }
        let age = now - self.begun;
        if now - self.changed > self.quiet {
            return Some(format!("has done nothing for {} s", self.quiet.as_secs()));
        }
        if age > time_limit() / 2 {
            return Some(format!("has not ended after {} s", age.as_secs()));
        }
        if age > SLOW && !self.is_named {
            self.is_named = true;
            eprintln!(
                "the child {name} has been at work for {} s; so far it wrote:\n{}",
                SLOW.as_secs(),
                written()
            );
        }
        None
    }
}

/// Returns the processor time that a process has used, in ticks, if the system reports it.
fn processor_time(process: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // We split after the last parenthesis, because the process's name is in parentheses and may contain anything.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
}

/// Returns a line for each thread of a process: its name, and where in the kernel it waits.
fn threads_of(process: u32) -> String {
    let Ok(tasks) = fs::read_dir(format!("/proc/{process}/task")) else { return String::new() };
    let lines = tasks.flatten().map(|task| {
        let read = |file| fs::read_to_string(task.path().join(file)).unwrap_or_default();
        let state = read("status").lines().find_map(|line| line.strip_prefix("State:\t").map(str::to_owned));
        let [name, place, call] = ["comm", "wchan", "syscall"].map(read);
        format!("  {}: {}, in {place}, call {}\n", name.trim(), state.unwrap_or_default(), call.trim())
    });
    lines.collect()
}

/// Kills a child, and says what became of it.
fn kill(child: &mut process::Child) -> &'static str {
    let _ = child.kill();
    let killed = Instant::now();
    while killed.elapsed() < GONE {
        if !matches!(child.try_wait(), Ok(None)) {
            return "was killed";
        }
        thread::sleep(PERIOD);
    }
    "cannot be killed"
}

impl Ended {
    /// Returns true if the child's test was skipped. Any code other than success is a failure.
    pub(crate) fn expect_success(self) -> Result<bool, Failed> {
        match self.code {
            Some(0) => Ok(false),
            Some(SKIPPED) => Ok(true),
            code => Err(format!("the child ended with {code:?}:\n{}", self.output).into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn child_that_does_nothing_is_named() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo before; echo beside >&2; exec sleep 1000"]);
        let child = Child { quiet: Duration::from_secs(1), ..Child::of_command("sleeper", command) };
        let told = child.run().unwrap_err().to_string();
        for part in ["sleeper has done nothing for 1 s, and was killed", "sleep: S", "before\n", "beside\n"] {
            assert!(told.contains(part), "{part}: {told}");
        }
    }
}
