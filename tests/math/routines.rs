//! All BLAS routines except products are what plain loops compute, for each type, layout and triangle.

use std::any::type_name;

use conformance::{refused, tests};
use gpustream::{Buffer, Device, ErrorKind, Result, Stream};
use gpustream_math::Complex;
use gpustream_math::blas::Field;
use gpustream_math::prelude::*;

use crate::numbers::{Value, fractions, whole};

tests! {
    Warps: matrices_times_vectors_are_exact, products_of_vectors_are_added, only_one_triangle_is_written,
        triangles_solve_and_multiply, hard_triangles_have_small_residuals, sums_of_vectors_stay_on_the_device, vectors_are_scaled_and_added,
        vectors_are_rotated, norms_do_not_overflow, hermitian_products_write_one_triangle,
        rotations_are_made_on_the_device;
    Plain: scalars_of_routines_can_be_on_the_device, captures_and_steps_give_the_same_bits,
        routines_that_do_not_fit_are_refused;
}

type C64 = Complex<f64>;

macro_rules! for_all_fields {
    ($function:ident($($argument:expr),*)) => {{
        $function::<f32>($($argument),*)?;
        $function::<f64>($($argument),*)?;
        $function::<Complex<f32>>($($argument),*)?;
        $function::<Complex<f64>>($($argument),*)
    }};
}

fn number<T: Value>(value: f64) -> T {
    T::of(C64::new(value, 0.0))
}

/// A matrix on the host, with some order and gap, inside longer memory.
struct Host<T> {
    values: Vec<T>,
    layout: Layout,
    order: Order,
    leading: usize,
}

impl<T: Value> Host<T> {
    fn new(rows: usize, columns: usize, kind: usize, values: fn(usize, u64) -> Vec<T>, seed: u64) -> Self {
        let order = if kind.is_multiple_of(2) { Order::RowMajor } else { Order::ColumnMajor };
        let (lines, width) = if kind.is_multiple_of(2) { (rows, columns) } else { (columns, rows) };
        let leading = width + kind / 2 * 3;
        let layout = Layout::new(rows, columns).order(order).leading(leading);
        Self { values: values(lines * leading + 5, seed), layout, order, leading }
    }

    fn index(&self, i: usize, j: usize) -> usize {
        if self.order == Order::RowMajor { i * self.leading + j } else { i + j * self.leading }
    }

    fn at(&self, i: usize, j: usize) -> C64 {
        self.values[self.index(i, j)].wide()
    }

    fn set(&mut self, i: usize, j: usize, value: C64) {
        let at = self.index(i, j);
        self.values[at] = T::of(value);
    }
}

fn view<'a, T: Value>(host: &Host<T>, memory: &'a Buffer<T>) -> Result<MatrixView<'a, T>> {
    MatrixView::with_layout(memory, host.layout)
}

fn view_mut<'a, T: Value>(host: &Host<T>, memory: &'a mut Buffer<T>) -> Result<MatrixViewMut<'a, T>> {
    MatrixViewMut::with_layout(memory, host.layout)
}

const SIZES: [(usize, usize); 6] = [(1, 1), (5, 1), (1, 9), (17, 23), (70, 33), (130, 200)];

/// Sizes of triangles, and of what goes with them: inside one block, and beyond two.
const TRIANGLES: [(usize, usize); 5] = [(1, 1), (5, 1), (17, 23), (70, 9), (130, 5)];

fn matrices_times_vectors_are_exact(device: &Device) -> Result<()> {
    fn of<T: Field + Value>(s: &Stream) -> Result<()> {
        for (at, (m, n)) in SIZES.into_iter().enumerate() {
            for kind in 0..4 {
                let a = Host::new(m, n, kind, whole::<T>, 1);
                let (x_step, y_step) = [(1, 1), (2, 3)][(at + kind) % 2];
                let (x, mut y) = (whole::<T>(n * x_step, 2), whole::<T>(m * y_step, 3));
                let (da, dx, mut dy) = (s.upload(&a.values)?, s.upload(&x)?, s.upload(&y)?);
                let (alpha, beta) = [(1.0, 0.0), (-2.0, 3.0)][kind % 2];
                let (vx, vy) =
                    (VectorView::with_step(&dx, n, x_step)?, VectorViewMut::with_step(&mut dy, m, y_step)?);
                s.gemv(number::<T>(alpha), view(&a, &da)?, vx, number::<T>(beta), vy)?;
                for i in 0..m {
                    let sum: C64 = (0..n).map(|j| a.at(i, j) * x[j * x_step].wide()).sum();
                    y[i * y_step] = T::of(sum * alpha + y[i * y_step].wide() * beta);
                }
                assert!(s.download(&dy)? == y, "{} {m}×{n} {kind}", type_name::<T>());
            }
        }
        // Nothing to add up.
        let (none, mut y) = (s.upload::<T>(&[])?, s.upload(&[number::<T>(2.0); 3])?);
        s.gemv(number::<T>(1.0), MatrixView::new(&none, 3, 0)?, &none, number::<T>(4.0), &mut y)?;
        assert_eq!(s.download(&y)?, [number::<T>(8.0); 3]);
        Ok(())
    }
    let s = &device.stream()?;
    for_all_fields!(of(s))
}

