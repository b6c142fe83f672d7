//! The process's one use of CUPTI: several devices measure together, and share what was measured.

use std::ffi::c_void;
use std::path::PathBuf;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};

use gpustream_hal::driver::Status;
use gpustream_hal::lock::lock;
use gpustream_hal::names::Names;
use gpustream_hal::trace::{self, SharedMeasurement};
use gpustream_hal::{Error, ErrorKind, Ran, Result};

use super::api::{
    CORRELATION_KIND, CUpti_CallbackId, CUpti_SubscriberHandle, FLUSH_FORCED, KINDS, Library,
    MAX_LIMIT_REACHED, PER_THREAD_BUFFERS, SILENT,
};
use super::attribution::{Attribution, Named};
use super::buffers::{self, Full};
use super::graph_calls;
use super::record::{self, EPOCH, Record};
use crate::error::error;

/// The buffers that are read together: first for the operations in all of them, then for the rest, since a record and that
/// of its operation may lie in two buffers of about the same time.
const TOGETHER: usize = 16;

/// The opened CUPTI. One per process; never closed.
pub(crate) struct Cupti {
    library: Library,
    session: SharedMeasurement<Subscriber>,
    reader: Mutex<Reader>,
}

/// The place of the process's one user of CUPTI. Another tool that asks for the place learns that it is taken.
struct Subscriber(CUpti_SubscriberHandle);

// SAFETY: a handle, which CUPTI accepts from any thread.
unsafe impl Send for Subscriber {}

/// The parts that make sense of records.
#[derive(Default)]
struct Reader {
    attribution: Attribution,
    names: Names,
}

/// Whether an executable graph was made. A launch of a graph that was made before CUPTI began to measure can fail: with
/// CUPTI 13.0 one did after copies and an allocation that was freed, with no kernel in between.
static GRAPHS: AtomicBool = AtomicBool::new(false);

/// Notes that an executable graph is made.
pub(crate) fn note_graph() {
    GRAPHS.store(true, Ordering::Relaxed);
}

static CUPTI: OnceLock<Result<Cupti>> = OnceLock::new();

/// Returns CUPTI, opened on first use.
///
/// # Errors
/// `Unsupported`, with each name tried.
pub(crate) fn cupti() -> Result<&'static Cupti> {
    CUPTI.get_or_init(Cupti::open).as_ref().map_err(Error::clone)
}

/// Returns CUPTI if it was opened.
#[inline]
pub(crate) fn opened() -> Option<&'static Cupti> {
    CUPTI.get()?.as_ref().ok()
}

/// Begins to measure, or notes one begin more.
///
/// # Errors
/// `Unsupported` if there is no CUPTI, or the driver, another tool, or a graph of this process is in the way.
pub(crate) fn begin() -> Result<()> {
    if opened().is_none_or(|cupti| !cupti.session.is_on()) {
        // Before CUPTI is loaded for nothing.
        check_no_graphs()?;
    }
    let cupti = cupti()?;
    cupti.session.begin(|| cupti.start())
}

fn check_no_graphs() -> Result<()> {
    if GRAPHS.load(Ordering::Relaxed) {
        let text = "CUPTI cannot be used once the program has made a graph, whose launches it would make fail: begin the \
                    trace before, or set GPUSTREAM_TRACE";
        return Err(error(ErrorKind::Unsupported, text));
    }
    Ok(())
}

/// The clock for CUPTI, which brings the device's times to it (`CUpti_TimestampCallbackFunc`).
unsafe extern "C" fn timestamp() -> u64 {
    trace::now() + EPOCH
}

/// Does nothing: CUPTI is asked to call this for no function.
unsafe extern "C" fn called(_: *mut c_void, _: u32, _: CUpti_CallbackId, _: *const c_void) {}

impl Cupti {
    fn open() -> Result<Self> {
        let library = Library::open()?;
        Ok(Self { library, session: SharedMeasurement::default(), reader: Mutex::default() })
    }

