//! Matrix products are what a plain loop computes, for each type, shape and layout.

use std::any::type_name;

use conformance::{Random, kernels_and_streams, refused, streams, tests};
use gpustream::half::{bf16, f16};
use gpustream::{Device, ErrorKind, Result, Stream};
use gpustream_math::blas::Product;
use gpustream_math::prelude::*;
use gpustream_math::{Complex, Number};

use crate::numbers::{Value, fractions, whole};

tests! {
    Warps: products_are_exact_for_whole_numbers, products_of_fractions_keep_the_bound, batches_multiply_in_pairs,
        empty_products_write_what_they_must, nan_goes_where_it_must, scalars_can_be_on_the_device,
        large_products_use_all_tiles, large_sums_of_i8_are_exact;
    Plain: products_are_ordered_with_kernels, captures_and_steps_give_the_same_bits, short_ways_stay_close,
        matrices_that_do_not_fit_are_refused, work_outlives_its_handles;
}

macro_rules! for_all_types {
    ($function:ident($($argument:expr),*)) => {{
        $function::<f32, f32>($($argument),*)?;
        $function::<f64, f64>($($argument),*)?;
        $function::<Complex<f32>, Complex<f32>>($($argument),*)?;
        $function::<Complex<f64>, Complex<f64>>($($argument),*)?;
        $function::<f16, f16>($($argument),*)?;
        $function::<f16, f32>($($argument),*)?;
        $function::<bf16, bf16>($($argument),*)?;
        $function::<bf16, f32>($($argument),*)?;
        if takes_all_products_of_i8($($argument),*) {
            $function::<i8, i32>($($argument),*)?;
        }
        Ok(())
    }};
}

pub(crate) use for_all_types;

/// False over the shim of hipBLAS: it forwards to cuBLAS, which takes products of `i8` in some shapes only. hipBLAS takes all, so
/// we do not pad them there.
pub(crate) fn takes_all_products_of_i8(s: &Stream) -> bool {
    !s.device().info().arch.starts_with("gfxcuda")
}

/// Where a matrix is: its first element, its layout, and all the memory around it.
#[derive(Clone, Copy, Debug)]
struct Place {
    offset: usize,
    rows: usize,
    columns: usize,
    leading: usize,
    order: Order,
}

impl Place {
    /// Returns one of several layouts for a matrix.
    fn of(rows: usize, columns: usize, kind: usize) -> Self {
        let order = if kind.is_multiple_of(2) { Order::RowMajor } else { Order::ColumnMajor };
        let width = if kind.is_multiple_of(2) { columns } else { rows };
        let (gap, offset) = [(0, 0), (3, 5), (16, 1)][kind / 2 % 3];
        Self { offset, rows, columns, leading: width + gap, order }
    }

    fn index(&self, i: usize, j: usize) -> usize {
        self.offset
            + match self.order {
                Order::RowMajor => i * self.leading + j,
                Order::ColumnMajor => i + j * self.leading,
            }
    }

    /// Returns how many elements the memory has, with some after the matrix.
    fn len(&self) -> usize {
        let lines = if self.order == Order::RowMajor { self.rows } else { self.columns };
        self.offset + lines * self.leading + 7
    }

    fn layout(&self) -> Layout {
        Layout::new(self.rows, self.columns).leading(self.leading).order(self.order)
    }
}

/// Computes `alpha a b + beta c` for one element. Also returns the sum of the absolute values.
fn element<A: Value, C: Value>(
    (a, pa): (&[A], Place),
    (b, pb): (&[A], Place),
    (i, j): (usize, usize),
    old: C,
    (alpha, beta): (f64, f64),
) -> (Complex<f64>, f64) {
    let (mut sum, mut size) = (Complex::new(0.0, 0.0), 0.0);
    for k in 0..pa.columns {
        let (x, y) = (a[pa.index(i, k)].wide(), b[pb.index(k, j)].wide());
        sum += x * y;
        size += x.norm() * y.norm();
    }
    let old = if beta == 0.0 { Complex::new(0.0, 0.0) } else { old.wide() * beta };
    (sum * alpha + old, size * alpha.abs() + old.norm())
}

