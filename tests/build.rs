//! Compiles the test kernels.

fn main() {
    let kernels = gpustream_build::Kernels::new()
        .files(
            [
                "args",
                "clusters",
                "constants",
                "declarations",
                "faults",
                "foreign",
                "globals",
                "grid_stride",
                "idioms",
                "large",
                "library",
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
    // A debug build runs on this machine alone, so images for others would only take time.
    let debug = std::env::var("PROFILE").is_ok_and(|profile| profile == "debug");
    let kernels = if debug { kernels.cpu_level("native") } else { kernels };
    kernels.build().unwrap_or_else(|error| error.exit());
}
