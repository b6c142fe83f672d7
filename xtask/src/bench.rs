//! `cargo xtask bench`: builds the benchmarks with optimisation and runs them.

use std::ffi::OsString;

use crate::cargo;

/// Measure every operation against the raw driver call, or a plain loop, in the same run
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Device to measure: cpu, cuda:0, hip:1 [default: the best of this machine]
    #[arg(long)]
    device: Option<String>,
    /// Further options of the benchmark program; `-- --help` lists them
    #[arg(last = true)]
    arguments: Vec<OsString>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mut command = cargo::cargo();
    command.args(["run", "--quiet", "--release", "--package", "bench", "--"]);
    if let Some(device) = &args.device {
        command.arg("--device").arg(device);
    }
    cargo::run(command.args(&args.arguments))
}
