//! Checks a product and enqueues it: on the vendor's library, or in tiles on the CPU device's workers.

use std::ffi::{c_int, c_longlong, c_void};

use gpustream::{Arg, AsView as _, Buffer, ErrorKind, Pitched, Result, Stream, ViewMut};
use smallvec::{SmallVec, smallvec};

use super::call::{Scalars, check_scalars, enqueue, small};
use super::field::Field;
use super::library::{Library, compute};
use super::{Compute, Gemm, conjugate, cpu, epilogue, lt};
use crate::call::{Address, mismatch, refusal};
use crate::matrix::{Layout, MatrixView, MatrixViewMut, Order, Place};
use crate::number::{DataType, Element, Number, Scalar};
use crate::table::Vendor;

/// A product that another routine needs on the CPU device, or if the library would do nothing.
#[track_caller]
pub(super) fn multiply_labelled<T: Field>(
    stream: &Stream,
    label: &'static str,
    options: Gemm<'_, T, T>,
    a: MatrixView<'_, T>,
    b: MatrixView<'_, T>,
    c: MatrixViewMut<'_, T>,
) -> Result<()> {
    let full = if matches!(T::TYPE, DataType::F64 | DataType::C64) { compute::F64 } else { compute::F32 };
    match Library::of(stream)? {
        None => on_cpu(stream, label, options, a, b, c),
        Some(library) => on_library(stream, label, &library, full, options, a, b, c),
    }
}

#[track_caller]
pub(super) fn multiply<A: cpu::Multiply<C, S>, C: Element, S: Number>(
    stream: &Stream,
    full: u32,
    options: Gemm<'_, S, C>,
    a: MatrixView<'_, A>,
    b: MatrixView<'_, A>,
    mut c: MatrixViewMut<'_, C>,
) -> Result<()> {
    let compute = check::<A, C, S>("gemm", full, &options, [a.place(), b.place(), c.place()])?;
    if c.place().is_empty() {
        return Ok(());
    }
    let Some(library) = Library::of(stream)? else {
        return on_cpu(stream, "gemm", options, a, b, c);
    };
    if lt::multiply(stream, &library, compute, &options, a, b, MatrixViewMut::from(&mut c))? {
        return Ok(());
    }
    if options.epilogue.is_some() {
        epilogue::check_built()?;
    }
    on_library(stream, "gemm", &library, compute, options, a, b, MatrixViewMut::from(&mut c))?;
    match options.epilogue {
        None => Ok(()),
        Some(epilogue) => epilogue.launch(stream, c),
    }
}

/// Checks a product, and returns the way to compute it by the library's number.
#[track_caller]
pub(super) fn check<A: Element, C: Element, S: Number>(
    label: &'static str,
    full: u32,
    options: &Gemm<'_, S, C>,
    [a, b, c]: [Place; 3],
) -> Result<u32> {
    check_shapes(label, a, b, c)?;
    let compute = computed(label, full, options.compute, A::TYPE, C::TYPE)?;
    check_scalars(label, &[options.alpha, options.beta])?;
    if let Some(bias) = options.epilogue.and_then(|epilogue| epilogue.bias)
        && bias.len() != c.columns
    {
        let (len, columns) = (bias.len(), c.columns);
        let text =
            format!("a bias of {len} elements for a result of {columns} columns: give one for each column");
        return Err(mismatch(label, text));
    }
    Ok(compute)
}

#[track_caller]
fn check_shapes(label: &'static str, a: Place, b: Place, c: Place) -> Result<()> {
    let fits = a.columns == b.rows && a.rows == c.rows && b.columns == c.columns;
    if !fits {
        let text = format!(
            "a product of {}×{} and {}×{} in a matrix of {}×{}: give m×k and k×n for m×n",
            a.rows, a.columns, b.rows, b.columns, c.rows, c.columns
        );
        return Err(mismatch(label, text));
    }
    if [a.batch, b.batch].into_iter().all(|batch| batch == c.batch || batch == 1) {
        return Ok(());
    }
    let text = format!(
        "products of batches of {} and {} matrices in a batch of {}: give each input as many as the result, or one for all",
        a.batch, b.batch, c.batch
    );
    Err(mismatch(label, text))
}

