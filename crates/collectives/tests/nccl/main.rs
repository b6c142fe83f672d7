//! Ranks on GPUs by NCCL: on three devices of a fake driver with a fake NCCL, or on those that `GPUSTREAM_TEST_DEVICES` lists
//! (`cuda:0`, say), with the real ones.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failure here fails the test")]

mod checked;
mod faults;
mod graphs;
#[path = "../local/operations.rs"]
mod operations;
#[path = "../local/order.rs"]
mod order;
#[path = "../local/plain.rs"]
mod plain;
mod processes;
#[path = "../local/ranks.rs"]
mod ranks;
mod real;
mod several;
#[path = "../local/splits.rs"]
mod splits;

use std::cell::{Cell, RefCell};
use std::env;
use std::os::unix::process::CommandExt as _;
use std::panic;
use std::process::{Command, ExitCode};
use std::thread;
use std::time::{Duration, Instant};

use fake_nccl::Nccl;
use gpustream::{Buffer, Device, DeviceOptions, Result, Stream, Tracking};
use gpustream_collectives::{Communicator, CommunicatorOptions, Engine, Op, World, group};
use libtest_mimic::{Arguments, Failed, Trial};
use ranks::Test;
pub(crate) use ranks::{broken, each, hold, streams, tests};
use recorder::Recorder;

/// Whether the engine combines 16-bit integers.
const COMBINES_16_BITS: bool = false;
/// Whether the engine combines elements in the order of the ranks.
const COMBINES_IN_ORDER: bool = true;
/// The variable with the names of the devices.
const DEVICES: &str = "GPUSTREAM_TEST_DEVICES";
/// The variable that tells CUDA when to load kernels.
const LOADING: &str = "CUDA_MODULE_LOADING";
/// The number of ranks in most tests, as there are at most.
const RANKS: usize = 3;
/// A limit that no test reaches.
const LONG: Duration = Duration::from_secs(60);

/// The tests of the engine `Local` that NCCL does not promise: NaN, roots that wait for readers, and what that engine does by
/// itself.
const LOCAL_ALONE: [&str; 6] = [
    "splits::rank_that_leaves_a_part_leaves_no_other",
    "order::ranks_may_share_a_stream",
    "order::recorded_streams_are_refused",
    "order::later_writes_wait_for_the_other_ranks_reads",
    "operations::nan_gives_way_to_numbers",
    "splits::part_of_a_rank_that_gave_up_is_broken",
];

/// The makers of GPUs, whose libraries have the same functions.
const VENDORS: [&str; 2] = ["cuda", "hip"];

thread_local! {
    /// The fake driver of the test that runs, and the name of its backend.
    static FAKE: RefCell<Option<(&'static str, Recorder)>> = const { RefCell::new(None) };
    /// Whether the ranks of that test compare their calls.
    static CHECKED: Cell<bool> = const { Cell::new(false) };
}

fn main() -> ExitCode {
    if env::var_os(DEVICES).is_some() && env::var_os(LOADING).is_none() {
        // CUDA loads a kernel of NCCL's at its first launch, and waits for the device to be idle. Tests hold devices up.
        let error = Command::new(env::current_exe().unwrap())
            .args(env::args_os().skip(1))
            .env(LOADING, "EAGER")
            .exec();
        panic!("the test cannot start itself again: {error}");
    }
    if several::play_role() {
        return ExitCode::SUCCESS;
    }
    let mut trials = Vec::new();
    let mut add = |vendor: Option<&'static str>, checked: bool, tests: &[Test]| {
        for (name, test) in ranks::all(&[tests]) {
            if LOCAL_ALONE.contains(&name) {
                continue;
            }
            let name = if checked { format!("{name}, checked") } else { name.to_owned() };
            let shown = vendor.map_or_else(|| name.clone(), |vendor| format!("{vendor}::{name}"));
            trials.push(Trial::test(shown, move || {
                CHECKED.set(checked);
                match vendor {
                    None => test(),
                    Some(vendor) => on_fakes(vendor, test),
                }
                Ok::<(), Failed>(())
            }));
        }
    };
    let on_several = [operations::TESTS, order::TESTS, graphs::TESTS].concat();
    let on_three = [splits::TESTS, checked::TESTS].concat();
    match env::var(DEVICES) {
        Err(_) => {
            for vendor in VENDORS {
                add(Some(vendor), false, &[&on_several, &on_three, faults::TESTS, processes::TESTS].concat());
                add(Some(vendor), true, operations::TESTS);
            }
        }
        Ok(names) => {
            let count = names.split(',').count();
            add(None, false, real::TESTS);
            if count >= 2 {
                add(None, false, &[&on_several, several::TESTS].concat());
                add(None, true, operations::TESTS);
            }
            if count >= RANKS {
                add(None, false, &on_three);
            }
        }
    }
    // The fakes are of the whole process, and so is a GPU's thread for host closures.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Runs a test on the fakes, and checks that it broke no rule of theirs and left nothing behind.
fn on_fakes(vendor: &'static str, test: fn()) {
    let recorder = if vendor == "cuda" {
        fake_cuda::load_with(fake_cuda::Options { devices: RANKS, ..Default::default() })
    } else {
        let options = fake_hip::Options::of(fake_hip::Profile::Rocm6);
        fake_hip::load_with(fake_hip::Options { devices: RANKS, ..options })
    };
    fake_nccl::load();
    FAKE.set(Some((vendor, recorder)));
    let outcome = panic::catch_unwind(test);
    let recorder = FAKE.take().unwrap().1;
    if let Err(payload) = outcome {
        panic::resume_unwind(payload);
    }
    closed();
    assert_eq!(recorder.violations(), [""; 0]);
}

/// Waits until all communicators are closed, which their own threads do.
fn closed() {
    let deadline = Instant::now() + Duration::from_secs(60);
    while Nccl.live() > 0 {
        assert!(Instant::now() < deadline, "{} communicators are left", Nccl.live());
        thread::yield_now();
    }
}

/// Calls a closure with the fake driver.
fn with_recorder<R>(call: impl FnOnce(&Recorder) -> R) -> R {
    FAKE.with_borrow(|fake| call(&fake.as_ref().unwrap().1))
}

/// Returns the name of the fake driver's backend.
fn vendor() -> &'static str {
    FAKE.with_borrow(|fake| fake.as_ref().unwrap().0)
}

