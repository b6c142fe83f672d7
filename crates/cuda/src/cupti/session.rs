//! All use of CUPTI in this process, because CUPTI accepts only one user. Several devices can measure at once, and
//! share what was measured.

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

/// How many buffers we read together: first for the operations in all of them, then for the rest. A record and the record with
/// its operation can lie in different buffers, but these are from about the same time.
const TOGETHER: usize = 16;

/// The opened CUPTI. A process opens it once and never closes it.
pub(crate) struct Cupti {
    library: Library,
    session: SharedMeasurement<Subscriber>,
    reader: Mutex<Reader>,
}

/// CUPTI has a place for one user, and we take it. Another tool that asks for it learns that it is taken.
struct Subscriber(CUpti_SubscriberHandle);

// SAFETY: CUPTI accepts the handle from any thread.
unsafe impl Send for Subscriber {}

/// The parts that make sense of the records.
#[derive(Default)]
struct Reader {
    attribution: Attribution,
    names: Names,
}

/// Whether this process made an executable graph. If a graph was made before CUPTI began to measure, its launch can fail. With
/// CUPTI 13.0 one did, after copies and an allocation that was freed, with no kernel in between.
static GRAPHS: AtomicBool = AtomicBool::new(false);

/// Notes that the process makes an executable graph.
pub(crate) fn note_graph() {
    GRAPHS.store(true, Ordering::Relaxed);
}

static CUPTI: OnceLock<Result<Cupti>> = OnceLock::new();

/// Returns CUPTI. The first call opens it.
///
/// # Errors
/// `Unsupported`, with each name tried.
pub(crate) fn cupti() -> Result<&'static Cupti> {
    CUPTI.get_or_init(Cupti::open).as_ref().map_err(Error::clone)
}

/// Returns CUPTI if we have opened it.
#[inline]
pub(crate) fn opened() -> Option<&'static Cupti> {
    CUPTI.get()?.as_ref().ok()
}

/// Begins to measure. If we measure already, counts one more beginning.
///
/// # Errors
/// `Unsupported` if there is no CUPTI, or if the driver, another tool or a graph in this process is in the way.
pub(crate) fn begin() -> Result<()> {
    if opened().is_none_or(|cupti| !cupti.session.is_on()) {
        // We check this first, so that we do not load CUPTI in vain.
        check_no_graphs()?;
    }
    let cupti = cupti()?;
    cupti.session.begin(|| cupti.start())
}

fn check_no_graphs() -> Result<()> {
    if GRAPHS.load(Ordering::Relaxed) {
        let text = "CUPTI cannot start after the program has made a graph, because launches of the graph would then fail: begin the \
                    trace before that, or set GPUSTREAM_TRACE";
        return Err(error(ErrorKind::Unsupported, text));
    }
    Ok(())
}

/// The clock for CUPTI, which converts the device's times to it (`CUpti_TimestampCallbackFunc`).
unsafe extern "C" fn timestamp() -> u64 {
    trace::now() + EPOCH
}

