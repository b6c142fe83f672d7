//! The builder: which files to compile, for which targets, and where to put the results.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fs};

use gpustream_hal::variables;

use crate::backend::Backend;
use crate::bindings;
use crate::compile::{self, Output, Sums, search};
use crate::diagnostic::{Error, Result, SourceFile};
use crate::headers::{self, write_if_changed};
use crate::parse::Script;
use crate::plan::{Plan, WATCHED, Wanted};
use crate::report::KernelReport;
use crate::schedule::{self, Progress};
use crate::toolchain::CxxCompiler;
use crate::unit::Unit;

/// The kernel files of a crate, and how to compile them.
///
/// In a build script the results go to `OUT_DIR`. Anywhere else, call [`out_dir`](Self::out_dir).
///
/// We tell cargo to run the build script again if an environment variable that matters changes, if a file
/// that a compiler read changes, or if a new header appears in a folder that was searched. Cargo can only
/// watch a folder together with everything below it, so keep kernels and headers in folders of their own. In
/// the package's root folder we cannot notice a new header.
#[derive(Default)]
pub struct Kernels {
    /// Each file with the backends it is compiled for; `None` means all of them.
    files: Vec<(PathBuf, Option<BTreeSet<Backend>>)>,
    includes: Vec<PathBuf>,
    defines: Vec<(String, Option<String>)>,
    flags: Vec<(Backend, String)>,
    instances: Vec<String>,
    contracts: Vec<(String, SourceFile)>,
    by_name: bool,
    allow_stacks: bool,
    wanted: Wanted,
    out_dir: Option<PathBuf>,
    jobs: Option<usize>,
    rebuild: bool,
    progress: Option<Progress>,
}

impl Kernels {
    /// Returns a builder without files.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a kernel file. Its stem names the module: `kernels/saxpy.cu` becomes
    /// `gpustream::include_kernels!("saxpy")`.
    #[must_use]
    pub fn file(mut self, path: impl Into<PathBuf>) -> Self {
        self.files.push((path.into(), None));
        self
    }

    /// Adds a kernel file that is compiled only for these backends, for example because it contains PTX or
    /// AMD assembly. [`backend`](Self::backend) and the environment can narrow this list further, but not
    /// extend it. On a device of any other backend, `Kernels::load` returns an error.
    ///
    /// ```no_run
    /// use gpustream_build::{Backend, Kernels};
    /// Kernels::new().file("kernels/any.cu").file_for("kernels/ptx.cu", [Backend::Cuda]).build()?;
    /// # Ok::<(), gpustream_build::Error>(())
    /// ```
    #[must_use]
    pub fn file_for(mut self, path: impl Into<PathBuf>, backends: impl IntoIterator<Item = Backend>) -> Self {
        self.files.push((path.into(), Some(backends.into_iter().collect())));
        self
    }

    /// Adds several kernel files.
    #[must_use]
    pub fn files<P: Into<PathBuf>>(mut self, paths: impl IntoIterator<Item = P>) -> Self {
        self.files.extend(paths.into_iter().map(|path| (path.into(), None)));
        self
    }

    /// Adds a folder to search for `#include`.
    #[must_use]
    pub fn include(mut self, folder: impl Into<PathBuf>) -> Self {
        self.includes.push(folder.into());
        self
    }

    /// Compiles a kernel template for these arguments, such as `"axpy<float>"` or
    /// `"solver::step<double, 16>"`. Use it if you cannot edit the file, because it was written for another
    /// program. Types mean what they mean at the end of the file, and numbers must be literals.
    #[must_use]
    pub fn instantiate(mut self, instance: impl Into<String>) -> Self {
        self.instances.push(instance.into());
        self
    }

    /// Gives a kernel lines of a contract as they would stand above it, such as `"optional: bias"` or `"stacks: data decides who
    /// meets"`. Use it if you cannot edit the file. The lines count together with those in the file, and like those they are
    /// your promise.
    ///
    /// ```no_run
    /// use gpustream_build::Kernels;
    /// Kernels::new().file("foreign.cu").contract("layers::add_bias", "reads: x\noptional: bias").build()?;
    /// # Ok::<(), gpustream_build::Error>(())
    /// ```
    #[must_use]
    pub fn contract(mut self, kernel: impl Into<String>, lines: impl Into<String>) -> Self {
        self.contracts.push((kernel.into(), SourceFile::new("build.rs", lines)));
        self
    }

