//! Traces: what ran when, for a part of a program or the whole of it.

use std::fs::{File, TryLockError};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, Weak};

use gpustream_core::device_core::DeviceCore;
use gpustream_core::environment::TraceSettings;
use gpustream_core::operation::{call_site, named};
use gpustream_core::reentrancy;
use gpustream_core::sync::{Mutex, lock};
use gpustream_core::trace::{Listener, Listening, now, show_ranges};
use gpustream_hal::file_limit::LimitedFile;
use gpustream_hal::{self as hal, Backend, Error, ErrorKind, Result};
use gpustream_timeline::{Record, Timeline, perfetto};

use crate::Device;

/// The most records that a trace in memory keeps, some 300 bytes each.
const MOST: usize = 1 << 20;

/// A trace that goes on: what is submitted to its devices is noted, and when it ran.
///
/// ```
/// # let device = gpustream::Device::open("cpu")?;
/// # let stream = device.stream()?;
/// let trace = device.trace()?;
/// let x = stream.upload(&[1.0f32; 1000])?;
/// assert_eq!(stream.download(&x)?.len(), 1000);
/// let timeline = trace.stop()?;
///
/// let upload = &timeline.operations[0];
/// println!("{} ran for {:?} ns", upload.label, upload.ran.as_ref().map(|ran| ran.end - ran.start));
/// # Ok::<(), gpustream::Error>(())
/// ```
///
/// The times come from the backend where it measures them (the CPU; CUDA with CUPTI; HIP with rocprofiler-sdk, in a process that
/// the environment traces), otherwise from events with timestamps around each operation, which delay the device a little:
/// [`timeline::Device`](gpustream_timeline::Device) says which, and why. A program that is not traced pays for one load in each
/// operation.
///
/// Where CUPTI measures, the beginning and the end of a trace may wait until the device is idle, and calls of other threads
/// wait with them: neither belongs where a kernel or a host closure waits for the program.
///
/// At most a million records are kept; the number of those that are not is [`Timeline::lost`].
///
/// A `Trace` is `Send` and `Sync`. Dropping it ends the trace without waiting for the devices.
#[must_use = "a trace ends when it is dropped"]
pub struct Trace {
    listening: Listening,
    /// A device whose last handle is dropped has done its work.
    devices: Vec<Weak<DeviceCore>>,
    timeline: Arc<Mutex<Timeline>>,
}

impl Device {
    /// Begins a trace of this device's streams. Blocks until the device's clock has been compared with the host's: where times
    /// come from events, until a few of them have been reached.
    ///
    /// # Errors
    /// [`ErrorKind::InHostClosure`](crate::ErrorKind::InHostClosure) inside a host closure; a driver's failure.
    #[track_caller]
    pub fn trace(&self) -> Result<Trace> {
        Trace::of(&[self])
    }
}

impl Trace {
    /// Begins a trace of several devices, on one axis of time.
    ///
    /// # Errors
    /// As for [`Device::trace`].
    #[track_caller]
    pub fn of(devices: &[&Device]) -> Result<Self> {
        named(call_site("trace"), || {
            reentrancy::check_outside()?;
            let listener = InMemory::default();
            let timeline = listener.timeline.clone();
            let raw: Vec<_> = devices.iter().map(|device| device.0.raw.clone()).collect();
            let listening = Listening::begin(Box::new(listener), &raw)?;
            let devices = devices.iter().map(|device| Arc::downgrade(&device.0)).collect();
            Ok(Self { listening, devices, timeline })
        })
    }

    /// Ends the trace, and returns what was noted. Blocks until the devices have done what was submitted to them. Other
    /// threads may go on to submit, and to capture.
    ///
    /// # Errors
    /// [`ErrorKind::InHostClosure`](crate::ErrorKind::InHostClosure) inside a host closure. A failure of a device is none: the
    /// operations that it kept from running have no times.
    #[track_caller]
    pub fn stop(self) -> Result<Timeline> {
        named(call_site("stop"), || {
            reentrancy::check_outside()?;
            let until = now();
            self.devices.iter().filter_map(Weak::upgrade).for_each(|device| device.wait_by_events());
            self.listening.finish(until);
            let timeline = std::mem::take(&mut *lock(&self.timeline));
            Ok(timeline)
        })
    }
}

