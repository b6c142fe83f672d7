//! Compiles the kernels of the examples and writes their launchers.

fn main() {
    gpustream_build::Kernels::new()
        .files([
            "async.cu",
            "conjugate_gradient.cu",
            "data_parallel/data_parallel.cu",
            "lattice_boltzmann/lattice_boltzmann.cu",
            "four_products.cu",
            "nbody.cu",
            "overlap.cu",
            "poisson/poisson.cu",
        ])
        // Reductions of blocks meet in the device header.
        .allow_stacks()
        .build()
        .unwrap_or_else(|error| error.exit());
}
