//! Modules: loading them, looking things up, and refusing bad ones.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failure here fails the test")]

mod support;

use std::sync::LazyLock;

use gpustream_hal::{
    Device, Error, ErrorKind, GraphNode, LaunchConfig, MemoryInfo, ParamInfo, RawModule, RawStream, Work,
};
use support::{Arg, Bench, compile, options};

const ONE: LaunchConfig = LaunchConfig::new([1, 1, 1], [1, 1, 1]);

const KERNELS: &str = r#"
struct Pair { char a; double b; };
__device__ int counter;
extern "C" __global__ void params(char a, const float* p, short b, Pair pair, float3 v, long long n) {
    __shared__ float tile[32][33];
    __shared__ int more[10];
    tile[threadIdx.x][0] = p[0];
    more[0] = b;
    __syncthreads();
    if (a == 77) atomicAdd(&counter, more[0] + (int)tile[0][0] + (int)(pair.b + v.z) + (int)n);
}
extern "C" __global__ void none() {}
struct Big { int values[300]; };
extern "C" __global__ void big(int* out, Big big) { out[threadIdx.x] = big.values[threadIdx.x]; }
extern "C" __global__ void by_reference(int* out, const Big& big) { out[threadIdx.x] = big.values[threadIdx.x]; }
struct alignas(64) Line { int values[16]; };
struct alignas(256) Lines { int values[64]; };
template <class T> __device__ void read_in_place(const T& value, int* out) {
    out[0] += (int)((size_t)gs_cpu_current->params % alignof(T));
    out[1] += value.values[15] % 1000;
}
extern "C" __global__ void line(Line by_value, int* out) { read_in_place(by_value, out); }
extern "C" __global__ void lines(Lines by_value, int* out) { read_in_place(by_value, out); }
extern "C" __global__ void count(int* out) { *out = atomicAdd(&counter, 1); }
"#;
static IMAGE: LazyLock<Vec<u8>> = LazyLock::new(|| compile(KERNELS));

fn bench<const STREAMS: usize>() -> (Bench, [RawStream; STREAMS]) {
    Bench::with_streams(options(), &IMAGE)
}

fn load(bench: &Bench, image: &[u8]) -> Result<RawModule, Error> {
    // SAFETY: these are the compiler's own images. If one is damaged, we recognise that before any of its code runs.
    unsafe { bench.device.module_load(image) }
}

#[test]
fn parameters_are_those_of_the_compilers_own_table() {
    let (bench, []) = bench();
    // SAFETY: the module is loaded.
    let params = unsafe { bench.device.function_params(bench.function("params")) }.unwrap().unwrap();
    let expected = [(0, 1), (8, 8), (16, 2), (24, 16), (40, 12), (56, 8)];
    assert_eq!(params, expected.map(|(offset, size)| ParamInfo { offset, size }));
    // SAFETY: the module is loaded.
    let none = unsafe { bench.device.function_params(bench.function("none")) }.unwrap().unwrap();
    assert_eq!(none, []);
}

#[test]
fn long_parameter_blocks_arrive_whole() {
    let (bench, [stream]) = bench();
    let out = bench.memory::<i32>(300);
    let mut values: [i32; 300] = std::array::from_fn(|i| i as i32 * 3);
    let mut pointer = out.buffer.0;
    let args = [std::ptr::from_mut(&mut pointer).cast(), values.as_mut_ptr().cast()];
    let config = LaunchConfig::new([1, 1, 1], [300, 1, 1]);
    // SAFETY: the arguments are those that the kernel takes.
    unsafe { bench.device.launch(bench.function("big"), &config, &args, stream) }.unwrap();
    values.fill(0);
    bench.sync(stream).unwrap();
    assert!(out.as_ref().iter().enumerate().all(|(i, &v)| v == i as i32 * 3));
}

/// As on a GPU, a launch passes the address.
#[test]
fn a_parameter_may_be_a_reference() {
    let (bench, [stream]) = bench();
    let (out, big) = (bench.memory::<i32>(300), bench.memory::<i32>(300));
    let mut pointers = [out.buffer.0, big.buffer.0];
    let args = pointers.each_mut().map(|pointer| std::ptr::from_mut(pointer).cast());
    let function = bench.function("by_reference");
    // SAFETY: the module is loaded.
    let params = unsafe { bench.device.function_params(function) }.unwrap().unwrap();
    assert_eq!(params[1], ParamInfo { offset: 8, size: 8 });
    let config = LaunchConfig::new([1, 1, 1], [300, 1, 1]);
    let mut values: [i32; 300] = std::array::from_fn(|i| i as i32 - 50);
    let mut pointer = big.buffer.0;
    let filling = [std::ptr::from_mut(&mut pointer).cast(), values.as_mut_ptr().cast()];
    // SAFETY: the arguments are those that the kernels take, and the memory lives until both are done.
    unsafe {
        bench.device.launch(bench.function("big"), &config, &filling, stream).unwrap();
        bench.device.launch(function, &config, &args, stream).unwrap();
    }
    bench.sync(stream).unwrap();
    assert_eq!(*out.as_ref(), values);
}

