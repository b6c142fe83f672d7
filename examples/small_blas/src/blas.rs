//! The library: what its users call, and how a call becomes work in their stream.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gpustream::{Buffer, Device, Error, ErrorKind, Result, Stream};

use crate::vendor::Vendor;

/// Bytes of workspace for a product: as many as cuBLAS wants on the largest devices.
pub(crate) const WORKSPACE: usize = 32 << 20;

/// Matrix products in a stream.
pub(crate) trait Blas {
    /// Enqueues `c = a b` for square matrices of `n` rows, stored row by row. Does not wait for the device. You can call it in a
    /// capture or a replayed step. The first call on a device loads the vendor's library. That takes a moment and cannot be
    /// captured, so call [`prepare`] before your first capture.
    ///
    /// # Errors
    /// [`ErrorKind::ArgumentMismatch`] if a matrix does not have `n * n` elements; [`ErrorKind::DriverMissing`] if the
    /// vendor's library is not installed; the library's own errors as [`ErrorKind::External`].
    fn multiply(&self, n: usize, a: &Buffer<f32>, b: &Buffer<f32>, c: &mut Buffer<f32>) -> Result<()>;
}

/// Loads the vendor's library for this device, so that the first product need not.
pub(crate) fn prepare(device: &Device) -> Result<()> {
    if is_cpu(device) { Ok(()) } else { vendor(device).map(drop) }
}

impl Blas for Stream {
    fn multiply(&self, n: usize, a: &Buffer<f32>, b: &Buffer<f32>, c: &mut Buffer<f32>) -> Result<()> {
        // Check before you enqueue anything, because the vendor's library does not.
        let lens = [a.len(), b.len(), c.len()];
        if lens.iter().any(|len| *len != n * n) {
            let message = format!(
                "a product of {n} x {n} matrices takes {} elements each, and was given {lens:?}",
                n * n
            );
            return Err(Error::new(ErrorKind::ArgumentMismatch, message));
        }
        if is_cpu(self.device()) {
            return multiply_on_cpu(self, n, a, b, c);
        }
        let vendor = vendor(self.device())?;
        // Temporary memory from the pool. This stream's next product gets the same memory. In a graph, the graph owns it.
        let mut workspace = self.alloc::<u8>(WORKSPACE)?;
        // The product depends on nothing but its size and its memory.
        let key = n as u64;
        // SAFETY: the product goes to the stream that we are given, reads `a` and `b`, and writes `c` and the workspace.
        // The handle lives as long as the device.
        unsafe {
            self.external_keyed("multiply", (a, b, c, &mut workspace), key, |raw, (a, b, c, workspace)| {
                let mut vendor = lock(&vendor);
                vendor.set_stream(raw, (workspace, WORKSPACE))?;
                vendor.multiply(n, a, b, c)
            })
        }
    }
}

fn is_cpu(device: &Device) -> bool {
    device.info().backend == gpustream::BackendName::CPU
}

/// Returns the vendor's library with its handle. There is one for each device.
pub(crate) fn vendor(device: &Device) -> Result<Arc<Mutex<Vendor>>> {
    device.extension(|device| Vendor::open(device).map(Mutex::new))
}

/// Locks a handle. A panic in the middle of a call leaves nothing behind that the next call would mind.
pub(crate) fn lock(vendor: &Mutex<Vendor>) -> MutexGuard<'_, Vendor> {
    vendor.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Multiplies on the CPU device's workers. Each part computes some rows of `c`.
fn multiply_on_cpu(
    stream: &Stream,
    n: usize,
    a: &Buffer<f32>,
    b: &Buffer<f32>,
    c: &mut Buffer<f32>,
) -> Result<()> {
    let parts = 4 * stream.device().info().multiprocessors;
    // SAFETY: the parts read `a` and `b`, and each part writes its own rows of `c`.
    unsafe {
        stream.external_parallel("multiply", (a, b, c), parts, move |part, (a, b, c)| {
            let rows = part.range(n);
            let (first, row, one) = (rows.start * n, n.cast_signed(), 1);
            gemm::gemm(
                rows.len(),
                n,
                n,
                c.add(first),
                one,
                row,
                false,
                a.add(first),
                one,
                row,
                b,
                one,
                row,
                0.0,
                1.0,
                false,
                false,
                false,
                gemm::Parallelism::None,
            );
        })
    }
}
