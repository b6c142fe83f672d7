//! A program that turns tracking off promises to order everything itself.
use gpustream::DeviceOptions;

fn main() {
    let _ = DeviceOptions::default().without_tracking();
}
