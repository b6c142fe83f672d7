//! The CPU backend of gpustream.
pub mod abi;
mod arch;
mod block;
mod buffer;
mod capture;
mod check;
mod device;
mod elf;
mod error;
mod event;
mod fault;
mod fiber;
pub mod flags;
mod graph;
mod job;
mod launch;
mod memory;
mod module;
mod options;
mod plan;
mod queue;
mod stream;
mod warp;
mod work;
mod worker;

pub use device::{backend, open_with};
pub use options::CpuOptions;
