//! Compiles kernels with `$CXX` or g++, and runs them through the traits.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failure here fails the test")]

use std::ffi::c_void;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use gpustream_cpu::{CpuOptions, flags, open_with};
use gpustream_hal::{
    Device, Error, EventOptions, LaunchConfig, PinnedOptions, RawBuffer, RawEvent, RawFunction, RawModule,
    RawStream, StreamOptions,
};

/// Kernels that wait for each other or for the host, and one that records the order of its launches.
pub const SYNC: &str = r#"
extern "C" __global__ void spin(const volatile unsigned* flag, unsigned value) { while (*flag != value) {} }
extern "C" __global__ void set(volatile unsigned* flag, unsigned value) {
    __threadfence_system();
    *flag = value;
}
extern "C" __global__ void meet(volatile unsigned* mine, const volatile unsigned* other) {
    *mine = 1;
    while (*other == 0) {}
}
extern "C" __global__ void append(int* list, unsigned* count, int value) { list[(*count)++] = value; }
"#;

const LEAST: &str = if cfg!(target_arch = "aarch64") { "armv8-a" } else { "x86-64-v2" };

/// Compiles `source`. We find its kernels and dynamic shared arrays by their keywords.
pub fn compile(source: &str) -> Vec<u8> {
    compile_for(source, LEAST, false)
}

/// Compiles like [`compile`], with array bounds checks.
pub fn compile_checked(source: &str) -> Vec<u8> {
    compile_for(source, LEAST, true)
}

/// Compiles like [`compile`], for an instruction level.
pub fn compile_for(source: &str, march: &str, checked: bool) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("user.cu"), source).unwrap();
    let mut unit = format!(
        "#include <gpustream/cpu/prelude.cuh>\n#include \"{}\"\n#include <gpustream/cpu/export.cuh>\n",
        path("user.cu").display()
    );
    for name in between(source, "extern __shared__ ", "[]") {
        unit += &format!("GS_CPU_DYNAMIC_SHARED({})\n", name.rsplit(' ').next().unwrap());
    }
    unit += "GS_CPU_GLOBALS()\nGS_CPU_MODULE(\n";
    for name in between(source, "__global__ void ", "(") {
        unit += &format!("GS_CPU_KERNEL(\"{name}\", 0, &{name})\n");
    }
    unit += ")\n";
    std::fs::write(path("unit.cpp"), unit).unwrap();
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels/include");
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "g++".into());
    let (own, checks): (&[_], _) = if compiler.contains("clang") {
        (&[], flags::CHECKED_CLANG)
    } else {
        (flags::COMPILE_GCC, flags::CHECKED_GCC)
    };
    let (source, object) = (path("unit.cpp"), path("unit.o"));
    let mut compile = Command::new(&compiler);
    compile.args(flags::COMPILE).args(own).args(if checked { checks } else { &[] });
    compile.arg(format!("-march={march}")).arg("-I").arg(include.join("gpustream/cpu/vendor"));
    compile.arg("-I").arg(include);
    run(compile.arg("-c").arg(source).arg("-o").arg(object));
    run(Command::new(&compiler).args(flags::LINK).arg(path("unit.o")).arg("-o").arg(path("unit.so")));
    std::fs::read(path("unit.so")).unwrap()
}

fn between<'a>(text: &'a str, before: &str, after: &str) -> Vec<&'a str> {
    let mut found: Vec<_> =
        text.split(before).skip(1).map(|rest| rest.split(after).next().unwrap().trim()).collect();
    found.sort_unstable();
    found.dedup();
    found
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&output.stderr));
}

/// A separate device with a loaded module.
pub struct Bench {
    pub device: Arc<dyn Device>,
    pub module: RawModule,
}

pub fn options() -> CpuOptions {
    CpuOptions::default().workers(2).warp_size(32).check(false)
}

impl Bench {
    pub fn new(source: &str) -> Self {
        Self::with(options(), &compile(source))
    }

    pub fn with(options: CpuOptions, image: &[u8]) -> Self {
        let device = open_with(options).unwrap();
        // SAFETY: the compiler's own images; damaged ones are recognised before any of their code runs.
        let module = unsafe { device.module_load(image) }.unwrap();
        Self { device, module }
    }

    /// Makes a bench like [`with`](Self::with), and this many streams.
    pub fn with_streams<const STREAMS: usize>(
        options: CpuOptions,
        image: &[u8],
    ) -> (Self, [RawStream; STREAMS]) {
        let bench = Self::with(options, image);
        let streams = [(); STREAMS].map(|()| bench.stream());
        (bench, streams)
    }

    pub fn function(&self, name: &str) -> RawFunction {
        // SAFETY: the module stays loaded.
        unsafe { self.device.module_function(self.module, name) }.unwrap()
    }

    pub fn stream(&self) -> RawStream {
        self.device.stream_create(StreamOptions::default()).unwrap()
    }