    /// Returns name, version and file, for diagnosis.
    pub(crate) fn description(&self) -> String {
        let Library { version, path, .. } = &self.library;
        let file = path.as_ref().map(PathBuf::as_path).map(|path| format!(" ({})", path.display()));
        format!("{version}{}", file.unwrap_or_default())
    }

    /// Ends to measure with the last end.
    pub(crate) fn end(&self) {
        self.session.end(|subscriber| self.stop(KINDS.len(), &subscriber));
    }

    fn start(&self) -> Result<Subscriber> {
        check_no_graphs()?;
        graph_calls::note_use();
        let api = &self.library.api;
        // With buffers of its own for each thread, CUPTI 13.0 crashes in `cuLaunchKernel` where one thread flushes while others
        // submit: 10 of 28 runs did, and none of 28 without.
        let (mut off, mut size) = (0_u8, 1);
        // SAFETY: the pointers are to locals, and nothing is measured yet. A CUPTI without the attribute has no such buffers.
        let _ = unsafe {
            api.cuptiActivitySetAttribute(PER_THREAD_BUFFERS, &raw mut size, (&raw mut off).cast())
        };
        let mut subscriber = Subscriber(ptr::null_mut());
        // SAFETY: the pointer is to a local; the function ignores its arguments.
        unsafe { api.cuptiSubscribe(&raw mut subscriber.0, Some(called), ptr::null_mut()) }
            .ok_or(ErrorKind::Unsupported)?;
        let mut enabled = 0;
        let outcome = self.enable(&mut enabled);
        if outcome.is_err() {
            self.stop(enabled, &subscriber);
        }
        outcome.map(|()| subscriber)
    }

    /// Asks for records; `enabled` counts the kinds that succeeded. The callbacks come first, before there is any record.
    fn enable(&self, enabled: &mut usize) -> Result<()> {
        let api = &self.library.api;
        // SAFETY: the functions are sound to call on any thread, until the process ends.
        unsafe {
            api.cuptiActivityRegisterTimestampCallback(Some(timestamp)).ok_or(ErrorKind::Unsupported)?;
            api.cuptiActivityRegisterCallbacks(Some(buffers::requested), Some(buffers::completed))
                .ok_or(ErrorKind::Unsupported)?;
        }
        for kind in KINDS {
            // SAFETY: a kind of every known version.
            unsafe { api.cuptiActivityEnable(kind) }.ok_or(ErrorKind::Unsupported)?;
            *enabled += 1;
        }
        for &function in SILENT {
            // SAFETY: a number of the driver's functions. A CUPTI that cannot leave it out records it.
            let _ = unsafe { api.cuptiActivityEnableDriverApi(function, 0) };
        }
        Ok(())
    }

    /// Asks for no more records of the first `enabled` kinds, and leaves CUPTI to others. Failures change nothing for the
    /// caller.
    fn stop(&self, enabled: usize, subscriber: &Subscriber) {
        let api = &self.library.api;
        for &kind in KINDS[..enabled].iter().rev() {
            // SAFETY: a kind of every known version.
            let _ = unsafe { api.cuptiActivityDisable(kind) };
        }
        if enabled > 0 {
            // SAFETY: the callbacks are registered.
            let _ = unsafe { api.cuptiActivityFlushAll(0) };
        }
        // SAFETY: the handle is from `cuptiSubscribe`, and not used again.
        let _ = unsafe { api.cuptiUnsubscribe(subscriber.0) };
        buffers::trim();
    }

    /// Gives what this thread submits the number of an operation.
    pub(crate) fn enter(&self, operation: u64) {
        // SAFETY: a kind of every known version. A failure leaves the operation without times.
        let _ =
            unsafe { self.library.api.cuptiActivityPushExternalCorrelationId(CORRELATION_KIND, operation) };
    }

    pub(crate) fn leave(&self) {
        // SAFETY: a kind of every known version; the number that is popped may be left out.
        let _ = unsafe {
            self.library.api.cuptiActivityPopExternalCorrelationId(CORRELATION_KIND, ptr::null_mut())
        };
    }