fn scalar<S: Number + Value>(value: f64) -> S {
    S::of(Complex::new(value, 0.0))
}

/// Multiplies, and compares every element and everything around the matrix.
fn multiply<A: Product<C> + Value, C: Value>(
    s: &Stream,
    (a, pa): (&[A], Place),
    (b, pb): (&[A], Place),
    (c, pc): (&[C], Place),
    (alpha, beta): (f64, f64),
    allowed: impl Fn(f64) -> f64,
) -> Result<()>
where
    A::Scalar: Value,
{
    let (da, db, mut dc) = (s.upload(a)?, s.upload(b)?, s.upload(c)?);
    let ma_memory = da.slice(pa.offset..)?;
    let mb_memory = db.slice(pb.offset..)?;
    let (ma, mb) = (
        MatrixView::with_layout(&ma_memory, pa.layout())?,
        MatrixView::with_layout(&mb_memory, pb.layout())?,
    );
    let mut part = dc.slice_mut(pc.offset..)?;
    let mc = MatrixViewMut::with_layout(&mut part, pc.layout())?;
    let what =
        || format!("{} to {}: {pa:?} {pb:?} {pc:?} {alpha} {beta}", type_name::<A>(), type_name::<C>());
    let options = Gemm::new().alpha(scalar::<A::Scalar>(alpha)).beta(scalar::<A::Scalar>(beta));
    s.gemm_with(options, ma, mb, mc).unwrap_or_else(|error| panic!("{}: {error}", what()));
    let got = s.download(&dc)?;
    let mut inside = vec![false; c.len()];
    for i in 0..pc.rows {
        for j in 0..pc.columns {
            let at = pc.index(i, j);
            inside[at] = true;
            let (want, size) = element((a, pa), (b, pb), (i, j), c[at], (alpha, beta));
            let off = (got[at].wide() - want).norm();
            assert!(
                off <= allowed(size),
                "({i}, {j}) is {:?}, not {want}: {off:e} of {size:e}; {}",
                got[at],
                what()
            );
        }
    }
    let kept = |(at, inside): (usize, &bool)| *inside || got[at] == c[at];
    assert!(inside.iter().enumerate().all(kept), "written outside the matrix: {}", what());
    Ok(())
}

/// Odd ones, single ones, thin ones, and those next to the sizes of blocks.
const SHAPES: [[usize; 3]; 9] = [
    [1, 1, 1],
    [1, 7, 5],
    [5, 1, 9],
    [3, 4, 1],
    [17, 19, 23],
    [64, 64, 64],
    [33, 65, 31],
    [130, 3, 40],
    [2, 140, 33],
];

fn products_are_exact_for_whole_numbers(device: &Device) -> Result<()> {
    fn of<A: Product<C> + Value, C: Value>(s: &Stream) -> Result<()>
    where
        A::Scalar: Value,
    {
        for (at, [m, n, k]) in SHAPES.into_iter().enumerate() {
            // Each matrix has each layout, with different ones of the others.
            for kind in 0..6 {
                let pa = Place::of(m, k, kind);
                let pb = Place::of(k, n, kind / 2 + at);
                let pc = Place::of(m, n, kind + at);
                let (a, b) = (whole::<A>(pa.len(), 1), whole::<A>(pb.len(), 2));
                let c = whole::<C>(pc.len(), 3);
                let scalars = [(1.0, 0.0), (2.0, 1.0), (-1.0, -3.0)][(kind + at) % 3];
                multiply(s, (&a, pa), (&b, pb), (&c, pc), scalars, |_| 0.0)?;
            }
        }
        Ok(())
    }
    let s = &device.stream()?;
    for_all_types!(of(s))
}

