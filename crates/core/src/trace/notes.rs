//! The notes of your threads, until we collect them.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;

use gpustream_hal::RawStream;
use gpustream_timeline::{Operation, Record};

use super::device::{Times, TracedDevice};
use super::is_heard;
use crate::sync::{Mutex, lock};

/// The most notes that wait to be collected, and the most operations that have not run.
pub(super) const MOST: usize = 1 << 17;

/// An operation that was submitted, with what will tell when it ran.
pub(super) struct PendingOperation {
    pub(super) operation: Operation,
    pub(super) device: Arc<TracedDevice>,
    pub(super) stream: RawStream,
    pub(super) times: Times,
}

/// A note in the queue.
pub(super) enum Note {
    Operation(PendingOperation),
    Other(Record),
}

/// The notes of your threads.
struct Notes {
    queue: VecDeque<Note>,
    lost: u64,
}

static NOTES: Mutex<Notes> = Mutex::new(Notes { queue: VecDeque::new(), lost: 0 });

impl PendingOperation {
    /// Gives back the events of an operation that will not be asked about.
    pub(super) fn forget(self) -> Operation {
        self.device.give_back_times(self.times);
        self.operation
    }
}

/// Notes a record.
pub(super) fn note(record: Record) {
    put(Note::Other(record));
}

/// Notes a submission.
pub(super) fn expect(pending: PendingOperation) {
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

/// Takes the notes out, with the number of those for which there was no room.
pub(super) fn take() -> (VecDeque<Note>, u64) {
    let mut notes = lock(&NOTES);
    (mem::take(&mut notes.queue), mem::take(&mut notes.lost))
}