fn products_of_vectors_are_added(device: &Device) -> Result<()> {
    fn of<T: Field + Value>(s: &Stream) -> Result<()> {
        for (m, n) in SIZES {
            for kind in 0..4 {
                let mut a = Host::new(m, n, kind, whole::<T>, 1);
                let b = Host::new(m, 2, kind, whole::<T>, 2);
                let y = whole::<T>(n, 3);
                let (mut da, db, dy) = (s.upload(&a.values)?, s.upload(&b.values)?, s.upload(&y)?);
                // A column of a matrix is a vector.
                s.ger(number::<T>(2.0), view(&b, &db)?.column(1)?, &dy, view_mut(&a, &mut da)?)?;
                for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
                    a.set(i, j, a.at(i, j) + b.at(i, 1) * y[j].wide() * 2.0);
                }
                assert!(s.download(&da)? == a.values, "{} {m}×{n} {kind}", type_name::<T>());
                s.gerc(number::<T>(-1.0), view(&b, &db)?.column(1)?, &dy, view_mut(&a, &mut da)?)?;
                for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
                    a.set(i, j, a.at(i, j) - b.at(i, 1) * y[j].wide().conj());
                }
                assert!(s.download(&da)? == a.values, "{} {m}×{n} {kind}, conjugated", type_name::<T>());
            }
        }
        Ok(())
    }
    let s = &device.stream()?;
    for_all_fields!(of(s))
}

pub(crate) fn is_inside(triangle: Triangle, i: usize, j: usize) -> bool {
    if triangle == Triangle::Lower { j <= i } else { j >= i }
}

fn only_one_triangle_is_written(device: &Device) -> Result<()> {
    fn of<T: Field + Value>(s: &Stream) -> Result<()> {
        for (n, k) in TRIANGLES {
            for kind in 0..8 {
                let triangle = if kind < 4 { Triangle::Lower } else { Triangle::Upper };
                let a = Host::new(n, k, kind, whole::<T>, 1);
                let mut c = Host::new(n, n, kind / 2 % 4, whole::<T>, 2);
                let (da, mut dc) = (s.upload(&a.values)?, s.upload(&c.values)?);
                let (alpha, beta) = [(1.0, 0.0), (2.0, -1.0)][kind % 2];
                let to = view_mut(&c, &mut dc)?;
                s.syrk(number::<T>(alpha), view(&a, &da)?, number::<T>(beta), triangle, to)?;
                for (i, j) in (0..n).flat_map(|i| (0..n).map(move |j| (i, j))) {
                    if is_inside(triangle, i, j) {
                        let sum: C64 = (0..k).map(|l| a.at(i, l) * a.at(j, l)).sum();
                        c.set(i, j, sum * alpha + c.at(i, j) * beta);
                    }
                }
                assert!(s.download(&dc)? == c.values, "{} {n}×{k} {kind}", type_name::<T>());
            }
        }
        Ok(())
    }
    let s = &device.stream()?;
    for_all_fields!(of(s))
}

