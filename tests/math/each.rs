//! Products of matrices anywhere in memory are what single products are.

use std::any::type_name;

use conformance::{refused, streams, tests};
use gpustream::half::{bf16, f16};
use gpustream::{Buffer, Device, ErrorKind, Plain, Result, Stream, View};
use gpustream_math::blas::Product;
use gpustream_math::prelude::*;
use gpustream_math::{Complex, Number};

use crate::gemm::{for_all_types, takes_all_products_of_i8};
use crate::numbers::{Value, fractions, whole};

tests! {
    Warps: each_product_is_what_it_is_alone, conjugated_inputs_and_one_for_all, empty_lists_and_sums_of_nothing;
    Plain: work_on_each_matrix_is_ordered, captures_and_steps_keep_the_addresses, lists_that_do_not_fit_are_refused;
}

/// How many products a list has, and how many elements each matrix has room for.
const COUNT: usize = 7;
const ROOM: usize = 4000;

/// How the matrices of one product are stored: their sizes, orders, gaps between lines, and first elements.
#[derive(Clone, Copy)]
struct Form {
    size: [usize; 3],
    orders: [Order; 3],
    gap: usize,
    start: usize,
}

impl Form {
    fn layouts(&self) -> [Layout; 3] {
        let [m, n, k] = self.size;
        let [a, b, c] = self.orders;
        [(m, k, a), (k, n, b), (m, n, c)].map(|(rows, columns, order)| {
            let width = if order == Order::RowMajor { columns } else { rows };
            Layout::new(rows, columns).order(order).leading(width + self.gap)
        })
    }
}

fn upload<T: Value>(s: &Stream, seed: u64) -> Result<Vec<Buffer<T>>> {
    (0..COUNT).map(|at| s.upload(&whole::<T>(ROOM, seed + at as u64))).collect()
}

fn parts<T: Plain>(buffers: &[Buffer<T>], form: impl Fn(usize) -> Form) -> Result<Vec<View<'_, T>>> {
    buffers.iter().enumerate().map(|(at, buffer)| buffer.slice(form(at).start..)).collect()
}

/// Computes products as a list and one by one, and compares them. The numbers are whole, so the sums are exact.
fn compare<A: Product<C> + Value, C: Value>(s: &Stream, form: impl Fn(usize) -> Form) -> Result<()>
where
    A::Scalar: Value,
{
    let (a, b, mut each, mut alone) =
        (upload::<A>(s, 0)?, upload::<A>(s, 10)?, upload::<C>(s, 20)?, upload::<C>(s, 20)?);
    let (a, b) = (parts(&a, &form)?, parts(&b, &form)?);
    let mut from = Vec::new();
    let mut by = Vec::new();
    for at in 0..COUNT {
        let [layout_a, layout_b, _] = form(at).layouts();
        from.push(MatrixView::with_layout(&a[at], layout_a)?);
        by.push(MatrixView::with_layout(&b[at], layout_b)?);
    }
    let scalar = |value: f64| A::Scalar::of(Complex::new(value, 0.0));
    let options = Gemm::new().alpha(scalar(2.0)).beta(scalar(-1.0));
    let mut memory = Vec::new();
    for (at, buffer) in each.iter_mut().enumerate() {
        memory.push(buffer.slice_mut(form(at).start..)?);
    }
    let mut results = Vec::new();
    for (at, memory) in memory.iter_mut().enumerate() {
        results.push(MatrixViewMut::with_layout(memory, form(at).layouts()[2])?);
    }
    s.gemm_each(options, &from, &by, &mut results)?;
    for (at, buffer) in alone.iter_mut().enumerate() {
        let mut memory = buffer.slice_mut(form(at).start..)?;
        let result = MatrixViewMut::with_layout(&mut memory, form(at).layouts()[2])?;
        s.gemm_with(options, from[at], by[at], result)?;
        assert!(
            s.download(&each[at])? == s.download(buffer)?,
            "{at}: {} to {}",
            type_name::<A>(),
            type_name::<C>()
        );
    }
    Ok(())
}

const ROWS: Order = Order::RowMajor;
const COLUMNS: Order = Order::ColumnMajor;

