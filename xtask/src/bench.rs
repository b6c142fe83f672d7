//! `cargo xtask bench`: the benchmarks, built for speed.

use std::ffi::OsString;

use crate::cargo;

/// Measure every operation against the raw driver call, or a plain loop, in the same run
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Device to measure: cpu, cuda:0, hip:1 [default: the best there is]
    #[arg(long)]
    device: Option<String>,
    /// What else the benchmark program is given; `-- --help` lists it
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
