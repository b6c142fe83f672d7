//! A small network that learns to tell two spirals apart: matrix products between kernels of our own, and a picture of the loss.
//!
//! Each step of the training is five products, their gradients and a few kernels. It is the same work each time, so a replay
//! submits it as one launch. Nothing comes back to the host but the loss, and only now and then.
//!
//! ```console
//! $ cargo run --release -p math --bin mlp
//! ```
//!
//! It prints the loss and how many points are on the right side, and writes `out/mlp.png`.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::Parser;
use math::network::Network;
use math::spirals::spirals;
use math::{DeviceArg, write_png};

/// Trains a small network and draws how its loss falls
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    device: DeviceArg,
    /// Points of both spirals
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(64..=1 << 20))]
    points: u32,
    /// Width of the hidden layers
    #[arg(long, default_value_t = 48, value_parser = clap::value_parser!(u32).range(8..=4096))]
    width: u32,
    /// Steps of the training
    #[arg(long, default_value_t = 3000, value_parser = clap::value_parser!(u32).range(100..))]
    steps: u32,
    /// Where the picture goes
    #[arg(long, value_name = "FILE", default_value = "out/mlp.png")]
    out: PathBuf,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let (points, width) = (args.points as usize, args.width as usize);
    let (places, sides) = spirals(points);
    let stream = args.device.open()?.stream()?;
    let mut network = Network::new(&stream, &places, &sides, width)?;
    let losses = network.train(&stream, args.steps)?;
    let found = network.answers(&stream)?;
    let right = found.iter().zip(&sides).filter(|(found, side)| (**found > 0.0) == (**side > 0.0)).count();
    let (first, last) = (losses[0], losses[losses.len() - 1]);
    println!(
        "loss {first:.3} at first, {last:.3} after {} steps; {right} of {points} points are right",
        args.steps
    );
    ensure!(last < first, "nothing was learned");
    draw(&args.out, &losses)?;
    println!("wrote {}", args.out.display());
    Ok(())
}

/// Draws the losses from left to right, the largest at the top.
fn draw(path: &std::path::Path, losses: &[f32]) -> Result<()> {
    const WIDTH: usize = 600;
    const HEIGHT: usize = 300;
    let most = losses.iter().copied().fold(f32::MIN_POSITIVE, f32::max);
    let mut pixels = vec![0u8; WIDTH * HEIGHT];
    for x in 0..WIDTH {
        let loss = losses[x * losses.len() / WIDTH] / most;
        let top = ((1.0 - loss) * (HEIGHT - 1) as f32) as usize;
        (top..HEIGHT).for_each(|y| pixels[y * WIDTH + x] = if y < top + 3 { 2 } else { 1 });
    }
    write_png(path, WIDTH, vec![255, 255, 255, 214, 228, 242, 31, 90, 160], &pixels)
}
