//! Compiles the kernels of the service.

fn main() {
    gpustream_build::Kernels::new().file("kernels/blur.cu").build().unwrap_or_else(|error| error.exit());
}
