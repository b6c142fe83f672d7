//! One kernel file, read and parsed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::backend::Backend;
use crate::diagnostic::{Error, Result, SourceFile};
use crate::headers::{self, Closure, Header};
use crate::parse::{self, Script};
use crate::signature::Module;

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
}

/// Escapes a path for C++ quotes.
pub(crate) fn quoted(path: &str) -> String {
    path.replace('\\', "\\\\").replace('"', "\\\"")
}

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
        let (module, refused) = match parse::parse(&source, &own.collect::<Vec<_>>(), script) {
            Ok(module) => (Arc::new(module), None),
            Err(error) => {
                let module = Module { name: parse::module_name(&source), ..Module::default() };
                (Arc::new(module), Some(error))
            }
        };
        let absolute = std::path::absolute(path)?;
        let device_part = parse::device_part(&source);
        Ok(Self { source, absolute, module, refused, headers, searched, only: only.cloned(), device_part })
    }

    /// Returns the same file as a unit without kernels. Compiling it shows the errors in the file as written,
    /// without consequences in the lines that we append.
    pub(crate) fn as_written(&self) -> Self {
        let module = Module { name: format!("{}.as-written", self.module.name), ..Module::default() };
        Self { module: Arc::new(module), ..self.clone() }
    }

    /// Returns true if the file is for this backend.
    pub(crate) fn is_for(&self, backend: Backend) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(&backend))
    }
}
