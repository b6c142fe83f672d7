//! All use of rocprofiler-sdk in this process. We can set it up only once, so all devices measure together and share
//! what was measured.

use std::path::PathBuf;
use std::sync::{Mutex, OnceLock};

use gpustream_hal::lock::lock;
use gpustream_hal::trace::SharedMeasurement;
use gpustream_hal::{Error, ErrorKind, Ran, Result};

use super::api::Library;
use super::clock::{Clock, Pair};
use super::record::Activity;
use super::tool::{Services, Tool};
use super::whole::Whole;
use super::{buffers, names, operation};
use crate::error::error;

/// The rocprofiler-sdk that we set up. There is one in a process, and we never close it.
pub(crate) struct Rocprofiler {
    tool: &'static Tool,
    services: Services,
    session: SharedMeasurement<()>,
    clock: Mutex<Clock>,
    whole: Mutex<Whole>,
}

static ROCPROFILER: OnceLock<Result<Rocprofiler>> = OnceLock::new();

/// Opens the library and sets it up, if the process is going to be traced and has not started HIP. We keep the first call's
/// outcome.
pub(crate) fn set_up() {
    ROCPROFILER.get_or_init(Rocprofiler::new);
}

/// Returns the library.
///
/// # Errors
/// `Unsupported`, with what kept us from setting it up.
pub(crate) fn rocprofiler() -> Result<&'static Rocprofiler> {
    match ROCPROFILER.get() {
        Some(outcome) => outcome.as_ref().map_err(Error::clone),
        None => Err(error(
            ErrorKind::Unsupported,
            "rocprofiler-sdk only measures if it was set up before HIP started: set GPUSTREAM_TRACE or \
             GPUSTREAM_TRACE_SUMMARY when you start the program",
        )),
    }
}

/// Returns the library if we set it up.
#[inline]
pub(crate) fn opened() -> Option<&'static Rocprofiler> {
    ROCPROFILER.get()?.as_ref().ok()
}

impl Rocprofiler {
    fn new() -> Result<Self> {
        let tool = Tool::set_up()?;
        let services = tool.services()?;
        let clock = Clock::new(Pair::read(&tool.library.api)?);
        let (session, clock, whole) = (SharedMeasurement::default(), Mutex::new(clock), Mutex::default());
        Ok(Self { tool, services, session, clock, whole })
    }

    /// Returns name, version and file, for diagnosis.
    pub(crate) fn description(&self) -> String {
        let Library { version, path, .. } = &self.tool.library;
        let file = path.as_ref().map(PathBuf::as_path).map(|path| format!(" ({})", path.display()));
        format!("{version}{}", file.unwrap_or_default())
    }

    /// Begins to measure. If we measure already, counts one more beginning. Returns by how many nanoseconds the clocks'
    /// comparison can be off.
    ///
    /// # Errors
    /// `Unsupported` if the library sees nothing of HIP, or fails.
    pub(crate) fn begin(&self) -> Result<u64> {
        if self.tool.is_over() {
            return Err(error(
                ErrorKind::Unsupported,
                "rocprofiler-sdk has ended, because the process is ending: begin to measure earlier",
            ));
        }
        if !self.tool.watches() {
            let text = "rocprofiler-sdk was set up too late, or this HIP has no place for it: something started HIP before \
                        this library opened its first device, or HIP is older than 6.2";
            return Err(error(ErrorKind::Unsupported, text));
        }
        let api = &self.tool.library.api;
        let pair = Pair::read(api)?;
        self.session.begin(|| {
            // SAFETY: the library made the context.
            unsafe { api.rocprofiler_start_context(self.services.times) }.ok_or(ErrorKind::Unsupported)?;
            lock(&self.clock).compare(pair);
            Ok(())
        })?;
        Ok(pair.error)
    }

    /// Stops measuring when every beginning has had its end.
    pub(crate) fn end(&self) {
        self.session.end(|()| {
            if !self.tool.is_over() {
                // SAFETY: the library made the context. We ignore a failure, because the caller could not do anything about it.
                let _ = unsafe { self.tool.library.api.rocprofiler_stop_context(self.services.times) };
            }
        });
    }

    /// Passes on what was measured for operations whose records have all come, and with `flush` for the others too, as
    /// [`Traces::trace_take`](gpustream_hal::Traces::trace_take) says. A record exists only once its work is done, so
    /// we need not wait for work here, and must not.
    pub(crate) fn take(&self, flush: bool, each: &mut dyn FnMut(&Ran<'_>)) -> Result<u64> {
        let mut whole = lock(&self.whole);
        // We also pass on the records that came before a failure.
        let flushed = self.flush();
        let clock = *lock(&self.clock);
        let mut hand_out = |part: &Activity, last| {
            let label = part.kernel.and_then(names::of);
            each(&Ran {
                operation: part.operation,
                label: label.as_deref().unwrap_or_default(),
                work: part.work,
                start: clock.host(part.start),
                end: clock.host(part.end),
                last,
            });
        };
        for (operation, records) in operation::take() {
            whole.expect(operation, records, &mut hand_out);
        }
        let (records, lost) = buffers::take();
        for (operation, part) in records {
            whole.add(operation, part, &mut hand_out);
        }
        if flush {
            whole.release(&mut hand_out);
        }
        flushed.map(|()| lost)
    }

    /// Makes the library deliver all records, and compares the clocks.
    fn flush(&self) -> Result<()> {
        if self.tool.is_over() {
            return Ok(());
        }
        let api = &self.tool.library.api;
        // SAFETY: the library made the buffer. We hold no lock that `deliver` takes.
        let flushed = unsafe { api.rocprofiler_flush_buffer(self.services.buffer) }.ok();
        if let Ok(pair) = Pair::read(api) {
            lock(&self.clock).compare(pair);
        }
        flushed
    }
}
