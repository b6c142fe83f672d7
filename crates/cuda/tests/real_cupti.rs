//! The real CUPTI on a real device, if both are here. It is one test, because a process has one CUPTI.
#![allow(clippy::unwrap_used, clippy::panic)] // Also in the tests' helpers.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use gpustream_hal::{
    CopyDirection, Device, ErrorKind, FillPattern, LaunchConfig, PinnedOptions, Ran, RawFunction, RawStream,
    StreamOptions, WorkKind, trace,
};

/// `template <class T> __global__ void spin(unsigned long long nanoseconds)`, for `float`.
const SPIN: &[u8] = b".version 7.0\n.target sm_50\n.address_size 64\n\
    .visible .entry _Z4spinIfEvy(.param .u64 nanoseconds) {\n\
    .reg .u64 %begin, %now, %past, %limit;\n.reg .pred %more;\n\
    ld.param.u64 %limit, [nanoseconds];\nmov.u64 %begin, %globaltimer;\n\
    LOOP:\nmov.u64 %now, %globaltimer;\nsub.u64 %past, %now, %begin;\n\
    setp.lt.u64 %more, %past, %limit;\n@%more bra LOOP;\nret;\n}\n\0";

/// How many nanoseconds a device's time can be wrong after conversion to the host's clock.
const SLACK: u64 = 100_000;

/// A measurement of one operation.
#[derive(Clone, Debug)]
struct Measured {
    label: String,
    work: WorkKind,
    start: u64,
    end: u64,
}

/// A device with a stream and the kernel.
struct Scene {
    device: Arc<dyn Device>,
    stream: RawStream,
    spin: RawFunction,
}

impl Scene {
    fn operation<T>(&self, number: u64, work: impl FnOnce() -> T) -> T {
        self.device.trace_enter(number);
        let answer = work();
        self.device.trace_leave();
        answer
    }

    fn spin(&self, nanoseconds: u64) {
        let mut nanoseconds = nanoseconds;
        let args: [*mut c_void; 1] = [(&raw mut nanoseconds).cast()];
        // SAFETY: the kernel has this parameter; the stream is this device's.
        unsafe {
            let config = LaunchConfig::new([2, 1, 1], [32, 1, 1]);
            self.device.launch(self.spin, &config, &args, self.stream).unwrap();
        }
    }

    fn synchronize(&self) {
        self.device.synchronize().unwrap();
    }

    /// Returns what was measured for each operation, and how much was lost.
    fn take(&self, flush: bool) -> (BTreeMap<u64, Vec<Measured>>, u64) {
        let mut all = BTreeMap::<_, Vec<_>>::new();
        let mut each = |ran: &Ran<'_>| {
            let Ran { operation, label, work, start, end, .. } = *ran;
            assert!(start <= end);
            all.entry(operation).or_default().push(Measured { label: label.to_owned(), work, start, end });
        };
        let lost = self.device.trace_take(flush, &mut each).unwrap();
        (all, lost)
    }

    /// Returns how many nanoseconds the launch of an empty kernel takes on the host.
    fn launch_cost(&self, operation: Option<u64>) -> f64 {
        const LAUNCHES: u32 = 20_000;
        self.synchronize();
        let begun = Instant::now();
        for _ in 0..LAUNCHES {
            match operation {
                Some(number) => self.operation(number, || self.spin(0)),
                None => self.spin(0),
            }
        }
        let cost = begun.elapsed().as_nanos() as f64 / f64::from(LAUNCHES);
        self.synchronize();
        cost
    }
}

