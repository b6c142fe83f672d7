//! Processes that exit in code of the program that the library's threads run.

use std::future::Future;
use std::pin::pin;
use std::process::exit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};
use std::thread;

use gpustream::{Device, Result};

/// The exit code of these processes, which no test uses otherwise.
pub const CODE: i32 = 42;
/// The number of times each of them is started.
pub const RUNS: usize = 20;

/// A waker that ends the process when it is woken.
struct Exits;

impl Wake for Exits {
    fn wake(self: Arc<Self>) {
        exit(CODE)
    }
}

/// Makes the library's thread that wakes futures end the process, once `open` has let the future's work run.
///
/// # Panics
/// The future is not pending.
pub fn exit_from_a_waker(future: impl Future, open: impl FnOnce()) -> ! {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Exits));
    assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    open();
    loop {
        thread::park();
    }
}

/// Makes the library's thread that drops closures' handles end the process. No work may be stuck on the device.
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
            // The program's own threads must not call the driver during the exit: some drivers would hang.
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
    // New streams let the library notice that the graph is no longer in use.
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
