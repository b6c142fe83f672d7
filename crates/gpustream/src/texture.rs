//! Arrays, and the textures through which kernels read them.

use std::any::type_name;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use gpustream_core::memory::{Access, ArrayMemory};
use gpustream_core::operation::{DriverCalls, call_site, named};
use gpustream_core::reentrancy;
use gpustream_core::track::Mode;
use gpustream_hal::{
    ArrayShape, CallSite, Channel, CopyEnd, Error, ErrorKind, FilterMode, RawTexture, Result, TexelFormat,
    TextureOptions, Work,
};

use crate::buffer::Owned;
use crate::copy::check_lengths;
use crate::device::Device;
use crate::plain::Plain;
use crate::stream::Stream;
use crate::strided::{Pitched, StridedEnd, copy_between};
use crate::surface::Surface;
use crate::view::{AsView, AsViewMut, View};

/// The types that a texel can have: `u8`, `i8`, `u16`, `i16`, `u32`, `i32`, [`f16`](half::f16) and `f32`, and arrays of two or
/// four of one of these (`uchar4`, `float2`).
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a texel",
    note = "texels are `u8`, `i8`, `u16`, `i16`, `u32`, `i32`, `f16`, `f32`, or `[T; 2]` and `[T; 4]` of one of these"
)]
pub trait Texel: Plain + sealed::Texel {
    /// The texel's format, as drivers describe it.
    const FORMAT: TexelFormat;
}

mod sealed {
    pub trait Texel {}
}

macro_rules! texels {
    ($($scalar:ty: $channel:ident),*) => {$(
        texels!(@ $scalar, $channel, 1);
        texels!(@ [$scalar; 2], $channel, 2);
        texels!(@ [$scalar; 4], $channel, 4);
    )*};
    (@ $ty:ty, $channel:ident, $channels:literal) => {
        impl sealed::Texel for $ty {}
        impl Texel for $ty {
            const FORMAT: TexelFormat = TexelFormat { channel: Channel::$channel, channels: $channels };
        }
    };
}
texels!(u8: U8, i8: I8, u16: U16, i16: I16, u32: U32, i32: I32, half::f16: F16, f32: F32);

/// Texels in one, two or three dimensions, or in layers of one or two dimensions. Made by [`Device::array`] and
/// [`Stream::upload_array`].
///
/// The device chooses the layout, so that neighbours in every dimension are near each other in memory. Kernels read an array
/// through a [`Texture`] and write it through a [`Surface`].
///
/// ```
/// use gpustream::{ArrayShape, FilterMode, TextureOptions};
/// # let device = gpustream::Device::open("cpu")?;
/// # let stream = device.stream()?;
/// let values: Vec<f32> = (0..64 * 48).map(|i| i as f32).collect();
/// let mut image = stream.upload_array(&values, ArrayShape::new_2d(64, 48))?;
/// let texture = image.texture(TextureOptions::default().filter(FilterMode::Linear))?;
/// // kernels.blur(&stream, &texture, &mut out, 64, 48)?;
/// let frame = stream.upload(&vec![0.0f32; 64 * 48])?;
/// stream.copy_to_array(&frame, &mut image)?;        // after the kernel, on whatever stream that was
/// assert_eq!(stream.download_array(&image)?, vec![0.0; 64 * 48]);
/// # let _ = texture;
/// # Ok::<(), gpustream::Error>(())
/// ```
///
/// We order operations on an array like those on other memory, also if they use it through a texture. But we track an array as
/// a whole, so operations on different parts of it wait for each other.
///
/// An `Array` is `Send` and `Sync`. Dropping it returns at once, and the array lives as long as a texture, a graph or work uses
/// it. Arrays are allocations of the driver. They do not appear in [`MemoryStats`](crate::MemoryStats), but they count against
/// [`DeviceOptions::memory_limit`](crate::DeviceOptions::memory_limit).
pub struct Array<T> {
    memory: Arc<Owned>,
    shape: ArrayShape,
    texels: usize,
    element: PhantomData<T>,
}

