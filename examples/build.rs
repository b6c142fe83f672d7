//! Compiles the kernels of the examples.

fn main() {
    gpustream_build::Kernels::new().file("overlap.cu").build().unwrap_or_else(|error| error.exit());
}
