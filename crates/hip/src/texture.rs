//! Arrays, textures and surfaces.

use std::ptr;

use gpustream_hal::{
    AddressMode, ArrayShape, Channel, FilterMode, RawArray, RawSurface, RawTexture, Result, TexelFormat,
    TextureOptions, TextureSource, Textures,
};

use crate::device::HipDevice;
#[allow(clippy::wildcard_imports)] // Flags and structs under HIP's own names.
use crate::ffi::*;
use crate::handle::array_of;

// SAFETY: the device clamps every fetch. If a surface access misses the array, the device drops it.
unsafe impl Textures for HipDevice {
    /// Creates an array through the driver-style function, because `hipMalloc3DArray` takes channels by their bits.
    fn array_create(&self, shape: ArrayShape, format: TexelFormat) -> Result<RawArray> {
        let api = self.enter()?;
        let has = |dimension: u32, extent| if shape.dimensions() >= dimension { extent } else { 0 };
        let mut flags = hipArraySurfaceLoadStore;
        if shape.layer_count().is_some() {
            flags |= hipArrayLayered;
        }
        let description = HIP_ARRAY3D_DESCRIPTOR {
            Width: shape.width(),
            Height: has(2, shape.height()),
            Depth: shape.layer_count().unwrap_or(has(3, shape.depth())),
            Format: channel(format.channel),
            NumChannels: format.channels,
            Flags: flags,
        };
        let mut array = ptr::null_mut();
        // SAFETY: both pointers are to locals.
        unsafe { api.hipArray3DCreate(&raw mut array, &raw const description) }.ok()?;
        Ok(RawArray(array as usize))
    }

    unsafe fn array_destroy(&self, array: RawArray) -> Result<()> {
        let api = self.enter()?;
        // SAFETY: the caller vouches that the array is one of ours and out of use.
        unsafe { api.hipArrayDestroy(array_of(array)) }.ok()
    }

    unsafe fn texture_create(
        &self,
        source: TextureSource,
        format: TexelFormat,
        options: &TextureOptions,
    ) -> Result<RawTexture> {
        let api = self.enter()?;
        let mut resource = HIP_RESOURCE_DESC { resType: hipResourceTypeArray, res: [0; 16], flags: 0 };
        match source {
            TextureSource::Array(array) => resource.res[0] = array.0 as u64,
            TextureSource::Linear { buffer, bytes } => {
                resource.resType = hipResourceTypeLinear;
                let format = u64::from(channel(format.channel)) | u64::from(format.channels) << 32;
                resource.res[..3].copy_from_slice(&[buffer.0 as u64, format, bytes as u64]);
            }
        }
        let mut flags = 0;
        if format.channel.is_integer() && !options.normalized_values {
            flags |= HIP_TRSF_READ_AS_INTEGER;
        }
        if options.normalized_coordinates {
            flags |= HIP_TRSF_NORMALIZED_COORDINATES;
        }
        let description = HIP_TEXTURE_DESC {
            addressMode: options.address.map(|mode| match mode {
                AddressMode::Wrap => HIP_TR_ADDRESS_MODE_WRAP,
                AddressMode::Clamp => HIP_TR_ADDRESS_MODE_CLAMP,
                AddressMode::Mirror => HIP_TR_ADDRESS_MODE_MIRROR,
                AddressMode::Border => HIP_TR_ADDRESS_MODE_BORDER,
            }),
            filterMode: match options.filter {
                FilterMode::Point => HIP_TR_FILTER_MODE_POINT,
                FilterMode::Linear => HIP_TR_FILTER_MODE_LINEAR,
            },
            flags,
            maxAnisotropy: 0,
            mipmapFilterMode: HIP_TR_FILTER_MODE_POINT,
            mipmapLevelBias: 0.0,
            minMipmapLevelClamp: 0.0,
            maxMipmapLevelClamp: 0.0,
            borderColor: [0.0; 4],
            reserved: [0; 12],
        };
        let mut texture = ptr::null_mut();
        // SAFETY: the pointers are to locals; the caller vouches for the source and its format.
        unsafe {
            api.hipTexObjectCreate(&raw mut texture, &raw const resource, &raw const description, ptr::null())
        }
        .ok()?;
        Ok(RawTexture(texture as usize))
    }

    unsafe fn texture_destroy(&self, texture: RawTexture) -> Result<()> {
        let api = self.enter()?;
        // SAFETY: the caller vouches that the texture is one of ours and out of use.
        unsafe { api.hipTexObjectDestroy(texture.0 as hipTextureObject_t) }.ok()
    }

    unsafe fn surface_create(&self, array: RawArray) -> Result<RawSurface> {
        let api = self.enter()?;
        let mut resource = hipResourceDesc { resType: hipResourceTypeArray, res: [0; 7] };
        resource.res[0] = array.0 as u64;
        let mut surface = ptr::null_mut();
        // SAFETY: the pointers are to locals; the caller vouches for the array.
        unsafe { api.hipCreateSurfaceObject(&raw mut surface, &raw const resource) }.ok()?;
        Ok(RawSurface(surface as usize))
    }

    unsafe fn surface_destroy(&self, surface: RawSurface) -> Result<()> {
        let api = self.enter()?;
        // SAFETY: the caller vouches that the surface is one of ours and out of use.
        unsafe { api.hipDestroySurfaceObject(surface.0 as hipSurfaceObject_t) }.ok()
    }
}

const fn channel(channel: Channel) -> hipArray_Format {
    match channel {
        Channel::U8 => HIP_AD_FORMAT_UNSIGNED_INT8,
        Channel::I8 => HIP_AD_FORMAT_SIGNED_INT8,
        Channel::U16 => HIP_AD_FORMAT_UNSIGNED_INT16,
        Channel::I16 => HIP_AD_FORMAT_SIGNED_INT16,
        Channel::U32 => HIP_AD_FORMAT_UNSIGNED_INT32,
        Channel::I32 => HIP_AD_FORMAT_SIGNED_INT32,
        Channel::F16 => HIP_AD_FORMAT_HALF,
        Channel::F32 => HIP_AD_FORMAT_FLOAT,
    }
}
