//! The notes that nobody has been told yet, and the listeners.

use std::collections::{HashMap, HashSet, VecDeque};
use std::mem;
use std::ops::Range;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Once};
use std::time::Duration;

use gpustream_hal::trace::now;
use gpustream_hal::{self as hal, Ran, RanWork, RawStream, Result};
use gpustream_timeline::{Direction, Nanos, Operation, Piece, Point, Record, Span, SpanKind, Stream, Work};

use super::device::{Times, TracedDevice};
use super::{LISTENERS, RANGES, is_heard, thread};
use crate::process;
use crate::sync::{Mutex, lock};

/// The most notes that wait to be collected, and the most operations that have not run.
const MOST: usize = 1 << 17;

/// The most operations whose parts were measured before they were noted.
const MOST_EARLY: usize = 1 << 14;

/// The most milliseconds that the process's end waits for a look that is under way.
const PATIENCE: u32 = 1000;

/// The looks for which an operation with measured parts is kept, in case there are more.
const LOOKS: u8 = 2;

/// The first number of the driver's handle of the legacy default stream, in all backends.
const LEGACY: [RawStream; 2] = [RawStream(0), RawStream(1)];

/// A party that is told what happens. It is called with a lock held: it must not submit operations, nor open or drop a device.
pub trait Listener: Send {
    /// Takes note of a record.
    fn hear(&mut self, record: &Record);

    /// Writes out what it has kept back: nothing more may come for a while.
    fn pause(&mut self) {}
}

/// An operation that was submitted, with what will tell when it ran.
pub(super) struct Pending {
    pub(super) operation: Operation,
    pub(super) device: Arc<TracedDevice>,
    pub(super) stream: RawStream,
    pub(super) times: Times,
}

enum Note {
    Operation(Pending),
    Other(Record),
}

/// The notes of the program's threads.
struct Notes {
    queue: VecDeque<Note>,
    lost: u64,
}

static NOTES: Mutex<Notes> = Mutex::new(Notes { queue: VecDeque::new(), lost: 0 });

/// The traced devices. Threads that submit look here, so the lock is held for no call of a driver's.
static DEVICES: Mutex<Vec<Traced>> = Mutex::new(Vec::new());

struct Traced {
    device: Arc<TracedDevice>,
    /// Listeners that asked for the device.
    listeners: usize,
}

/// The parts of the trace that only one thread at a time works on.
struct Collector {
    listeners: Vec<Heard>,
    /// Devices, streams and threads that the listeners know, for those who come later.
    known: Vec<Record>,
    streams: HashSet<u64>,
    last_listener: u64,
    last_device: u32,
    /// Operations that events tell of, in the order of their submission.
    pending: VecDeque<Pending>,
    /// Operations that a backend measures, by their number.
    measured: HashMap<u64, Measured>,
    /// Parts that were measured before their operation was noted: its thread may still be in the call.
    early: HashMap<u64, Vec<(bool, Part)>>,
}

struct Heard {
    id: u64,
    listener: Box<dyn Listener>,
    /// The devices that the listener hears of.
    devices: Vec<u32>,
}

struct Measured {
    operation: Operation,
    /// The looks since the last part came; 0 while none has come.
    looks: u8,
    last: bool,
    device: u32,
}

static COLLECTOR: Mutex<Option<Collector>> = Mutex::new(None);

/// Notes a record.
pub(super) fn note(record: Record) {
    put(Note::Other(record));
}

/// Notes a submission.
pub(super) fn expect(pending: Pending) {
    if let Some(Note::Operation(lost)) = put(Note::Operation(pending)) {
        lost.forget();
    }
}

/// Puts a note into the queue; one for which there is no room, or that nobody will ask for, comes back.
fn put(note: Note) -> Option<Note> {
    let mut notes = lock(&NOTES);
    // With the lock held: the last listener empties the queue when it is no longer counted.
    if !is_heard() && !matches!(note, Note::Other(Record::Thread(_))) {
        return Some(note);
    }
    if notes.queue.len() < MOST {
        notes.queue.push_back(note);
        return None;
    }
    notes.lost += 1;
    Some(note)
}

/// Tells of something that later listeners must know, too.
pub(super) fn tell_of(record: Record) {
    put(Note::Other(record));
}

/// Returns the device, if anybody traces it.
pub(super) fn traced(device: &Arc<dyn hal::Device>) -> Option<Arc<TracedDevice>> {
    let devices = lock(&DEVICES);
    devices.iter().find(|traced| Arc::ptr_eq(&traced.device.raw, device)).map(|traced| traced.device.clone())
}

