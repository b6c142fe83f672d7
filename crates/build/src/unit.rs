//! One kernel file, read and parsed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::backend::Backend;
use crate::diagnostic::{Error, Result, SourceFile};
use crate::headers::{self, Closure, Header};
use crate::parse::{self, Script};
use crate::signature::Module;

/// One parsed file and the headers that it includes.
#[derive(Clone)]
pub(crate) struct Unit {
    pub(crate) source: SourceFile,
    /// The absolute path, for compilers, whose working directory may be another.
    pub(crate) absolute: PathBuf,
    pub(crate) module: Arc<Module>,
    /// The reason why the file cannot be bound.
    pub(crate) refused: Option<Error>,
    pub(crate) headers: Vec<Header>,
    /// The folders of [`Closure::searched`].
    pub(crate) searched: BTreeSet<PathBuf>,
    /// The backends that the file is for; `None` for all.
    pub(crate) only: Option<BTreeSet<Backend>>,
    /// The text without host code, for compilers that know none; `None` where the file has none. Only such a compiler
    /// meets the error.
    pub(crate) device_part: Result<Option<String>>,
}

/// Returns a path as C++ writes it between quotes.
pub(crate) fn quoted(path: &str) -> String {
    path.replace('\\', "\\\\").replace('"', "\\\"")
}

impl Unit {
    /// Returns the path as C++ writes it between quotes.
    pub(crate) fn quoted_path(&self) -> String {
        quoted(&self.absolute.display().to_string())
    }

    /// Returns a text that stands for the file, so that compilers name the file's lines.
    pub(crate) fn in_place(&self, text: &str) -> String {
        format!("#line 1 \"{}\"\n{text}\n", self.quoted_path())
    }

    /// Reads a file, which is for these backends `only`; `script` is what the build script says about all files. A file that
    /// cannot be bound is a unit without kernels, and the error is kept in it.
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

    /// Returns a unit of the same file that has no kernels: compiling it shows the errors of the file as it is written, without
    /// those that follow in what we write behind the file.
    pub(crate) fn as_written(&self) -> Self {
        let module = Module { name: format!("{}.as-written", self.module.name), ..Module::default() };
        Self { module: Arc::new(module), ..self.clone() }
    }

    /// Returns whether the file is for a backend.
    pub(crate) fn is_for(&self, backend: Backend) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(&backend))
    }
}
