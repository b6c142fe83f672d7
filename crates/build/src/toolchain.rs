//! Finds the compilers.
//!
//! For each compiler we look at the environment variables that its vendor documents, then at `PATH`, then in
//! the usual folders. If a variable names something that does not exist, that is an error: you asked for a
//! specific compiler, so we must not silently use another. Relative paths start at the folder of the build
//! script's package, because cargo runs the script there.

mod cxx;
mod hip;
mod nvcc;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fmt, io};

pub(crate) use cxx::CHECKED;
pub use cxx::CxxCompiler;
pub(crate) use hip::base_target;
pub use hip::{HipCompiler, HipKind};
pub use nvcc::Nvcc;

use crate::diagnostic::Error;

/// A compiler that we did not find, with what we tried and how you can get one.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Missing {
    /// What we looked for.
    pub what: String,
    /// The variables, paths and names that we tried, in order, each with the reason why it did not work.
    pub tried: Vec<String>,
    /// How to get the compiler.
    pub how: &'static str,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.what)?;
        for tried in &self.tried {
            write!(f, "\n  tried {tried}")?;
        }
        write!(f, "\n{}", self.how)
    }
}

impl std::error::Error for Missing {}

impl From<Missing> for Error {
    fn from(missing: Missing) -> Self {
        Self::message(missing.to_string())
    }
}

/// Returns the folder that the setup script uses for compilers that need no root.
pub fn toolchains_dir() -> Option<PathBuf> {
    let cache = match variable("XDG_CACHE_HOME") {
        Some(cache) => PathBuf::from(cache),
        None => Path::new(&variable("HOME")?).join(".cache"),
    };
    Some(cache.join("gpustream").join("toolchains"))
}

/// Returns an environment variable if it is set and not empty.
fn variable(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

/// Returns the path in an environment variable, if it is set. We make relative paths absolute now, because
/// some compilers run in another folder.
fn place(variable_name: &str) -> Option<PathBuf> {
    let path = PathBuf::from(variable(variable_name)?);
    Some(std::path::absolute(&path).unwrap_or(path))
}

/// Returns the program in an environment variable, if it is set. A bare name means the program of that name
/// on `PATH`.
fn program(variable_name: &str) -> Option<PathBuf> {
    let path = PathBuf::from(variable(variable_name)?);
    if path.components().count() > 1 {
        place(variable_name)
    } else {
        path.to_str().and_then(on_path).or(Some(path))
    }
}

/// Returns an explanation, in parentheses after a space, if a variable may not mean the path that its author
/// expects.
fn why_not_there(variable_name: &str) -> String {
    let value = variable(variable_name).map(PathBuf::from);
    let relative = value.filter(|path| path.is_relative() && variable_name != "PATH");
    match (relative, env::current_dir()) {
        (Some(path), Ok(folder)) => format!(
            " ({variable_name} says `{}`, which counts from {}: cargo runs a build script in the folder of its package. Give \
             the whole path)",
            path.display(),
            folder.display()
        ),
        _ => String::new(),
    }
}

/// Returns true if the path is an executable. A bare name that is not on `PATH` is not.
fn is_program(path: &Path) -> bool {
    path.components().count() > 1 && is_executable(path)
}

/// Returns the first executable of that name on `PATH`.
fn on_path(name: &str) -> Option<PathBuf> {
    let folders = env::var_os("PATH")?;
    let mut paths = env::split_paths(&folders).map(|dir| dir.join(name));
    paths.find(|path| is_executable(path)).map(|path| std::path::absolute(&path).unwrap_or(path))
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    path.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

/// Returns the entries of a folder in order, or nothing if it cannot be read.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> =
        folder.read_dir().into_iter().flatten().filter_map(|e| e.ok().map(|e| e.path())).collect();
    paths.sort();
    paths
}

/// Runs a tool and returns its standard output, or why it failed.
fn ask(path: &Path, args: &[&str]) -> Result<String, String> {
    let output = run(Command::new(path).args(args)).map_err(|e| e.to_string())?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        let text = String::from_utf8_lossy(&output.stderr);
        Err(text.lines().next().unwrap_or("it failed without a message").to_owned())
    }
}

fn run(command: &mut Command) -> io::Result<Output> {
    command.stdin(std::process::Stdio::null()).output()
}