    /// Makes no launchers, for programs that find kernels by name, often in code that was written for another library.
    ///
    /// All kernels in the files are compiled, and the generated `Kernels` has only `load` and `module`.
    /// `kernels.module().kernel("axpy_f32")` finds a kernel by its name in C, or by its path with a template's arguments. A
    /// launch checks the number and the sizes of its arguments; whether they have the right types, and whether the kernel stays
    /// within its memory, is up to you.
    ///
    /// Kernels whose parameters Rust has no types for are then no error.
    #[must_use]
    pub fn by_name(mut self) -> Self {
        self.by_name = true;
        self
    }

    /// Stops the warnings about kernels that are slow on the CPU, because each of their threads has a stack of its own there.
    /// For one kernel, the line `stacks: WHY` above it does the same. A warning names the line that is the reason; the guide "Writing kernels" says what to do.
    #[must_use]
    pub fn allow_stacks(mut self) -> Self {
        self.allow_stacks = true;
        self
    }

    /// Defines a macro. Pass `None` for a macro without a value.
    #[must_use]
    pub fn define<'a>(mut self, name: impl Into<String>, value: impl Into<Option<&'a str>>) -> Self {
        self.defines.push((name.into(), value.into().map(str::to_owned)));
        self
    }

    /// Adds an option for one backend's compiler. It comes after our own options, so it wins.
    ///
    /// For header folders, call [`include`](Self::include) instead: we also search those folders for the
    /// types of parameters, and embed their headers for run-time compilers.
    #[must_use]
    pub fn flag(mut self, backend: Backend, flag: impl Into<String>) -> Self {
        self.flags.push((backend, flag.into()));
        self
    }

    /// Compiles for this backend, and for no others except those you also name this way. A missing compiler
    /// is then an error. `GPUSTREAM_BACKENDS` in the environment overrides these calls unless you turn that
    /// off with [`environment_overrides`](Self::environment_overrides).
    #[must_use]
    pub fn backend(mut self, backend: Backend) -> Self {
        self.wanted.backends.insert(backend);
        self
    }

    /// Adds a CUDA target such as `sm_90`. The first call replaces the default, `sm_80` and `sm_90`.
    #[must_use]
    pub fn cuda_arch(mut self, arch: impl Into<String>) -> Self {
        self.wanted.cuda_archs.push(arch.into());
        self
    }

    /// Adds a HIP target such as `gfx942`. The first call replaces the default: `gfx90a`, `gfx942`,
    /// `gfx1030`, `gfx1100` and `gfx1201`.
    #[must_use]
    pub fn hip_arch(mut self, arch: impl Into<String>) -> Self {
        self.wanted.hip_archs.push(arch.into());
        self
    }

    /// Adds a CPU instruction level such as `x86-64-v3`. The first call replaces the default: every level that
    /// the target's architecture has. `native` alone is the level of the machine that builds, or the default if
    /// you build for another architecture.
    #[must_use]
    pub fn cpu_level(mut self, level: impl Into<String>) -> Self {
        self.wanted.cpu_levels.push(level.into());
        self
    }

    /// Sets whether the environment's lists of backends and targets (`GPUSTREAM_BACKENDS` and similar)
    /// override this builder. The default is true. If false, the environment only decides what you left open
    /// here.
    #[must_use]
    pub fn environment_overrides(mut self, overrides: bool) -> Self {
        self.wanted.own_first = !overrides;
        self
    }

    /// Sets the folder for the results, instead of `OUT_DIR`. We then print nothing for cargo.
    #[must_use]
    pub fn out_dir(mut self, folder: impl Into<PathBuf>) -> Self {
        self.out_dir = Some(folder.into());
        self
    }

    /// Sets how many compilers may run at once. The default is cargo's `NUM_JOBS`, or else the number of
    /// cores.
    #[must_use]
    pub fn jobs(mut self, jobs: usize) -> Self {
        self.jobs = Some(jobs);
        self
    }

    /// Sets whether to compile unchanged files too, for example to measure how long that takes.
    #[must_use]
    pub fn rebuild(mut self, rebuild: bool) -> Self {
        self.rebuild = rebuild;
        self
    }

    /// Sets a callback. After each compilation we call `progress(done, total, name of the compilation)`,
    /// possibly from several threads at once.
    #[must_use]
    pub fn progress(mut self, progress: impl Fn(usize, usize, &str) + Send + Sync + 'static) -> Self {
        self.progress = Some(Box::new(progress));
        self
    }

    /// Parses the files without compiling them. If a file's kernels come from macros, from its headers or out of an `#if`,
    /// and there is a folder for results, we run the compilers' preprocessors, as [`build`](Self::build) does.
    ///
    /// # Errors
    /// Every diagnostic of every file.
    pub fn check(&self) -> Result<()> {
        let mut cargo = Cargo::new(false);
        let mut units = self.parse(Path::new("one folder"), &mut cargo)?;
        let folder = self.out_dir.clone().or_else(|| env::var_os("OUT_DIR").map(PathBuf::from));
        if let Some(folder) = folder.filter(|_| units.iter().any(|unit| unit.needs_preprocessing)) {
            fs::create_dir_all(&folder)?;
            let folder = folder.canonicalize()?;
            headers::unpack(&folder.join(headers::FOLDER))?;
            let plan = self.plan(&units, &mut cargo)?;
            let common = self.common(&plan, folder);
            units = self.preprocessed(units, &plan, &common, &mut cargo)?;
        } else if refused(&units).is_none() {
            self.check_instances(&units)?;
        }
        refused(&units).or(())
    }

    /// Parses, compiles, checks, and writes the bindings. Blocks until all compilers have finished.
    ///
    /// # Errors
    /// Every diagnostic of every file. If such a file does not compile either, its compiler's errors come
    /// first. Otherwise the first failure per file and backend.
    pub fn build(&self) -> Result<Built> {
        let (out_dir, in_build_script) = match (&self.out_dir, env::var_os("OUT_DIR")) {
            (Some(folder), _) => (folder.clone(), false),
            (None, Some(folder)) => (PathBuf::from(folder), true),
            (None, None) => {
                return Err(Error::message(
                    "OUT_DIR is not set: outside a build script, call Kernels::out_dir",
                ));
            }
        };
        fs::create_dir_all(&out_dir)?;
        let out_dir = out_dir.canonicalize()?;
        let mut cargo = Cargo::new(in_build_script);
        let built = self.build_in(out_dir, &mut cargo);
        cargo.finish(built.is_ok());
        built
    }

    fn build_in(&self, out_dir: PathBuf, cargo: &mut Cargo) -> Result<Built> {
        self.watch(cargo);
        let units = self.parse(&out_dir, cargo)?;
        headers::unpack(&out_dir.join(headers::FOLDER))?;
        let plan = self.plan(&units, cargo)?;
        let common = self.common(&plan, out_dir);
        let units = self.preprocessed(units, &plan, &common, cargo)?;
        let beside = units.iter().flat_map(|unit| &unit.searched);
        for folder in common.searched.iter().chain(beside) {
            if search::can_watch(folder, &common.out_dir) {
                cargo.watch(folder);
            }
        }
        let outputs = schedule::run(&units, &plan, &common, self.jobs, self.progress.as_ref())?;
        let mut files = Vec::new();
        for (unit, outputs) in units.iter().zip(outputs) {
            files.push(bind(unit, outputs, &common, cargo)?);
        }
        bindings::index::write(&common.out_dir, units.iter().map(|unit| &*unit.module.name))?;
        Ok(Built { files, out_dir: common.out_dir })
    }

    /// Reads files again as each compiler sees them, if the parser needs that. See [`Unit::needs_preprocessing`].
    fn preprocessed(
        &self,
        units: Vec<Unit>,
        plan: &Plan,
        common: &compile::Common,
        cargo: &mut Cargo,
    ) -> Result<Vec<Unit>> {
        let read = |unit| compile::preprocess::read(unit, plan, common, self.script());
        let units: Vec<_> = units.into_iter().map(read).collect();
        for unit in &units {
            unit.module.warnings.iter().for_each(|warning| cargo.warn(warning));
            for file in unit.versions.values().flat_map(|version| version.source.files()) {
                cargo.watch(file);
            }
        }
        if refused(&units).is_none() {
            self.check_instances(&units)?;
        }
        Ok(units)
    }

    fn script(&self) -> Script<'_> {
        Script {
            defines: &self.defines,
            instances: &self.instances,
            contracts: &self.contracts,
            by_name: self.by_name,
            ..Script::default()
        }
    }

    /// Decides what to compile with which compilers.
    fn plan(&self, units: &[Unit], cargo: &mut Cargo) -> Result<Plan> {
        let plan = Plan::of(&self.wanted, units).map_err(|error| {
            let mut failed = refused(units);
            failed.join(error);
            failed
        })?;
        for warning in &plan.warnings {
            cargo.warn(warning);
        }
        for compiler in plan.compilers() {
            cargo.watch(&compiler);
        }
        Ok(plan)
    }

    /// Returns what all compilations have in common.
    fn common(&self, plan: &Plan, out_dir: PathBuf) -> compile::Common {
        let own = self.flags.iter().map(|(_, flag)| flag.as_str());
        let of_variables = plan.cpu.iter().flat_map(|(compiler, _)| compiler.flags());
        let named = search::folders(own.chain(of_variables));
        compile::Common {
            includes: std::iter::once(out_dir.join(headers::FOLDER))
                .chain(self.absolute_includes())
                .collect(),
            defines: self.defines.clone(),
            by_name: self.by_name,
            allow_stacks: self.allow_stacks,
            flags: self.flags.iter().map(|(backend, flag)| (*backend, search::absolute(flag))).collect(),
            searched: self.absolute_includes().chain(named).collect(),
            sums: Sums::new(out_dir.clone()),
            out_dir,
            rebuild: self.rebuild,
        }
    }

    fn absolute_includes(&self) -> impl Iterator<Item = PathBuf> {
        self.includes.iter().map(|folder| std::path::absolute(folder).unwrap_or_else(|_| folder.clone()))
    }

    fn watch(&self, cargo: &mut Cargo) {
        for name in WATCHED.into_iter().chain(compile::READ_BY_COMPILERS) {
            cargo.watched.insert(format!("env-changed={name}"));
        }
        for (file, _) in &self.files {
            cargo.watch(file);
        }
    }

    /// Parses every file before anything is compiled, so that you see all diagnostics at once.
    fn parse(&self, out_dir: &Path, cargo: &mut Cargo) -> Result<Vec<Unit>> {
        if self.files.is_empty() {
            return Err(Error::message("Kernels has no files to build: add one with Kernels::file"));
        }
        let includes: Vec<_> = self.absolute_includes().collect();
        let mut units: Vec<Unit> = Vec::new();
        let mut failed = Error::none();
        for (path, only) in &self.files {
            match Unit::read(path, only.as_ref(), &includes, self.script()) {
                Ok(unit) => {
                    // A build script must not be run again because of its own output.
                    let headers = unit.headers.iter().filter_map(|header| header.path.as_ref());
                    headers.filter(|path| !path.starts_with(out_dir)).for_each(|path| cargo.watch(path));
                    if let Some(other) = units.iter().find(|u| u.module.name == unit.module.name) {
                        failed.join(Error::message(format!(
                            "{} and {} have the same name, so their bindings in {} would overwrite each other; rename one of them",
                            other.source.path.display(),
                            path.display(),
                            out_dir.display()
                        )));
                    }
                    units.push(unit);
                }
                Err(error) => failed.join(error),
            }
        }
        if !failed.is_none() {
            failed.join(refused(&units));
        }
        failed.or(units)
    }

    /// Refuses an instance or a contract in the build script if no file has its kernel.
    fn check_instances(&self, units: &[Unit]) -> Result<()> {
        let mut failed = Error::none();
        for instance in &self.instances {
            if !units.iter().any(|unit| unit.module.instantiates(instance)) {
                failed.join(Error::message(format!(
                    "no kernel template for `.instantiate({instance:?})`; write it like \"axpy<float>\""
                )));
            }
        }
        for (kernel, _) in &self.contracts {
            let mut kernels = units.iter().flat_map(|unit| &unit.module.kernels);
            if !kernels.any(|known| known.function.is_called(kernel)) {
                failed.join(Error::message(format!(
                    "no kernel for `.contract({kernel:?}, …)`; write its name as in C++, without arguments of templates"
                )));
            }
        }
        failed.or(())
    }
}

