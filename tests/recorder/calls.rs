//! The exact driver calls that the public API makes, on fake drivers that log them. They are the same for CUDA and HIP.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod fakes;

use std::cell::RefCell;
use std::thread;

use fake_cuda::codes;
use gpustream::codegen::{Variables, load};
use gpustream::hal::FillPattern;
use gpustream::interop::StreamWatcher;
use gpustream::{
    Arg, AsViewMut, Buffer, CopyBatch, Device, Error, ErrorKind, GlobalMemory, GlobalVariable, Image, Kernel,
    Launch, ModuleSource, ParamInfo, Result, Stream, ViewMut, WaitPolicy, WaitValue,
};
use recorder::{Call, Recorder};

use crate::fakes::{Fake, ONE, increment, load_kernel, load_kernels, on_each, play, run_kernel, words};

/// An opened fake device, with a kernel that adds 1 to words.
struct Scene<'a> {
    device: Device,
    kernel: Kernel,
    recorder: &'a Recorder,
}

impl<'a> Scene<'a> {
    fn new(fake: &Fake, recorder: &'a Recorder) -> Self {
        let device = Device::open(fake.name).unwrap();
        let kernel = load_kernel(fake, &device).unwrap();
        run_kernel(recorder);
        Self { device, kernel, recorder }
    }

    fn launch(&self, stream: &Stream, x: &mut impl AsViewMut<u32>) -> Result<()> {
        increment(&self.kernel, stream, ONE, x)
    }

    /// Returns the calls that `work` makes, in words that both vendors share.
    fn calls(&self, work: impl FnOnce()) -> Vec<&'static str> {
        let ((), calls) = self.recorder.record(work);
        // We leave out events, because they are made once and used again.
        calls.iter().map(Call::word).filter(|word| *word != "make event").collect()
    }
}

/// A copy of so many `u32` is not short.
const LONG: usize = 8 << 10;