fn each_product_is_what_it_is_alone(device: &Device) -> Result<()> {
    fn of<A: Product<C> + Value, C: Value>(s: &Stream) -> Result<()>
    where
        A::Scalar: Value,
    {
        // Lists of equal forms, with odd sizes, in all orders, and at addresses that are multiples of little.
        for (size, orders) in [
            ([5, 7, 12], [ROWS, ROWS, ROWS]),
            ([33, 17, 9], [COLUMNS, ROWS, ROWS]),
            ([32, 32, 32], [ROWS, COLUMNS, COLUMNS]),
            ([40, 3, 16], [COLUMNS, COLUMNS, ROWS]),
        ] {
            compare::<A, C>(s, |_| Form { size, orders, gap: 0, start: 0 })?;
            compare::<A, C>(s, |at| Form { size, orders, gap: 3, start: 5 * at + 1 })?;
        }
        // One that differs in its order, its lines or its size.
        let plain = Form { size: [8, 8, 8], orders: [ROWS; 3], gap: 0, start: 0 };
        let others = [
            Form { orders: [ROWS, COLUMNS, ROWS], ..plain },
            Form { orders: [ROWS, ROWS, COLUMNS], ..plain },
            Form { gap: 1, ..plain },
            Form { size: [8, 8, 9], ..plain },
            Form { size: [8, 0, 8], ..plain },
        ];
        for other in others {
            compare::<A, C>(s, |at| if at == 4 { other } else { plain })?;
        }
        Ok(())
    }
    let s = &device.stream()?;
    for_all_types!(of(s))
}

fn conjugated_inputs_and_one_for_all(device: &Device) -> Result<()> {
    fn of<T: Product<T, Scalar = T> + Value + Number>(s: &Stream) -> Result<()> {
        const N: usize = 9;
        let memory = upload::<T>(s, 0)?;
        let mut matrices = Vec::new();
        for buffer in &memory {
            matrices.push(MatrixView::with_layout(buffer, Layout::new(N, N).leading(N + 2))?);
        }
        let plain = matrices.clone();
        let turned: Vec<_> = matrices.iter().map(MatrixView::h).collect();
        let conjugated: Vec<_> = turned.iter().map(MatrixView::t).collect();
        for a in [&plain[..], &turned, &conjugated, &plain[..1]] {
            for b in [&plain[..], &turned, &conjugated, &conjugated[1..2]] {
                let mut results = Vec::new();
                for _ in 0..COUNT {
                    results.push(s.alloc::<T>(N * N)?);
                }
                let mut c = Vec::new();
                for result in &mut results {
                    c.push(MatrixViewMut::new(result, N, N)?);
                }
                s.gemm_each(Gemm::new(), a, b, &mut c)?;
                for (at, result) in results.iter().enumerate() {
                    let pick = |inputs: &[_]| -> MatrixView<'_, T> {
                        inputs[if inputs.len() == 1 { 0 } else { at }]
                    };
                    let mut alone = s.alloc::<T>(N * N)?;
                    s.gemm(pick(a), pick(b), MatrixViewMut::new(&mut alone, N, N)?)?;
                    assert!(s.download(result)? == s.download(&alone)?, "{at}: {}", type_name::<T>());
                }
            }
        }
        Ok(())
    }
    let s = &device.stream()?;
    of::<Complex<f32>>(s)?;
    of::<Complex<f64>>(s)
}

fn empty_lists_and_sums_of_nothing(device: &Device) -> Result<()> {
    let s = device.stream()?;
    s.gemm_each::<f32, f32>(Gemm::new(), &[], &[], &mut [])?;
    let none = s.upload::<f32>(&[])?;
    let (a, b) = (MatrixView::new(&none, 3, 0)?, MatrixView::new(&none, 0, 5)?);
    let (mut x, mut y) = (s.full(15, 2.0f32)?, s.full(15, 3.0f32)?);
    let mut c = [MatrixViewMut::new(&mut x, 3, 5)?, MatrixViewMut::new(&mut y, 3, 5)?];
    s.gemm_each(Gemm::new().beta(4.0), &[a], &[b], &mut c)?;
    assert_eq!((s.download(&x)?, s.download(&y)?), (vec![8.0; 15], vec![12.0; 15]));
    Ok(())
}

