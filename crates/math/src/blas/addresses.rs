//! Arrays of addresses on a device, for library functions that take matrices anywhere in memory.
//!
//! An array says where memory is and nothing else, so it stays right for as long as anybody uses it. A device keeps the last ones,
//! and a call with the same matrices finds its array there. So only the first one copies anything, and graphs have no copies.

use std::sync::Arc;

use gpustream::{Buffer, Device, Result, Stream};

use crate::recent::Recent;

/// A device's arrays.
struct Arrays {
    /// Uploads them. The program does not know this stream, so a capture never records an upload.
    stream: Stream,
    last: Recent<Vec<u64>, Arc<Buffer<u64>>>,
}

/// Returns these addresses in device memory. If the stream is recorded, blocks until they are there.
#[track_caller]
pub(super) fn on_device(stream: &Stream, addresses: Vec<u64>) -> Result<Arc<Buffer<u64>>> {
    let make = |device: &Device| Ok(Arrays { stream: device.stream()?, last: Recent::default() });
    let arrays = stream.device().extension(make)?;
    if let Some(array) = arrays.last.find(&addresses) {
        return Ok(array);
    }
    let array = Arc::new(arrays.stream.upload(&addresses)?);
    if stream.is_recorded() || stream.is_in_step() {
        // The graph cannot wait for it in each of its runs.
        arrays.stream.synchronize()?;
    }
    arrays.last.add(addresses, array.clone());
    Ok(array)
}