/// Tells a backend, before anything else is asked of the backend, that the environment asks for traces, where it does.
pub(crate) fn expect(backend: &dyn Backend) {
    static WANTED: OnceLock<bool> = OnceLock::new();
    // A setting that is not allowed is an error when a device is opened.
    let read = || TraceSettings::read().is_ok_and(|settings| settings.file.is_some() || settings.summary);
    if *WANTED.get_or_init(read) {
        backend.expect_traces();
    }
}

/// Traces the whole process from here on, if the environment asks for that, this device among others.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] for a setting that is not allowed, or a file that cannot be made.
pub(crate) fn of_process(device: &Arc<dyn hal::Device>) -> Result<()> {
    static PROCESS: Mutex<Option<Process>> = Mutex::new(None);
    let mut process = lock(&PROCESS);
    let process = match &mut *process {
        Some(process) => process,
        none => {
            let settings = TraceSettings::read()?;
            none.insert(Process { listening: begin(&settings)?, ranges: settings.ranges, said: Vec::new() })
        }
    };
    if process.ranges {
        process.show(device);
    }
    process.listening.iter_mut().try_for_each(|listening| listening.add(device))
}

/// The traces that the environment asks for.
struct Process {
    listening: Vec<Listening>,
    /// Whether operations are ranges in the profilers of vendors.
    ranges: bool,
    /// The backends of which it was said that they have no ranges.
    said: Vec<hal::BackendName>,
}

impl Process {
    /// Makes the device's operations ranges, or says once for its backend why that cannot be.
    fn show(&mut self, device: &Arc<dyn hal::Device>) {
        let backend = device.info().backend;
        if let Err(error) = show_ranges(device)
            && !self.said.contains(&backend)
        {
            self.said.push(backend);
            eprintln!("gpustream: GPUSTREAM_RANGES=1: {error}; the program goes on without ranges");
        }
    }
}

fn begin(settings: &TraceSettings) -> Result<Vec<Listening>> {
    if settings.summary && cfg!(not(feature = "report")) {
        let text = "GPUSTREAM_TRACE_SUMMARY=1: this program was built without the report; turn the feature `report` of the crate \
                    `gpustream` on, or set GPUSTREAM_TRACE=run.pftrace instead and give the file to `cargo xtask timeline`";
        return Err(Error::new(ErrorKind::InvalidArgument, text));
    }
    let mut listening = Vec::new();
    if let Some(path) = &settings.file {
        listening.push(Listening::begin(Box::new(ToFile::create(path)?), &[])?);
    }
    #[cfg(feature = "report")]
    if settings.summary {
        listening.push(Listening::begin(Box::<Summary>::default(), &[])?);
    }
    Ok(listening)
}

/// A listener that writes what it hears to a file.
struct ToFile {
    path: PathBuf,
    writer: Option<perfetto::Writer<Buffer>>,
    buffer: Buffer,
    /// The number of records that came too fast to be noted.
    lost: u64,
}

/// The file's buffer, which is emptied whenever nothing more is known.
#[derive(Clone)]
struct Buffer(Arc<Mutex<BufWriter<LimitedFile>>>);

impl Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        lock(&self.0).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        lock(&self.0).flush()
    }
}

impl ToFile {
    fn create(path: &Path) -> Result<Self> {
        let refused = |error| {
            let text =
                format!("GPUSTREAM_TRACE={}: {error}; name a file that can be written", path.display());
            Error::new(ErrorKind::InvalidArgument, text)
        };
        let (path, file) = Self::open(path).map_err(refused)?;
        let file = LimitedFile::new(file).map_err(refused)?;
        let buffer = Buffer(Arc::new(Mutex::new(BufWriter::with_capacity(1 << 16, file))));
        let writer = Some(perfetto::Writer::new(buffer.clone()));
        Ok(Self { path, writer, buffer, lost: 0 })
    }

