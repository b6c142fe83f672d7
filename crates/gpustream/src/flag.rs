//! A word that the host, streams and running kernels share.

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

/// A `u32` in pinned memory that the host and running kernels can read and write at any time. Streams can
/// [wait for it](Stream::wait_flag) and [set it](Stream::set_flag) in their order.
///
/// Kernels take a flag as `volatile unsigned*` (or `const volatile unsigned*`), and you cannot pass it for any other parameter.
/// The word may change between any two reads, so if a kernel checks the value, it must check a copy. We do not order uses of a
/// flag, because its purpose is to be used from several sides at once. Clones are the same word.
///
/// ```
/// # let device = gpustream::Device::open("cpu")?;
/// let go = device.flag()?;
/// assert_eq!(go.get(), 0);
/// go.set(1);
/// # Ok::<(), gpustream::Error>(())
/// ```
///
/// A `Flag` is `Send` and `Sync`. Dropping the last clone returns at once. The word is only reused after the last kernel and
/// the last stream that use it.
#[derive(Clone)]
pub struct Flag(Arc<Owned>);

impl Device {
    /// Makes a flag, which starts as 0.
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
        // SAFETY: the memory is pinned, four bytes long and aligned, lives as long as `self`, and the host only reaches it by
        // atomics.
        unsafe { AtomicU32::from_ptr(self.0.block().host.cast()) }
    }

    /// Returns a view that only serves for `volatile` arguments. It stays private, because a public view could be passed to a
    /// kernel that takes the memory for constant.
    fn view(&self) -> View<'_, u32> {
        View::new(self.0.block(), &self.0.device, 1)
    }

    /// Stores a value. A thread or kernel that loads this value also sees everything that this thread wrote before, and so does
    /// the work of a stream that waited for it.
    pub fn set(&self, value: u32) {
        self.word().store(value, Ordering::Release);
    }

    /// Loads the value. This thread then sees everything that the value's writer did before. If a stream's
    /// [`set_flag`](Stream::set_flag) wrote it, the stream's earlier work is done.
    pub fn get(&self) -> u32 {
        self.word().load(Ordering::Acquire)
    }
}

impl Stream {
    /// Makes all work that you submit to this stream from now on wait until the flag is as `until` says (`cuStreamWaitValue32`,
    /// `hipStreamWaitValue32`). Does not block.
    ///
    /// The host can end the wait with [`Flag::set`], another stream with [`set_flag`](Self::set_flag), and a kernel with a
    /// store through a `volatile` parameter. The work after the wait comes after that write, and after everything that its
    /// writer did before it: before `set` in a thread, before `set_flag` in a stream, or in a kernel before a
    /// `__threadfence_system()` that precedes the store. If the flag only has the value for a moment, the wait may miss it.
    ///
    /// We know nothing of this order. We order memory as if the wait were not there, and [`Tracking::Strict`] still asks you
    /// for an event. So the work that ends a wait must not touch memory that you have already passed to work after the wait,
    /// because then each would wait for the other.
    ///
    /// If the flag is never set, this is like a kernel that spins forever. Dropping the stream returns at once, but
    /// [`synchronize`](Self::synchronize) blocks, and so does dropping the last handle of the device. If the device faults, the
    /// wait may last until you set the flag, and CUDA only reports the fault then.
    ///
    /// A stream that waits holds up the streams that share its hardware queue, and there may be few queues
    /// (`CUDA_DEVICE_MAX_CONNECTIONS`, and `GPU_MAX_HW_QUEUES` on HIP). So submit the work that ends a wait before the wait.
    /// Under `GPUSTREAM_BLOCKING=1` this call blocks, as every operation does, so another thread must set the flag.
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
    /// [`ErrorKind::InvalidArgument`] for [`AtLeast`](WaitValue::AtLeast) with 2^31 or more, because devices compare such
    /// values differently, and for [`AnyBit`](WaitValue::AnyBit) without a bit. [`ErrorKind::Unsupported`] if
    /// [`DeviceFeatures::stream_wait_value`](gpustream_hal::DeviceFeatures::stream_wait_value) says no. [`ErrorKind::Captured`]
    /// inside a capture, [`ErrorKind::NotANode`] in a node of a graph. [`ErrorKind::DeviceMismatch`] if the stream's device
    /// cannot reach the flag's.
    #[track_caller]
    pub fn wait_flag(&self, flag: &Flag, until: WaitValue) -> Result<()> {
        let entry = self.enter(call_site("wait_flag"))?;
        let (device, address) = (self.device.info(), flag.view().as_raw());
        let checked = if device.features.stream_wait_value {
            check_value(until)
        } else {
            Err(no_waits(device.backend.as_str()))
        };
        entry.named(checked)?;
        // SAFETY: the flag's word is aligned and page-locked, and the host only reaches it by atomics.
        unsafe { self.submit_on_flag(&entry, flag, Work::WaitValue { address, until }) }
    }

    /// Sets the flag in the stream's order (`cuStreamWriteValue32`, `hipStreamWriteValue32`). Does not block.
    ///
    /// Whoever reads the value comes after all earlier work of this stream: a thread through [`Flag::get`], a stream through
    /// [`wait_flag`](Self::wait_flag), a kernel through a load and a `__threadfence_system()` after it.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the driver lacks the call. [`ErrorKind::Captured`] inside a capture,
    /// [`ErrorKind::NotANode`] in a node of a graph. [`ErrorKind::DeviceMismatch`] if the stream's device cannot reach the flag's.
    #[track_caller]
    pub fn set_flag(&self, flag: &Flag, value: u32) -> Result<()> {
        let (entry, address) = (self.enter(call_site("set_flag"))?, flag.view().as_raw());
        // SAFETY: the flag's word is aligned and page-locked, and the host only reaches it by atomics.
        unsafe { self.submit_on_flag(&entry, flag, Work::WriteValue { address, value }) }
    }

    /// # Safety
    /// The work must be sound as long as the flag's word is alive.
    unsafe fn submit_on_flag(&self, entry: &StreamEntry<'_>, flag: &Flag, work: Work<'_>) -> Result<()> {
        let view = flag.view();
        // If this thread captures, we notice it here. If another thread does, the submission is refused.
        let outside = "wait for a flag or set one in it; let the stream that launches the graph do so";
        self.check_memory(entry, &view)?;
        entry.check_running(outside)?;
        // SAFETY: we enter the use, so the word outlives the work. The rest is this function's contract.
        unsafe { entry.submit_call(&[&view.access(Mode::Shared)], DriverCalls::Work(work)) }
    }
}

fn check_value(until: WaitValue) -> Result<()> {
    /// The smallest value that CUDA and HIP compare differently.
    const TOO_LARGE: u32 = 1 << 31;
    let refused = |message: String| Err(Error::new(ErrorKind::InvalidArgument, message));
    match until {
        WaitValue::AtLeast(value @ TOO_LARGE..) => refused(format!(
            "a wait for a flag of at least {value} was asked for, but drivers differ in how they compare values from {TOO_LARGE} \
             on; count from 0 again, or wait for `WaitValue::Equal`"
        )),
        WaitValue::AnyBit(0) => {
            refused("a wait for any of no bits of a flag would never end; name at least one bit".into())
        }
        _ => Ok(()),
    }
}

#[cold]
fn no_waits(backend: &str) -> Error {
    let message = format!(
        "streams of this {backend} device cannot wait for flags; launch a kernel that waits, or let the host wait for the flag \
         and submit then"
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
