//! `cargo xtask setup`: installs compilers.

use std::process::Command;

use anyhow::{Context as _, ensure};

/// Install the compilers that build kernels (Debian and its relatives; scripts/setup.sh)
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Backends to compile for: cpu, cuda, hip, all
    #[arg(default_value = "cpu", value_parser = ["cpu", "cuda", "hip", "all"])]
    sections: Vec<String>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let script = crate::workspace().join("scripts/setup.sh");
    let status = Command::new(&script)
        .args(&args.sections)
        .status()
        .with_context(|| format!("cannot run {}", script.display()))?;
    ensure!(status.success(), "{} failed ({status})", script.display());
    Ok(())
}
