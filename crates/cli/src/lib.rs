//! The commands of the program `gpustream`. `cargo install gpustream-cli` installs it, and `gpustream --help` lists them.
//!
//! This library is for gpustream's own tasks (`cargo xtask`), which have the same commands. It may change with any version.
#![warn(clippy::missing_errors_doc)]

mod build_kernels;
mod doctor;
mod port_report;
mod progress;
mod target;
mod timeline;

use std::path::Path;
use std::process::ExitCode;

/// A command with its arguments. Its variants are subcommands of a program that flattens it into its own.
#[derive(clap::Subcommand)]
#[non_exhaustive]
#[allow(missing_docs, reason = "each command's help is at its arguments")]
pub enum Command {
    Doctor(doctor::Args),
    Timeline(timeline::Args),
    BuildKernels(build_kernels::Args),
    PortReport(port_report::Args),
}

impl Command {
    /// Runs the command, and prints its results. `build-kernels` takes the kernels of `project` if you name none, and writes to
    /// cargo's target folder there.
    ///
    /// # Errors
    ///
    /// Returns why the command failed, for people to read. `doctor` returns a code instead: [`ExitCode::FAILURE`] if you cannot
    /// even use the CPU.
    pub fn run(&self, project: &Path) -> anyhow::Result<ExitCode> {
        match self {
            Self::Doctor(args) => return Ok(doctor::run(args)),
            Self::Timeline(args) => timeline::run(args)?,
            Self::BuildKernels(args) => build_kernels::run(args, project)?,
            Self::PortReport(args) => port_report::run(args)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}
