//! You can use another library's memory and modules as if they were ours, and give it our memory. Everything stays in
//! order, and is kept as long as it is used and no longer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};

use conformance::{
    Child, Gate, assert_all, kernels_and_streams, next, open_again, refused, sync, tests, until,
};
use gpustream::hal::{FillPattern, RawBuffer};
use gpustream::{Arg, Buffer, Device, DeviceOptions, ErrorKind, Launch, Pinned, Result, Stream, Tracking};

tests! {
    Plain: their_memory_works_like_ours, an_owner_goes_once_the_last_use_is_done, a_graph_keeps_an_owner,
        an_owner_may_hold_the_last_device_handle, an_owner_that_panics_breaks_nothing,
        an_owner_may_be_dropped_in_a_host_closure, addresses_that_cannot_be_right_are_refused,
        empty_memory_needs_no_address, lent_memory_comes_back_after_their_work,
        lending_inside_a_capture_is_refused, forgotten_loans_break_nothing,
        strict_tracking_reports_an_unordered_taker, host_memory_of_theirs_is_page_locked,
        modules_of_theirs_have_kernels;
    // One test waits for the whole device, so no other test may capture meanwhile.
    Alone: loans_and_owners_leak_nothing, their_memory_is_ready_in_the_order_of_its_stream,
        owners_go_without_another_call, borrowed_memory_goes_back_in_the_order_of_its_stream,
        lent_memory_comes_after_our_work, lent_memory_outlives_its_stream_value;
    Part: exits_with_owners;
}

const N: usize = 3000;

/// Memory that another library allocated. It is freed when this value is dropped.
struct Theirs {
    device: Device,
    address: RawBuffer,
    gone: Option<Sender<()>>,
}

impl Theirs {
    fn new(device: &Device, bytes: usize) -> Result<Self> {
        let address = device.raw().alloc(bytes)?;
        Ok(Self { device: device.clone(), address, gone: None })
    }

    /// Like [`new`](Self::new), but sends a message when the value is dropped.
    fn announced(device: &Device, bytes: usize) -> Result<(Self, Receiver<()>)> {
        let (sender, gone) = mpsc::channel();
        let mut theirs = Self::new(device, bytes)?;
        theirs.gone = Some(sender);
        Ok((theirs, gone))
    }

    /// Gives us the memory.
    fn hand_over(self, stream: &Stream) -> Result<Buffer<u32>> {
        // SAFETY: the value keeps the memory, and nothing else uses it.
        unsafe { Buffer::from_raw(stream, self.address.as_mut_ptr(), N, self) }
    }
}

impl Drop for Theirs {
    fn drop(&mut self) {
        // SAFETY: the owner is dropped when all work on the memory is done.
        unsafe { self.device.raw().free(self.address) }.unwrap();
        self.gone.take().map(|gone| gone.send(()));
    }
}

fn their_memory_works_like_ours(device: &Device) -> Result<()> {
    let (kernels, [a, b]) = kernels_and_streams(device)?;
    let mut x = Theirs::new(device, 4 * N)?.hand_over(&a)?;
    a.fill(&mut x, 3)?;
    kernels.step(&b, &mut x, 1, N)?;
    kernels.step(&a, &mut x.slice_mut(..N / 2)?, 2, N / 2)?;
    let values = b.download(&x)?;
    assert_eq!((values[0], values[N - 1]), (next(next(3, 1), 2), next(3, 1)));
    Ok(())
}

fn their_memory_is_ready_in_the_order_of_its_stream(device: &Device) -> Result<()> {
    let (kernels, [a, b]) = kernels_and_streams(device)?;
    let mut warm = b.zeros::<u32>(N)?;
    kernels.step(&b, &mut warm, 1, N)?;
    device.synchronize()?;
    let theirs = Theirs::new(device, 4 * N)?;
    let gate = Gate::on(&kernels, &a)?;
    // SAFETY: memory and stream are alive.
    unsafe { device.raw().fill(theirs.address, FillPattern::U32(4), N, a.as_raw()) }?;
    let mut x = theirs.hand_over(&a)?;
    kernels.step(&b, &mut x, 1, N)?;
    assert!(!b.is_done()?, "b waits for what their stream was given");
    gate.open();
    assert_all(&b, &x, next(4, 1))
}

