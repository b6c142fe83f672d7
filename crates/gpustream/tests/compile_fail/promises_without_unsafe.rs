//! You must promise something if you load code that may run, launch what must be sound, or order everything yourself.
use gpustream::{Device, DeviceOptions, Kernel, Launch, Stream};

fn promises(device: &Device, kernel: &Kernel, stream: &Stream) {
    let _ = device.raw().module_load(b"any bytes");
    let _ = kernel.launch(stream, &Launch::covering(10), &[]);
    let _ = Launch::covering(10).early_dependent();
    let _ = DeviceOptions::default().without_tracking();
}

fn main() {}
