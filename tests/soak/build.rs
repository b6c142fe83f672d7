//! Compiles the kernels of the soak program.

fn main() {
    gpustream_build::Kernels::new().file("soak.cu").build().unwrap_or_else(|error| error.exit());
}
