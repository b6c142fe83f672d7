//! Compiles the test kernels.

fn main() {
    gpustream_build::Kernels::new()
        .files(
            ["args", "clusters", "faults", "foreign", "library", "sync", "types", "types-half2", "warps"]
                .map(|name| format!("kernels/{name}.cu")),
        )
        .build()
        .unwrap_or_else(|error| error.exit());
}
