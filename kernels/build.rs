//! Compiles the kernels beside this file, those of the enabled features, and writes their bindings.

fn main() {
    let always = [
        "combine.cu",
        "convert.cu",
        "elementwise.cu",
        "histogram.cu",
        "matrix.cu",
        "reduce.cu",
        "stencil.cu",
    ];
    let families = [
        ("HISTOGRAM", "bins.cu"),
        ("SCAN", "scan.cu"),
        ("SEARCH", "quantiles.cu"),
        ("SEARCH", "search.cu"),
        ("SELECT", "select.cu"),
        ("SELECT", "by_key.cu"),
        ("SORT", "gather.cu"),
        ("SORT", "sort.cu"),
        ("SORT", "sort_shares.cu"),
        ("TOP_K", "top_k.cu"),
        ("TRANSFORM", "transform.cu"),
    ];
    let enabled = |feature: &str| std::env::var_os(format!("CARGO_FEATURE_{feature}")).is_some();
    gpustream_build::Kernels::new()
        .files(always)
        .files(families.into_iter().filter(|(feature, _)| enabled(feature)).map(|(_, file)| file))
        .build()
        .unwrap_or_else(|error| error.exit());
}