/// Plays a scene with this many streams, on both drivers.
fn on_both<const STREAMS: usize>(scene: impl Fn(&Scene<'_>, &Fake, [Stream; STREAMS])) {
    on_each(|fake, recorder| {
        let stage = Scene::new(fake, recorder);
        scene(&stage, fake, [(); STREAMS].map(|()| stage.device.stream().unwrap()));
        recorder.release();
    });
}

#[test]
fn a_launch_is_one_call_beside_the_context_check() {
    on_both(|scene, _, [s]| {
        let mut x = s.zeros::<u32>(10).unwrap();
        scene.launch(&s, &mut x).unwrap();
        scene.recorder.clear();
        scene.launch(&s, &mut x).unwrap();
        let calls = scene.recorder.calls();
        let (checks, work): (Vec<_>, Vec<_>) = calls.iter().partition(|call| call.is_context_check());
        assert!(checks.len() <= 1, "{calls:?}");
        assert_eq!(work.iter().map(|call| call.word()).collect::<Vec<_>>(), ["launch"]);
    });
}

/// CUDA can pass 32764 bytes since 12.1. HIP states no limit.
#[test]
fn parameters_that_the_device_does_not_take_are_refused() {
    on_both::<0>(|scene, fake, []| {
        let kernels: [(&str, &[usize]); 2] = [("fits", &[32_752, 8]), ("large", &[32_760, 8])];
        let module = load_kernels(fake, &scene.device, &kernels).unwrap();
        let param = |offset, size| ParamInfo { offset, size };
        module.kernel_with("fits", &[param(0, 32_752), param(32_752, 8)]).unwrap();
        let params = [param(0, 32_760), param(32_760, 8)];
        for found in [module.kernel("large"), module.kernel_with("large", &params)] {
            match found {
                Ok(_) => assert_eq!(fake.name, "hip"),
                Err(error) => {
                    assert_eq!((fake.name, error.kind()), ("cuda", ErrorKind::Unsupported));
                    assert!(error.to_string().contains("takes 32768 bytes of parameters"), "{error}");
                }
            }
        }
    });
}

/// If a module has variables that only its images show, its launches must be ordered, and loading must not look them
/// up. If a module has none, it costs nothing.
#[test]
fn unlisted_variables_cost_a_hand_over() {
    on_both::<2>(|scene, fake, [a, b]| {
        let bytes = recorder::module(&[("count", &[])]);
        let images = [Image { backend: fake.name, targets: &[fake.target], bytes: &bytes, symbols: &[] }];
        let source = ModuleSource { name: "test", images: &images, globals: &[] };
        for (unlisted, hand_over) in [(&["sum"][..], &["record", "wait", "launch"][..]), (&[], &["launch"])] {
            let variables = Variables { unlisted, read_only: &[] };
            let mut module = None;
            let loading = scene.calls(|| {
                // SAFETY: the driver is a fake, and the image is its own.
                module = Some(unsafe { load(&scene.device, &source, None, &[], &variables) }.unwrap());
            });
            assert_eq!(loading, ["load"]);
            let kernel = module.unwrap().kernel("count").unwrap();
            // SAFETY: the fake's kernel does nothing.
            let launch = |s: &Stream| unsafe { kernel.launch(s, &ONE, &[]) }.unwrap();
            launch(&a);
            assert_eq!(scene.calls(|| launch(&a)), ["launch"]);
            assert_eq!(scene.calls(|| launch(&b)), hand_over, "{unlisted:?}");
            assert_eq!(scene.calls(|| launch(&a)), hand_over, "{unlisted:?}");
        }
    });
}

/// A module's variables cost one call each when you load it, and nothing on one stream. If launches on two streams may
/// write them, they must be ordered. The same holds for copies.
#[test]
fn variables_are_looked_up_at_load_and_cost_a_hand_over() {
    on_both::<2>(|scene, fake, [a, b]| {
        let bytes = recorder::module_with_globals(&[("count", &[])], &[("sum", 4), ("_ZN2ns5tableE", 16)]);
        let symbols = [("ns::table", "_ZN2ns5tableE")];
        let images =
            [Image { backend: fake.name, targets: &[fake.target], bytes: &bytes, symbols: &symbols }];
        let variable = |name, memory| GlobalVariable { name, memory };
        let globals = [
            variable("sum", GlobalMemory::Device),
            variable("ns::table", GlobalMemory::Constant),
            variable("missing", GlobalMemory::Constant),
        ];
        let source = ModuleSource { name: "test", images: &images, globals: &globals };
        let mut module = None;
        let loading = scene.calls(|| {
            // SAFETY: the driver is a fake, and the image is its own.
            module = Some(unsafe { scene.device.load_module(&source) }.unwrap());
        });
        // CUDA adds calls that explain why the third one is missing.
        assert_eq!(loading[..4], ["load", "ModuleGetGlobal", "ModuleGetGlobal", "ModuleGetGlobal"]);
        let module = module.unwrap();
        let kernel = module.kernel("count").unwrap();
        // SAFETY: the fake's kernel does nothing.
        let launch = |s: &Stream| unsafe { kernel.launch(s, &ONE, &[]) }.unwrap();
        // SAFETY: no kernel reads them.
        let (sum, table) =
            unsafe { (module.global::<u32>("sum").unwrap(), module.global::<u32>("ns::table").unwrap()) };
        assert_eq!(table.len(), 4);
        // SAFETY: nothing is written.
        let missing = unsafe { module.global::<u32>("missing") }.unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::GlobalNotFound);
        // SAFETY: nothing is written.
        let by_bindings = unsafe { gpustream::codegen::global::<u32>(&module, "missing", 1) }.unwrap_err();
        assert_eq!(by_bindings.call_site().unwrap().location.file(), file!());
        let before = a.upload(&[7u32]).unwrap();
        a.synchronize().unwrap();
        let own = scene.calls(|| {
            launch(&a);
            sum.copy_from(&a, &before).unwrap();
            launch(&a);
        });
        assert_eq!(own, ["launch", "on device", "launch"]);
        assert_eq!(scene.calls(|| launch(&b)), ["record", "wait", "launch"]);
        assert_eq!(scene.calls(|| launch(&a)), ["record", "wait", "launch"]);
        assert_eq!(scene.calls(|| table.fill(&b, 3).unwrap()), ["record", "wait", "fill"]);
        assert_eq!(sum.download(&a).unwrap(), [7]);
        assert_eq!(table.download(&a).unwrap(), [3; 4]);
        launch(&b);
        let dropping = scene.calls(|| drop((module.clone(), kernel, sum, table)));
        assert!(!dropping.contains(&"unload"), "the module is in use: {dropping:?}");
        let unloading = scene.calls(|| {
            drop(module);
            b.synchronize().unwrap();
            // When you make a stream, the library looks for what it can free.
            drop(scene.device.stream().unwrap());
        });
        assert!(unloading.contains(&"unload"), "{unloading:?}");
    });
}

/// Flags are not tracked, so no use of one may cost an event. A wait that we refuse must make no call.
#[test]
fn a_wait_for_a_flag_and_a_write_of_one_are_one_call_each() {
    on_both(|scene, _, [a, b]| {
        let flag = scene.device.flag().unwrap();
        let calls = scene.calls(|| {
            a.wait_flag(&flag, WaitValue::AtLeast(1)).unwrap();
            b.wait_flag(&flag, WaitValue::AnyBit(4)).unwrap();
            a.wait_flag(&flag, WaitValue::AtLeast(1 << 31)).unwrap_err();
            b.set_flag(&flag, 2).unwrap();
        });
        assert_eq!(calls, ["wait for word", "wait for word", "write word"]);
        assert_eq!(flag.get(), 0);
        flag.set(4);
        a.synchronize().unwrap();
        b.synchronize().unwrap();
        assert_eq!(flag.get(), 2);
    });
}

