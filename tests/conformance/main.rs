//! The conformance suite runs every test on every backend.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
#![allow(clippy::unnecessary_wraps, reason = "all tests have one signature")]

mod algorithms_reduce;
mod algorithms_top_k;
mod bad_input;
mod captures_alloc;
mod clusters;
mod combine;
mod compile;
mod conditions;
mod convert;
mod copies;
mod copies_batch;
mod declarations;
mod default_streams;
mod events;
mod exit;
mod extensions;
mod external;
mod external_keyed;
mod external_memory;
mod faults;
mod flags;
mod foreign;
mod globals;
mod graphs;
mod graphs_alloc;
mod graphs_capture;
mod graphs_explicit;
mod graphs_order;
mod graphs_update;
mod grid_stride;
mod hammer;
mod host_functions;
mod host_memory;
mod idioms;
mod kernels;
mod launch;
mod lifetimes;
mod lifetimes_handles;
mod meetings;
mod memory;
mod modules;
mod multi_device;
mod notify;
mod notify_stress;
mod parallel;
mod patterns;
mod pipeline;
mod pipeline_in_place;
mod pool;
mod printing;
mod process;
mod replay;
mod replay_order;
mod replay_random;
mod room;
mod rows;
mod sections;
mod shared_events;
mod shared_memory;
mod staging;
mod streams;
mod streams_part;
mod strided;
mod textures;
mod textures_order;
mod traces;
mod traces_layer;
mod tracking;
mod types;
mod watchers;

fn main() {
    conformance::main();
}
