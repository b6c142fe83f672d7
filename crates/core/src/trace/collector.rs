//! The listeners, and what they have not been told yet.

use std::collections::{HashMap, VecDeque};
use std::mem;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::time::Duration;

use gpustream_hal::trace::now;
use gpustream_hal::{self as hal, RawStream, Result};
use gpustream_timeline::{Nanos, Operation, Point, Record, Span, SpanKind, Stream};

use super::device::{Times, TracedDevice};
use super::devices;
use super::ends::Ends;
use super::measured::{Measured, MeasuredPart};
use super::notes::{self, MOST, Note, PendingOperation};
use crate::process;
use crate::sync::{Mutex, lock};

/// How many operations may have parts that were measured before their note arrived.
const MOST_EARLY: usize = 1 << 14;

/// How many milliseconds the end of the process waits for a thread that is collecting.
const PATIENCE: u32 = 1000;

/// The handles of the legacy default stream, the same in all backends: null, or 1.
const LEGACY: [RawStream; 2] = [RawStream(0), RawStream(1)];

/// Hears what happens on your threads and devices. We call it with a lock held, so it must not submit operations, open a
/// device or drop one.
pub trait Listener: Send {
    /// Takes note of a record.
    fn hear(&mut self, record: &Record);

    /// Writes out the records that it has buffered, because nothing more may come for a while.
    fn pause(&mut self) {}
}

/// The state of the trace that only one thread works on at a time.
#[derive(Default)]
pub(super) struct Collector {
    listeners: Vec<Heard>,
    /// The devices, streams and threads so far, because a later listener must be told of them too.
    known: Vec<Record>,
    /// The names of the streams so far, as the listeners know them.
    streams: HashMap<u64, Option<String>>,
    last_listener: u64,
    last_device: u32,
    /// Operations that we time with events, in the order of their submission.
    pending: VecDeque<PendingOperation>,
    ends: Ends,
    /// Operations that the backend measures, by the number that it knows them under.
    measured: HashMap<u64, Measured>,
    /// Parts that were measured before their operation was noted, because its thread may still be in the driver's call.
    early: HashMap<u64, Vec<(bool, MeasuredPart)>>,
}

struct Heard {
    id: u64,
    listener: Box<dyn Listener>,
    /// The devices whose records the listener gets.
    devices: Vec<u32>,
}

pub(super) static COLLECTOR: Mutex<Option<Collector>> = Mutex::new(None);

/// Devices that are done with everything submitted before `until`.
#[derive(Default)]
pub(super) struct Finished<'a> {
    pub(super) devices: &'a [Arc<TracedDevice>],
    pub(super) until: Nanos,
    /// True if we will not look again. Then the backends hand over all that they have, and we give up on operations that
    /// were not measured. Operations that are running at that moment are lost.
    pub(super) is_last: bool,
}

impl Finished<'_> {
    fn has(&self, device: u32) -> bool {
        self.devices.iter().any(|finished| finished.id == device)
    }

    /// Returns true if the operation was submitted to one of these devices before `until`.
    fn is_before(&self, entry: &Measured) -> bool {
        entry.operation.submitted.end <= self.until && self.has(entry.device)
    }

    fn has_done(&self, entry: &Measured) -> bool {
        self.is_before(entry)
            && (self.is_last || entry.is_whole || entry.has_no_parts() || entry.is_complete(true))
    }
}

/// Tells the listeners what we know by now. Returns true if that includes everything in `finished`.
pub(super) fn collect(finished: &Finished<'_>) -> bool {
    let mut slot = lock(&COLLECTOR);
    let Some(collector) = &mut *slot else { return true };
    collector.collect(finished);
    !collector.measured.values().any(|entry| finished.is_before(entry))
}

/// Tells the listeners what we know when the process ends.
pub(super) fn end() {
    // We must not block here, because the thread that ends the process may itself hold the lock.
    let slot = (0..PATIENCE).find_map(|_| {
        let slot = COLLECTOR.try_lock().ok();
        if slot.is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        slot
    });
    if let Some(mut slot) = slot
        && let Some(collector) = &mut *slot
        && process::at_driver(|| collector.collect_all()).is_some()
    {
        // A listener finishes its file when it is dropped. Nothing may unwind from here.
        let listeners = mem::take(&mut collector.listeners);
        let _ = panic::catch_unwind(AssertUnwindSafe(|| drop(listeners))).map_err(mem::forget);
    }
}

impl Collector {
    /// Adds a listener and tells it of the known threads. Returns the listener's number.
    pub(super) fn admit(&mut self, listener: Box<dyn Listener>) -> u64 {
        self.last_listener += 1;
        let id = self.last_listener;
        self.listeners.push(Heard { id, listener, devices: Vec::new() });
        self.introduce(id, |record| matches!(record, Record::Thread(_)));
        id
    }