#[test]
fn one_stream_makes_no_event_call() {
    on_both(|scene, _, [s]| {
        let (mut x, mut y) = (s.zeros::<u32>(10).unwrap(), s.zeros::<u32>(10).unwrap());
        let calls = scene.calls(|| {
            scene.launch(&s, &mut x).unwrap();
            s.copy(&x, &mut y).unwrap();
            s.fill(&mut x, 3).unwrap();
            scene.launch(&s, &mut y).unwrap();
        });
        assert_eq!(calls, ["launch", "on device", "fill", "launch"]);
        assert_eq!(s.download(&y).unwrap(), [2; 10]);
    });
}

#[test]
fn a_hand_over_is_one_record_and_one_wait_and_the_second_none() {
    on_both(|scene, _, [a, b]| {
        let mut x = a.zeros::<u32>(10).unwrap();
        let first = scene.calls(|| scene.launch(&b, &mut x).unwrap());
        assert_eq!(first, ["record", "wait", "launch"]);
        let second = scene.calls(|| scene.launch(&b, &mut x).unwrap());
        assert_eq!(second, ["launch"]);
        let back = scene.calls(|| scene.launch(&a, &mut x).unwrap());
        assert_eq!(back, ["record", "wait", "launch"]);
        let said = scene.calls(|| {
            let event = a.record().unwrap();
            b.wait(&event).unwrap();
            b.wait(&event).unwrap();
            scene.launch(&b, &mut x).unwrap();
        });
        assert_eq!(said, ["record", "wait", "launch"]);
        assert_eq!(a.download(&x).unwrap(), [4; 10]);
    });
}

#[test]
fn waiting_for_a_stream_is_one_record_and_one_wait() {
    on_both(|scene, _, [a, b]| {
        scene.recorder.hold();
        let mut x = a.zeros::<u32>(10).unwrap();
        scene.launch(&a, &mut x).unwrap();
        let words = scene.calls(|| b.wait_for(&a).unwrap());
        assert_eq!(words, ["record", "wait"]);
        // The library knows the order now, so it must not wait again.
        assert_eq!(scene.calls(|| scene.launch(&b, &mut x).unwrap()), ["launch"]);
        assert_eq!(scene.calls(|| b.wait_for(&b).unwrap()), [""; 0]);
        scene.recorder.release();
        assert_eq!(b.download(&x).unwrap(), [2; 10]);
    });
}

/// A kernel, another library's call, a kernel. On one stream nothing may be added. On two streams each change costs one
/// hand-over.
#[test]
fn an_external_operation_costs_what_a_launch_does() {
    on_both(|scene, _, [a, b]| {
        let mut x = a.zeros::<u32>(10).unwrap();
        let external = |stream: &Stream, x: &mut Buffer<u32>| {
            let raw = scene.device.raw();
            // SAFETY: the fill goes to the stream that is given, and writes `x` alone.
            let filled = unsafe {
                stream.external("theirs", &[Arg::write(x)], |stream, [to]| {
                    raw.fill(to, FillPattern::U32(5), 10, stream)
                })
            };
            filled.unwrap();
        };
        let mut chain = |other: &Stream| {
            scene.calls(|| {
                scene.launch(&a, &mut x).unwrap();
                external(other, &mut x);
                scene.launch(&a, &mut x).unwrap();
            })
        };
        assert_eq!(chain(&a), ["launch", "fill", "launch"]);
        assert_eq!(chain(&b), ["launch", "record", "wait", "fill", "record", "wait", "launch"]);
        assert_eq!(a.download(&x).unwrap(), [6; 10]);
    });
}

/// The context cannot be entered, and the error is converted to your own type. That conversion is your code and may use
/// the stream, so the stream must be unlocked.
#[test]
fn stream_is_unlocked_while_an_error_is_converted() {
    thread_local!(static STREAM: RefCell<Option<Stream>> = const { RefCell::new(None) });
    #[derive(Debug)]
    struct Theirs(Error);
    impl From<Error> for Theirs {
        fn from(error: Error) -> Self {
            STREAM.with_borrow(|stream| stream.as_ref().unwrap().record()).unwrap();
            Self(error)
        }
    }
    play(|fake, recorder| {
        let device = Device::open(fake.name).unwrap();
        STREAM.set(Some(device.stream().unwrap()));
        let outcome = STREAM.with_borrow(|stream| {
            let stream = stream.as_ref().unwrap();
            recorder.fail_next(fake.context_check, codes::NOT_SUPPORTED);
            // SAFETY: nothing is enqueued.
            unsafe { stream.external("theirs", (), |_, ()| Ok::<(), Theirs>(())) }
        });
        assert!(recorder.disarm(), "the context was looked at");
        assert_eq!(outcome.unwrap_err().0.kind(), ErrorKind::Unsupported);
        STREAM.take();
    });
}