impl Pending {
    /// Gives back the events of an operation that will not be asked about.
    fn forget(self) -> Operation {
        match self.times {
            Times::Between(start, end) => {
                self.device.give_back(start);
                self.device.give_back(end);
            }
            Times::From(event) => self.device.give_back(event),
            Times::Unknown | Times::Numbered(_) => {}
        }
        self.operation
    }
}

/// A listener's place. Dropping it ends the listening, without waiting for what is pending.
pub struct Listening {
    id: u64,
    devices: Vec<Arc<TracedDevice>>,
}

impl Listening {
    /// Begins to tell `listener` of these devices, and of all threads. Blocks until each device's clock is known.
    ///
    /// # Errors
    /// A driver's failure.
    pub fn begin(listener: Box<dyn Listener>, devices: &[Arc<dyn hal::Device>]) -> Result<Self> {
        static AT_END: Once = Once::new();
        let mut slot = lock(&COLLECTOR);
        let collector = slot.get_or_insert_with(Collector::new);
        collector.last_listener += 1;
        let id = collector.last_listener;
        collector.listeners.push(Heard { id, listener, devices: Vec::new() });
        collector.introduce(id, |record| matches!(record, Record::Thread(_)));
        let mut listening = Self { id, devices: Vec::new() };
        LISTENERS.fetch_add(1, Ordering::SeqCst);
        for device in devices {
            if let Err(error) = listening.add_with(collector, device) {
                drop(slot);
                return Err(error);
            }
        }
        drop(slot);
        AT_END.call_once(|| process::before_end(end));
        thread::run();
        Ok(listening)
    }

    /// Begins to tell of one more device.
    ///
    /// # Errors
    /// A driver's failure.
    pub fn add(&mut self, device: &Arc<dyn hal::Device>) -> Result<()> {
        self.add_with(lock(&COLLECTOR).get_or_insert_with(Collector::new), device)
    }

    fn add_with(&mut self, collector: &mut Collector, device: &Arc<dyn hal::Device>) -> Result<()> {
        if self.devices.iter().any(|known| Arc::ptr_eq(&known.raw, device)) {
            return Ok(());
        }
        let known =
            lock(&DEVICES).iter_mut().find(|traced| Arc::ptr_eq(&traced.device.raw, device)).map(|traced| {
                traced.listeners += 1;
                traced.device.clone()
            });
        let device = if let Some(device) = known {
            device
        } else {
            collector.last_device += 1;
            let (traced, record) = TracedDevice::new(collector.last_device - 1, device.clone())?;
            let device = Arc::new(traced);
            collector.known.push(Record::Device(record));
            lock(&DEVICES).push(Traced { device: device.clone(), listeners: 1 });
            device
        };
        let id = device.id;
        if let Some(heard) = collector.listeners.iter_mut().find(|heard| heard.id == self.id) {
            heard.devices.push(id);
        }
        collector.introduce(self.id, |record| device_of(record) == Some(id));
        self.devices.push(device);
        Ok(())
    }

    /// Waits until the devices have done what was submitted to them, and tells the listener of all of it. Blocks.
    pub fn finish(&self) {
        // Other threads may go on to submit.
        let until = now();
        for device in &self.devices {
            // A device that failed has nothing more to tell.
            let _ = device.raw.synchronize();
        }
        collect(&Finished { devices: &self.devices, until });
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let mut slot = lock(&COLLECTOR);
        let Some(collector) = &mut *slot else { return };
        let gone = collector.listeners.iter().position(|heard| heard.id == self.id);
        let listener = gone.map(|at| collector.listeners.remove(at));
        let mut devices = lock(&DEVICES);
        for device in &self.devices {
            if let Some(at) = devices.iter().position(|traced| Arc::ptr_eq(&traced.device, device)) {
                devices[at].listeners -= 1;
                if devices[at].listeners == 0 {
                    devices.swap_remove(at);
                    collector.forget(device.id);
                }
            }
        }
        drop(devices);
        let notes = if LISTENERS.fetch_sub(1, Ordering::SeqCst) & !RANGES == 1 {
            collector.early.clear();
            mem::take(&mut lock(&NOTES).queue)
        } else {
            VecDeque::new()
        };
        for note in notes {
            match note {
                Note::Operation(pending) => drop(pending.forget()),
                // Threads keep their numbers.
                Note::Other(record @ Record::Thread(_)) => collector.tell_and_keep(record),
                Note::Other(_) => {}
            }
        }
        drop(slot);
        // With no lock held: a file is closed.
        drop(listener);
    }
}

