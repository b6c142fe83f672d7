// Bindings are written by a build script, and this crate has none.
gpustream::include_kernels!("saxpy");

fn main() {}