    /// Hands out what was measured, as [`Traces::trace_take`](gpustream_hal::Traces::trace_take) says.
    pub(crate) fn take(&self, flush: bool, each: &mut dyn FnMut(&Ran<'_>)) -> Result<u64> {
        let mut reader = lock(&self.reader);
        // Records that came before a failure are handed out all the same.
        let flushed = self.flush(flush);
        let mut lost = reader.read(&self.library, each);
        let mut dropped = 0;
        // SAFETY: the pointer is to a local; without a context, the process's count is asked for.
        let answer = unsafe {
            self.library.api.cuptiActivityGetNumDroppedRecords(ptr::null_mut(), 0, &raw mut dropped)
        };
        if answer.status == Some(Status::SUCCESS) {
            lost += dropped as u64;
        }
        if !self.session.is_on() {
            buffers::trim();
        }
        flushed.map(|()| lost)
    }

    /// Makes CUPTI hand buffers back: those whose records are all complete; with `all` the others too, after these.
    fn flush(&self, all: bool) -> Result<()> {
        let is_on = self.session.is_on();
        if !is_on && !buffers::any_lent() {
            return Ok(());
        }
        let api = &self.library.api;
        // SAFETY: the callbacks are registered, and this is none of them. No lock is held that they take.
        let mut flushed = unsafe { api.cuptiActivityFlushAll(0) }.ok();
        if all && flushed.is_ok() && buffers::any_lent() {
            // SAFETY: the callbacks are registered, this is none of them, and no lock is held that they take.
            flushed = unsafe { api.cuptiActivityFlushAll(FLUSH_FORCED) }.ok();
        }
        // A CUPTI that measures no more may refuse.
        if is_on { flushed } else { Ok(()) }
    }
}

impl Reader {
    /// Reads the buffers that came back. Returns how many records were lost in them.
    fn read(&mut self, library: &Library, each: &mut dyn FnMut(&Ran<'_>)) -> u64 {
        let Self { attribution, names } = self;
        let mut hand_out = |operation, part: &Named| {
            let label = part.label.as_deref().unwrap_or_default();
            let Named { work, start, end, .. } = *part;
            each(&Ran { operation, label, work, start, end, last: false });
        };
        let mut lost = 0;
        loop {
            let full: Vec<Full> = std::iter::from_fn(Full::next).take(TOGETHER).collect();
            for buffer in &full {
                lost += for_each_record(library, buffer, |record| {
                    if let Record::Operation { correlation, operation } = record {
                        attribution.note(correlation, operation);
                    }
                });
            }
            for buffer in &full {
                for_each_record(library, buffer, |record| match record {
                    Record::Ran(part) => {
                        let label = part.symbol.map(|symbol| names.of(symbol));
                        attribution.give(Named::new(&part, label), &mut hand_out);
                    }
                    Record::Untimed => lost += 1,
                    Record::Operation { .. } | Record::Other => {}
                });
            }
            // Fewer than could be had were all; a program that fills buffers faster than they are read must not keep this
            // thread here.
            if full.len() < TOGETHER {
                break;
            }
        }
        attribution.retry(&mut hand_out);
        lost + attribution.take_lost()
    }
}

/// Calls `each` with each record. Returns 1 if there was one that could not be read, behind which nothing can.
fn for_each_record(library: &Library, buffer: &Full, mut each: impl FnMut(Record<'_>)) -> u64 {
    let (memory, bytes) = buffer.records();
    let mut record = ptr::null_mut();
    loop {
        // SAFETY: CUPTI filled the buffer with so many bytes of records and left it to us; `record` is null or the last one.
        let answer = unsafe { library.api.cuptiActivityGetNextRecord(memory, bytes, &raw mut record) };
        match answer.status {
            // SAFETY: a record of a known version, in a buffer that lives until after this call. CUPTI keeps the names of
            // kernels, which all records of a kernel share.
            Some(Status::SUCCESS) if !record.is_null() => each(unsafe { record::read(record.cast()) }),
            Some(MAX_LIMIT_REACHED) => return 0,
            _ => return 1,
        }
    }
}