    pub fn launch(&self, stream: RawStream, name: &str, grid: u32, block: u32, args: &mut [Arg]) {
        self.launch_with(stream, name, LaunchConfig::new([grid, 1, 1], [block, 1, 1]), args).unwrap();
    }

    pub fn launch_with(
        &self,
        stream: RawStream,
        name: &str,
        config: LaunchConfig,
        args: &mut [Arg],
    ) -> Result<(), Error> {
        let pointers: Vec<*mut c_void> = args.iter_mut().map(Arg::pointer).collect();
        // SAFETY: tests pass the arguments that their kernels take.
        unsafe { self.device.launch(self.function(name), &config, &pointers, stream) }
    }

    pub fn sync(&self, stream: RawStream) -> Result<(), Error> {
        // SAFETY: tests use live streams.
        unsafe { self.device.stream_synchronize(stream) }
    }

    pub fn event(&self) -> RawEvent {
        self.device.event_create(EventOptions::default()).unwrap()
    }

    pub fn is_reached(&self, event: RawEvent) -> bool {
        // SAFETY: tests use live events.
        unsafe { self.device.event_query(event) }.unwrap()
    }

    pub fn sync_event(&self, event: RawEvent) -> Result<(), Error> {
        // SAFETY: tests use live events.
        unsafe { self.device.event_synchronize(event) }
    }

    pub fn record(&self, event: RawEvent, stream: RawStream) {
        // SAFETY: tests use live handles.
        unsafe { self.device.event_record(event, stream) }.unwrap();
    }

    pub fn wait(&self, stream: RawStream, event: RawEvent) {
        // SAFETY: tests use live handles.
        unsafe { self.device.stream_wait_event(stream, event) }.unwrap();
    }

    /// Allocates zeroed device memory.
    pub fn memory<T: Copy>(&self, len: usize) -> Memory<T> {
        let buffer = self.device.alloc(len.max(1) * size_of::<T>()).unwrap();
        Memory { buffer, len, _of: std::marker::PhantomData }
    }

    pub fn memory_of<T: Copy>(&self, values: &[T]) -> Memory<T> {
        let mut memory = self.memory(values.len());
        memory.as_mut().copy_from_slice(values);
        memory
    }

    /// Makes a flag that host and kernels may use at any time.
    pub fn flag(&self) -> &'static AtomicU32 {
        let ptr = self.device.pinned_alloc(4, PinnedOptions::default()).unwrap();
        // SAFETY: zeroed, aligned, and never freed.
        unsafe { &*(ptr as usize as *const AtomicU32) }
    }
}

/// Device memory that the host accesses directly. It can do that here, because both share one address space.
pub struct Memory<T> {
    pub buffer: RawBuffer,
    len: usize,
    _of: std::marker::PhantomData<T>,
}

impl<T: Copy> AsRef<[T]> for Memory<T> {
    fn as_ref(&self) -> &[T] {
        // SAFETY: an allocation of this length, zeroed; tests only look when the device is done.
        unsafe { std::slice::from_raw_parts(self.buffer.0 as *const T, self.len) }
    }
}

impl<T: Copy> AsMut<[T]> for Memory<T> {
    fn as_mut(&mut self) -> &mut [T] {
        // SAFETY: an allocation of this length, zeroed; tests only look when the device is done.
        unsafe { std::slice::from_raw_parts_mut(self.buffer.0 as *mut T, self.len) }
    }
}

/// A kernel argument: its bytes, aligned for any type.
pub struct Arg(u64);

impl Arg {
    pub fn pointer(&mut self) -> *mut c_void {
        std::ptr::from_mut(&mut self.0).cast()
    }
}

impl<T> From<&Memory<T>> for Arg {
    fn from(memory: &Memory<T>) -> Self {
        Self(memory.buffer.0 as u64)
    }
}

impl From<&AtomicU32> for Arg {
    fn from(flag: &AtomicU32) -> Self {
        Self(std::ptr::from_ref(flag) as u64)
    }
}

// Every processor of this backend stores the lowest byte first.
impl From<i32> for Arg {
    fn from(value: i32) -> Self {
        Self::from(value as u32)
    }
}

impl From<u32> for Arg {
    fn from(value: u32) -> Self {
        Self(value.into())
    }
}

/// Turns values into kernel arguments with `Arg::from`: `args![a, b]`.
#[macro_export]
macro_rules! args {
    ($($value:expr),* $(,)?) => { &mut [$(support::Arg::from($value)),*] };
}

/// Spins until the flag has this value.
pub fn await_flag(flag: &AtomicU32, value: u32) {
    let begun = std::time::Instant::now();
    while flag.load(Ordering::Acquire) != value {
        assert!(begun.elapsed().as_secs() < 300, "the flag never became {value}");
        std::thread::yield_now();
    }
}

#[track_caller]
pub fn assert_says(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "no `{part}` in: {message}");
    }
}
