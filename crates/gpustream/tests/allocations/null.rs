//! A device that accepts every call and does nothing.

use std::sync::atomic::{AtomicUsize, Ordering};

use gpustream::hal::{DeviceInfo, Error, Image};
use gpustream::{Device, DeviceOptions, Kernel, ModuleSource, Result};
use gpustream_hal::noop::{Call, Model, Noop};

#[derive(Clone)]
struct Null;

// SAFETY: the model has no pinned memory and never calls a host function.
unsafe impl Model for Null {
    fn call(&self, call: Call<'_>) -> Result<usize> {
        static NEXT: AtomicUsize = AtomicUsize::new(4096);
        match call {
            Call::Alloc { .. } => Ok(NEXT.fetch_add(1 << 30, Ordering::Relaxed)),
            Call::PinnedAlloc { .. } => Err(Error::unsupported("that")),
            _ => Ok(1),
        }
    }
}

pub(crate) fn device() -> Device {
    let backend = Noop::new(Null, DeviceInfo::new(gpustream::BackendName::new("null"), 0));
    Device::open_on(&backend, 0, DeviceOptions::default()).unwrap()
}

/// Loads a kernel that takes any arguments.
pub(crate) fn kernel(device: &Device) -> Kernel {
    let images = &[Image { backend: "null", targets: &["any"], bytes: &[], symbols: &[] }];
    let source = ModuleSource { name: "null", images, globals: &[] };
    // SAFETY: the driver is a fake that runs nothing.
    unsafe { device.load_module(&source) }.unwrap().kernel("any").unwrap()
}
