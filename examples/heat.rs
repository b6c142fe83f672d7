//! Heat spreading over a plate: frames are copied out and written as PNG while the next steps run.

use std::fs;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};
use clap::Parser;
use examples::{DeviceArg, is_cpu};
use gpustream::{Buffer, Device, Pinned};
use gpustream_kernels::stencil::Kernels;
use indicatif::{ProgressBar, ProgressStyle};

/// How much of the difference to its neighbours a cell takes over per step; stable up to 0.25.
const K: f32 = 0.2;
/// Frames on their way to the disk at once.
const IN_FLIGHT: usize = 3;

/// Spreads heat over a plate and writes pictures of it while it computes
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    device: DeviceArg,
    /// Cells along each side [default: 2048; on the CPU 512]
    #[arg(long)]
    size: Option<usize>,
    /// Pictures to write
    #[arg(long, default_value_t = 60)]
    frames: usize,
    /// Time steps from one picture to the next [default: 200; on the CPU 50]
    #[arg(long)]
    steps: Option<usize>,
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
    let pick = |given: Option<usize>, gpu, cpu| given.unwrap_or(if is_cpu(&device) { cpu } else { gpu });
    let (size, frames, steps) = (pick(args.size, 2048, 512), args.frames, pick(args.steps, 200, 50));
    ensure!(size >= 8 && frames > 0, "--size must be at least 8, and --frames at least 1");
    fs::create_dir_all(&args.out).with_context(|| format!("cannot create {}", args.out.display()))?;

    println!("{}", device.info());
    let progress = ProgressBar::new(frames as u64)
        .with_style(ProgressStyle::with_template("{bar:40} {pos}/{len} frames, {elapsed} of {duration}")?);
    let plate = plate(size);
    let first = thread::scope(|scope| -> Result<Vec<f32>> {
        // The same few frames of pinned memory go round between this thread and the one that writes.
        let (filled, to_write) = mpsc::sync_channel::<(usize, Pinned<f32>)>(IN_FLIGHT);
        let (written, empty) = mpsc::channel::<Pinned<f32>>();
        for _ in 0..IN_FLIGHT {
            written.send(device.pinned(size * size)?)?;
        }
        let writer = scope.spawn(|| -> Result<Vec<f32>> {
            // Both ends go when this thread ends, so that the other one notices.
            let (to_write, written) = (to_write, written);
            let mut first = Vec::new();
            for (number, frame) in to_write {
                // Waits for the copy of this frame; the device is steps ahead by then.
                let cells = frame.read()?;
                if number == 0 {
                    first = cells.to_vec();
                }
                write_png(&args.out.join(format!("frame_{number:04}.png")), &cells, size)?;
                drop(cells);
                progress.inc(1);
                // The last frames find nobody waiting for them.
                let _ = written.send(frame);
            }
            Ok(first)
        });
        let simulated = simulate(&device, &plate, size, frames, steps, &filled, &empty);
        drop(filled);
        let wrote = writer.join().map_err(|_| anyhow!("the writing thread panicked"))?;
        // What went wrong while writing is why the other end stopped.
        let first = wrote?;
        simulated?;
        Ok(first)
    })?;
    progress.finish_and_clear();

    check(&plate, &first, size, steps)?;
    println!("wrote {frames} frames of {size}×{size} cells, {steps} steps apart, to {}", args.out.display());
    Ok(())
}

/// Computes on one stream and copies out on another. Only the snapshot stands between them: the library orders both
/// sides around it, and the steps go on while a frame travels to the host.
fn simulate(
    device: &Device,
    plate: &[f32],
    size: usize,
    frames: usize,
    steps: usize,
    filled: &mpsc::SyncSender<(usize, Pinned<f32>)>,
    empty: &mpsc::Receiver<Pinned<f32>>,
) -> Result<()> {
    let kernels = Kernels::load(device)?;
    let (compute, copies) = (device.stream()?, device.stream()?);
    let mut now = compute.upload(plate)?;
    let mut next: Buffer<f32> = compute.alloc(plate.len())?;
    let mut snapshot: Buffer<f32> = compute.alloc(plate.len())?;
    for number in 0..frames {
        for _ in 0..steps {
            kernels.heat_f32(&compute, &now, &mut next, size, size, K)?;
            std::mem::swap(&mut now, &mut next);
        }
        compute.copy(&now, &mut snapshot)?;
        let mut frame = empty.recv().context("the writing thread has stopped")?;
        copies.copy(&snapshot, &mut frame)?;
        filled.send((number, frame)).ok().context("the writing thread has stopped")?;
    }
    Ok(())
}

/// A cold plate with one hot edge and some hot spots.
fn plate(size: usize) -> Vec<f32> {
    let mut cells = vec![0.0f32; size * size];
    cells[..size].fill(1.0);
    let spots = [(0.3, 0.35, 0.12), (0.7, 0.55, 0.17), (0.35, 0.75, 0.08)];
    for (i, cell) in cells.iter_mut().enumerate() {
        let (x, y) = ((i % size) as f32 / size as f32, (i / size) as f32 / size as f32);
        if spots.iter().any(|(sx, sy, r)| (x - sx).hypot(y - sy) < *r) {
            *cell = 1.0;
        }
    }
    cells
}

/// Compares the first frame with the same steps in plain Rust.
fn check(plate: &[f32], frame: &[f32], size: usize, steps: usize) -> Result<()> {
    let mut now = plate.to_vec();
    let mut next = now.clone();
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
    // The device may round products and sums at once.
    let worst = now.iter().zip(frame).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    ensure!(worst < 1e-4, "the first frame is off by {worst} from the same steps on the host");
    Ok(())
}

/// Writes cells of 0 to 1 in the colours of glowing metal.
fn write_png(path: &Path, cells: &[f32], size: usize) -> Result<()> {
    let file = fs::File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
    let mut encoder = png::Encoder::new(BufWriter::new(file), size as u32, size as u32);
    encoder.set_color(png::ColorType::Indexed);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_palette(glow());
    encoder.set_compression(png::Compression::Fast);
    let indices: Vec<u8> = cells.iter().map(|cell| (cell.clamp(0.0, 1.0) * 255.0).round() as u8).collect();
    encoder.write_header()?.write_image_data(&indices)?;
    Ok(())
}

/// From black over red and yellow to white.
fn glow() -> Vec<u8> {
    (0..=255u16)
        .flat_map(|level| [0, 1, 2].map(|channel| (3 * level).saturating_sub(255 * channel).min(255) as u8))
        .collect()
}
