//! The project's own tasks: `cargo xtask --help` lists them.

mod bench;
mod build_kernels;
mod bundle;
mod cargo;
mod device_header;
mod doctor;
mod port_report;
mod setup;
mod soak;
mod test;
mod timeline;

use std::io::IsTerminal as _;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};

/// The project's own tasks.
#[derive(Parser)]
#[command(name = "cargo xtask", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    BuildKernels(build_kernels::Args),
    PortReport(port_report::Args),
    DeviceHeader(device_header::Args),
    Setup(setup::Args),
    Doctor(doctor::Args),
    Test(test::Args),
    Bench(bench::Args),
    Soak(soak::Args),
    Bundle(bundle::Args),
    Timeline(timeline::Args),
}

fn main() -> ExitCode {
    // SAFETY: no other thread runs yet, and the default action calls no function in this program. Rust programs ignore this
    // signal, and then panic if they print to a closed pipe (`| head`).
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    let result = match Cli::parse().command {
        Command::BuildKernels(args) => build_kernels::run(&args),
        Command::PortReport(args) => port_report::run(&args),
        Command::DeviceHeader(args) => device_header::run(&args),
        Command::Setup(args) => setup::run(&args),
        Command::Doctor(args) => return doctor::run(&args),
        Command::Test(args) => test::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Soak(args) => soak::run(&args),
        Command::Bundle(args) => bundle::run(&args),
        Command::Timeline(args) => timeline::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // We leave out anyhow's backtrace, because the messages are complete and for people.
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the workspace's folder, wherever you run the task.
fn workspace() -> &'static std::path::Path {
    let own = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().unwrap_or(own)
}

/// Returns the folder for the output of cargo and of the tasks.
fn target_dir() -> std::path::PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => folder.into(),
        None => workspace().join("target"),
    }
}

/// Returns a bar that shows only on a terminal, because it would fill a log.
fn progress_bar(length: usize, template: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(length as u64).with_style(style)
}
