//! The core trusts the handles' checks, so you cannot make its objects by hand without a promise (`unsafe`).
use std::sync::Arc;

use gpustream::hal::{Device, RawGraph, RawModule, RawStream, WaitPolicy};
use gpustream::DeviceOptions;
use gpustream_core::device_core::DeviceCore;
use gpustream_core::environment::Environment;
use gpustream_core::module_core::ModuleCore;
use gpustream_core::stream::{Origin, StreamCore, StreamTable};
use gpustream_core::record::NodeAdder;

fn promises(raw: Arc<dyn Device>, environment: Environment) {
    let _ = DeviceCore::new(raw.clone(), DeviceOptions::default(), environment);
    let _ = StreamCore::new(RawStream(7), raw.clone(), WaitPolicy::Block, Origin::Ours);
    let _ = ModuleCore::new(RawModule(7), raw.clone());
    let _ = NodeAdder::new(raw, RawGraph(7));
    let _ = StreamTable::of_process();
}

fn main() {}
