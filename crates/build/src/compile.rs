//! Running the compilers.

pub(crate) mod assertions;
pub(crate) mod cpu;
pub(crate) mod cuda;
mod dependencies;
pub(crate) mod hip;
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
use crate::unit::Unit;

/// The settings that all compilations of a build share.
pub(crate) struct Common {
    /// The unpacked device headers first.
    pub(crate) includes: Vec<PathBuf>,
    pub(crate) defines: Vec<(String, Option<String>)>,
    pub(crate) flags: Vec<(Backend, String)>,
    /// The user's folders in which compilers look for headers.
    pub(crate) searched: Vec<PathBuf>,
    pub(crate) sums: Sums,
    pub(crate) out_dir: PathBuf,
    pub(crate) rebuild: bool,
}

impl Common {
    /// Returns `-I`, `-D` and the backend's own flags, which all compilers here spell alike.
    fn arguments(&self, backend: Backend) -> Vec<String> {
        let includes = self.folders(backend).map(|folder| format!("-I{}", folder.display()));
        includes.chain(self.options(backend)).collect()
    }

    /// Returns the folders in which headers are sought: those of ours with the vendors' names first.
    fn folders(&self, backend: Backend) -> impl Iterator<Item = PathBuf> {
        let vendor = self.includes.first().map(|ours| ours.join(vendor::folder(backend)));
        vendor.into_iter().chain(self.includes.iter().cloned())
    }

    /// Returns the same for a compiler that runs in the output folder and hands its arguments to a shell, within quotes
    /// that leave some characters their meaning.
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
    /// The kernels' names in the program, and their symbols where these are others.
    pub(crate) symbols: Vec<(String, String)>,
}

impl Image {
    /// Notes a kernel's symbol. All parts of an image have one table, so a kernel has one symbol in all of them.
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

    /// Notes the symbols of variables that have others than their names, among `symbols` of a target's image. A variable
    /// that this or another target calls otherwise has none.
    fn add_globals(&mut self, module: &Module, symbols: &[String]) {
        for global in &module.globals {
            if let Some(symbol) = find_variable(global, symbols) {
                // Loading then fails to find it, and says so.
                let _ = self.add(&global.path, symbol);
            }
        }
    }
}

/// The outcome of one run of a compiler.
pub(crate) struct Output {
    pub(crate) image: Image,
    pub(crate) reports: Vec<KernelReport>,
    /// The compiler's time; `None` where an earlier build's image was still good.
    pub(crate) compile_time: Option<Duration>,
    pub(crate) warnings: String,
    /// The files that the compiler read.
    pub(crate) dependencies: Vec<PathBuf>,
    /// The variables that kernels may write, by their paths.
    pub(crate) writable: Vec<String>,
}

impl Output {
    /// Gathers the results for `image`. `warnings` count if the compiler ran.
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
        Self { image, reports, compile_time: time, warnings, dependencies, writable }
    }
}

/// Returns the variables of a compiler's output that kernels may write.
fn writable(path: &Path, output: &[u8]) -> Result<Vec<String>> {
    variables::writable(output)
        .ok_or_else(|| Error::message(format!("{}: the symbols cannot be read", path.display())))
}

/// Returns the line that includes the user's file. If the file has host code, which only its vendor's compiler reads, returns
/// the rest of the file instead. If the file is compiled as it is written, returns its whole text: compilers report a missing
/// brace at the end of everything, and that end must be in the user's file.
fn device_code(unit: &Unit) -> Result<String> {
    match unit.device_part.as_ref().map_err(Error::clone)? {
        Some(part) => Ok(unit.in_place(part)),
        None if unit.module.kernels.is_empty() => Ok(unit.in_place(&unit.source.text)),
        None => include(unit),
    }
}

/// The characters that mean something to a shell.
const SHELL: [char; 17] =
    ['"', '\'', '$', '`', '\\', ' ', ';', '&', '|', '<', '>', '(', ')', '*', '?', '\n', '\t'];

/// Returns the argument by which a compiler seeks quoted headers beside the user's file, whose text may stand elsewhere.
fn beside(unit: &Unit) -> Option<String> {
    unit.absolute.parent().map(|folder| format!("-iquote{}", folder.display()))
}

/// Writes the translation unit of a GPU's compiler: the `code` of the user's file, and the assertions against which the compiler's
/// idea of it is held.
fn write_unit(unit: &Unit, path: &Path, code: &str) -> Result<String> {
    let text = format!("// Generated by gpustream-build.\n{code}{}", checks(unit));
    write_if_changed(path, text.as_bytes())?;
    Ok(text)
}

/// Returns the assertions that follow the user's file; nothing if no launcher is made from it.
fn checks(unit: &Unit) -> String {
    if unit.module.kernels.is_empty() {
        return String::new();
    }
    assertions(unit, &unit.absolute.display().to_string())
}

/// Returns whether an error names a line that we wrote behind the user's file.
pub(crate) fn is_about_checks(error: &Error) -> bool {
    error.to_string().contains(assertions::CHECKS)
}

/// Returns the line that includes the user's file. C++ has no way to escape a character of a file's name.
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

/// Runs a compiler of `backend`. Returns its messages.
fn execute(mut command: Command, unit: &Unit, backend: Backend, what: &str) -> Result<String> {
    let program = Path::new(command.get_program()).display().to_string();
    let output = command
        .stdin(std::process::Stdio::null())
        .output()
        .map_err(|e| Error::message(format!("cannot run {program}: {e}")))?;
    // Some parts of nvcc write to the output stream instead of the error stream.
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

/// Returns the header that a compiler says it does not find, in the words of GCC, Clang and nvcc's own front end.
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
