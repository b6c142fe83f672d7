//! Kernels for the CPU: one shared object per instruction level, and one more for checked mode.
//!
//! Bounds checks keep loops over arrays of known size from being vectorised, even if nothing uses the result.
//! So checked mode has an image of its own. It adds only a sixth to the compile time, because it need not be
//! fast.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use super::{Common, Image, Output, beside, checks, dependencies, device_code, execute, preprocess, stamp};
use crate::backend::Backend;
use crate::diagnostic::Result;
use crate::headers::write_if_changed;
use crate::loops::{self, Form, Lines, Loops, Refusal};
use crate::report::{KernelReport, Threads};
use crate::signature::{Global, Instance, Kernel};
use crate::toolchain::{CHECKED, CxxCompiler};
use crate::unit::Unit;

/// These flags keep kernels vectorised. If any one of them is missing, the loop over a block's threads stays
/// scalar and runs up to 20 times slower. Strict aliasing is needed too, but it is on by default.
const VECTORISING: [&str; 6] = [
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=fast",
    "-fvisibility=hidden",
    "-fvisibility-inlines-hidden",
    "-fno-semantic-interposition",
];

/// Flags for linking. We keep the symbol table, because checked mode finds shared arrays in it.
const LINK: [&str; 8] = [
    "-shared",
    "-static-libgcc",
    "-static-libstdc++",
    "-Wl,--as-needed",
    "-Wl,-Bsymbolic",
    "-Wl,-z,defs",
    "-Wl,-z,noexecstack",
    "-Wl,--strip-debug",
];

/// How large a stack frame may be, in bytes, if a kernel runs as loops. The frame holds the variables of all
/// threads of a block, and the limit is what the backend's stack has for one thread's variables.
const LARGEST_FRAME: &str = "-Werror=frame-larger-than=524288";

pub(crate) fn compile(unit: &Unit, compiler: &CxxCompiler, level: &str, common: &Common) -> Result<Output> {
    let name = &unit.module.name;
    let checked = level.ends_with(CHECKED);
    let mut loops = if checked { Loops::default() } else { loops::rewrite(unit)? };
    let text = translation_unit(unit, &loops, Lines::Users)?;
    let source = common.out_dir.join(format!("{name}.cpu{}.cpp", if checked { CHECKED } else { "" }));
    write_if_changed(&source, text.as_bytes())?;
    let target = Target::new(unit, compiler, level, common);

    let commands = format!("{:?} {LARGEST_FRAME} {:?}", target.command(&source), target.link());
    let parts = [&*commands, &compiler.version, &text];
    // The loop forms that we left out, for later builds too.
    let left_out = target.file("left-out");
    // The user's variables. We list them before linking, because the linker adds the compiler's own.
    let own_variables = target.file("variables");
    let outcome = stamp::unless_good((&target.image, own_variables.exists()), unit, common, &parts, || {
        let _ = fs::remove_file(&left_out);
        let (log, names) = target.compile_what_can(&source, &mut loops)?;
        if !names.is_empty() {
            write_if_changed(&left_out, names.join("\n").as_bytes())?;
        }
        let object = target.file("o");
        let writable = super::writable(&object, &fs::read(&object)?)?;
        write_if_changed(&own_variables, writable.join("\n").as_bytes())?;
        let log = log + &target.execute(target.link())?;
        let _ = fs::remove_file(&object);
        // The compiler ran in this process's folder.
        Ok((log, dependencies::take_rule(&target.file("d"), &env::current_dir()?)))
    })?;
    let names = fs::read_to_string(&left_out).unwrap_or_default();
    loops.leave_out(|name| names.lines().any(|line| line == name));
    // Figures about the checked image would tell you nothing about the kernels that you run.
    let functions = unit.module.functions().filter(|_| !checked);
    let reports = functions.map(|function| report(unit, function, level, &target.image, &loops)).collect();
    // The module table has the program's names.
    let (targets, symbols) = (vec![level.to_owned()], Vec::new());
    let image = Image { backend: Backend::Cpu, targets, path: target.image, symbols };
    let writable = fs::read_to_string(&own_variables)?.lines().map(str::to_owned).collect();
    let log = outcome.log.clone()
        + &if common.allow_stacks || checked { String::new() } else { on_stacks(unit, &loops) };
    Ok(Output::new(image, reports, outcome, log, writable))
}

/// One image of a file: how to compile and link it.
struct Target<'a> {
    unit: &'a Unit,
    compiler: &'a CxxCompiler,
    flags: Vec<String>,
    image: PathBuf,
    /// What we compile for, in error messages.
    what: String,
}