fn hermitian_products_write_one_triangle(device: &Device) -> Result<()> {
    fn of<T: Field + Value>(s: &Stream) -> Result<()>
    where
        T::Real: Value,
    {
        for (n, k) in TRIANGLES {
            for kind in 0..16 {
                let triangle = if kind % 8 < 4 { Triangle::Lower } else { Triangle::Upper };
                let a = Host::new(n, k, kind, whole::<T>, 1);
                let mut c = Host::new(n, n, kind / 2 % 4, whole::<T>, 2);
                let (da, mut dc) = (s.upload(&a.values)?, s.upload(&c.values)?);
                let (alpha, beta) = [(1.0, 0.0), (2.0, -1.0)][kind % 2];
                // The conjugate matrix, too.
                let (mut view, is_conjugated) = (view(&a, &da)?, kind >= 8);
                if is_conjugated {
                    view = view.h().t();
                }
                let to = view_mut(&c, &mut dc)?;
                s.herk(number::<T::Real>(alpha), view, number::<T::Real>(beta), triangle, to)?;
                for (i, j) in (0..n).flat_map(|i| (0..n).map(move |j| (i, j))) {
                    if is_inside(triangle, i, j) {
                        let sum: C64 = (0..k).map(|l| a.at(i, l) * a.at(j, l).conj()).sum();
                        let mut value =
                            if is_conjugated { sum.conj() } else { sum } * alpha + c.at(i, j) * beta;
                        if i == j {
                            value.im = 0.0;
                        }
                        c.set(i, j, value);
                    }
                }
                assert!(s.download(&dc)? == c.values, "{} {n}×{k} {kind}", type_name::<T>());
            }
        }
        Ok(())
    }
    let s = &device.stream()?;
    for_all_fields!(of(s))
}

/// A rotation keeps lengths, and turns its vector into the first axis.
fn rotations_are_made_on_the_device(device: &Device) -> Result<()> {
    fn of<T: Field + Value>(s: &Stream) -> Result<()>
    where
        T::Real: Value,
    {
        let turned: &[f64] = if T::COMPLEX { &[0.0, 1.0, -2.5] } else { &[0.0] };
        let vectors =
            [(3.0, 4.0), (-4.0, 3.0), (5.0, 0.0), (0.0, -2.0), (0.0, 0.0), (1e30, 1e30), (1e-30, -3e-30)];
        for ((a, b), angle) in vectors.into_iter().flat_map(|v| turned.iter().map(move |angle| (v, *angle))) {
            // In complex numbers the coordinates also have directions, of which the rotation knows the difference.
            let (a, b) = (Complex::from_polar(a, angle), Complex::from_polar(b, 2.0 * angle));
            let mut x = s.upload(&[T::of(a), number::<T>(1.0)])?;
            let mut y = s.upload(&[T::of(b), number::<T>(-2.0)])?;
            let rotation = s.rotg(x.slice(..1)?, y.slice(..1)?)?;
            s.rot(rotation.cosine(), rotation.sine(), &mut x, &mut y)?;
            let wide = |values: Vec<T>| -> Vec<_> { values.into_iter().map(Value::wide).collect() };
            let (x, y) = (wide(s.download(&x)?), wide(s.download(&y)?));
            let r = s.download(&rotation.r())?[0].wide();
            let (length, small) = (f64::hypot(a.norm(), b.norm()), 16.0 * T::ROUNDOFF);
            let what = format!("{} ({a}, {b}): {x:?} {y:?} {r}", type_name::<T>());
            assert!(
                (x[0].norm() - length).abs() <= small * length && y[0].norm() <= small * length,
                "{what}"
            );
            assert!((r - x[0]).norm() <= small * length, "{what}");
            assert!((x[1].norm_sqr() + y[1].norm_sqr() - 5.0).abs() <= 5.0 * small, "{what}");
        }
        Ok(())
    }
    let s = &device.stream()?;
    for_all_fields!(of(s))?;
    let (a, b) = (s.upload(&[3.0f64])?, s.upload(&[4.0f64])?);
    let rotation = s.rotg(a.slice(..)?, b.slice(..)?)?;
    let z = s.download(&rotation.z())?[0];
    assert!((z - 1.0 / 0.6).abs() < 1e-12, "{z}");
    Ok(())
}

