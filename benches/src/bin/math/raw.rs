//! The bare calls of cuBLAS and cuFFT, opened at run time: one handle with its workspace set once, as a program without any
//! library would do it.

use std::any::TypeId;
use std::ffi::{c_int, c_longlong, c_void};
use std::mem::ManuallyDrop;
use std::ptr;

use anyhow::{Context as _, Result, ensure};
use gpustream::half::{bf16, f16};
use gpustream::{Buffer, Device, Plain, Stream};
use gpustream_math::{Complex, prelude::Compute};
use libloading::Library;

type Handle = *mut c_void;
type GemmEx = unsafe extern "C" fn(
    Handle,
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    *const c_void,
    *const c_void,
    c_int,
    c_int,
    *const c_void,
    c_int,
    c_int,
    *const c_void,
    *mut c_void,
    c_int,
    c_int,
    c_int,
    c_int,
) -> c_int;
type GemmBatched = unsafe extern "C" fn(
    Handle,
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    *const c_void,
    *const c_void,
    c_int,
    c_int,
    c_longlong,
    *const c_void,
    c_int,
    c_int,
    c_longlong,
    *const c_void,
    *mut c_void,
    c_int,
    c_int,
    c_longlong,
    c_int,
    c_int,
    c_int,
) -> c_int;

fn open(name: &str) -> Result<ManuallyDrop<Library>> {
    let names = [13, 12, 11, 10].map(|version| format!("lib{name}.so.{version}"));
    let folders = ["", "/usr/local/cuda/lib64/"];
    let mut paths = folders.iter().flat_map(|folder| names.iter().map(move |name| format!("{folder}{name}")));
    // SAFETY: the names are NVIDIA's.
    let library = paths.find_map(|path| unsafe { Library::new(path) }.ok());
    library.map(ManuallyDrop::new).with_context(|| format!("lib{name} is not here"))
}

fn check(what: &str, status: c_int) -> Result<()> {
    ensure!(status == 0, "{what} returned {status}");
    Ok(())
}