/// Does nothing, because we ask CUPTI to call it for no function.
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

    /// Stops measuring when every beginning has had its end.
    pub(crate) fn end(&self) {
        self.session.end(|subscriber| self.stop(KINDS.len(), &subscriber));
    }

    fn start(&self) -> Result<Subscriber> {
        check_no_graphs()?;
        graph_calls::note_use();
        let api = &self.library.api;
        // If each thread has its own buffers, CUPTI 13.0 crashes in `cuLaunchKernel` when one thread flushes while others submit.
        // 10 of 28 runs crashed with them, and none of 28 without.
        let (mut off, mut size) = (0_u8, 1);
        // SAFETY: the pointers are to locals, and we measure nothing yet. A CUPTI without the attribute has no such buffers.
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

    /// Asks for records; `enabled` counts the kinds that succeeded. We register the callbacks first, before there is any record.
    fn enable(&self, enabled: &mut usize) -> Result<()> {
        let api = &self.library.api;
        // SAFETY: CUPTI can call the functions on any thread, until the process ends.
        unsafe {
            api.cuptiActivityRegisterTimestampCallback(Some(timestamp)).ok_or(ErrorKind::Unsupported)?;
            api.cuptiActivityRegisterCallbacks(Some(buffers::requested), Some(buffers::completed))
                .ok_or(ErrorKind::Unsupported)?;
        }
        for kind in KINDS {
            // SAFETY: every known version has this kind.
            unsafe { api.cuptiActivityEnable(kind) }.ok_or(ErrorKind::Unsupported)?;
            *enabled += 1;
        }
        for &function in SILENT {
            // SAFETY: this is the number of a driver function. If CUPTI cannot leave it out, it records it.
            let _ = unsafe { api.cuptiActivityEnableDriverApi(function, 0) };
        }
        Ok(())
    }

    /// Turns off the first `enabled` kinds, and leaves CUPTI to others. We ignore failures, because the caller could not do
    /// anything about them.
    fn stop(&self, enabled: usize, subscriber: &Subscriber) {
        let api = &self.library.api;
        for &kind in KINDS[..enabled].iter().rev() {
            // SAFETY: every known version has this kind.
            let _ = unsafe { api.cuptiActivityDisable(kind) };
        }
        if enabled > 0 {
            // SAFETY: the callbacks are registered.
            let _ = unsafe { api.cuptiActivityFlushAll(0) };
        }
        // SAFETY: the handle is from `cuptiSubscribe`, and we do not use it again.
        let _ = unsafe { api.cuptiUnsubscribe(subscriber.0) };
        buffers::trim();
    }

    /// Marks what this thread submits with an operation's number.
    pub(crate) fn enter(&self, operation: u64) {
        // SAFETY: every known version has this kind. If this fails, the operation has no times.
        let _ =
            unsafe { self.library.api.cuptiActivityPushExternalCorrelationId(CORRELATION_KIND, operation) };
    }

    pub(crate) fn leave(&self) {
        // SAFETY: every known version has this kind; we may omit the number that is popped.
        let _ = unsafe {
            self.library.api.cuptiActivityPopExternalCorrelationId(CORRELATION_KIND, ptr::null_mut())
        };
    }

    /// Passes on what was measured, as [`Traces::trace_take`](gpustream_hal::Traces::trace_take) says.
    pub(crate) fn take(&self, flush: bool, each: &mut dyn FnMut(&Ran<'_>)) -> Result<u64> {
        let mut reader = lock(&self.reader);
        // We also pass on the records that came before a failure.
        let flushed = self.flush(flush);
        let mut lost = reader.read(&self.library, each);
        let mut dropped = 0;
        // SAFETY: the pointer is to a local; without a context, CUPTI returns the process's count.
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

    /// Makes CUPTI return its buffers: the complete ones first, and with `all` the others after them.
    fn flush(&self, all: bool) -> Result<()> {
        let is_on = self.session.is_on();
        if !is_on && !buffers::any_lent() {
            return Ok(());
        }
        let api = &self.library.api;
        // SAFETY: we registered the callbacks, and this is neither of them. We hold no lock that they take.
        let mut flushed = unsafe { api.cuptiActivityFlushAll(0) }.ok();
        if all && flushed.is_ok() && buffers::any_lent() {
            // SAFETY: we registered the callbacks, and this is neither of them. We hold no lock that they take.
            flushed = unsafe { api.cuptiActivityFlushAll(FLUSH_FORCED) }.ok();
        }
        // If CUPTI no longer measures, it may refuse.
        if is_on { flushed } else { Ok(()) }
    }
}

impl Reader {
    /// Reads the returned buffers, and returns how many records were lost in them.
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
            // If we got fewer than we asked for, we have read them all. Otherwise we stop here too, because a program that fills
            // buffers faster than we read them must not keep this thread here.
            if full.len() < TOGETHER {
                break;
            }
        }
        attribution.retry(&mut hand_out);
        lost + attribution.take_lost()
    }
}

/// Calls `each` with each record. Returns 1 if we could not read one, because then we cannot read what follows either.
fn for_each_record(library: &Library, buffer: &Full, mut each: impl FnMut(Record<'_>)) -> u64 {
    let (memory, bytes) = buffer.records();
    let mut record = ptr::null_mut();
    loop {
        // SAFETY: CUPTI filled the buffer with this many bytes of records and left it to us; `record` is null or the last one.
        let answer = unsafe { library.api.cuptiActivityGetNextRecord(memory, bytes, &raw mut record) };
        match answer.status {
            // SAFETY: the record has a known version, and its buffer lives until after this call. CUPTI keeps the names of
            // kernels, which all records of a kernel share.
            Some(Status::SUCCESS) if !record.is_null() => each(unsafe { record::read(record.cast()) }),
            Some(MAX_LIMIT_REACHED) => return 0,
            _ => return 1,
        }
    }
}
