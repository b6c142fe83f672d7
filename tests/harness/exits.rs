//! Processes that call `exit` in your code while a thread of the library is running it.

use std::future::Future;
use std::pin::pin;
use std::process::exit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};
use std::thread;

use gpustream::{Device, Result};

/// The exit code of these processes. Tests use it for nothing else.
pub const CODE: i32 = 42;
/// How often each process is started. A race may need many runs before it shows.
pub const RUNS: usize = 20;

/// A waker that ends the process when the library wakes it.
struct Exits;

impl Wake for Exits {
    fn wake(self: Arc<Self>) {
        exit(CODE)
    }
}

/// Ends the process on the library's thread that wakes futures. `open` must let the future's work finish.
///
/// # Panics
/// If the future is not pending.
pub fn exit_from_a_waker(future: impl Future, open: impl FnOnce()) -> ! {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Exits));
    assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    open();
    loop {
        thread::park();
    }
}

/// Ends the process on the library's thread that drops what closures own. No work may be stuck on the device.
///
/// # Errors
/// The errors of the device.
pub fn exit_from_a_drop(device: Device) -> Result<()> {
    static EXITS: AtomicBool = AtomicBool::new(false);
    static RESTS: AtomicBool = AtomicBool::new(false);
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            EXITS.store(true, Ordering::SeqCst);
            // The thread that made the device must not call the driver during the exit, because some drivers would
            // hang.
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
    // We keep capturing until the destructor runs, because the library notices only then that the graph is not used any
    // more.
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