/// A section's event is recorded only before other work follows, or when you ask.
#[test]
fn sections_that_follow_each_other_share_an_event() {
    on_both(|scene, _, [a]| {
        let mut x = a.zeros::<u32>(10).unwrap();
        let fill = |grown: Option<&StreamWatcher>, x: &mut Buffer<u32>| {
            let raw = scene.device.raw();
            // SAFETY: the fill goes to the stream that is given, and writes `x` alone.
            let filled = unsafe {
                a.external_watched("theirs", &[Arg::write(x)], grown, |stream, [to]| {
                    raw.fill(to, FillPattern::U32(5), 10, stream)
                })
            };
            filled.unwrap().1
        };
        let mut sections = Vec::new();
        for expected in [["record", "fill"], ["record", "fill"]] {
            assert_eq!(scene.calls(|| sections.extend(fill(None, &mut x))), expected);
            assert_eq!(scene.calls(|| assert!(fill(sections.last(), &mut x).is_none())), ["fill"]);
        }
        assert_eq!(scene.calls(|| scene.launch(&a, &mut x).unwrap()), ["record", "launch"]);
        assert_eq!(scene.calls(|| scene.launch(&a, &mut x).unwrap()), ["launch"]);
        assert_eq!(scene.calls(|| sections.extend(fill(None, &mut x))), ["record", "fill"]);
        assert_eq!(scene.calls(|| _ = sections[2].is_done().unwrap()), ["record", "ask event"]);
        assert_eq!(scene.calls(|| _ = sections[2].is_done().unwrap()), ["ask event"]);
        // The stream must use the old sections' events again.
        let ((), calls) = scene.recorder.record(|| {
            sections.clear();
            sections.extend(fill(None, &mut x));
        });
        assert_eq!(words(&calls), ["record", "fill"]);
    });
}

#[test]
fn memory_that_changes_hands_costs_a_hand_over_at_most() {
    on_both(|scene, _, [a, b]| {
        let address = scene.device.raw().alloc(40).unwrap();
        // SAFETY: the memory is freed below, when nothing uses it.
        let taken = || unsafe { Buffer::<u32>::from_raw(&a, address.as_mut_ptr(), 10, ()) }.unwrap();
        let mut x = None;
        assert_eq!(scene.calls(|| x = Some(taken())), ["ask about an address"]);
        let mut x = x.unwrap();
        assert_eq!(scene.calls(|| scene.launch(&a, &mut x).unwrap()), ["launch"]);
        let mut loan = None;
        assert_eq!(scene.calls(|| loan = Some(x.into_raw(&b).unwrap())), ["record", "wait"]);
        // The library's own thread may look whether the work is done, so we only count this thread's calls.
        let (me, ((), calls)) = (thread::current().id(), scene.recorder.record(|| drop(loan)));
        assert!(calls.iter().all(|call| call.thread != me), "{calls:?}");
        b.synchronize().unwrap();
        // SAFETY: everything is done.
        unsafe { scene.device.raw().free(address) }.unwrap();
    });
}

/// The memory belongs to a device that this stream's context cannot access.
#[test]
fn memory_of_another_device_is_refused() {
    on_both(|_, fake, [stream]| {
        let other = Device::open(&format!("{}:1", fake.name)).unwrap();
        let address = other.raw().alloc(40).unwrap();
        // SAFETY: it is refused.
        let refused = unsafe { Buffer::<u32>::from_raw(&stream, address.as_mut_ptr(), 10, ()) }.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::DeviceMismatch, "{refused}");
        assert!(refused.message().contains("belongs to device 1"), "{refused}");
        // SAFETY: nothing uses it.
        unsafe { other.raw().free(address) }.unwrap();
    });
}

/// The version of HIP that this fake plays has no batches, so there each copy is a call.
#[test]
fn a_batch_is_one_call_after_one_wait() {
    fn halves(stream: &Stream, x: &Buffer<u32>, y: &mut impl AsViewMut<u32>) -> Result<()> {
        let mut batch = CopyBatch::new();
        for (from, to) in x.chunks(5)?.zip(y.view_mut().chunks_mut(5)?) {
            batch.add(from, to)?;
        }
        stream.copy_batch(batch)
    }

    on_both(|scene, fake, [a, b]| {
        let is_cuda = fake.name == "cuda";
        let (x, mut y) = (a.upload(&[7u32; 10]).unwrap(), b.zeros::<u32>(10).unwrap());
        let mut host = scene.device.pinned::<u32>(10).unwrap();
        let batch = if is_cuda { vec!["copy batch"] } else { vec!["on device"; 2] };
        let first = scene.calls(|| halves(&b, &x, &mut y).unwrap());
        assert_eq!(first, [vec!["record", "wait"], batch.clone()].concat());
        assert_eq!(scene.calls(|| halves(&b, &x, &mut y).unwrap()), batch);
        // The host waits for the batch alone, so one event must be enough for all copies.
        let batch = if is_cuda { vec!["copy batch"] } else { vec!["to host"; 2] };
        assert_eq!(scene.calls(|| halves(&b, &x, &mut host).unwrap()), batch);
        assert_eq!(scene.calls(|| drop(host.read().unwrap())), ["record", "sync event"]);
        assert_eq!((b.download(&y).unwrap(), host.read().unwrap().to_vec()), (vec![7; 10], vec![7; 10]));
        let graph = b.capture(|b| halves(b, &x, &mut y)).unwrap();
        graph.launch(&b).unwrap();
    });
}

