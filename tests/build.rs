//! Compiles the test kernels.

fn main() {
    let kernels = gpustream_build::Kernels::new()
        .allow_stacks()
        .files(
            [
                "args",
                "async_copies",
                "clusters",
                "constants",
                "declarations",
                "faults",
                "foreign",
                "foreign_matrices",
                "foreign_random",
                "globals",
                "grid_stride",
                "group_products",
                "idioms",
                "large",
                "library",
                "long",
                "matrix_cores",
                "meetings",
                "own_words",
                "patterns",
                "printing",
                "rows",
                "sync",
                "textures",
                "types",
                "types-half2",
                "unlisted",
                "warps",
            ]
            .map(|name| format!("kernels/{name}.cu")),
        )
        .instantiate("less<3>")
        .instantiate("less< -4 >");
    kernels.build().unwrap_or_else(|error| error.exit());
}
