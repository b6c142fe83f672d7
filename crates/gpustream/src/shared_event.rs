//! Events that streams of several processes can wait for.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use gpustream_core::memory::Registration;
use gpustream_core::operation::{DriverCalls, call_site, named};
use gpustream_core::reentrancy;
use gpustream_core::sync::{Mutex, lock};
use gpustream_core::track::{Mode, StreamId};
use gpustream_hal::{Error, ErrorKind, Result, WaitValue, Work, memory_file};

use crate::buffer::Owned;
use crate::device::Device;
use crate::export::{self, Content, Export, copy_of, invalid};
use crate::stream::Stream;
use crate::view::View;

/// A point in a stream of one process that streams of other processes can wait for. Made by [`Device::shared_event`].
///
/// One process makes the event and [records](Stream::record_shared) it. It sends an [`Export`] to other processes, and these
/// [import](Device::import_event) the event and let their streams [wait](Stream::wait_shared) for the last record. That orders
/// work of two processes on [shared memory](Device::alloc_shared) without making the hosts wait. They only have to tell each
/// other that a record was submitted:
///
/// ```
/// use std::os::unix::net::UnixStream;
/// use gpustream::{Device, Export};
/// # let device = Device::open("cpu")?;
/// # let stream = device.stream()?;
/// # let (ours, theirs) = UnixStream::pair().unwrap();
/// // One process:
/// let written = device.shared_event()?;
/// written.export()?.send(&ours)?;
/// // …work of the stream that the other process must wait for…
/// stream.record_shared(&written)?;
/// // …and a message that says so.
///
/// // The other one:
/// let written = device.import_event(&Export::receive(&theirs)?)?;
/// // …after the message:
/// stream.wait_shared(&written)?;
/// # stream.synchronize()?;
/// # assert!(written.is_done()?);
/// # Ok::<(), gpustream::Error>(())
/// ```
///
/// The event is a page of memory that all its processes map. One stream writes a count there and others wait for that count. So
/// the processes may even have devices of different backends, and the event outlives the process that made it. (CUDA's and
/// HIP's own handles, `cuIpcGetEventHandle` and `hipIpcGetEventHandle`, can do neither.) If you need an order in both
/// directions, let each process make one.
///
/// A `SharedEvent` is `Send` and `Sync`. Dropping it does not block, and records and waits that were submitted stay.
pub struct SharedEvent {
    /// The page, as memory that the device can reach.
    memory: Owned,
    descriptor: OwnedFd,
    role: Role,
}

enum Role {
    Recorder(Mutex<Slots>),
    Waiter,
}

/// The page's contents, which are only reached by atomics and by streams. Another process may write anything there at any time.
/// The worst that this can do is to end a wait too early, or never.
#[repr(C)]
struct Page {
    /// The [`SharedRecord`] of the last record that was submitted; 0 before the first.
    last: AtomicU64,
    /// Set to 1 when the event is abandoned, so that no new wait begins.
    abandoned: AtomicU32,
    /// For each slot, the last record that its stream has reached.
    reached: [AtomicU32; SLOTS],
}

const PAGE: usize = 4096;
const SLOTS: usize = 1021;
const _: () = assert!(size_of::<Page>() == PAGE);

/// The last value of a slot. We stop there because drivers compare larger values in different ways.
const LAST: u32 = (1 << 31) - 1;

/// A record: number `value` of its slot, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SharedRecord {
    slot: usize,
    value: u32,
}

impl SharedRecord {
    fn to_bits(self) -> u64 {
        (self.slot as u64) << 32 | u64::from(self.value)
    }

    /// Returns the record that a page names, or `None` before the first.
    fn from_bits(bits: u64) -> Result<Option<Self>> {
        let (slot, value) = ((bits >> 32) as usize, bits as u32);
        match value {
            0 if slot == 0 => Ok(None),
            1..=LAST if slot < SLOTS => Ok(Some(Self { slot, value })),
            _ => Err(external(
                "another process has written over the event; only send exports to processes that use them through gpustream",
            )),
        }
    }
}

/// The slots of a page as the recorder knows them. Each stream counts its records in its own slot, because records of two
/// streams can be reached in any order.
#[derive(Default)]
struct Slots(Vec<RecorderSlot>);

struct RecorderSlot {
    stream: StreamId,
    /// The last record that may have been submitted.
    value: u32,
}

