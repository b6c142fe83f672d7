//! The handles of streams, including the default streams.

use std::cell::Cell;
use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::sync::{Arc, OnceLock};

use gpustream_hal::{
    DefaultStream, ErrorKind, HostFn, HostPartFn, RawBuffer, RawEvent, RawStream, Result, StreamOptions,
    Streams, WaitPolicy, WaitValue,
};

use crate::capture::Capture;
use crate::device::CpuDevice;
use crate::error::error;
use crate::event::Event;
use crate::memory_waits::Awaited;
use crate::queue::{Stream, StreamKind};
use crate::work::Task;

/// The handles of the default streams, numbered as in CUDA.
const LEGACY: RawStream = RawStream(1);
const PER_THREAD: RawStream = RawStream(2);

/// A counted reference that does not change the count, because the handle keeps its own.
pub(crate) type Borrowed = ManuallyDrop<Arc<Stream>>;

/// A thread's default streams, by device.
type Defaults = Vec<(usize, Arc<Stream>)>;

thread_local! {
    /// This thread's default streams; null if it has none. The variable has no destructor, because the
    /// destructors of other variables may use the streams, and run in any order.
    static DEFAULTS: Cell<*mut Defaults> = const { Cell::new(std::ptr::null_mut()) };
}

/// The key whose destructor frees a thread's default streams, after the thread's other destructors have run.
/// `None` if the system has no more keys; then the streams stay.
static AT_THREAD_END: OnceLock<Option<libc::pthread_key_t>> = OnceLock::new();

unsafe extern "C" fn free_defaults(defaults: *mut c_void) {
    DEFAULTS.set(std::ptr::null_mut());
    // SAFETY: made by `Box::into_raw` on this thread, which no longer has another pointer to it.
    drop(unsafe { Box::from_raw(defaults.cast::<Defaults>()) });
}

/// Returns this thread's default streams.
fn defaults() -> *mut Defaults {
    let known = DEFAULTS.get();
    if !known.is_null() {
        return known;
    }
    let new = Box::into_raw(Box::<Defaults>::default());
    DEFAULTS.set(new);
    let key = AT_THREAD_END.get_or_init(|| {
        let mut key = 0;
        // SAFETY: the destructor gets the value that we pass to `pthread_setspecific` below.
        (unsafe { libc::pthread_key_create(&raw mut key, Some(free_defaults)) } == 0).then_some(key)
    });
    if let Some(key) = key {
        // SAFETY: the key was made above. If there is no memory for the entry, the streams stay.
        unsafe { libc::pthread_setspecific(*key, new.cast()) };
    }
    new
}

impl CpuDevice {
    /// Returns the stream behind a handle.
    ///
    /// # Safety
    /// The handle must be alive, or belong to a default stream.
    pub(crate) unsafe fn stream(&self, raw: RawStream) -> Borrowed {
        match raw {
            RawStream(0) | LEGACY => {
                let legacy = self.streams.legacy_of(self.shared);
                // SAFETY: the registry keeps the stream as long as the device exists, which is forever.
                ManuallyDrop::new(unsafe { Arc::from_raw(Arc::as_ptr(legacy)) })
            }
            PER_THREAD => {
                let key = std::ptr::from_ref(self.shared) as usize;
                // SAFETY: it belongs to this thread, and nothing below comes here again.
                let streams = unsafe { &mut *defaults() };
                let known = streams.iter().find(|(device, _)| *device == key);
                let stream = if let Some((_, stream)) = known {
                    Arc::as_ptr(stream)
                } else {
                    let stream = Stream::new(self.shared, self.streams, 0, StreamKind::Blocking, None);
                    streams.push((key, stream.clone()));
                    Arc::as_ptr(&stream)
                };
                // SAFETY: the thread keeps the stream until it ends, which is after this call.
                ManuallyDrop::new(unsafe { Arc::from_raw(stream) })
            }
            // SAFETY: made by `Arc::into_raw` in `stream_create`, and alive by the caller's promise.
            RawStream(address) => ManuallyDrop::new(unsafe { Arc::from_raw(address as *const Stream) }),
        }
    }
}

// SAFETY: a queue runs its operations one after the other, and answers by how many it has finished.
unsafe impl Streams for CpuDevice {
    fn stream_create(&self, options: StreamOptions) -> Result<RawStream> {
        self.shared.alive()?;
        let kind = if options.blocking_with_default { StreamKind::Blocking } else { StreamKind::Plain };
        let share = options.multiprocessors;
        let stream = Stream::new(self.shared, self.streams, options.priority, kind, share);
        Ok(RawStream(Arc::into_raw(stream) as usize))
    }

