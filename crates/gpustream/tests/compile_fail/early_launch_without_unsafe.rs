//! A kernel that starts before its predecessor has ended may race with it.
use gpustream::Launch;

fn early() -> Launch {
    Launch::covering(10).early_dependent()
}

fn main() {}
