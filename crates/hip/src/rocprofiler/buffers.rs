//! The delivered records, until we take them.
//!
//! The library calls us from a thread of its own, whenever its buffer is half full or flushed. While that buffer is
//! full, it holds back the thread that completes work. So our callback may only take one short lock, must allocate
//! little, and cannot panic. We must never tear down the data that it uses.

use std::ffi::c_void;
use std::mem;
use std::sync::Mutex;

use gpustream_hal::lock::lock;

use super::api::{rocprofiler_buffer_id_t, rocprofiler_context_id_t, rocprofiler_record_header_t};
use super::record::{self, Activity, Record, TRACING};

/// How many bytes the library's buffer has: enough for about twenty thousand operations. There are two of them.
pub(crate) const SIZE: usize = 4 << 20;
/// At this fill the library delivers.
pub(crate) const WATERMARK: usize = SIZE / 2;
/// How many records can wait for us. If more come, they are lost, and we count them.
const MOST: usize = 1 << 18;

/// A record for an operation; without a part if the record has no times.
pub(crate) type Came = (u64, Option<Activity>);

/// The records that we have not taken yet, in the order that they came.
#[derive(Default)]
struct Delivered {
    records: Vec<Came>,
    lost: u64,
    /// How many records the library itself had dropped by the last delivery.
    dropped: u64,
}

static DELIVERED: Mutex<Delivered> = Mutex::new(Delivered { records: Vec::new(), lost: 0, dropped: 0 });

impl Delivered {
    fn add(&mut self, record: Came) {
        let has_room = self.records.len() < MOST && self.records.try_reserve(1).is_ok();
        if !has_room || record.1.is_none() {
            self.lost += 1;
        }
        if has_room {
            self.records.push(record);
        }
    }
}

/// Takes records (`rocprofiler_buffer_tracing_cb_t`).
///
/// # Safety
/// `headers` must point to this many pointers to the fronts of records from a [known version](super::api::Version::is_known),
/// which live during the call.
pub(crate) unsafe extern "C" fn deliver(
    _context: rocprofiler_context_id_t,
    _buffer: rocprofiler_buffer_id_t,
    headers: *mut *mut rocprofiler_record_header_t,
    count: usize,
    _data: *mut c_void,
    dropped: u64,
) {
    let mut delivered = lock(&DELIVERED);
    delivered.lost += dropped.saturating_sub(delivered.dropped);
    delivered.dropped = dropped;
    if headers.is_null() {
        return;
    }
    for at in 0..count {
        // SAFETY: this is one of the pointers, to a front that lives.
        let Some(header) = (unsafe { headers.add(at).read().as_ref() }) else { continue };
        if header.category != TRACING || header.payload.is_null() {
            continue;
        }
        // SAFETY: the record belongs to this front.
        match unsafe { record::read(header.kind, header.payload.cast()) } {
            Record::Ran(part) => delivered.add((part.operation, Some(part))),
            Record::Untimed(operation) => delivered.add((operation, None)),
            Record::Short => delivered.lost += 1,
            Record::Other => {}
        }
    }
}

/// Returns the records that came since the last call, and how many were lost.
pub(crate) fn take() -> (Vec<Came>, u64) {
    let mut delivered = lock(&DELIVERED);
    (mem::take(&mut delivered.records), mem::take(&mut delivered.lost))
}

#[cfg(test)]
mod tests {
    use gpustream_hal::WorkKind;

    use super::*;

    #[test]
    fn records_that_nobody_takes_are_bounded_and_counted() {
        let part = Activity { operation: 1, kernel: None, work: WorkKind::Other, start: 1, end: 2 };
        let mut full = Delivered::default();
        for _ in 0..MOST + 7 {
            full.add((1, Some(part)));
        }
        assert_eq!((full.records.len(), full.lost), (MOST, 7));
        full.add((1, None));
        assert_eq!((full.records.len(), full.lost), (MOST, 8));
    }
}
