//! Compiles the kernels of both examples.

fn main() {
    gpustream_build::Kernels::new()
        .file("kernels/flow.cu")
        .file("kernels/network.cu")
        .build()
        .unwrap_or_else(|error| error.exit());
}