/// Solving and multiplying undo each other. The residual of a triangular system is small whatever its condition (Higham, Accuracy
/// and Stability of Numerical Algorithms, theorem 8.5), and these are well conditioned.
fn triangles_solve_and_multiply(device: &Device) -> Result<()> {
    fn of<T: Field + Value>(s: &Stream) -> Result<()> {
        for (m, n) in TRIANGLES {
            for kind in 0..16 {
                let triangle = if kind % 4 < 2 { Triangle::Lower } else { Triangle::Upper };
                let diagonal = if kind % 2 == 0 { Diagonal::Stored } else { Diagonal::Ones };
                let mut a = Host::new(m, m, kind / 4, fractions::<T>, 1);
                for (i, j) in (0..m).flat_map(|i| (0..m).map(move |j| (i, j))) {
                    let is_read = is_inside(triangle, i, j) && (i != j || diagonal == Diagonal::Stored);
                    let value = match (is_read, i == j) {
                        (false, _) => C64::new(f64::NAN, 0.0),
                        (true, true) => C64::new(2.0, 0.0) + a.at(i, j),
                        (true, false) => a.at(i, j) / m as f64,
                    };
                    a.set(i, j, value);
                }
                let b = Host::new(m, n, (kind + m) % 4, fractions::<T>, 2);
                let (da, mut db) = (s.upload(&a.values)?, s.upload(&b.values)?);
                s.trmm(number::<T>(2.0), triangle, diagonal, view(&a, &da)?, view_mut(&b, &mut db)?)?;
                let product = s.download(&db)?;
                let bound = (m as f64 + 4.0) * 4.0 * T::ROUNDOFF;
                let what = format!("{} {m}×{n} {triangle:?} {diagonal:?} {kind}", type_name::<T>());
                for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
                    let factor = |l: usize| match (i == l, diagonal) {
                        (true, Diagonal::Ones) => C64::new(1.0, 0.0),
                        _ if is_inside(triangle, i, l) => a.at(i, l),
                        _ => C64::new(0.0, 0.0),
                    };
                    let sum: C64 = (0..m).map(|l| factor(l) * b.at(l, j)).sum();
                    let size: f64 = (0..m).map(|l| factor(l).norm() * b.at(l, j).norm()).sum();
                    let off = (product[b.index(i, j)].wide() - sum * 2.0).norm();
                    assert!(off <= bound * 2.0 * size, "({i}, {j}): {off:e} of {size:e}; {what}");
                }
                s.trsm(number::<T>(0.5), triangle, diagonal, view(&a, &da)?, view_mut(&b, &mut db)?)?;
                let back = s.download(&db)?;
                for (at, (back, b)) in back.iter().zip(&b.values).enumerate() {
                    let off = (back.wide() - b.wide()).norm();
                    assert!(off <= 16.0 * bound, "element {at} is {back:?}, not {b:?}; {what}");
                }
            }
        }
        Ok(())
    }
    let s = &device.stream()?;
    for_all_fields!(of(s))
}

/// Triangles of the kinds that LAPACK tests its solvers with: diagonal, with a condition of √(0.1 / ε)
/// and of 0.1 / ε, near underflow and near overflow. Its bound for them is that of `DTRT02`: ‖b - Ax‖ < 30 ε ‖A‖ ‖x‖.
fn hard_triangles_have_small_residuals(device: &Device) -> Result<()> {
    fn of<T: Field + Value>(s: &Stream) -> Result<()> {
        let eps = 2.0 * T::ROUNDOFF;
        let far: f64 = if eps > 1e-10 { 1e28 } else { 1e280 };
        let kinds = [(1.0, 1.0), (eps.sqrt(), 1.0), (10.0 * eps, 1.0), (0.5, far.recip()), (0.5, far)];
        for (m, n) in TRIANGLES {
            for (kind, (least, scale)) in kinds.into_iter().enumerate() {
                for triangle in [Triangle::Lower, Triangle::Upper] {
                    let mut a = Host::new(m, m, kind, fractions::<T>, 1);
                    for (i, j) in (0..m).flat_map(|i| (0..m).map(move |j| (i, j))) {
                        let row = scale * least.powf(i as f64 / (m as f64 - 1.0).max(1.0));
                        let value = match (is_inside(triangle, i, j), i == j) {
                            (true, true) => C64::new(row, 0.0),
                            (true, false) if kind > 0 => a.at(i, j) * (row / m as f64),
                            (true, false) => C64::new(0.0, 0.0),
                            (false, _) => C64::new(f64::NAN, 0.0),
                        };
                        a.set(i, j, value);
                    }
                    let element =
                        |i, l| if is_inside(triangle, i, l) { a.at(i, l) } else { C64::new(0.0, 0.0) };
                    let (wanted, mut b) = (fractions::<T>(m * n, 2), Host::new(m, n, 0, fractions::<T>, 3));
                    for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
                        b.set(i, j, (0..m).map(|l| element(i, l) * wanted[l * n + j].wide()).sum());
                    }
                    let (da, mut db) = (s.upload(&a.values)?, s.upload(&b.values)?);
                    let (one, stored) = (number::<T>(1.0), Diagonal::Stored);
                    s.trsm(one, triangle, stored, view(&a, &da)?, view_mut(&b, &mut db)?)?;
                    let x = s.download(&db)?;
                    let column = |l| (0..m).map(|i| element(i, l).norm()).sum::<f64>();
                    let size = (0..m).map(column).fold(0.0, f64::max);
                    for j in 0..n {
                        let at = |i| x[b.index(i, j)].wide();
                        let off =
                            |i| (b.at(i, j) - (0..m).map(|l| element(i, l) * at(l)).sum::<C64>()).norm();
                        let off: f64 = (0..m).map(off).sum();
                        let bound = 30.0 * eps * size * (0..m).map(|i| at(i).norm()).sum::<f64>();
                        let what =
                            format!("{} {m}×{n} {triangle:?} kind {kind} column {j}", type_name::<T>());
                        assert!(off <= bound, "{off:e}, more than {bound:e}: {what}");
                    }
                }
            }
        }
        Ok(())
    }
    let s = &device.stream()?;
    for_all_fields!(of(s))
}

