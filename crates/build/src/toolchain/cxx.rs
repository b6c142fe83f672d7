//! The host's C++ compiler.

use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

use super::{Missing, run, why_not_there};

const HOW: &str = "Install g++ 11 or newer, or clang++ 15 or newer: `apt-get install g++` on Debian and Ubuntu, \
                   `dnf install gcc-c++` on Fedora. The variable CXX names another one.";

/// A C++ compiler for CPU kernels.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CxxCompiler {
    /// The executable.
    pub path: PathBuf,
    /// The first line of `--version`.
    pub version: String,
    /// True if the compiler is Clang, because some flags differ.
    pub clang: bool,
    /// The target that it compiles for, for example `x86_64-unknown-linux-gnu`.
    pub target: String,
    spelling: Spelling,
    tool: cc::Tool,
}

/// What we append to the instruction level in the name of the image for checked mode.
pub(crate) const CHECKED: &str = "-checked";

/// How a compiler spells instruction levels.
#[derive(Clone, Copy, Debug)]
enum Spelling {
    /// As GCC and Clang do.
    Usual,
    /// As `zig c++` does.
    Zig,
}

impl Spelling {
    const ALL: [Self; 2] = [Self::Usual, Self::Zig];

    /// Returns the option for one of [`CxxCompiler::levels`].
    fn march(self, level: &str) -> String {
        match (self, level) {
            (Self::Usual, "aarch64") => "-march=armv8-a".to_owned(),
            (Self::Usual, level) => format!("-march={level}"),
            (Self::Zig, "aarch64") => "-march=generic".to_owned(),
            (Self::Zig, level) => format!("-march={}", level.replace('-', "_")),
        }
    }
}

impl CxxCompiler {
    /// Finds the compiler for `target` as the crate `cc` does: `CXX` and its variants with the target's name,
    /// otherwise `c++` or the target's cross compiler. `None` means the build script's target, or this
    /// machine.
    ///
    /// # Errors
    /// [`Missing`] if there is no such compiler or it does not run.
    pub fn find(target: Option<&str>) -> Result<Self, Missing> {
        let host = env::var("HOST").unwrap_or_else(|_| this_machine());
        let target =
            target.map(str::to_owned).or_else(|| env::var("TARGET").ok()).unwrap_or_else(|| host.clone());
        let missing = |tried: Vec<String>| Missing {
            what: format!("No C++ compiler for {target}, which kernels for the CPU need."),
            tried,
            how: HOW,
        };
        let tool = search(&target, &host).try_get_compiler().map_err(|e| missing(vec![e.to_string()]))?;
        let path = tool.path().to_owned();
        if path.components().count() > 1 && !path.exists() {
            return Err(missing(vec![format!("no {}{}", path.display(), why_not_there("CXX"))]));
        }
        let levels = levels(&target);
        let mut spellings = Spelling::ALL.into_iter();
        let found = spellings.find(|spelling| {
            let march = levels.first().map(|level| spelling.march(level));
            macros(&tool, march.as_deref()).is_ok()
        });
        let Some(spelling) = found else {
            // The program may not be a compiler at all, and many programs accept any option silently.
            let why = macros(&tool, None).err().unwrap_or_else(|| {
                let options = Spelling::ALL.map(|spelling| levels.first().map(|level| spelling.march(level)));
                format!(
                    "it takes neither of {}",
                    options.into_iter().flatten().collect::<Vec<_>>().join(" and ")
                )
            });
            return Err(missing(vec![format!("{}: {why}", path.display())]));
        };
        let output = run(tool.to_command().arg("--version"))
            .map_err(|e| missing(vec![format!("{}: {e}", path.display())]))?;
        let version = String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().to_owned();
        if !output.status.success() || version.is_empty() {
            return Err(missing(vec![format!("{}: --version failed", path.display())]));
        }
        Ok(Self { path, version, clang: tool.is_like_clang(), target, spelling, tool })
    }

