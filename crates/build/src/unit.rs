//! One kernel file, read and parsed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::backend::Backend;
use crate::contract::{self, LineKind};
use crate::diagnostic::{Error, Result, SourceFile, quoted};
use crate::headers::{self, Closure, Header};
use crate::parse::{self, Script};
use crate::signature::Module;

/// Headers that come before the file on the CPU, because a macro in the file could change them.
const VENDORS: [&str; 2] = ["cooperative_groups.h", "curand_kernel.h"];

/// A parsed file and the headers that it includes.
#[derive(Clone)]
pub(crate) struct Unit {
    pub(crate) source: SourceFile,
    /// The absolute path, because a compiler may run in another folder.
    pub(crate) absolute: PathBuf,
    pub(crate) module: Arc<Module>,
    /// Why the file cannot be bound.
    pub(crate) refused: Option<Error>,
    pub(crate) headers: Vec<Header>,
    /// The folders in [`Closure::searched`].
    pub(crate) searched: BTreeSet<PathBuf>,
    /// The backends that the file is for; `None` means all.
    pub(crate) only: Option<BTreeSet<Backend>>,
    /// The text without host code, for compilers that cannot read it. `None` if the file has no host code.
    /// The error only matters to a compiler that needs this text.
    pub(crate) device_part: Result<Option<String>>,
    /// The vendors' headers that the file includes and that the CPU needs first.
    pub(crate) vendors: Vec<&'static str>,
    /// True if the parser cannot make a launcher for every kernel that it sees in the file as written, or if your headers
    /// have kernels or host code. Then we let each compiler's preprocessor read the file first.
    pub(crate) needs_preprocessing: bool,
    /// The file as a backend's preprocessor leaves it, for a target. Empty if the file is read as written. For CUDA there
    /// is one version, without a target: the one for the newest target.
    pub(crate) versions: BTreeMap<(Backend, String), Version>,
    /// For a version: when its kernels exist, as a condition for a preprocessor. `None` means always.
    pub(crate) only_if: Option<String>,
}

/// A unit whose source a preprocessor wrote.
pub(crate) type Version = Unit;

impl Unit {
    /// Returns the path, escaped for C++ quotes.
    pub(crate) fn quoted_path(&self) -> String {
        quoted(&self.absolute.display().to_string())
    }