fn sums_of_vectors_stay_on_the_device(device: &Device) -> Result<()> {
    fn of<T: Field + Value>(s: &Stream) -> Result<()>
    where
        T::Real: Value,
    {
        for n in [0, 1, 2, 33, 1000, 40_001] {
            for (x_step, y_step) in [(1, 1), (3, 2)] {
                let (x, y) = (whole::<T>(n * x_step, 1), whole::<T>(n * y_step, 2));
                let (dx, dy) = (s.upload(&x)?, s.upload(&y)?);
                let vx = VectorView::with_step(&dx, n, x_step)?;
                let vy = VectorView::with_step(&dy, n, y_step)?;
                let what = format!("{} {n} {x_step} {y_step}", type_name::<T>());
                let each = || (0..n).map(|i| x[i * x_step].wide());
                let dot: C64 = each().zip((0..n).map(|i| y[i * y_step].wide())).map(|(x, y)| x * y).sum();
                assert_eq!(s.download(&s.blas_dot(vx, vy)?)?, [T::of(dot)], "{what}");
                let second = (0..n).map(|i| y[i * y_step].wide());
                let dot: C64 = each().zip(second).map(|(x, y)| x.conj() * y).sum();
                assert_eq!(s.download(&s.blas_dotc(vx, vy)?)?, [T::of(dot)], "{what}");
                let sum: f64 = each().map(|x| x.re.abs() + x.im.abs()).sum();
                assert_eq!(s.download(&s.asum(vx)?)?[0].wide().re, sum, "{what}");
                let norm = each().map(|x| x.norm_sqr()).sum::<f64>().sqrt();
                let got = s.download(&s.nrm2(vx)?)?[0].wide().re;
                assert!((got - norm).abs() <= 8.0 * T::ROUNDOFF * norm, "{got}, not {norm}: {what}");
                let size = |x: C64| x.re.abs() + x.im.abs();
                let largest = each().map(size).fold(-1.0, f64::max);
                let place = each().position(|x| size(x) == largest).map_or(0, |at| at + 1);
                assert_eq!(s.download(&s.iamax(vx)?)?, [place as i32], "{what}");
            }
        }
        Ok(())
    }
    let s = &device.stream()?;
    for_all_fields!(of(s))
}

fn vectors_are_scaled_and_added(device: &Device) -> Result<()> {
    fn of<T: Field + Value>(s: &Stream) -> Result<()> {
        for n in [0, 1, 31, 5000, 40_001] {
            for (x_step, y_step) in [(1, 1), (3, 2)] {
                let (mut x, mut y) = (whole::<T>(n * x_step, 1), whole::<T>(n * y_step, 2));
                let (mut dx, mut dy) = (s.upload(&x)?, s.upload(&y)?);
                let vx = VectorView::with_step(&dx, n, x_step)?;
                s.axpy(number::<T>(-3.0), vx, VectorViewMut::with_step(&mut dy, n, y_step)?)?;
                (0..n).for_each(|i| y[i * y_step] = T::of(y[i * y_step].wide() - x[i * x_step].wide() * 3.0));
                assert!(s.download(&dy)? == y, "{} {n}", type_name::<T>());
                s.scal(number::<T>(5.0), VectorViewMut::with_step(&mut dx, n, x_step)?)?;
                (0..n).for_each(|i| x[i * x_step] = T::of(x[i * x_step].wide() * 5.0));
                assert!(s.download(&dx)? == x, "{} {n}", type_name::<T>());
            }
        }
        Ok(())
    }
    let s = &device.stream()?;
    for_all_fields!(of(s))
}