/// Writes the bindings of a file, once it is compiled.
fn bind(unit: &Unit, outputs: Vec<Output>, common: &compile::Common, cargo: &mut Cargo) -> Result<BuiltFile> {
    let targets = outputs.iter().flat_map(|output| &output.compiled_for).map(String::as_str).collect();
    let reports = outputs.iter().flat_map(|output| &output.reports);
    let compiled: Vec<_> = reports.map(|report| (&*report.name, &*report.target)).collect();
    let unit = &unit.with_targets(&targets, &compiled);
    let mut file = BuiltFile {
        path: unit.source.path.clone(),
        bindings: common.out_dir.join(format!("{}.rs", unit.module.name)),
        images: Vec::new(),
        kernels: Vec::new(),
        compile_time: Duration::ZERO,
    };
    let (mut images, mut code_objects, mut writable) = (Vec::new(), Vec::new(), Vec::new());
    for output in outputs {
        file.compile_time += output.compile_time.unwrap_or_default();
        file.kernels.extend(output.reports);
        cargo.warn(&output.warnings);
        let others = output.dependencies.iter().filter(|file| !file.starts_with(&common.out_dir));
        others.for_each(|file| cargo.watch(file));
        writable.extend(output.writable);
        match output.image.backend {
            Backend::Hip => code_objects.push(output.image),
            Backend::Cpu | Backend::Cuda => images.push(output.image),
        }
    }
    if !code_objects.is_empty() {
        images.push(compile::hip::bundle(unit, &code_objects, common)?);
    }
    let unlisted = unlisted(unit, writable, cargo);
    let text = bindings::generate(unit, &images, &unlisted, common)?;
    write_if_changed(&file.bindings, text.as_bytes())?;
    file.images = images.into_iter().map(|image| image.path).collect();
    Ok(file)
}

