use gpustream::Device;

fn load(device: &Device) {
    let _ = device.raw().module_load(b"any bytes");
}

fn main() {
    let _ = load;
}