fn vectors_are_rotated(device: &Device) -> Result<()> {
    fn of<T: Field + Value>(s: &Stream) -> Result<()>
    where
        T::Real: Value,
    {
        for n in [0, 1, 31, 5000, 40_001] {
            for (x_step, y_step) in [(1, 1), (3, 2)] {
                let (mut x, mut y) = (whole::<T>(n * x_step, 1), whole::<T>(n * y_step, 2));
                let (mut dx, mut dy) = (s.upload(&x)?, s.upload(&y)?);
                // No rotation, but exact.
                let wide = Complex::new(-2.0, if T::COMPLEX { 1.0 } else { 0.0 });
                let (cosine, sine) = (number::<T::Real>(3.0), T::of(wide));
                let vx = VectorViewMut::with_step(&mut dx, n, x_step)?;
                let vy = VectorViewMut::with_step(&mut dy, n, y_step)?;
                if x_step == 1 {
                    s.rot(cosine, sine, vx, vy)?;
                } else {
                    let sine = s.upload(&[sine])?;
                    s.rot(cosine, Scalar::Device(sine.slice(..)?), vx, vy)?;
                }
                for i in 0..n {
                    let (a, b) = (x[i * x_step].wide(), y[i * y_step].wide());
                    x[i * x_step] = T::of(a * 3.0 + wide * b);
                    y[i * y_step] = T::of(b * 3.0 - wide.conj() * a);
                }
                let what = format!("{} {n}", type_name::<T>());
                assert!(s.download(&dx)? == x && s.download(&dy)? == y, "{what}");
            }
        }
        Ok(())
    }
    let s = &device.stream()?;
    for_all_fields!(of(s))
}

fn norms_do_not_overflow(device: &Device) -> Result<()> {
    let s = device.stream()?;
    for scale in [1e30f32, 1e-30] {
        let norm = s.download(&s.nrm2(&s.full(10_000, scale)?)?)?[0];
        assert!((norm / scale - 100.0).abs() < 1e-3, "{norm:e} for {scale:e}");
    }
    for scale in [1e300f64, 1e-300] {
        let norm = s.download(&s.nrm2(&s.full(10_000, scale)?)?)?[0];
        assert!((norm / scale - 100.0).abs() < 1e-9, "{norm:e} for {scale:e}");
    }
    Ok(())
}

fn scalars_of_routines_can_be_on_the_device(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let (a, x) = (s.upload(&whole::<f64>(12, 1))?, s.upload(&whole::<f64>(4, 2))?);
    let a = MatrixView::new(&a, 3, 4)?;
    let run = |alpha: Scalar<'_, f64>, beta: Scalar<'_, f64>| {
        let (mut y, mut z) = (s.full(3, 7.0)?, s.full(4, 7.0)?);
        s.gemv(alpha, a, &x, beta, &mut y)?;
        s.axpy(beta, &x, &mut z)?;
        s.scal(alpha, &mut z)?;
        Ok::<_, gpustream::Error>((s.download(&y)?, s.download(&z)?))
    };
    // One that another routine computes.
    let (ones, twos) = (s.full(3, 1.0)?, s.full(3, 2.0)?);
    let (six, three) = (s.blas_dot(&ones, &twos)?, s.asum(&ones)?);
    let want = run(6.0.into(), 3.0.into())?;
    let (six, three) = (Scalar::Device(six.slice(..)?), Scalar::Device(three.slice(..)?));
    assert_eq!(run(six, three)?, want);
    assert_eq!(run(6.0.into(), three)?, want);
    Ok(())
}

