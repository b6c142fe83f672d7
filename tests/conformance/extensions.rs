//! A library can keep values with a device: one of each type, and they must be gone before the device is.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;

use conformance::{assert_all, kernels_and_streams, open_again, refused, sync, tests};
use gpustream::interop::check_outside_closures;
use gpustream::{Buffer, Device, DeviceOptions, Error, ErrorKind, Result, Stream};

tests! {
    Plain: a_device_has_one_value_of_each_type, threads_that_ask_at_once_get_the_same_value,
        values_go_with_the_last_handle_and_the_last_made_goes_first,
        a_value_may_call_the_library_while_it_is_dropped, values_are_dropped_outside_of_closures,
        a_panic_of_a_dropped_value_spares_the_others, a_value_that_could_not_be_made_is_tried_again,
        a_value_that_needs_itself_is_refused, values_that_need_each_other_on_two_threads_are_refused,
        handles_of_a_value_outlive_the_extensions, a_value_can_be_made_in_a_capture_and_in_a_step;
}

const N: usize = 1000;

/// What a library may keep: handles of the device itself.
struct Kept {
    kernels: sync::Kernels,
    stream: Stream,
    words: Buffer<u32>,
    _at_the_end: Option<AtTheEnd>,
}

/// Calls a closure when it is dropped.
struct AtTheEnd(Option<Box<dyn FnOnce() + Send + Sync>>);

impl AtTheEnd {
    fn new(closure: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self(Some(Box::new(closure)))
    }
}

impl Drop for AtTheEnd {
    fn drop(&mut self) {
        if let Some(closure) = self.0.take() {
            closure();
        }
    }
}

fn make(device: &Device, at_the_end: Option<AtTheEnd>) -> Result<Kept> {
    let (kernels, [stream]) = kernels_and_streams(device)?;
    let words = stream.full(N, 7u32)?;
    Ok(Kept { kernels, stream, words, _at_the_end: at_the_end })
}

fn kept(device: &Device) -> Result<Arc<Kept>> {
    device.extension(|device| make(device, None))
}

fn a_device_has_one_value_of_each_type(device: &Device) -> Result<()> {
    let other = open_again(device, DeviceOptions::default())?;
    let (first, again) = (kept(&other)?, kept(other.stream()?.device())?);
    assert!(Arc::ptr_eq(&first, &again));
    let number = other.extension(|_| Ok(5u32))?;
    assert_eq!((*number, *other.extension(|_| Ok(6u32))?, *other.extension(|_| Ok(6u64))?), (5, 5, 6));
    let of_another = open_again(device, DeviceOptions::default())?;
    assert_eq!(*of_another.extension(|_| Ok(6u32))?, 6);
    assert!(!Arc::ptr_eq(&first, &kept(&of_another)?));
    // You can use the value like any other that belongs to the device.
    let stream = other.stream()?;
    let mut x = stream.zeros::<u32>(N)?;
    stream.copy(&first.words, &mut x)?;
    first.kernels.step(&stream, &mut x, 1, N)?;
    assert_all(&stream, &x, conformance::next(7, 1))
}

fn threads_that_ask_at_once_get_the_same_value(device: &Device) -> Result<()> {
    for round in 0..50 {
        let device = open_again(device, DeviceOptions::default())?;
        let (made, barrier) = (AtomicU32::new(0), Barrier::new(4));
        let ask = || {
            barrier.wait();
            device.extension(|device| {
                // In some rounds the first attempt fails, so one of the waiting threads must try.
                if made.fetch_add(1, Ordering::SeqCst) == 0 && round % 2 == 0 {
                    return Err(Error::new(ErrorKind::External, "on purpose"));
                }
                device.stream()
            })
        };
        let answers: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let fails = 1 - round % 2;
        assert_eq!(made.load(Ordering::SeqCst), 1 + fails);
        let values: Vec<_> = answers.into_iter().flatten().collect();
        assert_eq!(values.len(), 4 - fails as usize);
        assert!(values.iter().all(|value| Arc::ptr_eq(value, &values[0])));
    }
    Ok(())
}

fn values_go_with_the_last_handle_and_the_last_made_goes_first(device: &Device) -> Result<()> {
    struct First {
        _end: AtTheEnd,
    }
    struct Second {
        _end: AtTheEnd,
    }
    let log = Arc::new(Mutex::new(Vec::new()));
    let end = |name: &'static str| {
        let log = log.clone();
        AtTheEnd::new(move || log.lock().unwrap().push(name))
    };
    let other = open_again(device, DeviceOptions::default())?;
    let x = {
        other.extension(|device| {
            // This one is asked for inside, so it is made first.
            device.extension(|_| Ok(First { _end: end("first") }))?;
            Ok(Second { _end: end("second") })
        })?;
        other.extension(|device| make(device, Some(end("kept"))))?;
        let x = other.stream()?.full(N, 1u32)?;
        drop(other);
        x
    };
    assert!(log.lock().unwrap().is_empty(), "a buffer is left");
    drop(x);
    assert_eq!(*log.lock().unwrap(), ["kept", "second", "first"]);
    Ok(())
}

fn a_value_may_call_the_library_while_it_is_dropped(device: &Device) -> Result<()> {
    struct Caller {
        device: Device,
        stream: Stream,
        words: Buffer<u32>,
        answers: mpsc::Sender<(Vec<u32>, ErrorKind)>,
    }
    impl Drop for Caller {
        fn drop(&mut self) {
            let words = self.stream.download(&self.words).unwrap();
            let error = self.device.extension(|_| Ok(1u8)).unwrap_err();
            self.device.synchronize().unwrap();
            self.answers.send((words, error.kind())).unwrap();
        }
    }
    let (answers, answered) = mpsc::channel();
    let other = open_again(device, DeviceOptions::default())?;
    other.extension(|device| {
        let stream = device.stream()?;
        Ok(Caller { device: device.clone(), words: stream.full(N, 7)?, stream, answers: answers.clone() })
    })?;
    drop(other);
    assert_eq!(answered.try_recv().unwrap(), (vec![7; N], ErrorKind::InvalidArgument));
    Ok(())
}

