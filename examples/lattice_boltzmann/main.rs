//! How several devices share one simulation: wind in a tunnel, and the vortices that a cylinder makes in it, by the
//! lattice-Boltzmann method.
//!
//! Each device has some rows of the tunnel. In each step it needs one row from each neighbour, the *halo*. You get it with an
//! ordinary `copy`, from device to device. The halo travels on a stream of its own while the main stream computes the rows
//! that do not need it. One thread submits the work of all devices and waits for none of it. You find no event in the code,
//! because the library sees which rows each call touches, and makes streams wait if they must. Pictures leave the first
//! device, and this thread writes them as PNG while the devices compute the next steps.
//!
//! A step is no replay here, because graphs cannot contain copies between devices.
//!
//! ```console
//! $ cargo run --release --example lattice_boltzmann
//! $ GPUSTREAM_CPU_DEVICES=3 cargo run --release --example lattice_boltzmann -- --device cpu   # the CPU as three devices
//! ```
//!
//! It writes `out/lattice_boltzmann/frame_0000.png` and so on, and prints how many million cells one device and all devices
//! update in a second (MLUPS). It checks that all of them end with the same bits, and that the mass of the air stays the same.

use std::fs;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use examples::lattice_boltzmann::simulation::Simulation;
use examples::lattice_boltzmann::tunnel::Wind;
use examples::{DeviceArg, Table, is_cpu};
use gpustream::Device;
use indicatif::{ProgressBar, ProgressStyle};

/// Computes the vortices that a cylinder makes in the wind, on several devices, and writes pictures of them
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    device: DeviceArg,
    /// Devices of one backend (the backend of `--device`), which share the rows. If the machine has fewer, some get several
    /// parts [default: all, and at least 2 parts]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    devices: Option<u16>,
    /// Cells across the wind; the tunnel is four times as long [default: 512; on the CPU 64]
    #[arg(long, value_parser = clap::value_parser!(u32).range(16..=8192))]
    size: Option<u32>,
    /// Pictures to write
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..))]
    frames: u32,
    /// Time steps from one picture to the next [default: 600; on the CPU 100]
    #[arg(long)]
    steps: Option<u32>,
    /// Folder for the pictures
    #[arg(long, default_value = "out/lattice_boltzmann")]
    out: PathBuf,
}

/// How much of the air a step may lose or gain, as a part of all the air. It would be nothing if numbers were exact. But an
/// `f32` is rounded by up to 2⁻²⁴ of its value, and we allow ten such errors in one direction for each population and step. If
/// you lose a halo, that is far more: a sixth of a row in each step, and there are at most 8192 rows.
const ROUNDING: f64 = 10.0 / (1 << 24) as f64;

fn main() -> ExitCode {
    examples::main(run)
}

fn run() -> Result<()> {
    let args = Args::parse();
    let devices = args.device.open_parts(|devices| args.devices.map_or(devices.max(2), usize::from))?;
    let pick = |given: Option<u32>, gpu, cpu| given.unwrap_or(if is_cpu(&devices[0]) { cpu } else { gpu });
    let size = pick(args.size, 512, 64) as usize;
    let (frames, steps) = (args.frames as usize, pick(args.steps, 600, 100) as usize);
    let parts = devices.len();
    ensure!(parts <= size / 2, "{parts} parts share {size} rows, and each needs two: give a larger --size");
    fs::create_dir_all(&args.out).with_context(|| format!("cannot create {}", args.out.display()))?;

    let shared = if devices[1..].iter().any(|device| device.is_same(&devices[0])) { ", shared" } else { "" };
    println!("parts: {parts}, the first on {}{shared}", devices[0].info());
    let progress = ProgressBar::new(frames as u64)
        .with_style(ProgressStyle::with_template("{bar:40} {pos}/{len} frames, {elapsed} of {duration}")?);
    let table = Table::new(["way", "parts", "time, s", "MLUPS", "mass"]);
    let mut ways = Ways { size, steps: frames * steps, first: None, table };
    ways.run("one device", &devices[..1], |air| Ok(air.steps(frames * steps)?))?;
    ways.run("split", &devices, |air| Ok(air.steps(frames * steps)?))?;
    ways.run("split, with pictures", &devices, |air| {
        air.film(frames, steps, |number, picture| {
            let path = args.out.join(format!("frame_{number:04}.png"));
            write_png(&path, picture, size).with_context(|| format!("cannot write {}", path.display()))?;
            progress.inc(1);
            Ok(())
        })
    })?;
    progress.finish_and_clear();
    println!("{}", ways.table);
    println!("all ways end with the same bits");
    println!("wrote {frames} pictures of {}×{size} cells to {}", 4 * size, args.out.display());
    Ok(())
}

