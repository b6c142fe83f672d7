//! cuBLAS and hipBLAS: their functions, the numbers of their settings, and one handle for each device.

use std::ffi::{c_int, c_longlong, c_void};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use gpustream::hal::RawStream;
use gpustream::hal::driver::list_missing;
use gpustream::hal::library::{file_of, symbol};
use gpustream::{Device, Error, ErrorKind, Result, Stream};

use super::lt::Lt;
use super::typed::Typed;
use crate::call::{Address, not_prepared};
use crate::library::{CUBLAS, HIPBLAS, Opened, VendorLibrary, version_in};
use crate::table::{Names, Vendor, vendor_functions};
use crate::workspace::Workspace;

pub(super) type Handle = *mut c_void;

vendor_functions! {
    /// The functions of one BLAS library.
    Api, cudarc: [cudarc::cublas::sys];
    text "cublasGetStatusString" | "hipblasStatusToString";
    required {
        create: cublasCreate_v2 | hipblasCreate(handle: *mut Handle);
        destroy: cublasDestroy_v2 | hipblasDestroy(handle: Handle);
        set_stream: cublasSetStream_v2 | hipblasSetStream(handle: Handle, stream: *mut c_void);
        set_pointer_mode: cublasSetPointerMode_v2 | hipblasSetPointerMode(handle: Handle, mode: u32);
        gemm: cublasGemmEx | hipblasGemmEx formerly hipblasGemmEx_v2(
            handle: Handle, op_a: u32, op_b: u32, m: c_int, n: c_int, k: c_int,
            alpha: *const c_void, a: *const c_void, a_type: u32, a_leading: c_int,
            b: *const c_void, b_type: u32, b_leading: c_int,
            beta: *const c_void, c: *mut c_void, c_type: u32, c_leading: c_int, compute: u32, algorithm: u32,
        );
        gemm_batched: cublasGemmStridedBatchedEx | hipblasGemmStridedBatchedEx formerly hipblasGemmStridedBatchedEx_v2(
            handle: Handle, op_a: u32, op_b: u32, m: c_int, n: c_int, k: c_int,
            alpha: *const c_void, a: *const c_void, a_type: u32, a_leading: c_int, a_stride: c_longlong,
            b: *const c_void, b_type: u32, b_leading: c_int, b_stride: c_longlong,
            beta: *const c_void, c: *mut c_void, c_type: u32, c_leading: c_int, c_stride: c_longlong,
            batch: c_int, compute: u32, algorithm: u32,
        );
    }
    optional {
        gemm_each: cublasGemmBatchedEx | hipblasGemmBatchedEx formerly hipblasGemmBatchedEx_v2(
            handle: Handle, op_a: u32, op_b: u32, m: c_int, n: c_int, k: c_int,
            alpha: *const c_void, a: *const *const c_void, a_type: u32, a_leading: c_int,
            b: *const *const c_void, b_type: u32, b_leading: c_int,
            beta: *const c_void, c: *const *mut c_void, c_type: u32, c_leading: c_int,
            batch: c_int, compute: u32, algorithm: u32,
        );
        // Older versions of hipBLAS lack it and allocate workspace themselves.
        set_workspace: cublasSetWorkspace_v2 | hipblasSetWorkspace(
            handle: Handle, memory: *mut c_void, bytes: usize
        );
        gemm_batched_64: cublasGemmStridedBatchedEx_64
            | hipblasGemmStridedBatchedEx_64 formerly hipblasGemmStridedBatchedEx_v2_64(
            handle: Handle, op_a: u32, op_b: u32, m: i64, n: i64, k: i64,
            alpha: *const c_void, a: *const c_void, a_type: u32, a_leading: i64, a_stride: c_longlong,
            b: *const c_void, b_type: u32, b_leading: i64, b_stride: c_longlong,
            beta: *const c_void, c: *mut c_void, c_type: u32, c_leading: i64, c_stride: c_longlong,
            batch: i64, compute: u32, algorithm: u32,
        );
    }
}

/// How a product is computed, by cuBLAS's numbers (`cublasComputeType_t`).
pub(super) mod compute {
    pub(crate) const F16: u32 = 64;
    pub(crate) const F32: u32 = 68;
    pub(crate) const F64: u32 = 70;
    pub(crate) const I32: u32 = 72;
    pub(crate) const TF32: u32 = 77;
}

