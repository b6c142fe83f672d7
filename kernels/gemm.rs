//! Products of matrices on matrix cores, with what is usually done to the result in the same pass.

use std::fmt;

use gpustream::hal::BackendName;
use gpustream::half::{bf16, f16};
use gpustream::{AsView, AsViewMut, Device, Launch, Plain, Result, Stream, View};

use crate::call::{mismatch, optional, unusable};

mod bindings {
    gpustream::include_kernels!("gemm");
}
use bindings::{HasGemm, HasGemmByTensors, Kernels, Lines};

/// The largest number of rows, columns, or depth. The kernels count in 32 bits.
const LARGEST: usize = 1_000_000_000;

/// How a matrix of a [`Product`] is stored: row after row without gaps, unless you say something else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    by_columns: bool,
    leading: Option<usize>,
    stride: Option<usize>,
}

impl Stored {
    /// Stores the elements of each row next to each other, as in C and NumPy.
    #[must_use]
    pub const fn rows() -> Self {
        Self { by_columns: false, leading: None, stride: None }
    }

    /// Stores the elements of each column next to each other, as in Fortran. This is the transpose of a matrix that is stored by rows.
    #[must_use]
    pub const fn columns() -> Self {
        Self { by_columns: true, leading: None, stride: None }
    }

    /// Sets how many elements it is from one row to the next, or from one column to the next if columns are contiguous.
    #[must_use]
    pub const fn leading(self, elements: usize) -> Self {
        Self { leading: Some(elements), ..self }
    }

    /// Sets how many elements it is from one matrix of a batch to the next. With 0, all products of the batch read the same matrix.
    #[must_use]
    pub const fn stride(self, elements: usize) -> Self {
        Self { stride: Some(elements), ..self }
    }

    /// Returns the kernel's numbers for matrices of this shape, and how many elements they span.
    #[track_caller]
    fn place(self, name: &str, rows: usize, columns: usize, batch: usize) -> Result<(Lines, usize)> {
        let (lines, width) = if self.by_columns { (columns, rows) } else { (rows, columns) };
        let leading = self.leading.unwrap_or(width);
        if leading < width {
            let text = format!(
                "{name} has lines of {width} elements, and {leading} from one to the next: give at least {width}"
            );
            return Err(unusable("multiply_matrices", text));
        }
        let whole = lines.checked_mul(leading);
        let stride = self.stride.or(whole);
        let span = || {
            let matrices = (batch - 1).checked_mul(stride?)?;
            let last = if lines == 0 || width == 0 { 0 } else { whole? - leading + width };
            Some((stride?, matrices.checked_add(last)?))
        };
        let Some((stride, span)) = span() else {
            return Err(unusable(
                "multiply_matrices",
                format!("{name} would have more than 2⁶⁴ elements: give smaller numbers"),
            ));
        };
        Ok((Lines { lines: lines as u32, width: width as u32, leading, stride }, span))
    }
}

/// A function of each element of the result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Activation {
    /// x itself.
    #[default]
    None,
    /// The larger one of x and 0. NaN stays NaN.
    Relu,
    /// x·Φ(x), if Φ is the distribution function of the standard normal distribution (Hendrycks and Gimpel, 2016), by `erf`.
    Gelu,
}

/// Which product [`multiply_matrices`](MultiplyMatrices::multiply_matrices) computes: `c = f(alpha·a·b + beta·c + bias)`.
#[derive(Clone)]
pub struct Product<'a, T> {
    rows: usize,
    columns: usize,
    depth: usize,
    batch: usize,
    stored: [Stored; 3],
    alpha: f32,
    beta: f32,
    bias: Option<View<'a, T>>,
    activation: Activation,
}

impl<T> fmt::Debug for Product<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rows, columns, depth, batch, .. } = self;
        write!(f, "Product({batch} of {rows}×{depth} by {depth}×{columns})")
    }
}

impl<'a, T: Plain> Product<'a, T> {
    /// Returns `c = a·b`: a has `rows` rows of `depth` elements, b has `depth` rows of `columns`, and c has `rows` rows of `columns`.
    #[must_use]
    pub fn new(rows: usize, columns: usize, depth: usize) -> Self {
        Self {
            rows,
            columns,
            depth,
            batch: 1,
            stored: [Stored::rows(); 3],
            alpha: 1.0,
            beta: 0.0,
            bias: None,
            activation: Activation::None,
        }
    }

