//! Arrays, and the textures and surfaces that kernels need to reach them. The device decides how an array is laid out, so
//! you cannot address its bytes.

use std::fmt;

use crate::handle::RawBuffer;
use crate::{Error, Result};

pub use crate::handle::{RawArray, RawSurface, RawTexture};

/// The type of a channel in a texel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Channel {
    /// Unsigned, 8 bits.
    U8,
    /// Signed, 8 bits.
    I8,
    /// Unsigned, 16 bits.
    U16,
    /// Signed, 16 bits.
    I16,
    /// Unsigned, 32 bits.
    U32,
    /// Signed, 32 bits.
    I32,
    /// Half precision.
    F16,
    /// Single precision.
    F32,
}

impl Channel {
    /// Returns the size in bytes.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::U8 | Self::I8 => 1,
            Self::U16 | Self::I16 | Self::F16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
        }
    }

    /// Returns true if kernels read the channel as an integer, unless you ask for normalised numbers.
    #[must_use]
    pub const fn is_integer(self) -> bool {
        !matches!(self, Self::F16 | Self::F32)
    }
}

impl fmt::Display for Channel {
    /// `u8`, `f32`: the type in Rust.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::U8 => "u8",
            Self::I8 => "i8",
            Self::U16 => "u16",
            Self::I16 => "i16",
            Self::U32 => "u32",
            Self::I32 => "i32",
            Self::F16 => "f16",
            Self::F32 => "f32",
        })
    }
}

/// The type of a texel: one, two or four channels of one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TexelFormat {
    /// The type of each channel.
    pub channel: Channel,
    /// 1, 2 or 4.
    pub channels: u32,
}

impl TexelFormat {
    /// Returns the size in bytes.
    #[must_use]
    pub const fn size(self) -> usize {
        self.channel.size() * self.channels as usize
    }
}

/// The extent of an array in texels: one, two or three dimensions, or layers of one or two.
///
/// ```
/// use gpustream_hal::ArrayShape;
/// let stack = ArrayShape::new_2d(640, 480).layers(8);
/// assert_eq!((stack.width(), stack.height(), stack.layer_count()), (640, 480, Some(8)));
/// assert_eq!(stack.to_string(), "640 × 480 texels in 8 layers");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ArrayShape {
    /// Width, height and depth; 1 along an axis that the array does not have.
    extent: [usize; 3],
    dimensions: u32,
    layers: Option<usize>,
}

impl fmt::Display for ArrayShape {
    /// `640 × 480 texels`, `640 × 480 texels in 8 layers`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let axes = &self.extent[..self.dimensions as usize];
        let axes: Vec<String> = axes.iter().map(usize::to_string).collect();
        write!(f, "{} texels", axes.join(" × "))?;
        self.layers.map_or(Ok(()), |layers| write!(f, " in {layers} layers"))
    }
}

impl ArrayShape {
    /// Makes the shape of a row.
    #[must_use]
    pub const fn new_1d(width: usize) -> Self {
        Self { extent: [width, 1, 1], dimensions: 1, layers: None }
    }

    /// Makes the shape of an image.
    #[must_use]
    pub const fn new_2d(width: usize, height: usize) -> Self {
        Self { extent: [width, height, 1], dimensions: 2, layers: None }
    }

    /// Makes the shape of a volume.
    #[must_use]
    pub const fn new_3d(width: usize, height: usize, depth: usize) -> Self {
        Self { extent: [width, height, depth], dimensions: 3, layers: None }
    }

    /// Makes this an array of `layers` layers, each of this shape. The shape must have one or two dimensions.
    #[must_use]
    pub const fn layers(mut self, layers: usize) -> Self {
        self.layers = Some(layers);
        self
    }

    /// Returns how many texels a row has.
    #[must_use]
    pub const fn width(&self) -> usize {
        self.extent[0]
    }

    /// Returns how many rows there are; 1 for an array of one dimension.
    #[must_use]
    pub const fn height(&self) -> usize {
        self.extent[1]
    }

    /// Returns how many planes there are; 1 for an array of one or two dimensions.
    #[must_use]
    pub const fn depth(&self) -> usize {
        self.extent[2]
    }

    /// Returns how many layers there are, if the array has layers.
    #[must_use]
    pub const fn layer_count(&self) -> Option<usize> {
        self.layers
    }

    /// Returns how many dimensions the array has, or each of its layers.
    #[must_use]
    pub const fn dimensions(&self) -> u32 {
        self.dimensions
    }

    /// Returns how many planes or layers there are.
    #[must_use]
    pub const fn slices(&self) -> usize {
        match self.layers {
            Some(layers) => layers,
            None => self.extent[2],
        }
    }

    /// Returns how many texels there are, or `None` if the number overflows.
    #[must_use]
    pub fn texels(&self) -> Option<usize> {
        self.width().checked_mul(self.height())?.checked_mul(self.slices())
    }
}

/// What a texture returns outside its texels (`CUaddress_mode`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AddressMode {
    /// The texture repeats. You must use normalised coordinates.
    Wrap,
    /// The texel at the edge.
    #[default]
    Clamp,
    /// The texture repeats, mirrored every other time. You must use normalised coordinates.
    Mirror,
    /// Zero.
    Border,
}

/// How a coordinate becomes a value (`CUfilter_mode`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FilterMode {
    /// The texel that the coordinate lies in.
    #[default]
    Point,
    /// The mean of the two nearest texels along each dimension, weighted by distance in steps of 1/256. The texels must be
    /// read as floating-point numbers.
    Linear,
}