/// Returns the variables in a file's images that kernels may write but that the parser has not seen, and warns
/// about them.
fn unlisted(unit: &Unit, mut writable: Vec<String>, cargo: &mut Cargo) -> Vec<String> {
    writable.sort_unstable();
    writable.dedup();
    let unlisted = unit.module.unlisted(writable);
    if !unlisted.is_empty() {
        cargo.warn(&format!(
            "{}: kernels may write {}, and we cannot read the declaration, so launches of this file's kernels \
             never overlap; write it out at namespace level, outside templates, macros and `#if`s, or add `const` if no \
             kernel writes it",
            unit.source.path.display(),
            variables::list(&unlisted),
        ));
    }
    unlisted
}

/// Collects the reasons why files cannot be bound.
fn refused(units: &[Unit]) -> Error {
    let mut failed = Error::none();
    units.iter().filter_map(|unit| unit.refused.clone()).for_each(|error| failed.join(error));
    failed
}

/// The lines that we print at the end: for cargo, if this is a build script, and for the user.
///
/// If the build failed we tell cargo nothing: it runs a failed build script again anyway, and it would print
/// these lines above the error.
struct Cargo {
    in_build_script: bool,
    /// What comes after `cargo:rerun-if-` in each line.
    watched: BTreeSet<String>,
    warnings: Vec<String>,
}