impl Device {
    /// Allocates an array (`cuArray3DCreate`, `hipArray3DCreate`). Its contents are unspecified. If there is no room, blocks
    /// until the device is idle, returns freed memory to the driver and tries again.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if [`DeviceFeatures::textures`](crate::DeviceFeatures::textures) says no, for example on
    /// AMD's gfx90a, gfx942 and gfx950, which have no image instructions. [`ErrorKind::InvalidArgument`] if an extent is zero
    /// or larger than the device allows, or if you ask for layers of three dimensions. [`ErrorKind::OutOfMemory`] if there is
    /// still no room then.
    #[track_caller]
    pub fn array<T: Texel>(&self, shape: ArrayShape) -> Result<Array<T>> {
        named(call_site("array"), || {
            reentrancy::check_outside()?;
            check_textures(self)?;
            let texels = check_shape(shape)?;
            let bytes = texels.checked_mul(T::FORMAT.size()).filter(|bytes| isize::try_from(*bytes).is_ok());
            let bytes = bytes.ok_or_else(|| {
                Error::new(
                    ErrorKind::OutOfMemory,
                    format!("an array of {texels} texels exceeds the address space; make it smaller"),
                )
            })?;
            let block = self.0.pools.array(&*self.0, shape, T::FORMAT, bytes)?;
            Ok(Array { memory: Arc::new(Owned::new(self, block)), shape, texels, element: PhantomData })
        })
    }
}

/// Returns how many texels there are.
fn check_shape(shape: ArrayShape) -> Result<usize> {
    let invalid = |message: String| Err(Error::new(ErrorKind::InvalidArgument, message));
    if shape.dimensions() == 3
        && let Some(layers) = shape.layer_count()
    {
        return invalid(format!(
            "you asked for {layers} layers of three dimensions, but layers can have only one or two; make an array for each"
        ));
    }
    match shape.texels() {
        Some(0) => invalid(format!(
            "an array of {} by {} by {} texels is empty; give each axis at least one texel",
            shape.width(),
            shape.height(),
            shape.slices()
        )),
        Some(texels) => Ok(texels),
        None => {
            let message = "an array of so many texels exceeds the address space; make it smaller";
            Err(Error::new(ErrorKind::OutOfMemory, message))
        }
    }
}

/// Checks that the device has textures.
pub(crate) fn check_textures(device: &Device) -> Result<()> {
    if device.info().features.textures { Ok(()) } else { Err(no_textures(device)) }
}

#[cold]
fn no_textures(device: &Device) -> Error {
    let info = device.info();
    let message = format!(
        "{} ({}) has no textures and surfaces, because its processors lack image instructions; let the kernel read a buffer there",
        info.name, info.arch
    );
    Error::new(ErrorKind::Unsupported, message).with_backend(info.backend)
}

impl<T: Texel> Array<T> {
    /// Returns the array's extent.
    pub fn shape(&self) -> ArrayShape {
        self.shape
    }

    /// Returns the number of texels.
    pub fn len(&self) -> usize {
        self.texels
    }

    /// Returns false, because an array always has texels.
    pub fn is_empty(&self) -> bool {
        self.texels == 0
    }

    /// Returns the device that the array belongs to.
    pub fn device(&self) -> &Device {
        &self.memory.device
    }

    /// Makes a texture of the array (`cuTexObjectCreate`, `hipTexObjectCreate`). The driver's object lives as long as the
    /// array, and if you make several textures with the same options, they share it.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if devices cannot combine the options: linear filtering of integers that are read as
    /// integers; normalised values of 32-bit or floating-point texels; wrapping or mirroring without normalised coordinates.
    #[track_caller]
    pub fn texture(&self, options: TextureOptions) -> Result<Texture> {
        named(call_site("texture"), || {
            check_options(T::FORMAT, options)?;
            let raw = memory_of(&self.memory)?.texture(&options)?;
            Ok(Texture::new(self.memory.clone(), raw, self.view().bytes().len()))
        })
    }

    /// Makes a surface of the array, through which kernels write texels (`cuSurfObjectCreate`, `hipCreateSurfaceObject`). The
    /// driver's object lives as long as the array, and all surfaces of the array share it.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`] if the driver cannot make the object.
    #[track_caller]
    pub fn surface(&self) -> Result<Surface> {
        let raw = named(call_site("surface"), || memory_of(&self.memory)?.surface())?;
        Ok(Surface::new(self.memory.clone(), raw, self.view().bytes().len()))
    }

