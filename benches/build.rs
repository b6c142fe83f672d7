//! Compiles the kernels of the benchmarks.

fn main() {
    gpustream_build::Kernels::new()
        .file("bench.cu")
        .file("meetings.cu")
        .build()
        .unwrap_or_else(|error| error.exit());
}
