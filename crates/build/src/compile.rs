//! Runs the compilers: one file for each backend, and here what they share.

pub(crate) mod assertions;
pub(crate) mod cpu;
pub(crate) mod cuda;
mod dependencies;
pub(crate) mod hip;
pub(crate) mod preprocess;
pub(crate) mod search;
mod stamp;

pub(crate) use self::dependencies::Sums;
use self::stamp::Outcome;
pub(crate) use self::stamp::READ_BY_COMPILERS;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use gpustream_hal::variables;

use self::assertions::assertions;
use crate::backend::Backend;
use crate::diagnostic::{Error, Result};
use crate::headers::{vendor, write_if_changed};
use crate::report::KernelReport;
use crate::signature::Module;
use crate::tables::symbols::find_variable;
use crate::toolchain::CHECKED;
use crate::unit::Unit;

/// Settings that all compilations of a build share.
pub(crate) struct Common {
    /// The unpacked device headers come first.
    pub(crate) includes: Vec<PathBuf>,
    pub(crate) defines: Vec<(String, Option<String>)>,
    /// True if we do not warn of kernels on stacks.
    pub(crate) allow_stacks: bool,
    /// True if kernels get no launchers.
    pub(crate) by_name: bool,
    pub(crate) flags: Vec<(Backend, String)>,
    /// The user's folders that compilers search for headers.
    pub(crate) searched: Vec<PathBuf>,
    pub(crate) sums: Sums,
    pub(crate) out_dir: PathBuf,
    pub(crate) rebuild: bool,
}

impl Common {
    /// Returns `-I`, `-D` and the backend's own flags. All our compilers spell them alike.
    fn arguments(&self, backend: Backend) -> Vec<String> {
        let includes = self.folders(backend).map(|folder| format!("-I{}", folder.display()));
        includes.chain(self.options(backend)).collect()
    }

    /// Returns the folders to search for headers. Our headers with the vendors' names come first.
    fn folders(&self, backend: Backend) -> impl Iterator<Item = PathBuf> {
        let vendor = self.includes.first().map(|ours| ours.join(vendor::folder(backend)));
        vendor.into_iter().chain(self.includes.iter().cloned())
    }

    /// Returns the same arguments for a compiler that runs in the output folder and passes them to a shell.
    /// The shell interprets some characters even in quotes, so we refuse folders that contain them.
    fn shell_arguments(&self, backend: Backend) -> Result<Vec<String>> {
        let mut arguments = Vec::new();
        for folder in self.folders(backend) {
            let folder = folder.strip_prefix(&self.out_dir).unwrap_or(&folder).display().to_string();
            if folder.contains(SHELL) {
                return Err(Error::message(format!(
                    "{folder:?}: {backend} kernels cannot be compiled with an include folder of this name; use one without \
                     spaces, quotes and characters that mean something to a shell"
                )));
            }
            arguments.push(format!("-I{folder}"));
        }
        arguments.extend(self.options(backend));
        Ok(arguments)
    }

    /// Returns the same without folders, for a run-time compiler.
    pub(crate) fn options(&self, backend: Backend) -> impl Iterator<Item = String> {
        let defines = self.defines.iter().map(|(name, value)| match value {
            Some(value) => format!("-D{name}={value}"),
            None => format!("-D{name}"),
        });
        let flags = self.flags.iter().filter(move |(b, _)| *b == backend).map(|(_, flag)| flag.clone());
        defines.chain(flags)
    }
}

/// A compiled image.
#[derive(Debug)]
pub(crate) struct Image {
    pub(crate) backend: Backend,
    pub(crate) targets: Vec<String>,
    pub(crate) path: PathBuf,
    /// The kernels' names in the program and their symbols, if the two differ.
    pub(crate) symbols: Vec<(String, String)>,
}

