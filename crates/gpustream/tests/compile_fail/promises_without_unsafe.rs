//! A caller makes a promise: to load code that may run, to launch what is sound, or to order everything itself.
use gpustream::{Device, DeviceOptions, Kernel, Launch, Stream};

fn promises(device: &Device, kernel: &Kernel, stream: &Stream) {
    let _ = device.raw().module_load(b"any bytes");
    let _ = kernel.launch(stream, &Launch::covering(10), &[]);
    let _ = Launch::covering(10).early_dependent();
    let _ = DeviceOptions::default().without_tracking();
}

fn main() {}
