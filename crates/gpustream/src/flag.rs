//! A word that host and running kernels share.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use gpustream_core::memory::Kind;
use gpustream_core::operation::operation;
use gpustream_hal::Result;

use crate::buffer::Owned;
use crate::device::Device;
use crate::view::{View, sealed};
use crate::volatile::{AsVolatile, AsVolatileMut, Volatile, VolatileMut};

/// A `u32` in pinned memory that the host and running kernels may read and write at any time.
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
/// last kernel that takes it.
#[derive(Clone)]
pub struct Flag(Arc<Owned>);

impl Flag {
    #[track_caller]
    pub(crate) fn new(device: &Device) -> Result<Self> {
        let memory = Owned::alloc(device, Kind::Pinned, size_of::<u32>(), None, operation("flag"))?;
        memory.block().history.lock().set_written(&(0..size_of::<u32>()));
        let flag = Self(Arc::new(memory));
        flag.set(0);
        Ok(flag)
    }

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

    /// Stores a value. A thread or kernel that loads the value also sees everything that this thread wrote before.
    pub fn set(&self, value: u32) {
        self.word().store(value, Ordering::Release);
    }

    /// Loads the value.
    pub fn get(&self) -> u32 {
        self.word().load(Ordering::Acquire)
    }
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
