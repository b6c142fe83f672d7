//! Stamps tell us whether an image is still up to date: each lists everything that went into its image.

use std::ffi::OsStr;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};
use std::{env, fs};

use super::Common;
use crate::diagnostic::Result;
use crate::headers::write_if_changed;
use crate::unit::Unit;

/// Variables that compilers read themselves, so their values appear on no command line.
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

/// What we know about an image, whether this build or an earlier one made it.
pub(super) struct Outcome {
    /// How long the compiler took, if it ran.
    pub(super) time: Option<Duration>,
    pub(super) log: String,
    pub(super) dependencies: Vec<PathBuf>,
}

/// Calls `compile` unless the existing image is the one that it would make. `compile` returns the compiler's
/// messages and the files that it read. `parts` are the compiler's path and version, its arguments, and
/// whatever else decides the outcome. `complete` is false if something is missing that belongs next to the
/// image.
///
/// A stamp holds a checksum of everything that is known before compiling, a checksum of the files that the
/// compiler read, the list of these files, and the messages. The file names in the searched folders count
/// too, because a header that appears there can replace another one or change a `__has_include`.
pub(super) fn unless_good(
    (image, complete): (&Path, bool),
    unit: &Unit,
    common: &Common,
    parts: &[&str],
    compile: impl FnOnce() -> Result<(String, Vec<PathBuf>)>,
) -> Result<Outcome> {
    let mut hasher = DefaultHasher::new();
    env!("CARGO_PKG_VERSION").hash(&mut hasher);
    unit.source.text.hash(&mut hasher);
    unit.absolute.hash(&mut hasher);
    for header in &unit.headers {
        (&header.name, &header.text).hash(&mut hasher);
    }
    parts.hash(&mut hasher);
    READ_BY_COMPILERS.map(env::var_os).hash(&mut hasher);
    common.sums.of_names(common.searched.iter().chain(&unit.searched)).hash(&mut hasher);
    let inputs = format!("{:016x}", hasher.finish());
    let mut path = image.as_os_str().to_owned();
    path.push(".stamp");
    let path = Path::new(&path);
    let old = fs::read(path).unwrap_or_default();
    if complete
        && !common.rebuild
        && image.exists()
        && let Some(outcome) = read(&old, &inputs, common)
    {
        return Ok(outcome);
    }
    // If the build is interrupted, it must not leave an old stamp next to a new image.
    let _ = fs::remove_file(path);
    let (start, began) = (Instant::now(), SystemTime::now());
    let (log, dependencies) = compile()?;
    let time = start.elapsed();
    // If a file was changed during the compilation, we cannot know which text the compiler read. Then we
    // write no stamp.
    let is_new = |file: &PathBuf| fs::metadata(file).and_then(|m| m.modified()).is_ok_and(|at| at > began);
    if !dependencies.iter().filter(|file| !file.starts_with(&common.out_dir)).any(is_new) {
        let mut stamp = format!("{inputs}\n{:016x}\n", common.sums.of_files(&dependencies)).into_bytes();
        for file in &dependencies {
            stamp.extend_from_slice(file.as_os_str().as_bytes());
            stamp.push(b'\n');
        }
        stamp.push(b'\n');
        stamp.extend_from_slice(log.as_bytes());
        write_if_changed(path, &stamp)?;
    }
    Ok(Outcome { time: Some(time), log, dependencies })
}

/// Reads a stamp. Returns `None` if it belongs to other inputs or a file has changed since.
fn read(stamp: &[u8], inputs: &str, common: &Common) -> Option<Outcome> {
    let mut rest = stamp;
    let mut line = || {
        let end = rest.iter().position(|&byte| byte == b'\n')?;
        let (line, after) = rest.split_at(end);
        rest = &after[1..];
        Some(line)
    };
    if line()? != inputs.as_bytes() {
        return None;
    }
    let sum = line()?;
    let mut dependencies = Vec::new();
    loop {
        match line()? {
            [] => break,
            file => dependencies.push(PathBuf::from(OsStr::from_bytes(file))),
        }
    }
    let unchanged = format!("{:016x}", common.sums.of_files(&dependencies)).as_bytes() == sum;
    let log = String::from_utf8_lossy(rest).into_owned();
    unchanged.then_some(Outcome { time: None, log, dependencies })
}