/// The event must be recorded only when something else is submitted, or when the host waits.
#[test]
fn pinned_memory_costs_one_record() {
    on_both(|scene, _, [s]| {
        let mut x = s.zeros::<u32>(LONG).unwrap();
        let mut host = scene.device.pinned_from(&vec![5u32; LONG]).unwrap();
        let to = scene.calls(|| s.copy(&host, &mut x).unwrap());
        assert_eq!(to, ["to device"]);
        let reading = scene.calls(|| drop(host.read().unwrap()));
        assert_eq!(reading, [""; 0], "only readers are under way");
        let again = scene.calls(|| s.copy(&host, &mut x).unwrap());
        assert_eq!(again, ["to device"], "a wait for one is a wait for both");
        let from = scene.calls(|| s.copy(&x, &mut host).unwrap());
        assert_eq!(from, ["record", "to host"]);
        let wait = scene.calls(|| assert_eq!(*host.read().unwrap(), vec![5; LONG]));
        assert_eq!(wait, ["record", "sync event"]);
    });
}

/// Each copy touches other memory, and the host may wait for any of them: with an event each, half of the calls were events.
#[test]
fn sixteen_short_copies_share_an_event() {
    on_both(|scene, _, [s]| {
        let mut x = s.zeros::<u32>(100 * 10).unwrap();
        let host = scene.device.pinned_from(&[5u32; 100 * 10]).unwrap();
        s.synchronize().unwrap();
        let copies = || {
            for (from, mut to) in host.chunks(10).unwrap().zip(x.chunks_mut(10).unwrap()) {
                s.copy(&from, &mut to).unwrap();
            }
        };
        let calls = scene.calls(copies);
        assert_eq!(calls.iter().filter(|word| **word == "to device").count(), 100);
        assert_eq!(calls.len(), 100 + 6, "{calls:?}");
        // What is no short copy must not be waited for with them.
        assert_eq!(scene.calls(|| scene.launch(&s, &mut x).unwrap()), ["record", "launch"]);
        let mut one = scene.device.pinned::<u32>(1).unwrap();
        let long = scene.device.pinned_from(&vec![5u32; LONG]).unwrap();
        let mut y = s.alloc::<u32>(LONG).unwrap();
        assert_eq!(scene.calls(|| s.copy(&x.slice(..1).unwrap(), &mut one).unwrap()), ["to host"]);
        assert_eq!(scene.calls(|| s.copy(&long, &mut y).unwrap()), ["record", "to device"]);
        // A short one may be waited for with the long one in front.
        assert_eq!(scene.calls(|| s.copy(&x.slice(..1).unwrap(), &mut one).unwrap()), ["to host"]);
        assert_eq!(scene.calls(|| drop(one.read().unwrap())), ["record", "sync event"]);
    });
}

/// Nothing that may take long gets between a short copy and its event.
#[test]
fn an_event_is_not_put_off_past_a_wait() {
    on_both(|scene, _, [s, t]| {
        let mut x = s.zeros::<u32>(10).unwrap();
        let mut y = t.zeros::<u32>(10).unwrap();
        let (one, mut two) =
            (scene.device.pinned_from(&[5u32; 10]).unwrap(), scene.device.pinned::<u32>(10).unwrap());
        s.synchronize().unwrap();
        t.synchronize().unwrap();
        scene.recorder.hold();
        scene.launch(&t, &mut y).unwrap();
        s.copy(&one, &mut x).unwrap();
        let calls = scene.calls(|| s.copy(&y, &mut two).unwrap());
        // The event for `t`'s kernel, the event for the first copy, the wait, the second copy.
        assert_eq!(calls, ["record", "record", "wait", "to host"]);
        scene.recorder.release();
    });
}

/// The read must wait for the event of its copy, and for nothing later.
#[test]
fn a_pinned_read_waits_for_its_copy() {
    on_both(|scene, _, [s]| {
        let mut x = s.full(10, 7u32).unwrap();
        let mut host = scene.device.pinned::<u32>(10).unwrap();
        s.synchronize().unwrap();
        scene.recorder.hold();
        s.copy(&x, &mut host).unwrap();
        scene.launch(&s, &mut x).unwrap();
        assert!(!host.is_done().unwrap());
        scene.recorder.clear();
        thread::scope(|scope| {
            let reader = scope.spawn(|| assert_eq!(*host.read().unwrap(), [7; 10]));
            scene.recorder.wait_until_someone_waits();
            // The driver runs the copy and its record. The kernel stays pending.
            scene.recorder.step(2);
            reader.join().unwrap();
        });
        assert!(scene.recorder.pending() > 0, "the kernel was waited for");
        let calls = scene.recorder.words();
        assert_eq!(calls, ["sync event"]);
        scene.recorder.release();
    });
}

