//! cuBLASLt and hipBLASLt: products with the epilogue inside, so that the result is written once.
//!
//! The library has a function for a product of any kind, which a *descriptor* and three *layouts* describe. Its heuristics choose
//! an algorithm, or say that there is none; then the caller does without. Both take time, so a device keeps them for its last kinds
//! of products.
//!
//! hipBLASLt has faults that we work around:
//! * It is missing or reported wrong on some processors, so we use it only on those that it was made for ([`is_served`]).
//! * `hipblasLtCreate` ends the process if it is called in a capture. We call it when hipBLAS is opened, which is refused there.
//! * Kernels of one handle share memory through which their workgroups wait for each other. Two of them on different streams could
//!   wait forever. The handle owns a byte of device memory, its *marker*, which each product names as memory that it writes. So
//!   they run one after another.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use gpustream::{Arg, AsView as _, Buffer, Device, Error, ErrorKind, Result, Stream};
use smallvec::{SmallVec, smallvec};

use super::Gemm;
use super::call::{Scalars, enqueue_with};
use super::epilogue::Activation;
use super::library::{
    CUDA_SETTINGS, HIP_SETTINGS, Handle, Library, PointerMode, compute, failure, hip_compute,
};
use crate::call::Address;
use crate::library::{CUBLASLT, HIPBLASLT, Opened};
use crate::matrix::{MatrixView, MatrixViewMut, Order};
use crate::number::{DataType, Element, Number};
use crate::recent::Recent;
use crate::table::{Names, Vendor, vendor_functions};

vendor_functions! {
    /// The functions of one of the libraries.
    Api, cudarc: [cudarc::cublaslt::sys];
    text "cublasLtGetStatusString" | "";
    required {
        create: cublasLtCreate | hipblasLtCreate(handle: *mut Handle);
        destroy: cublasLtDestroy | hipblasLtDestroy(handle: Handle);
        descriptor_create: cublasLtMatmulDescCreate | hipblasLtMatmulDescCreate(
            descriptor: *mut Handle, compute: u32, scalars: u32
        );
        descriptor_destroy: cublasLtMatmulDescDestroy | hipblasLtMatmulDescDestroy(descriptor: Handle);
        descriptor_set: cublasLtMatmulDescSetAttribute | hipblasLtMatmulDescSetAttribute(
            descriptor: Handle, attribute: u32, value: *const c_void, bytes: usize
        );
        layout_create: cublasLtMatrixLayoutCreate | hipblasLtMatrixLayoutCreate(
            layout: *mut Handle, number: u32, rows: u64, columns: u64, leading: i64
        );
        layout_destroy: cublasLtMatrixLayoutDestroy | hipblasLtMatrixLayoutDestroy(layout: Handle);
        preference_create: cublasLtMatmulPreferenceCreate | hipblasLtMatmulPreferenceCreate(preference: *mut Handle);
        preference_destroy: cublasLtMatmulPreferenceDestroy | hipblasLtMatmulPreferenceDestroy(preference: Handle);
        preference_set: cublasLtMatmulPreferenceSetAttribute | hipblasLtMatmulPreferenceSetAttribute(
            preference: Handle, attribute: u32, value: *const c_void, bytes: usize
        );
        choose: cublasLtMatmulAlgoGetHeuristic | hipblasLtMatmulAlgoGetHeuristic(
            handle: Handle, descriptor: Handle, a: Handle, b: Handle, c: Handle, d: Handle, preference: Handle,
            wanted: c_int, choices: *mut c_void, found: *mut c_int,
        );
        multiply: cublasLtMatmul | hipblasLtMatmul(
            handle: Handle, descriptor: Handle, alpha: *const c_void, a: *const c_void, a_layout: Handle,
            b: *const c_void, b_layout: Handle, beta: *const c_void, c: *const c_void, c_layout: Handle,
            d: *mut c_void, d_layout: Handle, algorithm: *const c_void, workspace: *mut c_void, bytes: usize,
            stream: *mut c_void,
        );
    }
    optional {}
}

impl Api {
    #[cold]
    fn failure(&self, function: &'static str, status: Option<u32>) -> Error {
        failure(self.vendor, function, status, status.and_then(|status| self.words(status)))
    }
}