impl Cargo {
    fn new(in_build_script: bool) -> Self {
        Self { in_build_script, watched: BTreeSet::new(), warnings: Vec::new() }
    }

    /// Makes cargo run the build script again if this file changes, or anything below this folder. We skip
    /// paths with a line break, because cargo would read two lines and treat a file that it cannot find as
    /// changed.
    fn watch(&mut self, file: &Path) {
        self.watched
            .extend(file.to_str().filter(|path| !path.contains('\n')).map(|path| format!("changed={path}")));
    }

    /// Warns the user. What several targets have in common is said once.
    fn warn(&mut self, text: &str) {
        for line in text.lines() {
            if !self.warnings.iter().any(|known| known == line && known.contains(": ")) {
                self.warnings.push(line.to_owned());
            }
        }
    }

    fn finish(&self, succeeded: bool) {
        let to_cargo = self.in_build_script && succeeded;
        if to_cargo {
            self.watched.iter().for_each(|what| println!("cargo:rerun-if-{what}"));
            CxxCompiler::watch_variables();
        }
        for line in &self.warnings {
            if to_cargo {
                println!("cargo:warning={line}");
            } else {
                eprintln!("{line}");
            }
        }
    }
}

/// The results of a build.
#[derive(Debug)]
#[non_exhaustive]
pub struct Built {
    /// One entry per file, in the order in which you added them.
    pub files: Vec<BuiltFile>,
    /// The folder with the bindings and images.
    pub out_dir: PathBuf,
}

/// The results of one kernel file.
#[derive(Debug)]
#[non_exhaustive]
pub struct BuiltFile {
    /// The kernel file's path, as you gave it.
    pub path: PathBuf,
    /// The generated Rust.
    pub bindings: PathBuf,
    /// The shared objects, the fat binary and the bundle.
    pub images: Vec<PathBuf>,
    /// One entry per kernel, backend and target.
    pub kernels: Vec<KernelReport>,
    /// The time that all compilers took together. Zero if nothing had to be compiled.
    pub compile_time: Duration,
}
