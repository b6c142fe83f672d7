//! The project's own tasks: `cargo xtask --help` lists them.

mod bench;
mod bundle;
mod cargo;
mod device_header;
mod setup;
mod soak;
mod test;

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
    #[command(flatten)]
    Published(gpustream_cli::Command),
    DeviceHeader(device_header::Args),
    Setup(setup::Args),
    Test(test::Args),
    Bench(bench::Args),
    Soak(soak::Args),
    Bundle(bundle::Args),
}

fn main() -> ExitCode {
    // SAFETY: no other thread runs yet, and the default action calls no function in this program. Rust programs ignore this
    // signal, and then panic if they print to a closed pipe (`| head`).
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    run(&Cli::parse().command).unwrap_or_else(|error| {
        // We leave out anyhow's backtrace, because the messages are complete and for people.
        eprintln!("{error:#}");
        ExitCode::FAILURE
    })
}

fn run(command: &Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Published(command) => return command.run(workspace()),
        Command::DeviceHeader(args) => device_header::run(args)?,
        Command::Setup(args) => setup::run(args)?,
        Command::Test(args) => test::run(args)?,
        Command::Bench(args) => bench::run(args)?,
        Command::Soak(args) => soak::run(args)?,
        Command::Bundle(args) => bundle::run(args)?,
    }
    Ok(ExitCode::SUCCESS)
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
