//! Compiles candle's files as they are.

use std::path::Path;

fn main() {
    let folder = Path::new("candle-kernels/src");
    if !folder.exists() {
        println!("cargo:warning=candle's files are not here: run scripts/candle.sh first");
    }
    let files = ["affine", "binary", "cast", "fill", "indexing", "reduce", "sort", "ternary", "unary"];
    // candle looks kernels up by name, so they need no launchers.
    let kernels = gpustream_build::Kernels::new().by_name();
    let kernels =
        files.into_iter().fold(kernels, |kernels, file| kernels.file(folder.join(file).with_extension("cu")));
    kernels.build().unwrap_or_else(|error| error.exit());
}