    /// Sets how a is stored. Multiples of 16 bytes for addresses, lines and distances are fastest; that holds for b and c too.
    #[must_use]
    pub fn a(mut self, stored: Stored) -> Self {
        self.stored[0] = stored;
        self
    }

    /// Sets how b is stored.
    #[must_use]
    pub fn b(mut self, stored: Stored) -> Self {
        self.stored[1] = stored;
        self
    }

    /// Sets how c is stored: by rows. For a c by columns, compute its transpose, with b as the left factor.
    #[must_use]
    pub fn c(mut self, stored: Stored) -> Self {
        self.stored[2] = stored;
        self
    }

    /// Sets how many products there are. Their matrices lie one after another, unless you set a [stride](Stored::stride).
    #[must_use]
    pub fn batch(mut self, products: usize) -> Self {
        self.batch = products;
        self
    }

    /// Sets the factor of a·b, which is 1 otherwise.
    #[must_use]
    pub fn alpha(mut self, alpha: f32) -> Self {
        self.alpha = alpha;
        self
    }

    /// Sets the factor of c, which is 0 otherwise. With 0, c is not read, so it may hold anything, also NaN.
    #[must_use]
    pub fn beta(mut self, beta: f32) -> Self {
        self.beta = beta;
        self
    }

    /// Adds an element of `bias` to each column of the result.
    #[must_use]
    pub fn bias(mut self, bias: &'a (impl AsView<T> + ?Sized)) -> Self {
        self.bias = Some(bias.view());
        self
    }

    /// Sets the function that is applied last.
    #[must_use]
    pub fn activation(mut self, activation: Activation) -> Self {
        self.activation = activation;
        self
    }
}

/// Element types of products: `f16` and `bf16`. Sums are `f32`, and each result is rounded once.
pub trait Multiply:
    HasGemm<0, 0, 0>
    + HasGemm<0, 0, 1>
    + HasGemm<0, 1, 0>
    + HasGemm<0, 1, 1>
    + HasGemm<1, 0, 0>
    + HasGemm<1, 0, 1>
    + HasGemm<1, 1, 0>
    + HasGemm<1, 1, 1>
    + HasGemmByTensors<0, 0>
    + HasGemmByTensors<0, 1>
    + HasGemmByTensors<1, 0>
    + HasGemmByTensors<1, 1>
{
}
impl Multiply for f16 {}
impl Multiply for bf16 {}

/// Products of matrices, as a method of [`Stream`].
///
/// ```
/// use gpustream::Device;
/// use gpustream::half::f16;
/// use gpustream_kernels::gemm::{Activation, Product};
/// use gpustream_kernels::prelude::*;
///
/// let stream = Device::open("cpu")?.stream()?;
/// let of = |x: &[f32]| stream.upload(&x.iter().map(|&x| f16::from_f32(x)).collect::<Vec<_>>());
/// let (a, b) = (of(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])?, of(&[1.0, 0.0, 0.0, 1.0, 1.0, 1.0])?);
/// let bias = of(&[0.0, -20.0])?;
/// let mut c = stream.alloc(4)?;
/// // Two rows of three by three rows of two.
/// let product = Product::new(2, 2, 3).bias(&bias).activation(Activation::Relu);
/// stream.multiply_matrices(&product, &a, &b, &mut c)?;
/// let c: Vec<f32> = stream.download(&c)?.into_iter().map(f16::to_f32).collect();
/// assert_eq!(c, [4.0, 0.0, 10.0, 0.0]);
/// # Ok::<(), gpustream::Error>(())
/// ```
pub trait MultiplyMatrices {
    /// Computes `c = f(alpha·a·b + beta·c + bias)`, as the [`Product`] says.
    ///
    /// Works in stream order and does not block. On Hopper, it takes 256 bytes of temporary memory for each multiprocessor. Products
    /// are summed in `f32`, in an order that depends only on the device, the shape and whether lines are multiples of 16 bytes. The
    /// error of a sum of k products is at most about k·2⁻²⁴ of the sum of their absolute values (Higham, *Accuracy and Stability of
    /// Numerical Algorithms*, 2002, section 3.1).
    /// NaN and infinities are treated as in a plain loop.
    ///
    /// # Errors
    /// Returns [`ArgumentMismatch`](gpustream::ErrorKind::ArgumentMismatch) if a matrix or the bias is too short,
    /// [`InvalidArgument`](gpustream::ErrorKind::InvalidArgument) if matrices overlap themselves or have more than 10⁹ rows or columns,
    /// and the errors of a launch.
    #[track_caller]
    fn multiply_matrices<T: Multiply + Plain>(
        &self,
        product: &Product<'_, T>,
        a: &(impl AsView<T> + ?Sized),
        b: &(impl AsView<T> + ?Sized),
        c: &mut (impl AsViewMut<T> + ?Sized),
    ) -> Result<()>;
}

