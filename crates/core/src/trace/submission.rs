//! One operation on its way to the driver, and how we time it.

use std::borrow::Cow;
use std::mem;
use std::sync::Arc;

use gpustream_hal::trace::now;
use gpustream_hal::{self as hal, CallSite, RawStream, Result};
use gpustream_timeline::WorkKind;

use super::device::{Times, TracedDevice};
use super::devices;
use super::notes::{self, PendingOperation};
use super::ranges::Range;
use super::{place, thread, timeline_point};
use crate::sync::{Mutex, lock};
use crate::track::Point;

/// The name that you gave to a stream, if you did. The collector reads it when it hears of an operation, so that the order of
/// the notes does not matter.
#[derive(Default)]
pub struct StreamName(Mutex<Option<String>>);

impl StreamName {
    pub fn set(&self, name: String) {
        *lock(&self.0) = Some(name);
    }

    pub fn get(&self) -> Option<String> {
        lock(&self.0).clone()
    }
}

/// The place of an operation in its stream.
pub(crate) struct InStream {
    pub(crate) stream: RawStream,
    pub(crate) point: Point,
    pub(crate) name: Arc<StreamName>,
    /// The points that the stream has waited for since its last operation.
    pub(crate) after: Vec<Point>,
    /// True if only this library submits to the driver's stream, so that its work waits for nothing that we don't know of.
    pub(crate) is_exclusive: bool,
}

/// Makes an operation's driver calls, in a range for the vendors' profilers. If the device is traced, also notes the
/// operation.
#[cold]
pub(crate) fn submission(
    device: &Arc<dyn hal::Device>,
    at: InStream,
    call_site: CallSite,
    work: WorkKind,
    call: &mut dyn FnMut() -> Result<()>,
) -> Result<()> {
    let mut call = || {
        let _range = Range::begin(&**device, call_site.label);
        call()
    };
    let Some(device) = devices::find(device) else { return call() };
    let (start, work) = match (thread::take_staging(), work) {
        (Some(began), WorkKind::Copy { direction, bytes, .. }) => {
            (began, WorkKind::Copy { direction, bytes, pageable: true })
        }
        (_, work) => (now(), work),
    };
    let times = device.before(&at);
    let InStream { stream, point, name, after, .. } = at;
    let mut begun = Begun { device: &device, stream, point, times };
    let result = call();
    let submitted = start..now();
    let times = begun.end(result.is_ok());
    drop(begun);
    let operation = gpustream_timeline::Operation {
        point: timeline_point(point),
        label: Cow::Borrowed(call_site.label),
        place: place(call_site.location),
        thread: thread::current(),
        submitted,
        ran: None,
        work,
        after: after.iter().copied().map(timeline_point).collect(),
        pieces: Vec::new(),
    };
    notes::expect(PendingOperation { operation, device, stream, name, times });
    result
}

/// A submission whose calls are being made. Your closure may make them, for another library, and may panic. Then dropping
/// this value ends the submission.
struct Begun<'a> {
    device: &'a TracedDevice,
    stream: RawStream,
    point: Point,
    times: Times,
}

impl Begun<'_> {
    fn end(&mut self, submitted: bool) -> Times {
        let times = mem::replace(&mut self.times, Times::Unknown);
        self.device.after(self.stream, self.point, times, submitted)
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.end(false);
    }
}
