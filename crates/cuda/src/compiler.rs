//! NVRTC: NVIDIA's compiler at run time.

use std::ffi::{CStr, CString, c_char, c_int};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::OnceLock;

use cudarc::nvrtc::sys::{self, nvrtcProgram};
use gpustream_hal::library::{Search, file_of};
use gpustream_hal::{Error, ErrorKind, Result, Source};
use libloading::Library;

use crate::driver::found;
use crate::library::nvrtc_names;

/// What an NVRTC function answered: an `nvrtcResult` read as an integer, for newer ones have more codes.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Status(u32);

const _: () = assert!(size_of::<Status>() == size_of::<sys::nvrtcResult>());

/// Defines the table of functions, as the driver's: each prototype is compared with cudarc's.
macro_rules! functions {
    ($($name:ident($($arg:ty),*);)*) => {
        #[allow(non_snake_case)]
        struct Functions {
            $($name: unsafe extern "C" fn($($arg),*) -> Status,)*
            nvrtcGetErrorString: unsafe extern "C" fn(Status) -> *const c_char,
        }

        $(const _: unsafe fn($($arg),*) -> sys::nvrtcResult = sys::$name;)*
        const _: unsafe fn(sys::nvrtcResult) -> *const c_char = sys::nvrtcGetErrorString;

        impl Functions {
            fn load(library: &Library) -> Result<Self, &'static str> {
                // SAFETY: each name is looked up with the prototype cudarc's bindings give it (checked above),
                // except that a C enum is read and passed as the integer it is.
                unsafe {
                    Ok(Self {
                        $($name: *library.get(stringify!($name)).map_err(|_| stringify!($name))?,)*
                        nvrtcGetErrorString: *library
                            .get("nvrtcGetErrorString")
                            .map_err(|_| "nvrtcGetErrorString")?,
                    })
                }
            }
        }
    };
}

functions! {
    nvrtcVersion(*mut c_int, *mut c_int);
    nvrtcGetNumSupportedArchs(*mut c_int);
    nvrtcGetSupportedArchs(*mut c_int);
    nvrtcCreateProgram(
        *mut nvrtcProgram, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char
    );
    nvrtcCompileProgram(nvrtcProgram, c_int, *const *const c_char);
    nvrtcGetProgramLogSize(nvrtcProgram, *mut usize);
    nvrtcGetProgramLog(nvrtcProgram, *mut c_char);
    nvrtcGetCUBINSize(nvrtcProgram, *mut usize);
    nvrtcGetCUBIN(nvrtcProgram, *mut c_char);
    nvrtcGetPTXSize(nvrtcProgram, *mut usize);
    nvrtcGetPTX(nvrtcProgram, *mut c_char);
    nvrtcDestroyProgram(*mut nvrtcProgram);
}

/// The opened compiler. One per process.
pub(crate) struct Nvrtc {
    api: Functions,
    major: c_int,
    minor: c_int,
    /// Compute capabilities it makes code for, ascending.
    targets: Vec<u32>,
    library: Option<PathBuf>,
    /// Folders with the toolkit's headers (`cuda_fp16.h` and its like), if there are any.
    includes: Vec<PathBuf>,
}

/// Opens the compiler on first use.
///
/// # Errors
/// `Unsupported`, with what was tried.
pub(crate) fn compiler() -> Result<&'static Nvrtc> {
    static COMPILER: OnceLock<Result<Nvrtc>> = OnceLock::new();
    COMPILER.get_or_init(Nvrtc::open).as_ref().map_err(Clone::clone)
}

