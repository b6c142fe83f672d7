//! A flag changes while a kernel runs, so only a `volatile` parameter takes one.
use gpustream::{Arg, Flag};

fn argument(flag: &Flag) -> Arg<'_> {
    Arg::read::<u32>(flag)
}

fn main() {}
