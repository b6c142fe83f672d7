//! Finding and opening a vendor's library at run time: what the backends for vendors' drivers have in common.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use libloading::Library;

/// A library that was opened, or why none was.
pub struct Search {
    /// The open library.
    pub library: Option<Library>,
    /// Each name tried, with the linker's answer; for the error message and for diagnosis.
    pub tried: Vec<String>,
}

impl Search {
    /// Opens the library at `path` and no other.
    pub fn only(path: &Path) -> Self {
        let mut search = Self { library: None, tried: Vec::new() };
        search.attempt(path.as_os_str());
        search
    }

    /// Opens what the environment variable `variable` names, and nothing else if it is set; otherwise the
    /// first of `names`, in order.
    pub fn open(variable: &str, names: impl IntoIterator<Item = PathBuf>) -> Self {
        if let Some(name) = env::var_os(variable).filter(|name| !name.is_empty()) {
            let mut search = Self::only(Path::new(&name));
            if let Some(last) = search.tried.last_mut() {
                last.push_str(" (from ");
                last.push_str(variable);
                last.push(')');
            }
            return search;
        }
        let mut search = Self { library: None, tried: Vec::new() };
        for name in names {
            // A path that does not exist is not worth a line in the report.
            if name.is_absolute() && !name.exists() {
                continue;
            }
            if search.attempt(name.as_os_str()) {
                break;
            }
        }
        search
    }

    fn attempt(&mut self, name: &OsStr) -> bool {
        // SAFETY: the names are those of vendor libraries (or what the user put in their place), whose
        // initialisers are made to run in any process; the handle is never closed.
        match unsafe { Library::new(name) } {
            Ok(library) => {
                self.tried.push(name.to_string_lossy().into_owned());
                self.library = Some(library);
                true
            }
            Err(error) => {
                // The linker's own words, which name the file, are the source.
                let cause =
                    std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
                let name = name.to_string_lossy();
                let named = cause.contains(&*name);
                self.tried.push(if named { cause } else { format!("{name}: {cause}") });
                false
            }
        }
    }
}

/// The file that holds `address`, for diagnosis.
#[cfg(unix)]
#[must_use]
pub fn file_of(address: usize) -> Option<PathBuf> {
    use std::ffi::CStr;
    use std::os::unix::ffi::OsStrExt;

    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: dladdr reads no memory behind `address` and fills `info`, which lives on this stack.
    if unsafe { libc::dladdr(address as *const _, info.as_mut_ptr()) } == 0 {
        return None;
    }
    // SAFETY: zeroed is a valid Dl_info (pointers and integers), and dladdr has filled it.
    let info = unsafe { info.assume_init() };
    if info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: dli_fname is a NUL-terminated string that lives as long as the library, which is never closed.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Some(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
}

/// The file that holds `address`, for diagnosis: not known on this system.
#[cfg(not(unix))]
#[must_use]
pub fn file_of(_address: usize) -> Option<PathBuf> {
    None
}