impl Slots {
    /// Returns a new record on `stream`. It goes into the stream's own slot, into a slot whose stream has reached all its
    /// records, or into a new slot. `reached` tells how far a slot is.
    fn next(&mut self, stream: StreamId, reached: impl Fn(usize) -> u32) -> Result<SharedRecord> {
        let counts = |slot: &RecorderSlot| slot.value < LAST;
        let own = self.0.iter().position(|slot| slot.stream == stream && counts(slot));
        let idle = || {
            let mut slots = self.0.iter().enumerate();
            slots.find(|(at, slot)| counts(slot) && reached(*at) == slot.value).map(|(at, _)| at)
        };
        let at = own.or_else(idle).unwrap_or(self.0.len());
        if at == SLOTS {
            return Err(invalid(format!(
                "{SLOTS} streams have recorded the event and have not reached their records; wait for one of them first, or \
                 make another event"
            )));
        }
        if at == self.0.len() {
            self.0.push(RecorderSlot { stream, value: 0 });
        }
        let slot = &mut self.0[at];
        slot.stream = stream;
        slot.value += 1;
        Ok(SharedRecord { slot: at, value: slot.value })
    }
}

/// A mapping of a page, which is unmapped when this is dropped.
struct Map(usize);

impl Map {
    fn new(descriptor: BorrowedFd<'_>) -> Result<Self> {
        let map = memory_file::map(descriptor, PAGE);
        Ok(Self(map.map_err(|why| export::external("mapping a shared event", why))?))
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: made by `new`, and the block that owns the value is no longer used.
        unsafe { memory_file::unmap(self.0, PAGE) };
    }
}

impl SharedEvent {
    fn of(device: &Device, descriptor: OwnedFd, role: Role) -> Result<Self> {
        let map = Map::new(descriptor.as_fd())?;
        let address = map.0 as *mut _;
        // SAFETY: the page is mapped until its owner, the mapping, is dropped, and its length is sealed.
        let registration = unsafe { Registration::new(&device.0.raw, address, PAGE, Box::new(map)) }?;
        let block = device.0.pools.register(registration, PAGE)?;
        Ok(Self { memory: Owned::new(device, block), descriptor, role })
    }

    #[expect(clippy::cast_ptr_alignment, reason = "a mapping begins at a page")]
    fn page(&self) -> &Page {
        // SAFETY: the block is a page long, aligned to a page, and lives as long as `self`. It is only reached by atomics.
        unsafe { &*self.memory.block().host.cast::<Page>() }
    }

    fn reached(&self, slot: usize) -> u32 {
        self.page().reached[slot].load(Ordering::Acquire)
    }

    /// Returns a slot's word as a view.
    fn word(&self, slot: usize) -> View<'_, u32> {
        let start = std::mem::offset_of!(Page, reached) + slot * size_of::<u32>();
        View::at(self.memory.block(), &self.memory.device, start, 1)
    }

    /// Returns the last record that was submitted, or `None` if it has been reached.
    fn awaited(&self) -> Result<Option<SharedRecord>> {
        self.check_not_abandoned()?;
        let last = SharedRecord::from_bits(self.page().last.load(Ordering::Acquire))?;
        Ok(last.filter(|record| self.reached(record.slot) < record.value))
    }

    fn check_not_abandoned(&self) -> Result<()> {
        match self.page().abandoned.load(Ordering::Acquire) {
            0 => Ok(()),
            _ => Err(external(
                "the event was abandoned, so it cannot be recorded or waited for; make another one",
            )),
        }
    }

    /// Makes a handle of the event that you can send to other processes.
    ///
    /// # Errors
    /// [`ErrorKind::External`] if the process cannot open another file descriptor.
    #[track_caller]
    pub fn export(&self) -> Result<Export> {
        let descriptor = named(call_site("export"), || copy_of(&self.descriptor))?;
        Ok(Export { descriptor, content: Content::Event })
    }

    /// Returns true if the last record has been reached, or if there is none. Never blocks.
    ///
    /// # Errors
    /// [`ErrorKind::External`] if the event was [abandoned](Self::abandon).
    #[track_caller]
    pub fn is_done(&self) -> Result<bool> {
        named(call_site("is_done"), || Ok(self.awaited()?.is_none()))
    }

    /// Ends all waits for the event, in all its processes and forever.
    ///
    /// Call this if the process that records the event has ended, which you see when the socket that the export came through is
    /// closed. If that process had not reached a record, the waits for it would otherwise never end. Work after these waits
    /// goes on, and finds the memory as the dead process left it. From then on, records and new waits are errors.
    ///
    /// If the recording process still lives and reaches a record afterwards, a wait that began earlier may go on waiting.
    pub fn abandon(&self) {
        let page = self.page();
        page.abandoned.store(1, Ordering::Release);
        for reached in &page.reached {
            reached.store(LAST, Ordering::Release);
        }
        self.memory.device.raw().word_written();
    }
}

