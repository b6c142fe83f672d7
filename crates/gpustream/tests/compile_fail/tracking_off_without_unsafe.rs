//! Turning tracking off is a promise to order everything oneself.
use gpustream::DeviceOptions;

fn main() {
    let _ = DeviceOptions::default().without_tracking();
}
