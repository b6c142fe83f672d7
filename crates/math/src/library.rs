//! Finds and opens the vendors' libraries at run time.

use std::path::{Path, PathBuf};

use gpustream::hal::folders::{beginning_with, named_by, of_python};
use gpustream::hal::library::{Library, Search, file_of, symbol};
use gpustream::{Error, Result};

pub(crate) const CUBLAS: VendorLibrary = VendorLibrary {
    name: "cuBLAS",
    purpose: "matrices on NVIDIA GPUs",
    symbol: "cublasCreate_v2",
    variable: "GPUSTREAM_CUBLAS_LIBRARY",
    file: "libcublas.so",
    versions: 11..=16,
    folders: || cuda_folders("cublas"),
    install: "install cuBLAS 11 or later, which is in the CUDA toolkit and in the Python package nvidia-cublas",
};

pub(crate) const CUBLASLT: VendorLibrary = VendorLibrary {
    name: "cuBLASLt",
    purpose: "products with bias and activation in one call on NVIDIA GPUs",
    symbol: "cublasLtCreate",
    variable: "GPUSTREAM_CUBLASLT_LIBRARY",
    file: "libcublasLt.so",
    versions: 11..=16,
    folders: || cuda_folders("cublas"),
    install: "install cuBLAS 11 or later, of which it is a part",
};

pub(crate) const HIPBLAS: VendorLibrary = VendorLibrary {
    name: "hipBLAS",
    purpose: "matrices on AMD GPUs",
    symbol: "hipblasCreate",
    variable: "GPUSTREAM_HIPBLAS_LIBRARY",
    file: "libhipblas.so",
    versions: 2..=6,
    folders: rocm_folders,
    install: "install hipBLAS of ROCm 6.0 or later (package hipblas)",
};

pub(crate) const HIPBLASLT: VendorLibrary = VendorLibrary {
    name: "hipBLASLt",
    purpose: "products with bias and activation in one call on AMD GPUs",
    symbol: "hipblasLtCreate",
    variable: "GPUSTREAM_HIPBLASLT_LIBRARY",
    file: "libhipblaslt.so",
    // Version 0 numbers the ways to compute differently.
    versions: 1..=4,
    folders: rocm_folders,
    install: "install hipBLASLt of ROCm 7.0 or later (package hipblaslt)",
};

pub(crate) const CUFFT: VendorLibrary = VendorLibrary {
    name: "cuFFT",
    purpose: "Fourier transforms on NVIDIA GPUs",
    symbol: "cufftCreate",
    variable: "GPUSTREAM_CUFFT_LIBRARY",
    file: "libcufft.so",
    versions: 10..=15,
    folders: || cuda_folders("cufft"),
    install: "install cuFFT 10 or later, which is in the CUDA toolkit and in the Python package nvidia-cufft",
};

pub(crate) const HIPFFT: VendorLibrary = VendorLibrary {
    name: "hipFFT",
    purpose: "Fourier transforms on AMD GPUs",
    symbol: "hipfftCreate",
    variable: "GPUSTREAM_HIPFFT_LIBRARY",
    file: "libhipfft.so",
    versions: 0..=3,
    folders: rocm_folders,
    install: "install hipFFT of ROCm 6.0 or later (package hipfft)",
};

/// What [`libraries`] finds out about one of the vendors' libraries.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LibraryInfo {
    /// What people call it.
    pub name: &'static str,
    /// What it does for whom.
    pub purpose: &'static str,
    /// Its file, or why it cannot be opened.
    pub file: Result<PathBuf>,
    /// The version in its file's name.
    pub version: Option<String>,
    /// How to get it.
    pub install: &'static str,
    /// The environment variable that names its file.
    pub variable: &'static str,
}

/// Looks for all libraries that this crate can use, for diagnosis. Opens those that are installed, which needs no GPU.
///
/// ```
/// for library in gpustream_math::libraries() {
///     match (&library.file, &library.version) {
///         (Ok(file), version) => println!("{} {version:?} in {}", library.name, file.display()),
///         (Err(error), _) => println!("{}: {error}", library.name),
///     }
/// }
/// ```
pub fn libraries() -> Vec<LibraryInfo> {
    [&CUBLAS, &CUBLASLT, &CUFFT, &HIPBLAS, &HIPBLASLT, &HIPFFT].map(VendorLibrary::info).into()
}

/// Returns the version in the name of the file that a library's name leads to: what comes after `.so`.
pub(crate) fn version_in(file: &Path) -> Option<String> {
    let file = file.canonicalize().ok()?;
    let (_, version) = file.file_name()?.to_str()?.split_once(".so.")?;
    Some(version.to_owned())
}

/// A vendor's library: its names, and folders that may have it.
#[derive(Debug)]
pub(crate) struct VendorLibrary {
    /// What people call it.
    pub(crate) name: &'static str,
    /// What it does for whom.
    pub(crate) purpose: &'static str,
    /// A function that every version has.
    pub(crate) symbol: &'static str,
    /// The variable that names its file.
    pub(crate) variable: &'static str,
    /// The file's name without a version: `libcublas.so`.
    pub(crate) file: &'static str,
    /// The versions that the file's name may end in. The newest is far ahead, so that we find versions to come.
    pub(crate) versions: std::ops::RangeInclusive<u32>,
    /// Folders that the dynamic linker may not know.
    pub(crate) folders: fn() -> Vec<PathBuf>,
    /// What to install.
    pub(crate) install: &'static str,
}

