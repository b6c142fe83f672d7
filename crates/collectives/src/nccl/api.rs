//! The NCCL functions that this engine calls. RCCL exports the same ones, with the same types and values.
//!
//! We define the types here, so that you can build this crate without NCCL. cudarc's bindings are only used
//! in tests, to prove that ours are right.

use std::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;

use gpustream::hal::driver::{Codes, Status, text};
use gpustream::hal::{ErrorKind, functions};

#[cfg(test)]
mod bindings {
    pub(super) use cudarc::nccl::sys::*;
}

/// NCCL's names.
#[allow(non_camel_case_types)]
mod types {
    use super::{Status, c_char, c_int, c_void};

    pub(crate) type ncclResult_t = Status;
    pub(crate) type ncclComm_t = *mut c_void;
    pub(crate) type ncclDataType_t = u32;
    pub(crate) type ncclRedOp_t = u32;
    pub(crate) type cudaStream_t = *mut c_void;

    /// The id that lets the ranks of one communicator find each other. You must give all of them the same.
    #[repr(C)]
    #[derive(Clone, Copy)]
    pub(crate) struct ncclUniqueId {
        pub(crate) internal: [c_char; 128],
    }

    /// The settings of a communicator, laid out as in NCCL 2.18. Newer versions look at `size` and `version`.
    #[repr(C)]
    #[allow(non_snake_case)]
    pub(crate) struct ncclConfig_t {
        pub(crate) size: usize,
        pub(crate) magic: u32,
        pub(crate) version: u32,
        pub(crate) blocking: c_int,
        pub(crate) cgaClusterSize: c_int,
        pub(crate) minCTAs: c_int,
        pub(crate) maxCTAs: c_int,
        pub(crate) netName: *const c_char,
        pub(crate) splitShare: c_int,
    }
}
pub(crate) use types::*;

/// Compares our prototypes with cudarc's, in test builds.
macro_rules! prove_in_tests {
    ($result:ident [$($text:ident),*] $($need:ident $name:ident($($arg:ident: $ty:ty),*);)*) => {
        #[cfg(test)]
        #[allow(clippy::wildcard_imports)]
        mod prototypes {
            use super::bindings::*;
            use std::ffi::{c_char, c_int, c_void};
            $( const _: unsafe fn($result) -> *const c_char = $text; )*
            // SAFETY: never called.
            $( const _: unsafe fn($($ty),*) -> $result = |$($arg),*| unsafe { $name($($arg),*) }; )*
        }
    };
}

functions! {
    /// The functions of one NCCL library.
    Api -> ncclResult_t, proved by prove_in_tests;
    texts { ncclGetErrorString }
    required "2.18" {
        ncclGetVersion(version: *mut c_int);
        ncclGetUniqueId(id: *mut ncclUniqueId);
        ncclCommInitRankConfig(
            comm: *mut ncclComm_t, size: c_int, id: ncclUniqueId, rank: c_int, config: *mut ncclConfig_t
        );
        ncclCommSplit(comm: ncclComm_t, color: c_int, key: c_int, part: *mut ncclComm_t, config: *mut ncclConfig_t);
        ncclCommGetAsyncError(comm: ncclComm_t, error: *mut ncclResult_t);
        ncclCommFinalize(comm: ncclComm_t);
        ncclCommDestroy(comm: ncclComm_t);
        ncclCommAbort(comm: ncclComm_t);

        ncclGroupStart();
        ncclGroupEnd();
        ncclAllReduce(
            src: *const c_void, dst: *mut c_void, count: usize, element: ncclDataType_t, op: ncclRedOp_t,
            comm: ncclComm_t, stream: cudaStream_t
        );
        ncclAllGather(
            src: *const c_void, dst: *mut c_void, count: usize, element: ncclDataType_t, comm: ncclComm_t,
            stream: cudaStream_t
        );
        ncclReduceScatter(
            src: *const c_void, dst: *mut c_void, count: usize, element: ncclDataType_t, op: ncclRedOp_t,
            comm: ncclComm_t, stream: cudaStream_t
        );
        ncclBroadcast(
            src: *const c_void, dst: *mut c_void, count: usize, element: ncclDataType_t, root: c_int,
            comm: ncclComm_t, stream: cudaStream_t
        );
        ncclReduce(
            src: *const c_void, dst: *mut c_void, count: usize, element: ncclDataType_t, op: ncclRedOp_t,
            root: c_int, comm: ncclComm_t, stream: cudaStream_t
        );
        ncclSend(
            src: *const c_void, count: usize, element: ncclDataType_t, to: c_int, comm: ncclComm_t,
            stream: cudaStream_t
        );
        ncclRecv(
            dst: *mut c_void, count: usize, element: ncclDataType_t, from: c_int, comm: ncclComm_t,
            stream: cudaStream_t
        );
    }
}

/// NCCL's function for a text about the last failure in this process, `ncclGetLastError`. It ignores its
/// argument.
pub(super) static LAST_ERROR: OnceLock<unsafe extern "C" fn(ncclComm_t) -> *const c_char> = OnceLock::new();

