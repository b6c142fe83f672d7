//! Compiles the kernels beside this file and writes their bindings.

fn main() {
    gpustream_build::Kernels::new()
        .files([
            "combine.cu",
            "convert.cu",
            "elementwise.cu",
            "gather.cu",
            "histogram.cu",
            "matrix.cu",
            "reduce.cu",
            "scan.cu",
            "sort.cu",
            "sort_shares.cu",
            "stencil.cu",
        ])
        .build()
        .unwrap_or_else(|error| error.exit());
}
