//! Routines take the conjugate transpose of a matrix, for each storage order of all matrices.

use std::any::type_name;

use conformance::{refused, tests};
use gpustream::{Device, ErrorKind, Result, Stream};
use gpustream_math::Complex;
use gpustream_math::blas::Field;
use gpustream_math::prelude::*;

use crate::numbers::{Value, fractions, whole};
use crate::routines::is_inside;

tests! {
    Warps: conjugated_inputs_multiply_exactly, conjugated_batches_multiply_in_pairs, conjugated_matrices_times_vectors_are_exact,
        conjugated_triangles_solve_and_multiply, captures_and_steps_give_the_same_bits;
    Plain: routines_that_cannot_conjugate_refuse_it;
}

type C64 = Complex<f64>;

const ORDERS: [Order; 2] = [Order::RowMajor, Order::ColumnMajor];

/// What becomes of a matrix before it is multiplied.
const FORMS: [(bool, bool); 4] = [(false, false), (true, false), (false, true), (true, true)];

fn form<T: Field>(a: MatrixView<'_, T>, (is_transposed, is_conjugated): (bool, bool)) -> MatrixView<'_, T> {
    match (is_transposed, is_conjugated) {
        (false, false) => a,
        (true, false) => a.t(),
        (true, true) => a.h(),
        (false, true) => a.h().t(),
    }
}

/// A matrix on the host, whose elements may be conjugated.
struct Host<T> {
    values: Vec<T>,
    rows: usize,
    columns: usize,
    order: Order,
    is_conjugated: bool,
}

impl<T: Value> Host<T> {
    /// Makes a matrix whose form has so many rows and columns.
    fn new(
        rows: usize,
        columns: usize,
        order: Order,
        (is_transposed, is_conjugated): (bool, bool),
        seed: u64,
    ) -> Self {
        let order = match (is_transposed, order) {
            (false, order) => order,
            (true, Order::RowMajor) => Order::ColumnMajor,
            (true, Order::ColumnMajor) => Order::RowMajor,
        };
        Self { values: whole(rows * columns, seed), rows, columns, order, is_conjugated }
    }

    /// Returns the layout before the transposition.
    fn layout(&self, (is_transposed, _): (bool, bool)) -> Layout {
        if is_transposed {
            let order = if self.order == Order::RowMajor { Order::ColumnMajor } else { Order::RowMajor };
            Layout::new(self.columns, self.rows).order(order)
        } else {
            Layout::new(self.rows, self.columns).order(self.order)
        }
    }

    fn index(&self, i: usize, j: usize) -> usize {
        if self.order == Order::RowMajor { i * self.columns + j } else { i + j * self.rows }
    }

    fn at(&self, i: usize, j: usize) -> C64 {
        let stored = self.values[self.index(i, j)].wide();
        if self.is_conjugated { stored.conj() } else { stored }
    }
}

macro_rules! for_all_fields {
    ($function:ident($($argument:expr),*)) => {{
        $function::<f32>($($argument),*)?;
        $function::<f64>($($argument),*)?;
        $function::<Complex<f32>>($($argument),*)?;
        $function::<Complex<f64>>($($argument),*)
    }};
}

fn conjugated_inputs_multiply_exactly(device: &Device) -> Result<()> {
    fn of<T: Field + Value + gpustream_math::blas::Product<T, Scalar = T>>(s: &Stream) -> Result<()> {
        for [m, n, k] in [[1, 1, 1], [5, 7, 3], [1, 9, 4], [6, 1, 8], [70, 65, 33]] {
            for (at, (fa, fb)) in FORMS.into_iter().flat_map(|fa| FORMS.map(|fb| (fa, fb))).enumerate() {
                for kind in 0..8 {
                    let order = |bit: usize| ORDERS[kind >> bit & 1];
                    let (a, b) =
                        (Host::<T>::new(m, k, order(0), fa, 1), Host::<T>::new(k, n, order(1), fb, 2));
                    let c = Host::<T>::new(m, n, order(2), (false, false), 3);
                    let (da, db, mut dc) = (s.upload(&a.values)?, s.upload(&b.values)?, s.upload(&c.values)?);
                    let alpha = T::of(C64::new(2.0, if T::COMPLEX { 1.0 } else { 0.0 }));
                    s.gemm_with(
                        Gemm::new().alpha(alpha).beta(T::ONE),
                        form(MatrixView::with_layout(&da, a.layout(fa))?, fa),
                        form(MatrixView::with_layout(&db, b.layout(fb))?, fb),
                        MatrixViewMut::with_layout(&mut dc, c.layout((false, false)))?,
                    )?;
                    let got = s.download(&dc)?;
                    for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
                        let sum: C64 = (0..k).map(|l| a.at(i, l) * b.at(l, j)).sum();
                        let want = sum * alpha.wide() + c.at(i, j);
                        let got = got[c.index(i, j)].wide();
                        assert_eq!(got, want, "{} {m}×{n}×{k} {at} {kind} ({i}, {j})", type_name::<T>());
                    }
                }
            }
        }
        Ok(())
    }
    let s = &device.stream()?;
    for_all_fields!(of(s))
}