/// In each round, a piece of two arrays makes one record, its copies and its launches. The record belongs to the
/// previous piece, because the host may have to wait for that.
#[test]
fn a_piece_in_place_is_its_copies_its_launches_and_one_record() {
    const PIECE: [&str; 7] = ["record", "to device", "to device", "launch", "launch", "to host", "to host"];
    on_both(|scene, _, []| {
        for depth in [1, 2, 3, 4] {
            let [mut a, mut b] = [scene.device.pinned::<u32>(35).unwrap(), scene.device.pinned(35).unwrap()];
            let mut pipeline = scene.device.pipeline().chunks(10).depth(depth);
            let mut round = || {
                pipeline.in_place([&mut a, &mut b], |stream, [a, b]| {
                    scene.launch(stream, a)?;
                    scene.launch(stream, b)
                })
            };
            round().unwrap();
            // If the host is ahead by this much, it only asks now and then which events have been reached.
            scene.recorder.hold();
            let mut calls = scene.calls(|| (0..100).for_each(|_| round().unwrap()));
            scene.recorder.release();
            let asked = calls.extract_if(.., |word| *word == "ask event").count();
            assert!(asked <= 100, "{asked} questions for 400 pieces");
            assert_eq!(calls.len(), 400 * PIECE.len());
            for piece in calls.chunks(PIECE.len()) {
                assert_eq!(piece, PIECE, "depth {depth}");
            }
            assert_eq!((&*a.read().unwrap(), &*b.read().unwrap()), (&[101; 35][..], &[101; 35][..]));
        }
    });
}

/// The state may change while it is being copied, so only the stream that copies must wait.
#[test]
fn a_generated_piece_is_one_hand_over() {
    on_both(|scene, _, []| {
        let launch = |stream: &Stream, piece: &mut ViewMut<'_, u32>| scene.launch(stream, piece);
        let first = ["launch", "record", "wait", "to host"];
        // The previous copy gets its own event before the stream waits for more.
        let next = ["launch", "record", "record", "wait", "to host"];
        let sink = |_, _: &[u32]| Ok::<_, Error>(());
        let mut pipeline = scene.device.pipeline().chunks(10).depth(2);
        pipeline.generate(3, launch, sink).unwrap();
        let calls = scene.calls(|| pipeline.generate(4, launch, sink).unwrap());
        let one = [&["sync event"], &next[..]].concat();
        let end = ["sync event", "record", "sync event"];
        assert_eq!(calls, [&first[..], &next, &one.repeat(2), &end].concat());
        let mut pipeline = pipeline.depth(1);
        let calls = scene.calls(|| pipeline.generate(2, launch, sink).unwrap());
        assert_eq!(calls, ["launch", "to host", "record", "sync event"].repeat(2));
    });
}

#[test]
fn memory_is_freed_after_its_last_use_on_every_stream() {
    on_both(|scene, _, [a, b]| {
        // This is so large that it gets its own allocation.
        let x = a.zeros::<u32>(16 << 20).unwrap();
        let mut y = b.alloc::<u32>(1).unwrap();
        a.synchronize().unwrap();
        scene.device.trim();
        let before = scene.recorder.live().bytes;
        scene.recorder.hold();
        a.copy(&x.slice(..1).unwrap(), &mut y).unwrap();
        let mut z = b.alloc::<u32>(1).unwrap();
        b.copy(&x.slice(1..2).unwrap(), &mut z).unwrap();
        let dropping = scene.calls(|| drop(x));
        assert_eq!(dropping, [""; 0], "dropping calls nothing");
        scene.device.trim();
        assert!(scene.recorder.live().bytes >= before, "freed while two streams read it");
        // The driver runs what `a` has to do, which is the copy.
        scene.recorder.step(1);
        scene.device.trim();
        assert!(scene.recorder.live().bytes >= before, "freed while a stream reads it");
        scene.recorder.release();
        scene.device.synchronize().unwrap();
        scene.device.trim();
        assert!(scene.recorder.live().bytes < before, "never freed");
    });
}