/// What a library calls its settings.
pub(super) struct Settings {
    pub(super) plain: u32,
    pub(super) transposed: u32,
    pub(super) conjugate_transposed: u32,
    /// The triangle of a matrix: upper and lower.
    pub(super) upper: u32,
    pub(super) lower: u32,
    /// Whether the diagonal counts as ones.
    pub(super) stored: u32,
    pub(super) unit: u32,
    /// The side of a triangular matrix.
    pub(super) left: u32,
    pub(super) right: u32,
    /// The algorithm of a product: the library chooses (`CUBLAS_GEMM_DEFAULT`).
    pub(super) default: u32,
}

/// The numbers of cuBLAS, and those of hipBLAS, which are rocBLAS's.
pub(super) const CUDA_SETTINGS: Settings = Settings {
    plain: 0,
    transposed: 1,
    conjugate_transposed: 2,
    upper: 1,
    lower: 0,
    stored: 0,
    unit: 1,
    left: 0,
    right: 1,
    default: u32::MAX,
};
pub(super) const HIP_SETTINGS: Settings = Settings {
    plain: 111,
    transposed: 112,
    conjugate_transposed: 113,
    upper: 121,
    lower: 122,
    stored: 131,
    unit: 132,
    left: 141,
    right: 142,
    default: 160,
};

impl Settings {
    /// Returns what a library does with a matrix before it multiplies. The caller has seen to it that a conjugated one is
    /// transposed too, because the libraries cannot conjugate alone.
    pub(super) fn op(&self, is_transposed: bool, is_conjugated: bool) -> u32 {
        match (is_transposed, is_conjugated) {
            (false, _) => self.plain,
            (true, false) => self.transposed,
            (true, true) => self.conjugate_transposed,
        }
    }
}

impl Api {
    pub(super) fn settings(&self) -> &'static Settings {
        match self.vendor {
            Vendor::Nvidia => &CUDA_SETTINGS,
            Vendor::Amd => &HIP_SETTINGS,
        }
    }

    /// Returns what this library calls one of [`compute`]'s numbers.
    pub(super) fn compute(&self, compute: u32) -> u32 {
        match self.vendor {
            Vendor::Nvidia => compute,
            Vendor::Amd => hip_compute(compute),
        }
    }

    /// Returns the vendor's library. It is opened once, and stays open.
    fn of(vendor: Vendor) -> Result<&'static (Self, [Typed; 4])> {
        static NVIDIA: OnceLock<Result<(Api, [Typed; 4])>> = OnceLock::new();
        static AMD: OnceLock<Result<(Api, [Typed; 4])>> = OnceLock::new();
        let (opened, library) = match vendor {
            Vendor::Nvidia => (&NVIDIA, CUBLAS),
            Vendor::Amd => (&AMD, HIPBLAS),
        };
        opened.get_or_init(|| Self::open(vendor, &library)).as_ref().map_err(Error::clone)
    }

    fn open(vendor: Vendor, names: &VendorLibrary) -> Result<(Self, [Typed; 4])> {
        let Opened { library, name } = names.open()?;
        let unusable = |what: String| {
            let message = format!("{name} cannot be used as {}: {what}; {}", names.name, names.install);
            Error::new(ErrorKind::DriverUnusable, message)
        };
        let spelling = match vendor {
            Vendor::Nvidia => Names::Current,
            Vendor::Amd => hip_names(&library).map_err(unusable)?,
        };
        // SAFETY: it was opened as the vendor's BLAS, and is never closed.
        let (api, missing) = unsafe { Self::load(&library, vendor, spelling) };
        if !missing.is_empty() {
            return Err(unusable(format!("it lacks {}", list_missing(&missing))));
        }
        // SAFETY: as above.
        Ok((api, unsafe { Typed::load(&library, vendor) }))
    }

    /// Returns the error for a status, or for a function that the library lacks.
    #[cold]
    fn failure(&self, function: &'static str, status: Option<u32>) -> Error {
        failure(self.vendor, function, status, status.and_then(|status| self.words(status)))
    }
}

/// Returns what hipBLAS calls one of [`compute`]'s numbers (`hipblasComputeType_t`). It has a number for TF32, and refuses it on AMD
/// GPUs.
pub(super) fn hip_compute(compute: u32) -> u32 {
    match compute {
        compute::F16 => 0,
        compute::F32 | compute::TF32 => 2,
        compute::F64 => 7,
        _ => 9,
    }
}

