use std::sync::Arc;

use gpustream::hal::{Backend, Device, Probe, Result};

struct Mine;

impl Backend for Mine {
    fn name(&self) -> &'static str {
        "mine"
    }
    fn device_count(&self) -> Result<usize> {
        Ok(0)
    }
    fn open(&self, _: usize) -> Result<Arc<dyn Device>> {
        unreachable!()
    }
    fn probe(&self) -> Probe {
        Probe::default()
    }
}

fn main() {
    let _ = gpustream::Device::open_on(&Mine, 0, gpustream::DeviceOptions::default());
}
