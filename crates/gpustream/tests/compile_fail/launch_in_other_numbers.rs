//! A launch takes `u32`, as the drivers do. The message says which forms there are.
use gpustream::Launch;

fn main() {
    let elements: usize = 1000;
    let _ = Launch::new(elements.div_ceil(256), 256);
    let _ = Launch::new([1, 2, 3, 4], (1, 2));
    let _ = Launch::new((1.5, 2.0), 256);
}
