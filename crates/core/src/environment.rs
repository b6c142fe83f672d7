//! Settings from environment variables, read whenever you open a device. If a value is not allowed, you get an error that
//! names the variable, because a value that we silently ignored would seem to have worked.

use std::path::PathBuf;

use gpustream_hal::{Error, ErrorKind, Result, environment};

use crate::pool::PoolPolicy;
use crate::staging::StagingOptions;

/// The settings of a device that come from the environment.
#[derive(Clone, Copy)]
pub struct Environment {
    pub(crate) pool: Option<PoolPolicy>,
    pub(crate) staging: StagingOptions,
    pub(crate) blocking: bool,
    /// How many seconds drivers may take when the process ends.
    pub exit_seconds: Option<u64>,
}

impl Environment {
    /// Reads the variables.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if a variable has a value that is not allowed.
    pub fn read() -> Result<Self> {
        // We only check it here. `lint` reads the variable again, because it does not know devices.
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

/// What the environment says about tracing the whole process.
pub struct TraceSettings {
    /// The file to write.
    pub file: Option<PathBuf>,
    /// True if we print a report at the end.
    pub summary: bool,
    /// True if operations are ranges in the vendors' profilers.
    pub ranges: bool,
}

impl TraceSettings {
    /// Reads the settings. `%p` in the file's name stands for the process's id.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if a value is not allowed.
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

/// Returns the value of a variable, or `None` if the variable is unset or empty.
fn variable<T>(name: &str, allowed: &str, parse: impl FnOnce(&str) -> Option<T>) -> Result<Option<T>> {
    let Some(value) = std::env::var_os(name) else { return Ok(None) };
    let text = value.to_string_lossy();
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    let refused = || {
        let text = format!(
            "the environment has {name}={text}, but the value must be {allowed}; correct or unset it"
        );
        Error::new(ErrorKind::InvalidArgument, text)
    };
    parse(text).map(Some).ok_or_else(refused)
}
