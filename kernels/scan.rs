//! Inclusive scan: each block sums its chunk, one block scans the sums, and then each block can scan its chunk from
//! there.

use std::panic::Location;

use gpustream::{AsView, AsViewMut, CallSite, Device, Error, ErrorKind, Result, Stream};

use crate::call::shares;

mod bindings {
    gpustream::include_kernels!("scan");
}
pub use bindings::{HasScanChunks, HasScanOffsets, HasScanTotals, Kernels};

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

    /// Computes `y[i] = x[0] + … + x[i]`, in stream order. Integers may wrap around.
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
        let (x, mut y) = (x.view(), y.view_mut());
        let n = x.len();
        if n != y.len() {
            let operation = CallSite { label: "inclusive", location: Location::caller() };
            return Err(Error::new(
                ErrorKind::ArgumentMismatch,
                format!("a scan of {n} elements into {}: give views of one length", y.len()),
            )
            .with_call_site(operation));
        }
        if n == 0 {
            return Ok(());
        }
        let (blocks, launch) = shares(stream, n)?;
        let mut offsets = stream.alloc::<T>(blocks)?;
        self.kernels.scan_totals(stream, &launch(blocks), &x, &mut offsets, n)?;
        self.kernels.scan_offsets(stream, &launch(1), &mut offsets, blocks)?;
        self.kernels.scan_chunks(stream, &launch(blocks), &x, &offsets, &mut y, n)
    }
}

/// Element types that [`Scan`] takes: `f32`, `f64`, `u32`, `u64`.
pub trait Scannable: HasScanTotals + HasScanOffsets + HasScanChunks {}
impl Scannable for f32 {}
impl Scannable for f64 {}
impl Scannable for u32 {}
impl Scannable for u64 {}
