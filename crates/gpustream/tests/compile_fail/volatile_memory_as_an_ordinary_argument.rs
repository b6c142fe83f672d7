//! A `volatile` argument cannot be an ordinary one, however it was made.
use gpustream::{Arg, AsVolatile, Flag, Volatile};

fn argument<'a>(flag: &'a Flag, volatile: &'a Volatile<'a, u32>) -> [Arg<'a>; 2] {
    let _ = flag.volatile();
    [Arg::read::<u32>(volatile), Arg::volatile(flag.volatile())]
}

fn main() {}
