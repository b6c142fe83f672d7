//! Ranks on GPUs with NCCL. By default they run on three devices of a fake driver with a fake NCCL.
//! `GPUSTREAM_TEST_RANKS` sets another number, and `GPUSTREAM_TEST_DEVICES` lists real devices (such as
//! `cuda:0`) to run on with the real NCCL.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failure here fails the test")]

mod checked;
mod faults;
mod graphs;
#[path = "../local/lines.rs"]
mod lines;
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
use gpustream_collectives::{
    Communicator, CommunicatorFailure, CommunicatorOptions, Engine, Op, World, group,
};
use libtest_mimic::{Arguments, Failed, Trial};
use ranks::Test;
pub(crate) use ranks::{broken, each, hold, streams, tests};
use recorder::Recorder;

/// True if the engine combines 16-bit integers.
const COMBINES_16_BITS: bool = false;
/// The variable with the names of the devices.
const DEVICES: &str = "GPUSTREAM_TEST_DEVICES";
/// The variable that tells CUDA when to load kernels.
const LOADING: &str = "CUDA_MODULE_LOADING";
/// The variable with the number of fake devices.
const RANKS: &str = "GPUSTREAM_TEST_RANKS";
/// How many ranks some tests need.
const SEVERAL: usize = 3;
/// A limit that no test may reach.
const LONG: Duration = Duration::from_secs(60);

/// Tests of the engine `Local` that do not apply to NCCL: NaN, roots that wait for readers, and what only
/// that engine does.
const LOCAL_ALONE: [&str; 6] = [
    "splits::rank_that_leaves_a_part_leaves_no_other",
    "order::ranks_may_share_a_stream",
    "order::recorded_streams_are_refused",
    "order::later_writes_wait_for_the_other_ranks_reads",
    "operations::nan_gives_way_to_numbers",
    "splits::part_of_a_rank_that_gave_up_is_broken",
];

/// The GPU vendors. Their libraries have the same functions.
const VENDORS: [&str; 2] = ["cuda", "hip"];

