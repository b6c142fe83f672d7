//! NVRTC, NVIDIA's run-time compiler.

use std::ffi::{c_char, c_int};
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use cudarc::nvrtc::sys as bindings;
use gpustream_hal::compiler::{Compiler, RawProgram, SizedOutput};
use gpustream_hal::driver::{Codes, Status};
use gpustream_hal::folders::named_by;
use gpustream_hal::library::{Library, Search, file_of};
use gpustream_hal::{Compiled, Error, ErrorKind, Result, Source, functions};

use crate::api::prove;
use crate::driver::found;
use crate::error::{BACKEND, error};
use crate::library::{TOOLKITS, compiler_names};

#[allow(non_camel_case_types)] // NVRTC's own name.
type nvrtcProgram = RawProgram;
#[allow(non_camel_case_types)] // NVRTC's own name.
type nvrtcResult = Status;

const OUT_OF_MEMORY: u32 = 1;
const INVALID_OPTION: u32 = 5;

const _: () = {
    use bindings::nvrtcResult as Bound;
    assert!(size_of::<nvrtcResult>() == size_of::<Bound>());
    assert!(Status::SUCCESS.0 == Bound::NVRTC_SUCCESS as u32);
    assert!(OUT_OF_MEMORY == Bound::NVRTC_ERROR_OUT_OF_MEMORY as u32);
    assert!(INVALID_OPTION == Bound::NVRTC_ERROR_INVALID_OPTION as u32);
};

functions! {
    /// The functions of one NVRTC.
    Api -> nvrtcResult, proved by prove;
    texts { nvrtcGetErrorString }
    required "12.0" {
        nvrtcVersion(major: *mut c_int, minor: *mut c_int);
        nvrtcGetNumSupportedArchs(count: *mut c_int);
        nvrtcGetSupportedArchs(archs: *mut c_int);
        nvrtcCreateProgram(
            program: *mut nvrtcProgram, source: *const c_char, name: *const c_char,
            count: c_int, headers: *mut *const c_char, names: *mut *const c_char
        );
        nvrtcAddNameExpression(program: nvrtcProgram, expression: *const c_char);
        nvrtcGetLoweredName(program: nvrtcProgram, expression: *const c_char, symbol: *mut *const c_char);
        nvrtcCompileProgram(program: nvrtcProgram, count: c_int, options: *mut *const c_char);
        nvrtcDestroyProgram(program: *mut nvrtcProgram);
        nvrtcGetProgramLogSize(program: nvrtcProgram, size: *mut usize);
        nvrtcGetProgramLog(program: nvrtcProgram, log: *mut c_char);
        nvrtcGetCUBINSize(program: nvrtcProgram, size: *mut usize);
        nvrtcGetCUBIN(program: nvrtcProgram, code: *mut c_char);
        nvrtcGetPTXSize(program: nvrtcProgram, size: *mut usize);
        nvrtcGetPTX(program: nvrtcProgram, code: *mut c_char);
    }
}

const COMPILER: Compiler<Api> = Compiler {
    create: Api::nvrtcCreateProgram,
    add_name: Api::nvrtcAddNameExpression,
    symbol: Api::nvrtcGetLoweredName,
    compile: Api::nvrtcCompileProgram,
    destroy: Api::nvrtcDestroyProgram,
    log: SizedOutput(Api::nvrtcGetProgramLogSize, Api::nvrtcGetProgramLog),
    refused: |_| true,
};
const CODE: SizedOutput<Api> = SizedOutput(Api::nvrtcGetCUBINSize, Api::nvrtcGetCUBIN);
const PTX: SizedOutput<Api> = SizedOutput(Api::nvrtcGetPTXSize, Api::nvrtcGetPTX);

impl Codes for Api {
    const BACKEND: &'static str = BACKEND;
    const INTERFACE: &'static str = "NVRTC";
    const PRODUCT: &'static str = "CUDA toolkit";

    fn kind(status: Status) -> ErrorKind {
        match status.0 {
            OUT_OF_MEMORY => ErrorKind::OutOfMemory,
            INVALID_OPTION => ErrorKind::InvalidArgument,
            // The other codes are the compiler's own failures.
            _ => ErrorKind::InvalidModule,
        }
    }

    fn describe(&self, status: Status) -> String {
        self.nvrtcGetErrorString(status).unwrap_or_else(|| "an unknown failure".to_owned())
    }
}

/// The opened compiler. A process opens it once, and must never close it, because the functions above point into it.
pub(crate) struct Nvrtc {
    api: Api,
    major: c_int,
    minor: c_int,
    library: Option<PathBuf>,
    /// The compute capabilities that it can make code for, ascending.
    targets: Vec<u32>,
    /// The folders with the toolkit's headers (such as `cuda_fp16.h`), if we found any.
    includes: Vec<PathBuf>,
}

