//! Loading an image runs code in it.
use gpustream::{Device, ModuleSource};

fn load(device: &Device, source: &ModuleSource<'_>) {
    let _ = device.load_module(source);
}

fn main() {}