    /// Workers count as multiprocessors, and any of them may be used. Nodes of graphs use all.
    unsafe fn stream_multiprocessors(&self, stream: RawStream) -> Option<u32> {
        // SAFETY: passed on to the caller.
        unsafe { self.stream(stream) }.share()
    }

    unsafe fn stream_destroy(&self, stream: RawStream) -> Result<()> {
        // A child leaves the stream to its parent, because on the way there may be locks that are never
        // released.
        if stream.0 > PER_THREAD.0 && !self.shared.is_forked() {
            // SAFETY: made by `Arc::into_raw`, and not used again. The queue, and a worker that runs the
            // stream, have their own counts.
            let stream = unsafe { Arc::from_raw(stream.0 as *const Stream) };
            Capture::abandon(&stream);
        }
        Ok(())
    }

    fn stream_default(&self, which: DefaultStream) -> Result<RawStream> {
        Ok(match which {
            DefaultStream::Legacy => LEGACY,
            DefaultStream::PerThread => PER_THREAD,
        })
    }

    unsafe fn stream_query(&self, stream: RawStream) -> Result<bool> {
        // SAFETY: passed on to the caller.
        let stream = unsafe { self.stream(stream) };
        self.shared.alive()?;
        refuse_captured(&stream)?;
        let number = if stream.is_legacy() { stream.mark() } else { stream.submitted() };
        let done = stream.is_done(number);
        self.shared.alive()?;
        Ok(done)
    }

    unsafe fn stream_synchronize(&self, stream: RawStream) -> Result<()> {
        // SAFETY: passed on to the caller.
        let stream = unsafe { self.stream(stream) };
        self.shared.not_forked()?;
        refuse_captured(&stream)?;
        let number = if stream.is_legacy() { stream.mark() } else { stream.submitted() };
        stream.reach(number, WaitPolicy::Spin)
    }

    unsafe fn stream_wait_event(&self, stream: RawStream, event: RawEvent) -> Result<()> {
        // SAFETY: passed on to the caller.
        let (stream, event) = unsafe { (self.stream(stream), Event::borrow(event)) };
        event.wait_on(&stream)
    }

    fn word_written(&self) {
        self.shared.words.look();
    }

    unsafe fn stream_wait_value32(
        &self,
        stream: RawStream,
        address: RawBuffer,
        until: WaitValue,
    ) -> Result<()> {
        // SAFETY: passed on to the caller.
        let stream = unsafe { self.stream(stream) };
        let shared = self.shared;
        shared.not_forked()?;
        (shared.words.start(shared.ordinal, || shared.is_lost())).map_err(|e| {
            error(
                ErrorKind::Driver,
                format!(
                    "cannot start the thread that looks at words that streams wait for: {e}; let the process start \
                     one more thread"
                ),
            )
        })?;
        stream.submit_wait_word(Awaited { address: address.0, until })
    }

    unsafe fn stream_write_value32(&self, stream: RawStream, address: RawBuffer, value: u32) -> Result<()> {
        // SAFETY: passed on to the caller.
        let stream = unsafe { self.stream(stream) };
        stream.submit_write_word(address.0, value)
    }

    unsafe fn stream_host_fn(&self, stream: RawStream, function: HostFn, data: *mut c_void) -> Result<()> {
        // SAFETY: passed on to the caller.
        let stream = unsafe { self.stream(stream) };
        stream.submit(Task::Host { function, data: data as usize })
    }

    unsafe fn stream_host_parts(
        &self,
        stream: RawStream,
        function: HostPartFn,
        data: *mut c_void,
        parts: u32,
    ) -> Result<()> {
        // SAFETY: passed on to the caller.
        let stream = unsafe { self.stream(stream) };
        stream.submit(Task::HostParts { function, data: data as usize, parts })
    }
}

/// Refuses to wait for a stream that is being captured.
fn refuse_captured(stream: &Stream) -> Result<()> {
    let submissions = stream.submissions();
    match &submissions.capture {
        None => Ok(()),
        Some(capture) => {
            capture.invalidate("the host waited for one of its streams, or asked whether it is done");
            Err(error(
                ErrorKind::Captured,
                "a stream that is being captured cannot be waited for or queried: end the capture first",
            ))
        }
    }
}
