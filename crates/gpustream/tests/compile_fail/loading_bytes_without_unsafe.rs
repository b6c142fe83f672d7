//! If you load an image, its code may run, so that is `unsafe`.
use gpustream::{Device, ModuleSource};

fn load(device: &Device, source: &ModuleSource<'_>) {
    let _ = device.load_module(source);
}

fn main() {}
