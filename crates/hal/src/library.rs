//! Finds and opens a vendor's library at run time. The backends for vendors' drivers share this.
//!
//! If you open a library, you run its code. So we only take names from the backends themselves and from environment
//! variables, which we trust. Variables such as `GPUSTREAM_CUDA_LIBRARY`, and also `LD_LIBRARY_PATH`, decide what code runs
//! in the process. So your program must not set them to what a stranger says. If the program has rights that its caller
//! does not have, we ignore them: see [`environment::trusted`].

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use cfg_if::cfg_if;
pub use libloading::Library;

use crate::{ErrorKind, environment};

/// The result of a search for a library.
pub struct Search {
    /// The library that we opened, if we found one.
    pub library: Option<Library>,
    /// Each name that we tried, with what the linker said, for error messages and diagnosis.
    pub tried: Vec<String>,
    /// The environment variable that named the library, if one did.
    pub named_by: Option<&'static str>,
    /// True if the linker found a file but could not open it, for example because it is for another architecture, is cut
    /// short, or needs a library that is missing.
    broken: bool,
}

impl Search {
    /// Opens only the library at `path`.
    ///
    /// # Safety
    /// `path` names a vendor's library or a stand-in for one, so its initialisers may run in this process.
    pub unsafe fn only(path: &Path) -> Self {
        let mut search = Self::new();
        // SAFETY: handed on.
        unsafe { search.attempt(path.as_os_str()) };
        search
    }

    const fn new() -> Self {
        Self { library: None, tried: Vec::new(), named_by: None, broken: false }
    }

    /// Returns the kind of failure if we opened no library. If there is a library but we cannot open it, or if the
    /// environment names one, then it is meant to be used, so the failure is [`ErrorKind::DriverUnusable`]. Otherwise it is
    /// only missing.
    #[must_use]
    pub const fn failure(&self) -> ErrorKind {
        if self.broken || self.named_by.is_some() {
            ErrorKind::DriverUnusable
        } else {
            ErrorKind::DriverMissing
        }
    }

    /// If the environment variable `variable` is set, opens only the library that it names. Otherwise tries `names` in
    /// order, and opens the first that it can.
    ///
    /// # Safety
    /// As for [`only`](Self::only), for every name.
    pub unsafe fn open(variable: &'static str, names: impl IntoIterator<Item = PathBuf>) -> Self {
        if let Some(name) = environment::trusted(variable) {
            // SAFETY: you named this file as the library, and we trust the environment.
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
            // If a path does not exist, it is not worth a line in the report.
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

    /// Tries to open `name`. Returns true if that succeeded.
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
                // The error's source has the linker's own words, which name the file.
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

/// Returns the symbol as a function pointer, or `None` if the library does not have it.
///
/// # Safety
/// `F` is a function pointer type with the symbol's prototype, and the library is never closed.
#[must_use]
pub unsafe fn symbol<F: Copy>(library: &Library, name: &str) -> Option<F> {
    // SAFETY: the type is right by this function's contract, and the pointer may outlive the `Symbol`.
    unsafe { library.get::<F>(name.as_bytes()) }.ok().map(|found| *found)
}

cfg_if! {
    if #[cfg(unix)] {
        /// Returns true if the linker says that there is no file of this name. If a library that the file needs is missing,
        /// the linker names that one instead.
        fn says_absent(words: &str, name: &str) -> bool {
            // This is in the process's language, like the linker's words. Rust adds the number after it.
            let absent = std::io::Error::from_raw_os_error(libc::ENOENT).to_string();
            let absent = absent.split(" (os error").next().unwrap_or_default();
            words.contains(&format!("{name}: ")) && words.contains(absent)
        }

        /// Lets all libraries in the process find the symbols of the open library at `path`, as if it had been opened with
        /// `RTLD_GLOBAL`. If no library is open under this path, does nothing.
        pub fn expose(path: &Path) {
            use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_LAZY};

            // SAFETY: no initialiser runs, because this only finds a library that is open already.
            if let Ok(library) = unsafe { Library::open(Some(path), libc::RTLD_NOLOAD | RTLD_LAZY | RTLD_GLOBAL) } {
                // We leak this handle, so that the library stays open.
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
        /// Returns true if the loader says that there is no such file. On Windows that is error 126, which also means that
        /// a library that the file needs is missing.
        fn says_absent(words: &str, _name: &str) -> bool {
            words.contains("(os error 126)")
        }

        /// Does nothing, because libraries do not share symbols on this system.
        pub fn expose(_path: &Path) {}

        /// Returns `None`, because this system does not tell which file holds an address.
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