    /// Returns the file's name, without its folder.
    pub(crate) fn file_name(&self) -> String {
        self.source.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Returns a text that replaces the file, with a `#line` so that compilers report the file's own lines.
    pub(crate) fn in_place(&self, text: &str) -> String {
        format!("#line 1 \"{}\"\n{text}\n", self.quoted_path())
    }

    /// Reads a file for the backends in `only`. `script` holds what the build script says about all files. If
    /// the file cannot be bound, the unit has no kernels and keeps the error.
    pub(crate) fn read(
        path: &Path,
        only: Option<&BTreeSet<Backend>>,
        includes: &[PathBuf],
        script: Script<'_>,
    ) -> Result<Self> {
        let source = SourceFile::read(path)?;
        let Closure { headers, searched } = headers::closure(&source, includes);
        let own = headers.iter().filter_map(|header| {
            let source = SourceFile::new(header.path.as_ref()?, header.text.clone());
            Some(parse::Helper { source, included: header.included.clone() })
        });
        let own: Vec<_> = own.collect();
        let needs = |helper: &parse::Helper| {
            helper.source.text.contains("__global__") || parse::has_host_code(&helper.source.text)
        };
        let is_first = own.iter().any(needs);
        let (module, refused) = parsed(&source, &own, Script { is_first, ..script });
        let needs_preprocessing = is_first || refused.is_some() || module.uninstantiated;
        let texts = || headers.iter().map(|header| &header.text).chain([&source.text]);
        let vendors = VENDORS.into_iter().filter(|name| texts().any(|text| text.contains(name))).collect();
        let absolute = std::path::absolute(path)?;
        let device_part = parse::device_part(&source);
        Ok(Self {
            source,
            absolute,
            module,
            refused,
            headers,
            searched,
            only: only.cloned(),
            device_part,
            vendors,
            needs_preprocessing,
            versions: BTreeMap::new(),
            only_if: None,
        })
    }

    /// Returns true if the file or one of your headers has kernels, perhaps made by macros.
    pub(crate) fn mentions_kernels(&self) -> bool {
        self.own_texts().any(|text| text.contains("__global__"))
    }

    /// Returns true if a doc comment in the file or in one of your headers may have a line of a contract.
    pub(crate) fn has_contracts(&self) -> bool {
        let is_contract = |line: &str| {
            let line = line.trim_start();
            let is_ordinary = line.starts_with("//") && !line.starts_with("///");
            let kind = contract::line_kind(line.trim_start_matches(['/', '*']));
            !is_ordinary && kind.is_some_and(|(kind, _)| kind != LineKind::Misspelt)
        };
        self.own_texts().any(|text| text.lines().any(is_contract))
    }

    /// Returns the texts of the file and of your headers.
    fn own_texts(&self) -> impl Iterator<Item = &str> {
        let headers = self.headers.iter().filter(|header| header.path.is_some());
        headers.map(|header| &*header.text).chain([&*self.source.text])
    }

    /// Returns the same file as a preprocessor leaves it.
    pub(crate) fn preprocessed(&self, source: SourceFile, backend: Backend, script: Script<'_>) -> Version {
        let host_instantiates = script.by_name && backend == Backend::Cuda;
        let (module, refused) = parsed(&source, &[], Script { host_instantiates, ..script });
        // Only nvcc reads the file as written, because it has all targets in one run.
        let device_part =
            if backend == Backend::Cuda { self.device_part.clone() } else { parse::device_part(&source) };
        // Your headers are written out in the text.
        let headers = self.headers.iter().filter(|header| header.path.is_none()).cloned().collect();
        Self { source, module, refused, device_part, headers, versions: BTreeMap::new(), ..self.clone() }
    }

    /// Returns the file with these versions, and with every kernel that one of them has.
    pub(crate) fn with_versions(mut self, mut versions: BTreeMap<(Backend, String), Version>) -> Self {
        if versions.is_empty() {
            return self;
        }
        let mut refused = Error::none();
        let some = versions.values().any(|version| !version.module.kernels.is_empty());
        for ((backend, target), version) in &mut versions {
            if some && version.refused.as_ref().is_some_and(parse::is_without_kernels) {
                // What other targets have is enough, but it may be a mistake.
                version.refused = None;
                let what = if target.is_empty() { backend.name() } else { target };
                let file = self.source.path.display();
                let warning =
                    format!("{file}: all kernels are left out for {what}, so there is nothing to load");
                Arc::make_mut(&mut version.module).warnings.push(warning);
            }
            version.refused.iter().for_each(|error| refused.join_new(error));
        }
        let modules = versions.values().map(|version| &*version.module);
        match Module::merged(modules) {
            Ok(module) => self.module = Arc::new(module),
            Err(error) => refused.join(error),
        }
        self.refused = (!refused.is_none()).then_some(refused);
        self.versions = versions;
        self
    }

    /// Returns the unit with the targets that have each kernel, if not all of them do. `compiled` is the names of kernels with their
    /// targets, one for each instance.
    pub(crate) fn with_targets(&self, targets: &BTreeSet<&str>, compiled: &[(&str, &str)]) -> Self {
        if self.versions.is_empty() {
            return self.clone();
        }
        let mut module = (*self.module).clone();
        for kernel in &mut module.kernels {
            let has = |target: &&&str| {
                let is = |one: &&(&str, &str)| **one == (&*kernel.name, **target);
                compiled.iter().filter(is).count() == kernel.instances.len()
            };
            let with: Vec<String> = targets.iter().filter(has).map(|&target| target.to_owned()).collect();
            kernel.targets = (with.len() < targets.len()).then_some(with);
        }
        Self { module: Arc::new(module), ..self.clone() }
    }

    /// Returns the version of the file that is compiled for a target.
    pub(crate) fn version(&self, backend: Backend, target: &str) -> &Self {
        let of = |target: &str| self.versions.get(&(backend, target.to_owned()));
        of(target).or_else(|| of("")).unwrap_or(self)
    }

    /// Returns the same file as a unit without kernels. Compiling it shows the errors in the file as written,
    /// without consequences in the lines that we append.
    pub(crate) fn as_written(&self) -> Self {
        let module = Module { name: format!("{}.as-written", self.module.name), ..Module::default() };
        Self { module: Arc::new(module), ..self.clone() }
    }

    /// Returns true if the file is for this backend, and if it has kernels there or we don't know yet.
    pub(crate) fn is_for(&self, backend: Backend) -> bool {
        let mut versions =
            self.versions.iter().filter(|((of, _), _)| *of == backend).map(|(_, version)| version);
        let is_empty = |version: &Self| {
            version.module.kernels.is_empty() && version.refused.is_none() && !version.module.uninstantiated
        };
        self.only.as_ref().is_none_or(|only| only.contains(&backend)) && !versions.any(is_empty)
    }
}

fn parsed(
    source: &SourceFile,
    headers: &[parse::Helper],
    script: Script<'_>,
) -> (Arc<Module>, Option<Error>) {
    match parse::parse(source, headers, script) {
        Ok(module) => (Arc::new(module), None),
        Err(error) => {
            let module = Module { name: parse::module_name(source), ..Module::default() };
            (Arc::new(module), Some(error))
        }
    }
}
