//! A word that host, streams and running kernels share.

use std::alloc::Layout;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use gpustream_core::memory::MemoryKind;
use gpustream_core::operation::{DriverCalls, call_site};
use gpustream_core::stream::StreamEntry;
use gpustream_core::track::Mode;
use gpustream_hal::{Error, ErrorKind, Result, WaitValue, Work};

use crate::buffer::Owned;
use crate::device::Device;
use crate::stream::Stream;
use crate::view::{View, sealed};
use crate::volatile::{AsVolatile, AsVolatileMut, Volatile, VolatileMut};

/// A `u32` in pinned memory that the host and running kernels may read and write at any time, and that streams
/// [wait for](Stream::wait_flag) and [set](Stream::set_flag) in their order.
///
/// Kernels take a flag as `volatile unsigned*` (or `const volatile unsigned*`), and for no other parameter. The word
/// may change between any two reads, so a kernel that checks a value must check a copy of it. The library does not
/// order uses of a flag, which is made to be touched from several sides at once. Clones are the same word.
///
/// ```
/// # let device = gpustream::Device::open("cpu")?;
/// let go = device.flag()?;
/// assert_eq!(go.get(), 0);
/// go.set(1);
/// # Ok::<(), gpustream::Error>(())
/// ```
///
/// A `Flag` is `Send` and `Sync`. Dropping the last clone returns at once, and the word is used again only after the
/// last kernel and the last stream that use it.
#[derive(Clone)]
pub struct Flag(Arc<Owned>);

impl Device {
    /// Makes a flag that the host and running kernels can both read and write at any time.
    ///
    /// # Errors
    /// As for [`pinned`](Self::pinned).
    #[track_caller]
    pub fn flag(&self) -> Result<Flag> {
        let memory = Owned::alloc(self, MemoryKind::Pinned, Layout::new::<u32>(), call_site("flag"))?;
        memory.block().history.lock().set_written(&(0..size_of::<u32>()));
        let flag = Flag(Arc::new(memory));
        flag.set(0);
        Ok(flag)
    }
}

impl Flag {
    fn word(&self) -> &AtomicU32 {
        // SAFETY: the memory is pinned, four bytes long and aligned, lives as long as `self`, and the host reaches
        // the memory by atomics alone.
        unsafe { AtomicU32::from_ptr(self.0.block().host.cast()) }
    }

    /// Returns a view for `volatile` arguments alone. A public view could be copied, and be an argument that a kernel
    /// takes for constant.
    fn view(&self) -> View<'_, u32> {
        View::new(self.0.block(), &self.0.device, 1)
    }

    /// Stores a value. A thread or kernel that loads the value also sees everything that this thread wrote before, and so
    /// does the work of a stream that waited for it.
    pub fn set(&self, value: u32) {
        self.word().store(value, Ordering::Release);
    }

    /// Loads the value. This thread then sees everything that the value's writer did before, and the work of a stream
    /// before its [`set_flag`](Stream::set_flag) is done.
    pub fn get(&self) -> u32 {
        self.word().load(Ordering::Acquire)
    }
}

impl Stream {
    /// Makes all work submitted to this stream from now on wait until the flag is as `until` says
    /// (`cuStreamWaitValue32`, `hipStreamWaitValue32`). Does not block.
    ///
    /// The host ends the wait by [`Flag::set`], another stream by [`set_flag`](Self::set_flag), a kernel by a store
    /// through a `volatile` parameter. The work behind the wait comes after that write and after everything that its
    /// writer did before: a thread before `set`, a stream before `set_flag`, a kernel before a `__threadfence_system()`
    /// in front of the store. A value that is there for a moment alone may be missed.
    ///
    /// The library knows nothing of that order: it orders memory as it would without, and [`Tracking::Strict`] still asks
    /// for an event. So the work that is to end a wait must not touch memory that work behind the wait touches and was
    /// submitted before: the two would wait for each other.
    ///
    /// Beside a fault of the device a wait may last until somebody sets the flag, and CUDA reports the fault only then. A
    /// flag that nobody sets is like a kernel that spins for ever: dropping the stream returns at once, while
    /// [`synchronize`](Self::synchronize), and dropping the last handle of the device, block. A stream that waits
    /// holds up the streams that share its hardware queue, of which there may be few (`CUDA_DEVICE_MAX_CONNECTIONS`, and
    /// `GPU_MAX_HW_QUEUES` on HIP): a stream whose work is to end the wait should have that work first. Under
    /// `GPUSTREAM_BLOCKING=1` the call blocks, as every operation does, so that another thread has to set the flag.
    ///
    /// ```
    /// use gpustream::WaitValue;
    /// # let device = gpustream::Device::open("cpu")?;
    /// let stream = device.stream()?;
    /// let (go, done) = (device.flag()?, device.flag()?);
    /// stream.wait_flag(&go, WaitValue::AtLeast(1))?;
    /// stream.set_flag(&done, 1)?;
    /// assert_eq!(done.get(), 0);
    /// go.set(1);
    /// stream.synchronize()?;
    /// assert_eq!(done.get(), 1);
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    ///
    /// [`Tracking::Strict`]: crate::Tracking::Strict
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for [`AtLeast`](WaitValue::AtLeast) of 2^31 or more, where devices differ, and for
    /// [`AnyBit`](WaitValue::AnyBit) of no bit. [`ErrorKind::Unsupported`] where
    /// [`DeviceInfo::stream_wait_value`](gpustream_hal::DeviceInfo) says no. [`ErrorKind::Captured`] inside a capture,
    /// [`ErrorKind::NotANode`] in a node of a graph. [`ErrorKind::DeviceMismatch`] for a flag of a device that this stream's cannot reach.
    #[track_caller]
    pub fn wait_flag(&self, flag: &Flag, until: WaitValue) -> Result<()> {
        let entry = self.enter(call_site("wait_flag"))?;
        let (device, address) = (self.device.info(), flag.view().as_raw());
        let checked =
            if device.stream_wait_value { check_value(until) } else { Err(no_waits(device.backend)) };
        entry.named(checked)?;
        // SAFETY: the flag's word is aligned and page-locked, and the host reaches it by atomics alone.
        unsafe { self.submit_on_flag(&entry, flag, Work::WaitValue { address, until }) }
    }

