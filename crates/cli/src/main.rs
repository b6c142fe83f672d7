//! The program `gpustream`: `gpustream --help` lists its commands.

use std::path::Path;
use std::process::ExitCode;

use clap::Parser;

/// Check a machine for gpustream, draw traces, and try kernel files with every compiler
#[derive(Parser)]
#[command(name = "gpustream", version)]
struct Cli {
    #[command(subcommand)]
    command: gpustream_cli::Command,
}

fn main() -> ExitCode {
    // SAFETY: no other thread runs yet, and the default action calls no function in this program. Rust programs ignore this
    // signal, and then panic if they print to a closed pipe (`| head`).
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    Cli::parse().command.run(Path::new("")).unwrap_or_else(|error| {
        // We leave out anyhow's backtrace, because the messages are complete and for people.
        eprintln!("{error:#}");
        ExitCode::FAILURE
    })
}