/// Opens a device for each rank, or the real ones.
fn devices(options: DeviceOptions) -> Vec<Device> {
    let names = env::var(DEVICES).unwrap_or_else(|_| {
        let vendor = vendor();
        (0..RANKS).map(|rank| format!("{vendor}:{rank}")).collect::<Vec<_>>().join(",")
    });
    names.split(',').map(|name| Device::open_with(name, options).unwrap()).take(RANKS).collect()
}

fn options(limit: Duration) -> CommunicatorOptions {
    CommunicatorOptions::default().engine(Engine::Nccl).time_limit(limit).checked(CHECKED.get())
}

/// Makes the communicators of all ranks, whose work lasts `limit` at most.
fn ranks_within(limit: Duration) -> Vec<Communicator> {
    let ranks = new_ranks_within(limit);
    if env::var_os(DEVICES).is_some() {
        warm_up(&ranks);
    }
    ranks
}

/// Makes communicators whose ranks have yet to be connected.
fn new_ranks_within(limit: Duration) -> Vec<Communicator> {
    World::local(&devices(DeviceOptions::default())).unwrap().communicators_with(options(limit)).unwrap()
}

/// Makes calls that connect the ranks, copies, and has the pools get memory. A real driver may wait for all devices of the
/// process at such a time, and tests hold them up.
fn warm_up(ranks: &[Communicator]) {
    let streams = streams(ranks);
    let mut memory = order::full(&streams, 1 << 20, 1u8);
    group(|group| ranks.iter().zip(&streams).try_for_each(|(rank, stream)| group.on(rank).barrier(stream)))
        .unwrap();
    order::all_reduce(ranks, &streams, &mut memory, Op::Sum).unwrap();
    for (stream, memory) in streams.iter().zip(&memory) {
        stream.upload(&stream.download(memory).unwrap()).unwrap();
        stream.host_fn(|| ()).unwrap();
        stream.synchronize().unwrap();
    }
}

/// Enqueues the sum of a hundred ones of each rank.
fn reduce(rank: &Communicator, stream: &Stream) -> Result<Buffer<f32>> {
    let mut memory = stream.full(100, 1.0f32)?;
    rank.all_reduce_in_place(stream, &mut memory, Op::Sum)?;
    Ok(memory)
}

/// Makes the communicators of all ranks. A test that hangs fails after a minute.
fn ranks() -> Vec<Communicator> {
    ranks_within(LONG)
}

/// Makes the communicators of all ranks on devices with strict tracking.
fn strict_ranks() -> Vec<Communicator> {
    let devices = devices(DeviceOptions::default().tracking(Tracking::Strict));
    World::local(&devices).unwrap().communicators_with(options(LONG)).unwrap()
}