    /// Begins to trace `device` for a listener. Blocks until we know the device's clock.
    ///
    /// # Errors
    /// The driver's failure.
    pub(super) fn trace(
        &mut self,
        listener: u64,
        device: &Arc<dyn hal::Device>,
    ) -> Result<Arc<TracedDevice>> {
        let device = if let Some(device) = devices::join(device) {
            device
        } else {
            let (traced, record) = TracedDevice::new(self.last_device, device.clone())?;
            self.last_device += 1;
            let device = Arc::new(traced);
            self.known.push(Record::Device(record));
            devices::add(device.clone());
            device
        };
        let id = device.id;
        if let Some(heard) = self.listeners.iter_mut().find(|heard| heard.id == listener) {
            heard.devices.push(id);
        }
        self.introduce(listener, |record| device_of(record) == Some(id));
        Ok(device)
    }

    /// Removes a listener, and returns it so that the caller can drop it with no lock held. `is_last` is true if no
    /// listener is left.
    pub(super) fn dismiss(
        &mut self,
        listener: u64,
        devices: &[Arc<TracedDevice>],
        is_last: bool,
    ) -> Option<Box<dyn Listener>> {
        for device in devices {
            if devices::leave(device) {
                self.forget(device.id);
            }
        }
        if is_last {
            self.early.clear();
            for note in notes::take().0 {
                match note {
                    Note::Operation(pending) => drop(pending.forget()),
                    // Threads keep their numbers.
                    Note::Other(record @ Record::Thread(_)) => self.tell_and_keep(record),
                    Note::Other(_) => {}
                }
            }
        }
        let at = self.listeners.iter().position(|heard| heard.id == listener)?;
        Some(self.listeners.remove(at).listener)
    }

    /// Tells a record to the listeners of its device, or to all listeners if it belongs to no device.
    fn tell(&mut self, record: &Record) {
        self.tell_of(device_of(record), record);
    }

    fn tell_of(&mut self, device: Option<u32>, record: &Record) {
        for Heard { listener, devices, .. } in &mut self.listeners {
            if device.is_none_or(|device| devices.contains(&device)) {
                listener.hear(record);
            }
        }
    }

    fn tell_and_keep(&mut self, record: Record) {
        self.tell(&record);
        self.known.push(record);
    }

    /// Tells a new listener of the devices, streams or threads that we already know.
    fn introduce(&mut self, id: u64, which: impl Fn(&Record) -> bool) {
        if let Some(heard) = self.listeners.iter_mut().find(|heard| heard.id == id) {
            self.known.iter().filter(|record| which(record)).for_each(|record| heard.listener.hear(record));
        }
    }

    /// Tells all that we know, and makes the backends hand over what they have.
    fn collect_all(&mut self) {
        self.collect(&Finished { devices: &devices::all(), until: now(), is_last: true });
    }

    fn collect(&mut self, finished: &Finished<'_>) {
        let (notes, lost) = notes::take();
        for note in notes {
            match note {
                Note::Operation(pending) => self.expect(pending),
                Note::Other(record @ Record::Thread(_)) => self.tell_and_keep(record),
                Note::Other(record) => self.tell(&record),
            }
        }
        let devices = devices::all();
        let lost = lost + self.ask_events() + self.take_measured(&devices, finished);
        if lost > 0 {
            self.tell(&Record::Lost(lost));
        }
        for device in &devices {
            device.keep_time();
        }
        self.listeners.iter_mut().for_each(|heard| heard.listener.pause());
    }

    /// Takes an operation that has been submitted from its note.
    fn expect(&mut self, pending: PendingOperation) {
        self.expect_stream(&pending);
        match pending.times {
            Times::Numbered(number) => {
                let device = pending.device.id;
                let mut measured = Measured::new(pending.operation, device);
                for (last, part) in self.early.remove(&number).unwrap_or_default() {
                    measured.take(last, part);
                }
                self.measured.insert(number, measured);
            }
            Times::Between(..) => self.pending.push_back(pending),
            Times::Unknown | Times::From(_) => {
                let device = Some(pending.device.id);
                self.tell_of(device, &Record::Operation(pending.forget()));
            }
        }
    }

    /// Adds the stream of an operation if it is new, or if you have renamed it.
    fn expect_stream(&mut self, pending: &PendingOperation) {
        let (id, given) = (pending.operation.point.stream, pending.name.get());
        if self.streams.get(&id) == Some(&given) {
            return;
        }
        let legacy = LEGACY.contains(&pending.stream);
        let own = || if legacy { "default stream".to_owned() } else { format!("stream {id}") };
        let name = given.clone().unwrap_or_else(own);
        if self.streams.insert(id, given).is_some() {
            self.known.retain(|record| !matches!(record, Record::Stream(known) if known.id == id));
        }
        self.tell_and_keep(Record::Stream(Stream { id, device: pending.device.id, name, legacy }));
    }

