//! Memory cannot be dropped before its guard.
use gpustream::{Device, Result};

fn dropped(device: &Device) -> Result<u32> {
    let host = device.pinned::<u32>(10)?;
    let guard = host.read()?;
    drop(host);
    Ok(guard[0])
}

fn main() {}
