//! How to aggregate the rows of a table: for each key the sum, the largest and the number of its values.
//!
//! The table is a file: first all keys, then all values. While we read one piece of it, the piece before is copied to the device.
//! Then the device sorts the keys, moves the values into their order, and combines those of each key. The host waits once, for
//! the result, and only then learns how many keys there are.
//!
//! ```console
//! $ cargo run --release -p algorithms --bin group_by -- --rows 100000000
//! ```
//!
//! It prints how many rows a second it reads and aggregates, and the first groups.

use std::fs::File;
use std::io::{BufWriter, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use gpustream::{Buffer, Device, Pinned, Plain, Stream, bytemuck};
use gpustream_kernels::prelude::*;

/// Aggregates the rows of a file by their keys
#[derive(Parser)]
struct Args {
    /// Device to run on: cpu, gpu, cuda:0, hip:1, … [default: the best of this machine, or `GPUSTREAM_DEVICE`]
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// How many rows the file has
    #[arg(long, default_value_t = 10_000_000)]
    rows: usize,
    /// How many different keys
    #[arg(long, default_value_t = 1000)]
    keys: u32,
    /// Where the file is; it is written if it is not there
    #[arg(long, value_name = "FILE", default_value = "out/group_by.bin")]
    file: PathBuf,
}

/// How many rows are read at once.
const PIECE: usize = 1 << 22;

fn key(row: usize, keys: u32) -> u32 {
    (row as u32).wrapping_mul(0x9E37_79B9) % keys
}

fn value(row: usize) -> f32 {
    (row % 128) as f32
}

fn main() -> Result<()> {
    let args = Args::parse();
    let device = args.device.as_deref().map_or_else(Device::best, Device::open)?;
    println!("{}", device.info());
    let bytes = args.rows as u64 * 8;
    if !args.file.metadata().is_ok_and(|file| file.len() == bytes) {
        write_table(&args).with_context(|| format!("cannot write {}", args.file.display()))?;
    }

    let stream = device.stream()?;
    // So that the times below are not those of loading kernels.
    let small = stream.upload(&[1u32, 2])?;
    stream.group_by(&small)?.sum(&stream, &small)?.1.download(&stream)?;

    let start = Instant::now();
    let keys: Buffer<u32> = read_column(&stream, &args.file, 0, args.rows)?;
    let values: Buffer<f32> = read_column(&stream, &args.file, args.rows, args.rows)?;
    stream.synchronize()?;
    let read = start.elapsed();
    let start = Instant::now();
    let groups = stream.group_by(&keys)?;
    let (found, sums) = groups.sum(&stream, &values)?;
    let (_, largest) = groups.max(&stream, &values)?;
    let (_, counts) = groups.count(&stream)?;
    let (found, sums) = (found.download(&stream)?, sums.download(&stream)?);
    let (largest, counts) = (largest.download(&stream)?, counts.download(&stream)?);
    let aggregated = start.elapsed();

    let million = |time: f64| args.rows as f64 / time / 1e6;
    println!("{} rows in {} groups", args.rows, found.len());
    println!("read and copied {:.0} million rows a second", million(read.as_secs_f64()));
    println!("aggregated {:.0} million rows a second", million(aggregated.as_secs_f64()));
    for i in 0..found.len().min(3) {
        println!("key {}: sum {}, largest {}, {} rows", found[i], sums[i], largest[i], counts[i]);
    }

    // The same for one key, on the host. These sums are whole numbers, so they are exact while they are small.
    if let Some(&first) = found.first() {
        let rows = (0..args.rows).filter(|row| key(*row, args.keys) == first);
        let (sum, count) = rows.fold((0.0, 0), |(sum, count), row| (sum + f64::from(value(row)), count + 1));
        ensure!(counts[0] == count, "key {first} has {count} rows, not {}", counts[0]);
        ensure!((f64::from(sums[0]) - sum).abs() <= sum * 1e-4, "key {first} sums to {sum}, not {}", sums[0]);
    }
    ensure!(counts.iter().map(|count| *count as usize).sum::<usize>() == args.rows, "a row is missing");
    Ok(())
}

/// Writes all keys, and then all values.
fn write_table(args: &Args) -> Result<()> {
    if let Some(folder) = args.file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let mut file = BufWriter::with_capacity(1 << 20, File::create(&args.file)?);
    for row in 0..args.rows {
        file.write_all(&key(row, args.keys).to_le_bytes())?;
    }
    for row in 0..args.rows {
        file.write_all(&value(row).to_le_bytes())?;
    }
    Ok(file.flush()?)
}

/// Reads `rows` elements from element `first` of the file, in pieces. While one piece is copied to the device, the next one is
/// read into other memory.
fn read_column<T: Plain>(stream: &Stream, path: &Path, first: usize, rows: usize) -> Result<Buffer<T>> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start((first * size_of::<T>()) as u64))?;
    let mut column = stream.alloc(rows)?;
    let piece = PIECE.min(rows.max(1));
    let mut memory: [Pinned<T>; 2] = [stream.device().pinned(piece)?, stream.device().pinned(piece)?];
    for (number, mut to) in column.chunks_mut(piece)?.enumerate() {
        let memory = &mut memory[number % 2];
        let len = to.len();
        // Waits until the copy of the piece before the last one has read this memory.
        file.read_exact(bytemuck::cast_slice_mut(&mut memory.write()?[..len]))?;
        stream.copy(&memory.slice(..len)?, &mut to)?;
    }
    Ok(column)
}