/// The error of a sum of k products is at most `k u` times the sum of the absolute values, for any order of the additions
/// (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1). Scaling, adding the old element and rounding the
/// result add three more.
fn products_of_fractions_keep_the_bound(device: &Device) -> Result<()> {
    fn of<A: Product<C> + Value, C: Value>(s: &Stream) -> Result<()>
    where
        A::Scalar: Value,
    {
        if A::ROUNDOFF == 0.0 {
            return Ok(());
        }
        for (at, [m, n, k]) in [[37, 29, 300], [65, 130, 1000], [4, 4, 5000]].into_iter().enumerate() {
            let (pa, pb, pc) = (Place::of(m, k, at), Place::of(k, n, at + 1), Place::of(m, n, at + 2));
            let (a, b) = (fractions::<A>(pa.len(), 1), fractions::<A>(pb.len(), 2));
            let c = fractions::<C>(pc.len(), 3);
            // Complex numbers take two additions for each.
            let steps = (k as f64 + 3.0) * if A::COMPLEX { 2.0 } else { 1.0 };
            let bound = steps * A::Scalar::ROUNDOFF + C::ROUNDOFF;
            multiply(s, (&a, pa), (&b, pb), (&c, pc), (0.75, 0.5), |size| size * bound)?;
        }
        Ok(())
    }
    let s = &device.stream()?;
    for_all_types!(of(s))
}

fn batches_multiply_in_pairs(device: &Device) -> Result<()> {
    fn of<A: Product<C> + Value, C: Value>(s: &Stream) -> Result<()> {
        let (m, n, k, batch, stride) = (5, 7, 12, 9, 110);
        let (a, b) = (whole::<A>(batch * stride, 1), whole::<A>(batch * stride, 2));
        let mut c = whole::<C>(batch * stride, 3);
        let (da, db, mut dc) = (s.upload(&a)?, s.upload(&b)?, s.upload(&c)?);
        let all = |layout: Layout| layout.batch(batch).stride(stride);
        let pa = Place { offset: 0, ..Place::of(m, k, 0) };
        let pb = Place { offset: 0, ..Place::of(k, n, 3) };
        let pc = Place { offset: 0, ..Place::of(m, n, 2) };
        // One input for all, then one for each.
        for [one_a, one_b] in [[false, true], [true, false], [true, true], [false, false]] {
            let ma = MatrixView::with_layout(&da, if one_a { pa.layout() } else { all(pa.layout()) })?;
            let mb = MatrixView::with_layout(&db, if one_b { pb.layout() } else { all(pb.layout()) })?;
            s.gemm(ma, mb, MatrixViewMut::with_layout(&mut dc, all(pc.layout()))?)?;
            for index in 0..batch {
                let a = &a[if one_a { 0 } else { index * stride }..];
                let b = &b[if one_b { 0 } else { index * stride }..];
                for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
                    let at = index * stride + pc.index(i, j);
                    c[at] = C::of(element((a, pa), (b, pb), (i, j), c[at], (1.0, 0.0)).0);
                }
            }
            assert!(s.download(&dc)? == c, "{} {one_a} {one_b}", type_name::<A>());
        }
        // A matrix of the batch by itself.
        let ma = MatrixView::with_layout(&da, all(pa.layout()))?.matrix(3)?;
        let mb = MatrixView::with_layout(&db, all(pb.layout()))?.matrix(3)?;
        let mut alone = s.alloc::<C>(m * n)?;
        s.gemm(ma, mb, MatrixViewMut::new(&mut alone, m, n)?)?;
        let want: Vec<_> = (0..m * n).map(|at| c[3 * stride + pc.index(at / n, at % n)]).collect();
        assert!(s.download(&alone)? == want, "{}", type_name::<A>());
        Ok(())
    }
    let s = &device.stream()?;
    for_all_types!(of(s))
}