    /// Makes cargo run the build script again if a variable changes that the search for a compiler reads:
    /// `CXX`, `CXXFLAGS` and their variants with the target's name. The crate `cc` knows them all and prints
    /// them.
    pub(crate) fn watch_variables() {
        if let (Ok(target), Ok(host)) = (env::var("TARGET"), env::var("HOST")) {
            // We only want the lines that it prints. If the compiler is missing, you have already got an
            // error.
            let _ = search(&target, &host).cargo_metadata(true).try_get_compiler();
        }
    }

    /// Returns the flags from the compiler's environment variables.
    pub(crate) fn flags(&self) -> impl Iterator<Item = &str> {
        self.tool.args().iter().filter_map(|flag| flag.to_str())
    }

    /// Returns the compiler's command, including the flags from its environment variables.
    pub(crate) fn command(&self) -> Command {
        self.tool.to_command()
    }

    /// Returns the command for linking. Of the environment's flags, we keep only those that choose a target
    /// or a toolchain. The rest are meant for compiling, and when linking they can change the program that
    /// loads the image: `-ffast-math` makes g++ 12 add code that turns denormals off for the loading thread,
    /// and `-fsanitize=address` needs a library that must come first.
    pub(crate) fn linker(&self) -> Command {
        const KEPT: [&str; 9] =
            ["-m", "-B", "-L", "-Wl,", "--target", "--sysroot", "-fuse-ld", "-stdlib", "--gcc-toolchain"];
        let mut command = Command::new(&self.path);
        let mut arguments = self.tool.args().iter();
        while let Some(argument) = arguments.next() {
            let text = argument.to_string_lossy();
            if ["-target", "-isysroot"].contains(&&*text) {
                command.arg(argument).args(arguments.next());
            } else if KEPT.iter().any(|kept| text.starts_with(kept)) {
                command.arg(argument);
            }
        }
        command
    }

    /// Returns the instruction levels for the target of this compiler.
    pub fn levels(&self) -> &'static [&'static str] {
        levels(&self.target)
    }

    /// Returns the options for one of these levels.
    pub(crate) fn options(&self, level: &str) -> Vec<String> {
        let mut options = vec![self.spelling.march(level)];
        // `zig c++` turns assertions off when it optimises.
        if matches!(self.spelling, Spelling::Zig) && !self.flags().any(|flag| flag.starts_with("-DNDEBUG")) {
            options.push("-UNDEBUG".to_owned());
        }
        options
    }
}

fn levels(target: &str) -> &'static [&'static str] {
    if target.starts_with("x86_64") {
        &["x86-64-v2", "x86-64-v3", "x86-64-v4"]
    } else if target.starts_with("aarch64") {
        &["aarch64"]
    } else {
        &[]
    }
}

/// Asks a program for C++'s predefined macros. It prints them if it is a compiler that accepts the option.
fn macros(tool: &cc::Tool, option: Option<&str>) -> Result<(), String> {
    let mut command = tool.to_command();
    let output =
        run(command.args(option).args(["-E", "-dM", "-x", "c++", "/dev/null"])).map_err(|e| e.to_string())?;
    if String::from_utf8_lossy(&output.stdout).contains("__cplusplus") {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.lines().next().map_or("it said nothing".to_owned(), |line| format!("it said: {line}"));
    Err(format!(
        "asked for the macros of C++ (`-E -dM -x c++`), it did not answer as g++ and clang++ do; {said}"
    ))
}

/// Returns a search for a compiler with the crate `cc`.
fn search(target: &str, host: &str) -> cc::Build {
    let mut search = cc::Build::new();
    search.cpp(true).target(target).host(host).opt_level(3);
    search.no_default_flags(true).warnings(false).cargo_metadata(false).cargo_warnings(false);
    search
}

/// Returns this Linux machine's triple, for use outside a build script.
fn this_machine() -> String {
    // This file is the loader of a musl system.
    let arch = env::consts::ARCH;
    let musl = fs::exists(format!("/lib/ld-musl-{arch}.so.1")).unwrap_or(false);
    format!("{arch}-unknown-linux-{}", if musl { "musl" } else { "gnu" })
}
