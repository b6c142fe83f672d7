//! Child processes that play a part for a test: this executable again, with the part's name in the environment.

use std::env;
use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use gpustream::{Device, Error, ErrorKind, Result};
use libtest_mimic::Failed;

use crate::device::name_of;
use crate::suite::{DEVICES, time_limit};

/// The variable that names a child's part: device and test.
pub(crate) const PART: &str = "GPUSTREAM_TEST_PART";
/// A child's exit code for a test that was skipped.
pub(crate) const SKIPPED: i32 = 4;

/// A child process that plays a part.
#[derive(Debug)]
pub struct Child(Command, String);

/// The exit code and the output of a child that has ended.
#[derive(Debug)]
pub struct Ended {
    /// The exit code; `None` where a signal ended the child.
    pub code: Option<i32>,
    /// The text that the child wrote to standard output and standard error.
    pub output: String,
}

impl Child {
    pub(crate) fn new(device: &str, name: &str) -> Self {
        let executable = env::current_exe().expect("the test's own executable");
        let mut command = Command::new(executable);
        command.env(PART, format!("{device} {name}")).env(DEVICES, device).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Self(command, name.to_owned())
    }

    /// Makes a child that plays `part` (`file::name`) on the device.
    #[must_use]
    pub fn of(device: &Device, part: &str) -> Self {
        Self::new(&name_of(device), part)
    }

    /// Sets a variable of the child's environment.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.0.env(name, value);
        self
    }

    /// Runs the child to its end, or kills it after half of a test's time limit.
    ///
    /// # Errors
    /// The child cannot be started, or hangs.
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
                // This waits for the process's end, which is asked about again; it assumes nothing about time.
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

    /// Runs the child to its end, asserts that the part succeeds, and returns what the child wrote.
    ///
    /// # Errors
    /// The child cannot be started, or hangs.
    ///
    /// # Panics
    /// The part fails.
    #[track_caller]
    pub fn succeeds(self) -> Result<String> {
        let Ended { code, output } = self.run()?;
        assert_eq!(code, Some(0), "{output}");
        Ok(output)
    }
}

impl Ended {
    /// Returns whether the child's test was skipped; any other code than success is a failure.
    pub(crate) fn expect_success(self) -> Result<bool, Failed> {
        match self.code {
            Some(0) => Ok(false),
            Some(SKIPPED) => Ok(true),
            code => Err(format!("the child ended with {code:?}:\n{}", self.output).into()),
        }
    }
}