fn empty_products_write_what_they_must(device: &Device) -> Result<()> {
    fn of<A: Product<C> + Value, C: Value>(s: &Stream) -> Result<()>
    where
        A::Scalar: Value,
    {
        // Nothing to write.
        for [m, n, k] in [[0, 3, 4], [3, 0, 4], [0, 0, 0]] {
            let (a, b, c) = (whole::<A>(m * k, 1), whole::<A>(k * n, 2), whole::<C>(m * n, 3));
            let (da, db, mut dc) = (s.upload(&a)?, s.upload(&b)?, s.upload(&c)?);
            s.gemm(
                MatrixView::new(&da, m, k)?,
                MatrixView::new(&db, k, n)?,
                MatrixViewMut::new(&mut dc, m, n)?,
            )?;
        }
        // Sums of nothing, which are 0.
        let (none, c) = (s.upload::<A>(&[])?, whole::<C>(15, 3));
        for (beta, factor) in [(0.0, 0.0), (1.0, 1.0), (-3.0, -3.0)] {
            let mut dc = s.upload(&c)?;
            let options = Gemm::new().beta(scalar::<A::Scalar>(beta));
            let (a, b) = (MatrixView::new(&none, 3, 0)?, MatrixView::new(&none, 0, 5)?);
            s.gemm_with(options, a, b, MatrixViewMut::new(&mut dc, 3, 5)?)?;
            let want: Vec<_> = c.iter().map(|c| C::of(c.wide() * factor)).collect();
            assert_eq!(s.download(&dc)?, want, "{} {beta}", type_name::<A>());
        }
        Ok(())
    }
    let s = &device.stream()?;
    for_all_types!(of(s))
}

fn nan_goes_where_it_must(device: &Device) -> Result<()> {
    fn of<A: Product<C> + Value, C: Value>(s: &Stream) -> Result<()>
    where
        A::Scalar: Value,
    {
        if A::ROUNDOFF == 0.0 {
            return Ok(());
        }
        let (m, n, k) = (19, 21, 23);
        let nan = Complex::new(f64::NAN, 0.0);
        let (mut a, b) = (whole::<A>(m * k, 1), whole::<A>(k * n, 2));
        a[4 * k + 5] = A::of(nan);
        let mut c = s.upload(&vec![C::of(nan); m * n])?;
        let (da, db) = (s.upload(&a)?, s.upload(&b)?);
        // What the result held before is not read.
        s.gemm(MatrixView::new(&da, m, k)?, MatrixView::new(&db, k, n)?, MatrixViewMut::new(&mut c, m, n)?)?;
        let got = s.download(&c)?;
        let is_nan = |at: usize| got[at].wide().norm().is_nan();
        assert!((0..m * n).all(|at| is_nan(at) == (at / n == 4)), "{}", type_name::<A>());
        // Unless it is asked for.
        let options = Gemm::new().beta(scalar::<A::Scalar>(1.0));
        let mut c = s.upload(&vec![C::of(nan); m * n])?;
        let (a, b) = (MatrixView::new(&da, m, k)?, MatrixView::new(&db, k, n)?);
        s.gemm_with(options, a, b, MatrixViewMut::new(&mut c, m, n)?)?;
        assert!(s.download(&c)?.iter().all(|c| c.wide().norm().is_nan()), "{}", type_name::<A>());
        Ok(())
    }
    let s = &device.stream()?;
    for_all_types!(of(s))
}

fn scalars_can_be_on_the_device(device: &Device) -> Result<()> {
    fn of<A: Product<C> + Value, C: Value>(s: &Stream) -> Result<()>
    where
        A::Scalar: Value,
    {
        let (m, n, k) = (6, 10, 14);
        let (a, b, c) = (whole::<A>(m * k, 1), whole::<A>(k * n, 2), whole::<C>(m * n, 3));
        let (da, db) = (s.upload(&a)?, s.upload(&b)?);
        let product = |options: Gemm<'_, A::Scalar, C>| {
            let mut dc = s.upload(&c)?;
            let (a, b) = (MatrixView::new(&da, m, k)?, MatrixView::new(&db, k, n)?);
            s.gemm_with(options, a, b, MatrixViewMut::new(&mut dc, m, n)?)?;
            s.download(&dc)
        };
        let (alpha, beta) = (scalar::<A::Scalar>(3.0), scalar::<A::Scalar>(-2.0));
        let scalars = s.upload(&[beta, alpha])?;
        let (on_device, other) = (Scalar::Device(scalars.slice(1..)?), Scalar::Device(scalars.slice(..1)?));
        let want = product(Gemm::new().alpha(alpha).beta(beta))?;
        for options in [
            Gemm::new().alpha(on_device).beta(other),
            Gemm::new().alpha(on_device).beta(beta),
            Gemm::new().alpha(alpha).beta(other),
        ] {
            assert_eq!(product(options)?, want, "{}", type_name::<A>());
        }
        let both = Gemm::new().alpha(Scalar::Device(scalars.slice(..)?));
        let refusal = product(both).unwrap_err();
        assert_eq!(refusal.kind(), ErrorKind::ArgumentMismatch, "{refusal}");
        Ok(())
    }
    let s = &device.stream()?;
    for_all_types!(of(s))
}