#[test]
fn nothing_is_destroyed_while_in_use_and_everything_in_the_end() {
    on_each(|fake, recorder| {
        let Scene { device, kernel, .. } = Scene::new(fake, recorder);
        recorder.hold();
        let streams: Vec<Stream> = (0..4).map(|_| device.stream().unwrap()).collect();
        let host = device.pinned_from(&[1u32; 10]).unwrap();
        let mut buffers = Vec::new();
        for s in &streams {
            let mut x = s.alloc::<u32>(10).unwrap();
            s.copy(&host, &mut x).unwrap();
            s.host_fn(|| ()).unwrap();
            buffers.push((s.record().unwrap(), x));
        }
        let keep = device.stream().unwrap();
        drop((host, buffers, streams, kernel));
        drop(device.stream().unwrap());
        device.trim();
        recorder.release();
        drop((keep, device));
    });
}

/// The value holds a stream, memory and a kernel of its device. They must not keep each other alive.
#[test]
fn an_extension_is_found_without_a_call_and_goes_with_the_last_handle() {
    struct Ours {
        stream: Stream,
        words: Buffer<u32>,
        kernel: Kernel,
    }
    on_each(|fake, recorder| {
        let device = Device::open(fake.name).unwrap();
        let ours = |device: &Device| {
            device.extension(|device| {
                let (stream, kernel) = (device.stream()?, load_kernel(fake, device)?);
                Ok(Ours { words: stream.zeros(10)?, stream, kernel })
            })
        };
        let first = ours(&device).unwrap();
        assert_eq!(first.words.len(), 10);
        let (second, calls) = recorder.record(|| ours(first.stream.device()).unwrap());
        assert!(calls.is_empty(), "{calls:?}");
        assert_eq!(second.kernel.name(), first.kernel.name());
        recorder.release();
    });
}

#[test]
fn closures_in_parts_are_refused_without_a_call() {
    on_both(|scene, _, [s]| {
        let mut x = s.zeros::<u32>(10).unwrap();
        let refusal = || {
            // SAFETY: the closure touches nothing.
            unsafe { s.external_parallel("parts", &mut x, 2, |_, _| ()) }
        };
        let (refused, calls) = scene.recorder.record(refusal);
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(calls.is_empty(), "{calls:?}");
        assert_eq!(s.download(&x).unwrap(), [0; 10]);
    });
}

/// The library asks for everything that the device has, because another thread's launch may need more than this one.
#[test]
fn shared_memory_beyond_the_default_is_asked_for_once() {
    on_both(|scene, fake, []| {
        let info = scene.device.info();
        let most = info.limits.shared_memory_per_block_optin;
        let s = scene.device.stream().unwrap();
        let mut x = s.zeros::<u32>(1).unwrap();
        let mut launch = |shared| {
            let launch = Launch::new([1; 3], [1; 3]).shared(shared);
            // SAFETY: the kernel stays within the buffer.
            let launch =
                || unsafe { scene.kernel.launch(&s, &launch, &[Arg::write(&mut x), Arg::value(&1u64)]) };
            scene.recorder.record(launch)
        };
        let default = info.limits.shared_memory_per_block;
        for (round, shared) in [default, most - 1, default, default + 1, most].into_iter().enumerate() {
            let (outcome, calls) = launch(shared.min(most));
            outcome.unwrap();
            let asks = fake.name == "cuda" && round == 1;
            assert_eq!(calls.len(), 1 + usize::from(asks), "{calls:?}");
            if asks {
                assert_eq!(calls[0].name, "cuFuncSetAttribute");
                assert_eq!(calls[0].arg("value"), u64::from(most));
            }
        }
        let (outcome, calls) = launch(most + 1);
        assert_eq!((outcome.unwrap_err().kind(), calls), (ErrorKind::InvalidLaunch, vec![]));
    });
}

/// The policy of a device or of one event decides. The flags that the process gave to the driver must not matter.
#[test]
fn waiting_policies_become_calls_and_flags() {
    on_both(|scene, fake, []| {
        // Both vendors use the same flag for a blocking event.
        let blocking = |calls: &[Call]| -> Vec<bool> {
            let made = calls.iter().filter(|call| call.word() == "make event");
            made.map(|call| call.arg("flags") & 1 == 1).collect()
        };
        let words = |calls: &[Call]| -> Vec<_> {
            calls
                .iter()
                .map(Call::word)
                .filter(|word| !["make event", "destroy event"].contains(word))
                .collect()
        };
        for (policy, wait) in [
            (WaitPolicy::Spin, "sync event"),
            (WaitPolicy::Yield, "ask event"),
            (WaitPolicy::Block, "sync event"),
        ] {
            // First the device has the policy.
            let device =
                Device::open_with(fake.name, gpustream::DeviceOptions::default().wait(policy)).unwrap();
            let s = device.stream().unwrap();
            let mut x = s.zeros::<u32>(1).unwrap();
            s.fill(&mut x, 1).unwrap();
            let ((), calls) = scene.recorder.record(|| s.synchronize().unwrap());
            assert_eq!(words(&calls), ["record", wait], "{policy:?}");
            assert!(blocking(&calls).iter().all(|&blocks| blocks == (policy == WaitPolicy::Block)));
            s.fill(&mut x, 2).unwrap();
            let ((), calls) = scene.recorder.record(|| s.record().unwrap().synchronize().unwrap());
            assert_eq!(words(&calls), ["record", wait], "{policy:?}");
            assert_eq!(blocking(&calls), [policy == WaitPolicy::Block], "{policy:?}");
            // Then a single event has the policy, on a device that spins.
            let t = scene.device.stream().unwrap();
            let ((), calls) = scene.recorder.record(|| t.record_with(policy).unwrap().synchronize().unwrap());
            assert_eq!(words(&calls), ["record", wait], "{policy:?}");
            assert_eq!(blocking(&calls), [policy == WaitPolicy::Block], "{policy:?}");
        }
    });
}