/// Returns the way to compute by the library's number.
#[track_caller]
fn computed(
    label: &'static str,
    full: u32,
    wanted: Compute,
    input: DataType,
    output: DataType,
) -> Result<u32> {
    match (wanted, input, output) {
        (Compute::Full, ..) => Ok(full),
        (Compute::Tf32, DataType::F32 | DataType::C32, _) => Ok(compute::TF32),
        (Compute::F16, DataType::F16, DataType::F16) => Ok(compute::F16),
        _ => Err(refusal(
            ErrorKind::InvalidArgument,
            label,
            format!(
                "`Compute::{wanted:?}` is not for products of {input:?} in {output:?}; see `Compute` for what it takes"
            ),
        )),
    }
}

#[track_caller]
fn on_cpu<A: cpu::Multiply<C, S>, C: Element, S: Number>(
    stream: &Stream,
    label: &'static str,
    options: Gemm<'_, S, C>,
    a: MatrixView<'_, A>,
    b: MatrixView<'_, A>,
    c: MatrixViewMut<'_, C>,
) -> Result<()> {
    let c_place = c.place();
    let mut c = c.into_memory();
    let product = cpu::Job {
        m: c_place.rows,
        n: c_place.columns,
        k: a.columns(),
        batch: c_place.batch,
        a: cpu::Operand::of_view(&a),
        b: cpu::Operand::of_view(&b),
        c: cpu::Operand::of(c_place, c.view()),
        alpha: cpu::Factor::from(options.alpha),
        beta: cpu::Factor::from(options.beta),
    };
    let epilogue = options.epilogue.map(|epilogue| epilogue.on_cpu());
    let bias = options.epilogue.and_then(|epilogue| Some(epilogue.bias?.memory()));
    let (a, b, scalars) = (a.memory(), b.memory(), [options.alpha, options.beta]);
    let mut memory: SmallVec<[Arg<'_>; 6]> = smallvec![Arg::read(&a), Arg::read(&b), Arg::write(&mut c)];
    memory.extend(scalars.iter().filter_map(|scalar| match scalar {
        Scalar::Host(_) => None,
        Scalar::Device(view) => Some(Arg::read(view)),
    }));
    memory.extend(bias.iter().map(|bias| Arg::read(bias)));
    let tiles = cpu::Tiles::of(&product, stream.device().info().multiprocessors);
    // SAFETY: the parts read `a`, `b`, the scalars and the bias, and write `c`, each its own tiles. The addresses are those of
    // `memory`, and the matrices are within it.
    unsafe {
        stream.external_parallel(label, &memory[..], tiles.parts(), move |part, ()| {
            tiles.run::<A, C, S>(&product, epilogue.as_ref(), part);
        })
    }
}

/// What decides, with the memory, what a library enqueues for a product. All matrices have contiguous columns, as the libraries
/// want them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Call {
    /// What the library does with the inputs first.
    ops: [u32; 2],
    /// m, n and k.
    size: [usize; 3],
    leading: [usize; 3],
    stride: [usize; 3],
    batch: usize,
    types: [DataType; 2],
    compute: u32,
}

#[track_caller]
fn on_library<A: Element, C: Element, S: Number>(
    stream: &Stream,
    label: &'static str,
    library: &Library,
    compute: u32,
    options: Gemm<'_, S, C>,
    a: MatrixView<'_, A>,
    b: MatrixView<'_, A>,
    c: MatrixViewMut<'_, C>,
) -> Result<()> {
    // If the rows of `c` are contiguous, we compute its transpose, the product of the transposed inputs in the other order.
    let (a, b, c) = if c.place().order == Order::RowMajor { (b.t(), a.t(), c.t()) } else { (a, b, c) };
    if needs_padding(library, &a, &b, &c) {
        return on_padded(stream, label, library, compute, options, (a, b), c);
    }
    let (a_copy, b_copy) = (
        conjugate::copy_unless(stream, label, library, &a, Order::RowMajor)?,
        conjugate::copy_unless(stream, label, library, &b, Order::RowMajor)?,
    );
    let (a, b) = (conjugate::choose(a, a_copy.as_ref())?, conjugate::choose(b, b_copy.as_ref())?);
    let call = Call::new(library, &a, &b, (c.place(), C::TYPE), compute);
    let mut c = c.into_memory();
    let scalars = Scalars::of_product(stream, [options.alpha, options.beta], compute)?;
    let (a, b) = (a.memory(), b.memory());
    let to = Address(c.view().as_raw().0);
    // Inputs without elements may have no address, and cuBLAS still looks at it.
    let from = if call.size[2] == 0 { [to; 2] } else { [&a, &b].map(|view| Address(view.as_raw().0)) };
    let memory = smallvec![Arg::read(&a), Arg::read(&b), Arg::write(&mut c)];
    // SAFETY: the product goes to the library's stream, reads `a`, `b` and the scalars, and writes `c`. It depends on nothing but
    // `call` and that.
    unsafe {
        enqueue(stream, label, library, &scalars, call, memory, |state, at| {
            call.make(library, state, from, to, at)
        })
    }
}

