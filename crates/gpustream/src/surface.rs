//! Surfaces, by which kernels write arrays.

use std::fmt;
use std::sync::Arc;

use gpustream_core::memory::{Access, Block};
use gpustream_core::track::Mode;
use gpustream_hal::{Error, ErrorKind, RawSurface, Result};

use crate::buffer::Owned;
use crate::device::Device;
use crate::texture::{Texture, access};

/// A surface: an array that kernels read and write. Made by [`Array::surface`](crate::Array::surface).
///
/// Kernels take a surface as `cudaSurfaceObject_t` or `hipSurfaceObject_t`, and name a texel by its first byte in the row,
/// `surf2Dwrite(value, surface, x * sizeof value, y)`. An access beside the array is what its boundary mode says: an error
/// that ends the kernel (the device is then lost), nothing, or the texel at the edge. AMD's devices do nothing.
///
/// A launch writes all of the array: the library puts it in order with everything else that uses the array. One
/// launch does not take two objects of an array of which one is a surface, since no device keeps them coherent.
///
/// A `Surface` is `Send` and `Sync`. Dropping it returns at once, also with work pending.
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

    /// Returns the handle as kernels see it (`cudaSurfaceObject_t`). Accesses through the handle are not tracked.
    pub fn as_raw(&self) -> u64 {
        self.raw.0 as u64
    }

    /// Returns the handle's parameter, the use that a launch makes of the array, and the array's device.
    #[inline]
    pub(crate) fn argument(&mut self) -> (usize, Access<'_>, &Device) {
        (self.raw.0, access(&self.memory, self.bytes, Mode::Write), &self.memory.device)
    }
}

impl fmt::Debug for Surface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.raw)
    }
}

/// A texture or a surface.
pub trait ArrayObject {
    #[doc(hidden)]
    fn block(&self) -> *const Block;
}

impl ArrayObject for Texture {
    fn block(&self) -> *const Block {
        Arc::as_ptr(self.memory.block())
    }
}

impl ArrayObject for Surface {
    fn block(&self) -> *const Block {
        Arc::as_ptr(self.memory.block())
    }
}

/// Checks that two arguments of a launch are of different arrays.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`].
#[inline]
pub fn check_apart(one: &impl ArrayObject, other: &impl ArrayObject) -> Result<()> {
    if one.block() == other.block() { Err(of_one_array()) } else { Ok(()) }
}

#[cold]
fn of_one_array() -> Error {
    Error::new(
        ErrorKind::InvalidArgument,
        "one launch got a surface and another object of the same array; a kernel does not see its own writes through \
         another object, so read through the surface, or write another array",
    )
}
