//! One kernel file, read and parsed.

use std::path::{Path, PathBuf};

use crate::diagnostic::{Result, SourceFile};
use crate::headers::{self, Header};
use crate::parse;
use crate::signature::Module;

/// One parsed file and the headers that it includes.
pub(crate) struct Unit {
    pub(crate) source: SourceFile,
    /// The absolute path, for compilers, whose working directory may be another.
    pub(crate) absolute: PathBuf,
    pub(crate) module: Module,
    pub(crate) headers: Vec<Header>,
}

impl Unit {
    /// Reads a file; `instances` are those of templates that the build script asks for.
    pub(crate) fn read(path: &Path, includes: &[PathBuf], instances: &[String]) -> Result<Self> {
        let source = SourceFile::read(path)?;
        let headers = headers::closure(&source, includes);
        let helpers: Vec<_> = headers.iter().filter(|h| h.path.is_some()).map(|h| h.text.clone()).collect();
        let module = parse::parse(&source, &helpers, instances)?;
        let absolute = std::path::absolute(path)?;
        Ok(Self { source, absolute, module, headers })
    }
}
