//! Arrays, textures and surfaces.

use std::ptr;

use cudarc::driver::sys::{
    self, CUDA_ARRAY3D_DESCRIPTOR, CUDA_RESOURCE_DESC, CUDA_RESOURCE_DESC_st__bindgen_ty_1,
    CUDA_RESOURCE_DESC_st__bindgen_ty_1__bindgen_ty_1 as OfArray,
    CUDA_RESOURCE_DESC_st__bindgen_ty_1__bindgen_ty_3 as OfLinear,
    CUDA_RESOURCE_DESC_st__bindgen_ty_1__bindgen_ty_5 as Reserved, CUDA_TEXTURE_DESC, CUaddress_mode,
    CUarray_format, CUfilter_mode, CUresourcetype,
};
use gpustream_hal::{
    AddressMode, ArrayShape, Channel, FilterMode, RawArray, RawSurface, RawTexture, Result, TexelFormat,
    TextureOptions, TextureSource, Textures,
};

use crate::device::CudaDevice;
use crate::handle::{address_of, array_of};

// SAFETY: the device clamps every fetch. If a surface access misses the array, the device ends the kernel.
unsafe impl Textures for CudaDevice {
    fn array_create(&self, shape: ArrayShape, format: TexelFormat) -> Result<RawArray> {
        let api = self.enter()?;
        let has = |dimension: u32, extent| if shape.dimensions() >= dimension { extent } else { 0 };
        let mut flags = sys::CUDA_ARRAY3D_SURFACE_LDST;
        if shape.layer_count().is_some() {
            flags |= sys::CUDA_ARRAY3D_LAYERED;
        }
        let descriptor = CUDA_ARRAY3D_DESCRIPTOR {
            Width: shape.width(),
            Height: has(2, shape.height()),
            Depth: shape.layer_count().unwrap_or(has(3, shape.depth())),
            Format: channel(format.channel),
            NumChannels: format.channels,
            Flags: flags,
        };
        let mut array = ptr::null_mut();
        // SAFETY: both pointers are to locals.
        unsafe { api.cuArray3DCreate_v2(&raw mut array, &raw const descriptor) }.ok()?;
        Ok(RawArray(array as usize))
    }

    unsafe fn array_destroy(&self, array: RawArray) -> Result<()> {
        let api = self.enter()?;
        // SAFETY: the caller vouches that the array is one of ours and out of use.
        unsafe { api.cuArrayDestroy(array_of(array)) }.ok()
    }

    unsafe fn texture_create(
        &self,
        source: TextureSource,
        format: TexelFormat,
        options: &TextureOptions,
    ) -> Result<RawTexture> {
        let api = self.enter()?;
        let resource = match source {
            TextureSource::Array(array) => resource_of(array),
            TextureSource::Linear { buffer, bytes } => {
                let linear = OfLinear {
                    devPtr: address_of(buffer),
                    format: channel(format.channel),
                    numChannels: format.channels,
                    sizeInBytes: bytes,
                };
                resource(CUresourcetype::CU_RESOURCE_TYPE_LINEAR, |res| res.linear = linear)
            }
        };
        let mut flags = 0;
        if format.channel.is_integer() && !options.normalized_values {
            flags |= sys::CU_TRSF_READ_AS_INTEGER;
        }
        if options.normalized_coordinates {
            flags |= sys::CU_TRSF_NORMALIZED_COORDINATES;
        }
        let description = CUDA_TEXTURE_DESC {
            addressMode: options.address.map(|mode| match mode {
                AddressMode::Wrap => CUaddress_mode::CU_TR_ADDRESS_MODE_WRAP,
                AddressMode::Clamp => CUaddress_mode::CU_TR_ADDRESS_MODE_CLAMP,
                AddressMode::Mirror => CUaddress_mode::CU_TR_ADDRESS_MODE_MIRROR,
                AddressMode::Border => CUaddress_mode::CU_TR_ADDRESS_MODE_BORDER,
            }),
            filterMode: match options.filter {
                FilterMode::Point => CUfilter_mode::CU_TR_FILTER_MODE_POINT,
                FilterMode::Linear => CUfilter_mode::CU_TR_FILTER_MODE_LINEAR,
            },
            flags,
            maxAnisotropy: 0,
            mipmapFilterMode: CUfilter_mode::CU_TR_FILTER_MODE_POINT,
            mipmapLevelBias: 0.0,
            minMipmapLevelClamp: 0.0,
            maxMipmapLevelClamp: 0.0,
            borderColor: [0.0; 4],
            reserved: [0; 12],
        };
        let mut texture = 0;
        // SAFETY: the pointers are to locals; the caller vouches for the source and its format.
        unsafe {
            api.cuTexObjectCreate(&raw mut texture, &raw const resource, &raw const description, ptr::null())
        }
        .ok()?;
        Ok(RawTexture(texture as usize))
    }

    unsafe fn texture_destroy(&self, texture: RawTexture) -> Result<()> {
        let api = self.enter()?;
        // SAFETY: the caller vouches that the texture is one of ours and out of use.
        unsafe { api.cuTexObjectDestroy(texture.0 as u64) }.ok()
    }

    unsafe fn surface_create(&self, array: RawArray) -> Result<RawSurface> {
        let api = self.enter()?;
        let resource = resource_of(array);
        let mut surface = 0;
        // SAFETY: the pointers are to locals; the caller vouches for the array.
        unsafe { api.cuSurfObjectCreate(&raw mut surface, &raw const resource) }.ok()?;
        Ok(RawSurface(surface as usize))
    }

    unsafe fn surface_destroy(&self, surface: RawSurface) -> Result<()> {
        let api = self.enter()?;
        // SAFETY: the caller vouches that the surface is one of ours and out of use.
        unsafe { api.cuSurfObjectDestroy(surface.0 as u64) }.ok()
    }
}

fn channel(channel: Channel) -> CUarray_format {
    match channel {
        Channel::U8 => CUarray_format::CU_AD_FORMAT_UNSIGNED_INT8,
        Channel::I8 => CUarray_format::CU_AD_FORMAT_SIGNED_INT8,
        Channel::U16 => CUarray_format::CU_AD_FORMAT_UNSIGNED_INT16,
        Channel::I16 => CUarray_format::CU_AD_FORMAT_SIGNED_INT16,
        Channel::U32 => CUarray_format::CU_AD_FORMAT_UNSIGNED_INT32,
        Channel::I32 => CUarray_format::CU_AD_FORMAT_SIGNED_INT32,
        Channel::F16 => CUarray_format::CU_AD_FORMAT_HALF,
        Channel::F32 => CUarray_format::CU_AD_FORMAT_FLOAT,
    }
}

fn resource_of(array: RawArray) -> CUDA_RESOURCE_DESC {
    let array = OfArray { hArray: array_of(array) };
    resource(CUresourcetype::CU_RESOURCE_TYPE_ARRAY, |res| res.array = array)
}

/// Returns a description for this kind of memory. Only what `set` writes is not zero.
fn resource(
    kind: CUresourcetype,
    set: impl FnOnce(&mut CUDA_RESOURCE_DESC_st__bindgen_ty_1),
) -> CUDA_RESOURCE_DESC {
    let mut res = CUDA_RESOURCE_DESC_st__bindgen_ty_1 { reserved: Reserved { reserved: [0; 32] } };
    set(&mut res);
    CUDA_RESOURCE_DESC { resType: kind, res, flags: 0 }
}