/// What a library calls its settings.
struct Numbers {
    /// Attributes of a descriptor.
    pointer_mode: u32,
    op_a: u32,
    op_b: u32,
    epilogue: u32,
    bias_pointer: u32,
    /// cuBLASLt takes the type of the bias from the result.
    bias_type: Option<u32>,
    /// What an algorithm has to suit: the bytes of workspace, and the alignments of `a`, `b`, `c` and the result. hipBLASLt does not
    /// ask for alignments.
    most_workspace: u32,
    alignments: Option<[u32; 4]>,
}

/// The numbers of `cublasLtMatmulDescAttributes_t` and `cublasLtMatmulPreferenceAttributes_t`.
const CUDA_NUMBERS: Numbers = Numbers {
    pointer_mode: 2,
    op_a: 3,
    op_b: 4,
    epilogue: 7,
    bias_pointer: 8,
    bias_type: None,
    most_workspace: 1,
    alignments: Some([5, 6, 7, 8]),
};

/// The numbers of `hipblasLtMatmulDescAttributes_t` and `hipblasLtMatmulPreferenceAttributes_t`.
const HIP_NUMBERS: Numbers = Numbers {
    pointer_mode: 13,
    op_a: 0,
    op_b: 1,
    epilogue: 2,
    bias_pointer: 3,
    bias_type: Some(4),
    most_workspace: 1,
    alignments: None,
};

/// The numbers of epilogues (`cublasLtEpilogue_t`, `hipblasLtEpilogue_t`), which add up.
mod epilogue {
    pub(super) const RELU: u32 = 2;
    pub(super) const BIAS: u32 = 4;
    pub(super) const GELU: u32 = 32;
}

/// The words of an algorithm of each library.
const CUDA_WORDS: usize = 8;
const HIP_WORDS: usize = 3;

/// An algorithm that the library has chosen (`cublasLtMatmulHeuristicResult_t`, `hipblasLtMatmulHeuristicResult_t`).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Choice<const WORDS: usize> {
    algorithm: [u64; WORDS],
    workspace: usize,
    status: u32,
    waves: f32,
    reserved: [c_int; 4],
}

impl<const WORDS: usize> Choice<WORDS> {
    const NONE: Self = Self { algorithm: [0; WORDS], workspace: 0, status: 0, waves: 0.0, reserved: [0; 4] };
}

/// Alignments of memory beyond this do not matter to us, in bytes. Algorithms load no more at once.
const ALIGNMENT: usize = 16;

/// What decides, with the memory, what the library enqueues. All matrices have contiguous columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Kind {
    is_transposed: [bool; 2],
    /// m, n and k.
    size: [usize; 3],
    leading: [usize; 3],
    alignments: [usize; 3],
    types: [DataType; 2],
    compute: u32,
    epilogue: u32,
    scalars_on_device: bool,
}

/// Returns true if we trust hipBLASLt on a processor: the ones that AMD made it for first. It has no kernels for gfx103x, and its users
/// report wrong results on gfx1201 (ROCm/rocm-libraries 5706).
fn is_served(arch: &str) -> bool {
    ["gfx90a", "gfx942", "gfx950"].contains(&arch.split(':').next().unwrap_or(arch))
}

/// The library with a handle for one device.
pub(super) struct Lt {
    api: &'static Api,
    handle: Handle,
    /// Keeps products on AMD GPUs apart.
    marker: Option<Mutex<Buffer<u8>>>,
    /// `None` for kinds without an algorithm.
    last: Recent<Kind, Option<Arc<Matmul>>>,
}

// SAFETY: any threads may use a handle at once; nothing in it changes.
unsafe impl Send for Lt {}
// SAFETY: as above.
unsafe impl Sync for Lt {}

impl Lt {
    /// Opens the library for a device. Returns `None` if that cannot be, because we can do without it.
    pub(super) fn open(device: &Device, vendor: Vendor) -> Result<Option<Self>> {
        static NVIDIA: OnceLock<Option<Api>> = OnceLock::new();
        static AMD: OnceLock<Option<Api>> = OnceLock::new();
        let (opened, library) = match vendor {
            Vendor::Nvidia => (&NVIDIA, CUBLASLT),
            Vendor::Amd if is_served(&device.info().arch) => (&AMD, HIPBLASLT),
            Vendor::Amd => return Ok(None),
        };
        let open = || {
            let Opened { library, .. } = library.open().ok()?;
            // SAFETY: it was opened as this library, and is never closed.
            let (api, missing) = unsafe { Api::load(&library, vendor, Names::Current) };
            missing.is_empty().then_some(api)
        };
        let Some(api) = opened.get_or_init(open) else { return Ok(None) };
        let stream = device.stream()?;
        let marker = match vendor {
            Vendor::Nvidia => None,
            Vendor::Amd => Some(Mutex::new(stream.alloc(1)?)),
        };
        let mut handle = ptr::null_mut();
        let at = &raw mut handle;
        // SAFETY: nothing is enqueued, and the pointer is to a local.
        unsafe { stream.external("create", (), |_, ()| api.create(at)) }?;
        Ok(Some(Self { api, handle, marker, last: Recent::default() }))
    }

