//! The notes of your threads, until we collect them.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;

use gpustream_hal::RawStream;
use gpustream_timeline::{Operation, Record};

use super::device::{Times, TracedDevice};
use super::is_heard;
use super::submission::StreamName;
use crate::sync::{Mutex, lock};

/// How many notes may wait to be collected, and how many operations may not have run yet.
pub(super) const MOST: usize = 1 << 17;

/// An operation that was submitted, and where its times will come from.
pub(super) struct PendingOperation {
    pub(super) operation: Operation,
    pub(super) device: Arc<TracedDevice>,
    pub(super) stream: RawStream,
    pub(super) name: Arc<StreamName>,
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
    /// Gives up on the operation's times: returns its events to the device.
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

/// Queues a note. Returns it if the queue is full or no listener is left.
fn put(note: Note) -> Option<Note> {
    let mut notes = lock(&NOTES);
    // We ask with the lock held, because the last listener empties the queue once it is no longer counted.
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

/// Takes all notes out. Also returns how many were lost because the queue was full.
pub(super) fn take() -> (VecDeque<Note>, u64) {
    let mut notes = lock(&NOTES);
    (mem::take(&mut notes.queue), mem::take(&mut notes.lost))
}
