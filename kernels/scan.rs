//! Inclusive scan: each block sums its chunk, one block scans the sums, and each block scans its chunk from there.

use bytemuck::Pod;
use gpustream::{AsView, AsViewMut, Device, Error, ErrorKind, Result, Stream, View, ViewMut};

use crate::call::{self, shares};

mod bindings {
    gpustream::include_kernels!("scan");
}
pub use bindings::Kernels;

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
        let (blocks, call) = shares(&self.kernels, stream, n)?;
        let mut offsets = stream.alloc::<T>(blocks)?;
        T::totals(&call(blocks), x, offsets.view_mut())?;
        T::offsets(&call(1), offsets.view_mut())?;
        T::chunks(&call(blocks), x, offsets.view(), y)
    }
}

#[doc(hidden)]
pub type Call<'a> = call::Call<'a, Kernels>;

/// Element types that [`Scan`] takes: `f32`, `f64`, `u32`, `u64`. The methods launch one kernel each; call those of
/// [`Scan`].
pub trait Scannable: Pod + sealed::Sealed {
    #[doc(hidden)]
    #[track_caller]
    fn totals(call: &Call<'_>, x: View<'_, Self>, totals: ViewMut<'_, Self>) -> Result<()>;
    #[doc(hidden)]
    #[track_caller]
    fn offsets(call: &Call<'_>, totals: ViewMut<'_, Self>) -> Result<()>;
    #[doc(hidden)]
    #[track_caller]
    fn chunks(
        call: &Call<'_>,
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
            fn totals(c: &Call<'_>, x: View<'_, Self>, mut totals: ViewMut<'_, Self>) -> Result<()> {
                c.kernels.$totals(c.stream, &c.launch, &x, &mut totals, x.len())
            }
            fn offsets(c: &Call<'_>, mut totals: ViewMut<'_, Self>) -> Result<()> {
                let count = totals.len();
                c.kernels.$offsets(c.stream, &c.launch, &mut totals, count)
            }
            fn chunks(
                c: &Call<'_>,
                x: View<'_, Self>,
                offsets: View<'_, Self>,
                mut y: ViewMut<'_, Self>,
            ) -> Result<()> {
                c.kernels.$chunks(c.stream, &c.launch, &x, &offsets, &mut y, x.len())
            }
        }
    };
}
scannable!(f32: scan_totals_f32, scan_offsets_f32, scan_chunks_f32);
scannable!(f64: scan_totals_f64, scan_offsets_f64, scan_chunks_f64);
scannable!(u32: scan_totals_u32, scan_offsets_u32, scan_chunks_u32);
scannable!(u64: scan_totals_u64, scan_offsets_u64, scan_chunks_u64);