/// How a block works, as the kernels' `Form` says.
struct Form {
    rows: usize,
    columns: usize,
    warps: u32,
    shared: u32,
}
const SMALL: Form = Form { rows: 64, columns: 64, warps: 4, shared: 24 << 10 };
const SMALL_ON_CPU: Form = Form { rows: 32, columns: 32, warps: 1, ..SMALL };
const LARGE: Form = Form { rows: 128, columns: 256, warps: 8, shared: 144 << 10 };
/// Eight warps multiply, and a group of four copies. The tiles begin on a boundary of 1 KiB.
const TENSORS: Form = Form { warps: 12, shared: 193 << 10, ..LARGE };
/// What a block needs for the descriptions of a and b.
const MAPS: usize = 256;

/// The kernels of a device.
struct Loaded {
    kernels: Kernels,
    /// True if they were compiled for Hopper. Otherwise `gemm_by_tensors` does nothing, and declares no shared memory.
    has_tensors: bool,
}

impl Loaded {
    fn load(device: &Device) -> Result<Self> {
        let kernels = Kernels::load(device)?;
        let by_tensors = kernels.module().kernel("gemm_by_tensors<gs::half, 0, 0>")?;
        Ok(Self { has_tensors: by_tensors.info().static_shared > 0, kernels })
    }
}

impl Form {
    fn tiles(&self, rows: usize, columns: usize, batch: usize) -> usize {
        (rows.div_ceil(self.rows) * columns.div_ceil(self.columns)).saturating_mul(batch)
    }
}

/// Returns true if each line and each matrix is a whole number of 16-byte pieces.
fn in_pieces<T: Plain>(matrix: &View<'_, T>, place: &Lines) -> bool {
    let is_whole = |elements: usize| (elements * size_of::<T>()).is_multiple_of(16);
    matrix.as_raw().0.is_multiple_of(16)
        && is_whole(place.width as usize)
        && is_whole(place.leading)
        && is_whole(place.stride)
}

/// Returns true if a tensor map can describe these matrices: their addresses and distances are multiples of 16 bytes, and distances
/// are below 2⁴⁰ bytes.
fn suits_tensors<T: Plain>(matrix: &View<'_, T>, place: &Lines) -> bool {
    let suits = |elements: usize| {
        elements.checked_mul(size_of::<T>()).is_some_and(|bytes| bytes.is_multiple_of(16) && bytes < 1 << 40)
    };
    matrix.as_raw().0.is_multiple_of(16)
        && suits(place.leading)
        && suits(place.stride)
        && place.lines > 0
        && place.width > 0
}

#[track_caller]
fn check_length(name: &str, has: usize, needs: usize) -> Result<()> {
    if has < needs {
        return Err(mismatch(
            "multiply_matrices",
            format!("{name} has {has} elements, but the product needs {needs}: give more"),
        ));
    }
    Ok(())
}

