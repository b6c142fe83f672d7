//! How to add a kernel to your own crate: this one draws the Mandelbrot set in the terminal.
//!
//! `kernels/mandelbrot.cu` is the kernel. `build.rs` compiles it and writes a launcher, and `include_kernels!` below makes
//! the launcher a module. If you want to begin a crate of your own, you can copy this folder. Its `Cargo.toml` must then
//! name versions of `gpustream` and `gpustream-build`.
//!
//! ```console
//! $ cargo run --release -p own_kernel
//! ```
//!
//! It prints the picture, and the device that computed it.

use std::fmt::Write as _;
use std::io::{self, ErrorKind, Write as _};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use gpustream::Device;

mod mandelbrot {
    gpustream::include_kernels!("mandelbrot");
}
use mandelbrot::{Frame, Kernels};

/// A point that is still near after this many steps counts as inside.
const LIMIT: u32 = 500;

/// Draws the Mandelbrot set with a kernel of this crate
#[derive(Parser)]
struct Args {
    /// Device to run on: cpu, gpu, cuda:0, hip:1, … [default: the best of this machine, or `GPUSTREAM_DEVICE`]
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// Columns of the picture
    #[arg(long, default_value_t = 78, value_parser = clap::value_parser!(u32).range(1..=4096))]
    size: u32,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let device = args.device.as_deref().map_or_else(Device::best, Device::open)?;
    let kernels = Kernels::load(&device)?;
    let stream = device.stream()?;

    // A character is about twice as high as it is wide.
    let width = args.size as usize;
    let height = (width * 2 / 5).max(1);
    let column = 3.0 / width as f64;
    let frame = Frame { left: -2.2, top: 1.2, column, row: 2.4 / height as f64 };

    let mut escape = stream.alloc::<u32>(width * height)?;
    kernels.mandelbrot(&stream, frame, &mut escape, width, height, LIMIT)?;
    let escape = stream.download(&escape)?;

    // Devices may round products and sums differently, so a few points next to the border may differ.
    let same =
        escape.iter().enumerate().filter(|(i, steps)| **steps == expected(&frame, i % width, i / width));
    ensure!(
        same.count() * 100 >= escape.len() * 99,
        "the picture differs from the one computed in plain Rust"
    );
    let mut picture = String::new();
    for line in escape.chunks(width) {
        picture.extend(line.iter().map(|steps| shade(*steps)));
        picture.push('\n');
    }
    writeln!(picture, "{}: {width} × {height} points", device.info())?;
    match io::stdout().write_all(picture.as_bytes()) {
        // The reader of the pipe has seen enough (`| head`).
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write the picture"),
    }
}

fn shade(steps: u32) -> char {
    match steps {
        LIMIT.. => '█',
        30.. => '▓',
        12.. => '▒',
        6.. => '░',
        4.. => '·',
        _ => ' ',
    }
}

/// Computes the kernel's result in plain Rust.
fn expected(frame: &Frame, x: usize, y: usize) -> u32 {
    let (cr, ci) = (frame.left + x as f64 * frame.column, frame.top - y as f64 * frame.row);
    let (mut zr, mut zi, mut steps) = (0.0f64, 0.0f64, 0);
    while steps < LIMIT && zr * zr + zi * zi <= 4.0 {
        (zr, zi) = (zr * zr - zi * zi + cr, 2.0 * zr * zi + ci);
        steps += 1;
    }
    steps
}
