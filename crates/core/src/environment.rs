//! The environment's settings, read whenever a device is opened. A value that is not allowed is an error that names its
//! variable: a value that is silently ignored would seem to have worked.

use std::path::PathBuf;

use gpustream_hal::{Error, ErrorKind, Result, environment};

use crate::pool::PoolPolicy;
use crate::staging::StagingOptions;

/// The settings that a device takes from the environment.
#[derive(Clone, Copy)]
pub struct Environment {
    pub(crate) pool: Option<PoolPolicy>,
    pub(crate) staging: StagingOptions,
    pub(crate) blocking: bool,
    /// The time that drivers may take when the process ends.
    pub exit_seconds: Option<u64>,
}

impl Environment {
    /// Reads the variables.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a value that a variable does not have.
    pub fn read() -> Result<Self> {
        // Only checked here: `lint`, which knows no device, reads the variable again.
        switch("GPUSTREAM_LINT")?;
        let pool = variable("GPUSTREAM_POOL", "`driver` or `none`", |text| match text {
            "0" => Some(None),
            "driver" => Some(Some(PoolPolicy::Driver)),
            "none" => Some(Some(PoolPolicy::Unpooled)),
            _ => None,
        })?;
        let number =
            |name| variable(name, "a number, 0 for the library's own choice", |text| text.parse().ok());
        let exit_seconds =
            variable("GPUSTREAM_EXIT_SECONDS", "a number of seconds, 0 for any time", |text| {
                text.parse().ok()
            })?;
        let ring = number("GPUSTREAM_STAGING_MIB")?.unwrap_or(0_usize).saturating_mul(1 << 20);
        let threads = number("GPUSTREAM_STAGING_THREADS")?.unwrap_or(0_usize);
        Ok(Self {
            pool: pool.flatten(),
            staging: StagingOptions { ring, threads },
            blocking: switch("GPUSTREAM_BLOCKING")?,
            exit_seconds,
        })
    }
}

/// The trace of the whole process that the environment asks for.
pub struct TraceSettings {
    /// The file to write.
    pub file: Option<PathBuf>,
    /// Whether a report is printed at the end.
    pub summary: bool,
    /// Whether operations are ranges in the profilers of vendors.
    pub ranges: bool,
}

impl TraceSettings {
    /// Reads the settings; `%p` in the file's name is the number of the process.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a value that is not allowed.
    pub fn read() -> Result<Self> {
        let file = environment::trusted("GPUSTREAM_TRACE");
        let file = file.map(|file| match file.to_str() {
            Some(name) => PathBuf::from(name.replace("%p", &std::process::id().to_string())),
            None => PathBuf::from(file),
        });
        Ok(Self { file, summary: switch("GPUSTREAM_TRACE_SUMMARY")?, ranges: switch("GPUSTREAM_RANGES")? })
    }
}

fn switch(name: &str) -> Result<bool> {
    let value = variable(name, "0 or 1", |text| match text {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    })?;
    Ok(value.unwrap_or(false))
}

/// Returns the value of a variable, or `None` if the variable is not set or empty.
fn variable<T>(name: &str, allowed: &str, parse: impl FnOnce(&str) -> Option<T>) -> Result<Option<T>> {
    let Some(value) = std::env::var_os(name) else { return Ok(None) };
    let text = value.to_string_lossy();
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    let refused = || {
        let text = format!("{name}={text}: allowed is {allowed}; correct or unset it");
        Error::new(ErrorKind::InvalidArgument, text)
    };
    parse(text).map(Some).ok_or_else(refused)
}