impl<'a> Target<'a> {
    fn new(unit: &'a Unit, compiler: &'a CxxCompiler, target: &str, common: &Common) -> Self {
        let (level, checked) = target.strip_suffix(CHECKED).map_or((target, false), |level| (level, true));
        let mut flags = flags(compiler, level, checked);
        flags.extend(common.arguments(Backend::Cpu));
        flags.extend(beside(unit));
        let image = common.out_dir.join(format!("{}.{target}.so", unit.module.name));
        Self { unit, compiler, flags, image, what: format!("the CPU ({level})") }
    }

    /// Returns the path of a file with the image's name.
    fn file(&self, extension: &str) -> PathBuf {
        self.image.with_extension(extension)
    }

    /// Returns the command that compiles `source`.
    fn command(&self, source: &Path) -> Command {
        let mut command = self.compiler.command();
        command.args(&self.flags).arg("-MD").arg("-MF").arg(self.file("d"));
        command.arg("-c").arg(source).arg("-o").arg(self.file("o"));
        command
    }

    /// Returns the command that links. This is a separate step, without flags that compilers would apply to the
    /// whole program.
    fn link(&self) -> Command {
        let mut command = self.compiler.linker();
        command.arg(self.file("o")).args(LINK).arg("-o").arg(&self.image);
        command
    }

    /// Runs a command and returns its log.
    fn execute(&self, command: Command) -> Result<String> {
        execute(command, self.unit, Backend::Cpu, &self.what)
    }

    fn compile(&self, source: &Path, loops: &Loops) -> Result<String> {
        let mut command = self.command(source);
        command.args(loops.any().then_some(LARGEST_FRAME));
        self.execute(command)
    }

    /// Compiles a source of this target alone. All levels share the other source, so other compilers may be
    /// reading it.
    fn compile_own(&self, loops: &Loops, lines: Lines) -> Result<String> {
        let source = self.file("cpp");
        write_if_changed(&source, translation_unit(self.unit, loops, lines)?.as_bytes())?;
        self.compile(&source, loops)
    }

    /// Compiles `source`, or the file without those loop forms that do not compile. Returns the log and the
    /// names of these forms.
    fn compile_what_can(&self, source: &Path, loops: &mut Loops) -> Result<(String, Vec<String>)> {
        let error = match self.compile(source, loops) {
            Err(error) if loops.any() => error.to_string(),
            result => return Ok((result?, Vec::new())),
        };
        // We can only blame the loop forms if the user's file compiles without them.
        self.compile_own(&Loops::default(), Lines::Users)?;
        let names = leave_out_failing(loops, |loops| self.compile_own(loops, Lines::Forms));
        let log = self.compile_own(loops, Lines::Users)?;
        let kernels: Vec<_> = names.iter().map(|form| loops::kernel_of(form)).collect();
        let first = error.lines().find(|line| line.contains("error:")).unwrap_or(&error);
        Ok((format!("{log}warning: no loop form for {}: {first}\n", kernels.join(", ")), names))
    }
}

/// Returns the compiler's own flags for an instruction level.
fn flags(compiler: &CxxCompiler, level: &str, checked: bool) -> Vec<String> {
    let mut flags = vec!["-std=c++17", "-fPIC", "-Wno-unknown-pragmas", "-Wno-unused-function"];
    // The warning is about functions that return vectors longer than the processor's, but these are all
    // inlined.
    flags.push("-Wno-psabi");
    flags.extend(VECTORISING);
    // A frame may be larger than the guard page below a thread's stack. This flag touches frames from the top
    // down, so a stack overflow faults in its own kernel instead of writing past the guard page.
    flags.push("-fstack-clash-protection");
    // The environment (`CXXFLAGS`) may ask for a sanitizer. It would need a run-time library that comes first
    // in the program, and it does not know our threads' stacks.
    flags.push("-fno-sanitize=all");
    if !compiler.clang {
        flags.extend(["-fno-gnu-unique", "-fno-extern-tls-init"]);
    }
    let bounds = if compiler.clang { "-fsanitize=array-bounds" } else { "-fsanitize=bounds" };
    if checked {
        flags.extend(["-O1", bounds, "-DGS_CPU_CHECKED"]);
    } else {
        flags.push("-O3");
    }
    let flags = flags.into_iter().map(str::to_owned);
    flags.chain(compiler.options(level)).collect()
}

/// Leaves out the forms that do not compile, and returns their names.
fn leave_out_failing(loops: &mut Loops, compile: impl Fn(&Loops) -> Result<String>) -> Vec<String> {
    let mut names = Vec::new();
    while let Err(error) = compile(loops) {
        let error = error.to_string();
        let blamed = loops.leave_out(|name| error.contains(name));
        // If the error names no form, any of them could be the cause.
        names.extend(if blamed.is_empty() { loops.leave_out(|_| true) } else { blamed });
        if !loops.any() {
            break;
        }
    }
    names.sort_unstable();
    names
}

