//! Inclusive scan: each block sums its chunk, one block scans the sums, and each block scans its chunk from there.

use bytemuck::Pod;
use gpustream::hal::LaunchConfig;
use gpustream::{AsView, AsViewMut, Device, Error, ErrorKind, Launch, Result, Stream, View, ViewMut};

mod bindings {
    gpustream::include_kernels!("scan");
}
pub use bindings::Kernels;

/// The number of elements that are worth a thread of their own.
const PER_THREAD: usize = 16;

/// Running sums of whole arrays, loaded on one device.
#[derive(Debug)]
pub struct Scan {
    kernels: Kernels,
}

impl Scan {
    /// Loads the kernels.
    ///
    /// # Errors
    /// The errors of [`Device::load_module`].
    pub fn load(device: &Device) -> Result<Self> {
        Ok(Self { kernels: Kernels::load(device)? })
    }

    /// Computes `y[i] = x[0] + … + x[i]`, in stream order. Integers wrap around.
    ///
    /// # Errors
    /// [`ErrorKind::ArgumentMismatch`] if the lengths differ.
    #[track_caller]
    pub fn inclusive<T: Scannable>(
        &self,
        stream: &Stream,
        x: &(impl AsView<T> + ?Sized),
        y: &mut (impl AsViewMut<T> + ?Sized),
    ) -> Result<()> {
        let (x, y) = (x.view(), y.view_mut());
        let n = x.len();
        if n != y.len() {
            return Err(Error::new(
                ErrorKind::ArgumentMismatch,
                format!("a scan of {n} elements into {}: give views of one length", y.len()),
            ));
        }
        if n == 0 {
            return Ok(());
        }
        let LaunchConfig { grid, block, .. } = Launch::filling(n).resolve(stream.device().info())?;
        let blocks = n.div_ceil(PER_THREAD * block[0] as usize).clamp(1, grid[0] as usize);
        let launch = Launch::new([blocks as u32, 1, 1], block);
        let mut offsets = stream.alloc::<T>(blocks)?;
        T::totals(&self.kernels, stream, &launch, x, offsets.view_mut())?;
        T::offsets(&self.kernels, stream, &Launch::new([1, 1, 1], block), offsets.view_mut())?;
        T::chunks(&self.kernels, stream, &launch, x, offsets.view(), y)
    }
}

/// Element types that [`Scan`] takes: `f32`, `f64`, `u32`, `u64`. The methods launch one kernel each; call those of
/// [`Scan`].
pub trait Scannable: Pod + sealed::Sealed {
    #[doc(hidden)]
    #[track_caller]
    fn totals(
        k: &Kernels,
        s: &Stream,
        l: &Launch,
        x: View<'_, Self>,
        totals: ViewMut<'_, Self>,
    ) -> Result<()>;
    #[doc(hidden)]
    #[track_caller]
    fn offsets(k: &Kernels, s: &Stream, l: &Launch, totals: ViewMut<'_, Self>) -> Result<()>;
    #[doc(hidden)]
    #[track_caller]
    fn chunks(
        k: &Kernels,
        s: &Stream,
        l: &Launch,
        x: View<'_, Self>,
        offsets: View<'_, Self>,
        y: ViewMut<'_, Self>,
    ) -> Result<()>;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! scannable {
    ($type:ty: $totals:ident, $offsets:ident, $chunks:ident) => {
        impl sealed::Sealed for $type {}
        impl Scannable for $type {
            fn totals(
                k: &Kernels,
                s: &Stream,
                l: &Launch,
                x: View<'_, Self>,
                mut totals: ViewMut<'_, Self>,
            ) -> Result<()> {
                k.$totals(s, l, &x, &mut totals, x.len())
            }
            fn offsets(k: &Kernels, s: &Stream, l: &Launch, mut totals: ViewMut<'_, Self>) -> Result<()> {
                let count = totals.len();
                k.$offsets(s, l, &mut totals, count)
            }
            fn chunks(
                k: &Kernels,
                s: &Stream,
                l: &Launch,
                x: View<'_, Self>,
                offsets: View<'_, Self>,
                mut y: ViewMut<'_, Self>,
            ) -> Result<()> {
                k.$chunks(s, l, &x, &offsets, &mut y, x.len())
            }
        }
    };
}
scannable!(f32: scan_totals_f32, scan_offsets_f32, scan_chunks_f32);
scannable!(f64: scan_totals_f64, scan_offsets_f64, scan_chunks_f64);
scannable!(u32: scan_totals_u32, scan_offsets_u32, scan_chunks_u32);
scannable!(u64: scan_totals_u64, scan_offsets_u64, scan_chunks_u64);
