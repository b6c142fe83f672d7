//! Compiles the test kernels.

fn main() {
    gpustream_build::Kernels::new()
        .files(
            ["args", "clusters", "faults", "idioms", "library", "sync", "warps"]
                .map(|name| format!("kernels/{name}.cu")),
        )
        .build()
        .unwrap_or_else(|error| error.exit());
}