/// A library that is open, and never closed.
pub(crate) struct Opened {
    pub(crate) library: std::mem::ManuallyDrop<Library>,
    /// The name by which we opened it.
    pub(crate) name: String,
}

impl VendorLibrary {
    /// Opens the library: the newest version that the dynamic linker finds, otherwise the newest in the folders. A version that
    /// the process has already loaded counts as found by the linker, so that we share it.
    ///
    /// # Errors
    /// `DriverMissing` if there is none, `DriverUnusable` if there is one that cannot be opened. The error lists what we tried.
    pub(crate) fn open(&self) -> Result<Opened> {
        // SAFETY: the names are the vendor's.
        let search = unsafe { Search::open(self.variable, self.names()) };
        let (failure, mut tried) = (search.failure(), search.tried);
        match search.library {
            Some(library) => Ok(Opened {
                library: std::mem::ManuallyDrop::new(library),
                name: tried.pop().unwrap_or_default(),
            }),
            None => Err(Error::new(failure, self.not_found(&tried))),
        }
    }

    fn info(&self) -> LibraryInfo {
        let Self { name, purpose, install, variable, .. } = *self;
        let file = self.open().map(|Opened { library, name }| {
            // SAFETY: we do not call it, and the library is never closed.
            let function = unsafe { symbol::<*const ()>(&library, self.symbol) };
            function.and_then(|function| file_of(function as usize)).unwrap_or_else(|| name.into())
        });
        let version = file.as_deref().ok().and_then(version_in);
        LibraryInfo { name, purpose, file, version, install, variable }
    }

    fn names(&self) -> Vec<PathBuf> {
        let versioned = self.versions.clone().rev().map(|version| format!("{}.{version}", self.file));
        let files: Vec<String> = versioned.chain([self.file.to_owned()]).collect();
        let folders = (self.folders)();
        let in_folders = folders.iter().flat_map(|folder| files.iter().map(move |file| folder.join(file)));
        files.iter().map(PathBuf::from).chain(in_folders).collect()
    }

    fn not_found(&self, tried: &[String]) -> String {
        let Self { name, variable, install, .. } = self;
        // Most names do not exist, and of those the linker only says so.
        let telling: Vec<_> = tried
            .iter()
            .map(String::as_str)
            .filter(|line| !line.contains("No such file or directory"))
            .collect();
        let seen =
            if telling.is_empty() { String::new() } else { format!("; tried: {}", telling.join("; ")) };
        format!("{name} could not be opened: {install}, or set {variable} to its file{seen}")
    }
}

/// The variables that name an active Python environment.
const PYTHONS: [&str; 2] = ["VIRTUAL_ENV", "CONDA_PREFIX"];

/// Returns the folders of the CUDA toolkits and of the Python packages from NVIDIA. `package` is what the package of this library
/// calls its folder before CUDA 13, which has one folder for all.
fn cuda_folders(package: &str) -> Vec<PathBuf> {
    let lib = |root: PathBuf| root.join("lib64");
    let named = named_by(&["CUDA_HOME", "CUDA_PATH", "CUDA_ROOT"]);
    let mut folders: Vec<PathBuf> =
        named.into_iter().chain(["/usr/local/cuda".into(), "/opt/cuda".into()]).map(lib).collect();
    let own = format!("nvidia/{package}/lib");
    folders.extend(of_python(&PYTHONS, &["nvidia/cu13/lib", "nvidia/cu12/lib", &own]));
    folders.extend(beginning_with("cuda-", Path::new("/usr/local")).into_iter().map(lib));
    folders
}

/// Returns the folders of ROCm and of the Python packages from AMD.
fn rocm_folders() -> Vec<PathBuf> {
    let named = named_by(&["ROCM_PATH", "ROCM_HOME", "HIP_PATH"]);
    let mut folders: Vec<PathBuf> =
        named.into_iter().chain(["/opt/rocm".into()]).map(|root| root.join("lib")).collect();
    folders.extend(of_python(&PYTHONS, &["_rocm_sdk_libraries/lib", "_rocm_sdk_core/lib"]));
    folders
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpustream::ErrorKind;

    const ABSENT: VendorLibrary = VendorLibrary {
        name: "libNowhere",
        purpose: "nothing",
        symbol: "nothing",
        variable: "NO_VARIABLE_OF_THIS_NAME",
        file: "libgpustream-nowhere.so",
        versions: 1..=3,
        folders: || vec!["/nowhere".into()],
        install: "install nothing",
    };

    #[test]
    fn newest_names_come_first_and_folders_last() {
        let names = ABSENT.names();
        assert_eq!(names[0], Path::new("libgpustream-nowhere.so.3"));
        assert_eq!(names[3], Path::new("libgpustream-nowhere.so"));
        assert_eq!(names[4], Path::new("/nowhere/libgpustream-nowhere.so.3"));
    }

    #[test]
    fn a_missing_library_says_what_to_install() {
        let error = ABSENT.open().err().unwrap();
        assert_eq!(error.kind(), ErrorKind::DriverMissing);
        assert_eq!(
            error.message(),
            "libNowhere could not be opened: install nothing, or set NO_VARIABLE_OF_THIS_NAME to its file"
        );
    }
}
