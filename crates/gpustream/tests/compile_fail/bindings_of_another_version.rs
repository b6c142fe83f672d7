// Another version of `gpustream-build` wrote the bindings, which use hidden items that may be others by now.
gpustream::__bindings_of!("0.0.9");

fn main() {}