    /// Returns the end of a copy that begins at the texel `at`.
    fn end(&self, at: [usize; 3]) -> Result<CopyEnd> {
        Ok(CopyEnd::Array { array: memory_of(&self.memory)?.raw()?, texel: size_of::<T>(), at })
    }

    /// Returns a view that only serves for checks and accesses, because an array has no address.
    fn view(&self) -> View<'_, T> {
        View::new(self.memory.block(), &self.memory.device, self.texels)
    }
}

pub(crate) fn memory_of(memory: &Owned) -> Result<&ArrayMemory> {
    let text = "this memory is neither an array nor texels, so it has no textures; please report this bug";
    memory.block().array().ok_or_else(|| Error::new(ErrorKind::Driver, text))
}

/// Checks that the options can be combined.
pub(crate) fn check_options(format: TexelFormat, options: TextureOptions) -> Result<()> {
    let TexelFormat { channel, .. } = format;
    let refused = |message: String| Err(Error::new(ErrorKind::InvalidArgument, message));
    if options.normalized_values && !(channel.is_integer() && channel.size() < 4) {
        return refused(format!(
            "texels of `{channel}` cannot be read as normalised numbers; use integers of 8 or 16 bits"
        ));
    }
    if options.filter == FilterMode::Linear && channel.is_integer() && !options.normalized_values {
        return refused(format!(
            "texels of `{channel}` that are read as integers cannot be filtered; set `normalized_values`, or use `f16` or \
             `f32`"
        ));
    }
    let repeats =
        |mode: &crate::AddressMode| matches!(mode, crate::AddressMode::Wrap | crate::AddressMode::Mirror);
    if !options.normalized_coordinates && options.address.iter().any(repeats) {
        return refused(
            "wrapping and mirroring need normalised coordinates; set `normalized_coordinates`, and let the kernel divide by \
             the extent"
                .into(),
        );
    }
    Ok(())
}

/// A texture: an array or a row of texels, together with the way in which kernels read them. Made by [`Array::texture`] and
/// [`TexelBuffer::texture`](crate::TexelBuffer::texture).
///
/// Kernels take a texture as `cudaTextureObject_t` or `hipTextureObject_t`. The handle does not say which type the texels have
/// or how many dimensions there are, so the kernel must know. If a kernel fetches something else, it gets unspecified values on
/// a GPU and ends with an error on the CPU.
///
/// A launch counts as reading all of the memory, so we order it with everything that writes there. A texture keeps its memory
/// alive. A clone is the same texture.
///
/// A `Texture` is `Send` and `Sync`. Dropping it returns at once, even if work is pending.
#[derive(Clone)]
pub struct Texture {
    memory: Arc<Owned>,
    raw: RawTexture,
    bytes: usize,
}

impl Texture {
    pub(crate) fn new(memory: Arc<Owned>, raw: RawTexture, bytes: usize) -> Self {
        Self { memory, raw, bytes }
    }

    /// Returns the device that the texture belongs to.
    pub fn device(&self) -> &Device {
        &self.memory.device
    }

    /// Returns the handle as kernels see it (`cudaTextureObject_t`). If you fetch through it, we cannot track that.
    pub fn as_raw(&self) -> u64 {
        self.raw.0 as u64
    }

    /// Returns what the kernel's parameter gets, how a launch uses the array, and the array's device.
    #[inline]
    pub(crate) fn argument(&self) -> (usize, Access<'_>, &Device) {
        (self.raw.0, access(&self.memory, self.bytes, Mode::Read), &self.memory.device)
    }
}

pub(crate) fn access(memory: &Owned, bytes: usize, mode: Mode) -> Access<'_> {
    Access { block: memory.block(), range: 0..bytes, mode }
}

