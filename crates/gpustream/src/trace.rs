//! Traces: what ran when, for a part of your program or all of it.

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

/// How many records a trace keeps in memory, at some 300 bytes each.
const MOST: usize = 1 << 20;

/// A running trace. It notes what you submit to its devices, and when it ran.
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
/// The times come from the backend if it can measure them (the CPU; CUDA with CUPTI; HIP with rocprofiler-sdk, in a process
/// that the environment traces). Otherwise they come from events with timestamps around each operation, which delay the device
/// a little. [`timeline::Device`](gpustream_timeline::Device) tells you which, and why. A program that is not traced pays one
/// load per operation.
///
/// If CUPTI measures, beginning or ending a trace may block until the device is idle, and calls from other threads block with
/// it. So don't do either while a kernel or a host closure waits for your program, otherwise they wait for each other forever.
///
/// A trace keeps at most a million records. [`Timeline::lost`] tells how many there were beyond that.
///
/// A `Trace` is `Send` and `Sync`. If you drop it, the trace ends without waiting for the devices.
#[must_use = "a trace ends when it is dropped"]
pub struct Trace {
    listening: Listening,
    /// Weak, because a device whose last handle was dropped has finished its work anyway.
    devices: Vec<Weak<DeviceCore>>,
    timeline: Arc<Mutex<Timeline>>,
}

impl Device {
    /// Begins to trace this device's streams. Blocks until we have compared the device's clock with the host's: if times come
    /// from events, until the device has reached a few of them.
    ///
    /// # Errors
    /// [`ErrorKind::InHostClosure`](crate::ErrorKind::InHostClosure) inside a host closure, or the driver's error.
    #[track_caller]
    pub fn trace(&self) -> Result<Trace> {
        Trace::of(&[self])
    }
}

impl Trace {
    /// Begins a trace of several devices with a common time axis. Blocks as [`Device::trace`] does.
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

    /// Ends the trace and returns it. Blocks until the devices have finished what was submitted to them. Meanwhile other
    /// threads may go on submitting and capturing.
    ///
    /// # Errors
    /// [`ErrorKind::InHostClosure`](crate::ErrorKind::InHostClosure) inside a host closure. If a device fails, that is not an
    /// error here: the operations that it could not run have no times.
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

/// If the environment asks for traces, tells a backend so before we ask it anything else.
pub(crate) fn expect(backend: &dyn Backend) {
    static WANTED: OnceLock<bool> = OnceLock::new();
    // If a setting is not allowed, opening a device reports that.
    let read = || TraceSettings::read().is_ok_and(|settings| settings.file.is_some() || settings.summary);
    if *WANTED.get_or_init(read) {
        backend.expect_traces();
    }
}

/// If the environment asks for it, traces the whole process from here on, including this device.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] if a setting is not allowed or a file cannot be created.
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
    /// True if operations are shown as ranges in the vendors' profilers.
    ranges: bool,
    /// The backends for which we have already said that they have no ranges.
    said: Vec<hal::BackendName>,
}

impl Process {
    /// Shows the device's operations as ranges. If that is impossible, says why, once per backend.
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
        let text = "GPUSTREAM_TRACE_SUMMARY=1 is set, but this program was built without the report; turn the feature `report` of \
                    the crate `gpustream` on, or set GPUSTREAM_TRACE=run.pftrace instead and give the file to `gpustream timeline` \
                    (cargo install gpustream-cli)";
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
    /// How many records came too fast to be noted.
    lost: u64,
}

/// The file's buffer. We flush it whenever there is a pause.
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
            let text = format!("GPUSTREAM_TRACE={}: {error}; name a file that you can write", path.display());
            Error::new(ErrorKind::InvalidArgument, text)
        };
        let (path, file) = Self::open(path).map_err(refused)?;
        let file = LimitedFile::new(file).map_err(refused)?;
        let buffer = Buffer(Arc::new(Mutex::new(BufWriter::with_capacity(1 << 16, file))));
        let writer = Some(perfetto::Writer::new(buffer.clone()));
        Ok(Self { path, writer, buffer, lost: 0 })
    }

    /// Opens the file that the environment names and empties it. If another process is writing its trace there, opens a file
    /// with another name beside it and says so, because two traces in one file would spoil each other.
    fn open(named: &Path) -> io::Result<(PathBuf, File)> {
        let mut path = named.to_owned();
        for attempt in 0.. {
            let file = File::options().write(true).create(true).truncate(false).open(&path)?;
            if !file.metadata()?.is_file() {
                return Ok((path, file));
            }
            match file.try_lock() {
                Err(TryLockError::WouldBlock) => path = beside(named, attempt),
                // Some file systems have no locks. If you trace two processes there, you must give two names.
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

    /// If the file cannot be written, says so once and goes on without it.
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

/// Returns the name of a file beside `named`, with this process's number in it. Attempts after the first add another number,
/// because processes in different containers can have the same one.
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

/// A listener that keeps what it hears in memory.
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
