//! A service that blurs images on a GPU: PNG in, PNG out. It shows what a server needs: no call blocks an executor's thread,
//! memory has a limit and requests wait for it, the first request finds everything warm, the end loses nothing.
//!
//! ```console
//! $ cargo run --release -p image_service                         # a load of its own, 1,000 requests at once
//! $ cargo run --release -p image_service -- --listen 0.0.0.0:8080
//! $ curl --data-binary @photo.png 'http://localhost:8080/blur?radius=8' > blurred.png
//! ```
//!
//! The first prints how long requests took, and the memory in use after each quarter of the load. `GPUSTREAM_TRACE=service.pftrace`
//! writes a timeline: the span of a request stands above what it submits. The guide "Servers" in gpustream's documentation
//! explains the decisions.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Parser;
use gpustream::{Device, DeviceOptions, TraceLayer};
use image_service::blur::Blur;
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::net::{TcpListener, TcpSocket};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tracing_subscriber::layer::SubscriberExt;

use crate::load::Load;

mod load;
mod service;

/// Images come and go on many threads. With the C library's allocator the process grows to a multiple of what it uses.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Blurs PNG images, as a service
#[derive(Parser)]
struct Args {
    /// Device to run on: cpu, gpu, cuda:0, hip:1, … [default: the best of this machine, or `GPUSTREAM_DEVICE`]
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// Address to listen at. Without it, the program sends itself a load and ends
    #[arg(long)]
    listen: Option<SocketAddr>,
    /// MiB of images that may be under way at the same time
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=65536))]
    memory: u32,
    /// Requests of the load
    #[arg(long, default_value_t = 4000, value_parser = clap::value_parser!(u32).range(4..))]
    requests: u32,
    /// Requests of the load that are under way at the same time
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=10000))]
    at_once: u32,
    /// Rows and columns of the load's images
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=4096))]
    size: u32,
    /// Pixels around each pixel that its mean takes in, in each direction
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(..=100))]
    radius: u32,
    /// Seconds after which a load counts as failed
    #[arg(long, default_value_t = 600)]
    limit: u64,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        // After a fault of the device every call fails, so a new process is the way on: the supervisor starts one.
        Err(error) => {
            eprintln!("Error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(TraceLayer::new()))?;
    // Each connection is a file, and the usual limit of 1,024 is that of `select`.
    let files = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, rustix::process::Rlimit { current: files.maximum, ..files })?;
    let memory = (args.memory as usize) << 20;
    // The service bounds what requests use, and this bounds the rest: an error instead of a neighbour's out-of-memory.
    let options = DeviceOptions::default().memory_limit(2 * memory as u64 + (64 << 20));
    let device = match &args.device {
        Some(name) => Device::open_with(name, options)?,
        None => Device::best_with(options)?,
    };
    println!("{device}");
    let processors = std::thread::available_parallelism()?.get();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(processors.min(4))
        .max_blocking_threads(processors)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let blur = Arc::new(Blur::warm(device, memory).await?);
        match args.listen {
            Some(address) => {
                let listener = listen(address).with_context(|| format!("cannot listen at {address}"))?;
                println!("listening at {}", listener.local_addr()?);
                service::serve(listener, blur, asked_to_stop()).await
            }
            None => load_of_its_own(args, blur).await,
        }
    })
}

/// Listens with room for a few thousand clients that come at once. The usual 1,024 are too few: the kernel then drops
/// connections that their clients think they have.
fn listen(address: SocketAddr) -> Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket.listen(4096)?)
}

/// Resolves when the terminal or a supervisor asks the program to stop.
async fn asked_to_stop() {
    let (Ok(mut terminal), Ok(mut supervisor)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return;
    };
    tokio::select! {
        _ = terminal.recv() => {}
        _ = supervisor.recv() => {}
    }
}

async fn load_of_its_own(args: &Args, blur: Arc<Blur>) -> Result<()> {
    let listener = listen((std::net::Ipv4Addr::LOCALHOST, 0).into())?;
    let address = listener.local_addr()?;
    let client = load::client();
    let (stop, stopped) = oneshot::channel();
    let stopped = async {
        let _ = stopped.await;
    };
    let server = tokio::spawn(service::serve(listener, blur.clone(), stopped));
    println!("images of {0} x {0}, radius {1}, {2} requests at once", args.size, args.radius, args.at_once);
    println!("requests  per second    p50, ms    p99, ms  device, MiB  pinned, MiB  process, MiB");
    for quarter in 0..4 {
        let requests = (args.requests as usize * (quarter + 1) / 4) - args.requests as usize * quarter / 4;
        let limit = Duration::from_secs(args.limit);
        let (size, at_once) = (args.size as usize, args.at_once as usize);
        let load = Load { requests, at_once, size, radius: args.radius, limit };
        let start = Instant::now();
        let times = load.run(&client, address).await?;
        let seconds = start.elapsed().as_secs_f64();
        let at = |share: f64| 1e3 * times[((times.len() - 1) as f64 * share) as usize].as_secs_f64();
        let metrics = blur.device().metrics();
        println!(
            "{requests:8}  {:10.0}  {:9.1}  {:9.1}  {:11}  {:11}  {:12}",
            requests as f64 / seconds,
            at(0.5),
            at(0.99),
            metrics.device_memory.reserved >> 20,
            metrics.pinned_memory.reserved >> 20,
            resident()? >> 20,
        );
    }
    let _ = stop.send(());
    server.await??;
    let metrics = blur.device().metrics();
    anyhow::ensure!(
        metrics.pending == 0 && metrics.fault.is_none(),
        "the service ended with work under way: {metrics:?}"
    );
    println!("ended with nothing under way on {}", blur.device());
    Ok(())
}

/// Returns how many bytes of memory this process has.
fn resident() -> Result<usize> {
    let pages = std::fs::read_to_string("/proc/self/statm")?;
    let pages: usize = pages.split(' ').nth(1).context("no second field in /proc/self/statm")?.parse()?;
    Ok(pages * rustix::param::page_size())
}
