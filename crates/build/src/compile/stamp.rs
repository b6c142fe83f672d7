//! Stamps by which an image is known to be still good: each names all that went into its image.

use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};

use super::Common;
use crate::diagnostic::Result;
use crate::headers::write_if_changed;
use crate::unit::Unit;

/// The stamp of an image about to be compiled.
pub(super) struct Stamp {
    path: PathBuf,
    text: String,
}

impl Stamp {
    /// Makes a stamp. `parts` are the compiler's path and version, its arguments, and all else that decides the
    /// outcome.
    pub(super) fn new(image: &Path, unit: &Unit, parts: &[&str]) -> Self {
        let mut hasher = DefaultHasher::new();
        env!("CARGO_PKG_VERSION").hash(&mut hasher);
        unit.source.text.hash(&mut hasher);
        unit.absolute.hash(&mut hasher);
        for header in &unit.headers {
            (&header.name, &header.text).hash(&mut hasher);
        }
        parts.hash(&mut hasher);
        let mut path = image.as_os_str().to_owned();
        path.push(".stamp");
        Self { path: path.into(), text: format!("{:016x}\n", hasher.finish()) }
    }

    /// Returns whether the image there is already the one that the compiler would make.
    pub(super) fn is_good(&self, image: &Path, common: &Common) -> bool {
        !common.rebuild
            && image.exists()
            && fs::read_to_string(&self.path).is_ok_and(|old| old.starts_with(&self.text))
    }

    /// Removes the stamp, before compiling: a build that is interrupted must not leave an old stamp beside a new image.
    pub(super) fn clear(&self) {
        let _ = fs::remove_file(&self.path);
    }

    /// Writes the stamp, after compiling; `log` is kept beside it.
    pub(super) fn set(&self, log: &str) -> Result<()> {
        write_if_changed(&self.path, format!("{}{log}", self.text).as_bytes())
    }

    /// Returns the compiler's log that was kept.
    pub(super) fn log(&self) -> String {
        let text = fs::read_to_string(&self.path).unwrap_or_default();
        text.split_once('\n').map_or_else(String::new, |(_, log)| log.to_owned())
    }
}
