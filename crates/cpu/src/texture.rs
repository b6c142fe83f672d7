//! Arrays, textures and surfaces: rows of texels in plain memory, which kernels sample in software
//! (`kernels/include/gpustream/cpu/textures.cuh`).

use gpustream_hal::{
    AddressMode, ArrayShape, ErrorKind, FilterMode, RawArray, RawBuffer, RawSurface, RawTexture, Result,
    TexelFormat, TextureOptions, TextureSource, Textures,
};

use crate::abi::Image;
use crate::device::CpuDevice;
use crate::error::error;

/// Returns the number that kernels use for an address mode. It is the same as CUDA's.
const fn address(mode: AddressMode) -> u8 {
    match mode {
        AddressMode::Wrap => 0,
        AddressMode::Clamp => 1,
        AddressMode::Mirror => 2,
        AddressMode::Border => 3,
    }
}

/// Hands an image to kernels. They know it by its address.
fn give(image: Image) -> usize {
    Box::into_raw(Box::new(image)) as usize
}

/// Takes an image back, and drops it.
///
/// # Safety
/// `address` must come from [`give`], and the image must no longer be used.
unsafe fn take_back(address: usize) {
    // SAFETY: by this function's contract.
    drop(unsafe { Box::from_raw(address as *mut Image) });
}

// SAFETY: the kernels' fetches and surface accesses compare every coordinate with the image's extents, and
// the element type with the texels'.
unsafe impl Textures for CpuDevice {
    fn array_create(&self, shape: ArrayShape, format: TexelFormat) -> Result<RawArray> {
        self.shared.alive()?;
        let extent = [shape.width(), shape.height(), shape.slices()];
        let bytes = shape.texels().and_then(|texels| texels.checked_mul(format.size()));
        let bytes = bytes.ok_or_else(|| {
            error(
                ErrorKind::OutOfMemory,
                format!("an array of {extent:?} texels is larger than the address space; make it smaller"),
            )
        })?;
        let data = self.shared.memory.alloc(bytes, "array").map_err(|error| {
            error.with_context(format_args!("no room for the {bytes} bytes of an array of {extent:?} texels"))
        })?;
        let mut image = Image::new(data, extent, format);
        image.dimensions = shape.dimensions() as u8;
        image.layered = shape.layer_count().is_some().into();
        Ok(RawArray(give(image)))
    }

    unsafe fn array_destroy(&self, array: RawArray) -> Result<()> {
        self.shared.not_forked()?;
        // SAFETY: the caller vouches that the array is one of ours and out of use.
        unsafe {
            let data = (*(array.0 as *const Image)).data as usize;
            take_back(array.0);
            self.shared.memory.free(data)
        }
    }

    unsafe fn texture_create(
        &self,
        source: TextureSource,
        format: TexelFormat,
        options: &TextureOptions,
    ) -> Result<RawTexture> {
        self.shared.alive()?;
        let mut image = match source {
            // SAFETY: the caller vouches for the array.
            TextureSource::Array(array) => unsafe { *(array.0 as *const Image) },
            TextureSource::Linear { buffer: RawBuffer(address), bytes } => {
                let mut image = Image::new(address, [bytes / format.size(), 1, 1], format);
                (image.dimensions, image.linear) = (1, 1);
                image
            }
        };
        image.address = options.address.map(address);
        image.filter = u8::from(options.filter == FilterMode::Linear);
        image.normalized_coordinates = options.normalized_coordinates.into();
        image.normalized_values = options.normalized_values.into();
        Ok(RawTexture(give(image)))
    }

    unsafe fn texture_destroy(&self, texture: RawTexture) -> Result<()> {
        // SAFETY: the caller vouches that the texture is one of ours and out of use.
        unsafe { take_back(texture.0) };
        Ok(())
    }

    unsafe fn surface_create(&self, array: RawArray) -> Result<RawSurface> {
        self.shared.alive()?;
        // SAFETY: the caller vouches for the array.
        let array = unsafe { *(array.0 as *const Image) };
        Ok(RawSurface(give(Image { surface: 1, ..array })))
    }

    unsafe fn surface_destroy(&self, surface: RawSurface) -> Result<()> {
        // SAFETY: the caller vouches that the surface is one of ours and out of use.
        unsafe { take_back(surface.0) };
        Ok(())
    }
}
