//! The driver's graphs and executables, owned.

use std::sync::Arc;

use gpustream_hal::{self as hal, RawGraph, RawGraphExec, Result};

use crate::reentrancy;

/// A driver's graph, which we make executables from.
pub struct OwnedGraph {
    pub raw: RawGraph,
    pub device: Arc<dyn hal::Device>,
}

impl OwnedGraph {
    /// Makes the graph launchable (`cuGraphInstantiate`).
    ///
    /// # Errors
    /// The driver's refusal.
    pub fn instantiate(&self) -> Result<OwnedExec> {
        // SAFETY: the graph is alive.
        let raw = unsafe { self.device.graph_instantiate(self.raw) }?;
        Ok(OwnedExec { raw, device: self.device.clone() })
    }
}

impl Drop for OwnedGraph {
    fn drop(&mut self) {
        let (device, raw) = (self.device.clone(), self.raw);
        reentrancy::outside(move || {
            // SAFETY: this is the graph's only owner, and executables do not depend on it.
            let _ = unsafe { device.graph_destroy(raw) };
        });
    }
}

/// A graph that can be launched. Its owner must not drop it while a launch is pending.
pub struct OwnedExec {
    pub raw: RawGraphExec,
    pub device: Arc<dyn hal::Device>,
}

impl Drop for OwnedExec {
    fn drop(&mut self) {
        let (device, raw) = (self.device.clone(), self.raw);
        reentrancy::outside(move || {
            // SAFETY: no launch is pending, as the type says.
            let _ = unsafe { device.graph_exec_destroy(raw) };
        });
    }
}