    /// Sets the flag in stream order (`cuStreamWriteValue32`, `hipStreamWriteValue32`). Does not block.
    ///
    /// A reader of the value comes after all work of this stream before it: a thread by [`Flag::get`], a stream by
    /// [`wait_flag`](Self::wait_flag), a kernel by a load and a `__threadfence_system()` behind it.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where the driver lacks the call. [`ErrorKind::Captured`] inside a capture,
    /// [`ErrorKind::NotANode`] in a node of a graph. [`ErrorKind::DeviceMismatch`] for a flag of a device that this stream's cannot reach.
    #[track_caller]
    pub fn set_flag(&self, flag: &Flag, value: u32) -> Result<()> {
        let (entry, address) = (self.enter(call_site("set_flag"))?, flag.view().as_raw());
        // SAFETY: the flag's word is aligned and page-locked, and the host reaches it by atomics alone.
        unsafe { self.submit_on_flag(&entry, flag, Work::WriteValue { address, value }) }
    }

    /// # Safety
    /// The work is sound as long as the flag's word is alive.
    unsafe fn submit_on_flag(&self, entry: &StreamEntry<'_>, flag: &Flag, work: Work<'_>) -> Result<()> {
        let view = flag.view();
        // A thread that captures sees that here; another thread's capture refuses the submission.
        let outside = "wait for a flag or set one; have the stream that launches the graph do so";
        self.check_memory(entry, &view)?;
        entry.check_running(outside)?;
        // SAFETY: the use is entered, so that the word outlives the work; the rest is this function's contract.
        unsafe { entry.submit_call(&[&view.access(Mode::Shared)], DriverCalls::Work(work)) }
    }
}

fn check_value(until: WaitValue) -> Result<()> {
    /// The least value for which CUDA and HIP compare otherwise.
    const TOO_LARGE: u32 = 1 << 31;
    let refused = |message: String| Err(Error::new(ErrorKind::InvalidArgument, message));
    match until {
        WaitValue::AtLeast(value @ TOO_LARGE..) => refused(format!(
            "a wait for a flag of at least {value}; values from {TOO_LARGE} on are compared otherwise by each driver, \
             so count from 0 again, or wait for `WaitValue::Equal`"
        )),
        WaitValue::AnyBit(0) => refused("a wait for a flag with any of no bits would never end".into()),
        _ => Ok(()),
    }
}

#[cold]
fn no_waits(backend: &str) -> Error {
    let message = format!(
        "streams of this {backend} device cannot wait for flags; launch a kernel that waits, or have the host wait for \
         the flag and submit then"
    );
    Error::new(ErrorKind::Unsupported, message)
}

impl sealed::Sealed for Flag {}

impl AsVolatile<u32> for Flag {
    fn volatile(&self) -> Volatile<'_, u32> {
        Volatile::shared(self.view())
    }
}

impl AsVolatileMut<u32> for Flag {
    fn volatile_mut(&mut self) -> VolatileMut<'_, u32> {
        VolatileMut::shared(self.view())
    }
}

impl fmt::Debug for Flag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Flag({})", self.get())
    }
}