/// The last handle is dropped inside a host closure, and the driver must not be called there.
fn values_are_dropped_outside_of_closures(device: &Device) -> Result<()> {
    let (dropped, is_outside) = mpsc::channel();
    let other = open_again(device, DeviceOptions::default())?;
    other.extension(|device| {
        let end = AtTheEnd::new(move || dropped.send(check_outside_closures().is_ok()).unwrap());
        make(device, Some(end))
    })?;
    let stream = device.stream()?;
    stream.host_fn(move || drop(other))?;
    stream.synchronize()?;
    assert!(is_outside.recv().unwrap());
    Ok(())
}

fn a_panic_of_a_dropped_value_spares_the_others(device: &Device) -> Result<()> {
    struct Panics {
        _end: AtTheEnd,
    }
    let (dropped, is_dropped) = mpsc::channel();
    let other = open_again(device, DeviceOptions::default())?;
    other.extension(|device| make(device, Some(AtTheEnd::new(move || dropped.send(()).unwrap()))))?;
    let end = || AtTheEnd::new(|| std::panic::resume_unwind(Box::new("on purpose")));
    other.extension(|_| Ok(Panics { _end: end() }))?;
    assert!(catch_unwind(AssertUnwindSafe(|| drop(other))).is_err());
    is_dropped.try_recv().unwrap();
    Ok(())
}

fn a_value_that_could_not_be_made_is_tried_again(device: &Device) -> Result<()> {
    let other = open_again(device, DeviceOptions::default())?;
    let failing = other.extension::<Kept>(|_| Err(Error::new(ErrorKind::External, "on purpose")));
    refused(failing, ErrorKind::External, &["on purpose"]);
    let failing = || other.extension::<Kept>(|_| std::panic::resume_unwind(Box::new("on purpose")));
    assert!(catch_unwind(AssertUnwindSafe(failing)).is_err());
    assert_eq!(kept(&other)?.words.len(), N);
    Ok(())
}

fn a_value_that_needs_itself_is_refused(device: &Device) -> Result<()> {
    let other = open_again(device, DeviceOptions::default())?;
    let itself = other.extension(|device| device.extension(|_| Ok(1u8)).map(|one| *one));
    refused(itself, ErrorKind::InvalidArgument, &["u8", "asks for it"]);
    // A value may also need itself through another value, or through your own handle of the device.
    let through = other.extension(|device| {
        device.extension(|_| other.extension(|_| Ok(1u8)).map(|one| u16::from(*one))).map(|two| *two as u8)
    });
    refused(through, ErrorKind::InvalidArgument, &["u8", "asks for it"]);
    assert_eq!(*other.extension(|_| Ok(1u8))?, 1);
    Ok(())
}

/// Each thread makes a value that needs the other thread's value. One may wait, but then the other must be refused,
/// because otherwise both would wait for ever.
fn values_that_need_each_other_on_two_threads_are_refused(device: &Device) -> Result<()> {
    let other = open_again(device, DeviceOptions::default())?;
    let both = Barrier::new(2);
    let (small, large) = thread::scope(|scope| {
        let small = scope.spawn(|| {
            other.extension(|device| {
                both.wait();
                device.extension(|_| Ok(16u16)).map(|value| *value as u8)
            })
        });
        let large = scope.spawn(|| {
            other.extension(|device| {
                both.wait();
                device.extension(|_| Ok(8u8)).map(|value| u16::from(*value))
            })
        });
        (small.join().unwrap(), large.join().unwrap())
    });
    let refusals = [small.err(), large.err()];
    let refusals: Vec<_> = refusals.iter().flatten().collect();
    assert_eq!(refusals.len(), 1, "{refusals:?}");
    assert_eq!(refusals[0].kind(), ErrorKind::InvalidArgument);
    other.extension(|_| Ok(0u8))?;
    other.extension(|_| Ok(0u16)).map(drop)
}

fn handles_of_a_value_outlive_the_extensions(device: &Device) -> Result<()> {
    let other = open_again(device, DeviceOptions::default())?;
    let value = kept(&other)?;
    assert!(Arc::ptr_eq(&value, &kept(value.stream.device())?), "a handle that sees the extensions");
    drop(other);
    let device = value.stream.device();
    refused(kept(device), ErrorKind::InvalidArgument, &["Kept", "keep a handle"]);
    assert_all(&device.stream()?, &value.words, 7)
}

fn a_value_can_be_made_in_a_capture_and_in_a_step(device: &Device) -> Result<()> {
    let other = open_again(device, DeviceOptions::default())?;
    let stream = other.stream()?;
    let mut x = stream.zeros::<u32>(N)?;
    let graph = stream.capture(|stream| {
        let refusal = other.extension(|_| stream.download(&x));
        refused(refusal, ErrorKind::Captured, &["Vec<u32>", "before the capture"]);
        let kept = kept(stream.device())?;
        stream.copy(&kept.words, &mut x)?;
        kept.kernels.step(stream, &mut x, 1, N)
    })?;
    graph.launch(&stream)?;
    assert_all(&stream, &x, conformance::next(7, 1))?;
    let mut replay = other.replay();
    for round in 2..5u32 {
        replay.run(&stream, |stream| {
            let made = stream.device().extension(|device| device.stream()?.full(N, round))?;
            stream.copy(&*made, &mut x)
        })?;
        assert_all(&stream, &x, 2)?;
    }
    Ok(())
}