/// Large enough for several tiles. The last ones are cut off at every side.
fn large_products_use_all_tiles(device: &Device) -> Result<()> {
    fn of<A: Product<C> + Value, C: Value>(s: &Stream) -> Result<()>
    where
        A::Scalar: Value,
    {
        let [m, n, k] = [401, 517, 1100];
        let (pa, pb, pc) = (Place::of(m, k, 2), Place::of(k, n, 3), Place::of(m, n, 4));
        let (mut a, mut b) = (whole::<A>(pa.len(), 1), whole::<A>(pb.len(), 2));
        // Few of them, so that the sums are exact in every type.
        for (values, seed) in [(&mut a, 7), (&mut b, 8)] {
            let mut random = Random(seed);
            for value in values.iter_mut() {
                if random.below(4) > 0 {
                    *value = A::of(Complex::new(0.0, 0.0));
                }
            }
        }
        let (da, db, mut dc) = (s.upload(&a)?, s.upload(&b)?, s.zeros::<C>(pc.len())?);
        let (ma, mb) = (da.slice(pa.offset..)?, db.slice(pb.offset..)?);
        let (ma, mb) =
            (MatrixView::with_layout(&ma, pa.layout())?, MatrixView::with_layout(&mb, pb.layout())?);
        let mut part = dc.slice_mut(pc.offset..)?;
        s.gemm(ma, mb, MatrixViewMut::with_layout(&mut part, pc.layout())?)?;
        let got = s.download(&dc)?;
        let mut random = Random(9);
        // Each corner, and a sample of the others.
        let corners = [(0, 0), (0, n - 1), (m - 1, 0), (m - 1, n - 1)];
        let others: Vec<_> = (0..500).map(|_| (random.below(m), random.below(n))).collect();
        for (i, j) in corners.into_iter().chain(others) {
            let (want, _) = element((&a, pa), (&b, pb), (i, j), C::of(Complex::new(0.0, 0.0)), (1.0, 0.0));
            assert_eq!(got[pc.index(i, j)].wide(), want, "{} ({i}, {j})", type_name::<A>());
        }
        Ok(())
    }
    let s = &device.stream()?;
    for_all_types!(of(s))
}

/// The largest products, far more of them than `f32` could add up exactly.
fn large_sums_of_i8_are_exact(device: &Device) -> Result<()> {
    let s = device.stream()?;
    if !takes_all_products_of_i8(&s) {
        return Ok(());
    }
    for [m, n, k] in [[3, 5, 3001], [8, 4, 4096]] {
        let a: Vec<i8> = (0..m * k).map(|at: usize| if at.is_multiple_of(7) { 127 } else { -128 }).collect();
        let b: Vec<i8> = (0..k * n).map(|at: usize| if at.is_multiple_of(5) { 126 } else { -128 }).collect();
        let (da, db, mut c) = (s.upload(&a)?, s.upload(&b)?, s.alloc::<i32>(m * n)?);
        s.gemm(MatrixView::new(&da, m, k)?, MatrixView::new(&db, k, n)?, MatrixViewMut::new(&mut c, m, n)?)?;
        let product = |i: usize, j: usize, l: usize| i32::from(a[i * k + l]) * i32::from(b[l * n + j]);
        let want: Vec<i32> = (0..m * n).map(|at| (0..k).map(|l| product(at / n, at % n, l)).sum()).collect();
        assert_eq!(s.download(&c)?, want, "{m}×{n}×{k}");
    }
    Ok(())
}

