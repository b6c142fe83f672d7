//! Compiles the kernels beside this file and writes their bindings.

fn main() {
    gpustream_build::Kernels::new()
        .files([
            "combine.cu",
            "convert.cu",
            "elementwise.cu",
            "histogram.cu",
            "matrix.cu",
            "reduce.cu",
            "scan.cu",
            "stencil.cu",
            "top_k.cu",
        ])
        .build()
        .unwrap_or_else(|error| error.exit());
}