/// Returns how a hipBLAS spells the functions that we know, or what is wrong with it.
///
/// hipBLAS 3 numbers the types of elements as HIP does. hipBLAS 2 has functions for these numbers too, whose names end in `_v2`.
/// There, and in hipBLAS 1, the names of today take other numbers.
fn hip_names(library: &gpustream::hal::library::Library) -> std::result::Result<Names, String> {
    // SAFETY: we do not call them.
    let find = |name| unsafe { symbol::<*const c_void>(library, name) };
    if find("hipblasGemmEx_v2").is_some() {
        return Ok(Names::Former);
    }
    let file = find("hipblasGemmEx").and_then(|function| file_of(function as usize));
    let version = file.as_deref().and_then(version_in);
    match version.and_then(|version| version.split('.').next()?.parse::<u32>().ok()) {
        Some(3..) => Ok(Names::Current),
        Some(old) => Err(format!("it has version {old}")),
        None => Err("its file's name does not tell the version".to_owned()),
    }
}

/// Returns the error for a status with the library's words for it, or for a function that the library lacks.
#[cold]
pub(super) fn failure(
    vendor: Vendor,
    function: &'static str,
    status: Option<u32>,
    words: Option<String>,
) -> Error {
    let product = match vendor {
        Vendor::Nvidia => "cublas",
        Vendor::Amd => "hipblas",
    };
    let Some(status) = status else {
        let message = format!("this library has no function {function}; install a newer version");
        return Error::new(ErrorKind::Unsupported, message).with_backend(product);
    };
    let kind = match (vendor, status) {
        (Vendor::Nvidia, 3) | (Vendor::Amd, 2) => ErrorKind::OutOfMemory,
        (Vendor::Nvidia, 7) | (Vendor::Amd, 3) => ErrorKind::InvalidArgument,
        (Vendor::Nvidia, 8 | 15) | (Vendor::Amd, 7 | 8) => ErrorKind::Unsupported,
        _ => ErrorKind::External,
    };
    let words = words.unwrap_or_else(|| format!("status {status}"));
    Error::new(kind, words).with_backend(product).with_call(function, i64::from(status))
}

/// Where a library reads its scalars and writes single results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PointerMode {
    Host = 0,
    Device = 1,
}

/// A library with a handle for one device.
pub(super) struct Library {
    pub(super) api: &'static Api,
    /// The functions for `f32`, `f64`, `Complex<f32>` and `Complex<f64>`.
    pub(super) typed: &'static [Typed; 4],
    /// For products with an epilogue, if it is there.
    pub(super) lt: Option<Lt>,
    handle: Mutex<State>,
    pub(super) workspace: Workspace,
}

/// What the library's handle is set to. We set it only if that changes.
pub(super) struct State {
    pub(super) handle: Handle,
    stream: RawStream,
    workspace: Address,
    mode: PointerMode,
}

// SAFETY: any thread may use a handle, as long as only one does so at a time.
unsafe impl Send for State {}

impl Library {
    /// Returns the library for a stream's device, or `None` for the CPU.
    ///
    /// # Errors
    /// Those of opening it; `Captured` if that is still to be done and the stream is recorded.
    pub(super) fn of(stream: &Stream) -> Result<Option<Arc<Self>>> {
        let device = stream.device();
        let Some(vendor) = Vendor::of(device.info().backend) else { return Ok(None) };
        let open = |device: &Device| {
            if stream.is_recorded() {
                return Err(not_prepared(Self::name(vendor)));
            }
            Self::open(device, vendor)
        };
        device.extension(open).map(Some)
    }

    /// Opens the library for a device, if that is not done.
    pub(super) fn prepare(device: &Device) -> Result<()> {
        let Some(vendor) = Vendor::of(device.info().backend) else { return Ok(()) };
        device.extension(|device| Self::open(device, vendor)).map(drop)
    }