impl Nvrtc {
    fn open() -> Result<Self> {
        let driver_major = found().driver.as_ref().map_or(13, |driver| driver.version as u32 / 1000);
        // SAFETY: the names are NVRTC's.
        let search = unsafe { Search::open("GPUSTREAM_NVRTC_LIBRARY", nvrtc_names(driver_major)) };
        let Some(library) = search.library else {
            return Err(unsupported(format!(
                "compiling kernels at run time needs NVRTC, which was not found; install it (part of the CUDA \
                 toolkit, or the Python package nvidia-cuda-nvrtc), set GPUSTREAM_NVRTC_LIBRARY, or build the \
                 kernels for this device beforehand; tried: {}",
                search.tried.join("; ")
            )));
        };
        let api = Functions::load(&library)
            .map_err(|symbol| unsupported(format!("this NVRTC is too old: it has no function {symbol}")))?;
        // The table's pointers outlive this scope: the library stays open for good.
        std::mem::forget(library);
        let library = file_of(api.nvrtcVersion as usize);
        let includes = include_folders(library.as_deref());
        let mut nvrtc = Self { api, major: 0, minor: 0, targets: Vec::new(), library, includes };
        let (mut major, mut minor, mut count) = (0, 0, 0);
        // SAFETY: all pointers are to locals.
        unsafe {
            nvrtc.check("nvrtcVersion", (nvrtc.api.nvrtcVersion)(&raw mut major, &raw mut minor))?;
            let status = (nvrtc.api.nvrtcGetNumSupportedArchs)(&raw mut count);
            nvrtc.check("nvrtcGetNumSupportedArchs", status)?;
        }
        nvrtc.open_builtins(major, minor);
        let mut targets = vec![0; usize::try_from(count).unwrap_or(0)];
        // SAFETY: the array has as many entries as the compiler asked for.
        let status = unsafe { (nvrtc.api.nvrtcGetSupportedArchs)(targets.as_mut_ptr()) };
        nvrtc.check("nvrtcGetSupportedArchs", status)?;
        (nvrtc.major, nvrtc.minor) = (major, minor);
        nvrtc.targets = targets.into_iter().filter_map(|target| u32::try_from(target).ok()).collect();
        nvrtc.targets.sort_unstable();
        Ok(nvrtc)
    }

    /// Opens the compiler's second library, which lies beside the first: the compiler asks for it by name, and
    /// outside the linker's path would not find it.
    fn open_builtins(&self, major: c_int, minor: c_int) {
        let Some(folder) = self.library.as_deref().and_then(Path::parent) else { return };
        let path = folder.join(format!("libnvrtc-builtins.so.{major}.{minor}"));
        if !path.is_absolute() || !path.exists() {
            return;
        }
        // SAFETY: the library is part of the compiler, and is never closed.
        if let Ok(library) = unsafe { Library::new(&path) } {
            std::mem::forget(library);
        }
    }

    /// Name and version: `nvrtc 13.0`.
    pub(crate) fn version(&self) -> String {
        format!("nvrtc {}.{}", self.major, self.minor)
    }

    /// Name, version and file, for diagnosis.
    pub(crate) fn description(&self) -> String {
        match &self.library {
            Some(path) => format!("{} ({})", self.version(), path.display()),
            None => self.version(),
        }
    }

    /// Machine code for `arch`; PTX for the newest target before it where this compiler does not know it.
    pub(crate) fn compile(&self, source: &Source<'_>, arch: &str) -> Result<Vec<u8>> {
        let wanted: u32 = arch
            .strip_prefix("sm_")
            .and_then(|number| number.parse().ok())
            .ok_or_else(|| unsupported(format!("NVRTC does not know the architecture {arch}")))?;
        let known = self.targets.binary_search(&wanted).is_ok();
        let target = if known {
            format!("--gpu-architecture=sm_{wanted}")
        } else {
            let Some(below) = self.targets.iter().rev().find(|&&target| target < wanted) else {
                return Err(unsupported(format!(
                    "{} makes no code for {arch}: install an older one, or build the kernels beforehand",
                    self.version()
                )));
            };
            format!("--gpu-architecture=compute_{below}")
        };
        let mut options = vec![target, "--std=c++17".to_owned()];
        options.extend(source.options.iter().map(|&option| option.to_owned()));
        options.extend(self.includes.iter().map(|folder| format!("--include-path={}", folder.display())));
        let options = c_strings("a compiler option", options)?;

        let program = Program::create(self, source)?;
        let pointers: Vec<_> = options.iter().map(|option| option.as_ptr()).collect();
        // SAFETY: the program is alive; each option is NUL-terminated and outlives the call.
        let status = unsafe {
            (self.api.nvrtcCompileProgram)(program.raw, pointers.len() as c_int, pointers.as_ptr())
        };
        if status != Status(0) {
            let log = program.log();
            let text = format!("{} refused {}:\n{}", self.version(), source.name, log.trim_end());
            return Err(Error::new(ErrorKind::InvalidModule, text)
                .with_call("nvrtcCompileProgram", status.0.into())
                .with_backend("cuda"));
        }
        let api = &self.api;
        if known {
            program.output(("nvrtcGetCUBINSize", api.nvrtcGetCUBINSize), ("nvrtcGetCUBIN", api.nvrtcGetCUBIN))
        } else {
            program.output(("nvrtcGetPTXSize", api.nvrtcGetPTXSize), ("nvrtcGetPTX", api.nvrtcGetPTX))
        }
    }

