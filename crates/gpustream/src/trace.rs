//! Traces: what ran when, for a part of a program or the whole of it.

use std::sync::Arc;

use gpustream_core::inside;
use gpustream_core::sync::{Mutex, lock};
use gpustream_core::trace::{Listener, Listening};
use gpustream_hal::Result;
use gpustream_timeline::{Record, Timeline};

use crate::Device;

/// The most records that a trace in memory keeps, some 300 bytes each.
const MOST: usize = 1 << 20;

/// A trace that goes on: what is submitted to its devices is noted, and when it ran.
///
/// ```
/// # let device = gpustream::Device::open("cpu")?;
/// # let stream = device.stream()?;
/// let trace = device.trace()?;
/// let x = stream.upload(&[1.0f32; 1000])?;
/// assert_eq!(stream.download(&x)?.len(), 1000);
/// let timeline = trace.stop()?;
///
/// let upload = &timeline.operations[0];
/// println!("{} ran for {:?} ns", upload.label, upload.ran.as_ref().map(|ran| ran.end - ran.start));
/// # Ok::<(), gpustream::Error>(())
/// ```
///
/// The times come from the backend where it measures them (the CPU; CUDA with CUPTI), otherwise from events with timestamps
/// around each operation, which delay the device a little: [`timeline::Device::clock`](gpustream_timeline::Device) says
/// which. A program that is not traced pays for one load in each operation.
///
/// At most a million records are kept; the number of those that are not is [`Timeline::lost`].
///
/// A `Trace` is `Send` and `Sync`. Dropping it ends the trace without waiting for the devices.
#[must_use = "a trace ends when it is dropped"]
pub struct Trace {
    listening: Listening,
    timeline: Arc<Mutex<Timeline>>,
}

impl Device {
    /// Begins a trace of this device's streams. Blocks until the device's clock has been compared with the host's: where times
    /// come from events, until a few of them have been reached.
    ///
    /// # Errors
    /// [`ErrorKind::InHostClosure`](crate::ErrorKind::InHostClosure) inside a host closure; a driver's failure.
    pub fn trace(&self) -> Result<Trace> {
        Trace::of(&[self])
    }
}

impl Trace {
    /// Begins a trace of several devices, on one axis of time.
    ///
    /// # Errors
    /// As for [`Device::trace`].
    pub fn of(devices: &[&Device]) -> Result<Self> {
        inside::check_outside()?;
        let timeline = Arc::<Mutex<Timeline>>::default();
        let devices: Vec<_> = devices.iter().map(|device| device.0.raw.clone()).collect();
        let listening = Listening::begin(Box::new(InMemory::new(timeline.clone())), &devices)?;
        Ok(Self { listening, timeline })
    }

    /// Ends the trace, and returns what was noted. Blocks until the devices have done what was submitted to them.
    ///
    /// # Errors
    /// [`ErrorKind::InHostClosure`](crate::ErrorKind::InHostClosure) inside a host closure. A failure of a device is none: the
    /// operations that it kept from running have no times.
    pub fn stop(self) -> Result<Timeline> {
        inside::check_outside()?;
        self.listening.finish();
        let timeline = std::mem::take(&mut *lock(&self.timeline));
        Ok(timeline)
    }
}

/// A listener that keeps what it hears.
struct InMemory {
    timeline: Arc<Mutex<Timeline>>,
    kept: usize,
}

impl InMemory {
    fn new(timeline: Arc<Mutex<Timeline>>) -> Self {
        Self { timeline, kept: 0 }
    }
}

impl Listener for InMemory {
    fn hear(&mut self, record: &Record) {
        let mut timeline = lock(&self.timeline);
        if self.kept < MOST {
            self.kept += 1;
            timeline.add(record.clone());
        } else {
            timeline.add(Record::Lost(1));
        }
    }
}
