//! Device memory that kernels reach by its address and through textures.

use std::any::type_name;
use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::sync::Arc;

use gpustream_core::memory::byte_len;
use gpustream_core::operation::{call_site, named};
use gpustream_core::reentrancy;
use gpustream_hal::{Error, ErrorKind, FilterMode, RawBuffer, Result, TextureOptions};

use crate::buffer::Owned;
use crate::device::Device;
use crate::plain::Plain;
use crate::texture::{Texel, Texture, check_options, check_textures, memory_of};
use crate::view::{AsView, AsViewMut, View, ViewMut, owner_methods};

/// `len` texels of device memory that kernels can also read through a [`Texture`], with `tex1Dfetch`. Allocated by
/// [`Device::texel_buffer`].
///
/// For copies, fills and kernels it is memory like a [`Buffer`](crate::Buffer). A launch that gets its texture counts as
/// reading the memory, and we order it accordingly. But one launch may not both write the buffer and fetch from its texture.
///
/// ```
/// use gpustream::TextureOptions;
/// # let device = gpustream::Device::open("cpu")?;
/// # let stream = device.stream()?;
/// let mut table = device.texel_buffer::<f32>(256)?;
/// stream.upload_into(&[0.5; 256], &mut table)?;
/// let texture = table.texture(TextureOptions::default())?;
/// // kernels.look_up(&stream, &texture, &x, &mut y, n)?;
/// # let _ = texture;
/// # Ok::<(), gpustream::Error>(())
/// ```
///
/// A `TexelBuffer` is `Send` and `Sync`. Dropping it returns at once, and the memory lives as long as a texture, a graph or
/// work uses it. It is an allocation of the driver, like an [`Array`](crate::Array).
pub struct TexelBuffer<T> {
    memory: Arc<Owned>,
    len: usize,
    element: PhantomData<T>,
}

impl Device {
    /// Allocates `len` texels in a row (`cuMemAlloc`, `hipMalloc`). Their contents are unspecified. If there is no room, blocks
    /// until the device is idle, returns freed memory to the driver and tries again.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the device has no textures, as for [`array`](Self::array); [`ErrorKind::InvalidArgument`]
    /// if `len` is zero; [`ErrorKind::OutOfMemory`] if there is still no room then.
    #[track_caller]
    pub fn texel_buffer<T: Texel>(&self, len: usize) -> Result<TexelBuffer<T>> {
        named(call_site("texel_buffer"), || {
            reentrancy::check_outside()?;
            check_textures(self)?;
            if len == 0 {
                return Err(Error::new(
                    ErrorKind::InvalidArgument,
                    "a buffer of 0 texels cannot have a texture; allocate at least one",
                ));
            }
            let bytes = byte_len::<T>(len)?;
            let block = self.0.pools.texels(&*self.0, T::FORMAT, bytes)?;
            Ok(TexelBuffer { memory: Arc::new(Owned::new(self, block)), len, element: PhantomData })
        })
    }
}

impl<T: Texel> TexelBuffer<T> {
    /// Makes a texture of the buffer, for `tex1Dfetch` (`cuTexObjectCreate`, `hipTexObjectCreate`). A fetch outside the buffer
    /// returns zero.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if you set an option for coordinates, because `tex1Dfetch` has none, or ask for
    /// normalised values of 32-bit or floating-point texels. [`ErrorKind::Driver`] or [`ErrorKind::InvalidArgument`] if the
    /// buffer is longer than the device's textures can be.
    #[track_caller]
    pub fn texture(&self, options: TextureOptions) -> Result<Texture> {
        named(call_site("texture"), || {
            let plain = TextureOptions::default().normalized_values(options.normalized_values);
            if options.filter != FilterMode::Point || options != plain {
                return Err(Error::new(
                    ErrorKind::InvalidArgument,
                    "`tex1Dfetch` takes a texel's number, so filters, address modes and normalised coordinates mean nothing to it; \
                     leave these options out, or use an array",
                ));
            }
            check_options(T::FORMAT, options)?;
            let raw = memory_of(&self.memory)?.texture(&options)?;
            Ok(Texture::new(self.memory.clone(), raw, self.view().bytes().len()))
        })
    }
}

impl<T: Plain> AsView<T> for TexelBuffer<T> {
    #[inline]
    fn view(&self) -> View<'_, T> {
        View::new(self.memory.block(), &self.memory.device, self.len)
    }
}

impl<T: Plain> AsViewMut<T> for TexelBuffer<T> {
    #[inline]
    fn view_mut(&mut self) -> ViewMut<'_, T> {
        ViewMut::new(self.view())
    }
}

owner_methods!(TexelBuffer);

impl<T> fmt::Debug for TexelBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TexelBuffer<{}>({} texels at {})", type_name::<T>(), self.len, self.memory.block().address)
    }
}
