//! What follows a product in the same call: a bias and an activation.
//!
//! On the CPU, a worker finishes each tile after it has multiplied it. On GPUs, cuBLASLt or hipBLASLt does all in one call if it can
//! (`lt`). Otherwise a kernel of ours follows the library's product.

use std::ops::Range;

use gpustream::half::{bf16, f16};
use gpustream::{ErrorKind, Result, Stream};

use super::cpu::Operand;
use crate::call::{Address, refusal};
use crate::matrix::MatrixViewMut;
use crate::number::Element;
use crate::vector::VectorView;

/// A function of each element of a product.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Activation {
    /// The element itself.
    #[default]
    None,
    /// The element, or 0 if it is negative.
    Relu,
    /// The Gaussian error linear unit in its tanh form: `x (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2` (Hendrycks and Gimpel,
    /// Gaussian Error Linear Units, section 2).
    Gelu,
}

impl Activation {
    /// Returns the function's value, as the kernel computes it.
    fn of(self, x: f32) -> f32 {
        match self {
            Self::Relu if x < 0.0 => 0.0,
            Self::None | Self::Relu => x,
            Self::Gelu => 0.5 * x * (1.0 + (0.797_884_6 * (x + 0.044_715 * x * x * x)).tanh()),
        }
    }
}

/// Results of products that can have an epilogue: `f32`, `f16` and `bf16`.
pub trait Finished: Element {
    #[doc(hidden)]
    fn to_single(self) -> f32;
    #[doc(hidden)]
    fn of_single(value: f32) -> Self;
    /// Enqueues the kernel.
    #[doc(hidden)]
    #[allow(private_interfaces, reason = "only this crate calls it")]
    fn launch(stream: &Stream, epilogue: &Epilogue<'_, Self>, c: MatrixViewMut<'_, Self>) -> Result<()>;
}

macro_rules! finished {
    ($($element:ty: $wide:expr, $rounded:expr;)*) => {$(
        #[allow(private_interfaces, reason = "as in the trait")]
        impl Finished for $element {
            fn to_single(self) -> f32 {
                $wide(self)
            }

            fn of_single(value: f32) -> Self {
                $rounded(value)
            }

            #[track_caller]
            fn launch(stream: &Stream, epilogue: &Epilogue<'_, Self>, c: MatrixViewMut<'_, Self>) -> Result<()> {
                launch::finish(stream, epilogue, c)
            }
        }
    )*};
}
finished! {
    f32: f32::from, f32::from;
    f16: f16::to_f32, f16::from_f32;
    bf16: bf16::to_f32, bf16::from_f32;
}

/// What follows a product with results of type `C`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Epilogue<'a, C> {
    pub(super) bias: Option<VectorView<'a, C>>,
    pub(super) activation: Activation,
    /// The functions for results of type `C`. Types that can have no epilogue have no such functions.
    steps: Steps<C>,
}

#[derive(Clone, Copy, Debug)]
struct Steps<C> {
    launch: fn(&Stream, &Epilogue<'_, C>, MatrixViewMut<'_, C>) -> Result<()>,
    finish: FinishTile,
}

/// Finishes a tile of one matrix.
type FinishTile = unsafe fn(&TileEpilogue, &Operand, usize, Range<usize>, Range<usize>);

impl<'a, C: Finished> Epilogue<'a, C> {
    /// Returns an epilogue that does nothing.
    pub(super) fn new() -> Self {
        let steps = Steps { launch: C::launch, finish: finish_tile::<C> };
        Self { bias: None, activation: Activation::None, steps }
    }

    pub(super) fn with_bias(self, bias: VectorView<'a, C>) -> Self {
        Self { bias: Some(bias), ..self }
    }

    pub(super) fn with_activation(self, activation: Activation) -> Self {
        Self { activation, ..self }
    }
}

impl<C: Element> Epilogue<'_, C> {
    /// Enqueues the kernel that finishes a product.
    #[track_caller]
    pub(super) fn launch(&self, stream: &Stream, c: MatrixViewMut<'_, C>) -> Result<()> {
        (self.steps.launch)(stream, self, c)
    }

    /// Returns what a worker of the CPU device needs.
    pub(super) fn on_cpu(&self) -> TileEpilogue {
        let bias = self.bias.map(|bias| (Address(bias.memory().as_raw().0), bias.step()));
        TileEpilogue { bias, activation: self.activation, finish: self.steps.finish }
    }
}

/// An epilogue for the CPU device's workers.
#[derive(Clone, Copy)]
pub(super) struct TileEpilogue {
    /// Where the bias is, and the distance between its elements.
    bias: Option<(Address, usize)>,
    activation: Activation,
    finish: FinishTile,
}

impl TileEpilogue {
    /// Finishes a tile of one matrix.
    ///
    /// # Safety
    /// The matrix has elements of the type that the epilogue was made for, the tile is inside it, and nothing else uses the tile.
    pub(super) unsafe fn run(&self, c: &Operand, matrix: usize, rows: Range<usize>, columns: Range<usize>) {
        // SAFETY: by this function's contract.
        unsafe { (self.finish)(self, c, matrix, rows, columns) }
    }
}

