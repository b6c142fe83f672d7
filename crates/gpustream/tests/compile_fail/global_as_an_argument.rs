//! If a kernel could get a variable of its own module as an argument, it could reach the memory under two names.
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
