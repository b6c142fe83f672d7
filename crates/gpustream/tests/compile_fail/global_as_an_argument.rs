//! If you could pass a variable of a kernel's module as an argument, the kernel could reach the memory under two names.
use gpustream::{Arg, Global};

fn read(global: &Global<u32>) -> Arg<'_> {
    Arg::read(global)
}

fn written(global: &mut Global<u32>) -> Arg<'_> {
    Arg::write(global)
}

fn by_hand(module: &gpustream::Module) {
    module.global::<u32>("counter");
}

fn main() {}
