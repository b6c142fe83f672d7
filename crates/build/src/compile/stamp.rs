//! Stamps by which an image is known to be still good: each names all that went into its image.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;
use std::time::{Duration, Instant};
use std::{env, fs};

use super::Common;
use crate::diagnostic::Result;
use crate::headers::write_if_changed;
use crate::unit::Unit;

/// Variables that compilers read themselves, so that no command line shows their values.
pub(crate) const READ_BY_COMPILERS: [&str; 13] = [
    "CPATH",
    "CPLUS_INCLUDE_PATH",
    "COMPILER_PATH",
    "GCC_EXEC_PREFIX",
    "LIBRARY_PATH",
    "NVCC_PREPEND_FLAGS",
    "NVCC_APPEND_FLAGS",
    "NVCC_CCBIN",
    "HIP_CLANG_PATH",
    "DEVICE_LIB_PATH",
    "HIPCC_COMPILE_FLAGS_APPEND",
    "HIPCC_LINK_FLAGS_APPEND",
    "CCC_OVERRIDE_OPTIONS",
];

/// Calls `compile` unless the image there is already the one that it would make. Returns the compiler's time, if it ran,
/// and its messages of this or of that time. `parts` are the compiler's path and version, its arguments, and all else
/// that decides the outcome; `complete` says whether everything is there that is kept beside the image.
pub(super) fn unless_good(
    (image, complete): (&Path, bool),
    unit: &Unit,
    common: &Common,
    parts: &[&str],
    compile: impl FnOnce() -> Result<String>,
) -> Result<(Option<Duration>, String)> {
    let mut hasher = DefaultHasher::new();
    env!("CARGO_PKG_VERSION").hash(&mut hasher);
    unit.source.text.hash(&mut hasher);
    unit.absolute.hash(&mut hasher);
    for header in &unit.headers {
        (&header.name, &header.text).hash(&mut hasher);
    }
    parts.hash(&mut hasher);
    READ_BY_COMPILERS.map(env::var_os).hash(&mut hasher);
    let stamp = format!("{:016x}\n", hasher.finish());
    let mut path = image.as_os_str().to_owned();
    path.push(".stamp");
    let path = Path::new(&path);
    let old = fs::read_to_string(path).unwrap_or_default();
    if let Some(log) = old.strip_prefix(&stamp)
        && complete
        && !common.rebuild
        && image.exists()
    {
        return Ok((None, log.to_owned()));
    }
    // A build that is interrupted must not leave an old stamp beside a new image.
    let _ = fs::remove_file(path);
    let start = Instant::now();
    let log = compile()?;
    let time = start.elapsed();
    write_if_changed(path, format!("{stamp}{log}").as_bytes())?;
    Ok((Some(time), log))
}