fn products_are_ordered_with_kernels(device: &Device) -> Result<()> {
    const N: usize = 64;
    let kernels = gpustream_kernels::elementwise::Kernels::load(device)?;
    let [s, other] = streams(device)?;
    let mut x = s.full(N * N, 1.0f32)?;
    let (mut y, mut z) = (s.alloc::<f32>(N * N)?, s.alloc::<f32>(N * N)?);
    for round in 0..20 {
        // Written on one stream, multiplied on the other, scaled on the first again, without any wait of ours.
        kernels.scale(&s, if round % 2 == 0 { 2.0f32 } else { 0.5 }, &mut x, N * N)?;
        let view = MatrixView::new(&x, N, N)?;
        other.gemm(view, view.t(), MatrixViewMut::new(&mut y, N, N)?)?;
        kernels.scale(&s, 3.0f32, &mut y, N * N)?;
        s.copy(&y, &mut z)?;
        let want = 3.0 * N as f32 * if round % 2 == 0 { 4.0 } else { 1.0 };
        assert_eq!(other.download(&z)?, [want; N * N]);
    }
    Ok(())
}

fn captures_and_steps_give_the_same_bits(device: &Device) -> Result<()> {
    let [m, n, k] = [65, 70, 130];
    let s = device.stream()?;
    let kernels = gpustream_kernels::elementwise::Kernels::load(device)?;
    gpustream_math::prepare(device)?;
    let (a, b) = (s.upload(&fractions::<f32>(m * k, 1))?, s.upload(&fractions::<f32>(k * n, 2))?);
    let (a, b) = (MatrixView::new(&a, m, k)?, MatrixView::new(&b, k, n)?);
    // A product, a kernel, and a product that adds to the result.
    let work = |s: &Stream, c: &mut gpustream::Buffer<f32>, beta: f32| {
        s.gemm(a, b, MatrixViewMut::new(c, m, n)?)?;
        kernels.scale(s, 0.25f32, c, m * n)?;
        s.gemm_with(Gemm::new().alpha(0.5).beta(beta), a, b, MatrixViewMut::new(c, m, n)?)
    };
    let mut c = s.alloc::<f32>(m * n)?;
    let mut plain = Vec::new();
    for beta in [3.0, 5.0] {
        work(&s, &mut c, beta)?;
        plain.push(s.download(&c)?);
    }
    let graph = s.capture(|s| work(s, &mut c, 3.0))?;
    for _ in 0..3 {
        s.fill(&mut c, f32::NAN)?;
        graph.launch(&s)?;
        assert_eq!(s.download(&c)?, plain[0]);
    }
    let mut step = device.replay();
    for round in 0..8 {
        let which = usize::from(round >= 4);
        step.run(&s, |s| work(s, &mut c, [3.0, 5.0][which]))?;
        assert_eq!(s.download(&c)?, plain[which], "run {round}");
    }
    if device.info().backend != gpustream::BackendName::CPU && step.fallback().is_none() {
        assert_eq!(step.stats().segments, 1, "{:?}", step.stats());
    }
    Ok(())
}