/// The same steps, run in several ways.
struct Ways {
    size: usize,
    steps: usize,
    /// The populations at the end of the first way.
    first: Option<Vec<f32>>,
    table: Table,
}

impl Ways {
    /// Runs the steps in one way, and adds a row to the table. Checks that the mass of the air stays the same, and that the
    /// result has the bits of the first way's.
    fn run(
        &mut self,
        way: &str,
        devices: &[Device],
        work: impl FnOnce(&mut Simulation) -> Result<()>,
    ) -> Result<()> {
        let mut air = Simulation::new(devices, self.size)?;
        if self.table.is_empty() {
            let (reynolds, steps) = (Wind::new(self.size).reynolds, self.steps);
            println!("{}×{} cells, Reynolds number {reynolds:.0}, {steps} steps", 4 * self.size, self.size);
        }
        let mass = |populations: &[f32]| populations.iter().map(|&f| f64::from(f)).sum::<f64>();
        let before = mass(&air.populations()?);
        let start = Instant::now();
        work(&mut air)?;
        air.synchronize()?;
        let time = start.elapsed().as_secs_f64();

        let populations = air.populations()?;
        let change = mass(&populations) / before - 1.0;
        let updates = (4 * self.size * self.size * self.steps) as f64;
        let numbers =
            [format!("{time:.2}"), format!("{:.0}", updates / time / 1e6), format!("{change:+.0e}")];
        self.table.row([way.to_owned(), devices.len().to_string()].into_iter().chain(numbers));
        let most = self.steps as f64 * ROUNDING;
        ensure!(
            change.abs() <= most,
            "{way}: the mass of the air changed by {change:+.1e} of it, and rounding explains only {most:.1e}"
        );

        let Some(first) = &self.first else {
            self.first = Some(populations);
            return Ok(());
        };
        let different = first.iter().zip(&populations).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
        ensure!(
            different == 0,
            "{way}: {different} of {} populations have other bits than on one device; if your devices are of different \
             models, they may round differently",
            populations.len()
        );
        Ok(())
    }
}

/// Writes levels as PNG: slow air is dark, air as fast as the wind is light, faster air is red, and the cylinder is grey.
fn write_png(path: &Path, levels: &[u8], height: usize) -> Result<()> {
    let mut file = BufWriter::new(fs::File::create(path)?);
    let mut encoder = png::Encoder::new(&mut file, (levels.len() / height) as u32, height as u32);
    encoder.set_color(png::ColorType::Indexed);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_palette(palette());
    encoder.set_compression(png::Compression::Fast);
    encoder.write_header()?.write_image_data(levels)?;
    file.flush()?; // a drop would lose the error
    Ok(())
}

/// Returns a palette for 255 levels of speed, and a colour for the cylinder.
fn palette() -> Vec<u8> {
    const STOPS: [[usize; 3]; 5] =
        [[8, 8, 40], [30, 80, 160], [235, 240, 225], [235, 120, 40], [110, 10, 20]];
    let colour = |level: usize| {
        let (stop, part) = (level / 64, level % 64);
        [0, 1, 2].map(|channel| {
            ((STOPS[stop][channel] * (64 - part) + STOPS[stop + 1][channel] * part) / 64) as u8
        })
    };
    (0..255).flat_map(colour).chain([128; 3]).collect()
}
