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

use crate::{ErrorKind, environment};

/// The outcome of a search for a library.
pub struct Search {
    /// The library that was opened, if any was.
    pub library: Option<Library>,
    /// Each name tried, with the linker's answer; for the error message and for diagnosis.
    pub tried: Vec<String>,
    /// The variable that named the library, if one did.
    pub named_by: Option<&'static str>,
    /// Whether the linker found a file and could not open it: one of another architecture, cut short, or without a library
    /// that it needs.
    broken: bool,
}

impl Search {
    /// Opens the library at `path` and no other.
    ///
    /// # Safety
    /// `path` names a vendor's library or a stand-in for one: its initialisers may run in this process.
    pub unsafe fn only(path: &Path) -> Self {
        let mut search = Self::new();
        // SAFETY: handed on.
        unsafe { search.attempt(path.as_os_str()) };
        search
    }

    const fn new() -> Self {
        Self { library: None, tried: Vec::new(), named_by: None, broken: false }
    }

    /// Returns the kind of failure where no library was opened. A library that is not there says nothing about the machine; one
    /// that is there, or that the environment names, was meant to be used.
    #[must_use]
    pub const fn failure(&self) -> ErrorKind {
        if self.broken || self.named_by.is_some() {
            ErrorKind::DriverUnusable
        } else {
            ErrorKind::DriverMissing
        }
    }

    /// Opens the library that the environment variable `variable` names, and no other if the variable is set; otherwise
    /// the first of `names` that can be opened, in order.
    ///
    /// # Safety
    /// As for [`only`](Self::only), of every name.
    pub unsafe fn open(variable: &'static str, names: impl IntoIterator<Item = PathBuf>) -> Self {
        if let Some(name) = environment::trusted(variable) {
            // SAFETY: the user put this name in the library's place, and the environment is trusted.
            let mut search = unsafe { Self::only(Path::new(&name)) };
            search.named_by = Some(variable);
            if let Some(last) = search.tried.last_mut() {
                last.push_str(" (from ");
                last.push_str(variable);
                last.push(')');
            }
            return search;
        }
        let mut search = Self::new();
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
                self.broken |= !says_absent(&cause, &name);
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
        /// Returns whether the linker's words say that there is no file of this name. Words about a library that the file needs
        /// name that one instead.
        fn says_absent(words: &str, name: &str) -> bool {
            // In the language of the process, as the linker has it; the number behind it is Rust's.
            let absent = std::io::Error::from_raw_os_error(libc::ENOENT).to_string();
            let absent = absent.split(" (os error").next().unwrap_or_default();
            words.contains(&format!("{name}: ")) && words.contains(absent)
        }

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
        /// Returns whether the loader's words say that there is no such file: error 126 of Windows, which also stands for a
        /// library that the file needs.
        fn says_absent(words: &str, _name: &str) -> bool {
            words.contains("(os error 126)")
        }

        /// Does nothing: this system has no symbols that all libraries share.
        pub fn expose(_path: &Path) {}

        /// Returns `None`: this system does not say which file holds an address.
        #[must_use]
        pub fn file_of(_address: usize) -> Option<PathBuf> {
            None
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn absent_libraries_are_told_from_those_that_cannot_be_opened() {
        let folder = std::env::temp_dir().join(format!("gpustream-libraries-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let cut = folder.join("libcut.so.1");
        std::fs::write(&cut, b"\x7fELF").unwrap();
        // SAFETY: no name leads to a library.
        let search = |names: &[&Path]| unsafe {
            Search::open("NO_VARIABLE_OF_THIS_NAME", names.iter().map(|name| name.to_path_buf()))
        };
        let absent = Path::new("libgpustream-absent.so.1");
        let searches =
            [search(&[absent, &folder.join("absent")]), search(&[absent, &cut]), search(&[&cut, absent])];
        let failures = searches.map(|search| (search.library.is_none(), search.failure()));
        std::fs::remove_dir_all(&folder).unwrap();
        let (missing, unusable) = (ErrorKind::DriverMissing, ErrorKind::DriverUnusable);
        assert_eq!(failures, [(true, missing), (true, unusable), (true, unusable)]);
        assert!(says_absent(
            "libx.so.1: cannot open shared object file: No such file or directory",
            "libx.so.1"
        ));
        let needed = "libneeded.so: cannot open shared object file: No such file or directory";
        assert!(!says_absent(needed, "libx.so.1"));
    }
}
