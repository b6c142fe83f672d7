//! An array of the driver's, with the textures and the surface that were made of it.

use std::sync::Arc;

use gpustream_hal::{
    self as hal, ArrayShape, RawArray, RawSurface, RawTexture, Result, TexelFormat, TextureOptions,
    TextureSource,
};

use crate::inside;
use crate::sync::{Mutex, lock};

/// An array. Its textures and its surface live as long as the array: work that uses one of them is work that touches the
/// array's block, and outlives neither. Textures of the same options are one, so that their number has a bound.
pub struct ArrayMemory {
    raw: RawArray,
    format: TexelFormat,
    objects: Mutex<Objects>,
    device: Arc<dyn hal::Device>,
}

#[derive(Default)]
struct Objects {
    textures: Vec<(TextureOptions, RawTexture)>,
    surface: Option<RawSurface>,
}

impl ArrayMemory {
    pub(crate) fn new(device: &Arc<dyn hal::Device>, shape: ArrayShape, format: TexelFormat) -> Result<Self> {
        let raw = device.array_create(shape, format)?;
        Ok(Self { raw, format, objects: Mutex::default(), device: device.clone() })
    }

    pub fn raw(&self) -> RawArray {
        self.raw
    }

    /// Returns the texture of these options, which go together.
    pub fn texture(&self, options: &TextureOptions) -> Result<RawTexture> {
        inside::check_outside()?;
        let Objects { textures, .. } = &mut *lock(&self.objects);
        if let Some((_, known)) = textures.iter().find(|(known, _)| known == options) {
            return Ok(*known);
        }
        // SAFETY: the array is alive and of this format; the handles check the options.
        let texture =
            unsafe { self.device.texture_create(TextureSource::Array(self.raw), self.format, options) }?;
        textures.push((*options, texture));
        Ok(texture)
    }

    /// Returns the surface.
    pub fn surface(&self) -> Result<RawSurface> {
        inside::check_outside()?;
        let Objects { surface, .. } = &mut *lock(&self.objects);
        if let Some(known) = surface {
            return Ok(*known);
        }
        // SAFETY: the array is alive.
        Ok(*surface.insert(unsafe { self.device.surface_create(self.raw) }?))
    }
}

impl Drop for ArrayMemory {
    fn drop(&mut self) {
        super::note_return();
        let (device, raw) = (self.device.clone(), self.raw);
        let Objects { textures, surface } = std::mem::take(&mut *lock(&self.objects));
        inside::outside(move || {
            // SAFETY: the block's last holder gave the array back, and all uses are done. A failure leaves nothing to do.
            unsafe {
                for (_, texture) in textures {
                    let _ = device.texture_destroy(texture);
                }
                if let Some(surface) = surface {
                    let _ = device.surface_destroy(surface);
                }
                let _ = device.array_destroy(raw);
            }
        });
    }
}
