//! One kernel file, read and parsed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::backend::Backend;
use crate::diagnostic::{Result, SourceFile};
use crate::headers::{self, Closure, Header};
use crate::parse::{self, Script};
use crate::signature::Module;

/// One parsed file and the headers that it includes.
pub(crate) struct Unit {
    pub(crate) source: SourceFile,
    /// The absolute path, for compilers, whose working directory may be another.
    pub(crate) absolute: PathBuf,
    pub(crate) module: Module,
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

    /// Reads a file, which is for these backends `only`; `script` is what the build script says about all files.
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
        let module = parse::parse(&source, &own.collect::<Vec<_>>(), script)?;
        let absolute = std::path::absolute(path)?;
        let device_part = parse::device_part(&source);
        Ok(Self { source, absolute, module, headers, searched, only: only.cloned(), device_part })
    }

    /// Returns whether the file is for a backend.
    pub(crate) fn is_for(&self, backend: Backend) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(&backend))
    }
}
