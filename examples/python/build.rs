//! Compiles this crate's kernel and writes its launcher.

fn main() {
    gpustream_build::Kernels::new().file("kernels/scale_add.cu").build().unwrap_or_else(|error| error.exit());
}
