//! How bright an image is: the histogram of its pixels, drawn as an image itself.
//!
//! ```console
//! $ cargo run --release -p algorithms --bin histogram_image -- photo.png --out out/histogram.png
//! ```
//!
//! It prints the darkest and the brightest pixel and the median, and writes the histogram. Without an image it counts a pattern.

use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use gpustream::Device;
use gpustream_kernels::histogram::Kernels;
use gpustream_kernels::prelude::*;

/// Draws the histogram of an image's brightness
#[derive(Parser)]
struct Args {
    /// Device to run on: cpu, gpu, cuda:0, hip:1, … [default: the best of this machine, or `GPUSTREAM_DEVICE`]
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// A PNG of eight bits a channel
    image: Option<PathBuf>,
    /// Where the histogram goes
    #[arg(long, value_name = "FILE", default_value = "out/histogram.png")]
    out: PathBuf,
}

const LEVELS: usize = 256;
/// How large the drawing is: two columns for each level, and a margin.
const WIDTH: usize = 2 * LEVELS + 2 * MARGIN;
const HEIGHT: usize = 256;
const MARGIN: usize = 16;

fn main() -> Result<()> {
    let args = Args::parse();
    let device = args.device.as_deref().map_or_else(Device::best, Device::open)?;
    println!("{}", device.info());
    let pixels = match &args.image {
        Some(path) => read(path).with_context(|| format!("cannot read {}", path.display()))?,
        None => pattern(1024),
    };

    let stream = device.stream()?;
    let x = stream.upload(&pixels)?;
    let mut bins = stream.zeros::<u64>(LEVELS)?;
    Kernels::load(&device)?.histogram_u8(&stream, &x, &mut bins, x.len())?;
    // The running sums say how many pixels are at most as bright as each level.
    let mut at_most = stream.alloc::<u64>(LEVELS)?;
    stream.inclusive_scan(&bins, &mut at_most)?;
    let (darkest, brightest) = (stream.min(&x)?, stream.max(&x)?);
    let (bins, at_most) = (stream.download(&bins)?, stream.download(&at_most)?);

    let median = at_most.partition_point(|&count| count * 2 < pixels.len() as u64);
    let (darkest, brightest) = (stream.download(&darkest)?[0], stream.download(&brightest)?[0]);
    println!("{} pixels from {darkest} to {brightest}, median {median}", pixels.len());
    ensure!(at_most[LEVELS - 1] == pixels.len() as u64, "a pixel was not counted");
    draw(&args.out, &bins).with_context(|| format!("cannot write {}", args.out.display()))?;
    println!("wrote {}", args.out.display());
    Ok(())
}

/// Waves that overlap.
fn pattern(size: usize) -> Vec<u8> {
    let wave = |x: usize, step: f32| (x as f32 * step).sin();
    let brightness =
        |i: usize| wave(i % size, 0.02) + wave(i / size, 0.013) + wave(i % size + i / size, 0.031);
    (0..size * size).map(|i| ((brightness(i) + 3.0) * 42.5) as u8).collect()
}

/// Returns the brightness of each pixel.
fn read(path: &Path) -> Result<Vec<u8>> {
    let mut decoder = png::Decoder::new(BufReader::new(File::open(path)?));
    decoder.set_transformations(png::Transformations::normalize_to_color8());
    let mut reader = decoder.read_info()?;
    let mut data = vec![0; reader.output_buffer_size().context("the image is too large")?];
    let info = reader.next_frame(&mut data)?;
    let channels = info.color_type.samples();
    // A fourth channel, or a second beside grey, is how opaque the pixel is.
    let colors = if channels > 2 { 3 } else { 1 };
    let mean =
        |pixel: &[u8]| (pixel[..colors].iter().map(|&c| u32::from(c)).sum::<u32>() / colors as u32) as u8;
    Ok(data[..info.buffer_size()].chunks_exact(channels).map(mean).collect())
}

/// Draws a bar for each level, as high as its share of the largest.
fn draw(path: &Path, bins: &[u64]) -> Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let largest = bins.iter().copied().max().unwrap_or(0).max(1);
    let mut image = vec![255u8; WIDTH * HEIGHT];
    for (level, &count) in bins.iter().enumerate() {
        let bar = (count * (HEIGHT - 2 * MARGIN) as u64).div_ceil(largest) as usize;
        for y in HEIGHT - MARGIN - bar..HEIGHT - MARGIN {
            let at = y * WIDTH + MARGIN + 2 * level;
            image[at..at + 2].fill(64);
        }
    }
    let mut encoder = png::Encoder::new(BufWriter::new(File::create(path)?), WIDTH as u32, HEIGHT as u32);
    encoder.set_color(png::ColorType::Grayscale);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.write_header()?.write_image_data(&image)?;
    Ok(())
}
