//! A guard is a borrow of the memory it opens.
use gpustream::{Device, ReadGuard, Result};

fn escape(device: &Device) -> Result<ReadGuard<'static, u32>> {
    let host = device.pinned::<u32>(10)?;
    host.read()
}

fn main() {}
