//! Reading CUPTI's records.
//!
//! Each version of CUDA may bring a longer record, with a new number at the end of its name (`CUpti_ActivityKernel9` in 12.9,
//! `CUpti_ActivityKernel13` in 13.5). But the fields that we need have never moved, so we can read records by offset, whatever
//! their version. The tests compare the offsets with every version in cudarc's bindings.

use std::ffi::{CStr, c_char};

use gpustream_hal::{CopyDirection, WorkKind};

use super::api::CORRELATION_KIND;

/// What we add to the clock when CUPTI asks for the time. CUPTI reads zero as "no time". It also computes the device's times from
/// pairs of both clocks, so a process's first things could otherwise begin a little before the clock.
pub(crate) const EPOCH: u64 = 1 << 40;

/// The kinds of records (`CUpti_ActivityKind`).
pub(crate) mod kind {
    pub(crate) const MEMCPY: u32 = 1;
    pub(crate) const MEMSET: u32 = 2;
    pub(crate) const DRIVER: u32 = 4;
    pub(crate) const CONCURRENT_KERNEL: u32 = 10;
    /// Copies between devices.
    pub(crate) const MEMCPY2: u32 = 22;
    pub(crate) const EXTERNAL_CORRELATION: u32 = 39;
}

/// The directions of copies (`CUpti_ActivityMemcpyKind`); A stands for an array.
mod direction {
    pub(super) const HTOD: u8 = 1;
    pub(super) const DTOH: u8 = 2;
    pub(super) const HTOA: u8 = 3;
    pub(super) const ATOH: u8 = 4;
    pub(super) const ATOA: u8 = 5;
    pub(super) const ATOD: u8 = 6;
    pub(super) const DTOA: u8 = 7;
    pub(super) const DTOD: u8 = 8;
    pub(super) const PTOP: u8 = 10;
}

/// The places of fields.
mod offset {
    pub(super) const KIND: usize = 0;
    /// Fields in the record of everything that a device ran.
    pub(super) const START: usize = 16;
    pub(super) const END: usize = 24;

    /// Three integers.
    pub(super) const GRID: usize = 52;
    /// Three integers.
    pub(super) const BLOCK: usize = 64;
    pub(super) const KERNEL_CORRELATION: usize = 92;
    pub(super) const KERNEL_NAME: usize = 104;

    /// One byte.
    pub(super) const COPY_DIRECTION: usize = 4;
    /// Fields in the records of copies and fills.
    pub(super) const BYTES: usize = 8;
    pub(super) const COPY_CORRELATION: usize = 44;
    pub(super) const PEER_COPY_CORRELATION: usize = 60;
    pub(super) const FILL_CORRELATION: usize = 44;

    pub(super) const EXTERNAL_KIND: usize = 4;
    pub(super) const EXTERNAL_ID: usize = 8;
    pub(super) const EXTERNAL_CORRELATION: usize = 16;
}

/// What we need from a record.
#[derive(Debug, PartialEq)]
pub(crate) enum Record<'a> {
    /// A device ran something.
    Ran(Activity<'a>),
    /// The driver call with this number was made for this operation.
    Operation { correlation: u32, operation: u64 },
    /// A device ran something, but CUPTI could not tell when.
    Untimed,
    /// None of these.
    Other,
}

/// One thing that a device ran.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Activity<'a> {
    /// The number of the driver call that submitted it.
    pub(crate) correlation: u32,
    /// The kernel's symbol; `None` for anything but a kernel.
    pub(crate) symbol: Option<&'a CStr>,
    pub(crate) work: WorkKind,
    /// On the clock of [`gpustream_hal::trace::now`].
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// Reads a record.
///
/// # Safety
/// `record` must point to a whole record from `cuptiActivityGetNextRecord` that lives for `'a`, and so must its strings. The
/// CUPTI must have a [known version](super::api::Version::is_known).
pub(crate) unsafe fn read<'a>(record: *const u8) -> Record<'a> {
    let record = Fields(record);
    let (correlation, work) = match record.number(offset::KIND) {
        kind::CONCURRENT_KERNEL => {
            let work =
                WorkKind::Kernel { grid: record.three(offset::GRID), block: record.three(offset::BLOCK) };
            (record.number(offset::KERNEL_CORRELATION), work)
        }
        kind::MEMCPY => {
            let work = copy(record.get(offset::COPY_DIRECTION), record.get(offset::BYTES));
            (record.number(offset::COPY_CORRELATION), work)
        }
        kind::MEMCPY2 => {
            let work =
                WorkKind::Copy { direction: CopyDirection::FromPeer, bytes: record.get(offset::BYTES) };
            (record.number(offset::PEER_COPY_CORRELATION), work)
        }
        kind::MEMSET => {
            let work = WorkKind::Fill { bytes: record.get(offset::BYTES) };
            (record.number(offset::FILL_CORRELATION), work)
        }
        kind::EXTERNAL_CORRELATION if record.number(offset::EXTERNAL_KIND) == CORRELATION_KIND => {
            let correlation = record.number(offset::EXTERNAL_CORRELATION);
            return Record::Operation { correlation, operation: record.get(offset::EXTERNAL_ID) };
        }
        _ => return Record::Other,
    };
    let (start, end): (u64, u64) = (record.get(offset::START), record.get(offset::END));
    // CUPTI writes zeros if it had no memory for the times, and no end if we forced a flush before the end.
    if start == 0 || end < start {
        return Record::Untimed;
    }
    let symbol = if let WorkKind::Kernel { .. } = work {
        let name: *const c_char = record.get(offset::KERNEL_NAME);
        // SAFETY: a string by this function's contract.
        (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) })
    } else {
        None
    };
    let (start, end) = (start.saturating_sub(EPOCH), end.saturating_sub(EPOCH));
    Record::Ran(Activity { correlation, symbol, work, start, end })
}

