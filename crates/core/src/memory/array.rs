//! Memory for textures: an array of the driver, or texels in a row. Also the textures and the surface that were made of it.

use std::sync::Arc;

use gpustream_hal::{
    self as hal, ArrayShape, Error, ErrorKind, RawArray, RawSurface, RawTexture, Result, TexelFormat,
    TextureOptions, TextureSource,
};

use super::BudgetShare;
use crate::reentrancy;
use crate::sync::{Mutex, lock};

/// An array, or texels in a row. Textures and the surface live as long as the memory, because work that uses one of them
/// touches the memory's block. Textures with the same options are shared, so that there cannot be more and more of them.
pub struct ArrayMemory {
    source: TextureSource,
    format: TexelFormat,
    objects: Mutex<Objects>,
    device: Arc<dyn hal::Device>,
    /// How many bytes the memory takes from the device's budget. `None` once the memory is dropped.
    share: Option<BudgetShare>,
}

#[derive(Default)]
struct Objects {
    textures: Vec<(TextureOptions, RawTexture)>,
    surface: Option<RawSurface>,
}

impl ArrayMemory {
    pub(crate) fn new(
        device: &Arc<dyn hal::Device>,
        shape: ArrayShape,
        format: TexelFormat,
        share: BudgetShare,
    ) -> Result<Self> {
        let source = TextureSource::Array(device.array_create(shape, format)?);
        let (objects, device) = (Mutex::default(), device.clone());
        Ok(Self { source, format, objects, device, share: Some(share) })
    }

    /// Allocates `bytes` bytes of texels in a row, at an address of their own.
    pub(crate) fn linear(
        device: &Arc<dyn hal::Device>,
        format: TexelFormat,
        bytes: usize,
        share: BudgetShare,
    ) -> Result<Self> {
        let source = TextureSource::Linear { buffer: device.alloc(bytes)?, bytes };
        let (objects, device) = (Mutex::default(), device.clone());
        Ok(Self { source, format, objects, device, share: Some(share) })
    }

    /// Returns the address of texels in a row, or the handle of an array.
    pub(crate) fn address(&self) -> usize {
        match self.source {
            TextureSource::Array(array) => array.0,
            TextureSource::Linear { buffer, .. } => buffer.0,
        }
    }

    /// Returns the array, if it is one.
    ///
    /// # Errors
    /// [`ErrorKind::Driver`] if it is not an array but texels in a row.
    pub fn raw(&self) -> Result<RawArray> {
        match self.source {
            TextureSource::Array(array) => Ok(array),
            TextureSource::Linear { .. } => Err(Error::new(
                ErrorKind::Driver,
                "this memory is a row of texels and not an array; allocate an array for this call",
            )),
        }
    }

    /// Returns the texture with these options. They must go together.
    ///
    /// # Errors
    /// [`ErrorKind::InHostClosure`] inside a closure that must not call the library; the driver's refusal.
    pub fn texture(&self, options: &TextureOptions) -> Result<RawTexture> {
        reentrancy::check_outside()?;
        let Objects { textures, .. } = &mut *lock(&self.objects);
        if let Some((_, known)) = textures.iter().find(|(known, _)| known == options) {
            return Ok(*known);
        }
        // SAFETY: the memory is alive and of this format; the handles check the options.
        let texture = unsafe { self.device.texture_create(self.source, self.format, options) }?;
        textures.push((*options, texture));
        Ok(texture)
    }

    /// Returns the surface.
    ///
    /// # Errors
    /// As for [`texture`](Self::texture).
    pub fn surface(&self) -> Result<RawSurface> {
        reentrancy::check_outside()?;
        let array = self.raw()?;
        let Objects { surface, .. } = &mut *lock(&self.objects);
        if let Some(known) = surface {
            return Ok(*known);
        }
        // SAFETY: the array is alive.
        Ok(*surface.insert(unsafe { self.device.surface_create(array) }?))
    }
}

impl Drop for ArrayMemory {
    fn drop(&mut self) {
        super::note_return();
        let (device, source, share) = (self.device.clone(), self.source, self.share.take());
        let Objects { textures, surface } = std::mem::take(&mut *lock(&self.objects));
        reentrancy::outside(move || {
            // SAFETY: the block's last holder gave the memory back, and all uses are done. Memory whose objects the driver
            // refuses to destroy stays with them; another failure leaves nothing to do.
            unsafe {
                let mut destroyed = true;
                for (_, texture) in textures {
                    destroyed &= device.texture_destroy(texture).is_ok();
                }
                if let Some(surface) = surface {
                    destroyed &= device.surface_destroy(surface).is_ok();
                }
                let _ = match source {
                    _ if !destroyed => {
                        std::mem::forget(share);
                        return;
                    }
                    TextureSource::Array(array) => device.array_destroy(array),
                    TextureSource::Linear { buffer, .. } => device.free(buffer),
                };
            }
        });
    }
}
