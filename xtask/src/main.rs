//! The project's own tasks: `cargo xtask --help` lists them.

mod build_kernels;
mod setup;
mod table;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

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
    Setup(setup::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::BuildKernels(args) => build_kernels::run(&args),
        Command::Setup(args) => setup::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // Without the backtrace that anyhow would add: these are messages to people, and complete.
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The workspace's folder, whatever folder the task was called from.
fn workspace() -> &'static std::path::Path {
    let own = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().unwrap_or(own)
}