/// Returns the compiler. The first call opens it.
///
/// # Errors
/// `Unsupported`, with each name tried.
pub(crate) fn compiler() -> Result<&'static Nvrtc> {
    static COMPILER: OnceLock<Result<Nvrtc>> = OnceLock::new();
    COMPILER.get_or_init(Nvrtc::open).as_ref().map_err(Error::clone)
}

impl Nvrtc {
    fn open() -> Result<Self> {
        let driver_major = found().driver.as_ref().map_or(13, |driver| driver.version.major());
        // SAFETY: the names are NVRTC's.
        let search = unsafe { Search::open("GPUSTREAM_NVRTC_LIBRARY", compiler_names(driver_major)) };
        let Some(library) = search.library.map(ManuallyDrop::new) else {
            let message = format!(
                "compiling kernels at run time needs NVRTC, which was not found; install it (part of the CUDA \
                 toolkit, or the Python package nvidia-cuda-nvrtc), set GPUSTREAM_NVRTC_LIBRARY, or build the \
                 kernels for this device beforehand; tried: {}",
                search.tried.join("; ")
            );
            return Err(error(ErrorKind::Unsupported, message));
        };
        // SAFETY: we open it as NVRTC and never close it.
        let (api, missing) = unsafe { Api::load(&library) };
        if let Some(symbol) = missing.first() {
            let message =
                format!("this NVRTC is too old, because it has no function {symbol}: install a newer one");
            return Err(error(ErrorKind::Unsupported, message));
        }
        let library = api.nvrtcVersion.and_then(|function| file_of(function as usize));
        let (mut major, mut minor, mut count) = (0, 0, 0);
        // SAFETY: all pointers are to locals.
        unsafe {
            api.nvrtcVersion(&raw mut major, &raw mut minor).ok()?;
            api.nvrtcGetNumSupportedArchs(&raw mut count).ok()?;
        }
        open_builtins(library.as_deref(), major, minor);
        let mut targets = vec![0; usize::try_from(count).unwrap_or(0)];
        // SAFETY: the array has as many entries as the compiler asked for.
        unsafe { api.nvrtcGetSupportedArchs(targets.as_mut_ptr()) }.ok()?;
        let mut targets: Vec<u32> =
            targets.into_iter().filter_map(|target| u32::try_from(target).ok()).collect();
        targets.sort_unstable();
        let includes = include_folders(library.as_deref());
        Ok(Self { api, major, minor, library, targets, includes })
    }

    /// Returns name and version: `nvrtc 13.0`.
    pub(crate) fn version(&self) -> String {
        format!("nvrtc {}.{}", self.major, self.minor)
    }

    /// Returns name, version and file, for diagnosis.
    pub(crate) fn description(&self) -> String {
        match &self.library {
            Some(path) => format!("{} ({})", self.version(), path.display()),
            None => self.version(),
        }
    }

    /// Compiles `source` into machine code for `arch`. If this compiler does not know `arch`, we ask for PTX for the newest
    /// target before it.
    ///
    /// # Safety
    /// The options must be harmless, because some make the compiler load and run a library.
    pub(crate) unsafe fn compile(&self, source: &Source<'_>, arch: &str) -> Result<Compiled> {
        let unsupported = |message| Err(error(ErrorKind::Unsupported, message));
        let Some(wanted) = arch.strip_prefix("sm_").and_then(|number| number.parse::<u32>().ok()) else {
            return unsupported(format!(
                "NVRTC cannot compile for {arch}, because it is not an architecture of the form sm_90"
            ));
        };
        let (target, output) = if self.targets.binary_search(&wanted).is_ok() {
            (format!("--gpu-architecture=sm_{wanted}"), &CODE)
        } else if let Some(below) = self.targets.iter().rev().find(|&&target| target < wanted) {
            (format!("--gpu-architecture=compute_{below}"), &PTX)
        } else {
            return unsupported(format!(
                "{} cannot compile for {arch}: install an older one, or build the kernels beforehand",
                self.version()
            ));
        };
        let mut options = vec![target, "--std=c++17".to_owned()];
        options.extend(source.options.iter().map(|&option| option.to_owned()));
        options.extend(self.includes.iter().map(|folder| format!("--include-path={}", folder.display())));
        let title = format!("{} refused {}", self.version(), source.name);
        // SAFETY: the functions come from this library; the options are harmless by this function's contract.
        unsafe { COMPILER.run(&self.api, source, &options, output, &title) }
    }
}

/// Opens the compiler's second library, which lies beside the first. The compiler asks for it by name, and the linker
/// could not find it outside its own path.
fn open_builtins(library: Option<&Path>, major: c_int, minor: c_int) {
    let Some(folder) = library.and_then(Path::parent) else { return };
    let path = folder.join(format!("libnvrtc-builtins.so.{major}.{minor}"));
    if !path.is_absolute() || !path.exists() {
        return;
    }
    // SAFETY: the library is part of the compiler, and we never close it.
    let _ = unsafe { Library::new(&path) }.map(ManuallyDrop::new);
}