#[test]
fn codes_become_kinds() {
    on_both(|scene, fake, [s]| {
        let mut x = s.zeros::<u32>(10).unwrap();
        let kinds = [
            (codes::OUT_OF_MEMORY, ErrorKind::OutOfMemory),
            (codes::INVALID_VALUE, ErrorKind::InvalidLaunch),
            (codes::NOT_FOUND, ErrorKind::KernelNotFound),
            (codes::NOT_SUPPORTED, ErrorKind::Unsupported),
            (codes::CAPTURE_UNSUPPORTED, ErrorKind::Captured),
            (701, ErrorKind::InvalidLaunch),
            (123_456, ErrorKind::Driver),
        ];
        for (code, kind) in kinds {
            scene.recorder.fail_next("launch", code);
            let error = scene.launch(&s, &mut x).unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
            assert_eq!((error.call(), error.code()), (Some(fake.launch), Some(i64::from(code))), "{error}");
            let operation = error.call_site().unwrap();
            assert_eq!((operation.label, operation.location.file()), ("increment", file!()));
        }
        scene.launch(&s, &mut x).unwrap();
        assert_eq!(s.download(&x).unwrap(), [1; 10]);
    });
}

#[test]
fn a_fault_reaches_every_wait() {
    // The driver keeps the objects of a lost device, so we cannot check that they are gone.
    play(|fake, recorder| {
        let scene = Scene::new(fake, recorder);
        let s = scene.device.stream().unwrap();
        let mut x = s.zeros::<u32>(10).unwrap();
        let mut host = scene.device.pinned::<u32>(10).unwrap();
        s.synchronize().unwrap();
        scene.recorder.hold();
        s.copy(&x, &mut host).unwrap();
        let event = s.record().unwrap();
        scene.recorder.fault_kernel("increment", codes::ILLEGAL_ADDRESS);
        scene.launch(&s, &mut x).unwrap();
        scene.recorder.lose_device(0, codes::ILLEGAL_ADDRESS);
        let kinds = [
            s.synchronize().unwrap_err().kind(),
            s.is_done().unwrap_err().kind(),
            event.synchronize().unwrap_err().kind(),
            event.is_done().unwrap_err().kind(),
            host.read().unwrap_err().kind(),
            scene.device.synchronize().unwrap_err().kind(),
            s.download(&x).unwrap_err().kind(),
        ];
        assert_eq!(kinds, [ErrorKind::DeviceLost; 7]);
        scene.recorder.release();
    });
}

/// Drivers let you set attributes on a graph's node, but not on an executable's. So if you set a plain node to a
/// cooperative launch, we must refuse, because it would run without the attribute.
#[test]
fn nodes_keep_their_launch_attributes() {
    on_both(|scene, _, [s]| {
        let mut x = s.zeros::<u32>(10).unwrap();
        let plain = Launch::new([1; 3], [1; 3]);
        let step = |s: &Stream, launch: &Launch, x: &mut Buffer<u32>, count: u64| {
            // SAFETY: the kernel stays within the buffer.
            unsafe { scene.kernel.launch(s, launch, &[Arg::write(x), Arg::value(&count)]) }
        };
        let mut builder = scene.device.graph_builder().unwrap();
        let shapes = [plain, plain.cooperative(true)];
        let nodes = shapes.map(|made| builder.node(&[], |s| step(s, &made, &mut x, 10)).unwrap());
        let mut graph = builder.build().unwrap();
        for (node, [made, other]) in nodes.into_iter().zip([shapes, [shapes[1], shapes[0]]]) {
            let calls = scene.calls(|| {
                let refused = graph.set_node(node, |s| step(s, &other, &mut x, 5)).unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::InvalidArgument, "{refused}");
                assert!(refused.message().contains("a cooperative launch"), "{refused}");
            });
            assert_eq!(calls, [""; 0]);
            graph.launch(&s).unwrap();
            graph.set_node(node, |s| step(s, &made, &mut x, 5)).unwrap();
        }
        graph.launch(&s).unwrap();
        // The launches ran both nodes on all elements, then one node on half of them, then both on half.
        assert_eq!(s.download(&x).unwrap(), [6, 6, 6, 6, 6, 3, 3, 3, 3, 3]);
    });
}