fn an_owner_goes_once_the_last_use_is_done(device: &Device) -> Result<()> {
    let (kernels, [a]) = kernels_and_streams(device)?;
    let (theirs, gone) = Theirs::announced(device, 4 * N)?;
    let (mut x, mut y) = (theirs.hand_over(&a)?, a.zeros::<u32>(N)?);
    a.fill(&mut x, 6)?;
    a.synchronize()?;
    let gate = Gate::copying(&kernels, &a, &x, &mut y)?;
    drop(x);
    // If the library now looks for memory to free, it must find that this is still in use.
    drop(Theirs::new(device, 16)?.hand_over(&a)?);
    assert!(gone.try_recv().is_err(), "the kernel still reads the memory");
    gate.open();
    gone.recv().unwrap();
    assert!(a.is_done()?);
    assert_all(&a, &y, 6)
}

/// The library must find out by itself, because the program makes no further call.
fn owners_go_without_another_call(device: &Device) -> Result<()> {
    let (kernels, [a, b]) = kernels_and_streams(device)?;
    let (theirs, gone) = Theirs::announced(device, 4 * N)?;
    let (mut x, mut y) = (theirs.hand_over(&a)?, a.zeros::<u32>(N)?);
    a.fill(&mut x, 6)?;
    let mut z = b.duplicate(&x)?;
    device.synchronize()?;
    let gate = Gate::copying(&kernels, &a, &x, &mut y)?;
    kernels.mix(&b, &x, &mut z, N)?;
    drop(x);
    gate.open();
    gone.recv().unwrap();
    Ok(())
}

fn a_graph_keeps_an_owner(device: &Device) -> Result<()> {
    let (_, [a]) = kernels_and_streams(device)?;
    let (theirs, gone) = Theirs::announced(device, 4 * N)?;
    let (mut x, mut y) = (theirs.hand_over(&a)?, a.zeros::<u32>(N)?);
    a.fill(&mut x, 6)?;
    let graph = a.capture(|a| a.copy(&x, &mut y))?;
    drop(x);
    graph.launch(&a)?;
    assert_all(&a, &y, 6)?;
    assert!(gone.try_recv().is_err(), "the graph may be launched again");
    drop(graph);
    // A graph goes when its last run is done. The device checks that when you make a stream.
    until(|| Ok(device.stream().is_ok() && gone.try_recv().is_ok()))
}

fn an_owner_may_hold_the_last_device_handle(device: &Device) -> Result<()> {
    let mine = open_again(device, DeviceOptions::default())?;
    let (kernels, [a]) = kernels_and_streams(&mine)?;
    let (theirs, gone) = Theirs::announced(&mine, 4 * N)?;
    let mut x = theirs.hand_over(&a)?;
    a.fill(&mut x, 1)?;
    let gate = Gate::new(device)?;
    kernels.add_when(&a, gate.flag(), &mut x, 1, N)?;
    drop((kernels, x, a, mine));
    gate.open();
    gone.recv().unwrap();
    Ok(())
}

fn an_owner_that_panics_breaks_nothing(device: &Device) -> Result<()> {
    struct Panics(#[allow(dead_code)] Theirs);
    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("an owner's own panic, which the test expects");
        }
    }

    let (_, [a]) = kernels_and_streams(device)?;
    let (theirs, gone) = Theirs::announced(device, 4 * N)?;
    let (address, owner) = (theirs.address, Panics(theirs));
    // SAFETY: the value keeps the memory, and nothing else uses it.
    drop(unsafe { Buffer::<u32>::from_raw(&a, address.as_mut_ptr(), N, owner) }?);
    gone.recv().unwrap();
    // The thread that drops owners must go on as before.
    let (theirs, gone) = Theirs::announced(device, 4 * N)?;
    drop(theirs.hand_over(&a)?);
    gone.recv().unwrap();
    assert_all(&a, &a.full(N, 2u32)?, 2)
}

