//! Runs both versions of an application in turns, and compares what they computed.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Result, ensure};
use cudarc::driver::CudaContext;
use examples::Table;
use examples::lattice_boltzmann::simulation::Simulation;
use gpustream::Device;
use image_service::blur::Blur;
use image_service::image::Image;
use math::network::Network;
use math::spirals::spirals;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::with_cudarc;

/// How many frames a film has.
const FRAMES: usize = 10;

/// The populations of a step are below one. Two compilers may round differently in each of some thousand steps.
const ROUNDING: f32 = 1e-4;

/// The wind tunnel, as one part and as two, and with pictures.
pub(crate) fn tunnel(
    table: &mut Table,
    devices: &[Device],
    size: usize,
    steps: usize,
    rounds: u32,
) -> Result<()> {
    for parts in [1, 2] {
        let devices: Vec<_> = devices.iter().cycle().take(parts).cloned().collect();
        let ordinals: Vec<_> = devices.iter().map(|device| device.info().ordinal).collect();
        let (ours, theirs) = in_turns(
            rounds,
            || {
                let mut air = Simulation::new(&devices, size)?;
                air.synchronize()?;
                let start = Instant::now();
                air.steps(steps)?;
                air.synchronize()?;
                Ok((start.elapsed().as_secs_f64(), air.populations()?))
            },
            || {
                let mut air = with_cudarc::simulation::Simulation::new(&ordinals, size)?;
                air.synchronize()?;
                let start = Instant::now();
                air.steps(steps)?;
                air.synchronize()?;
                Ok((start.elapsed().as_secs_f64(), air.populations()?))
            },
        )?;
        let largest = ours.1.iter().zip(&theirs.1).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        ensure!(largest <= ROUNDING, "tunnel of {parts} parts: results differ by {largest}");
        let same =
            if largest == 0.0 { "same bits".to_owned() } else { format!("differ by up to {largest:.0e}") };
        row(
            table,
            &format!("lattice_boltzmann, {parts} on {} GPU", distinct(&ordinals)),
            ours.0,
            theirs.0,
            same,
        );

        let (ours, theirs) = in_turns(
            rounds,
            || {
                let mut air = Simulation::new(&devices, size)?;
                let (start, mut film) = (Instant::now(), Vec::new());
                air.film(FRAMES, steps / FRAMES, keep(&mut film))?;
                Ok((start.elapsed().as_secs_f64(), film))
            },
            || {
                let mut air = with_cudarc::simulation::Simulation::new(&ordinals, size)?;
                let (start, mut film) = (Instant::now(), Vec::new());
                air.film(FRAMES, steps / FRAMES, keep(&mut film))?;
                Ok((start.elapsed().as_secs_f64(), film))
            },
        )?;
        ensure!(ours.1.len() == theirs.1.len(), "films have {} and {} frames", ours.1.len(), theirs.1.len());
        let pixels = || ours.1.iter().flatten().zip(theirs.1.iter().flatten());
        let most = pixels().map(|(a, b)| a.abs_diff(*b)).max().unwrap_or(0);
        ensure!(most <= 1, "film of {parts} parts: levels differ by {most}");
        let different = pixels().filter(|(a, b)| a != b).count();
        let same = if different == 0 {
            "same pictures".to_owned()
        } else {
            format!("{different} pixels differ by 1")
        };
        row(table, &format!("with {FRAMES} pictures"), ours.0, theirs.0, same);
    }
    Ok(())
}

/// Returns a sink that keeps the pictures.
fn keep(film: &mut Vec<Vec<u8>>) -> impl FnMut(usize, &[u8]) -> Result<()> {
    |_, picture| {
        film.push(picture.to_vec());
        Ok(())
    }
}

/// Images that many tasks want blurred at the same time.
pub(crate) fn service(table: &mut Table, device: &Device, images: usize, rounds: u32) -> Result<()> {
    const SIZE: usize = 256;
    const RADIUS: u32 = 8;
    const MEMORY: usize = 256 << 20;
    let pixels = (0..(SIZE * SIZE) as u32).map(|i| i.wrapping_mul(2_654_435_761)).collect();
    let image = Image { width: SIZE, height: SIZE, pixels };
    let want = Arc::new(image.blurred(RADIUS as usize));
    let workers = std::thread::available_parallelism()?.get().min(4);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_time().build()?;

    let ours = Arc::new(runtime.block_on(Blur::warm(device.clone(), MEMORY))?);
    let context = CudaContext::new(device.info().ordinal)?;
    let theirs = runtime.block_on(with_cudarc::blur::Blur::warm(context, MEMORY))?;
    let blur_ours = {
        let ours = ours.clone();
        move |image: Image| {
            let ours = ours.clone();
            async move {
                let _memory = ours.reserve(image.pixels.len()).await?;
                Ok(ours.run(image, RADIUS).await?)
            }
        }
    };
    let blur_theirs = {
        let theirs = theirs.clone();
        move |image: Image| {
            let theirs = theirs.clone();
            async move {
                let _memory = theirs.reserve(image.pixels.len()).await?;
                theirs.run(image, RADIUS).await
            }
        }
    };
    let ((ours_s, ()), (theirs_s, ())) = in_turns(
        rounds,
        || Ok((load(&runtime, images, &image, &want, blur_ours.clone())?, runtime.block_on(ours.drain())?)),
        || {
            Ok((
                load(&runtime, images, &image, &want, blur_theirs.clone())?,
                runtime.block_on(theirs.drain())?,
            ))
        },
    )?;
    row(table, &format!("image_service, {images} images"), ours_s, theirs_s, "same images".to_owned());
    Ok(())
}

