//! How to use CUDA files that were written for another program: this one runs kernels of candle, found by their names as
//! candle finds them, and compares each with plain Rust.
//!
//! The files are candle's own. Most of their kernels are made by macros, and some exist only for GPUs that have the
//! instructions for them.
//!
//! ```console
//! $ scripts/candle.sh
//! $ cargo run --release --manifest-path examples/candle_kernels/Cargo.toml -- cpu
//! ```
//!
//! It prints the kernels, each with the largest difference.

use anyhow::{Result, ensure};
use gpustream::{Arg, Device, Kernel, Launch, Plain, Stream};

mod affine {
    gpustream::include_kernels!("affine");
}
mod binary {
    gpustream::include_kernels!("binary");
}
mod cast {
    gpustream::include_kernels!("cast");
}
mod fill {
    gpustream::include_kernels!("fill");
}
mod indexing {
    gpustream::include_kernels!("indexing");
}
mod reduce {
    gpustream::include_kernels!("reduce");
}
mod sort {
    gpustream::include_kernels!("sort");
}
mod ternary {
    gpustream::include_kernels!("ternary");
}
mod unary {
    gpustream::include_kernels!("unary");
}

/// A matrix that the kernels work on, row by row.
const ROWS: usize = 37;
const COLUMNS: usize = 1000;
const LEN: usize = ROWS * COLUMNS;
/// The threads of a block for kernels over elements.
const BLOCK: u32 = 256;
/// candle passes a null pointer if the elements lie one after the other.
const CONTIGUOUS: usize = 0;