/// Returns the folders with the toolkit's headers, because NVRTC brings only those of the language.
fn include_folders(library: Option<&Path>) -> Vec<PathBuf> {
    let mut candidates: Vec<PathBuf> =
        named_by(&TOOLKITS).into_iter().map(|root| root.join("include")).collect();
    // If the library is …/lib64/libnvrtc.so, the headers are in …/include. The Python packages have a folder for each part.
    if let Some(root) = library.and_then(Path::parent).and_then(Path::parent) {
        candidates.push(root.join("include"));
        if let Some(packages) = root.parent() {
            candidates.push(packages.join("cuda_runtime/include"));
        }
    }
    candidates.push("/usr/local/cuda/include".into());
    candidates.push("/opt/cuda/include".into());
    candidates.push("/usr/include".into());
    // We must take all from the first folder that has them, because mixed versions would be worse than none.
    let Some(folder) = candidates.into_iter().find(|folder| folder.join("cuda_fp16.h").is_file()) else {
        return Vec::new();
    };
    // Since 13.0 the toolkit keeps `cuda/std` in a folder below. Its own headers include it.
    let below = folder.join("cccl");
    if below.is_dir() { vec![folder, below] } else { vec![folder] }
}

#[cfg(test)]
mod tests {
    // Do not use a fake driver here: NVRTC looks for the real one's private tables in any library with that name.
    use super::*;

    #[test]
    fn every_prototype_is_compared() {
        let absent: Vec<_> = prototypes::COMPARED.iter().filter(|(_, is_compared)| !is_compared).collect();
        assert!(absent.is_empty(), "{absent:?}");
    }

    const SAXPY: &str = r#"
        #include "scale.cuh"
        extern "C" __global__ void saxpy(float a, const float* x, float* y, size_t n) {
            size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
            if (i < n) y[i] += SCALE(a) * x[i];
        }
    "#;

    fn compile(nvrtc: &Nvrtc, source: &Source<'_>, arch: &str) -> Result<Vec<u8>> {
        // SAFETY: the tests' options are macros.
        unsafe { nvrtc.compile(source, arch) }.map(|compiled| compiled.image)
    }

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
        let mut source = Source {
            name: "saxpy.cu",
            text: SAXPY,
            headers: &headers,
            options: &["-DFACTOR=2.0f"],
            kernels: &[],
        };
        let image = compile(nvrtc, &source, "sm_90").unwrap();
        assert_eq!(&image[..4], b"\x7fELF");
        assert!(image.windows(5).any(|window| window == b"saxpy"));
        let ptx = compile(nvrtc, &source, "sm_9999").unwrap();
        assert!(String::from_utf8_lossy(&ptx).contains(".entry saxpy"));

        let text = "namespace solver { template <class T, int N> __global__ void step(T* x) { *x += N; } }";
        let named = Source { text, headers: &[], kernels: &[("step", "&solver::step<float, 3>")], ..source };
        // SAFETY: the options are macros.
        let compiled = unsafe { nvrtc.compile(&named, "sm_90") }.unwrap();
        assert_eq!(compiled.symbols, ["_ZN6solver4stepIfLi3EEEvPT_"]);

        let headers = [("gpustream/backend.cuh", include_str!("../fixtures/backend.cuh"))];
        let text = include_str!("../fixtures/integers.cu");
        let integers = Source { name: "integers.cu", text, headers: &headers, options: &[], kernels: &[] };
        compile(nvrtc, &integers, "sm_90").unwrap();

        // The bindings embed the source, so it must not compile with types other than the parsed ones.
        let text = include_str!("../fixtures/asserted.txt");
        let asserted = Source { name: "asserted.cu", text, headers: &[], options: &[], kernels: &[] };
        compile(nvrtc, &asserted, "sm_90").unwrap();
        for (lie, place) in
            [("float double", "parameter x"), ("volatile", "parameter y"), ("int float", "Pair::second")]
        {
            let text = format!("#define {lie}\n{text}");
            let error = compile(nvrtc, &Source { text: &text, ..asserted }, "sm_90").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidModule);
            assert!(
                error.message().contains(place) && error.message().contains("another type"),
                "{lie}: {error}"
            );
        }

        source.text = "extern \"C\" __global__ void broken() { undeclared = 1; }";
        let error = compile(nvrtc, &source, "sm_90").unwrap_err();
        assert_eq!((error.kind(), error.call()), (ErrorKind::InvalidModule, Some("nvrtcCompileProgram")));
        for part in ["saxpy.cu", "undeclared"] {
            assert!(error.to_string().contains(part), "{part:?} in {error}");
        }
    }
}
