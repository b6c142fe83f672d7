//! The fake drivers that log their calls, and functions that play a scene on both of them.
#![allow(dead_code, reason = "each test program uses a part")]

use std::env;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use gpustream::{Arg, AsViewMut, Device, Image, Kernel, Launch, Module, ModuleSource, Result, Stream};
use recorder::{Call, Live, Recorder, module};

/// A fake driver, and what it calls things.
pub(crate) struct Fake {
    pub(crate) name: &'static str,
    pub(crate) load: fn() -> Recorder,
    pub(crate) target: &'static str,
    /// The driver function that launches a kernel.
    pub(crate) launch: &'static str,
    /// The driver function that the library calls to look at the thread's context.
    pub(crate) context_check: &'static str,
}

pub(crate) const FAKES: [Fake; 2] = [
    Fake {
        name: "cuda",
        load: fake_cuda::load,
        target: "sm_90",
        launch: "cuLaunchKernelEx",
        context_check: "cuCtxGetCurrent",
    },
    Fake {
        name: "hip",
        load: || fake_hip::load(fake_hip::Profile::Rocm6),
        target: "gfx90a",
        launch: "hipModuleLaunchKernel",
        context_check: "hipGetDevice",
    },
];

/// Plays a scene on each driver, and checks that it broke no rule of the driver.
pub(crate) fn play(scene: impl Fn(&Fake, &Recorder)) {
    for fake in &FAKES {
        let recorder = (fake.load)();
        scene(fake, &recorder);
        assert_eq!(recorder.violations(), [""; 0], "{}", fake.name);
    }
}

/// Like [`play`], and also checks that none of the scene's objects are left.
pub(crate) fn on_each(scene: impl Fn(&Fake, &Recorder)) {
    play(|fake, recorder| {
        let before = recorder.live();
        scene(fake, recorder);
        wait_until_gone(recorder, &before);
    });
}

/// Waits until all objects that are newer than `before` are gone. Other threads may still be dropping what closures,
/// futures and memory owned.
pub(crate) fn wait_until_gone(recorder: &Recorder, before: &Live) {
    let deadline = Instant::now() + Duration::from_mins(5);
    while recorder.live() != *before {
        assert!(Instant::now() < deadline, "{before:?} became {:?}", recorder.live());
        thread::yield_now();
    }
}

/// Plays a scene on one device of each driver, with this many streams.
pub(crate) fn on_both<const STREAMS: usize>(scene: impl Fn(&Recorder, &Device, [Stream; STREAMS])) {
    on_each(|fake, recorder| {
        let device = Device::open(fake.name).unwrap();
        scene(recorder, &device, [(); STREAMS].map(|()| device.stream().unwrap()));
        recorder.release();
    });
}

/// Plays a scene in a child that has these variables, and returns what the child printed. In the child it returns
/// `None`.
pub(crate) fn in_child(variables: &[(&str, &str)], scene: impl FnOnce()) -> Option<String> {
    const INSIDE: &str = "GPUSTREAM_TEST_CASE";
    if env::var_os(INSIDE).is_some() {
        scene();
        return None;
    }
    let test = thread::current().name().unwrap().to_owned();
    let output = Command::new(env::current_exe().unwrap())
        .args([&test, "--exact", "--nocapture"])
        .env_remove("NVTX_INJECTION64_PATH")
        .env(INSIDE, &test)
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    Some(text.into_owned())
}

/// Returns the calls in words that both vendors share.
pub(crate) fn words(calls: &[Call]) -> Vec<&'static str> {
    calls.iter().map(Call::word).collect()
}

/// Opens another handle of the device.
pub(crate) fn open_again(device: &Device) -> Device {
    Device::open(&format!("{}:{}", device.info().backend, device.info().ordinal)).unwrap()
}

pub(crate) const ONE: Launch = Launch::exact([1; 3], [1; 3]);

/// Makes the fake run the kernel of [`load_kernel`]. Otherwise it does nothing.
pub(crate) fn run_kernel(recorder: &Recorder) {
    recorder.on_kernel("increment", |run| {
        let (start, count) = (run.pointer::<u32>(0), run.integer(1) as usize);
        // SAFETY: `increment` passes memory and its length.
        unsafe { std::slice::from_raw_parts_mut(start, count) }.iter_mut().for_each(|word| *word += 1);
        true
    });
}

/// Loads a kernel that takes an address and a number of 32-bit words, and adds 1 to each of them.
pub(crate) fn load_kernel(fake: &Fake, device: &Device) -> Result<Kernel> {
    load_module(fake, device)?.kernel("increment")
}

/// Loads that kernel's module.
pub(crate) fn load_module(fake: &Fake, device: &Device) -> Result<Module> {
    load_kernels(fake, device, &[("increment", &[8, 8])])
}

/// Loads a module with these kernels. Each comes with the sizes of its parameters.
pub(crate) fn load_kernels(fake: &Fake, device: &Device, kernels: &[(&str, &[usize])]) -> Result<Module> {
    let bytes = module(kernels);
    let images = [Image { backend: fake.name, targets: &[fake.target], bytes: &bytes, symbols: &[] }];
    let source = ModuleSource { name: "test", images: &images, globals: &[] };
    // SAFETY: the driver is a fake, and the image is its own.
    unsafe { device.load_module(&source) }
}

/// Launches that kernel on all of `memory`.
#[track_caller]
pub(crate) fn increment(
    kernel: &Kernel,
    stream: &Stream,
    launch: Launch,
    memory: &mut impl AsViewMut<u32>,
) -> Result<()> {
    let count = memory.view_mut().len() as u64;
    // SAFETY: the kernel stays within the memory.
    unsafe { kernel.launch(stream, &launch, &[Arg::write(memory), Arg::value(&count)]) }
}