/// A function of one number, and its name among candle's kernels.
type Unary = (&'static str, fn(f32) -> f32);
type Binary = (&'static str, fn(f32, f32) -> f32);

const UNARY: [Unary; 18] = [
    ("ucopy_f32", |x| x),
    ("uneg_f32", |x| -x),
    ("urecip_f32", |x| 1.0 / x),
    ("uexp_f32", f32::exp),
    ("ulog_f32", |x| x.ln()),
    ("usin_f32", f32::sin),
    ("ucos_f32", f32::cos),
    ("utanh_f32", f32::tanh),
    ("uceil_f32", f32::ceil),
    ("ufloor_f32", f32::floor),
    ("uround_f32", f32::round),
    ("uabs_f32", f32::abs),
    ("usqr_f32", |x| x * x),
    ("usqrt_f32", f32::sqrt),
    ("urelu_f32", |x| x.max(0.0)),
    ("usilu_f32", |x| x / (1.0 + (-x).exp())),
    ("usigmoid_f32", |x| 1.0 / (1.0 + (-x).exp())),
    ("ugelu_f32", |x| 0.5 * x * (1.0 + (0.797_884_56 * (x + 0.044_715 * x * x * x)).tanh())),
];

const BINARY: [Binary; 6] = [
    ("badd_f32", |x, y| x + y),
    ("bsub_f32", |x, y| x - y),
    ("bmul_f32", |x, y| x * y),
    ("bdiv_f32", |x, y| x / y),
    ("bminimum_f32", f32::min),
    ("bmaximum_f32", f32::max),
];

const COMPARISONS: [(&str, fn(&f32, &f32) -> bool); 3] =
    [("lt_f32", f32::lt), ("ge_f32", f32::ge), ("eq_f32", f32::eq)];

fn main() -> Result<()> {
    let device = match std::env::args().nth(1) {
        Some(name) => Device::open(&name)?,
        None => Device::best()?,
    };
    let mut run = Run { stream: device.stream()?, count: 0 };
    let x: Vec<f32> = (0..LEN).map(|i| ((i * 7919) % 10_007) as f32 / 1250.0 - 4.0).collect();
    let y: Vec<f32> = (0..LEN).map(|i| ((i * 104_729) % 9_973) as f32 / 2000.0 + 0.5).collect();
    element_by_element(&mut run, &device, &x, &y)?;
    indexed(&mut run, &device, &x, &y)?;
    row_by_row(&mut run, &device, &x)?;
    sorted(&mut run, &device, &x)?;
    println!("{} kernels of candle agree with plain Rust on {}", run.count, device.info());
    Ok(())
}

/// Kernels that compute each element from those at its place.
fn element_by_element(run: &mut Run, device: &Device, x: &[f32], y: &[f32]) -> Result<()> {
    let (unary, binary) = (unary::Kernels::load(device)?, binary::Kernels::load(device)?);
    let (fill, affine, cast) =
        (fill::Kernels::load(device)?, affine::Kernels::load(device)?, cast::Kernels::load(device)?);
    let (a, b) = (run.stream.upload(x)?, run.stream.upload(y)?);
    let (len, dims) = (LEN, 1_usize);
    for (name, function) in UNARY {
        let (input, values) = if matches!(name, "ulog_f32" | "usqrt_f32") { (&b, y) } else { (&a, x) };
        let args = [Arg::value(&len), Arg::value(&dims), Arg::value(&CONTIGUOUS), Arg::read(input)];
        let expected: Vec<f32> = values.iter().map(|x| function(*x)).collect();
        run.check(&unary.module().kernel(name)?, &elements(), args, &expected)?;
    }
    for (name, function) in BINARY {
        let args =
            [Arg::value(&len), Arg::value(&dims), Arg::value(&CONTIGUOUS), Arg::read(&a), Arg::read(&b)];
        let expected: Vec<f32> = x.iter().zip(y).map(|(x, y)| function(*x, *y)).collect();
        run.check(&binary.module().kernel(name)?, &elements(), args, &expected)?;
    }
    for (name, function) in COMPARISONS {
        let args =
            [Arg::value(&len), Arg::value(&dims), Arg::value(&CONTIGUOUS), Arg::read(&a), Arg::read(&b)];
        let expected: Vec<u8> = x.iter().zip(y).map(|(x, y)| u8::from(function(x, y))).collect();
        run.check(&binary.module().kernel(name)?, &elements(), args, &expected)?;
    }
    let args = [Arg::value(&len), Arg::value(&dims), Arg::value(&CONTIGUOUS), Arg::read(&a)];
    let doubles: Vec<f64> = x.iter().map(|x| f64::from(*x)).collect();
    run.check(&cast.module().kernel("cast_f32_f64")?, &elements(), args, &doubles)?;

    let kernel = affine.module().kernel("affine_f32")?;
    let mut out = run.stream.alloc::<f32>(LEN)?;
    // SAFETY: the kernel reads and writes `len` elements, and both buffers have as many.
    unsafe {
        let args = [
            Arg::value(&len),
            Arg::value(&dims),
            Arg::value(&CONTIGUOUS),
            Arg::read(&a),
            Arg::write(&mut out),
            Arg::value(&2.5_f32),
            Arg::value(&-1.0_f32),
        ];
        kernel.launch(&run.stream, &elements(), &args)?;
    }
    let expected: Vec<f32> = x.iter().map(|x| x * 2.5 - 1.0).collect();
    run.compare("affine_f32", &run.stream.download(&out)?, &expected)?;

    // SAFETY: the kernel writes `len` elements.
    unsafe {
        let args = [Arg::write(&mut out), Arg::value(&0.75_f32), Arg::value(&len)];
        fill.module().kernel("fill_f32")?.launch(&run.stream, &elements(), &args)?;
    }
    run.compare("fill_f32", &run.stream.download(&out)?, &[0.75; LEN])
}

/// Kernels that choose elements.
fn indexed(run: &mut Run, device: &Device, x: &[f32], y: &[f32]) -> Result<()> {
    let (ternary, indexing) = (ternary::Kernels::load(device)?, indexing::Kernels::load(device)?);
    let (a, b) = (run.stream.upload(x)?, run.stream.upload(y)?);
    let (len, dims) = (LEN, 1_usize);
    let which: Vec<u8> = (0..LEN).map(|i| u8::from(i % 3 == 0)).collect();
    // The extent, and then the strides of the choice and of both sources.
    let (which_there, info) = (run.stream.upload(&which)?, run.stream.upload(&[LEN, 1, 1, 1])?);
    let args = [
        Arg::value(&len),
        Arg::value(&dims),
        Arg::read(&info),
        Arg::read(&which_there),
        Arg::read(&a),
        Arg::read(&b),
    ];
    let chosen = which.iter().zip(x.iter().zip(y));
    let expected: Vec<f32> = chosen.map(|(which, (x, y))| if *which != 0 { *x } else { *y }).collect();
    run.check(&ternary.module().kernel("where_u8_f32")?, &elements(), args, &expected)?;

    let rows: Vec<u32> = (0..ROWS as u32).rev().collect();
    let (rows_there, info) = (run.stream.upload(&rows)?, run.stream.upload(&[ROWS, 1])?);
    let mut out = run.stream.alloc::<f32>(LEN)?;
    // SAFETY: one row of `a` is copied for each of `rows`, and `out` has room for all.
    unsafe {
        let args = [
            Arg::value(&len),
            Arg::value(&dims),
            Arg::read(&info),
            Arg::read(&rows_there),
            Arg::read(&a),
            Arg::write(&mut out),
            Arg::value(&1_usize),
            Arg::value(&ROWS),
            Arg::value(&ROWS),
            Arg::value(&COLUMNS),
        ];
        indexing.module().kernel("is_u32_f32")?.launch(&run.stream, &elements(), &args)?;
    }
    let expected: Vec<f32> =
        rows.iter().flat_map(|row| &x[*row as usize * COLUMNS..][..COLUMNS]).copied().collect();
    run.compare("is_u32_f32", &run.stream.download(&out)?, &expected)
}

/// Kernels with a block for each row, whose threads meet.
fn row_by_row(run: &mut Run, device: &Device, x: &[f32]) -> Result<()> {
    let reduce = reduce::Kernels::load(device)?;
    let kernel = |name| reduce.module().kernel(name);
    let rows = || x.chunks(COLUMNS);
    let a = run.stream.upload(x)?;
    let info = run.stream.upload(&[ROWS, COLUMNS, COLUMNS, 1])?;
    let args = || {
        let sizes = [Arg::value(&LEN), Arg::value(&COLUMNS), Arg::value(&2_usize)];
        let [len, columns, dims] = sizes;
        [len, columns, dims, Arg::read(&info), Arg::read(&a)]
    };
    let of_rows = Launch::new(ROWS as u32, 1024_u32);
    let sums: Vec<f32> = rows().map(|row| row.iter().sum()).collect();
    run.check(&kernel("fast_sum_f32")?, &of_rows, args(), &sums)?;
    let most: Vec<f32> = rows().map(|row| row.iter().copied().fold(f32::NEG_INFINITY, f32::max)).collect();
    run.check(&kernel("fast_max_f32")?, &of_rows, args(), &most)?;
    let least: Vec<f32> = rows().map(|row| row.iter().copied().fold(f32::INFINITY, f32::min)).collect();
    run.check(&kernel("fast_min_f32")?, &of_rows, args(), &least)?;
    let place = |row: &[f32], value: &f32| row.iter().position(|x| x == value).unwrap_or(0) as u32;
    let at: Vec<u32> = rows().zip(&most).map(|(row, value)| place(row, value)).collect();
    run.check(&kernel("fast_argmax_f32")?, &of_rows, args(), &at)?;
    let at: Vec<u32> = rows().zip(&least).map(|(row, value)| place(row, value)).collect();
    run.check(&kernel("fast_argmin_f32")?, &of_rows, args(), &at)?;

    let columns = COLUMNS as i32;
    let softmax = rows().zip(&most).flat_map(|(row, most)| {
        let sum: f32 = row.iter().map(|x| (x - most).exp()).sum();
        row.iter().map(move |x| (x - most).exp() / sum)
    });
    let mut out = run.stream.alloc::<f32>(LEN)?;
    // SAFETY: the kernel reads and writes as many rows as the grid has blocks.
    unsafe {
        let args = [Arg::read(&a), Arg::write(&mut out), Arg::value(&columns)];
        kernel("softmax_f32")?.launch(&run.stream, &Launch::new(ROWS as u32, [1, 32]), &args)?;
    }
    run.compare("softmax_f32", &run.stream.download(&out)?, &softmax.collect::<Vec<_>>())?;

    let weight: Vec<f32> = (0..COLUMNS).map(|i| 0.5 + i as f32 / COLUMNS as f32).collect();
    let (weight_there, threads, epsilon) = (run.stream.upload(&weight)?, 1024_i32, 1e-5_f32);
    // SAFETY: as above; there is a weight for each column.
    unsafe {
        let args = [
            Arg::read(&a),
            Arg::write(&mut out),
            Arg::read(&weight_there),
            Arg::value(&columns),
            Arg::value(&threads),
            Arg::value(&epsilon),
        ];
        kernel("rmsnorm_f32")?.launch(&run.stream, &of_rows, &args)?;
    }
    let normed = rows().flat_map(|row| {
        let mean = row.iter().map(|x| x * x).sum::<f32>() / COLUMNS as f32;
        row.iter().zip(&weight).map(move |(x, weight)| x / (mean + epsilon).sqrt() * weight)
    });
    run.compare("rmsnorm_f32", &run.stream.download(&out)?, &normed.collect::<Vec<_>>())?;

    // SAFETY: as above. The last weights are added, so each column has one too.
    unsafe {
        let args = [
            Arg::read(&a),
            Arg::write(&mut out),
            Arg::read(&weight_there),
            Arg::read(&weight_there),
            Arg::value(&columns),
            Arg::value(&threads),
            Arg::value(&epsilon),
        ];
        kernel("layernorm_f32")?.launch(&run.stream, &of_rows, &args)?;
    }
    let normed = rows().flat_map(|row| {
        let mean = row.iter().sum::<f32>() / COLUMNS as f32;
        let variance = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f32>() / COLUMNS as f32;
        let scale = 1.0 / (variance + epsilon).sqrt();
        row.iter().zip(&weight).map(move |(x, weight)| (x - mean) * scale * weight + weight)
    });
    run.compare("layernorm_f32", &run.stream.download(&out)?, &normed.collect::<Vec<_>>())
}

/// Kernels that sort the places in each row.
fn sorted(run: &mut Run, device: &Device, x: &[f32]) -> Result<()> {
    let sort = sort::Kernels::load(device)?;
    let a = run.stream.upload(x)?;
    let (columns, padded) = (COLUMNS as i32, COLUMNS.next_power_of_two() as i32);
    // The kernel keeps the places of a row in shared memory.
    let launch = Launch::new(ROWS as u32, padded as u32).shared(4 * padded as u32);
    for (name, ascends) in [("asort_asc_f32", true), ("asort_desc_f32", false)] {
        let mut out = run.stream.alloc::<u32>(LEN)?;
        // SAFETY: the kernel writes one place for each element.
        unsafe {
            let args = [Arg::read(&a), Arg::write(&mut out), Arg::value(&columns), Arg::value(&padded)];
            sort.module().kernel(name)?.launch(&run.stream, &launch, &args)?;
        }
        // Equal elements may come in any order, so we look at the elements and not at their places.
        let places = run.stream.download(&out)?;
        let found: Vec<f32> = places
            .chunks(COLUMNS)
            .zip(x.chunks(COLUMNS))
            .flat_map(|(places, row)| places.iter().map(|place| row[*place as usize]))
            .collect();
        let mut expected = x.to_vec();
        for row in expected.chunks_mut(COLUMNS) {
            row.sort_by(|x, y| if ascends { x.total_cmp(y) } else { y.total_cmp(x) });
        }
        run.compare(name, &found, &expected)?;
    }
    Ok(())
}

fn elements() -> Launch {
    Launch::new((LEN as u32).div_ceil(BLOCK), BLOCK)
}

/// A value that can be compared.
trait Number: Plain + PartialEq {
    fn difference(self, other: Self) -> f64;
}

impl Number for f32 {
    fn difference(self, other: Self) -> f64 {
        f64::from(self).difference(f64::from(other))
    }
}

impl Number for f64 {
    fn difference(self, other: Self) -> f64 {
        if self == other { 0.0 } else { (self - other).abs() / other.abs().max(1.0) }
    }
}

impl Number for u8 {
    fn difference(self, other: Self) -> f64 {
        f64::from(self.abs_diff(other))
    }
}

impl Number for u32 {
    fn difference(self, other: Self) -> f64 {
        f64::from(self.abs_diff(other))
    }
}

/// The kernels that have run.
struct Run {
    stream: Stream,
    count: usize,
}

impl Run {
    /// Runs a kernel that writes its last argument, and compares the result.
    fn check<T: Number, const N: usize>(
        &mut self,
        kernel: &Kernel,
        launch: &Launch,
        args: [Arg<'_>; N],
        expected: &[T],
    ) -> Result<()> {
        let mut out = self.stream.alloc::<T>(expected.len())?;
        let args: Vec<_> = args.into_iter().chain([Arg::write(&mut out)]).collect();
        // SAFETY: the callers pass memory of the sizes that they name, and the kernels write an element for each expected one.
        unsafe { kernel.launch(&self.stream, launch, &args)? };
        drop(args);
        let found = self.stream.download(&out)?;
        self.compare(kernel.name(), &found, expected)
    }

    fn compare<T: Number>(&mut self, name: &str, found: &[T], expected: &[T]) -> Result<()> {
        let differences = found.iter().zip(expected).map(|(found, expected)| found.difference(*expected));
        let most = differences.fold(0.0, f64::max);
        println!("{name:20} differs by {most:.1e}");
        ensure!(found.len() == expected.len() && most < 1e-4, "{name} differs from plain Rust by {most}");
        self.count += 1;
        Ok(())
    }
}
