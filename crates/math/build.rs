//! Compiles the kernels for what the vendors' libraries lack, if the feature `kernels` is on.

#[cfg(feature = "kernels")]
fn main() {
    gpustream_build::Kernels::new()
        .files(["kernels/convolution.cu", "kernels/epilogue.cu"])
        .build()
        .unwrap_or_else(|error| error.exit());
}

#[cfg(not(feature = "kernels"))]
fn main() {}