    /// Asks the driver about the oldest operations of each stream. Returns how many we gave up.
    fn ask_events(&mut self) -> u64 {
        // The first operation on each stream that has not run.
        let mut waiting: HashMap<u64, u64> = HashMap::new();
        let mut kept = VecDeque::new();
        let mut pending = mem::take(&mut self.pending);
        let mut excess = pending.len().saturating_sub(MOST);
        let mut lost = 0;
        while let Some(mut next) = pending.pop_front() {
            let Point { stream, number } = next.operation.point;
            let Times::Between(start, end) = &next.times else { continue };
            let is_waiting =
                |point: &Point| waiting.get(&point.stream).is_some_and(|&first| first <= point.number);
            let ran = if is_waiting(&next.operation.point) || next.operation.after.iter().any(is_waiting) {
                Ok(None)
            } else {
                next.device.ran(start, end, || self.ends.held_up(&next.operation))
            };
            match ran {
                Ok(None) if excess > 0 => {
                    excess -= 1;
                    lost += 1;
                    drop(next.forget());
                }
                Ok(None) => {
                    waiting.entry(stream).or_insert(number);
                    kept.push_back(next);
                }
                ran => {
                    next.operation.ran = ran.ok().flatten();
                    if let Some(ran) = &next.operation.ran {
                        self.ends.note(next.operation.point, ran.end);
                    }
                    let (device, operation) = (next.device.id, next.forget());
                    self.note_error(device, &operation);
                    self.tell_of(Some(device), &Record::Operation(operation));
                }
            }
        }
        self.pending = kept;
        lost
    }

    /// Takes what the backends measured. Returns how many operations and measurements were lost.
    fn take_measured(&mut self, devices: &[Arc<TracedDevice>], finished: &Finished<'_>) -> u64 {
        let mut lost = 0;
        let (measured, early) = (&mut self.measured, &mut self.early);
        for device in devices {
            lost += device.take(finished.is_last && finished.has(device.id), &mut |ran| {
                if let Some(entry) = measured.get_mut(&ran.operation) {
                    entry.take(ran.last, MeasuredPart::of(ran));
                } else if early.len() < MOST_EARLY {
                    early.entry(ran.operation).or_default().push((ran.last, MeasuredPart::of(ran)));
                }
            });
        }
        let mut excess = measured.len().saturating_sub(MOST);
        // The last operation of each stream that has a measured part.
        let mut reached: HashMap<u64, u64> = HashMap::new();
        for entry in measured.values().filter(|entry| entry.looks > 0) {
            let Point { stream, number } = entry.operation.point;
            let last = reached.entry(stream).or_insert(number);
            *last = number.max(*last);
        }
        let mut complete = Vec::new();
        for (number, entry) in &mut *measured {
            let place = entry.operation.point;
            let is_passed = reached.get(&place.stream).is_some_and(|&last| place.number < last);
            // A backend measures nothing for some operations, such as a wait for a flag. They have run if a later one has.
            if entry.looks > 0 || is_passed {
                entry.looks = entry.looks.saturating_add(1);
            }
            if entry.is_complete(is_passed) || finished.has_done(entry) || excess > 0 {
                excess = excess.saturating_sub(1);
                complete.push(*number);
            }
        }
        complete.sort_unstable();
        for number in complete {
            if let Some(entry) = self.measured.remove(&number) {
                self.note_error(entry.device, &entry.operation);
                self.tell_of(Some(entry.device), &Record::Operation(entry.operation));
            }
        }
        lost
    }

    /// Notes how far off a device's clock must be, if an operation seems to have run before it was submitted.
    fn note_error(&mut self, device: u32, operation: &Operation) {
        let Some(ran) = &operation.ran else { return };
        let early = operation.submitted.start.saturating_sub(ran.start);
        let known = self.known.iter_mut().find_map(|record| match record {
            Record::Device(known) if known.id == device && known.error < early => Some(known),
            _ => None,
        });
        if let Some(known) = known {
            known.error = early;
            let record = Record::Device(known.clone());
            self.tell(&record);
        }
    }

    /// Forgets the operations of a device that has no listener any more.
    fn forget(&mut self, device: u32) {
        self.measured.retain(|_, entry| entry.device != device);
        for record in self.known.extract_if(.., |record| device_of(record) == Some(device)) {
            if let Record::Stream(stream) = record {
                self.streams.remove(&stream.id);
                self.ends.forget(stream.id);
            }
        }
        for pending in mem::take(&mut self.pending) {
            if pending.device.id == device {
                drop(pending.forget());
            } else {
                self.pending.push_back(pending);
            }
        }
    }
}

/// Returns the record's device, if the record names one.
fn device_of(record: &Record) -> Option<u32> {
    match record {
        Record::Device(device) => Some(device.id),
        Record::Stream(stream) => Some(stream.device),
        Record::Counter(counter) => Some(counter.device),
        Record::Span(Span { kind: SpanKind::Allocation { device, .. }, .. }) => Some(*device),
        _ => None,
    }
}