/// Blurs `images` images, up to a thousand at the same time. Returns the seconds that it took.
fn load<F: Future<Output = Result<Image>> + Send + 'static>(
    runtime: &Runtime,
    images: usize,
    image: &Image,
    want: &Arc<Image>,
    blur: impl Fn(Image) -> F + Clone + Send + Sync + 'static,
) -> Result<f64> {
    let next = Arc::new(AtomicUsize::new(0));
    runtime.block_on(async {
        let (start, mut clients) = (Instant::now(), JoinSet::new());
        for _ in 0..images.min(1000) {
            let (next, image, want, blur) = (next.clone(), image.clone(), want.clone(), blur.clone());
            clients.spawn(async move {
                while next.fetch_add(1, Ordering::Relaxed) < images {
                    ensure!(blur(image.clone()).await? == *want, "the answer is another image");
                }
                Ok(())
            });
        }
        while let Some(ended) = clients.join_next().await {
            ended??;
        }
        Ok(start.elapsed().as_secs_f64())
    })
}

/// The network, which learns the same points.
pub(crate) fn training(table: &mut Table, device: &Device, steps: u32, rounds: u32) -> Result<()> {
    const WIDTH: usize = 48;
    let ((places, sides), stream) = (spirals(1024), device.stream()?);
    let context = CudaContext::new(device.info().ordinal)?;
    let right =
        |answers: &[f32]| answers.iter().zip(&sides).filter(|(a, b)| (**a > 0.0) == (**b > 0.0)).count();
    let (ours, theirs) = in_turns(
        rounds,
        || {
            let mut network = Network::new(&stream, &places, &sides, WIDTH)?;
            let start = Instant::now();
            let losses = network.train(&stream, steps)?;
            Ok((start.elapsed().as_secs_f64(), (losses, network.answers(&stream)?)))
        },
        || {
            let mut network = with_cudarc::network::Network::new(&context, &places, &sides, WIDTH)?;
            let start = Instant::now();
            let losses = network.train(steps)?;
            Ok((start.elapsed().as_secs_f64(), (losses, network.answers()?)))
        },
    )?;
    let ((our_losses, our_answers), (their_losses, their_answers)) = (&ours.1, &theirs.1);
    // Products are summed in other orders, and training enlarges that: only the beginning must agree closely.
    let early =
        our_losses.iter().zip(their_losses).take(5).map(|(a, b)| (a - b).abs() / a).fold(0.0, f32::max);
    ensure!(early <= 1e-3, "the first losses differ by {early}: {our_losses:?} and {their_losses:?}");
    let (first, last, theirs_last) = (our_losses[0], our_losses.last(), their_losses.last());
    ensure!(last < Some(&first) && theirs_last < Some(&first), "nothing was learned");
    let both = format!(
        "loss {first:.3} to {:.4} and {:.4}; {} and {} of {} right",
        last.unwrap_or(&first),
        theirs_last.unwrap_or(&first),
        right(our_answers),
        right(their_answers),
        sides.len()
    );
    row(table, &format!("mlp, {steps} steps"), ours.0, theirs.0, both);
    Ok(())
}

/// What a run gives: the seconds that it took, and the result.
type Run<T> = Result<(f64, T)>;

/// Runs both in turns, `rounds` times after a first time that warms up. Returns the median time and the last result of each.
fn in_turns<T>(
    rounds: u32,
    mut ours: impl FnMut() -> Run<T>,
    mut theirs: impl FnMut() -> Run<T>,
) -> Result<((f64, T), (f64, T))> {
    let (mut results, mut times) = ((ours()?.1, theirs()?.1), (Vec::new(), Vec::new()));
    for _ in 0..rounds {
        let (our_run, their_run) = (ours()?, theirs()?);
        times.0.push(our_run.0);
        times.1.push(their_run.0);
        results = (our_run.1, their_run.1);
    }
    let median = |mut times: Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    };
    Ok(((median(times.0), results.0), (median(times.1), results.1)))
}

fn row(table: &mut Table, name: &str, ours: f64, theirs: f64, same: String) {
    table.row([name.to_owned(), format!("{ours:.4}"), format!("{theirs:.4}"), same]);
}

fn distinct(ordinals: &[usize]) -> usize {
    ordinals.iter().collect::<HashSet<_>>().len()
}
