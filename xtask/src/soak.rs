//! `cargo xtask soak`: builds the soak program with optimisation and runs it. Leaks that a test cannot see may show
//! after minutes.

use std::ffi::OsString;

use crate::cargo;

/// Do everything at once for a long time, and watch whether the process grows
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Device to run on: cpu, cuda:0, hip:1
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Minutes to run
    #[arg(long, default_value = "10")]
    minutes: String,
    /// Further options of the program; `-- --help` lists them
    #[arg(last = true)]
    arguments: Vec<OsString>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mut command = cargo::cargo();
    command.args(["run", "--quiet", "--release", "--package", "soak", "--"]);
    command.args(["--device", &args.device, "--minutes", &args.minutes]);
    cargo::run(command.args(&args.arguments))
}