    /// Opens the file that the environment names, empty. If another process is writing its trace there, opens a file of
    /// another name beside it and says so, because two traces in one file spoil each other.
    fn open(named: &Path) -> io::Result<(PathBuf, File)> {
        let mut path = named.to_owned();
        for attempt in 0.. {
            let file = File::options().write(true).create(true).truncate(false).open(&path)?;
            if !file.metadata()?.is_file() {
                return Ok((path, file));
            }
            match file.try_lock() {
                Err(TryLockError::WouldBlock) => path = beside(named, attempt),
                // Some file systems have no locks. Then two processes need two names.
                Ok(()) | Err(TryLockError::Error(_)) => {
                    if attempt > 0 {
                        eprintln!(
                            "gpustream: GPUSTREAM_TRACE={}: another process is writing its trace there, so this one's \
                             goes to {}; `%p` in the name stands for the number of the process",
                            named.display(),
                            path.display()
                        );
                    }
                    file.set_len(0)?;
                    return Ok((path, file));
                }
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Says once that the file cannot be written, and goes on without.
    fn check<T>(&mut self, outcome: io::Result<T>) {
        if let Err(error) = outcome {
            self.writer = None;
            eprintln!(
                "gpustream: {}: {error}; the trace ends here, and the program goes on",
                self.path.display()
            );
        }
    }
}

/// Returns the name of a file beside `named` with the number of this process in it. Attempts after the first one have a number
/// too, because processes in different containers can have the same number.
fn beside(named: &Path, attempt: u32) -> PathBuf {
    let id = std::process::id();
    let mut name = named.file_stem().unwrap_or_default().to_owned();
    name.push(if attempt == 0 { format!(".{id}") } else { format!(".{id}-{attempt}") });
    if let Some(extension) = named.extension() {
        name.push(".");
        name.push(extension);
    }
    named.with_file_name(name)
}

impl Listener for ToFile {
    fn hear(&mut self, record: &Record) {
        if let Record::Lost(lost) = record {
            self.lost += lost;
        }
        if let Some(writer) = &mut self.writer {
            let outcome = writer.write(record);
            self.check(outcome);
        }
    }

    fn pause(&mut self) {
        if self.writer.is_some() {
            let outcome = self.buffer.flush();
            self.check(outcome);
        }
    }
}

impl Drop for ToFile {
    fn drop(&mut self) {
        if let Some(writer) = self.writer.take() {
            let outcome = writer.finish();
            self.check(outcome);
            if self.lost > 0 {
                eprintln!(
                    "gpustream: {}: {} records are missing, because they came too fast",
                    self.path.display(),
                    self.lost
                );
            }
        }
    }
}

/// A listener that prints a report at the end.
#[cfg(feature = "report")]
#[derive(Default)]
struct Summary(InMemory);

#[cfg(feature = "report")]
impl Listener for Summary {
    fn hear(&mut self, record: &Record) {
        self.0.hear(record);
    }
}

#[cfg(feature = "report")]
impl Drop for Summary {
    fn drop(&mut self) {
        eprint!("{}", gpustream_timeline_view::Report::of(&lock(&self.0.timeline)));
    }
}

/// A listener that keeps what it hears.
#[derive(Default)]
struct InMemory {
    timeline: Arc<Mutex<Timeline>>,
    kept: usize,
}

impl Listener for InMemory {
    fn hear(&mut self, record: &Record) {
        let mut timeline = lock(&self.timeline);
        if self.kept < MOST {
            self.kept += 1;
            timeline.add(record.clone());
        } else {
            timeline.add(Record::Lost(1));
        }
    }
}

#[cfg(all(test, not(feature = "report")))]
mod tests {
    use super::*;

    #[test]
    fn summary_that_was_not_built_is_an_error_that_names_the_feature() {
        let settings = TraceSettings { file: None, summary: true, ranges: false };
        let Err(error) = begin(&settings) else { panic!("a summary without a report") };
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.message().contains("feature `report`"), "{error}");
    }
}
