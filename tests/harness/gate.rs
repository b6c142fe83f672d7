//! Gates: kernels wait at them until the test lets them go. Some tools run one kernel at a time, so a test that holds
//! one kernel while it waits for another would hang there. This file also knows about such tools.

use std::env;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use gpustream::{AsView, AsViewMut, Device, Flag, Launch, Result, Stream};

use crate::sync;

/// You set this variable to 1 under a tool that runs kernels one after another, even if they are on different streams.
pub(crate) const SERIAL: &str = "GPUSTREAM_TEST_SERIAL";
/// Under such a tool a gate opens by itself after this time.
const PATIENCE: Duration = Duration::from_secs(5);

/// Returns true under a tool that runs kernels one after another, even if they are on different streams.
pub fn is_serial() -> bool {
    env::var(SERIAL).is_ok_and(|value| value == "1")
}

/// Returns true if other work can run while a closure blocks. If it cannot, the test is reported as skipped.
pub fn runs_beside_closures(_: &Device) -> bool {
    GAVE_UP.fetch_or(is_serial(), Ordering::SeqCst);
    !is_serial()
}

/// Returns true if a gate has opened by itself since the last call. Then the test waited for work that cannot run
/// beside another kernel, so its outcome means nothing.
pub(crate) fn gave_up() -> bool {
    GAVE_UP.swap(false, Ordering::SeqCst)
}

static GAVE_UP: AtomicBool = AtomicBool::new(false);

/// A launch of one thread.
pub const ONE: Launch = Launch::exact([1; 3], [1; 3]);

/// A flag that kernels wait for. Its destructor opens it, so that a test that fails does not hang.
#[derive(Debug)]
pub struct Gate(Flag);

impl Gate {
    /// Makes a closed gate.
    ///
    /// # Errors
    /// The errors of [`Device::flag`].
    pub fn new(device: &Device) -> Result<Self> {
        let flag = device.flag()?;
        if is_serial() {
            let flag = flag.clone();
            thread::spawn(move || {
                thread::sleep(PATIENCE);
                if flag.get() == 0 {
                    GAVE_UP.store(true, Ordering::SeqCst);
                    flag.set(1);
                }
            });
        }
        Ok(Self(flag))
    }

    /// Makes a closed gate and makes the stream wait there.
    ///
    /// # Errors
    /// The errors of [`Device::flag`] and of a launch.
    pub fn on(kernels: &sync::Kernels, stream: &Stream) -> Result<Self> {
        let gate = Self::new(stream.device())?;
        gate.hold(kernels, stream)?;
        Ok(gate)
    }

    /// Makes a closed gate, and launches one kernel that waits there and then adds `value` to every element of `x`.
    ///
    /// # Errors
    /// The errors of [`Device::flag`] and of a launch.
    #[track_caller]
    pub fn adding(
        kernels: &sync::Kernels,
        stream: &Stream,
        x: &mut impl AsViewMut<u32>,
        value: u32,
    ) -> Result<Self> {
        let gate = Self::new(stream.device())?;
        let len = x.view_mut().len();
        kernels.add_when(stream, &gate.0, x, value, len)?;
        Ok(gate)
    }

    /// Makes a closed gate, and launches one kernel that waits there and then copies `x` to `y`.
    ///
    /// # Errors
    /// The errors of [`Device::flag`] and of a launch.
    #[track_caller]
    pub fn copying(
        kernels: &sync::Kernels,
        stream: &Stream,
        x: &impl AsView<u32>,
        y: &mut impl AsViewMut<u32>,
    ) -> Result<Self> {
        let gate = Self::new(stream.device())?;
        kernels.copy_when(stream, &gate.0, x, y, x.view().len())?;
        Ok(gate)
    }

    /// Makes the stream wait at the gate, in a kernel that spins.
    ///
    /// # Errors
    /// The errors of a launch.
    #[track_caller]
    pub fn hold(&self, kernels: &sync::Kernels, stream: &Stream) -> Result<()> {
        kernels.spin(stream, &ONE, &self.0)
    }

    /// Does `work` while another thread opens the gate. Use it if `work` may block until the gate is open.
    pub fn open_during<T>(&self, work: impl FnOnce() -> T) -> T {
        thread::scope(|scope| {
            scope.spawn(|| self.open());
            work()
        })
    }

    /// Returns the flag that kernels wait for.
    pub fn flag(&self) -> &Flag {
        &self.0
    }

    /// Opens the gate, so that the kernels can go on.
    pub fn open(&self) {
        self.0.set(1);
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.open();
    }
}

/// Calls `condition` until it returns true. If it never does, the test's time limit ends the process.
///
/// # Errors
/// The errors of the condition.
pub fn until(mut condition: impl FnMut() -> Result<bool>) -> Result<()> {
    while !condition()? {
        thread::yield_now();
    }
    Ok(())
}
