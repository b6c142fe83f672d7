//! The project's own tasks: `cargo xtask --help` lists them.

mod build_kernels;
mod setup;
mod table;

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

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::BuildKernels(args) => build_kernels::run(&args),
        Command::Setup(args) => setup::run(&args),
    }
}

/// The workspace's folder, whatever folder the task was called from.
fn workspace() -> &'static std::path::Path {
    let own = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().unwrap_or(own)
}