fn an_owner_may_be_dropped_in_a_host_closure(device: &Device) -> Result<()> {
    let (_, [a]) = kernels_and_streams(device)?;
    let (theirs, gone) = Theirs::announced(device, 4 * N)?;
    let (x, loan) = (theirs.hand_over(&a)?, a.full(N, 1u32)?.into_raw(&a)?);
    a.host_fn(move || drop((x, loan)))?;
    gone.recv().unwrap();
    a.synchronize()
}

fn addresses_that_cannot_be_right_are_refused(device: &Device) -> Result<()> {
    let stream = device.stream()?;
    let (theirs, gone) = Theirs::announced(device, 4 * N)?;
    let address = theirs.address;
    // SAFETY: each of these is refused.
    unsafe {
        let null = Buffer::<u32>::from_raw(&stream, std::ptr::null_mut(), N, ());
        refused(null, ErrorKind::InvalidArgument, &["null address", "from_raw"]);
        let odd = Buffer::<u32>::from_raw(&stream, address.offset(2).as_mut_ptr(), N - 1, theirs);
        refused(odd, ErrorKind::InvalidArgument, &["multiple of 4 bytes", "from_raw"]);
        let huge = Buffer::<u32>::from_raw(&stream, address.as_mut_ptr(), usize::MAX, ());
        refused(huge, ErrorKind::OutOfMemory, &["address space"]);
        let null = Pinned::<u32>::from_raw(device, std::ptr::null_mut(), N, ());
        refused(null, ErrorKind::InvalidArgument, &["host memory"]);
        let mut two = [0u32; 2];
        let odd = Pinned::<u32>::from_raw(device, two.as_mut_ptr().byte_add(1), 1, ());
        refused(odd, ErrorKind::InvalidArgument, &["multiple of 4 bytes"]);
        refused(
            Pinned::from_raw(device, two.as_mut_ptr(), 0, ()),
            ErrorKind::InvalidArgument,
            &["at least one"],
        );
    }
    // If a call is refused, its owner is dropped.
    gone.recv().unwrap();
    Ok(())
}

fn empty_memory_needs_no_address(device: &Device) -> Result<()> {
    let stream = device.stream()?;
    let (sender, gone) = mpsc::channel();
    // SAFETY: there is no memory.
    let empty = unsafe { Buffer::<u32>::from_raw(&stream, std::ptr::null_mut(), 0, sender) }?;
    assert!(stream.download(&empty)?.is_empty());
    drop(empty.into_raw(&stream)?);
    assert_eq!(gone.recv().ok(), None::<()>);
    Ok(())
}

fn borrowed_memory_goes_back_in_the_order_of_its_stream(device: &Device) -> Result<()> {
    let (kernels, [a, b]) = kernels_and_streams(device)?;
    let (theirs, mut y) = (Theirs::new(device, 4 * N)?, a.zeros::<u32>(N)?);
    let address = theirs.address;
    device.synchronize()?;
    let gate = Gate::new(device)?;
    // SAFETY: the memory lives until everything is done, and is used in the order of stream a.
    unsafe {
        Buffer::<u32>::with_raw(&a, address.as_mut_ptr(), N, |x| {
            a.fill(x, 3)?;
            kernels.add_when(&b, gate.flag(), x, 1, N)
        })?;
        let refused_work = Buffer::<u32>::with_raw(&a, address.as_mut_ptr(), N, |x| x.slice(..=N).map(drop));
        refused(refused_work, ErrorKind::OutOfBounds, &[]);
        a.external("copy", &[Arg::write(&mut y)], |raw, [to]| {
            device.raw().copy_on_device(to, address, 4 * N, raw)
        })?;
    }
    assert!(!a.is_done()?, "their copy waits for stream b");
    gate.open();
    assert_all(&a, &y, 4)?;
    device.synchronize()
}

fn lent_memory_comes_after_our_work(device: &Device) -> Result<()> {
    let (kernels, [a, b]) = kernels_and_streams(device)?;
    let (mut x, mut y) = (a.full(N, 7u32)?, b.zeros::<u32>(N)?);
    device.synchronize()?;
    let gate = Gate::adding(&kernels, &a, &mut x, 1)?;
    let theirs = x.into_raw(&b)?;
    assert_eq!(theirs.bytes(), 4 * N);
    // SAFETY: the copy goes to the stream that has the memory.
    unsafe {
        b.external("copy", &[Arg::write(&mut y)], |raw, [to]| {
            device.raw().copy_on_device(to, theirs.as_raw(), 4 * N, raw)
        })
    }?;
    assert!(!b.is_done()?, "the copy waits for the kernel");
    gate.open();
    assert_all(&b, &y, 8)
}

