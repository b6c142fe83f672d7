//! Steps that you run again and again, at the cost of one graph.

use std::fmt;

use gpustream_core::operation::{call_site, named};
use gpustream_core::reentrancy;
use gpustream_core::replay::{ReplayStats, ReplayStep};
use gpustream_core::stream::ReplayRun;
use gpustream_hal::Result;

use crate::device::Device;
use crate::dot::dot;
use crate::stream::Stream;

/// A step that you run again and again: a solver's iteration, a frame, a batch. From the third run on, a step costs about as
/// much as launching one graph, however many operations it has.
///
/// [`run`](Self::run) does the same as calling your closure with the stream: you get the same results, order, lifetimes and
/// errors. Only the cost differs. In the first run we submit each operation by itself. In later runs we compare each operation
/// with those of earlier runs, and if they agree we launch one graph for all of them:
///
/// | an operation that | costs |
/// |---|---|
/// | is the same | a comparison |
/// | has other scalars, or another shape | setting a node of the graph |
/// | has other memory | setting a node; if the memory takes turns, as when you swap two buffers, each turn gets its own graph |
/// | is a different one | a run that is submitted operation by operation; we keep up to four shapes of a step |
///
/// In a graph, operations that touch no common bytes may run at the same time, although you submitted them to one stream. A
/// module's variables count as memory of its kernels. If you loaded a module with `unsafe` code that does not list its
/// variables, and kernels pass values to each other through them, use [`in_order`](Self::in_order).
///
/// **Where a step is cut.** A graph must end if the host waits (a download, a guard), or if another stream waits for this one
/// or the other way round. Collective operations between devices of one process do that, too. A graph also ends at operations
/// that it cannot hold: host closures, kernels that take a [`Flag`](crate::Flag) and waits for one, launches of other graphs,
/// copies between devices, batches of copies, and fills with wide values. Each part becomes a graph of its own, and the step works
/// as before. There can be 64 parts. What comes after them is submitted operation by operation in every run, and
/// [`ReplayStats::beyond_limit`] counts it. If you set `GPUSTREAM_LINT=1`, we report each line that cuts a step, once.
///
/// **What differs.** The device only begins with an operation when your closure ends or the step is cut, not earlier. And if
/// the driver refuses an operation, you learn it late: the later calls of the run, and the run itself, return that operation's
/// error.
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
/// A `Replay` is `Send` and `Sync`. Dropping it returns at once, and pending runs still finish.
pub struct Replay {
    /// `None` only while a run has it.
    step: Option<Box<ReplayStep>>,
    device: Device,
}

impl Device {
    /// Makes a step. It records itself during its first runs.
    pub fn replay(&self) -> Replay {
        Replay { step: Some(step(self, false)), device: self.clone() }
    }
}

fn step(device: &Device, in_order: bool) -> Box<ReplayStep> {
    // SAFETY: the step only goes into streams of this device.
    Box::new(unsafe { ReplayStep::new(device.0.raw.clone(), in_order) })
}

impl Replay {
    /// Sets whether the operations run one after another, as they do in a stream. Forgets the runs so far.
    #[must_use]
    pub fn in_order(mut self, in_order: bool) -> Self {
        let old = self.step.replace(step(&self.device, in_order));
        self.device.park(Box::new(old), None);
        self
    }

    /// Calls `work` with `stream`, and submits its operations as one graph if they are those of an earlier run. Does not wait
    /// for the device unless `work` does.
    ///
    /// Sometimes we only call `work` and record nothing: inside a capture, inside another step's run on the same stream, and on
    /// streams that others may submit to or wait for without telling us. Those are streams of the driver or of another library,
    /// streams made [`blocking_with_default`](crate::StreamOptions::blocking_with_default), and streams on a part of the
    /// device. If we deferred your work there, theirs could overtake it.
    ///
    /// # Errors
    /// [`DeviceMismatch`](crate::ErrorKind::DeviceMismatch) if the stream belongs to another device; the error of `work`; the
    /// error of an operation that the driver refused after `work` had submitted it. If `work` panics, the next wait for the
    /// stream reports what the driver refused.
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
            // The driver's refusal came before any error of `work` itself, so it goes first.
            ended.and(outcome)
        })
    }

    /// Returns how often the step has run, recorded and launched so far.
    pub fn stats(&self) -> ReplayStats {
        self.step.as_ref().map(|step| step.stats()).unwrap_or_default()
    }

    /// If all runs are submitted operation by operation, returns why: the driver's graphs have a known fault, or the driver
    /// refused one. Otherwise returns `None`.
    pub fn fallback(&self) -> Option<&'static str> {
        self.step.as_ref().and_then(|step| step.plain())
    }

    /// Returns the operations of the last run in Graphviz's language, each with the operations that it follows directly.
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
