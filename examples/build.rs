//! Compiles the kernels of the examples and writes their launchers.

fn main() {
    let kernels = gpustream_build::Kernels::new().files([
        "async.cu",
        "conjugate_gradient.cu",
        "data_parallel/data_parallel.cu",
        "lattice_boltzmann/lattice_boltzmann.cu",
        "nbody.cu",
        "overlap.cu",
        "poisson/poisson.cu",
    ]);
    // A debug build runs on this machine alone, so images for others would only take time.
    let debug = std::env::var("PROFILE").is_ok_and(|profile| profile == "debug");
    let kernels = if debug { kernels.cpu_level("native") } else { kernels };
    kernels.build().unwrap_or_else(|error| error.exit());
}