/// A kernel may read its parameters in place with instructions that fault if the address is not aligned, so we must align
/// them.
#[test]
fn parameters_lie_where_their_alignment_wants_them() {
    const TIMES: usize = 20;
    let (bench, [stream]) = bench();
    let out = bench.memory::<i32>(2);
    let mut pointer = out.buffer.0;
    // The value that you pass need not be aligned.
    let mut bytes = [7_u8; 257];
    let args = [bytes[1..].as_mut_ptr().cast(), std::ptr::from_mut(&mut pointer).cast()];
    for function in [bench.function("line"), bench.function("lines")] {
        let graph = bench.device.graph_create().unwrap();
        let node = GraphNode::Work(Work::Kernel { function, config: &ONE, args: &args });
        // SAFETY: these are the arguments that the kernel takes, and we keep the graph until its launches are done.
        unsafe {
            bench.device.graph_add_node(graph, &[], &node).unwrap();
            let executable = bench.device.graph_instantiate(graph).unwrap();
            for _ in 0..TIMES {
                bench.device.launch(function, &ONE, &args, stream).unwrap();
                bench.device.graph_launch(executable, stream).unwrap();
            }
        }
    }
    bytes.fill(0);
    bench.sync(stream).unwrap();
    assert_eq!(*out.as_ref(), [0, 4 * TIMES as i32 * (0x0707_0707 % 1000)]);
}

#[test]
fn two_loads_of_one_image_are_two_modules() {
    let (bench, [stream]) = bench();
    let other = load(&bench, &IMAGE).unwrap();
    let out = bench.memory::<i32>(1);
    let call = |module| {
        // SAFETY: both modules are loaded.
        unsafe {
            let function = bench.device.module_function(module, "count").unwrap();
            let mut arg = Arg::from(&out);
            let config = LaunchConfig::new([1, 1, 1], [1, 1, 1]);
            bench.device.launch(function, &config, &[arg.pointer()], stream).unwrap();
        }
        bench.sync(stream).unwrap();
        out.as_ref()[0]
    };
    assert_eq!((call(bench.module), call(bench.module)), (0, 1));
    assert_eq!(call(other), 0);
    // SAFETY: none of it runs.
    unsafe { bench.device.module_unload(other) }.unwrap();
    assert_eq!(call(bench.module), 2);
    for _ in 0..20 {
        let again = load(&bench, &IMAGE).unwrap();
        assert_eq!(call(again), 0);
        // SAFETY: nothing of it runs.
        unsafe { bench.device.module_unload(again) }.unwrap();
    }
}

/// glibc never unloads the first image that defines a unique symbol, as g++ makes for static variables of templates. Later
/// images get the descriptor that it had, and must not be taken for it.
#[test]
fn images_that_stay_loaded_are_not_taken_for_the_next() {
    const KEPT: &str = r#"
asm(".pushsection .data\n.globl gs_unique\n.type gs_unique, @gnu_unique_object\n.size gs_unique, 4\n"
    ".balign 4\ngs_unique: .long 0\n.popsection");
extern "C" __attribute__((visibility("default"))) int gs_unique;
__device__ int counter;
extern "C" __global__ void count(int* out) { *out = 100 * gs_unique++ + counter++; }
"#;
    let (bench, [stream]) = bench();
    let out = bench.memory::<i32>(1);
    let count_once = |image: &[u8]| {
        let module = load(&bench, image).unwrap();
        // SAFETY: we unload the module when its kernel is done, and the kernel takes one pointer.
        unsafe {
            let function = bench.device.module_function(module, "count").unwrap();
            bench.device.launch(function, &ONE, &[Arg::from(&out).pointer()], stream).unwrap();
            bench.sync(stream).unwrap();
            bench.device.module_unload(module).unwrap();
        }
        out.as_ref()[0]
    };
    let kept = compile(KEPT);
    // Other tests take and free descriptors meanwhile, so one round proves little.
    for round in 0..20 {
        // All loads share the first one's unique symbol, because glibc has kept that image.
        let shared = if cfg!(target_env = "gnu") { round } else { 0 };
        assert_eq!(count_once(&kept), 100 * shared, "round {round}");
        assert_eq!(count_once(&IMAGE), 0, "round {round}");
    }
}

#[test]
fn a_name_that_is_not_there_is_an_error_with_the_names_that_are() {
    let (bench, []) = bench();
    // SAFETY: the module is loaded.
    let error = unsafe { bench.device.module_function(bench.module, "nothing") }.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::KernelNotFound);
    assert!(error.message().contains("nothing") && error.message().contains("params"), "{error}");
}

