//! Products of matrices. Matrix cores compute them if the device has them, and bias and activation are added in the same pass.

mod forms;
mod group;

use std::fmt;

use gpustream::half::{bf16, f16};
use gpustream::{AsView, AsViewMut, Plain, Result, Stream, View, ViewMut};

use self::forms::{Call, Launched, Storage};
use crate::call::{mismatch, unusable};

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
    fn place(self, name: &str, rows: usize, columns: usize, batch: usize) -> Result<(Storage, usize)> {
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
        Ok((Storage { lines: lines as u32, width: width as u32, leading, stride }, span))
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
pub struct Product<'a, T: Multiply> {
    rows: usize,
    columns: usize,
    depth: usize,
    batch: usize,
    stored: [Stored; 3],
    alpha: T::Sum,
    beta: T::Sum,
    bias: Option<View<'a, T::Output>>,
    activation: Activation,
    allows_tf32: bool,
}

impl<T: Multiply> fmt::Debug for Product<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rows, columns, depth, batch, .. } = self;
        write!(f, "Product({batch} of {rows}×{depth} by {depth}×{columns})")
    }
}

impl<'a, T: Multiply> Product<'a, T> {
    /// Returns `c = a·b`: a has `rows` rows of `depth` elements, b has `depth` rows of `columns`, and c has `rows` rows of `columns`.
    #[must_use]
    pub fn new(rows: usize, columns: usize, depth: usize) -> Self {
        Self {
            rows,
            columns,
            depth,
            batch: 1,
            stored: [Stored::rows(); 3],
            alpha: 1.into(),
            beta: 0.into(),
            bias: None,
            activation: Activation::None,
            allows_tf32: false,
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
    pub fn alpha(mut self, alpha: T::Sum) -> Self {
        self.alpha = alpha;
        self
    }

    /// Sets the factor of c, which is 0 otherwise. With 0, c is not read, so it may hold anything, also NaN.
    #[must_use]
    pub fn beta(mut self, beta: T::Sum) -> Self {
        self.beta = beta;
        self
    }

    /// Adds an element of `bias` to each column of the result.
    #[must_use]
    pub fn bias(mut self, bias: &'a (impl AsView<T::Output> + ?Sized)) -> Self {
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

impl Product<'_, f32> {
    /// Allows matrix cores to round factors to ten bits of fraction: TF32, on NVIDIA GPUs from Ampere on. The error of a sum may then be
    /// 2⁻¹⁰ of the sum of the products' absolute values, besides that of `f32`. Other devices, and small products, ignore this.
    #[must_use]
    pub fn allow_tf32(mut self) -> Self {
        self.allows_tf32 = true;
        self
    }
}

/// Element types of factors.
///
/// | factors | results | sums, alpha and beta | on matrix cores of |
/// |---|---|---|---|
/// | `f16`, `bf16` | the same, rounded once | `f32` | NVIDIA and AMD |
/// | `i8` | `i32` | `i32`, which wrap around | NVIDIA and AMD |
/// | `f64` | `f64` | `f64` | NVIDIA from Ampere on, gfx90a, gfx942 |
/// | `f32` | `f32` | `f32` | [on request](Product::allow_tf32) |
pub trait Multiply: Plain + Launched {
    /// The elements of the result and of the bias.
    type Output: Plain;
    /// The type of the sums, of alpha and of beta.
    type Sum: Plain + From<i8>;
}
impl Multiply for f16 {
    type Output = Self;
    type Sum = f32;
}
impl Multiply for bf16 {
    type Output = Self;
    type Sum = f32;
}
impl Multiply for i8 {
    type Output = i32;
    type Sum = i32;
}
impl Multiply for f32 {
    type Output = Self;
    type Sum = Self;
}
impl Multiply for f64 {
    type Output = Self;
    type Sum = Self;
}

/// One product of [`multiply_matrices_grouped`](MultiplyMatrices::multiply_matrices_grouped), with its matrices.
#[derive(Debug)]
pub struct Grouped<'a, T: Multiply> {
    product: Product<'a, T>,
    a: View<'a, T>,
    b: View<'a, T>,
    c: ViewMut<'a, T::Output>,
}

impl<'a, T: Multiply> Grouped<'a, T> {
    /// Returns a product with its matrices, as [`multiply_matrices`](MultiplyMatrices::multiply_matrices) takes them. The results of a
    /// group are separate, because each is borrowed for writing.
    #[must_use]
    pub fn new(
        product: Product<'a, T>,
        a: &'a (impl AsView<T> + ?Sized),
        b: &'a (impl AsView<T> + ?Sized),
        c: &'a mut (impl AsViewMut<T::Output> + ?Sized),
    ) -> Self {
        Self { product, a: a.view(), b: b.view(), c: c.view_mut() }
    }
}

/// Products of matrices, as methods of [`Stream`].
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
    /// Works in stream order and does not block. Temporary memory: on Hopper, `f16` and `bf16` take 256 bytes for each multiprocessor.
    /// On GPUs, `i8` takes copies of factors unless their lines run along the depth (a by rows, b by columns) on boundaries of 16 bytes,
    /// and large products of `f64` and with TF32 do so too; large products of `f32` take copies unless a is stored by columns and b
    /// by rows. The CPU takes 1.1 MiB for each worker, and twice that for `f64`.
    ///
    /// The order of the sums depends only on the device, the shape, and whether lines are multiples of 16 bytes. The error of a sum
    /// of k products is at most about k·u of the sum of their absolute values, if u is 2⁻²⁴ for sums in `f32` and 2⁻⁵³ for sums in
    /// `f64` (Higham, *Accuracy and Stability of Numerical Algorithms*, 2002, section 3.1).
    /// NaN and infinities are treated as in a plain loop.
    ///
    /// # Errors
    /// Returns [`ArgumentMismatch`](gpustream::ErrorKind::ArgumentMismatch) if a matrix or the bias is too short,
    /// [`InvalidArgument`](gpustream::ErrorKind::InvalidArgument) if matrices overlap themselves or have more than 10⁹ rows or columns,
    /// or if the function is gelu and the elements are integers, and the errors of a launch.
    #[track_caller]
    fn multiply_matrices<T: Multiply>(
        &self,
        product: &Product<'_, T>,
        a: &(impl AsView<T> + ?Sized),
        b: &(impl AsView<T> + ?Sized),
        c: &mut (impl AsViewMut<T::Output> + ?Sized),
    ) -> Result<()>;

    /// Computes several products, which may differ in everything: shapes, orders of storage, scalars. On GPUs, one launch computes up
    /// to 28 products of `f32`, or of `f16` and `bf16` if they are stored in the same order. So many small products take little more
    /// time than one, and none waits for another. A product that fills the device by itself gets a launch of its own, and so does each
    /// on the CPU and each of the other types.
    ///
    /// Works in stream order and does not block. No product of the group sees the result of another one. Each has the error that
    /// [`multiply_matrices`](Self::multiply_matrices) documents. In a run of a [`Replay`](gpustream::Replay), such a launch ends a
    /// segment.
    ///
    /// ```
    /// use gpustream::Device;
    /// use gpustream_kernels::gemm::{Grouped, Product};
    /// use gpustream_kernels::prelude::*;
    ///
    /// let stream = Device::open("cpu")?.stream()?;
    /// let x = stream.upload(&[1.0_f32, 2.0, 3.0, 4.0])?;
    /// let (mut square, mut dot) = (stream.alloc(4)?, stream.alloc(1)?);
    /// stream.multiply_matrices_grouped([
    ///     Grouped::new(Product::new(2, 2, 2), &x, &x, &mut square),
    ///     Grouped::new(Product::new(1, 1, 4), &x, &x, &mut dot),
    /// ])?;
    /// assert_eq!(stream.download(&square)?, [7.0, 10.0, 15.0, 22.0]);
    /// assert_eq!(stream.download(&dot)?, [30.0]);
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`multiply_matrices`](Self::multiply_matrices), with the number of the product. If a shape or a length is wrong, no
    /// product is computed.
    #[track_caller]
    fn multiply_matrices_grouped<'a, T: Multiply>(
        &self,
        products: impl IntoIterator<Item = Grouped<'a, T>>,
    ) -> Result<()>;
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