    fn name(vendor: Vendor) -> &'static str {
        match vendor {
            Vendor::Nvidia => CUBLAS.name,
            Vendor::Amd => HIPBLAS.name,
        }
    }

    fn open(device: &Device, vendor: Vendor) -> Result<Self> {
        let (api, typed) = Api::of(vendor)?;
        let workspace = Workspace::new(device, workspace_bytes(device, vendor))?;
        let mut handle = ptr::null_mut();
        let at = &raw mut handle;
        // The handle belongs to the context that is current, which inside an external operation is the device's.
        // SAFETY: nothing is enqueued, and the pointer is to a local.
        unsafe { device.stream()?.external("create", (), |_, ()| api.create(at)) }?;
        let state = State {
            handle,
            // No stream and no workspace have these numbers.
            stream: RawStream(usize::MAX),
            workspace: Address(usize::MAX),
            mode: PointerMode::Host,
        };
        // From here on, dropping it destroys the handle.
        let mut library = Self { api, typed, lt: None, handle: Mutex::new(state), workspace };
        library.lt = Lt::open(device, vendor)?;
        Ok(library)
    }

    /// Sets the handle up for one call, and keeps other threads from it until the guard is dropped. Only for use inside an
    /// external operation, because other threads may wait for the device while they hold the handle.
    ///
    /// # Safety
    /// The stream is alive, and the workspace is from [`workspace`](Self::workspace).
    pub(super) unsafe fn begin(
        &self,
        stream: RawStream,
        workspace: Address,
        mode: PointerMode,
    ) -> Result<MutexGuard<'_, State>> {
        // If a call panicked, the next one sets everything up again.
        let mut state = self.handle.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the handle is alive, and the stream and the workspace too, by this function's contract.
        unsafe {
            if state.stream != stream || state.workspace != workspace {
                let (stream_before, none) = (state.stream, RawStream(usize::MAX));
                state.stream = none;
                if stream_before != stream {
                    self.api.set_stream(state.handle, stream.0 as *mut c_void)?;
                }
                // We set it after the stream, because setting the stream takes the workspace away.
                if self.api.set_workspace.is_some() {
                    self.api.set_workspace(state.handle, workspace.write(), self.workspace.bytes())?;
                }
                (state.stream, state.workspace) = (stream, workspace);
            }
            if state.mode != mode {
                self.api.set_pointer_mode(state.handle, mode as u32)?;
                state.mode = mode;
            }
        }
        Ok(state)
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        let state = self.handle.get_mut().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the handle is not used again, and this call waits for its work.
        let _ = unsafe { self.api.destroy(state.handle) };
    }
}