impl Image {
    /// Records a kernel's symbol. An image has one table for all of its parts, so a kernel must have the same
    /// symbol in each.
    fn add(&mut self, key: &str, symbol: &str) -> Result<()> {
        match self.symbols.iter().find(|(known, _)| known == key) {
            Some((_, known)) if known != symbol => Err(Error::message(format!(
                "kernel `{key}` is called {known} for one target and {symbol} for another; give it a namespace with a \
                 name, or write `extern \"C\"`"
            ))),
            None if key != symbol => {
                self.symbols.push((key.to_owned(), symbol.to_owned()));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Records the symbols of variables if they differ from the variables' names. `symbols` are those of one
    /// target's image. If a variable has another symbol on another target, it gets none.
    fn add_globals(&mut self, module: &Module, symbols: &[String]) {
        for global in &module.globals {
            if let Some(symbol) = find_variable(global, symbols) {
                // Loading will then fail to find it and report that.
                let _ = self.add(&global.path, symbol);
            }
        }
    }
}

/// The result of running a compiler once.
pub(crate) struct Output {
    pub(crate) image: Image,
    /// The targets that `reports` is about.
    pub(crate) compiled_for: Vec<String>,
    pub(crate) reports: Vec<KernelReport>,
    /// How long the compiler took; `None` if an earlier build's image was still up to date.
    pub(crate) compile_time: Option<Duration>,
    pub(crate) warnings: String,
    pub(crate) dependencies: Vec<PathBuf>,
    /// The paths of the variables that kernels may write.
    pub(crate) writable: Vec<String>,
}

impl Output {
    /// Collects the results for `image`. `warnings` only count if the compiler ran.
    fn new(
        image: Image,
        mut reports: Vec<KernelReport>,
        Outcome { time, dependencies, .. }: Outcome,
        warnings: String,
        writable: Vec<String>,
    ) -> Self {
        for report in &mut reports {
            report.compile_time = time;
        }
        let warnings = if time.is_some() { warnings } else { String::new() };
        let is_reported = |target: &&String| !target.ends_with(CHECKED) && !target.starts_with("compute_");
        let compiled_for = image.targets.iter().filter(is_reported).cloned().collect();
        Self { image, compiled_for, reports, compile_time: time, warnings, dependencies, writable }
    }
}

/// Returns the variables in a compiler's output that kernels may write.
fn writable(path: &Path, output: &[u8]) -> Result<Vec<String>> {
    variables::writable(output)
        .ok_or_else(|| Error::message(format!("{}: the symbols cannot be read", path.display())))
}

/// Returns the code that stands for the user's file, usually a line that includes it. If the file has host
/// code that only its vendor's compiler understands, returns the rest of the file. If the file is compiled as
/// written, returns its whole text: compilers report a missing brace at the very end, and that end must be in
/// the user's file.
fn device_code(unit: &Unit) -> Result<String> {
    match unit.device_part.as_ref().map_err(Error::clone)? {
        Some(part) => Ok(unit.in_place(part)),
        None if unit.module.kernels.is_empty() || unit.source.is_preprocessed() => {
            Ok(unit.in_place(&unit.source.text))
        }
        None => include(unit),
    }
}

/// Characters that mean something to a shell.
const SHELL: [char; 17] =
    ['"', '\'', '$', '`', '\\', ' ', ';', '&', '|', '<', '>', '(', ')', '*', '?', '\n', '\t'];

/// Returns the argument that makes a compiler look for quoted headers next to the user's file, because the
/// text that it reads may be elsewhere.
fn beside(unit: &Unit) -> Option<String> {
    unit.absolute.parent().map(|folder| format!("-iquote{}", folder.display()))
}

/// Writes the translation unit for a GPU compiler: `code`, which stands for the user's file, and our assertions.
fn write_unit(unit: &Unit, path: &Path, code: &str) -> Result<String> {
    let text = format!("// Generated by gpustream-build.\n{code}{}", checks(unit));
    write_if_changed(path, text.as_bytes())?;
    Ok(text)
}

/// Returns the assertions that follow the user's file, or nothing if we make no launcher from it.
fn checks(unit: &Unit) -> String {
    if unit.module.kernels.is_empty() {
        return String::new();
    }
    assertions(unit, &unit.absolute.display().to_string())
}

/// Returns true if an error mentions a line that we wrote after the user's file.
pub(crate) fn is_about_checks(error: &Error) -> bool {
    error.to_string().contains(assertions::CHECKS)
}

/// Returns the line that includes the user's file. C++ cannot escape characters in a file name.
fn include(unit: &Unit) -> Result<String> {
    let path = unit.absolute.display().to_string();
    let has = |characters: &[char]| path.contains(characters);
    if has(&['\n', '\r']) || has(&['"']) && has(&['>']) {
        return Err(Error::message(format!(
            "{path:?}: a kernel file's path can hold a quote or `>`, but not both, and no line break; move it"
        )));
    }
    Ok(if has(&['"']) { format!("#include <{path}>\n") } else { format!("#include \"{path}\"\n") })
}

/// Runs a compiler and returns its messages.
fn execute(mut command: Command, unit: &Unit, backend: Backend, what: &str) -> Result<String> {
    let program = Path::new(command.get_program()).display().to_string();
    let output = command
        .stdin(std::process::Stdio::null())
        .output()
        .map_err(|e| Error::message(format!("cannot run {program}: {e}")))?;
    // Some parts of nvcc write errors to standard output.
    let mut text = String::from_utf8_lossy(&output.stderr).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stdout));
    if output.status.success() {
        return Ok(text);
    }
    let text = text.trim_end();
    let text =
        if text.is_empty() { format!("{program} failed ({})", output.status) } else { text.to_owned() };
    let file = unit.source.path.display().to_string();
    let help = missing_header(&text).map_or_else(String::new, |header| {
        format!(
            "\nhelp: no folder that is searched for {backend} has `{header}`: `.include(FOLDER)` in the build script adds \
             one; {}",
            backend.leave_out_for(&file)
        )
    });
    Err(Error::message(format!("{file} does not compile for {what}:\n{text}{help}")))
}

/// Returns the header that a compiler did not find, from the messages of GCC, Clang and nvcc's own front end.
fn missing_header(text: &str) -> Option<&str> {
    text.lines().find_map(|line| {
        let (_, error) = line.split_once("error: ")?;
        let of_gcc = || error.strip_suffix(": No such file or directory");
        let of_clang = || error.strip_prefix('\'')?.strip_suffix("' file not found");
        let of_nvcc = || error.strip_prefix("cannot open source file \"")?.strip_suffix('"');
        of_gcc().or_else(of_clang).or_else(of_nvcc)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_missing_header_is_named_in_each_compilers_words() {
        for text in [
            "k.cu:1:10: fatal error: cublas_v2.h: No such file or directory\n    1 | #include",
            "k.cu:1:10: fatal error: 'cublas_v2.h' file not found\n",
            "k.cu(1): catastrophic error: cannot open source file \"cublas_v2.h\"\n",
        ] {
            assert_eq!(missing_header(text), Some("cublas_v2.h"), "{text}");
        }
        assert_eq!(missing_header("k.cu:1:10: error: 'x' was not declared in this scope"), None);
    }
}