thread_local! {
    /// The fake driver of the running test, and the name of its backend.
    static FAKE: RefCell<Option<(&'static str, Recorder)>> = const { RefCell::new(None) };
    /// True if that test's ranks compare their calls.
    static CHECKED: Cell<bool> = const { Cell::new(false) };
}

fn main() -> ExitCode {
    if env::var_os(DEVICES).is_some() && env::var_os(LOADING).is_none() {
        // CUDA loads each NCCL kernel at its first launch, and then waits until the device is idle. But our
        // tests keep devices busy.
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
    let on_several = [operations::TESTS, lines::TESTS, order::TESTS, graphs::TESTS].concat();
    let on_three = [splits::TESTS, checked::TESTS].concat();
    match env::var(DEVICES) {
        Err(_) => {
            for vendor in VENDORS {
                add(Some(vendor), false, &[&on_several, &on_three, faults::TESTS, processes::TESTS].concat());
                add(Some(vendor), true, &[operations::TESTS, splits::TESTS, processes::TESTS].concat());
            }
        }
        Ok(names) => {
            let count = names.split(',').count();
            add(None, false, real::TESTS);
            if count >= 2 {
                add(None, false, &[&on_several, several::TESTS].concat());
                add(None, true, operations::TESTS);
            }
            if count >= SEVERAL {
                add(None, false, &on_three);
            }
        }
    }
    // The fakes are shared by the whole process, and so is a GPU's thread for host closures.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Runs a test on the fakes. Checks that it broke none of their rules and leaked nothing.
fn on_fakes(vendor: &'static str, test: fn()) {
    let recorder = if vendor == "cuda" {
        fake_cuda::load_with(fake_cuda::Options { devices: rank_count(), ..Default::default() })
    } else {
        let options = fake_hip::Options::of(fake_hip::Profile::Rocm6);
        fake_hip::load_with(fake_hip::Options { devices: rank_count(), ..options })
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

/// Waits until all communicators are closed, which happens on their own threads.
fn closed() {
    let deadline = Instant::now() + Duration::from_secs(60);
    while Nccl.live() > 0 {
        assert!(Instant::now() < deadline, "{} communicators are left", Nccl.live());
        thread::yield_now();
    }
}

/// Calls a closure with the fake driver, so that you can ask what it was called with.
fn with_recorder<R>(call: impl FnOnce(&Recorder) -> R) -> R {
    FAKE.with_borrow(|fake| call(&fake.as_ref().unwrap().1))
}

fn vendor() -> &'static str {
    FAKE.with_borrow(|fake| fake.as_ref().unwrap().0)
}

/// Returns the names of the ranks' devices.
fn device_names() -> Vec<String> {
    if let Ok(names) = env::var(DEVICES) {
        return names.split(',').map(str::to_owned).collect();
    }
    let vendor = vendor();
    (0..rank_count()).map(|rank| format!("{vendor}:{rank}")).collect()
}

/// Returns the number of ranks in most tests.
fn rank_count() -> usize {
    match (env::var(DEVICES), env::var(RANKS)) {
        (Ok(names), _) => names.split(',').count(),
        (Err(_), Ok(count)) => count.parse().unwrap(),
        (Err(_), Err(_)) => SEVERAL,
    }
}

/// Opens a device for each rank.
fn devices(options: DeviceOptions) -> Vec<Device> {
    device_names().iter().map(|name| Device::open_with(name, options).unwrap()).collect()
}

fn device(rank: usize) -> Device {
    Device::open(&device_names()[rank]).unwrap()
}

/// Returns true if the engine combines elements in the order of the ranks and rounds once, as the fake does.
fn combines_in_order() -> bool {
    env::var_os(DEVICES).is_none()
}

fn options(limit: Duration) -> CommunicatorOptions {
    CommunicatorOptions::default().engine(Engine::Nccl).time_limit(limit).checked(CHECKED.get())
}

/// Makes the communicators of all ranks. Their work may last for `limit`, or longer if the machine needs more
/// time to make them.
fn ranks_within(limit: Duration) -> Vec<Communicator> {
    ranks_that(DeviceOptions::default(), limit, options, warm_up)
}

/// Returns a limit for a test that waits for it. Real ranks need seconds to connect, and get more time if
/// they need it.
fn short() -> Duration {
    Duration::from_secs(if env::var_os(DEVICES).is_some() { 5 } else { 1 })
}

/// Makes communicators whose ranks are not connected yet, so you can see what the first call does.
fn new_ranks_within(limit: Duration) -> Vec<Communicator> {
    ranks_that(DeviceOptions::default(), limit, options, |_| Ok(()))
}

/// Makes communicators and does something with them. Doubles the time limit until that succeeds within it.
fn ranks_that(
    device: DeviceOptions,
    mut limit: Duration,
    options: impl Fn(Duration) -> CommunicatorOptions,
    work: impl Fn(&[Communicator]) -> Result<()>,
) -> Vec<Communicator> {
    let world = World::local(&devices(device)).unwrap();
    loop {
        let made = world.communicators_with(options(limit));
        match made.and_then(|ranks| work(&ranks).map(|()| ranks)) {
            Ok(ranks) => return ranks,
            Err(error) if matches!(broken(&error), CommunicatorFailure::Stalled { .. }) => limit *= 2,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Makes calls of each kind, so that the ranks connect, makes copies, and lets the pools get memory. A real
/// driver may wait for all devices of the process when it does that, and tests keep them busy.
fn warm_up(ranks: &[Communicator]) -> Result<()> {
    if env::var_os(DEVICES).is_none() {
        return Ok(());
    }
    let (streams, size) = (streams(ranks), ranks.len());
    let sync = || streams.iter().try_for_each(Stream::synchronize);
    let mut memory = order::full(&streams, size << 20, 1u8);
    let mut copies = order::full(&streams, size << 20, 1u8);
    group(|group| ranks.iter().zip(&streams).try_for_each(|(rank, stream)| group.on(rank).barrier(stream)))?;
    order::all_reduce(ranks, &streams, &mut memory, Op::Sum)?;
    sync()?;
    /// Makes a call of all ranks, and waits for it.
    macro_rules! all {
        ($method:ident, $src:expr, $dst:expr $(, $more:expr)*) => {
            group(|group| {
                for (((rank, stream), src), dst) in ranks.iter().zip(&streams).zip(&memory).zip(&mut copies) {
                    group.on(rank).$method(stream, src.slice(..$src)?, dst.slice_mut(..$dst)? $(, $more)*)?;
                }
                Ok(())
            })?;
            sync()?;
        };
    }
    // NCCL connects ranks again for other algorithms, which it chooses by call and length, and for messages.
    for len in [1, 1 << 20] {
        all!(all_to_all, size * len, size * len);
        all!(all_gather, len, size * len);
        all!(reduce_scatter, size * len, len, Op::Sum);
        all!(all_reduce, len, len, Op::Sum);
        all!(reduce, len, len, Op::Sum, 0);
        all!(scatter, size * len, len, 0);
    }
    for (stream, memory) in streams.iter().zip(&memory) {
        stream.upload(&stream.download(memory)?)?;
        stream.host_fn(|| ())?;
        stream.synchronize()?;
    }
    Ok(())
}

/// Enqueues a sum over the ranks. Each rank gives a hundred ones.
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
    ranks_that(DeviceOptions::default().tracking(Tracking::Strict), LONG, options, warm_up)
}