impl Call {
    pub(super) fn new<A: Element>(
        library: &Library,
        a: &MatrixView<'_, A>,
        b: &MatrixView<'_, A>,
        (c, output): (Place, DataType),
        compute: u32,
    ) -> Self {
        let op = |matrix: &MatrixView<'_, A>| {
            library.api.settings().op(matrix.order() == Order::RowMajor, matrix.is_conjugated())
        };
        let places = [a.place(), b.place(), c];
        Self {
            ops: [op(a), op(b)],
            size: [c.rows, c.columns, a.columns()],
            leading: places.map(|place| place.leading.max(1)),
            stride: places.map(|place| place.matrix_step()),
            batch: c.batch,
            types: [A::TYPE, output],
            compute,
        }
    }

    /// Calls the library for matrices anywhere in memory.
    ///
    /// # Safety
    /// As for [`make`](Self::make), with arrays of addresses on the device. All numbers fit C's `int`.
    pub(super) unsafe fn make_each(
        &self,
        library: &Library,
        handle: *mut c_void,
        [a, b, c]: [Address; 3],
        [alpha, beta]: [*const c_void; 2],
    ) -> Result<()> {
        let (api, settings) = (library.api, library.api.settings());
        let [op_a, op_b] = self.ops;
        let [input, output] = self.types.map(|number| number as u32);
        let [m, n, k] = self.size.map(|size| size as c_int);
        let [la, lb, lc] = self.leading.map(|leading| leading as c_int);
        let (compute, default) = (api.compute(self.compute), settings.default);
        // SAFETY: by this function's contract; scalars of the host are read before the call returns.
        unsafe {
            api.gemm_each(
                handle,
                op_a,
                op_b,
                m,
                n,
                k,
                alpha,
                a.read(),
                input,
                la,
                b.read(),
                input,
                lb,
                beta,
                c.read(),
                output,
                lc,
                self.batch as c_int,
                compute,
                default,
            )
        }
    }

    /// Calls the library.
    ///
    /// # Safety
    /// The handle is set up, and the addresses are those of the matrices and the scalars.
    unsafe fn make(
        &self,
        library: &Library,
        handle: *mut c_void,
        [a, b]: [Address; 2],
        c: Address,
        [alpha, beta]: [*const c_void; 2],
    ) -> Result<()> {
        let (api, settings) = (library.api, library.api.settings());
        let [op_a, op_b] = self.ops;
        let [input, output] = self.types.map(|number| number as u32);
        let (a, b, c) = (a.read(), b.read(), c.write());
        let (compute, default) = (api.compute(self.compute), settings.default);
        let [sa, sb, sc] = self.stride.map(|stride| stride as c_longlong);
        // SAFETY: by this function's contract; scalars of the host are read before the call returns.
        unsafe {
            if let (Some([m, n, k]), Some([la, lb, lc]), Some([batch])) =
                (small(self.size), small(self.leading), small([self.batch]))
            {
                if batch == 1 {
                    return api.gemm(
                        handle, op_a, op_b, m, n, k, alpha, a, input, la, b, input, lb, beta, c, output, lc,
                        compute, default,
                    );
                }
                return api.gemm_batched(
                    handle, op_a, op_b, m, n, k, alpha, a, input, la, sa, b, input, lb, sb, beta, c, output,
                    lc, sc, batch, compute, default,
                );
            }
            let [m, n, k] = self.size.map(|size| size as i64);
            let [la, lb, lc] = self.leading.map(|leading| leading as i64);
            api.gemm_batched_64(
                handle,
                op_a,
                op_b,
                m,
                n,
                k,
                alpha,
                a,
                input,
                la,
                sa,
                b,
                input,
                lb,
                sb,
                beta,
                c,
                output,
                lc,
                sc,
                self.batch as i64,
                compute,
                default,
            )
        }
    }
}