impl Device {
    /// Makes an event that streams of other processes can wait for. It holds a file descriptor and a page of page-locked
    /// memory.
    ///
    /// # Errors
    /// [`ErrorKind::External`] if the system has no memory or file descriptor left; as for [`register`](Self::register).
    #[track_caller]
    pub fn shared_event(&self) -> Result<SharedEvent> {
        named(call_site("shared_event"), || {
            reentrancy::check_outside()?;
            let page = memory_file::create_sealed(c"gpustream event", PAGE)
                .map_err(|why| export::external("making a shared event", why))?;
            SharedEvent::of(self, page, Role::Recorder(Mutex::default()))
        })
    }

    /// Imports an event that another process (or this one) has [exported](SharedEvent::export), so that your streams can wait
    /// for it. Any device can import any other device's event.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the export holds memory, or if its descriptor does not belong to an event; as for
    /// [`shared_event`](Self::shared_event).
    #[track_caller]
    pub fn import_event(&self, export: &Export) -> Result<SharedEvent> {
        named(call_site("import_event"), || {
            reentrancy::check_outside()?;
            if export.content != Content::Event {
                return Err(invalid(
                    "the export holds memory, not an event; import it with `Device::import`",
                ));
            }
            let page = export.descriptor.as_fd();
            let is_page = memory_file::length(page).is_ok_and(|bytes| bytes == PAGE as u64);
            if !memory_file::is_sealed(page) || !is_page {
                return Err(invalid(
                    "the export says that it is an event, but its file descriptor is not an event's; send it with \
                     `SharedEvent::export` and `Export::send`",
                ));
            }
            SharedEvent::of(self, copy_of(&export.descriptor)?, Role::Waiter)
        })
    }
}

impl Stream {
    /// Records an event that this process made, at this point of the stream (`cuStreamWriteValue32`, `hipStreamWriteValue32`).
    /// Does not block. Waits that are submitted from now on, in any process, are for this record. Earlier waits are not
    /// affected.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the event was imported, because only the process that made it can record it, or if the
    /// driver lacks the call. [`ErrorKind::Captured`] inside a capture. [`ErrorKind::DeviceMismatch`] if the stream's device
    /// cannot reach the event's. [`ErrorKind::External`] if the event was [abandoned](SharedEvent::abandon).
    #[track_caller]
    pub fn record_shared(&self, event: &SharedEvent) -> Result<()> {
        let entry = self.enter(call_site("record_shared"))?;
        let record = || {
            // We check first, because a record's number cannot be given back.
            self.check_memory(&entry, &event.word(0))?;
            entry.check_running("record a shared event in it; record it after the graph's launch")?;
            event.check_not_abandoned()?;
            let Role::Recorder(slots) = &event.role else {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    "the event was imported, and only the process that made it can record it; make your own for this direction",
                ));
            };
            let mut slots = lock(slots);
            let next = slots.next(self.core.id, |slot| event.reached(slot))?;
            let word = event.word(next.slot);
            let work = Work::WriteValue { address: word.as_raw(), value: next.value };
            // SAFETY: the word is aligned and page-locked, and is only reached by atomics. We enter the use, so the word
            // outlives the work.
            unsafe { entry.submit_call(&[&word.access(Mode::Shared)], DriverCalls::Work(work)) }?;
            event.page().last.store(next.to_bits(), Ordering::Release);
            Ok(())
        };
        entry.named(record())
    }

    /// Makes all work that you submit to this stream from now on wait for the last record of the event (`cuStreamWaitValue32`,
    /// `hipStreamWaitValue32`). Does not block. If the event was never recorded, there is nothing to wait for. So wait for a
    /// message from the process that records it before you call this.
    ///
    /// Your work then comes after everything that the recording stream was given before its record. If the recording process
    /// ends, nothing ends the wait until you call [`SharedEvent::abandon`]. Until then the stream waits, and so does the last
    /// handle of the device, as for a [`Flag`](crate::Flag). A stream of the CPU device may see another process's record up to
    /// a millisecond late.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if [`DeviceFeatures::stream_wait_value`](gpustream_hal::DeviceFeatures::stream_wait_value)
    /// says no. [`ErrorKind::Captured`] inside a capture. [`ErrorKind::DeviceMismatch`] if the stream's device cannot reach the
    /// event's. [`ErrorKind::External`] if the event was abandoned.
    #[track_caller]
    pub fn wait_shared(&self, event: &SharedEvent) -> Result<()> {
        let entry = self.enter(call_site("wait_shared"))?;
        let wait = || {
            self.check_memory(&entry, &event.word(0))?;
            entry.check_running(
                "wait for a shared event in it; make the stream that launches the graph wait instead",
            )?;
            let Some(record) = event.awaited()? else { return Ok(()) };
            let device = self.device.info();
            if !device.features.stream_wait_value {
                let message = format!(
                    "streams of this {} device cannot wait for shared events; let the host ask `is_done`, and submit then",
                    device.backend
                );
                return Err(Error::new(ErrorKind::Unsupported, message));
            }
            let word = event.word(record.slot);
            let work = Work::WaitValue { address: word.as_raw(), until: WaitValue::AtLeast(record.value) };
            // SAFETY: the word is aligned and page-locked, and is only reached by atomics. We enter the use, so the word
            // outlives the work.
            unsafe { entry.submit_call(&[&word.access(Mode::Shared)], DriverCalls::Work(work)) }
        };
        entry.named(wait())
    }
}