/// A whole record from a known version. Only [`read`] makes one, and it asks only for fields that the record's kind has.
struct Fields(*const u8);

impl Fields {
    fn get<T: Copy>(&self, at: usize) -> T {
        // SAFETY: records of this kind have a `T` here, an integer or a pointer. Some are aligned to less than the type needs.
        unsafe { self.0.add(at).cast::<T>().read_unaligned() }
    }

    fn number(&self, at: usize) -> u32 {
        self.get(at)
    }

    fn three(&self, at: usize) -> [u32; 3] {
        self.get(at)
    }
}

fn copy(direction: u8, bytes: u64) -> WorkKind {
    match direction {
        direction::HTOD | direction::HTOA => WorkKind::Copy { direction: CopyDirection::ToDevice, bytes },
        direction::DTOH | direction::ATOH => WorkKind::Copy { direction: CopyDirection::ToHost, bytes },
        direction::DTOD | direction::DTOA | direction::ATOD | direction::ATOA => {
            WorkKind::Copy { direction: CopyDirection::OnDevice, bytes }
        }
        direction::PTOP => WorkKind::Copy { direction: CopyDirection::FromPeer, bytes },
        _ => WorkKind::Other,
    }
}

/// Compares the offsets with cudarc's structs.
#[cfg(test)]
mod places {
    use std::mem::offset_of;

    use cudarc::cupti::sys::*;

    use super::{direction, kind, offset};

    macro_rules! same {
        ($($place:ident = $($record:ident)*, $field:ident;)*) => {
            const _: () = { $($( assert!(offset::$place == offset_of!($record, $field)); )*)* };
        };
    }

    same! {
        KIND = CUpti_ActivityKernel9 CUpti_ActivityMemcpy5 CUpti_ActivityMemcpy6 CUpti_ActivityMemcpyPtoP4
            CUpti_ActivityMemset4 CUpti_ActivityExternalCorrelation, kind;
        START = CUpti_ActivityKernel9 CUpti_ActivityMemcpy5 CUpti_ActivityMemcpy6 CUpti_ActivityMemcpyPtoP4
            CUpti_ActivityMemset4, start;
        END = CUpti_ActivityKernel9 CUpti_ActivityMemcpy5 CUpti_ActivityMemcpy6 CUpti_ActivityMemcpyPtoP4
            CUpti_ActivityMemset4, end;
        GRID = CUpti_ActivityKernel9, gridX;
        BLOCK = CUpti_ActivityKernel9, blockX;
        KERNEL_CORRELATION = CUpti_ActivityKernel9, correlationId;
        KERNEL_NAME = CUpti_ActivityKernel9, name;
        COPY_DIRECTION = CUpti_ActivityMemcpy5 CUpti_ActivityMemcpy6, copyKind;
        BYTES = CUpti_ActivityMemcpy5 CUpti_ActivityMemcpy6 CUpti_ActivityMemcpyPtoP4 CUpti_ActivityMemset4, bytes;
        COPY_CORRELATION = CUpti_ActivityMemcpy5 CUpti_ActivityMemcpy6, correlationId;
        PEER_COPY_CORRELATION = CUpti_ActivityMemcpyPtoP4, correlationId;
        FILL_CORRELATION = CUpti_ActivityMemset4, correlationId;
        EXTERNAL_KIND = CUpti_ActivityExternalCorrelation, externalKind;
        EXTERNAL_ID = CUpti_ActivityExternalCorrelation, externalId;
        EXTERNAL_CORRELATION = CUpti_ActivityExternalCorrelation, correlationId;
    }

    const _: () = {
        assert!(offset::GRID + 8 == offset_of!(CUpti_ActivityKernel9, gridZ));
        assert!(offset::BLOCK + 8 == offset_of!(CUpti_ActivityKernel9, blockZ));
    };

    macro_rules! equal {
        ($bound:ident: $($module:ident::$ours:ident = $name:ident,)*) => {
            const _: () = { $( assert!($module::$ours as u32 == $bound::$name as u32); )* };
        };
    }

    equal! { CUpti_ActivityKind:
        kind::MEMCPY = CUPTI_ACTIVITY_KIND_MEMCPY,
        kind::MEMSET = CUPTI_ACTIVITY_KIND_MEMSET,
        kind::DRIVER = CUPTI_ACTIVITY_KIND_DRIVER,
        kind::CONCURRENT_KERNEL = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
        kind::MEMCPY2 = CUPTI_ACTIVITY_KIND_MEMCPY2,
        kind::EXTERNAL_CORRELATION = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
    }

    equal! { CUpti_ActivityMemcpyKind:
        direction::HTOD = CUPTI_ACTIVITY_MEMCPY_KIND_HTOD,
        direction::DTOH = CUPTI_ACTIVITY_MEMCPY_KIND_DTOH,
        direction::HTOA = CUPTI_ACTIVITY_MEMCPY_KIND_HTOA,
        direction::ATOH = CUPTI_ACTIVITY_MEMCPY_KIND_ATOH,
        direction::ATOA = CUPTI_ACTIVITY_MEMCPY_KIND_ATOA,
        direction::ATOD = CUPTI_ACTIVITY_MEMCPY_KIND_ATOD,
        direction::DTOA = CUPTI_ACTIVITY_MEMCPY_KIND_DTOA,
        direction::DTOD = CUPTI_ACTIVITY_MEMCPY_KIND_DTOD,
        direction::PTOP = CUPTI_ACTIVITY_MEMCPY_KIND_PTOP,
    }
}