fn work_on_each_matrix_is_ordered(device: &Device) -> Result<()> {
    const N: usize = 32;
    let [s, other] = streams(device)?;
    let (mut x, mut y) = (s.alloc::<f32>(N * N)?, s.alloc::<f32>(N * N)?);
    let (mut u, mut v) = (s.alloc::<f32>(N * N)?, s.alloc::<f32>(N * N)?);
    for round in 1..20u8 {
        // The last matrices of the lists come from another stream, and go to another one.
        let value = f32::from(round);
        s.fill(&mut x, value)?;
        other.fill(&mut y, 2.0 * value)?;
        let inputs = [MatrixView::new(&x, N, N)?, MatrixView::new(&y, N, N)?];
        let mut c = [MatrixViewMut::new(&mut u, N, N)?, MatrixViewMut::new(&mut v, N, N)?];
        s.gemm_each(Gemm::new(), &inputs, &inputs, &mut c)?;
        let square = value * value * N as f32;
        assert_eq!(other.download(&v)?, [4.0 * square; N * N]);
        assert_eq!(s.download(&u)?, [square; N * N]);
    }
    Ok(())
}

fn captures_and_steps_keep_the_addresses(device: &Device) -> Result<()> {
    const N: usize = 24;
    let s = device.stream()?;
    gpustream_math::prepare(device)?;
    let x = s.upload(&fractions::<f32>(N * N, 1))?;
    let x = MatrixView::new(&x, N, N)?;
    let mut results = Vec::new();
    for _ in 0..COUNT {
        results.push(s.alloc::<f32>(N * N)?);
    }
    let work = |s: &Stream, results: &mut [Buffer<f32>], alpha: f32| {
        let mut c = Vec::new();
        for result in results {
            c.push(MatrixViewMut::new(result, N, N)?);
        }
        s.gemm_each(Gemm::new().alpha(alpha), &[x], &[x.t()], &mut c)
    };
    let download =
        |results: &[Buffer<f32>]| results.iter().map(|result| s.download(result)).collect::<Result<Vec<_>>>();
    // First in a capture, and then with another list in a step, so that the addresses are new there.
    let graph = s.capture(|s| work(s, &mut results, 3.0))?;
    let mut step = device.replay();
    for round in 0..6u8 {
        let alpha = f32::from(1 + round / 3);
        step.run(&s, |s| work(s, &mut results[2..], alpha))?;
        let got = download(&results[2..])?;
        work(&s, &mut results[2..], alpha)?;
        assert_eq!(got, download(&results[2..])?, "run {round}");
    }
    for _ in 0..2 {
        for result in &mut results {
            s.fill(result, f32::NAN)?;
        }
        graph.launch(&s)?;
        let got = download(&results)?;
        work(&s, &mut results, 3.0)?;
        assert_eq!(got, download(&results)?);
    }
    // More lists than a device keeps. The graph's is still there.
    let mut kept = Vec::new();
    for _ in 0..100 {
        let mut more = [s.alloc::<f32>(N * N)?, s.alloc::<f32>(N * N)?];
        work(&s, &mut more, 1.0)?;
        kept.push(more);
    }
    let want = download(&results)?;
    graph.launch(&s)?;
    assert_eq!(download(&results)?, want);
    if device.info().backend != gpustream::BackendName::CPU && step.fallback().is_none() {
        assert_eq!(step.stats().segments, 1, "{:?}", step.stats());
    }
    Ok(())
}

fn lists_that_do_not_fit_are_refused(device: &Device) -> Result<()> {
    use ErrorKind::{ArgumentMismatch, InvalidArgument};
    let s = device.stream()?;
    let x = s.zeros::<f32>(60)?;
    let (mut u, mut v) = (s.zeros::<f32>(25)?, s.full(25, 7.0f32)?);
    let (a, b) = (MatrixView::new(&x, 5, 12)?, MatrixView::new(&x, 12, 5)?);
    let mut c = [MatrixViewMut::new(&mut v, 5, 5)?, MatrixViewMut::new(&mut u, 5, 5)?];
    refused(
        s.gemm_each(Gemm::new(), &[a; 3], &[b], &mut c),
        ArgumentMismatch,
        &["3 and 1 matrices for 2 results"],
    );
    refused(s.gemm_each(Gemm::new(), &[], &[b], &mut c), ArgumentMismatch, &["one for all"]);
    refused(
        s.gemm_each(Gemm::new(), &[a, b], &[b], &mut c),
        ArgumentMismatch,
        &["product 1:", "m×k and k×n"],
    );
    let half = Gemm::new().compute(Compute::F16);
    refused(s.gemm_each(half, &[a], &[b], &mut c), InvalidArgument, &["Compute::F16", "F32"]);
    // Nothing was written, although the first product fits.
    assert_eq!(s.download(&v)?, [7.0; 25]);
    Ok(())
}
