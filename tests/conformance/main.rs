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

fn main() {
    conformance::main(&[
        streams::TESTS,
        events::TESTS,
        host_functions::TESTS,
        copies::TESTS,
        convert::TESTS,
        launch::TESTS,
        clusters::TESTS,
        tracking::TESTS,
        lifetimes::TESTS,
        lifetimes_handles::TESTS,
        staging::TESTS,
        strided::TESTS,
        memory::TESTS,
        pool::TESTS,
        host_memory::TESTS,
        pipeline::TESTS,
        pipeline_in_place::TESTS,
        modules::TESTS,
        bad_input::TESTS,
        faults::TESTS,
        kernels::TESTS,
        hammer::TESTS,
        graphs::TESTS,
        graphs_capture::TESTS,
        graphs_explicit::TESTS,
        graphs_update::TESTS,
        notify::TESTS,
        notify_stress::TESTS,
        default_streams::TESTS,
        multi_device::TESTS,
        exit::TESTS,
    ]);
}