fn conjugated_batches_multiply_in_pairs(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let (m, n, k, batch) = (4, 6, 5, 3);
    let (a, b) = (whole::<Complex<f32>>(batch * m * k, 1), whole::<Complex<f32>>(k * n, 2));
    let (da, db, mut dc) = (s.upload(&a)?, s.upload(&b)?, s.alloc::<Complex<f32>>(batch * m * n)?);
    // In this order of `a`, the vendors' libraries get copies.
    let ma = MatrixView::with_layout(&da, Layout::new(k, m).order(Order::ColumnMajor).batch(batch))?.h();
    // One matrix for all, as a batch that does not move.
    let mb = MatrixView::with_layout(&db, Layout::new(k, n).batch(batch).stride(0))?.h().t();
    s.gemm(ma, mb, MatrixViewMut::with_layout(&mut dc, Layout::new(m, n).batch(batch))?)?;
    let got = s.download(&dc)?;
    for (at, got) in got.into_iter().enumerate() {
        let (index, i, j) = (at / (m * n), at / n % m, at % n);
        let sum: C64 = (0..k).map(|l| (a[(index * m + i) * k + l] * b[l * n + j]).wide().conj()).sum();
        assert_eq!(got.wide(), sum, "element {at}");
    }
    Ok(())
}

fn conjugated_matrices_times_vectors_are_exact(device: &Device) -> Result<()> {
    fn of<T: Field + Value>(s: &Stream) -> Result<()> {
        for (m, n) in [(1, 1), (5, 3), (40, 70)] {
            for (kind, fa) in FORMS.into_iter().flat_map(|fa| [(0, fa), (1, fa)]) {
                let a = Host::<T>::new(m, n, ORDERS[kind], fa, 1);
                let x = whole::<T>(n, 2);
                let (da, dx, mut dy) = (s.upload(&a.values)?, s.upload(&x)?, s.alloc::<T>(m)?);
                let view = form(MatrixView::with_layout(&da, a.layout(fa))?, fa);
                s.gemv(T::ONE, view, &dx, T::ZERO, &mut dy)?;
                let want: Vec<T> =
                    (0..m).map(|i| T::of((0..n).map(|j| a.at(i, j) * x[j].wide()).sum())).collect();
                assert_eq!(s.download(&dy)?, want, "{} {m}×{n} {kind} {fa:?}", type_name::<T>());
            }
        }
        // Nothing to add up.
        let (none, mut y) = (s.upload::<T>(&[])?, s.full(3, T::ONE)?);
        s.gemv(T::ONE, MatrixView::new(&none, 0, 3)?.h(), &none, T::ZERO, &mut y)?;
        assert_eq!(s.download(&y)?, [T::ZERO; 3]);
        Ok(())
    }
    let s = &device.stream()?;
    for_all_fields!(of(s))
}