type Sgemv = unsafe extern "C" fn(
    Handle,
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

/// cuBLAS.
pub(crate) struct Raw {
    handle: Handle,
    sgemv: Sgemv,
    gemm: GemmEx,
    batched: GemmBatched,
    _workspace: Buffer<u8>,
}

impl Raw {
    pub(crate) fn open(device: &Device, stream: &Stream) -> Result<Self> {
        const WORKSPACE: usize = 32 << 20;
        let library = open("cublas")?;
        let workspace = stream.zeros::<u8>(WORKSPACE)?;
        let (mut handle, at) = (ptr::null_mut(), workspace.as_raw().0 as *mut c_void);
        // SAFETY: these are the functions' prototypes. The context is current inside an external operation, and nothing is
        // enqueued.
        unsafe {
            let create: unsafe extern "C" fn(*mut Handle) -> c_int = *library.get("cublasCreate_v2")?;
            let set_stream: unsafe extern "C" fn(Handle, *mut c_void) -> c_int =
                *library.get("cublasSetStream_v2")?;
            let set_workspace: unsafe extern "C" fn(Handle, *mut c_void, usize) -> c_int =
                *library.get("cublasSetWorkspace_v2")?;
            device
                .stream()?
                .external("create", (), |_, ()| check("cublasCreate", create(&raw mut handle)))?;
            check("cublasSetStream", set_stream(handle, stream.as_raw().0 as *mut c_void))?;
            check("cublasSetWorkspace", set_workspace(handle, at, WORKSPACE))?;
            Ok(Self {
                handle,
                sgemv: *library.get("cublasSgemv_v2")?,
                gemm: *library.get("cublasGemmEx")?,
                batched: *library.get("cublasGemmStridedBatchedEx")?,
                _workspace: workspace,
            })
        }
    }

    /// Enqueues `y = a x` for a square matrix, row by row.
    pub(crate) fn gemv(&self, n: usize, a: &Buffer<f32>, x: &Buffer<f32>, y: &mut Buffer<f32>) -> Result<()> {
        let (scalars, size) = ([1.0f32, 0.0], n as c_int);
        let [a, x, y] = [a.as_raw(), x.as_raw(), y.as_raw()].map(|memory| memory.0 as *mut f32);
        // SAFETY: as for `gemm`.
        let status = unsafe {
            (self.sgemv)(
                self.handle,
                1,
                size,
                size,
                &raw const scalars[0],
                a,
                size,
                x,
                1,
                &raw const scalars[1],
                y,
                1,
            )
        };
        check("cublasSgemv", status)
    }

    /// Enqueues `c = a b` for square matrices, row by row.
    pub(crate) fn gemm<T: Plain>(
        &self,
        n: usize,
        batch: usize,
        (a, b, c): (&Buffer<T>, &Buffer<T>, &mut Buffer<T>),
        compute: Compute,
    ) -> Result<()> {
        let is = |id: TypeId| TypeId::of::<T>() == id;
        let (number, compute) = match compute {
            Compute::Tf32 => (0, 77),
            _ if is(TypeId::of::<f64>()) => (1, 70),
            _ if is(TypeId::of::<f16>()) => (2, 68),
            _ if is(TypeId::of::<bf16>()) => (14, 68),
            _ => (0, 68),
        };
        let (single, double) = ([1.0f32, 0.0], [1.0f64, 0.0]);
        let scalars: [*const c_void; 2] = if number == 1 {
            [(&raw const double[0]).cast(), (&raw const double[1]).cast()]
        } else {
            [(&raw const single[0]).cast(), (&raw const single[1]).cast()]
        };
        let [a, b] = [a, b].map(|memory| memory.as_raw().0 as *const c_void);
        let (c, stride) = (c.as_raw().0 as *mut c_void, (n * n) as c_longlong);
        let (n, batch) = (n as c_int, batch as c_int);
        let [alpha, beta] = scalars;
        // SAFETY: matrices of the device, which nothing else uses; the program waits for the device between samples.
        let status = unsafe {
            if batch == 1 {
                (self.gemm)(
                    self.handle,
                    0,
                    0,
                    n,
                    n,
                    n,
                    alpha,
                    b,
                    number,
                    n,
                    a,
                    number,
                    n,
                    beta,
                    c,
                    number,
                    n,
                    compute,
                    -1,
                )
            } else {
                (self.batched)(
                    self.handle,
                    0,
                    0,
                    n,
                    n,
                    n,
                    alpha,
                    b,
                    number,
                    n,
                    stride,
                    a,
                    number,
                    n,
                    stride,
                    beta,
                    c,
                    number,
                    n,
                    stride,
                    batch,
                    compute,
                    -1,
                )
            }
        };
        check("cublasGemmEx", status)
    }
}

/// A plan of cuFFT.
pub(crate) struct RawFft {
    plan: c_int,
    execute: unsafe extern "C" fn(c_int, *mut c_void, *mut c_void, c_int) -> c_int,
    destroy: unsafe extern "C" fn(c_int) -> c_int,
}

impl RawFft {
    /// Makes the plan of a row by its name. cuFFT allocates its work area.
    pub(crate) fn new(device: &Device, stream: &Stream, name: &str) -> Result<Self> {
        let library = open("cufft")?;
        let mut plan = 0;
        // SAFETY: these are the functions' prototypes. The context is current inside an external operation, and nothing is
        // enqueued.
        unsafe {
            let plan_1d: unsafe extern "C" fn(*mut c_int, c_int, c_int, c_int) -> c_int =
                *library.get("cufftPlan1d")?;
            let plan_3d: unsafe extern "C" fn(*mut c_int, c_int, c_int, c_int, c_int) -> c_int =
                *library.get("cufftPlan3d")?;
            let set_stream: unsafe extern "C" fn(c_int, *mut c_void) -> c_int =
                *library.get("cufftSetStream")?;
            device.stream()?.external("plan", (), |_, ()| -> Result<()> {
                let at = &raw mut plan;
                check(
                    "the plan",
                    match name {
                        "fft 512^3" => plan_3d(at, 512, 512, 512, 0x29),
                        "fft 1024 x 2^16" => plan_1d(at, 1 << 16, 0x29, 1024),
                        "fft 2^24" => plan_1d(at, 1 << 24, 0x29, 1),
                        _ => plan_1d(at, 1024, 0x29, 1),
                    },
                )
            })?;
            check("cufftSetStream", set_stream(plan, stream.as_raw().0 as *mut c_void))?;
            Ok(Self { plan, execute: *library.get("cufftExecC2C")?, destroy: *library.get("cufftDestroy")? })
        }
    }

    pub(crate) fn run(&self, x: &Buffer<Complex<f32>>, y: &mut Buffer<Complex<f32>>) -> Result<()> {
        let (x, y) = (x.as_raw().0 as *mut c_void, y.as_raw().0 as *mut c_void);
        // SAFETY: as for `Raw::gemm`.
        check("cufftExecC2C", unsafe { (self.execute)(self.plan, x, y, -1) })
    }
}

impl Drop for RawFft {
    fn drop(&mut self) {
        // SAFETY: the plan is not used again.
        let _ = unsafe { (self.destroy)(self.plan) };
    }
}
