//! How to sort on the device: pairs by their keys, records by two columns, and the largest few without a sort.
//!
//! ```console
//! $ cargo run --release -p algorithms --bin sort_by_key
//! ```
//!
//! It prints how many pairs a second the device sorts, and what comes first.

use std::time::Instant;

use anyhow::{Result, ensure};
use clap::Parser;
use gpustream::Device;
use gpustream_kernels::prelude::*;

/// Sorts pairs on the device, and checks them
#[derive(Parser)]
struct Args {
    /// Device to run on: cpu, gpu, cuda:0, hip:1, … [default: the best of this machine, or `GPUSTREAM_DEVICE`]
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// How many pairs
    #[arg(long, default_value_t = 10_000_000)]
    pairs: usize,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let device = args.device.as_deref().map_or_else(Device::best, Device::open)?;
    println!("{}", device.info());
    let stream = device.stream()?;
    let keys: Vec<u32> = (0..args.pairs as u32).map(|i| i.wrapping_mul(0x9E37_79B9) >> 8).collect();
    let places: Vec<u32> = (0..args.pairs as u32).collect();

    // The first sort loads the kernels and fills the pool. The second shows how long a sort takes.
    let (mut sorted, mut from) = (stream.upload(&keys)?, stream.upload(&places)?);
    stream.sort_by_key(&mut sorted, &mut from)?;
    stream.upload_into(&keys, &mut sorted)?;
    stream.upload_into(&places, &mut from)?;
    stream.synchronize()?;
    let start = Instant::now();
    stream.sort_by_key(&mut sorted, &mut from)?;
    stream.synchronize()?;
    let rate = args.pairs as f64 / start.elapsed().as_secs_f64() / 1e6;
    println!("{} pairs sorted, {rate:.0} million a second", args.pairs);

    let (sorted, from) = (stream.download(&sorted)?, stream.download(&from)?);
    ensure!(sorted.is_sorted(), "the keys are not sorted");
    ensure!(from.iter().zip(&sorted).all(|(&at, key)| keys[at as usize] == *key), "a value lost its key");

    // Records by two columns: sort by the second one, then by the first. A stable sort keeps the order of what is equal.
    let columns = [stream.upload(&[2u8, 1, 2, 1])?, stream.upload(&[1u8, 8, 0, 3])?];
    let mut order = stream.argsort(&columns[1])?;
    let mut first = stream.alloc::<u8>(4)?;
    stream.gather(&columns[0], &order, &mut first)?;
    stream.sort_by_key(&mut first, &mut order)?;
    let order = stream.download(&order)?;
    println!("records by two columns: {order:?}");
    ensure!(order == [3, 1, 2, 0], "the records are in the wrong order");

    // If you only want the largest few, you need not sort.
    let (largest, at) = stream.top_k(&stream.upload(&keys)?, 3)?;
    println!("the largest keys: {:?} at {:?}", stream.download(&largest)?, stream.download(&at)?);
    Ok(())
}
