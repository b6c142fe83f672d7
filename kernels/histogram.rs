//! Histograms of bytes and of `f32`, counted in shared memory. With the feature `bins` there is also [`Histogram`], with more
//! kinds of bins, weights, and all types.

#[cfg(feature = "bins")]
mod bins;

#[cfg(feature = "bins")]
pub use bins::{Binned, Bins, Countable, Histogram, Weight};

gpustream::include_kernels!("histogram");