/// How kernels read a texture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct TextureOptions {
    /// What the texture returns outside its texels, for each axis.
    pub address: [AddressMode; 3],
    /// How a coordinate becomes a value.
    pub filter: FilterMode,
    /// True if coordinates go from 0 to 1 along each axis, false if they go from 0 to the number of texels.
    pub normalized_coordinates: bool,
    /// True if texels of 8 or 16 bits are read as numbers from 0 to 1, or from -1 to 1 if they are signed
    /// (`cudaReadModeNormalizedFloat`). False if they are read as they are.
    pub normalized_values: bool,
}

impl TextureOptions {
    /// Sets what the texture returns outside its texels, for all axes.
    #[must_use]
    pub const fn address(self, mode: AddressMode) -> Self {
        self.address_of_axes([mode; 3])
    }

    /// Sets what the texture returns outside its texels, for x, y and z.
    #[must_use]
    pub const fn address_of_axes(mut self, modes: [AddressMode; 3]) -> Self {
        self.address = modes;
        self
    }

    /// Sets how a coordinate becomes a value.
    #[must_use]
    pub const fn filter(mut self, filter: FilterMode) -> Self {
        self.filter = filter;
        self
    }

    /// Sets whether coordinates go from 0 to 1.
    #[must_use]
    pub const fn normalized_coordinates(mut self, normalized: bool) -> Self {
        self.normalized_coordinates = normalized;
        self
    }

    /// Sets whether texels of 8 or 16 bits are read as numbers from 0 to 1, or from -1 to 1.
    #[must_use]
    pub const fn normalized_values(mut self, normalized: bool) -> Self {
        self.normalized_values = normalized;
        self
    }
}

/// The memory that a texture reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextureSource {
    /// An array.
    Array(RawArray),
    /// Texels in a row in device memory, for `tex1Dfetch`.
    Linear {
        /// The first byte.
        buffer: RawBuffer,
        /// Length.
        bytes: usize,
    },
}

/// Making arrays, textures and surfaces. These calls are not ordered with streams. To copy to or from an array, use
/// [`copy_3d`](crate::Buffers::copy_3d).
///
/// # Safety
/// The safe crate lets any kernel fetch from any texture, and read and write any surface. So if you implement this, you
/// promise that no coordinate and no element type leads outside the array or the linear memory.
#[expect(unused_variables, reason = "the names in the defaults are documentation")]
pub unsafe trait Textures {
    /// Allocates an array for textures and surfaces (`cuArray3DCreate`, `hipArray3DCreate`). No extent may be zero. The
    /// contents are unspecified.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) if the device has no textures;
    /// [`OutOfMemory`](crate::ErrorKind::OutOfMemory); [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if an extent
    /// is larger than the driver takes.
    fn array_create(&self, shape: ArrayShape, format: TexelFormat) -> Result<RawArray> {
        Err(Error::unsupported("an array or texture"))
    }

    /// Frees an array (`cuArrayDestroy`, `hipArrayDestroy`).
    ///
    /// # Errors
    /// The driver's failure.
    ///
    /// # Safety
    /// `array` came from [`array_create`](Self::array_create) of this device; all work that uses it is done, and its
    /// textures and surfaces are destroyed.
    unsafe fn array_destroy(&self, array: RawArray) -> Result<()> {
        Err(Error::unsupported("an array or texture"))
    }

    /// Makes a texture from texels of this format (`cuTexObjectCreate`, `hipTexObjectCreate`).
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) if the device has no textures; otherwise the driver's failure, for
    /// example because the linear memory is longer than a texture can be.
    ///
    /// # Safety
    /// The source is alive, and its texels have this format. The options go together: filtering is only linear if values
    /// are floating-point numbers, values are only normalised if channels are integers of 8 or 16 bits, and textures only
    /// wrap or mirror if coordinates are normalised.
    unsafe fn texture_create(
        &self,
        source: TextureSource,
        format: TexelFormat,
        options: &TextureOptions,
    ) -> Result<RawTexture> {
        Err(Error::unsupported("an array or texture"))
    }

    /// Destroys a texture (`cuTexObjectDestroy`, `hipTexObjectDestroy`).
    ///
    /// # Errors
    /// The driver's failure.
    ///
    /// # Safety
    /// `texture` came from [`texture_create`](Self::texture_create) of this device; all work that uses it is done.
    unsafe fn texture_destroy(&self, texture: RawTexture) -> Result<()> {
        Err(Error::unsupported("an array or texture"))
    }

    /// Makes a surface for an array (`cuSurfObjectCreate`, `hipCreateSurfaceObject`).
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) if the device has no surfaces; otherwise the driver's failure.
    ///
    /// # Safety
    /// The array is alive.
    unsafe fn surface_create(&self, array: RawArray) -> Result<RawSurface> {
        Err(Error::unsupported("a surface"))
    }

    /// Destroys a surface (`cuSurfObjectDestroy`, `hipDestroySurfaceObject`).
    ///
    /// # Errors
    /// The driver's failure.
    ///
    /// # Safety
    /// `surface` came from [`surface_create`](Self::surface_create) of this device; all work that uses it is done.
    unsafe fn surface_destroy(&self, surface: RawSurface) -> Result<()> {
        Err(Error::unsupported("a surface"))
    }
}
