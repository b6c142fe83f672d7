//! Descriptions of tracks, as Perfetto messages.
//!
//! Field numbers and types come from `protos/perfetto/trace/track_event` in Perfetto's sources. Each message
//! names its file.

use super::message::Message;

/// `TrackDescriptor` (`track_descriptor.proto`).
#[derive(Clone, Default)]
pub(super) struct TrackDescriptor {
    pub(super) uuid: u64,
    pub(super) name: Option<String>,
    pub(super) process: Option<ProcessDescriptor>,
    pub(super) thread: Option<ThreadDescriptor>,
    pub(super) parent_uuid: Option<u64>,
    /// True if the track shows values, in bytes.
    pub(super) is_counter: bool,
    /// True if the tracks inside this one are ordered by rank.
    pub(super) orders_by_rank: bool,
    pub(super) sibling_order_rank: Option<i32>,
    pub(super) description: Option<String>,
    /// Tracks with the same key are shown as one.
    pub(super) merge_key: Option<String>,
}

/// `ProcessDescriptor` (`process_descriptor.proto`).
#[derive(Clone)]
pub(super) struct ProcessDescriptor {
    pub(super) pid: i32,
    pub(super) process_name: String,
}

/// `ThreadDescriptor` (`thread_descriptor.proto`).
#[derive(Clone)]
pub(super) struct ThreadDescriptor {
    pub(super) pid: i32,
    pub(super) tid: i32,
    pub(super) thread_name: String,
}

/// `TrackDescriptor.ChildTracksOrdering.EXPLICIT`.
const BY_RANK: i32 = 3;
/// `TrackDescriptor.SiblingMergeBehavior.SIBLING_MERGE_BEHAVIOR_BY_SIBLING_MERGE_KEY`.
const MERGE_BY_KEY: i32 = 3;
/// `CounterDescriptor.Unit.UNIT_SIZE_BYTES` (`counter_descriptor.proto`).
const UNIT_BYTES: i32 = 3;

impl TrackDescriptor {
    pub(super) fn write(&self, message: &mut Message<'_>) {
        message.uint(1, self.uuid);
        message.text_if_any(2, self.name.as_deref());
        if let Some(process) = &self.process {
            message.message(3, |message| {
                message.int(1, process.pid);
                message.text_unless_empty(6, &process.process_name);
            });
        }
        if let Some(thread) = &self.thread {
            message.message(4, |message| {
                message.int(1, thread.pid);
                message.int(2, thread.tid);
                message.text_unless_empty(5, &thread.thread_name);
            });
        }
        if let Some(parent) = self.parent_uuid {
            message.uint(5, parent);
        }
        if self.is_counter {
            message.message(8, |message| message.int(3, UNIT_BYTES));
        }
        if self.orders_by_rank {
            message.int(11, BY_RANK);
        }
        if let Some(rank) = self.sibling_order_rank {
            message.int(12, rank);
        }
        message.text_if_any(14, self.description.as_deref());
        if let Some(key) = &self.merge_key {
            message.int(15, MERGE_BY_KEY);
            message.text(16, key);
        }
    }
}