/// # Safety
/// As for [`TileEpilogue::run`], and the bias has an element of `C` for each column.
unsafe fn finish_tile<C: Finished>(
    epilogue: &TileEpilogue,
    c: &Operand,
    matrix: usize,
    rows: Range<usize>,
    columns: Range<usize>,
) {
    let one = |i: usize, j: usize| {
        // SAFETY: by this function's contract.
        unsafe {
            let bias =
                epilogue.bias.map_or(0.0, |(bias, step)| (*bias.read::<C>().add(j * step)).to_single());
            let at = c.at::<C>(matrix, i, j);
            *at = C::of_single(epilogue.activation.of((*at).to_single() + bias));
        }
    };
    // Along the contiguous lines.
    if c.column == 1 {
        rows.for_each(|i| columns.clone().for_each(|j| one(i, j)));
    } else {
        columns.for_each(|j| rows.clone().for_each(|i| one(i, j)));
    }
}

/// Refuses what needs a kernel in a build without them.
#[track_caller]
pub(super) fn check_built() -> Result<()> {
    if cfg!(feature = "kernels") {
        return Ok(());
    }
    let text = "an epilogue needs a kernel on this GPU, and gpustream-math was built without them; turn on its feature `kernels`";
    Err(refusal(ErrorKind::Unsupported, "gemm", text.to_owned()))
}

#[cfg(feature = "kernels")]
mod launch {
    use gpustream::{AsView, Result, Stream};

    use super::{Activation, Epilogue};
    use crate::kernels::epilogue::{HasFinish, Kernels};
    use crate::matrix::{MatrixViewMut, Order};
    use crate::number::Element;

    #[track_caller]
    pub(super) fn finish<C: Element + HasFinish>(
        stream: &Stream,
        epilogue: &Epilogue<'_, C>,
        c: MatrixViewMut<'_, C>,
    ) -> Result<()> {
        let kernels = stream.device().extension(Kernels::load)?;
        let place = c.place();
        let (lines, width) = place.lines();
        let bias = epilogue.bias.map(|bias| (bias.memory(), bias.step()));
        let step = bias.map_or(0, |(_, step)| step);
        let (x_step, line_step) = if place.order == Order::RowMajor { (step, 0) } else { (0, step) };
        let bias = bias.as_ref().map(|(memory, _)| memory as &dyn AsView<C>);
        let activation = match epilogue.activation {
            Activation::None => 0,
            Activation::Relu => 1,
            Activation::Gelu => 2,
        };
        kernels.finish(
            stream,
            &mut c.into_memory(),
            place.batch,
            lines,
            width,
            place.stride,
            place.leading,
            bias,
            x_step,
            line_step,
            activation,
        )
    }
}

#[cfg(not(feature = "kernels"))]
mod launch {
    use gpustream::{Result, Stream};

    use super::Epilogue;
    use crate::matrix::MatrixViewMut;

    #[track_caller]
    pub(super) fn finish<C>(_: &Stream, _: &Epilogue<'_, C>, _: MatrixViewMut<'_, C>) -> Result<()> {
        super::check_built()
    }
}

#[cfg(all(test, feature = "kernels"))]
mod tests {
    use gpustream::{Buffer, Device};

    use super::*;
    use crate::blas::{Blas as _, Gemm};
    use crate::matrix::{Layout, MatrixView, Order};

    /// GPUs use the kernel, and the CPU device could.
    #[test]
    fn the_kernel_does_what_the_workers_do() {
        let stream = Device::open("cpu").unwrap().stream().unwrap();
        let (m, n, batch) = (5, 7, 3);
        let x: Vec<f32> = (0..batch * m).map(|at| at as f32 / 8.0 - 1.0).collect();
        let y: Vec<f32> = (0..n).map(|at| at as f32 / 4.0 - 0.5).collect();
        let bias: Vec<f32> = (0..2 * n).map(|at| at as f32 / 16.0 - 0.3).collect();
        let (x, y) = (stream.upload(&x).unwrap(), stream.upload(&y).unwrap());
        let bias = stream.upload(&bias).unwrap();
        let x = MatrixView::with_layout(&x, Layout::new(m, 1).batch(batch)).unwrap();
        let y = MatrixView::new(&y, 1, n).unwrap();
        for order in [Order::RowMajor, Order::ColumnMajor] {
            for activation in [Activation::None, Activation::Relu, Activation::Gelu] {
                let leading = if order == Order::RowMajor { n + 2 } else { m + 1 };
                let layout = Layout::new(m, n).order(order).leading(leading).batch(batch).stride(70);
                let view = |c: &mut Buffer<f32>, with: &dyn Fn(MatrixViewMut<'_, f32>) -> Result<()>| {
                    with(MatrixViewMut::with_layout(c, layout).unwrap()).unwrap();
                };
                let mut got = stream.full(batch * 70, -3.0f32).unwrap();
                let mut want = stream.full(batch * 70, -3.0f32).unwrap();
                let bias = VectorView::with_step(&bias, n, 2).unwrap();
                let epilogue = Epilogue::new().with_bias(bias).with_activation(activation);
                view(&mut got, &|c| stream.gemm(x, y, c));
                view(&mut got, &|c| epilogue.launch(&stream, c));
                let options = Gemm::new().bias(bias).activation(activation);
                view(&mut want, &|c| stream.gemm_with(options, x, y, c));
                let (got, want) = (stream.download(&got).unwrap(), stream.download(&want).unwrap());
                for (at, (got, want)) in got.iter().zip(&want).enumerate() {
                    assert!((got - want).abs() < 1e-6, "{order:?} {activation:?} {at}: {got}, not {want}");
                }
            }
        }
    }
}
