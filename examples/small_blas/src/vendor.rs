//! cuBLAS or hipBLAS, opened at run time. The two have the same functions under different names.

use std::ffi::{c_int, c_void};
use std::ptr;

use gpustream::hal::RawStream;
use gpustream::{BackendName, Device, Error, ErrorKind, Result};
use libloading::Library;

type Handle = *mut c_void;
type Create = unsafe extern "C" fn(*mut Handle) -> c_int;
type Destroy = unsafe extern "C" fn(Handle) -> c_int;
type SetStream = unsafe extern "C" fn(Handle, *mut c_void) -> c_int;
type SetWorkspace = unsafe extern "C" fn(Handle, *mut c_void, usize) -> c_int;
type Sgemm = unsafe extern "C" fn(
    Handle,
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    *const f32,
    *const f32,
    c_int,
    *const f32,
    c_int,
    *const f32,
    *mut f32,
    c_int,
) -> c_int;

/// What differs between the vendors.
struct Names {
    libraries: &'static [&'static str],
    create: &'static str,
    destroy: &'static str,
    set_stream: &'static str,
    set_workspace: &'static str,
    sgemm: &'static str,
    /// The value that says not to transpose.
    plain: c_int,
    install: &'static str,
}

const CUBLAS: Names = Names {
    libraries: &["libcublas.so.13", "libcublas.so.12", "libcublas.so.11"],
    create: "cublasCreate_v2",
    destroy: "cublasDestroy_v2",
    set_stream: "cublasSetStream_v2",
    set_workspace: "cublasSetWorkspace_v2",
    sgemm: "cublasSgemm_v2",
    plain: 0,
    install: "cuBLAS is not installed: install the CUDA toolkit, or the Python package nvidia-cublas",
};

const HIPBLAS: Names = Names {
    libraries: &["libhipblas.so.3", "libhipblas.so.2", "libhipblas.so.1", "libhipblas.so.0"],
    create: "hipblasCreate",
    destroy: "hipblasDestroy",
    set_stream: "hipblasSetStream",
    set_workspace: "hipblasSetWorkspace",
    sgemm: "hipblasSgemm",
    plain: 111,
    install: "hipBLAS is not installed: install the ROCm package hipblas",
};

/// A vendor's library with a handle for one device.
pub(crate) struct Vendor {
    handle: Handle,
    destroy: Destroy,
    set_stream: SetStream,
    /// Older versions of hipBLAS lack this function and allocate workspace themselves.
    set_workspace: Option<SetWorkspace>,
    sgemm: Sgemm,
    plain: c_int,
    /// Must be the last field, because the functions above are part of it.
    _library: Library,
}

// SAFETY: any thread may use a handle, as long as only one does so at a time.
unsafe impl Send for Vendor {}

impl Vendor {
    /// Opens the vendor's library for this device and makes a handle.
    pub(crate) fn open(device: &Device) -> Result<Self> {
        let names = match device.info().backend {
            BackendName::CUDA => CUBLAS,
            BackendName::HIP => HIPBLAS,
            other => return Err(Error::new(ErrorKind::Unsupported, format!("no BLAS is known for {other}"))),
        };
        // SAFETY: loading the vendor's library runs its initialisers, which is what it is for.
        let open = |name: &&str| unsafe { Library::new(*name) }.ok();
        let library = names
            .libraries
            .iter()
            .find_map(open)
            .ok_or_else(|| Error::new(ErrorKind::DriverMissing, names.install))?;
        // SAFETY: the functions have these types in every version that has the names above.
        unsafe {
            let create: Create = *library.get(names.create).map_err(Error::external)?;
            let mut vendor = Self {
                handle: ptr::null_mut(),
                destroy: *library.get(names.destroy).map_err(Error::external)?,
                set_stream: *library.get(names.set_stream).map_err(Error::external)?,
                set_workspace: library.get(names.set_workspace).ok().map(|function| *function),
                sgemm: *library.get(names.sgemm).map_err(Error::external)?,
                plain: names.plain,
                _library: library,
            };
            // The handle belongs to the context that is current, which inside an external operation is the device's.
            let handle = &raw mut vendor.handle;
            device.stream()?.external(names.create, (), |_, ()| check(names.create, create(handle)))?;
            Ok(vendor)
        }
    }

    /// Makes the handle enqueue to a stream, with this workspace, so that the library allocates nothing.
    ///
    /// # Safety
    /// The stream is alive. The workspace is the device's, and later products of the handle may use it in the stream's order.
    pub(crate) unsafe fn set_stream(
        &mut self,
        stream: RawStream,
        (workspace, bytes): (*mut u8, usize),
    ) -> Result<()> {
        // SAFETY: by this function's contract.
        unsafe {
            check("setting the stream", (self.set_stream)(self.handle, stream.0 as *mut c_void))?;
            // We set it after the stream, because setting the stream takes the workspace away.
            match self.set_workspace {
                Some(set) => check("setting the workspace", set(self.handle, workspace.cast(), bytes)),
                None => Ok(()),
            }
        }
    }

    /// Enqueues `c = a b`. The vendors' matrices lie column by column, so this asks for the product of the transposed
    /// matrices, in the other order.
    ///
    /// # Safety
    /// Each address is a matrix of `n * n` elements on the handle's device.
    pub(crate) unsafe fn multiply(
        &mut self,
        n: usize,
        a: *const f32,
        b: *const f32,
        c: *mut f32,
    ) -> Result<()> {
        let n = c_int::try_from(n).map_err(Error::external)?;
        let (one, zero) = (1.0f32, 0.0f32);
        // SAFETY: by this function's contract; the scalars are read before the call returns.
        let status = unsafe {
            (self.sgemm)(
                self.handle,
                self.plain,
                self.plain,
                n,
                n,
                n,
                &raw const one,
                b,
                n,
                a,
                n,
                &raw const zero,
                c,
                n,
            )
        };
        check("the product", status)
    }
}

impl Drop for Vendor {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: the handle is not used again, and this call waits for its work.
            let _ = unsafe { (self.destroy)(self.handle) };
        }
    }
}

fn check(what: &str, status: c_int) -> Result<()> {
    match status {
        0 => Ok(()),
        status => Err(Error::external(format!("{what} failed with status {status} of the BLAS library"))),
    }
}
