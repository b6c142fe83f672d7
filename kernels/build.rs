//! Compiles the kernels beside this file, those of the enabled features, and writes their bindings.

fn main() {
    let files = [
        ("BINS", "bins.cu"),
        ("COMBINE", "combine.cu"),
        ("CONVERT", "convert.cu"),
        ("ELEMENTWISE", "elementwise.cu"),
        ("GEMM", "gemm.cu"),
        ("GEMM", "gemm_shares.cu"),
        ("GEMM", "gemm_strided.cu"),
        ("HISTOGRAM", "histogram.cu"),
        ("MATRIX", "matrix.cu"),
        ("REDUCE", "reduce.cu"),
        ("REDUCE_PARTS", "reduce_parts.cu"),
        ("SCAN", "scan.cu"),
        ("SEARCH", "quantiles.cu"),
        ("SEARCH", "search.cu"),
        ("SELECT", "select.cu"),
        ("SELECT", "by_key.cu"),
        ("SORT", "gather.cu"),
        ("SORT", "sort.cu"),
        ("SORT", "sort_shares.cu"),
        ("STENCIL", "stencil.cu"),
        ("TOP_K", "top_k.cu"),
        ("TRANSFORM", "transform.cu"),
    ];
    let enabled = |feature: &str| std::env::var_os(format!("CARGO_FEATURE_{feature}")).is_some();
    let files: Vec<_> =
        files.into_iter().filter(|(feature, _)| enabled(feature)).map(|(_, file)| file).collect();
    if files.is_empty() {
        return;
    }
    // Kernels with blocks of many threads are for GPUs, and the CPU has others.
    gpustream_build::Kernels::new().files(files).allow_stacks().build().unwrap_or_else(|error| error.exit());
}