impl Stream {
    /// Allocates an array and copies `values` into it, row by row and plane by plane. The host has read the slice when this
    /// call returns. Blocks as [`upload`](Self::upload) does.
    ///
    /// # Errors
    /// As for [`Device::array`] and [`upload`](Self::upload); [`ErrorKind::ArgumentMismatch`] if there are not as many values
    /// as texels.
    #[track_caller]
    pub fn upload_array<T: Texel>(&self, values: &[T], shape: ArrayShape) -> Result<Array<T>> {
        named(call_site("upload_array"), || check_lengths(values.len(), check_shape(shape)?))?;
        let staged = self.upload(values)?;
        let mut array = self.device.array(shape)?;
        self.copy_to_array(&staged, &mut array)?;
        Ok(array)
    }

    /// Copies an array to the host. Blocks until this copy is done, including the work that it depends on. It does not wait for
    /// anything else.
    ///
    /// # Errors
    /// As for [`download`](Self::download).
    #[track_caller]
    pub fn download_array<T: Texel>(&self, src: &Array<T>) -> Result<Vec<T>> {
        let mut staged = self.alloc(src.len())?;
        self.copy_from_array(src, &mut staged)?;
        self.download(&staged)
    }

    /// Copies device or pinned memory to an array, row by row and plane by plane, in the stream's order (`cuMemcpy3DAsync`).
    ///
    /// # Errors
    /// [`ErrorKind::ArgumentMismatch`] if there are not as many elements as texels; [`ErrorKind::Uninitialized`] if some of
    /// `src` was never written; [`ErrorKind::DeviceMismatch`] if something belongs to another device.
    #[track_caller]
    pub fn copy_to_array<T: Texel>(&self, src: &(impl AsView<T> + ?Sized), dst: &mut Array<T>) -> Result<()> {
        let src = src.view();
        named(call_site("copy_to_array"), || check_lengths(src.len(), dst.len()))?;
        let (dense, extent) = whole(dst.shape);
        self.copy_texels((&src, dense), (dst, [0; 3]), extent, Mode::Write, call_site("copy_to_array"))
    }

    /// Copies an array to device or pinned memory in the stream's order. This is [`copy_to_array`](Self::copy_to_array) in the
    /// other direction.
    ///
    /// # Errors
    /// As for [`copy_to_array`](Self::copy_to_array).
    #[track_caller]
    pub fn copy_from_array<T: Texel>(
        &self,
        src: &Array<T>,
        dst: &mut (impl AsViewMut<T> + ?Sized),
    ) -> Result<()> {
        let dst = dst.view_mut();
        named(call_site("copy_from_array"), || check_lengths(src.len(), dst.len()))?;
        let (dense, extent) = whole(src.shape);
        self.copy_texels(
            (&dst.view(), dense),
            (src, [0; 3]),
            extent,
            Mode::Read,
            call_site("copy_from_array"),
        )
    }

    /// Copies an array to another array of the same shape, in the stream's order.
    ///
    /// # Errors
    /// [`ErrorKind::ArgumentMismatch`] if the shapes differ; otherwise as for [`copy_to_array`](Self::copy_to_array).
    #[track_caller]
    pub fn copy_array<T: Texel>(&self, src: &Array<T>, dst: &mut Array<T>) -> Result<()> {
        let entry = self.enter(call_site("copy_array"))?;
        let (from, to) = (src.view(), dst.view());
        self.check_memory(&entry, &to)?;
        entry.named(check_shapes(src.shape, dst.shape))?;
        self.check_source(&entry, &from)?;
        let (_, extent) = whole(src.shape);
        let [to_end, from_end] =
            [dst.end([0; 3])?, src.end([0; 3])?].map(|end| StridedEnd { end, pitch: 0, rows: 0 });
        let copy = copy_between::<T>(to_end, from_end, extent);
        let accesses = [&from.access(Mode::Read), &to.access(Mode::Write)];
        // SAFETY: these are two different arrays of one shape, because one is borrowed exclusively. Neither is freed before
        // this use is done.
        unsafe { entry.submit_call(&accesses, DriverCalls::Work(Work::Copy3d(&copy))) }
    }

