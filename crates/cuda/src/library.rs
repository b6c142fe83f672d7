//! Finding and opening a vendor library at run time.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use libloading::Library;

/// A library that was opened, or why none was.
pub(crate) struct Search {
    /// The open library.
    pub(crate) library: Option<Library>,
    /// Each name tried, with the linker's answer; for the error message and for diagnosis.
    pub(crate) tried: Vec<String>,
}

impl Search {
    /// Opens what the environment variable `variable` names, and nothing else if it is set; otherwise the
    /// first of `names`, in order.
    pub(crate) fn open(variable: &str, names: impl IntoIterator<Item = PathBuf>) -> Self {
        let mut search = Self { library: None, tried: Vec::new() };
        if let Some(name) = env::var_os(variable).filter(|name| !name.is_empty()) {
            search.attempt(&name);
            if let Some(last) = search.tried.last_mut() {
                last.push_str(" (from ");
                last.push_str(variable);
                last.push(')');
            }
            return search;
        }
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

/// Where the NVIDIA driver puts its library: by name for the dynamic linker, then the folders that some
/// distributions and container runtimes use without telling the linker.
pub(crate) fn driver_names() -> Vec<PathBuf> {
    if cfg!(windows) {
        return vec!["nvcuda.dll".into()];
    }
    // The versioned name first: the toolkit's stub folder, which may be on the linker's path, has only the
    // plain one.
    let mut names: Vec<PathBuf> = vec!["libcuda.so.1".into(), "libcuda.so".into()];
    names.extend(
        [
            "/usr/lib/wsl/lib",
            "/usr/local/nvidia/lib64",
            "/run/opengl-driver/lib",
            "/usr/lib/x86_64-linux-gnu",
            "/usr/lib/aarch64-linux-gnu",
            "/usr/lib64",
        ]
        .map(|folder| Path::new(folder).join("libcuda.so.1")),
    );
    names
}

/// Where NVRTC may be: by name, then the toolkit's usual folders. `driver_major` is the driver's CUDA version:
/// the compiler of another major version makes code the driver may refuse, so it comes last.
pub(crate) fn nvrtc_names(driver_major: u32) -> Vec<PathBuf> {
    let mut majors = vec![driver_major];
    majors.extend([13, 12].into_iter().filter(|&major| major != driver_major));
    if cfg!(windows) {
        return majors.iter().map(|major| format!("nvrtc64_{major}0_0.dll").into()).collect();
    }
    let mut folders: Vec<PathBuf> = Vec::new();
    for variable in ["CUDA_HOME", "CUDA_PATH", "CUDA_ROOT"] {
        if let Some(root) = env::var_os(variable) {
            folders.push(Path::new(&root).join("lib64"));
            folders.push(Path::new(&root).join("lib"));
        }
    }
    // NVIDIA's Python packages, inside an active virtual environment.
    if let Some(root) = env::var_os("VIRTUAL_ENV") {
        let lib = Path::new(&root).join("lib");
        for python in std::fs::read_dir(lib).into_iter().flatten().flatten() {
            let nvidia = python.path().join("site-packages/nvidia");
            for package in ["cu13/lib", "cu12/lib", "cuda_nvrtc/lib"] {
                folders.push(nvidia.join(package));
            }
        }
    }
    folders.push("/usr/local/cuda/lib64".into());
    folders.push("/opt/cuda/lib64".into());
    let mut names = Vec::new();
    for major in majors {
        let file = format!("libnvrtc.so.{major}");
        names.push(file.clone().into());
        names.extend(folders.iter().map(|folder| folder.join(&file)));
    }
    names.push("libnvrtc.so".into());
    names
}

/// The file that holds `address`, for diagnosis.
#[cfg(unix)]
pub(crate) fn file_of(address: *const std::ffi::c_void) -> Option<PathBuf> {
    use std::ffi::CStr;
    use std::os::unix::ffi::OsStrExt;

    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: dladdr reads no memory behind `address` and fills `info`, which lives on this stack.
    if unsafe { libc::dladdr(address, info.as_mut_ptr()) } == 0 {
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
pub(crate) fn file_of(_address: *const std::ffi::c_void) -> Option<PathBuf> {
    None
}
