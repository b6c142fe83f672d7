//! Finding and opening a vendor's library at run time: the part that the backends for vendors' drivers share.
//!
//! To open a library is to run what it contains. So the names are the backends' own, or those in the environment, which
//! is trusted: the variables (`GPUSTREAM_CUDA_LIBRARY` and its like, but also `LD_LIBRARY_PATH`) decide what code runs
//! in the process, and a program that passes them on from strangers passes on that power. A program with rights that its
//! caller lacks ignores them: see [`environment::trusted`].

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use cfg_if::cfg_if;
pub use libloading::Library;

use crate::environment;

/// The outcome of a search for a library.
pub struct Search {
    /// The library that was opened, if any was.
    pub library: Option<Library>,
    /// Each name tried, with the linker's answer; for the error message and for diagnosis.
    pub tried: Vec<String>,
}

impl Search {
    /// Opens the library at `path` and no other.
    ///
    /// # Safety
    /// `path` names a vendor's library or a stand-in for one: its initialisers may run in this process.
    pub unsafe fn only(path: &Path) -> Self {
        let mut search = Self { library: None, tried: Vec::new() };
        // SAFETY: handed on.
        unsafe { search.attempt(path.as_os_str()) };
        search
    }

    /// Opens the library that the environment variable `variable` names, and no other if the variable is set; otherwise
    /// the first of `names` that can be opened, in order.
    ///
    /// # Safety
    /// As for [`only`](Self::only), of every name.
    pub unsafe fn open(variable: &str, names: impl IntoIterator<Item = PathBuf>) -> Self {
        if let Some(name) = environment::trusted(variable) {
            // SAFETY: the user put this name in the library's place, and the environment is trusted.
            let mut search = unsafe { Self::only(Path::new(&name)) };
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
            // SAFETY: handed on.
            if unsafe { search.attempt(name.as_os_str()) } {
                break;
            }
        }
        search
    }

    /// Tries to open `name`. Returns whether that succeeded.
    ///
    /// # Safety
    /// As for [`only`](Self::only).
    unsafe fn attempt(&mut self, name: &OsStr) -> bool {
        // SAFETY: the library's initialisers may run, by this function's contract.
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

/// Resolves a symbol to a function pointer, or to nothing.
///
/// # Safety
/// `F` is the type of a function pointer with the symbol's prototype, and the library is never closed.
#[must_use]
pub unsafe fn symbol<F: Copy>(library: &Library, name: &str) -> Option<F> {
    // SAFETY: the type is right by this function's contract, and the pointer may outlive the `Symbol`.
    unsafe { library.get::<F>(name.as_bytes()) }.ok().map(|found| *found)
}

cfg_if! {
    if #[cfg(unix)] {
        /// Lets all libraries of the process find the symbols of the open library at `path`, as if it had been opened with
        /// `RTLD_GLOBAL`. Opens no library; does nothing where none is open under this path.
        pub fn expose(path: &Path) {
            use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_LAZY};

            // SAFETY: no initialiser runs, since only a library that is open already is found.
            if let Ok(library) = unsafe { Library::open(Some(path), libc::RTLD_NOLOAD | RTLD_LAZY | RTLD_GLOBAL) } {
                // Counted once more, so that the library stays open.
                std::mem::forget(library);
            }
        }

        /// Returns the file that holds `address`, for diagnosis.
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
    } else {
        /// Does nothing: this system has no symbols that all libraries share.
        pub fn expose(_path: &Path) {}

        /// Returns `None`: this system does not say which file holds an address.
        #[must_use]
        pub fn file_of(_address: usize) -> Option<PathBuf> {
            None
        }
    }
}