/// Devices that have done what they were given up to a moment.
#[derive(Default)]
pub(super) struct Finished<'a> {
    devices: &'a [Arc<TracedDevice>],
    until: Nanos,
}

impl Finished<'_> {
    fn has(&self, device: u32) -> bool {
        self.devices.iter().any(|finished| finished.id == device)
    }

    fn has_done(&self, entry: &Measured) -> bool {
        entry.operation.submitted.end <= self.until && self.has(entry.device)
    }
}

/// Tells the listeners what is known by now.
pub(super) fn collect(finished: &Finished<'_>) {
    if let Some(collector) = &mut *lock(&COLLECTOR) {
        collector.collect(finished);
    }
}

/// Tells the listeners what is known when the process ends.
fn end() {
    // The thread that ends the process may itself have the lock.
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
        // Listeners write their ends when they are dropped. Nothing may unwind from here.
        let listeners = mem::take(&mut collector.listeners);
        let _ = panic::catch_unwind(AssertUnwindSafe(|| drop(listeners))).map_err(mem::forget);
    }
}

impl Collector {
    fn new() -> Self {
        Self {
            listeners: Vec::new(),
            known: Vec::new(),
            streams: HashSet::new(),
            last_listener: 0,
            last_device: 0,
            pending: VecDeque::new(),
            measured: HashMap::new(),
            early: HashMap::new(),
        }
    }

    /// Tells a record to all who hear of its device; one of no device to all.
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

    /// Tells a listener of devices, streams or threads that were known before.
    fn introduce(&mut self, id: u64, which: impl Fn(&Record) -> bool) {
        if let Some(heard) = self.listeners.iter_mut().find(|heard| heard.id == id) {
            self.known.iter().filter(|record| which(record)).for_each(|record| heard.listener.hear(record));
        }
    }

    /// Tells all that is known, and lets the backends hold nothing back.
    fn collect_all(&mut self) {
        let devices: Vec<_> = lock(&DEVICES).iter().map(|traced| traced.device.clone()).collect();
        self.collect(&Finished { devices: &devices, until: now() });
    }

    fn collect(&mut self, finished: &Finished<'_>) {
        let (notes, lost) = {
            let mut notes = lock(&NOTES);
            (mem::take(&mut notes.queue), mem::take(&mut notes.lost))
        };
        for note in notes {
            match note {
                Note::Operation(pending) => self.expect(pending),
                Note::Other(record @ Record::Thread(_)) => self.tell_and_keep(record),
                Note::Other(record) => self.tell(&record),
            }
        }
        let devices: Vec<_> = lock(&DEVICES).iter().map(|traced| traced.device.clone()).collect();
        let lost = lost + self.ask_events() + self.take_measured(&devices, finished);
        if lost > 0 {
            self.tell(&Record::Lost(lost));
        }
        for device in &devices {
            device.keep_time();
        }
        self.listeners.iter_mut().for_each(|heard| heard.listener.pause());
    }