/// cuBLAS takes any `i8` only if sizes, leading dimensions and addresses are multiples of this: with multiples of 16 it refuses
/// some, such as 32×48×16 (cuBLAS 13.0 on an H200, all sizes up to 144 tried).
const UNIT: usize = 32;

/// Returns true if the library refuses such a product where its matrices are.
pub(super) fn needs_padding<A: Element, C: Element>(
    library: &Library,
    a: &MatrixView<'_, A>,
    b: &MatrixView<'_, A>,
    c: &MatrixViewMut<'_, C>,
) -> bool {
    let fits = |place: Place, address: usize| {
        [place.rows, place.columns, place.leading, place.matrix_step(), address]
            .iter()
            .all(|number| number % UNIT == 0)
    };
    let inputs = [a, b].iter().all(|matrix| fits(matrix.place(), matrix.memory().as_raw().0));
    let is_fit = inputs && a.columns() > 0 && fits(c.place(), 0);
    library.api.vendor == Vendor::Nvidia && A::TYPE == DataType::I8 && !is_fit
}

/// Multiplies copies with zeros at the ends of all lines, which change no sum.
#[track_caller]
fn on_padded<A: Element, C: Element, S: Number>(
    stream: &Stream,
    label: &'static str,
    library: &Library,
    compute: u32,
    options: Gemm<'_, S, C>,
    (a, b): (MatrixView<'_, A>, MatrixView<'_, A>),
    mut c: MatrixViewMut<'_, C>,
) -> Result<()> {
    let ((a_copy, a_layout), (b_copy, b_layout)) = (padded(stream, a, true)?, padded(stream, b, true)?);
    let is_read = !matches!(options.beta, Scalar::Host(beta) if beta == S::ZERO);
    let (mut product, layout) = padded(stream, c.as_view(), is_read)?;
    let (a, b) = (MatrixView::with_layout(&a_copy, a_layout)?, MatrixView::with_layout(&b_copy, b_layout)?);
    on_library(
        stream,
        label,
        library,
        compute,
        options,
        a,
        b,
        MatrixViewMut::with_layout(&mut product, layout)?,
    )?;
    let (place, product) = (c.place(), MatrixView::with_layout(&product, layout)?);
    for index in 0..place.batch {
        let to = MatrixViewMut::from(&mut c).matrix(index)?;
        copy_lines(stream, product.matrix(index)?, &mut to.into_memory(), place)?;
    }
    Ok(())
}

/// Allocates zeros for a matrix with as many lines, of such a length, as the library takes. Copies the matrix there if it
/// `is_read`.
#[track_caller]
fn padded<T: Element>(
    stream: &Stream,
    matrix: MatrixView<'_, T>,
    is_read: bool,
) -> Result<(Buffer<T>, Layout)> {
    let place = matrix.place();
    let up = |len: usize| len.next_multiple_of(UNIT).max(UNIT);
    let layout = Layout::new(up(place.rows), up(place.columns)).order(place.order).batch(place.batch);
    let mut copy = stream.zeros::<T>(place.batch * up(place.rows) * up(place.columns))?;
    if is_read && !place.is_empty() {
        for index in 0..place.batch {
            let to = MatrixViewMut::with_layout(&mut copy, layout)?.matrix(index)?;
            let into = to.place();
            copy_lines(stream, matrix.matrix(index)?, &mut to.into_memory(), into)?;
        }
    }
    Ok((copy, layout))
}

/// Copies the lines that two matrices of one order have in common.
#[track_caller]
fn copy_lines<T: Element>(
    stream: &Stream,
    from: MatrixView<'_, T>,
    to: &mut ViewMut<'_, T>,
    place: Place,
) -> Result<()> {
    let ((lines, width), (most, widest)) = (from.place().lines(), place.lines());
    let extent = [width.min(widest), lines.min(most), 1];
    let (source, target) = (Pitched::new_2d(from.place().leading), Pitched::new_2d(place.leading));
    stream.copy_box(&from.memory(), source, to, target, extent)
}
