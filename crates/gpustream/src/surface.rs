//! Surfaces, through which kernels write arrays.

use std::fmt;
use std::sync::Arc;

use gpustream_core::memory::Access;
use gpustream_core::track::Mode;
use gpustream_hal::RawSurface;

use crate::buffer::Owned;
use crate::device::Device;
use crate::texture::access;

/// A surface: an array that kernels read and write. Made by [`Array::surface`](crate::Array::surface).
///
/// Kernels take a surface as `cudaSurfaceObject_t` or `hipSurfaceObject_t`, and name a texel by its first byte in the row:
/// `surf2Dwrite(value, surface, x * sizeof value, y)`. If an access is outside the array, the boundary mode decides: it may end
/// the kernel with an error (the device is then lost), do nothing, or use the texel at the edge. AMD's devices do nothing.
///
/// A launch counts as writing all of the array, and we order it with everything else that uses the array. A launch that also
/// gets the array in another way is refused, because devices do not keep the two coherent.
///
/// A `Surface` is `Send` and `Sync`. Dropping it returns at once, even if work is pending.
pub struct Surface {
    memory: Arc<Owned>,
    raw: RawSurface,
    bytes: usize,
}

impl Surface {
    pub(crate) fn new(memory: Arc<Owned>, raw: RawSurface, bytes: usize) -> Self {
        Self { memory, raw, bytes }
    }

    /// Returns the device that the surface belongs to.
    pub fn device(&self) -> &Device {
        &self.memory.device
    }

    /// Returns the handle as kernels see it (`cudaSurfaceObject_t`). If you access the array through it, we cannot track that.
    pub fn as_raw(&self) -> u64 {
        self.raw.0 as u64
    }

    /// Returns what the kernel's parameter gets, how a launch uses the array, and the array's device.
    #[inline]
    pub(crate) fn argument(&mut self) -> (usize, Access<'_>, &Device) {
        (self.raw.0, access(&self.memory, self.bytes, Mode::Write), &self.memory.device)
    }
}

impl fmt::Debug for Surface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Surface({:#x})", self.raw.0)
    }
}