    /// Copies a box of `[width, height, depth]` elements from device or pinned memory to the texels of an array, beginning at
    /// `at`, in the stream's order. The third number counts planes or layers.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfBounds`] if a box reaches beyond its memory or array; [`ErrorKind::InvalidArgument`] if its rows or
    /// planes overlap; otherwise as for [`copy_to_array`](Self::copy_to_array).
    #[track_caller]
    pub fn copy_box_to_array<T: Texel>(
        &self,
        src: &(impl AsView<T> + ?Sized),
        src_box: Pitched,
        dst: &mut Array<T>,
        at: [usize; 3],
        extent: [usize; 3],
    ) -> Result<()> {
        self.copy_texels(
            (&src.view(), src_box),
            (dst, at),
            extent,
            Mode::Write,
            call_site("copy_box_to_array"),
        )
    }

    /// Copies texels of an array, beginning at `at`, to a box of device or pinned memory, in the stream's order.
    ///
    /// # Errors
    /// As for [`copy_box_to_array`](Self::copy_box_to_array).
    #[track_caller]
    pub fn copy_box_from_array<T: Texel>(
        &self,
        src: &Array<T>,
        at: [usize; 3],
        dst: &mut (impl AsViewMut<T> + ?Sized),
        dst_box: Pitched,
        extent: [usize; 3],
    ) -> Result<()> {
        let dst = dst.view_mut();
        self.copy_texels(
            (&dst.view(), dst_box),
            (src, at),
            extent,
            Mode::Read,
            call_site("copy_box_from_array"),
        )
    }

    /// Copies between memory and an array. `mode` says whether the copy reads or writes the array.
    fn copy_texels<T: Texel>(
        &self,
        (memory, place): (&View<'_, T>, Pitched),
        (array, at): (&Array<T>, [usize; 3]),
        extent: [usize; 3],
        mode: Mode,
        call_site: CallSite,
    ) -> Result<()> {
        let entry = self.enter(call_site)?;
        let texels = array.view();
        self.check_memory(&entry, memory)?;
        self.check_memory(&entry, &texels)?;
        let span = entry.named(place.span(memory, extent, "memory"))?;
        entry.named(check_inside(array.shape, at, extent))?;
        if extent.contains(&0) {
            return Ok(());
        }
        let (copied, writes) = (place.end_of(&span, extent)?, mode == Mode::Write);
        if writes {
            self.check_box(&entry, memory, &span, place, extent)?;
        } else {
            self.check_source(&entry, &texels)?;
        }
        let end = StridedEnd { end: array.end(at)?, ..copied };
        let (dst, src) = if writes { (end, copied) } else { (copied, end) };
        let copy = copy_between::<T>(dst, src, extent);
        let other = if writes { Mode::Read } else { Mode::Write };
        let accesses = [&span.access(other), &texels.access(mode)];
        // SAFETY: every row is in the array and in the span, which is in a live block. Neither is freed before this use is
        // done, and host access waits for the use that we enter with the tracker.
        unsafe { entry.submit_call(&accesses, DriverCalls::Work(Work::Copy3d(&copy))) }
    }
}

/// Returns an array's extent, and a box of that extent in memory without gaps.
fn whole(shape: ArrayShape) -> (Pitched, [usize; 3]) {
    (Pitched::new_3d(shape.width(), shape.height()), [shape.width(), shape.height(), shape.slices()])
}

fn check_shapes(src: ArrayShape, dst: ArrayShape) -> Result<()> {
    if src == dst {
        return Ok(());
    }
    let message = format!(
        "the arrays have different shapes, {src} and {dst}; copy a box of one through a buffer instead"
    );
    Err(Error::new(ErrorKind::ArgumentMismatch, message))
}

fn check_inside(shape: ArrayShape, at: [usize; 3], extent: [usize; 3]) -> Result<()> {
    let (_, all) = whole(shape);
    let is_inside = |axis: usize| at[axis].checked_add(extent[axis]).is_some_and(|end| end <= all[axis]);
    if (0..3).all(is_inside) {
        return Ok(());
    }
    let message = format!(
        "a box of {extent:?} texels at {at:?} is not inside an array of {all:?} texels; make it smaller, or move it"
    );
    Err(Error::new(ErrorKind::OutOfBounds, message))
}

impl<T: Texel> fmt::Debug for Array<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Array<{}>({})", type_name::<T>(), self.shape)
    }
}

impl fmt::Debug for Texture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Texture({:#x})", self.raw.0)
    }
}
