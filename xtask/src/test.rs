//! `cargo xtask test`: runs the conformance suite on chosen devices. You can also pass arguments to the tests.

use std::ffi::OsString;

use crate::cargo;

/// Run the conformance suite on chosen devices
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Devices to test: `cpu`, `cpu64` (warps of 64 lanes), `cuda:0`, `hip:1` [default: the first of each backend]
    #[arg(long, value_delimiter = ',')]
    device: Vec<String>,
    /// Build with optimisation
    #[arg(long)]
    release: bool,
    /// Arguments of the tests: a filter such as `copies::`, `--list`, `--test-threads 1`, …
    #[arg(last = true)]
    arguments: Vec<OsString>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mut command = cargo::cargo();
    command.args(["test", "--package", "conformance", "--test", "conformance"]);
    if args.release {
        command.arg("--release");
    }
    if !args.device.is_empty() {
        command.env("GPUSTREAM_TEST_DEVICES", args.device.join(","));
    }
    cargo::run(command.arg("--").args(&args.arguments))
}
