//! `cargo xtask test`: the conformance suite on chosen devices.

use std::ffi::OsString;

use crate::cargo;

/// Run the conformance suite on chosen devices
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Devices to test: cpu, cuda:0, hip:1 [default: one of each backend that has any]
    #[arg(long, value_delimiter = ',')]
    device: Vec<String>,
    /// Build with optimisation
    #[arg(long)]
    release: bool,
    /// Only this file of the suite: streams, copies, kernels, …
    #[arg(long)]
    file: Option<String>,
    /// What the tests are given: a filter, `--list`, `--test-threads 1`, …
    #[arg(last = true)]
    arguments: Vec<OsString>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mut command = cargo::cargo();
    command.args(["test", "--package", "conformance", "--test"]);
    command.arg(args.file.as_deref().unwrap_or("*"));
    if args.release {
        command.arg("--release");
    }
    if !args.device.is_empty() {
        command.env("GPUSTREAM_TEST_DEVICES", args.device.join(","));
    }
    cargo::run(command.arg("--").args(&args.arguments))
}