impl<'a, T: Multiply> Grouped<'a, T> {
    /// Checks a product. Returns `None` if it has no results.
    #[track_caller]
    fn checked(self, stream: &'a Stream) -> Result<Option<Call<'a, T>>> {
        let Self { product, a, b, c } = self;
        let Product { rows, columns, depth, batch, .. } = product;
        if [rows, columns, depth, batch].into_iter().any(|size| size > LARGEST) {
            let text = format!("{product:?}: give at most {LARGEST} rows, columns, depth and products");
            return Err(unusable("multiply_matrices", text));
        }
        if rows == 0 || columns == 0 || batch == 0 {
            return Ok(None);
        }
        if size_of::<T>() == 1 && product.activation == Activation::Gelu {
            let text = "gelu has no meaning for integers: use relu, or multiply floats";
            return Err(unusable("multiply_matrices", text));
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
        Ok(Some(Call {
            stream,
            size: [rows, columns, batch],
            a: (a, of_a),
            b: (b, of_b),
            c: (c, of_c),
            by_columns: [stored_a.by_columns, stored_b.by_columns],
            alpha: product.alpha,
            beta: product.beta,
            bias: product.bias,
            activation: product.activation as u32,
            allows_tf32: product.allows_tf32,
        }))
    }
}

impl MultiplyMatrices for Stream {
    fn multiply_matrices<T: Multiply>(
        &self,
        product: &Product<'_, T>,
        a: &(impl AsView<T> + ?Sized),
        b: &(impl AsView<T> + ?Sized),
        c: &mut (impl AsViewMut<T::Output> + ?Sized),
    ) -> Result<()> {
        let call = Grouped::new(product.clone(), a, b, c).checked(self)?;
        call.map_or(Ok(()), T::launch)
    }

    fn multiply_matrices_grouped<'a, T: Multiply>(
        &self,
        products: impl IntoIterator<Item = Grouped<'a, T>>,
    ) -> Result<()> {
        let mut calls = Vec::new();
        for (at, product) in products.into_iter().enumerate() {
            let call = product.checked(self).map_err(|error| error.with_context(format!("product {at}")))?;
            calls.extend(call);
        }
        T::launch_group(self, calls)
    }
}