#[test]
fn times_of_real_work_belong_to_its_operations() {
    let backend = gpustream_cuda::backend();
    let Ok(device) = backend.open(0) else {
        eprintln!("SKIPPED: no device");
        return;
    };
    if let Err(error) = device.trace_begin() {
        eprintln!("SKIPPED: {error}");
        return;
    }
    device.trace_end();
    eprintln!("{}", backend.probe().tracer.unwrap());
    // SAFETY: the image is whole.
    let module = unsafe { device.module_load(SPIN) }.unwrap();
    // SAFETY: loaded above.
    let spin = unsafe { device.module_function(module, "_Z4spinIfEvy") }.unwrap();
    let stream = device.stream_create(StreamOptions::default()).unwrap();
    let scene = Scene { device, stream, spin };
    let plain = scene.launch_cost(None);
    // Begun again, and often.
    for round in 0..100 {
        scene.device.trace_begin().unwrap();
        scene.operation(100 + round, || scene.spin(0));
        scene.synchronize();
        let (all, lost) = scene.take(true);
        assert_eq!((all.keys().copied().collect::<Vec<_>>(), lost), (vec![100 + round], 0));
        scene.device.trace_end();
    }
    scene.device.trace_begin().unwrap();
    // SAFETY: the stream is alive, and we capture a kernel with its argument.
    let graph = unsafe {
        scene.device.capture_begin(stream).unwrap();
        (0..3).for_each(|_| scene.spin(20_000));
        let graph = scene.device.capture_end(stream).unwrap();
        scene.device.graph_instantiate(graph).unwrap()
    };

    each_kind_is_measured(&scene);
    for operation in 20..25 {
        // SAFETY: the graph is instantiated, and the stream alive.
        scene.operation(operation, || unsafe { scene.device.graph_launch(graph, stream) }.unwrap());
    }
    scene.synchronize();
    let (all, lost) = scene.take(true);
    let kernels: Vec<_> = all.iter().map(|(operation, ran)| (*operation, ran.len())).collect();
    eprintln!("a graph of three kernels: {kernels:?}, {lost} lost");
    assert_eq!((kernels, lost), ((20..25).map(|operation| (operation, 3)).collect(), 0));

    scene.spin(0);
    scene.synchronize();
    assert!(scene.take(true).0.is_empty(), "work outside of operations is nobody's");

    many_are_measured_from_several_threads(&scene);

    let traced = scene.launch_cost(Some(1));
    scene.take(true);
    eprintln!("a launch takes {plain:.0} ns, measured {traced:.0} ns");

    // A kernel that runs at the end is measured too.
    scene.operation(90, || scene.spin(3_000_000));
    scene.device.trace_end();
    scene.synchronize();
    let (all, lost) = scene.take(true);
    eprintln!("a kernel that ran while the trace ended: {all:?}, {lost} lost");
    let after = scene.launch_cost(None);
    eprintln!("a launch after the trace takes {after:.0} ns");

    // Not again: the graph was made before.
    assert_eq!(scene.device.trace_begin().unwrap_err().kind(), ErrorKind::Unsupported);
}

fn each_kind_is_measured(scene: &Scene) {
    const BYTES: usize = 1 << 20;
    let Scene { device, stream, .. } = scene;
    let memory = device.alloc(2 * BYTES).unwrap();
    let upper = gpustream_hal::RawBuffer(memory.0 + BYTES);
    let pinned = device.pinned_alloc(BYTES, PinnedOptions::default()).unwrap();
    scene.synchronize();
    let before = trace::now();
    // SAFETY: all memory has this many bytes, and lives until the device has finished.
    unsafe {
        scene.operation(1, || scene.spin(200_000));
        scene.operation(2, || device.fill(memory, FillPattern::U8(7), BYTES, *stream).unwrap());
        scene.operation(3, || device.copy_on_device(upper, memory, BYTES, *stream).unwrap());
        scene.operation(4, || device.copy_to_host(pinned, upper, BYTES, *stream).unwrap());
        scene.operation(5, || device.copy_to_device(memory, pinned, BYTES, *stream).unwrap());
    }
    scene.synchronize();
    let after = trace::now();
    let (all, lost) = scene.take(true);
    eprintln!("between {before} and {after}: {all:#?}");
    assert_eq!(lost, 0);
    let one = |operation| {
        let [ran] = &all[&operation][..] else { panic!("{operation}: {all:?}") };
        ran.clone()
    };
    let bytes = BYTES as u64;
    let all: Vec<_> = (1..=5).map(one).collect();
    let works = [
        WorkKind::Kernel { grid: [2, 1, 1], block: [32, 1, 1] },
        WorkKind::Fill { bytes },
        WorkKind::Copy { direction: CopyDirection::OnDevice, bytes },
        WorkKind::Copy { direction: CopyDirection::ToHost, bytes },
        WorkKind::Copy { direction: CopyDirection::ToDevice, bytes },
    ];
    for (ran, work) in all.iter().zip(works) {
        assert_eq!(ran.work, work);
        assert!(ran.start + SLACK >= before && ran.end <= after + SLACK, "{ran:?}");
    }
    assert!(all.windows(2).all(|two| two[0].end <= two[1].start), "a stream's operations follow each other");
    assert_eq!(all[0].label, "spin<float>");
    let spun = all[0].end - all[0].start;
    assert!((199_000..400_000).contains(&spun), "{spun} ns");
    // SAFETY: the device has finished.
    unsafe {
        device.free(memory).unwrap();
        device.pinned_free(pinned).unwrap();
    }
}

fn many_are_measured_from_several_threads(scene: &Scene) {
    const THREADS: u64 = 4;
    const EACH: u64 = 20_000;
    let mut all = BTreeMap::<_, usize>::new();
    let mut lost = 0;
    let mut take = |flush| {
        let (some, more) = scene.take(flush);
        for (operation, ran) in some {
            *all.entry(operation).or_default() += ran.len();
        }
        lost += more;
    };
    thread::scope(|threads| {
        let submitters: Vec<_> = (1..=THREADS)
            .map(|number| {
                threads.spawn(move || {
                    for n in 0..EACH {
                        scene.operation(number * 1_000_000 + n, || scene.spin(0));
                    }
                })
            })
            .collect();
        while !submitters.iter().all(thread::ScopedJoinHandle::is_finished) {
            take(false);
        }
    });
    scene.synchronize();
    take(true);
    assert_eq!((all.len() as u64, lost), (THREADS * EACH, 0));
    assert!(all.values().all(|&ran| ran == 1));
}