fn short_ways_stay_close(device: &Device) -> Result<()> {
    fn of<T: Product<T> + Value>(s: &Stream, compute: Compute, bound: f64) -> Result<()>
    where
        T::Scalar: Value,
    {
        let [m, n, k] = [48, 40, 64];
        let (a, b) = (fractions::<T>(m * k, 1), fractions::<T>(k * n, 2));
        let (da, db, mut dc) = (s.upload(&a)?, s.upload(&b)?, s.alloc::<T>(m * n)?);
        let options = Gemm::new().alpha(scalar::<T::Scalar>(0.5)).compute(compute);
        s.gemm_with(
            options,
            MatrixView::new(&da, m, k)?,
            MatrixView::new(&db, k, n)?,
            MatrixViewMut::new(&mut dc, m, n)?,
        )?;
        let places = (Place { offset: 0, ..Place::of(m, k, 0) }, Place { offset: 0, ..Place::of(k, n, 0) });
        for (at, got) in s.download(&dc)?.into_iter().enumerate() {
            let zero = T::of(Complex::new(0.0, 0.0));
            let (want, size) = element((&a, places.0), (&b, places.1), (at / n, at % n), zero, (0.5, 0.0));
            let off = (got.wide() - want).norm();
            assert!(off <= bound * size, "{} {compute:?}: {off:e} of {size:e}", type_name::<T>());
        }
        Ok(())
    }
    let s = &device.stream()?;
    // Each factor is rounded to 11 bits.
    of::<f32>(s, Compute::Tf32, 2.0 / 1024.0)?;
    of::<Complex<f32>>(s, Compute::Tf32, 3.0 * 2.0 / 1024.0)?;
    of::<f16>(s, Compute::F16, 67.0 / 2048.0)
}

fn matrices_that_do_not_fit_are_refused(device: &Device) -> Result<()> {
    use ErrorKind::{ArgumentMismatch, InvalidArgument, OutOfBounds};
    let s = device.stream()?;
    let (x, mut y) = (s.zeros::<f32>(60)?, s.zeros::<f32>(60)?);
    refused(MatrixView::new(&x, 5, 13), ArgumentMismatch, &["5×13 has 65 elements", "the memory has 60"]);
    refused(MatrixView::new(&x, 5, 11), ArgumentMismatch, &["with_layout"]);
    refused(MatrixView::with_layout(&x, Layout::new(5, 12).leading(11)), InvalidArgument, &["at least 12"]);
    refused(MatrixView::with_layout(&x, Layout::new(5, 12).leading(13)), ArgumentMismatch, &["64 elements"]);
    let twice = Layout::new(5, 6).batch(2).stride(29);
    refused(MatrixViewMut::with_layout(&mut y, twice), InvalidArgument, &["stride of at least 30"]);
    let a = MatrixView::new(&x, 5, 12)?;
    refused(a.part(2.., 5..13), OutOfBounds, &["columns", "0..12"]);
    refused(a.matrix(1), OutOfBounds, &["matrices"]);
    let mut c = MatrixViewMut::with_layout(&mut y, Layout::new(5, 5))?;
    s.gemm(a, a.t(), &mut c)?;
    refused(s.gemm(a, a, &mut c), ArgumentMismatch, &["5×12 and 5×12 in a matrix of 5×5"]);
    refused(s.gemm(a.t(), a, &mut c), ArgumentMismatch, &["m×k and k×n"]);
    let pair = MatrixView::with_layout(&x, Layout::new(5, 5).batch(2))?;
    refused(s.gemm(pair, pair, &mut c), ArgumentMismatch, &["batches of 2 and 2 matrices in a batch of 1"]);
    let half = Gemm::new().compute(Compute::F16);
    refused(s.gemm_with(half, a, a.t(), &mut c), InvalidArgument, &["Compute::F16", "F32"]);
    let two = Gemm::new().beta(Scalar::Device(x.slice(..2)?));
    refused(s.gemm_with(two, a, a.t(), &mut c), ArgumentMismatch, &["a view of one"]);
    Ok(())
}

fn work_outlives_its_handles(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let mut result = device.pinned::<f64>(100 * 100)?;
    let mut square = |s: &Stream| {
        let (a, mut c) = (s.full(100 * 100, 2.0)?, s.alloc(100 * 100)?);
        let view = MatrixView::new(&a, 100, 100)?;
        s.gemm(view, view, MatrixViewMut::new(&mut c, 100, 100)?)?;
        s.copy(&c, &mut result)
    };
    // The first product loads kernels of the library, which waits for all that run.
    square(&s)?;
    s.synchronize()?;
    let gate = conformance::Gate::new(device)?;
    gate.hold(&kernels, &s)?;
    square(&s)?;
    drop(s);
    gate.open();
    assert!(result.read()?.iter().all(|value| *value == 400.0));
    Ok(())
}