impl MultiplyMatrices for Stream {
    fn multiply_matrices<T: Multiply + Plain>(
        &self,
        product: &Product<'_, T>,
        a: &(impl AsView<T> + ?Sized),
        b: &(impl AsView<T> + ?Sized),
        c: &mut (impl AsViewMut<T> + ?Sized),
    ) -> Result<()> {
        let Product { rows, columns, depth, batch, .. } = *product;
        let (a, b, mut c) = (a.view(), b.view(), c.view_mut());
        if [rows, columns, depth, batch].into_iter().any(|size| size > LARGEST) {
            let text = format!("{product:?}: give at most {LARGEST} rows, columns, depth and products");
            return Err(unusable("multiply_matrices", text));
        }
        if rows == 0 || columns == 0 || batch == 0 {
            return Ok(());
        }
        let [stored_a, stored_b, stored_c] = product.stored;
        if stored_c.by_columns {
            let text = "c is stored by columns: compute its transpose, with b as the left factor and a as the right one";
            return Err(unusable("multiply_matrices", text));
        }
        let (of_a, needs_a) = stored_a.place("a", rows, depth, batch)?;
        let (of_b, needs_b) = stored_b.place("b", depth, columns, batch)?;
        let (of_c, needs_c) = stored_c.place("c", rows, columns, batch)?;
        let matrix = (rows - 1) * of_c.leading + columns;
        if batch > 1 && of_c.stride < matrix {
            let text = format!(
                "matrices of c have {matrix} elements, and {} from one to the next: give at least {matrix}",
                of_c.stride
            );
            return Err(unusable("multiply_matrices", text));
        }
        check_length("a", a.len(), needs_a)?;
        check_length("b", b.len(), needs_b)?;
        check_length("c", c.len(), needs_c)?;
        if let Some(bias) = &product.bias {
            check_length("the bias", bias.len(), columns)?;
        }
        let info = self.device().info();
        let loaded = self.device().extension(Loaded::load)?;
        let bias = optional(product.bias.as_ref());
        let tiles = LARGE.tiles(rows, columns, batch);
        let is_large = info.backend == BackendName::CUDA
            && !loaded.has_tensors
            && tiles >= info.multiprocessors as usize
            && LARGE.shared <= info.limits.shared_memory_per_block_optin
            && in_pieces(&a, &of_a)
            && in_pieces(&b, &of_b);
        // With fewer tiles, most multiprocessors would be idle. On an H200 the small tiles are faster at 1024, and slower at 2048.
        let is_by_tensors = loaded.has_tensors
            && tiles.saturating_mul(3) >= info.multiprocessors as usize
            && TENSORS.shared <= info.limits.shared_memory_per_block_optin
            && suits_tensors(&a, &of_a)
            && suits_tensors(&b, &of_b);
        let form = match is_large {
            _ if is_by_tensors => TENSORS,
            true => LARGE,
            false if info.backend == BackendName::CPU => SMALL_ON_CPU,
            false => SMALL,
        };
        // Blocks that get more than one tile take one after another. Those on Hopper copy the next one meanwhile.
        let most = if is_by_tensors { info.multiprocessors as usize } else { 1 << 20 };
        let blocks = form.tiles(rows, columns, batch).min(most) as u32;
        let launch = Launch::exact([blocks, 1, 1], [form.warps * info.warp_size, 1, 1]).shared(form.shared);
        macro_rules! launch {
            ($kernel:ident, [$($choice:literal),*] $(, $more:expr)*) => {
                loaded.kernels.$kernel::<T, $($choice),*>(
                    self,
                    &launch,
                    &a,
                    &b,
                    &mut c,
                    bias,
                    of_a,
                    of_b,
                    of_c,
                    batch as u32,
                    product.alpha,
                    product.beta,
                    product.activation as u32,
                    form.shared,
                    $($more),*
                )
            };
        }
        if is_by_tensors {
            let mut maps = self.alloc(MAPS * blocks as usize)?;
            return match (stored_a.by_columns, stored_b.by_columns) {
                (false, false) => launch!(gemm_by_tensors, [0, 0], &mut maps, blocks),
                (false, true) => launch!(gemm_by_tensors, [0, 1], &mut maps, blocks),
                (true, false) => launch!(gemm_by_tensors, [1, 0], &mut maps, blocks),
                (true, true) => launch!(gemm_by_tensors, [1, 1], &mut maps, blocks),
            };
        }
        match (is_large, stored_a.by_columns, stored_b.by_columns) {
            (false, false, false) => launch!(gemm, [0, 0, 0]),
            (false, false, true) => launch!(gemm, [0, 0, 1]),
            (false, true, false) => launch!(gemm, [0, 1, 0]),
            (false, true, true) => launch!(gemm, [0, 1, 1]),
            (true, false, false) => launch!(gemm, [1, 0, 0]),
            (true, false, true) => launch!(gemm, [1, 0, 1]),
            (true, true, false) => launch!(gemm, [1, 1, 0]),
            (true, true, true) => launch!(gemm, [1, 1, 1]),
        }
    }
}