fn captures_and_steps_give_the_same_bits(device: &Device) -> Result<()> {
    let s = device.stream()?;
    gpustream_math::prepare(device)?;
    let (n, k) = (70, 40);
    let a = s.upload(&fractions::<f32>(n * k, 1))?;
    let x = s.upload(&fractions::<f32>(n, 2))?;
    let a = MatrixView::new(&a, n, k)?;
    // A matrix plus a multiple of the identity, a system with its triangle, and the solution's norm.
    let work = |s: &Stream, c: &mut Buffer<f32>, y: &mut Buffer<f32>, norm: &mut Buffer<f32>| {
        s.fill(c, 0.0)?;
        s.axpy(1.0, VectorView::with_step(&x, 1, 1)?, VectorViewMut::with_step(c, 1, 1)?)?;
        s.syrk(1.0, a, 1.0, Triangle::Lower, MatrixViewMut::new(c, n, n)?)?;
        s.copy(&x, y)?;
        let (square, column) = (MatrixView::new(c, n, n)?, MatrixViewMut::new(y, n, 1)?);
        s.trsm(1.0, Triangle::Lower, Diagonal::Ones, square, column)?;
        s.copy(&s.nrm2(&*y)?, norm)
    };
    let (mut c, mut y, mut norm) = (s.alloc(n * n)?, s.alloc(n)?, s.alloc(1)?);
    work(&s, &mut c, &mut y, &mut norm)?;
    let plain = (s.download(&y)?, s.download(&norm)?);
    let graph = s.capture(|s| work(s, &mut c, &mut y, &mut norm))?;
    for _ in 0..2 {
        s.fill(&mut y, f32::NAN)?;
        graph.launch(&s)?;
        assert_eq!((s.download(&y)?, s.download(&norm)?), plain);
    }
    let mut step = device.replay();
    for round in 0..6 {
        s.fill(&mut norm, f32::NAN)?;
        step.run(&s, |s| work(s, &mut c, &mut y, &mut norm))?;
        assert_eq!((s.download(&y)?, s.download(&norm)?), plain, "run {round}");
    }
    Ok(())
}

fn routines_that_do_not_fit_are_refused(device: &Device) -> Result<()> {
    use ErrorKind::{ArgumentMismatch, InvalidArgument, OutOfBounds};
    let s = device.stream()?;
    let (x, mut y) = (s.zeros::<f32>(12)?, s.zeros::<f32>(12)?);
    let a = MatrixView::new(&x, 3, 4)?;
    let (three, mut four) = (s.zeros::<f32>(3)?, s.zeros::<f32>(4)?);
    refused(
        s.gemv(1.0, a, &three, 0.0, &mut four),
        ArgumentMismatch,
        &["3×4 and 3 elements in a vector of 4"],
    );
    s.gemv(1.0, a.t(), &three, 0.0, &mut four)?;
    let to = MatrixViewMut::new(&mut y, 3, 4)?;
    refused(s.ger(1.0, &four, &three, to), ArgumentMismatch, &["matrix of 3×4"]);
    refused(
        s.syrk(1.0, a, 0.0, Triangle::Lower, MatrixViewMut::new(&mut y, 3, 4)?),
        ArgumentMismatch,
        &["n×k for n×n"],
    );
    let (lower, ones) = (Triangle::Lower, Diagonal::Ones);
    let to = MatrixViewMut::new(&mut y, 4, 3)?;
    refused(
        s.trsm(1.0, lower, ones, a, to),
        ArgumentMismatch,
        &["triangular matrix of 3×4", "transpose both"],
    );
    refused(s.blas_dot(&three, &four), ArgumentMismatch, &["3 and 4"]);
    refused(s.axpy(1.0, &three, &mut four), ArgumentMismatch, &["3 and 4"]);
    refused(s.rot(1.0, 0.0, &mut s.zeros::<f32>(3)?, &mut four), ArgumentMismatch, &["3 and 4"]);
    refused(s.scal(Scalar::Device(three.slice(..)?), &mut four), ArgumentMismatch, &["a view of one"]);
    refused(VectorView::with_step(&x, 5, 3), ArgumentMismatch, &["5 elements that are 3 apart"]);
    refused(VectorView::with_step(&x, 5, 0), InvalidArgument, &["at least 1"]);
    refused(a.column(4), OutOfBounds, &["0..4"]);
    let batch = MatrixView::with_layout(&x, Layout::new(2, 3).batch(2))?;
    let two = s.zeros::<f32>(2)?;
    refused(s.gemv(1.0, batch.t(), &two, 0.0, &mut y.slice_mut(..3)?), ArgumentMismatch, &["batches"]);
    Ok(())
}
