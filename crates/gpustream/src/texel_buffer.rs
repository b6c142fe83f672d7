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

/// A buffer of `len` texels of device memory that kernels also read through a [`Texture`], by `tex1Dfetch`. Made by
/// [`Device::texel_buffer`].
///
/// A texel buffer is memory like a [`Buffer`](crate::Buffer), for copies, fills and kernels. Its texture is memory that is
/// read: the library orders launches with both, and one launch may not write the buffer and fetch from its texture.
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
/// A `TexelBuffer` is `Send` and `Sync`. Dropping it returns at once: the memory stays as long as a texture, a graph or work
/// that uses it. It is the driver's own allocation, as an [`Array`](crate::Array) is.
pub struct TexelBuffer<T> {
    memory: Arc<Owned>,
    len: usize,
    element: PhantomData<T>,
}

impl Device {
    /// Allocates `len` texels in a row (`cuMemAlloc`, `hipMalloc`). Their contents are unspecified.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where the device has no textures, as for [`array`](Self::array);
    /// [`ErrorKind::InvalidArgument`] for no texels; [`ErrorKind::OutOfMemory`], after memory that was freed went back to the
    /// driver.
    #[track_caller]
    pub fn texel_buffer<T: Texel>(&self, len: usize) -> Result<TexelBuffer<T>> {
        named(call_site("texel_buffer"), || {
            reentrancy::check_outside()?;
            check_textures(self)?;
            if len == 0 {
                return Err(Error::new(
                    ErrorKind::InvalidArgument,
                    "a buffer of no texels has no texture; allocate one",
                ));
            }
            let bytes = byte_len::<T>(len)?;
            let block = self.0.pools.texels(&*self.0, T::FORMAT, bytes)?;
            Ok(TexelBuffer { memory: Arc::new(Owned::new(self, block)), len, element: PhantomData })
        })
    }
}

impl<T: Texel> TexelBuffer<T> {
    /// Makes a texture of the buffer, for `tex1Dfetch` (`cuTexObjectCreate`, `hipTexObjectCreate`). A fetch beside the buffer
    /// is zero.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for options that matter to coordinates, of which `tex1Dfetch` has none, and for
    /// normalised values of 32 bits or of floating-point numbers. [`ErrorKind::Driver`], or
    /// [`ErrorKind::InvalidArgument`], where the buffer is longer than the device's textures.
    #[track_caller]
    pub fn texture(&self, options: TextureOptions) -> Result<Texture> {
        named(call_site("texture"), || {
            let plain = TextureOptions::default().normalized_values(options.normalized_values);
            if options.filter != FilterMode::Point || options != plain {
                return Err(Error::new(
                    ErrorKind::InvalidArgument,
                    "`tex1Dfetch` takes a texel's number: filters, address modes and normalised coordinates are for textures of \
                 arrays",
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