    fn check(&self, call: &'static str, status: Status) -> Result<()> {
        if status == Status(0) {
            return Ok(());
        }
        // SAFETY: takes any integer; the answer is a static string or null.
        let text = unsafe { (self.api.nvrtcGetErrorString)(status) };
        let text = if text.is_null() {
            "an unknown failure".into()
        } else {
            // SAFETY: not null, so a static NUL-terminated string.
            unsafe { CStr::from_ptr(text) }.to_string_lossy()
        };
        // 1 is out of memory, 5 an option it does not know; the others are failures of the compiler.
        let kind = match status.0 {
            1 => ErrorKind::OutOfMemory,
            5 => ErrorKind::InvalidArgument,
            _ => ErrorKind::InvalidModule,
        };
        Err(Error::new(kind, text).with_call(call, status.0.into()).with_backend("cuda"))
    }
}

type SizeFn = unsafe extern "C" fn(nvrtcProgram, *mut usize) -> Status;
type GetFn = unsafe extern "C" fn(nvrtcProgram, *mut c_char) -> Status;

/// A program, destroyed on drop.
struct Program<'a> {
    nvrtc: &'a Nvrtc,
    raw: nvrtcProgram,
}

impl<'a> Program<'a> {
    fn create(nvrtc: &'a Nvrtc, source: &Source<'_>) -> Result<Self> {
        let text = c_strings("kernel source", [source.text.to_owned(), source.name.to_owned()])?;
        let names = c_strings("a header's name", source.headers.iter().map(|(name, _)| (*name).to_owned()))?;
        let headers = c_strings("a header", source.headers.iter().map(|(_, text)| (*text).to_owned()))?;
        let name_pointers: Vec<_> = names.iter().map(|name| name.as_ptr()).collect();
        let header_pointers: Vec<_> = headers.iter().map(|text| text.as_ptr()).collect();
        let mut raw = ptr::null_mut();
        // SAFETY: every string is NUL-terminated; the compiler copies them before it returns.
        let status = unsafe {
            (nvrtc.api.nvrtcCreateProgram)(
                &raw mut raw,
                text[0].as_ptr(),
                text[1].as_ptr(),
                names.len() as c_int,
                header_pointers.as_ptr(),
                name_pointers.as_ptr(),
            )
        };
        nvrtc.check("nvrtcCreateProgram", status)?;
        Ok(Self { nvrtc, raw })
    }

    /// What the compiler printed; empty where it cannot say.
    fn log(&self) -> String {
        let api = &self.nvrtc.api;
        let log = self.output(
            ("nvrtcGetProgramLogSize", api.nvrtcGetProgramLogSize),
            ("nvrtcGetProgramLog", api.nvrtcGetProgramLog),
        );
        let log = log.unwrap_or_default();
        String::from_utf8_lossy(log.strip_suffix(b"\0").unwrap_or(&log)).into_owned()
    }

    fn output(&self, size: (&'static str, SizeFn), get: (&'static str, GetFn)) -> Result<Vec<u8>> {
        let mut bytes = 0;
        // SAFETY: the program is alive and the pointer is to a local.
        self.nvrtc.check(size.0, unsafe { (size.1)(self.raw, &raw mut bytes) })?;
        let mut output = vec![0u8; bytes];
        // SAFETY: the output has as many bytes as the compiler asked for.
        self.nvrtc.check(get.0, unsafe { (get.1)(self.raw, output.as_mut_ptr().cast()) })?;
        Ok(output)
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        // SAFETY: created by this compiler and destroyed once. Nothing can be done about a failure here.
        unsafe { (self.nvrtc.api.nvrtcDestroyProgram)(&raw mut self.raw) };
    }
}