    /// Takes in an operation that has been submitted.
    fn expect(&mut self, pending: Pending) {
        let id = pending.operation.point.stream;
        if self.streams.insert(id) {
            let legacy = LEGACY.contains(&pending.stream);
            let name = if legacy { "default stream".to_owned() } else { format!("stream {id}") };
            self.tell_and_keep(Record::Stream(Stream { id, device: pending.device.id, name, legacy }));
        }
        match pending.times {
            Times::Numbered(number) => {
                let device = pending.device.id;
                let mut measured = Measured { operation: pending.operation, looks: 0, last: false, device };
                for (last, part) in self.early.remove(&number).unwrap_or_default() {
                    measured.take(last, &part);
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

    /// Asks about the oldest operations of each stream. Returns how many were given up.
    fn ask_events(&mut self) -> u64 {
        let mut waiting = HashSet::new();
        let mut kept = VecDeque::new();
        let mut pending = mem::take(&mut self.pending);
        let mut excess = pending.len().saturating_sub(MOST);
        let mut lost = 0;
        while let Some(mut next) = pending.pop_front() {
            let stream = next.operation.point.stream;
            let Times::Between(start, end) = next.times else { continue };
            let ran = if waiting.contains(&stream) { Ok(None) } else { next.device.ran(start, end) };
            match ran {
                Ok(None) if excess > 0 => {
                    excess -= 1;
                    lost += 1;
                    drop(next.forget());
                }
                Ok(None) => {
                    waiting.insert(stream);
                    kept.push_back(next);
                }
                ran => {
                    next.operation.ran = ran.ok().flatten();
                    let device = Some(next.device.id);
                    self.tell_of(device, &Record::Operation(next.forget()));
                }
            }
        }
        self.pending = kept;
        lost
    }

    /// Takes what the backends measured. Returns how much of it was lost.
    fn take_measured(&mut self, devices: &[Arc<TracedDevice>], finished: &Finished<'_>) -> u64 {
        let mut lost = 0;
        let (measured, early) = (&mut self.measured, &mut self.early);
        for device in devices {
            lost += device.take(finished.has(device.id), &mut |ran| {
                if let Some(entry) = measured.get_mut(&ran.operation) {
                    entry.take(ran.last, &Part::of(ran));
                } else if early.len() < MOST_EARLY {
                    early.entry(ran.operation).or_default().push((ran.last, Part::of(ran)));
                }
            });
        }
        let mut excess = measured.len().saturating_sub(MOST);
        let mut complete = Vec::new();
        let mut passed: HashMap<u64, u64> = HashMap::new();
        for (number, entry) in &mut *measured {
            let Point { stream, number: place } = entry.operation.point;
            if entry.looks > 0 {
                passed.entry(stream).and_modify(|last| *last = place.max(*last)).or_insert(place);
                entry.looks += 1;
            }
            if entry.last || entry.looks > LOOKS || finished.has_done(entry) || excess > 0 {
                excess = excess.saturating_sub(1);
                complete.push(*number);
            }
        }
        // Nothing is measured of some operations, such as waits for a flag; they have run if later ones have.
        for entry in measured.values_mut() {
            let Point { stream, number } = entry.operation.point;
            if entry.looks == 0 && passed.get(&stream).is_some_and(|&last| number < last) {
                entry.looks = 1;
            }
        }
        complete.sort_unstable();
        for number in complete {
            if let Some(entry) = self.measured.remove(&number) {
                self.tell_of(Some(entry.device), &Record::Operation(entry.operation));
            }
        }
        lost
    }

    /// Forgets the operations of a device that nobody traces any more.
    fn forget(&mut self, device: u32) {
        self.measured.retain(|_, entry| entry.device != device);
        for record in self.known.extract_if(.., |record| device_of(record) == Some(device)) {
            if let Record::Stream(stream) = record {
                self.streams.remove(&stream.id);
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

/// A part of an operation, as a backend measured it; without a kind where the part is nothing to show.
struct Part {
    label: String,
    ran: Range<Nanos>,
    work: Option<Work>,
}

impl Part {
    fn of(ran: &Ran<'_>) -> Self {
        Self { label: ran.label.to_owned(), ran: ran.start..ran.end.max(ran.start), work: work_of(ran.work) }
    }
}

impl Measured {
    /// Adds a part; `last` says that there are no more.
    fn take(&mut self, last: bool, part: &Part) {
        self.looks = 1;
        self.last |= last;
        let Part { label, ran, work } = part;
        let whole = self.operation.ran.get_or_insert_with(|| ran.clone());
        *whole = whole.start.min(ran.start)..whole.end.max(ran.end);
        let alone = matches!(
            (self.operation.work, work),
            (Work::Kernel { .. }, Some(Work::Kernel { .. }))
                | (Work::Copy { .. }, Some(Work::Copy { .. }))
                | (Work::Fill { .. }, Some(Work::Fill { .. }))
                | (Work::Host, _)
        );
        if let (false, Some(work)) = (alone, *work) {
            self.operation.pieces.push(Piece { label: label.clone().into(), ran: ran.clone(), work });
        }
    }
}

/// Returns the device that a record is of, where the record itself says so.
fn device_of(record: &Record) -> Option<u32> {
    match record {
        Record::Device(device) => Some(device.id),
        Record::Stream(stream) => Some(stream.device),
        Record::Counter(counter) => Some(counter.device),
        Record::Span(Span { kind: SpanKind::Allocation { device, .. }, .. }) => Some(*device),
        _ => None,
    }
}

fn work_of(work: RanWork) -> Option<Work> {
    let copy = |direction, bytes| Some(Work::Copy { direction, bytes, pageable: false });
    match work {
        RanWork::Kernel { grid, block } => Some(Work::Kernel { grid, block }),
        RanWork::CopyToDevice { bytes } => copy(Direction::Up, bytes),
        RanWork::CopyToHost { bytes } => copy(Direction::Down, bytes),
        RanWork::CopyOnDevice { bytes } => copy(Direction::Inside, bytes),
        RanWork::CopyFromPeer { bytes } => copy(Direction::Peer, bytes),
        RanWork::Fill { bytes } => Some(Work::Fill { bytes }),
        _ => None,
    }
}
