//! A process that ends itself where the library's threads run the program's code.

use std::future::Future;
use std::pin::pin;
use std::process::exit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};
use std::thread;

use gpustream::{Device, Result};

/// The code that these processes end with, which is none of a test's.
pub const CODE: i32 = 42;
/// How often each of them is started.
pub const RUNS: usize = 20;

/// Ends the process when it is woken.
struct Exits;

impl Wake for Exits {
    fn wake(self: Arc<Self>) {
        exit(CODE)
    }
}

/// Has the library's thread that wakes futures end the process, once `open` has let the future's work go.
///
/// # Panics
/// Where the future is not pending.
pub fn exit_from_a_waker(future: impl Future, open: impl FnOnce()) -> ! {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Exits));
    assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    open();
    loop {
        thread::park();
    }
}

/// Has the library's thread that drops what closures leave end the process. Nothing may be stuck on the device.
///
/// # Errors
/// Those of the device.
pub fn exit_from_a_drop(device: Device) -> Result<()> {
    static EXITS: AtomicBool = AtomicBool::new(false);
    static RESTS: AtomicBool = AtomicBool::new(false);
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            EXITS.store(true, Ordering::SeqCst);
            // The calls of the program's own threads are the program's own affair: some drivers hang over them.
            while thread::current().name() == Some("gpustream-drop") && !RESTS.load(Ordering::SeqCst) {
                thread::yield_now();
            }
            exit(CODE)
        }
    }
    let s = device.stream()?;
    let bomb = Bomb;
    let graph = s.capture(|s| {
        s.host_fn_repeat(move || {
            let _ = &bomb;
        })
    })?;
    s.host_fn(move || drop(graph))?;
    // Until somebody finds that nothing uses the graph any more.
    while !EXITS.load(Ordering::SeqCst) {
        let other = s.capture(|s| s.host_fn_repeat(|| ()))?;
        s.host_fn(move || drop(other))?;
        s.synchronize()?;
    }
    std::mem::forget((s, device));
    RESTS.store(true, Ordering::SeqCst);
    loop {
        thread::park();
    }
}
