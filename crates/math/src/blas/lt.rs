//! cuBLASLt: products with the epilogue inside, so that the result is written once.
//!
//! The library has a function for a product of any kind, which a *descriptor* and three *layouts* describe. Its heuristics choose
//! an algorithm, or say that there is none; then the caller does without. Both take time, so a device keeps them for its last kinds
//! of products.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use gpustream::{Arg, AsView as _, Device, Error, ErrorKind, Result, Stream};
use smallvec::{SmallVec, smallvec};

use super::Gemm;
use super::call::{Scalars, enqueue_with};
use super::epilogue::Activation;
use super::library::{Handle, Library, PointerMode, compute, failure};
use crate::call::Address;
use crate::library::{CUBLASLT, Opened};
use crate::matrix::{MatrixView, MatrixViewMut, Order};
use crate::number::{DataType, Element, Number};
use crate::recent::Recent;
use crate::table::{Names, Vendor, vendor_functions};

vendor_functions! {
    /// The functions of cuBLASLt. We do not open hipBLASLt yet.
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

/// The numbers of attributes (`cublasLtMatmulDescAttributes_t`).
mod attribute {
    pub(super) const POINTER_MODE: u32 = 2;
    pub(super) const OP_A: u32 = 3;
    pub(super) const OP_B: u32 = 4;
    pub(super) const EPILOGUE: u32 = 7;
    pub(super) const BIAS_POINTER: u32 = 8;
}

/// The numbers of what an algorithm has to suit (`cublasLtMatmulPreferenceAttributes_t`).
mod preference {
    pub(super) const MOST_WORKSPACE: u32 = 1;
    /// For `a`, `b`, `c` and the result, the alignment in bytes.
    pub(super) const ALIGNMENTS: [u32; 4] = [5, 6, 7, 8];
}

/// The numbers of epilogues (`cublasLtEpilogue_t`), which add up.
mod epilogue {
    pub(super) const RELU: u32 = 2;
    pub(super) const BIAS: u32 = 4;
    pub(super) const GELU: u32 = 32;
}

/// An algorithm that the library has chosen (`cublasLtMatmulHeuristicResult_t`).
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Choice {
    algorithm: [u64; 8],
    workspace: usize,
    status: u32,
    waves: f32,
    reserved: [c_int; 4],
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

/// The library with a handle for one device.
pub(super) struct Lt {
    api: &'static Api,
    handle: Handle,
    /// `None` for kinds without an algorithm.
    last: Recent<Kind, Option<Arc<Matmul>>>,
}

// SAFETY: any threads may use a handle at once; nothing in it changes.
unsafe impl Send for Lt {}
// SAFETY: as above.
unsafe impl Sync for Lt {}

impl Lt {
    /// Opens the library for a device. Returns `None` if that cannot be, because we can do without it.
    pub(super) fn open(device: &Device) -> Result<Option<Self>> {
        static OPENED: OnceLock<Option<Api>> = OnceLock::new();
        let open = || {
            let Opened { library, .. } = CUBLASLT.open().ok()?;
            // SAFETY: it was opened as cuBLASLt, and is never closed.
            let (api, missing) = unsafe { Api::load(&library, Vendor::Nvidia, Names::Current) };
            missing.is_empty().then_some(api)
        };
        let Some(api) = OPENED.get_or_init(open) else { return Ok(None) };
        let mut handle = ptr::null_mut();
        let at = &raw mut handle;
        // SAFETY: nothing is enqueued, and the pointer is to a local.
        unsafe { device.stream()?.external("create", (), |_, ()| api.create(at)) }?;
        Ok(Some(Self { api, handle, last: Recent::default() }))
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
    let Some(matmul) = lt.of(stream, &kind, library.workspace)? else { return Ok(false) };
    let bias_at = bias.map(|bias| Address(bias.as_raw().0));
    let mut memory: SmallVec<[Arg<'_>; 6]> = smallvec![Arg::read(&a), Arg::read(&b), Arg::write(&mut c)];
    memory.extend(bias.iter().map(|bias| Arg::read(bias)));
    // SAFETY: the product goes to the stream that we are given, reads `a`, `b`, the bias and the scalars, and writes `c`. It
    // depends on nothing but `kind` and that, because the heuristics choose the same for the same kind.
    unsafe {
        enqueue_with(
            stream,
            "gemm",
            library.workspace,
            &scalars,
            kind,
            memory,
            |raw, workspace, scalars| {
                let stream = raw.0 as *mut c_void;
                matmul.run(
                    lt.handle,
                    stream,
                    (workspace, library.workspace),
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
    algorithm: [u64; 8],
}

impl Matmul {
    fn new(api: &'static Api, handle: Handle, kind: &Kind, workspace: usize) -> Result<Self> {
        let [m, n, k] = kind.size;
        let [input, output] = kind.types.map(|number| number as u32);
        let scalars = DataType::F32 as u32;
        // SAFETY, for all calls below: the objects are alive, the pointers are to locals, and each attribute has the size that the
        // library's manual gives it.
        let create = |at| {
            // SAFETY: as above.
            unsafe { api.descriptor_create(at, kind.compute, scalars) }
        };
        let descriptor = Object::new(api, create, Api::descriptor_destroy)?;
        let set = |attribute: u32, value: u32| {
            // SAFETY: as above.
            unsafe {
                api.descriptor_set(descriptor.at, attribute, (&raw const value).cast(), size_of::<u32>())
            }
        };
        set(attribute::POINTER_MODE, u32::from(kind.scalars_on_device))?;
        set(attribute::OP_A, u32::from(kind.is_transposed[0]))?;
        set(attribute::OP_B, u32::from(kind.is_transposed[1]))?;
        set(attribute::EPILOGUE, kind.epilogue)?;
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
        let (mut choice, mut found) = (Choice::default(), 0);
        // SAFETY: as above.
        unsafe {
            api.preference_set(wanted.at, preference::MOST_WORKSPACE, bytes, size_of::<usize>())?;
            for (attribute, alignment) in preference::ALIGNMENTS.into_iter().zip([by_a, by_b, by_c, by_c]) {
                api.preference_set(wanted.at, attribute, (&raw const alignment).cast(), size)?;
            }
            let choices = (&raw mut choice).cast();
            api.choose(handle, descriptor.at, a.at, b.at, c.at, c.at, wanted.at, 1, choices, &raw mut found)?;
        }
        if found == 0 || choice.status != 0 {
            return Err(Error::new(ErrorKind::Unsupported, "cuBLASLt has no algorithm for this product"));
        }
        Ok(Self { api, objects: Mutex::new((descriptor, [a, b, c])), algorithm: choice.algorithm })
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
                self.api.descriptor_set(descriptor.at, attribute::BIAS_POINTER, value, size_of::<usize>())?;
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
    use cudarc::cublaslt::sys::{
        cublasLtEpilogue_t as Epilogue, cublasLtMatmulDescAttributes_t as Attribute,
        cublasLtMatmulHeuristicResult_t as Heuristic, cublasLtMatmulPreferenceAttributes_t as Preference,
    };

    #[test]
    fn numbers_are_those_of_cublaslt() {
        assert_eq!(attribute::POINTER_MODE, Attribute::CUBLASLT_MATMUL_DESC_POINTER_MODE as u32);
        assert_eq!(attribute::OP_A, Attribute::CUBLASLT_MATMUL_DESC_TRANSA as u32);
        assert_eq!(attribute::OP_B, Attribute::CUBLASLT_MATMUL_DESC_TRANSB as u32);
        assert_eq!(attribute::EPILOGUE, Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE as u32);
        assert_eq!(attribute::BIAS_POINTER, Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER as u32);
        assert_eq!(preference::MOST_WORKSPACE, Preference::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES as u32);
        let alignments = [
            Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
            Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
            Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
            Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
        ];
        assert_eq!(preference::ALIGNMENTS, alignments.map(|number| number as u32));
        assert_eq!(epilogue::RELU, Epilogue::CUBLASLT_EPILOGUE_RELU as u32);
        assert_eq!(epilogue::BIAS, Epilogue::CUBLASLT_EPILOGUE_BIAS as u32);
        assert_eq!(epilogue::GELU, Epilogue::CUBLASLT_EPILOGUE_GELU as u32);
        assert_eq!(epilogue::RELU + epilogue::BIAS, Epilogue::CUBLASLT_EPILOGUE_RELU_BIAS as u32);
        assert_eq!(epilogue::GELU + epilogue::BIAS, Epilogue::CUBLASLT_EPILOGUE_GELU_BIAS as u32);
        assert_eq!(size_of::<Choice>(), size_of::<Heuristic>());
        assert_eq!(std::mem::offset_of!(Choice, status), std::mem::offset_of!(Heuristic, state));
    }
}