/// Returns a warning for each kernel whose threads have stacks of their own.
fn on_stacks(unit: &Unit, loops: &Loops) -> String {
    let warning = |kernel: &Kernel| match loops.form(kernel) {
        Form::Fibers(Refusal { at, reason }) if !kernel.contract.stacks => {
            let (file, line) = (unit.source.path_of(*at).display(), unit.source.position(*at).0);
            Some(format!(
                "{file}:{line}: kernel `{}` is slow on the CPU, because each of its threads has a stack of its own: {reason}\n",
                kernel.name
            ))
        }
        Form::Plain | Form::SideBySide(_) | Form::Loops(_) | Form::Fibers(_) => None,
    };
    unit.module.kernels.iter().filter_map(warning).collect()
}

/// Returns what we know about a kernel: how the threads of its blocks run.
fn report(
    unit: &Unit,
    function: (&Kernel, &Instance),
    target: &str,
    image: &Path,
    loops: &Loops,
) -> KernelReport {
    let threads = match loops.form(function.0) {
        Form::Plain | Form::SideBySide(_) => Threads::Alone,
        Form::Loops(_) => Threads::Loops,
        Form::Fibers(refusal) => {
            Threads::Fibers { line: unit.source.position(refusal.at).0, reason: refusal.reason.clone() }
        }
    };
    KernelReport { threads: Some(threads), ..KernelReport::new(unit, function, Backend::Cpu, target, image) }
}

/// Returns the file as the preprocessor leaves it.
pub(crate) fn preprocess(
    unit: &Unit,
    compiler: &CxxCompiler,
    level: &str,
    common: &Common,
) -> Result<Vec<u8>> {
    let name = format!("{}.cpu.preprocess.cpp", unit.module.name);
    preprocess::write_source(unit, common, &name, &before(unit))?;
    preprocess::execute(unit, |kept| {
        let mut command = compiler.command();
        command
            .args(flags(compiler, level.trim_end_matches(CHECKED), false))
            .args(common.arguments(Backend::Cpu));
        command.args(beside(unit)).arg("-E").args(kept).arg(common.out_dir.join(&name));
        command
    })
}

/// Returns what comes before the user's file.
fn before(unit: &Unit) -> String {
    let mut text = String::from(
        "// Generated by gpustream-build.\n#include <gpustream/cpu/prelude.cuh>\n#include <gpustream/cpu/export.cuh>\n",
    );
    for name in &unit.vendors {
        text.push_str(&format!("#include <{name}>\n"));
    }
    let ours =
        unit.headers.iter().filter(|header| header.path.is_none() && header.name.starts_with("gpustream/"));
    for name in ours.map(|header| &header.name) {
        text.push_str(&format!("#include <{name}>\n"));
    }
    text
}

/// Returns the user's file between the prelude and the module table, with the assertions about its types. Our
/// own headers that the file includes come before it, because a macro in the file could change them.
fn translation_unit(unit: &Unit, loops: &Loops, lines: Lines) -> Result<String> {
    let mut text = before(unit);
    match loops.text(unit, lines)? {
        Some(rewritten) => text.push_str(&rewritten),
        None => text.push_str(&device_code(unit)?),
    }
    if unit.module.kernels.is_empty() {
        return Ok(text);
    }
    text.push_str(&checks(unit));
    // The module table uses these words, and the file may define them as macros.
    for word in ["run", "params", "at", "count", "bytes", "visibility", "used"] {
        text.push_str(&format!("#undef {word}\n"));
    }
    for name in &unit.module.dynamic_shared {
        text.push_str(&format!("GS_CPU_DYNAMIC_SHARED({name})\n"));
    }
    text.push_str("GS_CPU_GLOBALS(\n");
    for Global { path, .. } in &unit.module.globals {
        text.push_str(&format!("  GS_CPU_GLOBAL({path:?}, ::{path})\n"));
    }
    text.push_str(")\n");
    let mut table = String::new();
    for (number, (kernel, instance)) in unit.module.functions().enumerate() {
        let (key, threads) = (kernel.key(instance), instance.max_threads.unwrap_or(0));
        let second = loops.address(kernel, instance).unwrap_or_else(|| "nullptr".to_owned());
        let mut address = kernel.address(instance, "::");
        if let Some(namespace) = kernel.cast_in() {
            text.push_str(&format!(
                "namespace {namespace} {{ static constexpr auto gs_kernel_{number} = {address}; }}\n"
            ));
            address = format!("+::{namespace}::gs_kernel_{number}");
        }
        table.push_str(&format!("  GS_CPU_KERNEL_WITH({key:?}, {threads}, ({second}), {address})\n"));
    }
    text.push_str(&format!("GS_CPU_MODULE(\n{table})\n"));
    Ok(text)
}
