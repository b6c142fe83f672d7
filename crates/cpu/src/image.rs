//! Images: the texels of arrays, textures and surfaces, as kernels see them (`gs_cpu_image`).

use gpustream_hal::{Channel, CopyEnd, TexelFormat};

use crate::abi::Image;

impl Image {
    /// Returns an image of `extent` texels at `data`, without gaps between the rows.
    pub(crate) fn new(data: usize, extent: [usize; 3], format: TexelFormat) -> Self {
        let row = extent[0] * format.size();
        Self {
            data: data as *mut u8,
            row: row as u64,
            slice: (row * extent[1]) as u64,
            extent: extent.map(|texels| texels as u64),
            channel: channel(format.channel),
            channels: format.channels as u8,
            ..Self::EMPTY
        }
    }

    /// Returns the address of a texel.
    fn texel(&self, texel: usize, [x, y, z]: [usize; 3]) -> usize {
        self.data as usize + z * self.slice as usize + y * self.row as usize + x * texel
    }
}

/// Returns the number that kernels use for a channel type.
const fn channel(channel: Channel) -> u8 {
    match channel {
        Channel::U8 => 0,
        Channel::I8 => 1,
        Channel::U16 => 2,
        Channel::I16 => 3,
        Channel::U32 => 4,
        Channel::I32 => 5,
        Channel::F16 => 6,
        Channel::F32 => 7,
    }
}

/// For one end of a strided copy, returns the address, the pitch in bytes, and the rows per plane.
///
/// # Safety
/// If it is an array, it must be alive.
pub(crate) unsafe fn resolve(end: CopyEnd, pitch: usize, rows: usize) -> (usize, usize, usize) {
    match end {
        CopyEnd::Array { array, texel, at } => {
            // SAFETY: alive by this function's contract.
            let image = unsafe { &*(array.0 as *const Image) };
            let row = image.row as usize;
            (image.texel(texel, at), row, image.slice as usize / row)
        }
        end => (end.address().0, pitch, rows),
    }
}