fn lent_memory_comes_back_after_their_work(device: &Device) -> Result<()> {
    const LEN: usize = 1 << 18;
    // There is memory for two buffers only, so the next owner must get the lent one.
    let mine = open_again(device, DeviceOptions::default().memory_limit(8 * LEN as u64))?;
    let (kernels, [a, b]) = kernels_and_streams(&mine)?;
    let (x, mut y) = (a.full(LEN, 7u32)?, b.full(LEN, 1u32)?);
    let (address, to) = (x.as_raw(), y.as_raw());
    a.synchronize()?;
    let theirs = x.into_raw(&b)?;
    // Everything that the library knows of is done.
    b.synchronize()?;
    let gate = Gate::new(device)?;
    gate.hold(&kernels, &b)?;
    // The other library submits this itself, so we do not know of it until the memory comes back.
    // SAFETY: memory and stream are alive.
    unsafe { mine.raw().copy_on_device(to, address, 4 * LEN, b.as_raw()) }?;
    drop(theirs);
    let mut next_owner = a.alloc::<u32>(LEN)?;
    assert_eq!(next_owner.as_raw(), address);
    a.fill(&mut next_owner, 2)?;
    assert!(!a.is_done()?, "the next owner comes after their work");
    gate.open();
    assert_all(&b, &y, 7)?;
    b.fill(&mut y, 3)
}

fn lent_memory_outlives_its_stream_value(device: &Device) -> Result<()> {
    let (_, [a]) = kernels_and_streams(device)?;
    let raw = device.raw().stream_create(gpustream::StreamOptions::default())?;
    // SAFETY: the stream lives until its last user has been waited for.
    let theirs = unsafe { device.stream_from_raw(raw) };
    let loan = a.full(N, 7u32)?.into_raw(&theirs)?;
    drop(theirs);
    // SAFETY: the loan's memory is theirs, in the order of that stream.
    unsafe { device.raw().fill(loan.as_raw(), FillPattern::U32(1), N, raw) }?;
    assert_eq!(loan.stream().as_raw(), raw);
    drop(loan);
    device.synchronize()?;
    // SAFETY: nothing is pending, and no value of it is left.
    unsafe { device.raw().stream_destroy(raw) }
}

fn lending_inside_a_capture_is_refused(device: &Device) -> Result<()> {
    let (_, [a]) = kernels_and_streams(device)?;
    let (mut x, y) = (a.zeros::<u32>(N)?, a.zeros::<u32>(N)?);
    let graph = a.capture(|a| {
        refused(y.into_raw(a), ErrorKind::Captured, &["before or after the capture"]);
        a.fill(&mut x, 2)
    });
    graph?.launch(&a)?;
    assert_all(&a, &x, 2)
}

fn forgotten_loans_break_nothing(device: &Device) -> Result<()> {
    let (_, [a]) = kernels_and_streams(device)?;
    std::mem::forget(a.full(N, 7u32)?.into_raw(&a)?);
    assert_all(&a, &a.full(N, 3u32)?, 3)
}

fn strict_tracking_reports_an_unordered_taker(device: &Device) -> Result<()> {
    let strict = open_again(device, DeviceOptions::default().tracking(Tracking::Strict))?;
    let (kernels, [a, b]) = kernels_and_streams(&strict)?;
    let gate = Gate::on(&kernels, &a)?;
    let mut x = Theirs::new(&strict, 4 * N)?.hand_over(&a)?;
    refused(kernels.step(&b, &mut x, 1, N), ErrorKind::Hazard, &["from_raw"]);
    b.wait(&a.record()?)?;
    b.fill(&mut x, 4)?;
    gate.open();
    assert_all(&b, &x, 4)
}

