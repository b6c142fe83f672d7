//! The conformance suite: every test on every backend.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
#![allow(clippy::unnecessary_wraps, reason = "all tests have one signature")]

mod bad_input;
mod clusters;
mod convert;
mod copies;
mod default_streams;
mod events;
mod exit;
mod faults;
mod graphs;
mod graphs_capture;
mod graphs_explicit;
mod graphs_update;
mod hammer;
mod host_functions;
mod host_memory;
#[path = "kernels.rs"]
mod kernels;
mod launch;
mod lifetimes;
mod lifetimes_handles;
mod memory;
mod modules;
mod multi_device;
mod notify;
mod notify_stress;
mod pipeline;
mod pipeline_in_place;
mod pool;
mod staging;
mod streams;
mod strided;
mod tracking;

use conformance::harness;

fn main() {
    harness::main(&[
        ("streams", streams::TESTS),
        ("events", events::TESTS),
        ("host_functions", host_functions::TESTS),
        ("copies", copies::TESTS),
        ("convert", convert::TESTS),
        ("launch", launch::TESTS),
        ("clusters", clusters::TESTS),
        ("tracking", tracking::TESTS),
        ("lifetimes", lifetimes::TESTS),
        ("lifetimes_handles", lifetimes_handles::TESTS),
        ("staging", staging::TESTS),
        ("strided", strided::TESTS),
        ("memory", memory::TESTS),
        ("pool", pool::TESTS),
        ("host_memory", host_memory::TESTS),
        ("pipeline", pipeline::TESTS),
        ("pipeline_in_place", pipeline_in_place::TESTS),
        ("modules", modules::TESTS),
        ("bad_input", bad_input::TESTS),
        ("faults", faults::TESTS),
        ("kernels", kernels::TESTS),
        ("hammer", hammer::TESTS),
        ("graphs", graphs::TESTS),
        ("graphs_capture", graphs_capture::TESTS),
        ("graphs_explicit", graphs_explicit::TESTS),
        ("graphs_update", graphs_update::TESTS),
        ("notify", notify::TESTS),
        ("notify_stress", notify_stress::TESTS),
        ("default_streams", default_streams::TESTS),
        ("multi_device", multi_device::TESTS),
        ("exit", exit::TESTS),
    ]);
}
