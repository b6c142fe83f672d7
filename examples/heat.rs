//! How results leave the device while it already computes the next ones: heat spreads over a plate, and we write pictures of
//! it.
//!
//! A pipeline copies each finished frame to the host and calls a closure that writes it as PNG. Meanwhile the next steps can
//! run. The steps of one frame are many small kernels, so a replay submits them as one launch.
//!
//! ```console
//! $ cargo run --release --example heat
//! ```
//!
//! It writes `out/heat/frame_0000.png` and so on, and prints how many frames it wrote.

use std::fs;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use examples::{DeviceArg, is_cpu};
use gpustream_kernels::stencil::Kernels;
use indicatif::{ProgressBar, ProgressStyle};

/// How much of the difference to its neighbours a cell takes over per step. It must not exceed 0.25, because the scheme
/// would be unstable.
const K: f32 = 0.2;

/// Spreads heat over a plate and writes pictures of it while it computes
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    device: DeviceArg,
    /// Cells along each side [default: 2048; on the CPU 512]
    #[arg(long, value_parser = clap::value_parser!(u32).range(8..=65_536))]
    size: Option<u32>,
    /// Pictures to write
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    frames: u32,
    /// Time steps from one picture to the next [default: 200; on the CPU 50]
    #[arg(long)]
    steps: Option<u32>,
    /// Folder for the pictures
    #[arg(long, default_value = "out/heat")]
    out: PathBuf,
}

fn main() -> ExitCode {
    examples::main(run)
}

fn run() -> Result<()> {
    let args = Args::parse();
    let device = args.device.open()?;
    let pick = |given: Option<u32>, gpu, cpu| given.unwrap_or(if is_cpu(&device) { cpu } else { gpu });
    let size = pick(args.size, 2048, 512) as usize;
    let (frames, steps) = (args.frames as usize, pick(args.steps, 200, 50));
    fs::create_dir_all(&args.out).with_context(|| format!("cannot create {}", args.out.display()))?;

    println!("{}", device.info());
    let progress = ProgressBar::new(frames as u64)
        .with_style(ProgressStyle::with_template("{bar:40} {pos}/{len} frames, {elapsed} of {duration}")?);
    let kernels = Kernels::load(&device)?;
    let plate = plate(size)?;
    let stream = device.stream()?;
    let (mut now, mut next) = (stream.upload(&plate)?, stream.alloc(plate.len())?);
    // Submits the kernels of each frame as one launch.
    let mut replay = device.replay();
    device.pipeline().chunks(plate.len()).generate(
        frames,
        |stream, frame| {
            replay.run(stream, |s| {
                for _ in 0..steps {
                    kernels.heat(s, &now, &mut next, size, size, K)?;
                    std::mem::swap(&mut now, &mut next);
                }
                Ok(())
            })?;
            stream.copy(&now, frame)
        },
        |number, cells: &[f32]| {
            if number == 0 {
                check(&plate, cells, size, steps)?;
            }
            let path = args.out.join(format!("frame_{number:04}.png"));
            write_png(&path, cells, size).with_context(|| format!("cannot write {}", path.display()))?;
            progress.inc(1);
            anyhow::Ok(())
        },
    )?;
    progress.finish_and_clear();
    println!("wrote {frames} frames of {size}×{size} cells, {steps} steps apart, to {}", args.out.display());
    Ok(())
}

/// Makes a cold plate with one hot edge and some hot spots.
fn plate(size: usize) -> Result<Vec<f32>> {
    let spots = [(0.3, 0.35, 0.12), (0.7, 0.55, 0.17), (0.35, 0.75, 0.08)];
    examples::values(size * size, |i| {
        let (x, y) = ((i % size) as f32 / size as f32, (i / size) as f32 / size as f32);
        let hot = i < size || spots.iter().any(|(sx, sy, r)| (x - sx).hypot(y - sy) < *r);
        f32::from(u8::from(hot))
    })
}

/// Checks the first frame: the same steps in plain Rust must give the same temperatures.
fn check(plate: &[f32], frame: &[f32], size: usize, steps: u32) -> Result<()> {
    let mut now = examples::values(plate.len(), |i| plate[i])?;
    let mut next = examples::values(plate.len(), |i| plate[i])?;
    for _ in 0..steps {
        for y in 1..size - 1 {
            for x in 1..size - 1 {
                let i = y * size + x;
                let around = now[i - 1] + now[i + 1] + now[i - size] + now[i + size];
                next[i] = now[i] + K * (around - 4.0 * now[i]);
            }
        }
        std::mem::swap(&mut now, &mut next);
    }
    // Not exactly, because the device may round a product and a sum in one step.
    let worst = now.iter().zip(frame).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    ensure!(worst < 1e-4, "the first frame is off by {worst} from the same steps on the host");
    Ok(())
}

/// Writes cells from 0 to 1 as PNG, in the colours of glowing metal.
fn write_png(path: &Path, cells: &[f32], size: usize) -> Result<()> {
    let mut file = BufWriter::new(fs::File::create(path)?);
    let mut encoder = png::Encoder::new(&mut file, size as u32, size as u32);
    encoder.set_color(png::ColorType::Indexed);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_palette(glow());
    encoder.set_compression(png::Compression::Fast);
    let indices = examples::values(cells.len(), |i| (cells[i].clamp(0.0, 1.0) * 255.0).round() as u8)?;
    encoder.write_header()?.write_image_data(&indices)?;
    file.flush()?; // a drop would lose the error
    Ok(())
}

/// Returns a palette from black through red and yellow to white.
fn glow() -> Vec<u8> {
    (0..=255u16)
        .flat_map(|level| [0, 1, 2].map(|channel| (3 * level).saturating_sub(255 * channel).min(255) as u8))
        .collect()
}