    /// Returns the product of a kind, or `None` if the library has no algorithm for it.
    fn of(&self, stream: &Stream, kind: &Kind, workspace: usize) -> Result<Option<Arc<Matmul>>> {
        if let Some(matmul) = self.last.find(kind) {
            return Ok(matmul);
        }
        // On a stream of its own, because a captured one would take it as a part of the graph.
        let make = |_, ()| Matmul::new(self.api, self.handle, kind, workspace);
        // SAFETY: nothing is enqueued.
        let matmul = match unsafe { stream.device().stream()?.external("choose", (), make) } {
            Ok(matmul) => Some(Arc::new(matmul)),
            Err(error) if matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::InvalidArgument) => None,
            Err(error) => return Err(error),
        };
        self.last.add(*kind, matmul.clone());
        Ok(matmul)
    }
}

impl Drop for Lt {
    fn drop(&mut self) {
        // SAFETY: the handle is not used again.
        let _ = unsafe { self.api.destroy(self.handle) };
    }
}

/// Enqueues a product with its epilogue. Returns false if cuBLASLt is not there, or cannot do this in one call.
#[track_caller]
pub(super) fn multiply<A: Element, C: Element, S: Number>(
    stream: &Stream,
    library: &Library,
    compute: u32,
    options: &Gemm<'_, S, C>,
    a: MatrixView<'_, A>,
    b: MatrixView<'_, A>,
    c: MatrixViewMut<'_, C>,
) -> Result<bool> {
    let (Some(lt), Some(after)) = (&library.lt, options.epilogue) else { return Ok(false) };
    let bias = after.bias;
    let suits = c.place().batch == 1
        && a.columns() > 0
        && matches!(compute, compute::F32 | compute::TF32)
        // The library adds a bias to the rows of a result with contiguous columns. If our rows are contiguous, these are our
        // columns.
        && bias.is_none_or(|bias| {
            let address = bias.memory().as_raw().0;
            c.place().order == Order::RowMajor && bias.step() == 1 && address.is_multiple_of(ALIGNMENT)
        });
    let number = match after.activation {
        Activation::None => 0,
        Activation::Relu => epilogue::RELU,
        Activation::Gelu => epilogue::GELU,
    } + bias.map_or(0, |_| epilogue::BIAS);
    if !suits || number == 0 {
        return Ok(false);
    }
    let (a, b, c) = if c.place().order == Order::RowMajor { (b.t(), a.t(), c.t()) } else { (a, b, c) };
    let (a_place, b_place, c_place) = (a.place(), b.place(), c.place());
    let (a, b, mut c, bias) = (a.memory(), b.memory(), c.into_memory(), bias.map(|bias| bias.memory()));
    let scalars = Scalars::new(stream, [options.alpha, options.beta])?;
    let [from, by, to] = [a.as_raw().0, b.as_raw().0, c.view().as_raw().0].map(Address);
    let kind = Kind {
        is_transposed: [a_place, b_place].map(|place| place.order == Order::RowMajor),
        size: [c_place.rows, c_place.columns, a_place.columns],
        leading: [a_place, b_place, c_place].map(|place| place.leading),
        alignments: [from, by, to].map(|Address(at)| 1 << at.trailing_zeros().min(ALIGNMENT.ilog2())),
        types: [A::TYPE, C::TYPE],
        compute,
        epilogue: number,
        scalars_on_device: scalars.mode() == PointerMode::Device,
    };
    if lt.api.vendor == Vendor::Amd && (kind.scalars_on_device || kind.alignments != [ALIGNMENT; 3]) {
        // It does not say what it needs then.
        return Ok(false);
    }
    let Some(matmul) = lt.of(stream, &kind, library.workspace.bytes())? else { return Ok(false) };
    let bias_at = bias.map(|bias| Address(bias.as_raw().0));
    let mut marker = lt.marker.as_ref().map(|marker| marker.lock().unwrap_or_else(PoisonError::into_inner));
    let mut memory: SmallVec<[Arg<'_>; 6]> = smallvec![Arg::read(&a), Arg::read(&b), Arg::write(&mut c)];
    memory.extend(bias.iter().map(|bias| Arg::read(bias)));
    memory.extend(marker.as_mut().map(|marker| Arg::write(&mut **marker)));
    // SAFETY: the product goes to the stream that we are given, reads `a`, `b`, the bias and the scalars, and writes `c`. It
    // depends on nothing but `kind` and that, because the heuristics choose the same for the same kind.
    unsafe {
        enqueue_with(
            stream,
            "gemm",
            &library.workspace,
            &scalars,
            kind,
            memory,
            |raw, workspace, scalars| {
                let stream = raw.0 as *mut c_void;
                matmul.run(
                    lt.handle,
                    stream,
                    (workspace, library.workspace.bytes()),
                    scalars,
                    [from, by],
                    to,
                    bias_at,
                )
            },
        )?;
    }
    Ok(true)
}

/// A small object that the library keeps on the host.
struct Object {
    api: &'static Api,
    at: Handle,
    destroy: unsafe fn(&Api, Handle) -> Result<()>,
}

impl Object {
    fn new(
        api: &'static Api,
        create: impl FnOnce(*mut Handle) -> Result<()>,
        destroy: unsafe fn(&Api, Handle) -> Result<()>,
    ) -> Result<Self> {
        let mut at = ptr::null_mut();
        create(&raw mut at)?;
        Ok(Self { api, at, destroy })
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        // SAFETY: it was made by the function that belongs to this one, and is not used again.
        let _ = unsafe { (self.destroy)(self.api, self.at) };
    }
}

// SAFETY: any thread may use the objects, as long as only one does so at a time.
unsafe impl Send for Object {}

/// A product that the library can enqueue.
struct Matmul {
    api: &'static Api,
    /// The descriptor, whose bias each call sets, and the layouts of `a`, `b` and the result.
    objects: Mutex<(Object, [Object; 3])>,
    /// The attribute for the address of the bias.
    bias_pointer: u32,
    algorithm: [u64; CUDA_WORDS],
}

/// Lets the library choose an algorithm. It has room for cuBLASLt's words, and hipBLASLt's are fewer.
///
/// # Safety
/// The handle and the objects are alive: a descriptor, the layouts of `a`, `b` and the result, and a preference. `WORDS` is the length of
/// this library's algorithms.
unsafe fn choose<const WORDS: usize>(
    api: &Api,
    handle: Handle,
    [descriptor, a, b, c, wanted]: [Handle; 5],
) -> Result<[u64; CUDA_WORDS]> {
    let (mut choice, mut found) = (Choice::<WORDS>::NONE, 0);
    let choices = (&raw mut choice).cast();
    // SAFETY: by this function's contract; the pointers are to locals.
    unsafe { api.choose(handle, descriptor, a, b, c, c, wanted, 1, choices, &raw mut found) }?;
    if found == 0 || choice.status != 0 {
        return Err(Error::new(ErrorKind::Unsupported, "the library has no algorithm for this product"));
    }
    let mut algorithm = [0; CUDA_WORDS];
    algorithm[..WORDS].copy_from_slice(&choice.algorithm);
    Ok(algorithm)
}

impl Matmul {
    fn new(api: &'static Api, handle: Handle, kind: &Kind, workspace: usize) -> Result<Self> {
        let [m, n, k] = kind.size;
        let [input, output] = kind.types.map(|number| number as u32);
        let (numbers, compute, settings) = match api.vendor {
            Vendor::Nvidia => (&CUDA_NUMBERS, kind.compute, &CUDA_SETTINGS),
            Vendor::Amd => (&HIP_NUMBERS, hip_compute(kind.compute), &HIP_SETTINGS),
        };
        let scalars = DataType::F32 as u32;
        // SAFETY, for all calls below: the objects are alive, the pointers are to locals, and each attribute has the size that the
        // library's manual gives it.
        let create = |at| {
            // SAFETY: as above.
            unsafe { api.descriptor_create(at, compute, scalars) }
        };
        let descriptor = Object::new(api, create, Api::descriptor_destroy)?;
        let set = |attribute: u32, value: u32| {
            // SAFETY: as above.
            unsafe {
                api.descriptor_set(descriptor.at, attribute, (&raw const value).cast(), size_of::<u32>())
            }
        };
        set(numbers.pointer_mode, u32::from(kind.scalars_on_device))?;
        set(numbers.op_a, settings.op(kind.is_transposed[0], false))?;
        set(numbers.op_b, settings.op(kind.is_transposed[1], false))?;
        set(numbers.epilogue, kind.epilogue)?;
        if let Some(attribute) = numbers.bias_type.filter(|_| kind.epilogue & epilogue::BIAS != 0) {
            set(attribute, output)?;
        }
        let layout = |at: usize, is_transposed: bool, number: u32, (rows, columns): (usize, usize)| {
            let (rows, columns) = if is_transposed { (columns, rows) } else { (rows, columns) };
            let leading = kind.leading[at] as i64;
            let create = |at| {
                // SAFETY: as above.
                unsafe { api.layout_create(at, number, rows as u64, columns as u64, leading) }
            };
            Object::new(api, create, Api::layout_destroy)
        };
        let a = layout(0, kind.is_transposed[0], input, (m, k))?;
        let b = layout(1, kind.is_transposed[1], input, (k, n))?;
        let c = layout(2, false, output, (m, n))?;
        let create = |at| {
            // SAFETY: as above.
            unsafe { api.preference_create(at) }
        };
        let wanted = Object::new(api, create, Api::preference_destroy)?;
        let (size, [by_a, by_b, by_c]) = (size_of::<u32>(), kind.alignments.map(|bytes| bytes as u32));
        let bytes = (&raw const workspace).cast();
        // SAFETY: as above.
        unsafe {
            api.preference_set(wanted.at, numbers.most_workspace, bytes, size_of::<usize>())?;
            let alignments = numbers.alignments.into_iter().flatten();
            for (attribute, alignment) in alignments.zip([by_a, by_b, by_c, by_c]) {
                api.preference_set(wanted.at, attribute, (&raw const alignment).cast(), size)?;
            }
        }
        let objects = [descriptor.at, a.at, b.at, c.at, wanted.at];
        // SAFETY: as above.
        let algorithm = unsafe {
            match api.vendor {
                Vendor::Nvidia => choose::<CUDA_WORDS>(api, handle, objects),
                Vendor::Amd => choose::<HIP_WORDS>(api, handle, objects),
            }
        }?;
        let bias_pointer = numbers.bias_pointer;
        Ok(Self { api, objects: Mutex::new((descriptor, [a, b, c])), bias_pointer, algorithm })
    }

    /// Calls the library.
    ///
    /// # Safety
    /// The stream is alive, and the addresses are those of the matrices, the bias if the kind has one, the scalars and workspace.
    unsafe fn run(
        &self,
        handle: Handle,
        stream: *mut c_void,
        (workspace, bytes): (Address, usize),
        [alpha, beta]: [*const c_void; 2],
        [a, b]: [Address; 2],
        c: Address,
        bias: Option<Address>,
    ) -> Result<()> {
        let objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        let (descriptor, [a_layout, b_layout, c_layout]) = &*objects;
        // SAFETY: by this function's contract; the objects are alive, and the algorithm is for them.
        unsafe {
            if let Some(Address(bias)) = bias {
                let value = (&raw const bias).cast();
                self.api.descriptor_set(descriptor.at, self.bias_pointer, value, size_of::<usize>())?;
            }
            self.api.multiply(
                handle,
                descriptor.at,
                alpha,
                a.read(),
                a_layout.at,
                b.read(),
                b_layout.at,
                beta,
                c.read(),
                c_layout.at,
                c.write(),
                c_layout.at,
                self.algorithm.as_ptr().cast(),
                workspace.write(),
                bytes,
                stream,
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_cublaslt() {
        use cudarc::cublaslt::sys::{
            cublasLtEpilogue_t as Epilogue, cublasLtMatmulDescAttributes_t as Attribute,
            cublasLtMatmulHeuristicResult_t as Heuristic, cublasLtMatmulPreferenceAttributes_t as Preference,
        };
        let numbers = CUDA_NUMBERS;
        assert_eq!(numbers.pointer_mode, Attribute::CUBLASLT_MATMUL_DESC_POINTER_MODE as u32);
        assert_eq!(numbers.op_a, Attribute::CUBLASLT_MATMUL_DESC_TRANSA as u32);
        assert_eq!(numbers.op_b, Attribute::CUBLASLT_MATMUL_DESC_TRANSB as u32);
        assert_eq!(numbers.epilogue, Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE as u32);
        assert_eq!(numbers.bias_pointer, Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER as u32);
        assert_eq!(numbers.most_workspace, Preference::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES as u32);
        let alignments = [
            Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
            Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
            Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
            Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
        ];
        assert_eq!(numbers.alignments, Some(alignments.map(|number| number as u32)));
        assert_eq!(epilogue::RELU, Epilogue::CUBLASLT_EPILOGUE_RELU as u32);
        assert_eq!(epilogue::BIAS, Epilogue::CUBLASLT_EPILOGUE_BIAS as u32);
        assert_eq!(epilogue::GELU, Epilogue::CUBLASLT_EPILOGUE_GELU as u32);
        assert_eq!(epilogue::RELU + epilogue::BIAS, Epilogue::CUBLASLT_EPILOGUE_RELU_BIAS as u32);
        assert_eq!(epilogue::GELU + epilogue::BIAS, Epilogue::CUBLASLT_EPILOGUE_GELU_BIAS as u32);
        assert_eq!(size_of::<Choice<CUDA_WORDS>>(), size_of::<Heuristic>());
        let (ours, theirs) =
            (std::mem::offset_of!(Choice<CUDA_WORDS>, status), std::mem::offset_of!(Heuristic, state));
        assert_eq!(ours, theirs);
    }

    #[test]
    fn numbers_are_those_of_hipblaslt() {
        use crate::hip_bindings::{
            _hipblasLtMatmulHeuristicResult_t as Heuristic, hipblasLtEpilogue_t as Epilogue,
            hipblasLtMatmulDescAttributes_t as Attribute,
            hipblasLtMatmulPreferenceAttributes_t as Preference, hipblasLtPointerMode_t as Mode,
        };
        let numbers = HIP_NUMBERS;
        assert_eq!(numbers.pointer_mode, Attribute::HIPBLASLT_MATMUL_DESC_POINTER_MODE as u32);
        assert_eq!(numbers.op_a, Attribute::HIPBLASLT_MATMUL_DESC_TRANSA as u32);
        assert_eq!(numbers.op_b, Attribute::HIPBLASLT_MATMUL_DESC_TRANSB as u32);
        assert_eq!(numbers.epilogue, Attribute::HIPBLASLT_MATMUL_DESC_EPILOGUE as u32);
        assert_eq!(numbers.bias_pointer, Attribute::HIPBLASLT_MATMUL_DESC_BIAS_POINTER as u32);
        assert_eq!(numbers.bias_type, Some(Attribute::HIPBLASLT_MATMUL_DESC_BIAS_DATA_TYPE as u32));
        assert_eq!(numbers.most_workspace, Preference::HIPBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES as u32);
        assert_eq!(Mode::HIPBLASLT_POINTER_MODE_HOST as u32, 0);
        assert_eq!(epilogue::RELU, Epilogue::HIPBLASLT_EPILOGUE_RELU as u32);
        assert_eq!(epilogue::BIAS, Epilogue::HIPBLASLT_EPILOGUE_BIAS as u32);
        assert_eq!(epilogue::GELU, Epilogue::HIPBLASLT_EPILOGUE_GELU as u32);
        assert_eq!(epilogue::RELU + epilogue::BIAS, Epilogue::HIPBLASLT_EPILOGUE_RELU_BIAS as u32);
        assert_eq!(epilogue::GELU + epilogue::BIAS, Epilogue::HIPBLASLT_EPILOGUE_GELU_BIAS as u32);
        assert_eq!(size_of::<Choice<HIP_WORDS>>(), size_of::<Heuristic>());
        let (ours, theirs) =
            (std::mem::offset_of!(Choice<HIP_WORDS>, status), std::mem::offset_of!(Heuristic, state));
        assert_eq!(ours, theirs);
    }

    #[test]
    fn hipblaslt_is_left_out_where_it_is_missing_or_wrong() {
        assert!(["gfx90a", "gfx90a:sramecc+:xnack-", "gfx942", "gfx950"].into_iter().all(is_served));
        assert!(!["gfx1030", "gfx1100", "gfx1201", "gfx908", "gfxcuda90", ""].into_iter().any(is_served));
    }
}
