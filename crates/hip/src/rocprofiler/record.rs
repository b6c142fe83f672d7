//! Reading the library's records.
//!
//! A record says how long it is, and newer versions may add fields at its end: 1.0 a copy's addresses, and the
//! development of 2026 a kernel's pipe. But the fields that we need have never moved, so we can read records by offset,
//! whatever their version. The tests have the offsets that a C compiler found in four versions' headers.

use gpustream_hal::{CopyDirection, WorkKind};

/// The category of the records from buffer tracing (`ROCPROFILER_BUFFER_CATEGORY_TRACING`).
pub(crate) const TRACING: u32 = 1;

/// The kinds of records (`rocprofiler_buffer_tracing_kind_t`).
pub(crate) mod kind {
    pub(crate) const MEMORY_COPY: u32 = 10;
    pub(crate) const KERNEL_DISPATCH: u32 = 11;
}

/// The directions of copies (`rocprofiler_memory_copy_operation_t`).
mod direction {
    pub(super) const HOST_TO_DEVICE: u32 = 2;
    pub(super) const DEVICE_TO_HOST: u32 = 3;
    pub(super) const DEVICE_TO_DEVICE: u32 = 4;
}

/// The fields' offsets, and how long a record must be to have them.
mod offset {
    /// In all records.
    pub(super) const SIZE: usize = 0;
    pub(super) const OPERATION: usize = 12;
    pub(super) const EXTERNAL_CORRELATION: usize = 24;
    pub(super) const START: usize = 40;
    pub(super) const END: usize = 48;

    pub(super) const KERNEL: usize = 80;
    /// Three integers.
    pub(super) const WORKGROUP: usize = 104;
    /// Three integers.
    pub(super) const GRID: usize = 116;
    pub(super) const LEAST_KERNEL: u64 = 128;

    pub(super) const DESTINATION: usize = 56;
    pub(super) const SOURCE: usize = 64;
    pub(super) const BYTES: usize = 72;
    pub(super) const LEAST_COPY: u64 = 80;
}

/// What we need from a record.
#[derive(Debug, PartialEq)]
pub(crate) enum Record {
    /// A device ran something for an operation.
    Ran(Activity),
    /// A device ran something for this operation, but the record does not say when.
    Untimed(u64),
    /// The record is shorter than in any known version.
    Short,
    /// Another kind, or something outside all operations.
    Other,
}

/// One thing that a device ran.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Activity {
    /// Not 0.
    pub(crate) operation: u64,
    /// The kernel's number; `None` for anything but a kernel.
    pub(crate) kernel: Option<u64>,
    pub(crate) work: WorkKind,
    /// On the library's clock.
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// Reads a record of this kind.
///
/// # Safety
/// `record` must point to a record from buffer tracing, with this kind, as long as it says, and from a [known
/// version](super::api::Version::is_known).
pub(crate) unsafe fn read(kind: u32, record: *const u8) -> Record {
    let least = match kind {
        kind::KERNEL_DISPATCH => offset::LEAST_KERNEL,
        kind::MEMORY_COPY => offset::LEAST_COPY,
        _ => return Record::Other,
    };
    let record = Fields(record);
    if record.get::<u64>(offset::SIZE) < least {
        return Record::Short;
    }
    let operation = record.get(offset::EXTERNAL_CORRELATION);
    if operation == 0 {
        return Record::Other;
    }
    let (start, end): (u64, u64) = (record.get(offset::START), record.get(offset::END));
    // Zeros if the device kept no times.
    if start == 0 || end < start {
        return Record::Untimed(operation);
    }
    let (kernel, work) = if kind == kind::KERNEL_DISPATCH {
        (Some(record.get(offset::KERNEL)), record.kernel())
    } else {
        (None, record.copy())
    };
    Record::Ran(Activity { operation, kernel, work, start, end })
}

/// A record from a known version with all its kind's fields. Only [`read`] makes one.
struct Fields(*const u8);

impl Fields {
    fn get<T: Copy>(&self, at: usize) -> T {
        // SAFETY: records of this kind have a `T` here, an integer or several.
        unsafe { self.0.add(at).cast::<T>().read_unaligned() }
    }

    fn kernel(&self) -> WorkKind {
        let (threads, block): ([u32; 3], [u32; 3]) = (self.get(offset::GRID), self.get(offset::WORKGROUP));
        let mut grid = threads;
        for (blocks, size) in grid.iter_mut().zip(block) {
            *blocks = blocks.div_ceil(size.max(1));
        }
        WorkKind::Kernel { grid, block }
    }