fn c_strings(what: &str, texts: impl IntoIterator<Item = String>) -> Result<Vec<CString>> {
    let convert = |text: String| {
        CString::new(text).map_err(|_| {
            Error::new(ErrorKind::InvalidModule, format!("{what} has a NUL in it")).with_backend("cuda")
        })
    };
    texts.into_iter().map(convert).collect()
}

fn unsupported(text: String) -> Error {
    Error::new(ErrorKind::Unsupported, text).with_backend("cuda")
}

/// Where the toolkit's headers are: NVRTC carries only the language's own.
fn include_folders(library: Option<&Path>) -> Vec<PathBuf> {
    let mut candidates: Vec<PathBuf> = Vec::new();
    for variable in ["CUDA_HOME", "CUDA_PATH", "CUDA_ROOT"] {
        if let Some(root) = std::env::var_os(variable) {
            candidates.push(Path::new(&root).join("include"));
        }
    }
    // …/lib64/libnvrtc.so has its headers in …/include; the Python packages have one folder per part.
    if let Some(root) = library.and_then(Path::parent).and_then(Path::parent) {
        candidates.push(root.join("include"));
        if let Some(packages) = root.parent() {
            candidates.push(packages.join("cuda_runtime/include"));
        }
    }
    candidates.push("/usr/local/cuda/include".into());
    candidates.push("/opt/cuda/include".into());
    candidates.push("/usr/include".into());
    // The first that has them: mixing versions would be worse than having none.
    candidates.into_iter().find(|folder| folder.join("cuda_fp16.h").is_file()).into_iter().collect()
}

#[cfg(test)]
mod tests {
    // Not on the fake driver: NVRTC looks for the real one's private tables in any library of that name.
    use super::*;

    const SAXPY: &str = r#"
        #include "scale.cuh"
        extern "C" __global__ void saxpy(float a, const float* x, float* y, size_t n) {
            size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
            if (i < n) y[i] += SCALE(a) * x[i];
        }
    "#;

    #[test]
    fn source_with_headers_becomes_code_and_errors_carry_the_log() {
        let nvrtc = match compiler() {
            Ok(nvrtc) => nvrtc,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unsupported);
                eprintln!("skipped: {error}");
                return;
            }
        };
        assert!(nvrtc.version().starts_with("nvrtc "));
        let headers = [("scale.cuh", "#define SCALE(a) ((a) * FACTOR)\n")];
        let mut source =
            Source { name: "saxpy.cu", text: SAXPY, headers: &headers, options: &["-DFACTOR=2.0f"] };
        let image = nvrtc.compile(&source, "sm_90").unwrap();
        assert_eq!(&image[..4], b"\x7fELF");
        assert!(image.windows(5).any(|window| window == b"saxpy"));
        let ptx = nvrtc.compile(&source, "sm_9999").unwrap();
        assert!(String::from_utf8_lossy(&ptx).contains(".entry saxpy"));

        let headers =
            [("gpustream/backend.cuh", include_str!("../../../kernels/include/gpustream/backend.cuh"))];
        let text = include_str!("../../../tests/fixtures/integers.cu");
        let integers = Source { name: "integers.cu", text, headers: &headers, options: &[] };
        nvrtc.compile(&integers, "sm_90").unwrap();

        // What the bindings embed: types that are others than were parsed do not compile.
        let text = include_str!("../../../tests/fixtures/asserted.txt");
        let asserted = Source { name: "asserted.cu", text, headers: &[], options: &[] };
        nvrtc.compile(&asserted, "sm_90").unwrap();
        for (lie, place) in
            [("float double", "parameter x"), ("volatile", "parameter y"), ("int float", "Pair::second")]
        {
            let text = format!("#define {lie}\n{text}");
            let error = nvrtc.compile(&Source { text: &text, ..asserted }, "sm_90").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidModule);
            assert!(
                error.message().contains(place) && error.message().contains("another type"),
                "{lie}: {error}"
            );
        }

        source.text = "extern \"C\" __global__ void broken() { undeclared = 1; }";
        let error = nvrtc.compile(&source, "sm_90").unwrap_err();
        assert_eq!((error.kind(), error.call()), (ErrorKind::InvalidModule, Some("nvrtcCompileProgram")));
        for part in ["saxpy.cu", "undeclared"] {
            assert!(error.to_string().contains(part), "{part:?} in {error}");
        }
    }
}
