//! The host's C++ compiler.

use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

use super::{Missing, run, why_not_there};

const HOW: &str = "Install g++ 11 or newer, or clang++ 15 or newer: `apt-get install g++` on Debian and Ubuntu, \
                   `dnf install gcc-c++` on Fedora. The variable CXX names another one.";

/// A C++ compiler that makes kernels for the CPU.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CxxCompiler {
    /// The executable.
    pub path: PathBuf,
    /// The first line of `--version`.
    pub version: String,
    /// Whether the compiler is Clang, which takes some flags differently.
    pub clang: bool,
    /// The target that the compiler compiles for, `x86_64-unknown-linux-gnu` and so on.
    pub target: String,
    spelling: Spelling,
    tool: cc::Tool,
}

/// How a compiler wants to hear of an instruction level.
#[derive(Clone, Copy, Debug)]
enum Spelling {
    /// That of GCC and Clang.
    Usual,
    /// That of `zig c++`.
    Zig,
}

impl Spelling {
    const ALL: [Self; 2] = [Self::Usual, Self::Zig];

    /// Returns the option for a level of [`CxxCompiler::levels`].
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
    /// Finds the compiler for `target` as crate `cc` does: `CXX` and its variants with the target's name, else
    /// `c++` or the target's cross compiler. `None` is the build script's target, or this machine.
    ///
    /// # Errors
    /// [`Missing`] where there is none or it does not run.
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
            // The program that is named may be no compiler at all, and many programs take any option without a word.
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

    /// Has cargo run the build script again when a variable changes that the search for the compiler looks at. The crate that
    /// searches knows them: `CXX`, `CXXFLAGS` and their kin with the target's name.
    pub(crate) fn watch_variables() {
        if let (Ok(target), Ok(host)) = (env::var("TARGET"), env::var("HOST")) {
            // Only the lines that it prints for cargo are wanted; a missing compiler was reported where it was needed.
            let _ = search(&target, &host).cargo_metadata(true).try_get_compiler();
        }
    }

    /// Returns the flags that the compiler's environment variables ask for.
    pub(crate) fn flags(&self) -> impl Iterator<Item = &str> {
        self.tool.args().iter().filter_map(|flag| flag.to_str())
    }

    /// Returns the compiler with the flags that its environment variables ask for.
    pub(crate) fn command(&self) -> Command {
        self.tool.to_command()
    }

    /// Returns the compiler for a link, with those flags of the environment that choose a target or a tool chain. Others are
    /// for compiling. In a link they can change the program that loads the image: with `-ffast-math` g++ 12 adds code that
    /// turns denormals off for the thread that loads it, and with `-fsanitize=address` a library that must come first.
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

    /// Returns the instruction levels that this compiler's target has.
    pub fn levels(&self) -> &'static [&'static str] {
        levels(&self.target)
    }

    /// Returns the options for one of these levels.
    pub(crate) fn options(&self, level: &str) -> Vec<String> {
        let mut options = vec![self.spelling.march(level)];
        // It turns assertions off wherever it optimises.
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

/// Asks a program for the macros of C++, which it has if it is a compiler and takes the option.
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

/// Returns the search for a compiler as crate `cc` does it.
fn search(target: &str, host: &str) -> cc::Build {
    let mut search = cc::Build::new();
    search.cpp(true).target(target).host(host).opt_level(3);
    search.no_default_flags(true).warnings(false).cargo_metadata(false).cargo_warnings(false);
    search
}

/// Returns the triple of this Linux machine, outside of a build script.
fn this_machine() -> String {
    // A musl system has its loader under this name.
    let arch = env::consts::ARCH;
    let musl = fs::exists(format!("/lib/ld-musl-{arch}.so.1")).unwrap_or(false);
    format!("{arch}-unknown-linux-{}", if musl { "musl" } else { "gnu" })
}