#[test]
fn damaged_images_are_errors_and_the_device_goes_on() {
    let (bench, []) = bench();
    let mut cut: Vec<Vec<u8>> =
        [0, 1, 16, 64, 100, 1000, IMAGE.len() / 2, IMAGE.len() - 1].map(|n| IMAGE[..n].to_vec()).into();
    cut.push(vec![0; 4096]);
    cut.push(b"not a module at all".to_vec());
    cut.push([&IMAGE[..64], &vec![0xff; IMAGE.len() - 64]].concat());
    let mut machine = IMAGE.clone();
    machine[18] = 0x16;
    for (index, image) in cut.iter().enumerate() {
        let error = load(&bench, image).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidModule, "{index}: {error}");
    }
    assert_eq!(load(&bench, &machine).unwrap_err().kind(), ErrorKind::NoImageForDevice);
    // This is a complete shared object, but it is not a module, so it must be refused.
    let stranger = compile("extern \"C\" __global__ void k() {}");
    let name = stranger.windows(20).position(|w| w == b"gpustream_cpu_module").unwrap();
    let mut renamed = stranger.clone();
    for at in name..renamed.len() - 20 {
        if &renamed[at..at + 20] == b"gpustream_cpu_module" {
            renamed[at] = b'x';
        }
    }
    assert_eq!(load(&bench, &renamed).unwrap_err().kind(), ErrorKind::InvalidModule);
    let stream = bench.stream();
    bench.launch(stream, "none", 1, 1, &mut []);
    bench.sync(stream).unwrap();
}

#[test]
fn launches_that_the_device_cannot_do_are_refused() {
    let (bench, [stream]) = bench();
    let one = LaunchConfig::new([1, 1, 1], [1, 1, 1]);
    let changed = |change: fn(&mut LaunchConfig)| {
        let mut config = one;
        change(&mut config);
        config
    };
    for (config, kind) in [
        (LaunchConfig::new([0, 1, 1], [1, 1, 1]), ErrorKind::InvalidLaunch),
        (LaunchConfig::new([1, 65_536, 1], [1, 1, 1]), ErrorKind::InvalidLaunch),
        (LaunchConfig::new([1, 1, 1], [0, 1, 1]), ErrorKind::InvalidLaunch),
        (LaunchConfig::new([1, 1, 1], [32, 33, 1]), ErrorKind::InvalidLaunch),
        (changed(|config| config.dynamic_shared = 1 << 20), ErrorKind::InvalidLaunch),
        (
            changed(|config| (config.cooperative, config.grid) = (true, [1 << 20, 1, 1])),
            ErrorKind::InvalidLaunch,
        ),
        (changed(|config| config.cluster = [2, 1, 1]), ErrorKind::Unsupported),
    ] {
        let refused = bench.launch_with(stream, "none", config, &mut []).unwrap_err();
        assert_eq!(refused.kind(), kind, "{config:?}: {refused}");
    }
    let too_many = bench.launch_with(stream, "none", one, &mut [Arg::from(1)]).unwrap_err();
    assert_eq!(too_many.kind(), ErrorKind::ArgumentMismatch);
    bench.launch_with(stream, "none", changed(|config| config.early_dependent = true), &mut []).unwrap();
    bench.sync(stream).unwrap();
}

#[test]
fn targets_are_ranked_by_what_the_machine_has() {
    let device = gpustream_cpu::backend().open(0).unwrap();
    let best = device.info().arch.clone();
    assert!(device.target_rank(&best).is_some());
    assert!(device.target_rank("gfx942").is_none());
    assert!(gpustream_cpu::backend().open(99).is_err_and(|e| e.kind() == ErrorKind::NoDevice));
}

#[test]
fn absurd_amounts_of_memory_are_refused() {
    let device: std::sync::Arc<dyn Device> = gpustream_cpu::open_with(options()).unwrap();
    for bytes in [usize::MAX, usize::MAX / 2, 1 << 60] {
        assert_eq!(device.alloc(bytes).unwrap_err().kind(), ErrorKind::OutOfMemory);
        let pinned = device.pinned_alloc(bytes, gpustream_hal::PinnedOptions::default());
        assert_eq!(pinned.unwrap_err().kind(), ErrorKind::OutOfMemory);
    }
    let MemoryInfo { free, total } = device.memory().unwrap();
    assert!(free > 0 && free <= total);
    let some = device.alloc(1000).unwrap();
    assert_eq!(device.memory().unwrap().free, free - 1000);
    // SAFETY: nothing uses it.
    unsafe { device.free(some) }.unwrap();
    assert_eq!(device.memory().unwrap().free, free);
}