fn host_memory_of_theirs_is_page_locked(device: &Device) -> Result<()> {
    struct Vector(#[allow(dead_code)] Vec<u32>, Sender<()>);
    impl Drop for Vector {
        fn drop(&mut self) {
            self.1.send(()).unwrap();
        }
    }

    let (kernels, [a]) = kernels_and_streams(device)?;
    let mut values = vec![7u32; N];
    let (sender, gone) = mpsc::channel();
    let memory = values.as_mut_ptr();
    // SAFETY: the vector does not move its elements, and nothing else uses them until it is dropped.
    let mut host = unsafe { Pinned::from_raw(device, memory, N, Vector(values, sender)) }?;
    let mut x = a.alloc::<u32>(N)?;
    a.copy(&host, &mut x)?;
    kernels.step(&a, &mut x, 1, N)?;
    a.copy(&x, &mut host)?;
    assert_eq!(*host.read()?, [next(7, 1); N]);
    let gate = Gate::on(&kernels, &a)?;
    a.copy(&x, &mut host)?;
    drop(host);
    assert!(gone.try_recv().is_err(), "the copy is pending");
    gate.open();
    a.synchronize()?;
    until(|| {
        Ok({
            device.trim();
            gone.try_recv().is_ok()
        })
    })
}

fn modules_of_theirs_have_kernels(device: &Device) -> Result<()> {
    let (kernels, [a]) = kernels_and_streams(device)?;
    let (owner, gone) = mpsc::channel::<()>();
    let raw = kernels.module().as_raw();
    // SAFETY: `kernels` keeps the module loaded beyond this function's last use of it.
    let module = unsafe { device.module_from_raw(raw, "theirs", owner) }?;
    refused(module.kernel("no_such_kernel"), ErrorKind::KernelNotFound, &["no_such_kernel", "theirs"]);
    let step = module.kernel("step")?;
    let mut x = a.full(N, 7u32)?;
    // SAFETY: the parameters are those of `step`.
    unsafe {
        step.launch(&a, &Launch::covering(N), &[Arg::write(&mut x), Arg::value(&1u32), Arg::value(&N)])
    }?;
    assert_all(&a, &x, next(7, 1))?;
    drop((module, step));
    until(|| Ok(device.stream().is_ok() && gone.try_recv() == Err(mpsc::TryRecvError::Disconnected)))?;
    sync::Kernels::load(device).map(drop)
}

fn loans_and_owners_leak_nothing(device: &Device) -> Result<()> {
    struct Counted(#[allow(dead_code)] Theirs, Arc<AtomicUsize>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }

    const ROUNDS: usize = 500;
    let (kernels, [a, b]) = kernels_and_streams(device)?;
    let dropped = Arc::new(AtomicUsize::new(0));
    let used = device.memory_stats().used;
    for round in 0..ROUNDS {
        let theirs = Theirs::new(device, 4 * N)?;
        let (address, owner) = (theirs.address, Counted(theirs, dropped.clone()));
        // SAFETY: the value keeps the memory, and nothing else uses it.
        let mut x = unsafe { Buffer::<u32>::from_raw(&a, address.as_mut_ptr(), N, owner) }?;
        kernels.step(if round % 2 == 0 { &a } else { &b }, &mut x, 1, N)?;
        drop(x.into_raw(&b)?);
        drop(b.full(N, 1u32)?.into_raw(&a)?);
        if round % 50 == 0 {
            b.synchronize()?;
        }
    }
    until(|| Ok(dropped.load(Ordering::Relaxed) == ROUNDS))?;
    a.synchronize()?;
    assert_eq!(device.memory_stats().used, used);
    Child::of(device, "external_memory::exits_with_owners").succeeds().map(drop)
}

/// Ends the process while owners still wait for work.
fn exits_with_owners(device: &Device) -> Result<()> {
    let (kernels, [a]) = kernels_and_streams(device)?;
    let gate = Gate::on(&kernels, &a)?;
    for _ in 0..20 {
        let mut x = Theirs::new(device, 4 * N)?.hand_over(&a)?;
        a.fill(&mut x, 1)?;
        drop(x);
        drop(a.full(N, 1u32)?.into_raw(&a)?);
    }
    gate.open();
    std::process::exit(0);
}