    fn copy(&self) -> WorkKind {
        let bytes = self.get(offset::BYTES);
        let (from, to): (u64, u64) = (self.get(offset::SOURCE), self.get(offset::DESTINATION));
        match self.get(offset::OPERATION) {
            direction::HOST_TO_DEVICE => WorkKind::Copy { direction: CopyDirection::ToDevice, bytes },
            direction::DEVICE_TO_HOST => WorkKind::Copy { direction: CopyDirection::ToHost, bytes },
            direction::DEVICE_TO_DEVICE if from == to => {
                WorkKind::Copy { direction: CopyDirection::OnDevice, bytes }
            }
            direction::DEVICE_TO_DEVICE => WorkKind::Copy { direction: CopyDirection::FromPeer, bytes },
            _ => WorkKind::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The offsets in some versions' headers, as `offsetof` gives them to a C compiler.
    struct Header {
        versions: &'static str,
        /// `size`, `kind`, `operation`, `correlation_id.external`, `start_timestamp`, `end_timestamp`,
        /// `dispatch_info.kernel_id`, `.workgroup_size`, `.grid_size`, and the length, of
        /// `rocprofiler_buffer_tracing_kernel_dispatch_record_t`.
        kernel: [usize; 10],
        /// `operation`, `correlation_id.external`, `start_timestamp`, `end_timestamp`, `dst_agent_id`, `src_agent_id`, `bytes`,
        /// and the length, of `rocprofiler_buffer_tracing_memory_copy_record_t`.
        copy: [usize; 8],
    }

    const HEADERS: [Header; 2] = [
        Header {
            versions: "0.4.0, 0.5.0, 0.6.0",
            kernel: [0, 8, 12, 24, 40, 48, 80, 104, 116, 184],
            copy: [12, 24, 40, 48, 56, 64, 72, 80],
        },
        Header {
            versions: "1.0.0",
            kernel: [0, 8, 12, 24, 40, 48, 80, 104, 116, 184],
            copy: [12, 24, 40, 48, 56, 64, 72, 96],
        },
    ];

    /// The numbers in the headers of all these versions: `ROCPROFILER_BUFFER_CATEGORY_TRACING`,
    /// `…_BUFFER_TRACING_MEMORY_COPY`, `…_KERNEL_DISPATCH`, and `…_MEMORY_COPY_HOST_TO_DEVICE`, `…_DEVICE_TO_HOST`,
    /// `…_DEVICE_TO_DEVICE`.
    const CODES: [u32; 6] = [1, 10, 11, 2, 3, 4];

    #[test]
    fn places_are_those_of_the_headers() {
        for Header { versions, kernel, copy } in HEADERS {
            let ours = [
                offset::SIZE,
                8, // The kind is in front of the record too, and read there.
                offset::OPERATION,
                offset::EXTERNAL_CORRELATION,
                offset::START,
                offset::END,
                offset::KERNEL,
                offset::WORKGROUP,
                offset::GRID,
            ];
            assert_eq!(kernel[..9], ours, "{versions}");
            assert!(offset::GRID + 12 <= offset::LEAST_KERNEL as usize);
            assert!(offset::LEAST_KERNEL as usize <= kernel[9], "{versions}");
            let ours = [
                offset::OPERATION,
                offset::EXTERNAL_CORRELATION,
                offset::START,
                offset::END,
                offset::DESTINATION,
                offset::SOURCE,
                offset::BYTES,
            ];
            assert_eq!(copy[..7], ours, "{versions}");
            assert!(offset::BYTES + 8 <= offset::LEAST_COPY as usize);
            assert!(offset::LEAST_COPY as usize <= copy[7], "{versions}");
        }
        let ours = [
            TRACING,
            kind::MEMORY_COPY,
            kind::KERNEL_DISPATCH,
            direction::HOST_TO_DEVICE,
            direction::DEVICE_TO_HOST,
            direction::DEVICE_TO_DEVICE,
        ];
        assert_eq!(CODES, ours);
    }

    #[test]
    fn record_that_is_too_short_for_its_fields_is_not_read() {
        for (kind, least) in
            [(kind::KERNEL_DISPATCH, offset::LEAST_KERNEL), (kind::MEMORY_COPY, offset::LEAST_COPY)]
        {
            let mut record = [1_u64; 16];
            record[0] = least - 8;
            // SAFETY: the buffer is longer than the record says.
            assert_eq!(unsafe { read(kind, record.as_ptr().cast()) }, Record::Short);
            record[0] = least;
            // SAFETY: the buffer is as long as the record says.
            assert!(matches!(unsafe { read(kind, record.as_ptr().cast()) }, Record::Ran(_)));
            // SAFETY: the record is as long as it says.
            assert_eq!(unsafe { read(99, record.as_ptr().cast()) }, Record::Other);
        }
    }
}