/// Returns the workspace that the vendor recommends: cuBLAS 32 MiB from Hopper on and 4 MiB before, rocBLAS 32 MiB.
fn workspace_bytes(device: &Device, vendor: Vendor) -> usize {
    let arch = device.info().arch.strip_prefix("sm_").and_then(|arch| arch.parse::<u32>().ok());
    match (vendor, arch) {
        (Vendor::Nvidia, Some(..90)) => 4 << 20,
        _ => 32 << 20,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::number::DataType;
    use cudarc::cublas::sys::{
        cublasComputeType_t as ComputeType, cublasDiagType_t as Diagonal, cublasFillMode_t as Fill,
        cublasGemmAlgo_t as Algorithm, cublasOperation_t as Operation, cublasPointerMode_t as Mode,
        cublasSideMode_t as Side, cublasStatus_t as Status, cudaDataType as Type,
    };

    #[test]
    fn numbers_are_those_of_cublas() {
        assert_eq!(CUDA_SETTINGS.plain, Operation::CUBLAS_OP_N as u32);
        assert_eq!(CUDA_SETTINGS.transposed, Operation::CUBLAS_OP_T as u32);
        assert_eq!(CUDA_SETTINGS.conjugate_transposed, Operation::CUBLAS_OP_C as u32);
        assert_eq!(CUDA_SETTINGS.upper, Fill::CUBLAS_FILL_MODE_UPPER as u32);
        assert_eq!(CUDA_SETTINGS.lower, Fill::CUBLAS_FILL_MODE_LOWER as u32);
        assert_eq!(CUDA_SETTINGS.stored, Diagonal::CUBLAS_DIAG_NON_UNIT as u32);
        assert_eq!(CUDA_SETTINGS.unit, Diagonal::CUBLAS_DIAG_UNIT as u32);
        assert_eq!(CUDA_SETTINGS.left, Side::CUBLAS_SIDE_LEFT as u32);
        assert_eq!(CUDA_SETTINGS.right, Side::CUBLAS_SIDE_RIGHT as u32);
        assert_eq!(CUDA_SETTINGS.default, Algorithm::CUBLAS_GEMM_DFALT as i32 as u32);
        assert_eq!(compute::F16, ComputeType::CUBLAS_COMPUTE_16F as u32);
        assert_eq!(compute::F32, ComputeType::CUBLAS_COMPUTE_32F as u32);
        assert_eq!(compute::F64, ComputeType::CUBLAS_COMPUTE_64F as u32);
        assert_eq!(compute::I32, ComputeType::CUBLAS_COMPUTE_32I as u32);
        assert_eq!(compute::TF32, ComputeType::CUBLAS_COMPUTE_32F_FAST_TF32 as u32);
        assert_eq!(PointerMode::Host as u32, Mode::CUBLAS_POINTER_MODE_HOST as u32);
        assert_eq!(PointerMode::Device as u32, Mode::CUBLAS_POINTER_MODE_DEVICE as u32);
        assert_eq!(Status::CUBLAS_STATUS_ALLOC_FAILED as u32, 3);
        assert_eq!(Status::CUBLAS_STATUS_INVALID_VALUE as u32, 7);
        assert_eq!(Status::CUBLAS_STATUS_ARCH_MISMATCH as u32, 8);
        assert_eq!(Status::CUBLAS_STATUS_NOT_SUPPORTED as u32, 15);
        let types = [
            (DataType::F32, Type::CUDA_R_32F),
            (DataType::F64, Type::CUDA_R_64F),
            (DataType::F16, Type::CUDA_R_16F),
            (DataType::Bf16, Type::CUDA_R_16BF),
            (DataType::I8, Type::CUDA_R_8I),
            (DataType::I32, Type::CUDA_R_32I),
            (DataType::C32, Type::CUDA_C_32F),
            (DataType::C64, Type::CUDA_C_64F),
            (DataType::C16, Type::CUDA_C_16F),
        ];
        assert!(types.into_iter().all(|(ours, theirs)| ours as u32 == theirs as u32));
    }

    #[test]
    fn numbers_are_those_of_hipblas() {
        use crate::hip_bindings::{
            hipDataType as Type, hipblasComputeType_t as ComputeType, hipblasDiagType_t as Diagonal,
            hipblasFillMode_t as Fill, hipblasGemmAlgo_t as Algorithm, hipblasOperation_t as Operation,
            hipblasPointerMode_t as Mode, hipblasSideMode_t as Side, hipblasStatus_t as Status,
        };
        assert_eq!(HIP_SETTINGS.plain, Operation::HIPBLAS_OP_N as u32);
        assert_eq!(HIP_SETTINGS.transposed, Operation::HIPBLAS_OP_T as u32);
        assert_eq!(HIP_SETTINGS.conjugate_transposed, Operation::HIPBLAS_OP_C as u32);
        assert_eq!(HIP_SETTINGS.upper, Fill::HIPBLAS_FILL_MODE_UPPER as u32);
        assert_eq!(HIP_SETTINGS.lower, Fill::HIPBLAS_FILL_MODE_LOWER as u32);
        assert_eq!(HIP_SETTINGS.stored, Diagonal::HIPBLAS_DIAG_NON_UNIT as u32);
        assert_eq!(HIP_SETTINGS.unit, Diagonal::HIPBLAS_DIAG_UNIT as u32);
        assert_eq!(HIP_SETTINGS.left, Side::HIPBLAS_SIDE_LEFT as u32);
        assert_eq!(HIP_SETTINGS.right, Side::HIPBLAS_SIDE_RIGHT as u32);
        assert_eq!(HIP_SETTINGS.default, Algorithm::HIPBLAS_GEMM_DEFAULT as u32);
        let ways = [
            (compute::F16, ComputeType::HIPBLAS_COMPUTE_16F),
            (compute::F32, ComputeType::HIPBLAS_COMPUTE_32F),
            (compute::F64, ComputeType::HIPBLAS_COMPUTE_64F),
            (compute::I32, ComputeType::HIPBLAS_COMPUTE_32I),
            (compute::TF32, ComputeType::HIPBLAS_COMPUTE_32F),
        ];
        assert!(ways.into_iter().all(|(ours, theirs)| hip_compute(ours) == theirs as u32));
        assert_eq!(PointerMode::Host as u32, Mode::HIPBLAS_POINTER_MODE_HOST as u32);
        assert_eq!(PointerMode::Device as u32, Mode::HIPBLAS_POINTER_MODE_DEVICE as u32);
        assert_eq!(Status::HIPBLAS_STATUS_ALLOC_FAILED as u32, 2);
        assert_eq!(Status::HIPBLAS_STATUS_INVALID_VALUE as u32, 3);
        assert_eq!(Status::HIPBLAS_STATUS_NOT_SUPPORTED as u32, 7);
        assert_eq!(Status::HIPBLAS_STATUS_ARCH_MISMATCH as u32, 8);
        let types = [
            (DataType::F32, Type::HIP_R_32F),
            (DataType::F64, Type::HIP_R_64F),
            (DataType::F16, Type::HIP_R_16F),
            (DataType::Bf16, Type::HIP_R_16BF),
            (DataType::I8, Type::HIP_R_8I),
            (DataType::I32, Type::HIP_R_32I),
            (DataType::C32, Type::HIP_C_32F),
            (DataType::C64, Type::HIP_C_64F),
            (DataType::C16, Type::HIP_C_16F),
        ];
        assert!(types.into_iter().all(|(ours, theirs)| ours as u32 == theirs as u32));
    }

    #[cfg(unix)]
    fn folder() -> std::path::PathBuf {
        std::env::temp_dir().join(format!("gpustream-hipblas-{}", std::process::id()))
    }

    /// Makes a hipBLAS of C functions that return a number, and opens it. Returns what our two functions return.
    #[cfg(unix)]
    fn found_in(file: &str, functions: &[(&str, u32)]) -> std::result::Result<[Option<u32>; 2], String> {
        use std::fmt::Write as _;
        use std::process::Command;

        let folder = folder();
        std::fs::create_dir_all(&folder).unwrap();
        let (source, path) = (folder.join(format!("{file}.c")), folder.join(file));
        let mut text = String::new();
        for (name, number) in functions {
            write!(text, "unsigned {name}(void) {{ return {number}; }}").unwrap();
        }
        std::fs::write(&source, text).unwrap();
        let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
        let status =
            Command::new(compiler).args(["-shared", "-fPIC", "-o"]).args([&path, &source]).status().unwrap();
        assert!(status.success());
        // SAFETY: the library has no initialisers.
        let library =
            std::mem::ManuallyDrop::new(unsafe { gpustream::hal::library::Library::new(&path) }.unwrap());
        // SAFETY: we never close it, and the functions take no arguments that they read.
        let (api, _) = unsafe { Api::load(&library, Vendor::Amd, hip_names(&library)?) };
        let (none, handle) = (ptr::null(), ptr::null_mut());
        Ok([
            // SAFETY: as above.
            api.gemm.map(|gemm| unsafe {
                gemm(handle, 0, 0, 0, 0, 0, none, none, 0, 0, none, 0, 0, none, handle, 0, 0, 0, 0)
            }),
            // SAFETY: as above.
            api.gemm_batched_64.map(|gemm| unsafe {
                gemm(
                    handle, 0, 0, 0, 0, 0, none, none, 0, 0, 0, none, 0, 0, 0, none, handle, 0, 0, 0, 0, 0, 0,
                )
            }),
        ])
    }

    /// hipBLAS 1, 2 and 3 have functions of the same names. Only those of 3 number types as we do.
    #[cfg(unix)]
    #[test]
    fn functions_are_chosen_by_the_version_of_hipblas() {
        let plain = [("hipblasGemmEx", 1), ("hipblasGemmStridedBatchedEx_64", 2)];
        let second = [("hipblasGemmEx_v2", 3), ("hipblasGemmStridedBatchedEx_v2_64", 4)];
        let both = [plain, second].concat();
        assert_eq!(found_in("libhipblas.so.3.0.70000", &plain), Ok([Some(1), Some(2)]));
        assert_eq!(found_in("libhipblas.so.2.4.60400", &both), Ok([Some(3), Some(4)]));
        // An early hipBLAS 2, and a copy of one whose name does not tell the version.
        assert_eq!(found_in("libhipblas.so.2.0.60000", &both[..3]), Ok([Some(3), None]));
        assert_eq!(found_in("libhipblas.so", &both), Ok([Some(3), Some(4)]));
        let old = found_in("libhipblas.so.1.0.50600", &plain).unwrap_err();
        assert_eq!(old, "it has version 1");
        let unknown = found_in("libhipblas-copy.so", &plain).unwrap_err();
        assert_eq!(unknown, "its file's name does not tell the version");
        std::fs::remove_dir_all(folder()).unwrap();
    }
}
