//! Arrays, which a device lays out for itself, and the objects by which kernels reach them: textures and surfaces.

use std::fmt;

use crate::handle::RawBuffer;
use crate::{Error, Result};

pub use crate::handle::{RawArray, RawSurface, RawTexture};

/// The type of a texel's channels.
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

    /// Returns whether a texture hands the channel out as an integer, unless it is read as a normalised number.
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
    /// Width, height and depth; 1 along an axis that the array lacks.
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

    /// Makes the array one of so many layers of this shape, which has one or two dimensions.
    #[must_use]
    pub const fn layers(mut self, layers: usize) -> Self {
        self.layers = Some(layers);
        self
    }

    /// Returns the texels of a row.
    #[must_use]
    pub const fn width(&self) -> usize {
        self.extent[0]
    }

    /// Returns the rows; 1 for an array of one dimension.
    #[must_use]
    pub const fn height(&self) -> usize {
        self.extent[1]
    }

    /// Returns the planes; 1 for an array of one or two dimensions.
    #[must_use]
    pub const fn depth(&self) -> usize {
        self.extent[2]
    }

    /// Returns the number of layers, if the array has layers.
    #[must_use]
    pub const fn layer_count(&self) -> Option<usize> {
        self.layers
    }

    /// Returns the number of dimensions of the array, or of each of its layers.
    #[must_use]
    pub const fn dimensions(&self) -> u32 {
        self.dimensions
    }

    /// Returns the planes or layers that lie one behind another.
    #[must_use]
    pub const fn slices(&self) -> usize {
        match self.layers {
            Some(layers) => layers,
            None => self.extent[2],
        }
    }

    /// Returns the number of texels; `None` if it overflows.
    #[must_use]
    pub fn texels(&self) -> Option<usize> {
        self.width().checked_mul(self.height())?.checked_mul(self.slices())
    }
}

/// The value of a texture beside its texels (`CUaddress_mode`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AddressMode {
    /// The texture repeats. Needs normalised coordinates.
    Wrap,
    /// The texel at the edge.
    #[default]
    Clamp,
    /// The texture repeats, every other time mirrored. Needs normalised coordinates.
    Mirror,
    /// Zero.
    Border,
}

/// The way from a coordinate to a value (`CUfilter_mode`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FilterMode {
    /// The texel that the coordinate lies in.
    #[default]
    Point,
    /// The mean of the nearest two texels of each dimension, weighted by distance in steps of 1/256. Texels are
    /// read as floating-point numbers.
    Linear,
}

/// The way in which a texture is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct TextureOptions {
    /// The value beside the texels, along each axis.
    pub address: [AddressMode; 3],
    /// The way from a coordinate to a value.
    pub filter: FilterMode,
    /// Whether coordinates run from 0 to 1 along each axis, else from 0 to the number of texels.
    pub normalized_coordinates: bool,
    /// Whether texels of 8 or 16 bits are read as numbers from 0 to 1, or from -1 to 1 where they have a sign
    /// (`cudaReadModeNormalizedFloat`), else as they are.
    pub normalized_values: bool,
}

impl TextureOptions {
    /// Sets the value beside the texels, along every axis.
    #[must_use]
    pub const fn address(self, mode: AddressMode) -> Self {
        self.address_of_axes([mode; 3])
    }

    /// Sets the value beside the texels along x, y and z.
    #[must_use]
    pub const fn address_of_axes(mut self, modes: [AddressMode; 3]) -> Self {
        self.address = modes;
        self
    }

    /// Sets the way from a coordinate to a value.
    #[must_use]
    pub const fn filter(mut self, filter: FilterMode) -> Self {
        self.filter = filter;
        self
    }

    /// Sets whether coordinates run from 0 to 1.
    #[must_use]
    pub const fn normalized_coordinates(mut self, normalized: bool) -> Self {
        self.normalized_coordinates = normalized;
        self
    }

    /// Sets whether texels of 8 or 16 bits are read as numbers from 0 or -1 to 1.
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

/// Creation of arrays, textures and surfaces. They have no order with streams; copies are
/// [`copy_3d`](crate::Buffers::copy_3d)'s.
///
/// # Safety
/// The safe crate lets any kernel fetch from any texture, and read and write any surface. An implementor promises that
/// no coordinate and no type of an element leads outside of the array or the linear memory.
#[expect(unused_variables, reason = "the names in the defaults are documentation")]
pub unsafe trait Textures {
    /// Allocates an array that textures and surfaces can be made of (`cuArray3DCreate`, `hipArray3DCreate`). No extent
    /// is zero. Contents are unspecified.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) without textures; [`OutOfMemory`](crate::ErrorKind::OutOfMemory);
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for an extent that is more than the driver takes.
    fn array_create(&self, shape: ArrayShape, format: TexelFormat) -> Result<RawArray> {
        Err(Error::unsupported("arrays and textures"))
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
        Err(Error::unsupported("arrays and textures"))
    }

    /// Makes a texture of texels of this format (`cuTexObjectCreate`, `hipTexObjectCreate`).
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) if the device has no textures; otherwise the driver's failure, as
    /// for linear memory that is longer than its textures.
    ///
    /// # Safety
    /// The source is alive, and its texels have this format. The options go together: linear filtering where values are
    /// floating-point numbers, normalised values where channels are integers of 8 or 16 bits, and wrapping and mirroring
    /// where coordinates are normalised.
    unsafe fn texture_create(
        &self,
        source: TextureSource,
        format: TexelFormat,
        options: &TextureOptions,
    ) -> Result<RawTexture> {
        Err(Error::unsupported("arrays and textures"))
    }

    /// Destroys a texture (`cuTexObjectDestroy`, `hipTexObjectDestroy`).
    ///
    /// # Errors
    /// The driver's failure.
    ///
    /// # Safety
    /// `texture` came from [`texture_create`](Self::texture_create) of this device; all work that uses it is done.
    unsafe fn texture_destroy(&self, texture: RawTexture) -> Result<()> {
        Err(Error::unsupported("arrays and textures"))
    }

    /// Makes a surface of an array (`cuSurfObjectCreate`, `hipCreateSurfaceObject`).
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) if the device has no surfaces; otherwise the driver's failure.
    ///
    /// # Safety
    /// The array is alive.
    unsafe fn surface_create(&self, array: RawArray) -> Result<RawSurface> {
        Err(Error::unsupported("surfaces"))
    }

    /// Destroys a surface (`cuSurfObjectDestroy`, `hipDestroySurfaceObject`).
    ///
    /// # Errors
    /// The driver's failure.
    ///
    /// # Safety
    /// `surface` came from [`surface_create`](Self::surface_create) of this device; all work that uses it is done.
    unsafe fn surface_destroy(&self, surface: RawSurface) -> Result<()> {
        Err(Error::unsupported("surfaces"))
    }
}