/// The bounds are those of triangles that are not conjugated.
fn conjugated_triangles_solve_and_multiply(device: &Device) -> Result<()> {
    fn of<T: Field + Value>(s: &Stream) -> Result<()> {
        for (m, n) in [(1, 1), (5, 3), (70, 9), (130, 5)] {
            for (kind, fa) in (0..16).flat_map(|kind| FORMS.map(|fa| (kind, fa))) {
                let triangle = if kind % 2 == 0 { Triangle::Lower } else { Triangle::Upper };
                let diagonal = if kind % 4 < 2 { Diagonal::Stored } else { Diagonal::Ones };
                let mut a = Host::<T>::new(m, m, ORDERS[kind / 4 % 2], fa, 1);
                a.values = fractions(m * m, 1);
                for (i, j) in (0..m).flat_map(|i| (0..m).map(move |j| (i, j))) {
                    let at = a.index(i, j);
                    let is_inside = if triangle == Triangle::Lower { j <= i } else { j >= i };
                    let stored = a.values[at].wide();
                    a.values[at] = T::of(match (is_inside, i == j) {
                        (false, _) => C64::new(f64::NAN, 0.0),
                        (true, true) if diagonal == Diagonal::Ones => C64::new(f64::NAN, 0.0),
                        (true, true) => stored + 2.0,
                        (true, false) => stored / m as f64,
                    });
                }
                let mut b = Host::<T>::new(m, n, ORDERS[kind / 8], (false, false), 2);
                b.values = fractions(m * n, 2);
                let (da, mut db) = (s.upload(&a.values)?, s.upload(&b.values)?);
                let view = form(MatrixView::with_layout(&da, a.layout(fa))?, fa);
                let to = b.layout((false, false));
                s.trmm(T::ONE, triangle, diagonal, view, MatrixViewMut::with_layout(&mut db, to)?)?;
                let product = s.download(&db)?;
                let bound = (m as f64 + 4.0) * 4.0 * T::ROUNDOFF;
                let what = format!("{} {m}×{n} {kind} {fa:?}", type_name::<T>());
                for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
                    let factor = |l: usize| match (i == l, diagonal) {
                        (true, Diagonal::Ones) => C64::new(1.0, 0.0),
                        _ if is_inside(triangle, i, l) => a.at(i, l),
                        _ => C64::new(0.0, 0.0),
                    };
                    let sum: C64 = (0..m).map(|l| factor(l) * b.at(l, j)).sum();
                    let size: f64 = (0..m).map(|l| factor(l).norm() * b.at(l, j).norm()).sum();
                    let off = (product[b.index(i, j)].wide() - sum).norm();
                    assert!(off <= bound * size, "({i}, {j}): {off:e} of {size:e}; {what}");
                }
                s.trsm(T::ONE, triangle, diagonal, view, MatrixViewMut::with_layout(&mut db, to)?)?;
                for (back, b) in s.download(&db)?.iter().zip(&b.values) {
                    let off = (back.wide() - b.wide()).norm();
                    assert!(off <= 16.0 * bound, "{back:?}, not {b:?}; {what}");
                }
            }
        }
        Ok(())
    }
    let s = &device.stream()?;
    for_all_fields!(of(s))
}

fn captures_and_steps_give_the_same_bits(device: &Device) -> Result<()> {
    let s = device.stream()?;
    gpustream_math::prepare(device)?;
    let (m, n) = (9, 20);
    let a = s.upload(&fractions::<Complex<f32>>(m * n, 1))?;
    let mut c = s.alloc::<Complex<f32>>(m * m)?;
    // Once as the libraries take it, and once with a copy.
    let work = |s: &Stream, c: &mut gpustream::Buffer<Complex<f32>>| {
        let a = MatrixView::new(&a, m, n)?;
        s.gemm(a, a.h(), MatrixViewMut::new(c, m, m)?)?;
        let options = Gemm::new().beta(Complex::new(1.0, 0.0));
        s.gemm_with(options, a.h().t(), a.t(), MatrixViewMut::new(c, m, m)?)
    };
    work(&s, &mut c)?;
    let plain = s.download(&c)?;
    let graph = s.capture(|s| work(s, &mut c))?;
    graph.launch(&s)?;
    assert_eq!(s.download(&c)?, plain);
    let mut step = device.replay();
    for round in 0..4 {
        s.fill(&mut c, Complex::new(f32::NAN, 0.0))?;
        step.run(&s, |s| work(s, &mut c))?;
        assert_eq!(s.download(&c)?, plain, "run {round}");
    }
    Ok(())
}

fn routines_that_cannot_conjugate_refuse_it(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let x = s.zeros::<Complex<f32>>(12)?;
    let a = MatrixView::new(&x, 3, 4)?;
    let mut c = s.zeros::<Complex<f32>>(16)?;
    let (one, zero) = (Complex::new(1.0, 0.0), Complex::new(0.0, 0.0));
    let to = MatrixViewMut::new(&mut c, 4, 4)?;
    refused(s.syrk(one, a.h(), zero, Triangle::Lower, to), ErrorKind::Unsupported, &["call `herk`"]);
    refused(a.h().row(0), ErrorKind::Unsupported, &["before `.h()`"]);
    refused(a.h().column(0), ErrorKind::Unsupported, &["before `.h()`"]);
    assert!(a.h().is_conjugated() && !a.h().h().is_conjugated() && a.h().t().is_conjugated());
    assert!(a.h().part(1.., ..2)?.is_conjugated());
    // Real numbers have no imaginary part.
    let real = s.zeros::<f32>(12)?;
    let a = MatrixView::new(&real, 3, 4)?;
    assert!(!a.h().is_conjugated());
    assert_eq!((a.h().rows(), a.h().order()), (4, Order::ColumnMajor));
    a.h().row(0)?;
    Ok(())
}
