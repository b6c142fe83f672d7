//! `cargo xtask setup`: installs compilers.

use std::process::Command;

use crate::cargo;

/// Install the compilers that build kernels (Debian and its relatives; scripts/setup.sh)
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Backends to compile for: cpu, cuda, hip, all
    #[arg(default_value = "cpu", value_parser = ["cpu", "cuda", "hip", "all"])]
    sections: Vec<String>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    cargo::run(Command::new(crate::workspace().join("scripts/setup.sh")).args(&args.sections))
}