impl fmt::Debug for SharedEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let role = match self.role {
            Role::Recorder(_) => "recorded here",
            Role::Waiter => "imported",
        };
        write!(f, "SharedEvent({role})")
    }
}

fn external(message: &str) -> Error {
    Error::new(ErrorKind::External, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: StreamId = StreamId::nth(7);
    const B: StreamId = StreamId::nth(8);

    fn record(slot: usize, value: u32) -> SharedRecord {
        SharedRecord { slot, value }
    }

    #[test]
    fn streams_count_in_slots_of_their_own() {
        let mut slots = Slots::default();
        let none = |_| 0;
        assert_eq!(slots.next(A, none).unwrap(), record(0, 1));
        assert_eq!(slots.next(B, none).unwrap(), record(1, 1));
        assert_eq!(slots.next(A, none).unwrap(), record(0, 2));
        assert_eq!(slots.next(B, none).unwrap(), record(1, 2));
    }

    #[test]
    fn a_slot_whose_records_are_reached_serves_another_stream() {
        let mut slots = Slots::default();
        slots.next(A, |_| 0).unwrap();
        slots.next(A, |_| 0).unwrap();
        assert_eq!(slots.next(B, |_| 1).unwrap(), record(1, 1));
        assert_eq!(slots.next(StreamId::nth(9), |slot| [2, 0][slot]).unwrap(), record(0, 3));
        // The slot is the other stream's now.
        assert_eq!(slots.next(A, |_| 0).unwrap(), record(2, 1));
    }

    #[test]
    fn a_slot_that_is_counted_out_is_used_no_more() {
        let mut slots = Slots(vec![RecorderSlot { stream: A, value: LAST - 1 }]);
        assert_eq!(slots.next(A, |_| LAST - 1).unwrap(), record(0, LAST));
        assert_eq!(slots.next(A, |_| LAST).unwrap(), record(1, 1));
    }

    #[test]
    fn more_streams_than_slots_are_an_error() {
        let mut slots = Slots::default();
        for stream in 0..SLOTS as u64 {
            slots.next(StreamId::nth(stream), |_| 0).unwrap();
        }
        let error = slots.next(StreamId::nth(SLOTS as u64), |_| 0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert_eq!(
            slots.next(StreamId::nth(SLOTS as u64), |slot| u32::from(slot == 5)).unwrap(),
            record(5, 2)
        );
    }

    #[test]
    fn records_of_a_page_are_checked() {
        assert_eq!(SharedRecord::from_bits(0).unwrap(), None);
        for expected in [record(0, 1), record(SLOTS - 1, LAST)] {
            assert_eq!(SharedRecord::from_bits(expected.to_bits()).unwrap(), Some(expected));
        }
        for bits in [u64::MAX, 1 << 32, (SLOTS as u64) << 32 | 1, 1 << 31] {
            assert_eq!(SharedRecord::from_bits(bits).unwrap_err().kind(), ErrorKind::External, "{bits:x}");
        }
    }
}
