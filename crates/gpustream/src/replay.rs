//! Steps that a program runs again and again, at the cost of one graph.

use std::fmt;

use gpustream_core::operation::{call_site, named};
use gpustream_core::reentrancy;
use gpustream_core::replay::{ReplayStats, ReplayStep};
use gpustream_core::stream::ReplayRun;
use gpustream_hal::Result;

use crate::device::Device;
use crate::dot::dot;
use crate::stream::Stream;

/// A step that is run again and again: a solver's iteration, a frame, a batch. From its third run on the step costs about
/// as much as the launch of one graph, whatever the number of its operations.
///
/// [`run`](Self::run) means the same as a call of the closure with the stream, with the same results, order, lifetimes
/// and errors; only the cost differs. The first run submits each operation by itself. Later runs compare each operation
/// with those of earlier runs, and launch one graph for all:
///
/// | an operation that | costs |
/// |---|---|
/// | is the same | a comparison |
/// | has other scalars, or another shape | setting a node of the graph |
/// | has other memory | setting a node; memory that comes in turn, such as two buffers that are swapped, has a graph for each turn |
/// | is another one | a run that is submitted by itself; up to four courses of a step are kept side by side |
///
/// Operations that touch no common bytes run at the same time, although they were submitted to one stream. Variables of a
/// module count as memory of its kernels. If you loaded a module by `unsafe` code that does not list its variables, and
/// kernels hand values to each other there, use [`in_order`](Self::in_order).
///
/// **Where a step is cut.** A graph ends where the host waits (a download, a guard), where another stream waits for this one
/// or the other way round, and at operations that no graph can hold: host closures, kernels that take a
/// [`Flag`](crate::Flag) and waits for one, launches of other graphs, copies between devices, batches of copies, fills with
/// wide values. The parts are graphs of their own, and the step works as before. `GPUSTREAM_LINT=1` says once for each line
/// where a step is cut.
///
/// **What differs.** The device begins with an operation when the closure ends, or at a cut, and not before. Where the driver
/// refuses an operation, the later calls of the run and the run itself fail with that operation's error.
///
/// ```
/// # fn main() -> gpustream::Result<()> {
/// # let device = gpustream::Device::open("cpu")?;
/// # let stream = device.stream()?;
/// let (mut x, mut y) = (stream.zeros::<f32>(1000)?, stream.zeros::<f32>(1000)?);
/// let mut step = device.replay();
/// for t in 1..=10 {
///     step.run(&stream, |s| {
///         s.fill(&mut x, t as f32)?;
///         s.copy(&x, &mut y)
///     })?;
/// }
/// assert_eq!(stream.download(&y)?, [10.0; 1000]);
/// assert_eq!((step.stats().recordings, step.stats().launches), (1, 9));
/// # Ok(())
/// # }
/// ```
///
/// A `Replay` is `Send` and `Sync`. Dropping it returns at once: pending runs finish.
pub struct Replay {
    /// `None` only while a run has it.
    step: Option<Box<ReplayStep>>,
    device: Device,
}

impl Device {
    /// Makes a step, which records itself in its first runs.
    pub fn replay(&self) -> Replay {
        Replay { step: Some(step(self, false)), device: self.clone() }
    }
}

fn step(device: &Device, in_order: bool) -> Box<ReplayStep> {
    // SAFETY: the step goes into streams of this device alone.
    Box::new(unsafe { ReplayStep::new(device.0.raw.clone(), in_order) })
}

impl Replay {
    /// Sets whether the operations run one after the other, as in a stream. Forgets the runs so far.
    #[must_use]
    pub fn in_order(mut self, in_order: bool) -> Self {
        let old = self.step.replace(step(&self.device, in_order));
        self.device.park(Box::new(old), None);
        self
    }

    /// Calls `work` with `stream`, and submits its operations as one graph where they are those of an earlier run.
    ///
    /// `work` is only called inside a capture, in another step's run on the same stream, and on streams whose work others may
    /// be ordered with unseen: those that the driver or another library made, those made
    /// [`blocking_with_default`](crate::StreamOptions::blocking_with_default), and those on a part of the device.
    ///
    /// # Errors
    /// [`DeviceMismatch`](crate::ErrorKind::DeviceMismatch) for a stream of another device; the error of an operation that the
    /// driver refused after `work` had submitted it; the error of `work`. Where `work` panics, the next wait for the stream
    /// reports what the driver refused.
    #[track_caller]
    pub fn run<T>(&mut self, stream: &Stream, work: impl FnOnce(&Stream) -> Result<T>) -> Result<T> {
        named(call_site("run"), || {
            reentrancy::check_outside()?;
            self.device.check_made(stream, "step")?;
            let run = ReplayRun::begin(&stream.core, &mut self.step)?;
            let outcome = work(stream);
            let ended = run.end();
            if let Some(retired) = self.step.as_mut().and_then(|step| step.take_retired()) {
                self.device.park(retired, None);
            }
            // A refusal by the driver came before any error that `work` made of its own.
            ended.and(outcome)
        })
    }

    /// Returns the figures so far.
    pub fn stats(&self) -> ReplayStats {
        self.step.as_ref().map(|step| step.stats()).unwrap_or_default()
    }

    /// Returns why the operations are submitted by themselves in all runs, where they are: the driver's graphs have a known
    /// fault, or the driver refused one.
    pub fn fallback(&self) -> Option<&'static str> {
        self.step.as_ref().and_then(|step| step.plain())
    }

    /// Returns the operations of the last run, and the operations that each follows directly, in Graphviz's language.
    pub fn dot(&self) -> String {
        let operations = self.step.as_ref().map(|step| step.operations()).unwrap_or_default();
        dot(operations.iter().map(|(operation, after)| (*operation, after.as_slice(), &[][..])))
    }
}

impl Drop for Replay {
    fn drop(&mut self) {
        if let Some(step) = self.step.take() {
            self.device.park(Box::new(step), None);
        }
    }
}

impl fmt::Debug for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stats = self.stats();
        write!(f, "Replay({} runs, {} operations in {} segments)", stats.runs, stats.nodes, stats.segments)
    }
}