/// The types of elements (`ncclDataType_t`).
pub(crate) mod element {
    pub(crate) const INT8: u32 = 0;
    pub(crate) const UINT8: u32 = 1;
    pub(crate) const INT32: u32 = 2;
    pub(crate) const UINT32: u32 = 3;
    pub(crate) const INT64: u32 = 4;
    pub(crate) const UINT64: u32 = 5;
    pub(crate) const FLOAT16: u32 = 6;
    pub(crate) const FLOAT32: u32 = 7;
    pub(crate) const FLOAT64: u32 = 8;
    pub(crate) const BFLOAT16: u32 = 9;
}

/// The ways to combine elements (`ncclRedOp_t`).
pub(crate) mod op {
    pub(crate) const SUM: u32 = 0;
    pub(crate) const PROD: u32 = 1;
    pub(crate) const MAX: u32 = 2;
    pub(crate) const MIN: u32 = 3;
    pub(crate) const AVG: u32 = 4;
}

pub(crate) const INVALID_ARGUMENT: Status = Status(4);
pub(crate) const INVALID_USAGE: Status = Status(5);
/// The call continues in the background.
pub(crate) const IN_PROGRESS: Status = Status(7);

impl ncclConfig_t {
    /// Returns the settings of a communicator (`NCCL_CONFIG_INITIALIZER`). `blocking` says whether its calls
    /// block, and `shares` whether it shares its resources with communicators that are split from it.
    pub(crate) fn new(blocking: bool, shares: bool) -> Self {
        /// `NCCL_CONFIG_UNDEF_INT`
        const UNDEFINED: c_int = c_int::MIN;
        Self {
            size: size_of::<Self>(),
            magic: 0xcafe_beef,
            version: 21_800,
            blocking: blocking.into(),
            cgaClusterSize: UNDEFINED,
            minCTAs: UNDEFINED,
            maxCTAs: UNDEFINED,
            netName: std::ptr::null(),
            splitShare: shares.into(),
        }
    }
}

impl Codes for Api {
    const BACKEND: &'static str = "nccl";
    const INTERFACE: &'static str = "NCCL";
    const PRODUCT: &'static str = "NCCL (for AMD GPUs: RCCL)";

    fn kind(status: Status) -> ErrorKind {
        match status {
            INVALID_ARGUMENT | INVALID_USAGE => ErrorKind::InvalidArgument,
            _ => ErrorKind::External,
        }
    }

    fn describe(&self, status: Status) -> String {
        let mut words = self.ncclGetErrorString(status).unwrap_or_else(|| format!("NCCL error {}", status.0));
        if let Some(last_error) = LAST_ERROR.get() {
            // SAFETY: the function has this prototype, and ignores the communicator.
            let last = unsafe { text(last_error(std::ptr::null_mut())) };
            if let Some(last) = last.filter(|last| !last.is_empty()) {
                words.push_str(": ");
                words.push_str(last.trim());
            }
        }
        words
    }

    fn advice(_: Status, _: ErrorKind) -> &'static str {
        "NCCL says more with NCCL_DEBUG=WARN in the environment"
    }
}

#[cfg(test)]
const _: () = {
    use std::mem::offset_of;

    use bindings::{ncclDataType_t as Element, ncclRedOp_t as Op, ncclResult_t as Bound};
    assert!(size_of::<ncclResult_t>() == size_of::<Bound>());
    assert!(size_of::<ncclUniqueId>() == size_of::<bindings::ncclUniqueId>());
    // Newer versions added settings after those of 2.18.
    assert!(offset_of!(ncclConfig_t, blocking) == offset_of!(bindings::ncclConfig_t, blocking));
    assert!(offset_of!(ncclConfig_t, splitShare) == offset_of!(bindings::ncclConfig_t, splitShare));
    assert!(size_of::<ncclConfig_t>() < size_of::<bindings::ncclConfig_t>());
    assert!(Status::SUCCESS.0 == Bound::ncclSuccess as u32);
    assert!(INVALID_ARGUMENT.0 == Bound::ncclInvalidArgument as u32);
    assert!(INVALID_USAGE.0 == Bound::ncclInvalidUsage as u32);
    assert!(IN_PROGRESS.0 == Bound::ncclInProgress as u32);
    assert!(element::INT8 == Element::ncclInt8 as u32 && element::UINT8 == Element::ncclUint8 as u32);
    assert!(element::INT32 == Element::ncclInt32 as u32 && element::UINT32 == Element::ncclUint32 as u32);
    assert!(element::INT64 == Element::ncclInt64 as u32 && element::UINT64 == Element::ncclUint64 as u32);
    assert!(
        element::FLOAT16 == Element::ncclFloat16 as u32 && element::FLOAT32 == Element::ncclFloat32 as u32
    );
    assert!(element::FLOAT64 == Element::ncclFloat64 as u32);
    assert!(element::BFLOAT16 == Element::ncclBfloat16 as u32);
    assert!(op::SUM == Op::ncclSum as u32 && op::PROD == Op::ncclProd as u32);
    assert!(op::MAX == Op::ncclMax as u32 && op::MIN == Op::ncclMin as u32 && op::AVG == Op::ncclAvg as u32);
};
