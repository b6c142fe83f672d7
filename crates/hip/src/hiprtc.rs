//! HIPRTC: compiling kernels at run time.
//!
//! From HIP 7.0 on it is a library of its own, `libhiprtc.so.N`; up to 5.x its functions are also in
//! libamdhip64.
#![allow(non_camel_case_types, non_snake_case)] // HIPRTC's own names.

use std::ffi::{CString, c_char, c_int, c_void};
use std::mem::ManuallyDrop;
use std::path::PathBuf;
use std::ptr;

use gpustream_hal::library::{Search, file_of};
use gpustream_hal::{Error, ErrorKind, Result, Source};
use libloading::Library;

use crate::api::symbol;
use crate::error::{error, library_text};
use crate::library::{Runtime, Version, rocm_roots};

type hiprtcProgram = *mut c_void;
/// An integer for the same reason as [`Status`](crate::error::Status).
type hiprtcResult = u32;

const SUCCESS: hiprtcResult = 0;
const OUT_OF_MEMORY: hiprtcResult = 1;
const INVALID_INPUT: hiprtcResult = 3;
const INVALID_PROGRAM: hiprtcResult = 4;
const INVALID_OPTION: hiprtcResult = 5;
const COMPILATION: hiprtcResult = 6;

// Compared with newer bindings alone: hip-runtime-sys has nothing of HIPRTC.
#[cfg(all(feature = "hip-runtime-sys", newer_bindings))]
const _: () = {
    use hip_runtime_sys::hiprtcResult as Bound;
    assert!(size_of::<hiprtcResult>() == size_of::<Bound>());
    assert!(SUCCESS == Bound::HIPRTC_SUCCESS);
    assert!(OUT_OF_MEMORY == Bound::HIPRTC_ERROR_OUT_OF_MEMORY);
    assert!(INVALID_INPUT == Bound::HIPRTC_ERROR_INVALID_INPUT);
    assert!(INVALID_PROGRAM == Bound::HIPRTC_ERROR_INVALID_PROGRAM);
    assert!(INVALID_OPTION == Bound::HIPRTC_ERROR_INVALID_OPTION);
    assert!(COMPILATION == Bound::HIPRTC_ERROR_COMPILATION);
};

/// Declares the functions, each with its prototype.
macro_rules! functions {
    ($( $name:ident($($arg:ident: $ty:ty),*) -> $answer:ty; )*) => {
        /// The functions of one HIPRTC.
        struct Functions {
            $( $name: unsafe extern "C" fn($($ty),*) -> $answer, )*
        }

        impl Functions {
            fn find(library: &Library) -> Option<Self> {
                // SAFETY: the types are the functions' prototypes; the library is never closed.
                unsafe { Some(Self { $( $name: symbol(library, stringify!($name))?, )* }) }
            }
        }

        /// The same words, resolved among the bindings' types.
        #[cfg(all(feature = "hip-runtime-sys", newer_bindings))]
        #[allow(clippy::wildcard_imports)]
        mod prototypes {
            use hip_runtime_sys::*;
            use std::ffi::{c_char, c_int};
            $(
                // SAFETY: never called.
                const _: unsafe fn($($ty),*) -> $answer = |$($arg),*| unsafe { $name($($arg),*) };
            )*
        }
    };
}

functions! {
    hiprtcVersion(major: *mut c_int, minor: *mut c_int) -> hiprtcResult;
    hiprtcCreateProgram(
        program: *mut hiprtcProgram, source: *const c_char, name: *const c_char,
        count: c_int, headers: *mut *const c_char, names: *mut *const c_char
    ) -> hiprtcResult;
    hiprtcCompileProgram(program: hiprtcProgram, count: c_int, options: *mut *const c_char) -> hiprtcResult;
    hiprtcDestroyProgram(program: *mut hiprtcProgram) -> hiprtcResult;
    hiprtcGetCodeSize(program: hiprtcProgram, size: *mut usize) -> hiprtcResult;
    hiprtcGetCode(program: hiprtcProgram, code: *mut c_char) -> hiprtcResult;
    hiprtcGetProgramLogSize(program: hiprtcProgram, size: *mut usize) -> hiprtcResult;
    hiprtcGetProgramLog(program: hiprtcProgram, log: *mut c_char) -> hiprtcResult;
    hiprtcGetErrorString(result: hiprtcResult) -> *const c_char;
}

/// An opened HIPRTC.
pub(crate) struct Hiprtc {
    functions: Functions,
    path: PathBuf,
    runtime: Version,
    compiler: (c_int, c_int),
    _library: Option<ManuallyDrop<Library>>,
}

impl Hiprtc {
    /// Opens the HIPRTC that belongs to `runtime`.
    pub(crate) fn open(runtime: &Runtime) -> Result<Self> {
        // SAFETY: the names are HIPRTC's.
        let Search { library, tried } = unsafe { Search::open("GPUSTREAM_HIPRTC_LIBRARY", names(runtime)) };
        if let Some(library) = library.map(ManuallyDrop::new)
            && let Some(functions) = Functions::find(&library)
        {
            // SAFETY: the function is only pointed at, never called.
            let path = unsafe { symbol::<usize>(&library, "hiprtcVersion") }.and_then(file_of);
            return Ok(Self::new(functions, path.unwrap_or_default(), runtime, Some(library)));
        }
        if let Some(functions) = Functions::find(&runtime.library) {
            return Ok(Self::new(functions, runtime.path.clone(), runtime, None));
        }
        Err(error(
            ErrorKind::Unsupported,
            format!(
                "HIPRTC, which compiles kernels at run time, is not installed: {}; install ROCm's package hiprtc \
                 (hip-runtime-amd has it), or compile the kernels ahead with hipcc",
                tried.join("; "),
            ),
        ))
    }

    fn new(
        functions: Functions,
        path: PathBuf,
        runtime: &Runtime,
        library: Option<ManuallyDrop<Library>>,
    ) -> Self {
        let mut compiler = (0, 0);
        // SAFETY: both pointers are to live integers; on failure they stay zero.
        let _ = unsafe { (functions.hiprtcVersion)(&raw mut compiler.0, &raw mut compiler.1) };
        Self { functions, path, runtime: runtime.version, compiler, _library: library }
    }

    /// Name and version, enough to tell two compilers' outputs apart.
    pub(crate) fn describe(&self) -> String {
        let (major, minor) = self.compiler;
        format!("HIPRTC {major}.{minor} of HIP {} ({})", self.runtime, self.path.display())
    }

    /// Compiles `source` for `processor` into a code object.
    pub(crate) fn compile(&self, source: &Source<'_>, processor: &str) -> Result<Vec<u8>> {
        if let Some(reason) = refusal(self.runtime, processor) {
            return Err(error(ErrorKind::Unsupported, reason));
        }
        let text = c_string(source.text)?;
        let name = c_string(source.name)?;
        let header_names = c_strings(source.headers.iter().map(|header| header.0))?;
        let header_texts = c_strings(source.headers.iter().map(|header| header.1))?;
        let arch = format!("--offload-arch={processor}");
        let options = c_strings([arch.as_str(), "-O3", "-std=c++17"].iter().chain(source.options).copied())?;
        let (header_names, header_texts) = (pointers(&header_names), pointers(&header_texts));

        let mut program = OwnedProgram { hiprtc: self, program: ptr::null_mut() };
        // SAFETY: every pointer is to a C string, or an array of them of the given length, that outlives the
        // call; HIPRTC writes to none of them and copies what it needs.
        let code = unsafe {
            (self.functions.hiprtcCreateProgram)(
                &raw mut program.program,
                text.as_ptr(),
                name.as_ptr(),
                header_names.len() as c_int,
                header_texts.as_ptr().cast_mut(),
                header_names.as_ptr().cast_mut(),
            )
        };
        self.check("hiprtcCreateProgram", code)?;
        let option_pointers = pointers(&options);
        // SAFETY: the program is alive; the options are C strings that outlive the call.
        let code = unsafe {
            (self.functions.hiprtcCompileProgram)(
                program.program,
                options.len() as c_int,
                option_pointers.as_ptr().cast_mut(),
            )
        };
        if code == COMPILATION {
            let message = format!("HIPRTC refused {} for {processor}:\n{}", source.name, program.log());
            return Err(
                error(ErrorKind::InvalidModule, message).with_call("hiprtcCompileProgram", i64::from(code))
            );
        }
        self.check("hiprtcCompileProgram", code).map_err(|failure| {
            let log = program.log();
            if log.is_empty() { failure } else { failure.with_context(log) }
        })?;
        program.code()
    }

    fn check(&self, call: &'static str, code: hiprtcResult) -> Result<()> {
        if code == SUCCESS {
            return Ok(());
        }
        // SAFETY: any number may be asked about; the answer is a static string.
        let text = unsafe { library_text((self.functions.hiprtcGetErrorString)(code)) };
        let kind = match code {
            OUT_OF_MEMORY => ErrorKind::OutOfMemory,
            INVALID_INPUT | INVALID_OPTION => ErrorKind::InvalidArgument,
            INVALID_PROGRAM | COMPILATION => ErrorKind::InvalidModule,
            _ => ErrorKind::Driver,
        };
        let message = text.unwrap_or_else(|| format!("HIPRTC error {code}"));
        Err(error(kind, message).with_call(call, i64::from(code)))
    }
}

/// A program, destroyed when dropped.
struct OwnedProgram<'a> {
    hiprtc: &'a Hiprtc,
    program: hiprtcProgram,
}

impl OwnedProgram<'_> {
    /// The compiler's messages, or nothing where they cannot be had.
    fn log(&self) -> String {
        let functions = &self.hiprtc.functions;
        let mut size = 0;
        // SAFETY: the program is alive; `size` too.
        if unsafe { (functions.hiprtcGetProgramLogSize)(self.program, &raw mut size) } != SUCCESS {
            return String::new();
        }
        let mut log = vec![0_u8; size];
        // SAFETY: the buffer has the size that was asked for.
        if unsafe { (functions.hiprtcGetProgramLog)(self.program, log.as_mut_ptr().cast()) } != SUCCESS {
            return String::new();
        }
        String::from_utf8_lossy(&log).trim_end_matches(['\0', '\n']).to_owned()
    }

    fn code(&self) -> Result<Vec<u8>> {
        let functions = &self.hiprtc.functions;
        let mut size = 0;
        // SAFETY: the program is alive; `size` too.
        let code = unsafe { (functions.hiprtcGetCodeSize)(self.program, &raw mut size) };
        self.hiprtc.check("hiprtcGetCodeSize", code)?;
        let mut object = vec![0_u8; size];
        // SAFETY: the buffer has the size that was asked for.
        let code = unsafe { (functions.hiprtcGetCode)(self.program, object.as_mut_ptr().cast()) };
        self.hiprtc.check("hiprtcGetCode", code)?;
        Ok(object)
    }
}

impl Drop for OwnedProgram<'_> {
    fn drop(&mut self) {
        if !self.program.is_null() {
            // SAFETY: it was created, and is not used again.
            let _ = unsafe { (self.hiprtc.functions.hiprtcDestroyProgram)(&raw mut self.program) };
        }
    }
}

/// Where the HIPRTC that belongs to `runtime` may be: beside it first, for two of different versions do not mix.
fn names(runtime: &Runtime) -> Vec<PathBuf> {
    let name = format!("libhiprtc.so.{}", runtime.version.major());
    let beside = runtime.path.parent().map(|folder| folder.join(&name));
    let installed = rocm_roots().into_iter().map(|root| root.join("lib").join(&name));
    beside.into_iter().chain([PathBuf::from(&name)]).chain(installed).collect()
}

/// Why this compiler is not asked for this target, if so.
///
/// A HIPRTC of 5.x that meets a processor younger than its compiler ends the process with a segmentation fault
/// instead of an error (seen with 5.2.3 and gfx940, gfx942, gfx1100, gfx1201). Running it in a child process
/// would turn the crash into the same refusal, but a library cannot start its host program again, so it does
/// not call it at all. From 6.0 on an unknown processor is an error like any other.
fn refusal(version: Version, processor: &str) -> Option<String> {
    let since = match processor {
        "gfx900" | "gfx906" | "gfx908" | "gfx90a" | "gfx1030" => Version::new(5, 0),
        "gfx1100" | "gfx1101" | "gfx1102" => Version::new(5, 5),
        "gfx940" | "gfx941" | "gfx942" => Version::new(5, 7),
        _ => Version::new(6, 0),
    };
    (version < since).then(|| {
        format!(
            "HIPRTC of HIP {version} crashes on {processor}, so it is not called: compile the kernels ahead with \
             hipcc (`gpustream-build` does where it finds one), or install ROCm {}.{} or later",
            since.major(),
            since.minor(),
        )
    })
}

fn c_string(text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| error(ErrorKind::InvalidArgument, "the source contains a zero byte"))
}

fn c_strings<'a>(texts: impl Iterator<Item = &'a str>) -> Result<Vec<CString>, Error> {
    texts.map(c_string).collect()
}

fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|string| string.as_ptr()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::library::Found;

    #[test]
    fn old_compilers_are_not_asked_for_processors_they_crash_on() {
        let old = Version(50_221_153);
        assert!(refusal(old, "gfx90a").is_none());
        let reason = refusal(old, "gfx1100").unwrap();
        assert!(reason.contains("5.2.21153") && reason.contains("ROCm 5.5"), "{reason}");
        assert!(refusal(old, "gfx1201").unwrap().contains("ROCm 6.0"));
        assert!(refusal(Version::new(5, 7), "gfx942").is_none());
        assert!(refusal(Version::new(6, 4), "gfx1201").is_none());
    }
    /// The real compiler works without a GPU: what it makes is a code object of the processor asked for, what it
    /// refuses comes with its words, and what would crash it is not asked.
    #[test]
    fn the_real_compiler_where_one_is_installed() {
        // SAFETY: no choice is made.
        let runtime = match unsafe { Found::open(None) }.runtime {
            Ok(runtime) => runtime,
            Err(missing) => return eprintln!("SKIPPED: {missing}"),
        };
        let hiprtc = match runtime.hiprtc() {
            Ok(hiprtc) => hiprtc,
            Err(missing) => return eprintln!("SKIPPED: {missing}"),
        };
        let source = Source {
            name: "scale.cu",
            text: "#include \"factor.h\"\nextern \"C\" __global__ void scale(float* x) { *x *= FACTOR; }\n",
            headers: &[("factor.h", "#define FACTOR 2.0f\n")],
            options: &[],
        };
        let object = hiprtc.compile(&source, "gfx90a").unwrap();
        // An ELF file, or an offload bundle around one.
        assert!(object.starts_with(b"\x7fELF") || object.starts_with(b"__CLANG_OFFLOAD_BUNDLE__"));
        assert!(object.windows(5).any(|window| window == b"scale"));

        let headers =
            [("gpustream/backend.cuh", include_str!("../../../kernels/include/gpustream/backend.cuh"))];
        let text = include_str!("../../../tests/fixtures/integers.cu");
        let integers = Source { name: "integers.cu", text, headers: &headers, options: &[] };
        hiprtc.compile(&integers, "gfx90a").unwrap();

        // What the bindings embed: types that are others than were parsed do not compile.
        let text = include_str!("../../../tests/fixtures/asserted.txt");
        let asserted = Source { name: "asserted.cu", text, headers: &[], options: &[] };
        hiprtc.compile(&asserted, "gfx90a").unwrap();
        for (lie, place) in
            [("float double", "parameter x"), ("volatile", "parameter y"), ("int float", "Pair::second")]
        {
            let text = format!("#define {lie}\n{text}");
            let error = hiprtc.compile(&Source { text: &text, ..asserted }, "gfx90a").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidModule);
            assert!(
                error.message().contains(place) && error.message().contains("another type"),
                "{lie}: {error}"
            );
        }

        let error = hiprtc.compile(&Source { text: "int x = ;\n", ..source }, "gfx90a").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidModule);
        assert!(error.message().contains("expected expression"), "{error}");
        if runtime.version < Version::new(5, 5) {
            let error = hiprtc.compile(&source, "gfx1100").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
        }
        assert!(hiprtc.describe().starts_with("HIPRTC "), "{}", hiprtc.describe());
    }
    /// The test-only HIPRTC that forwards to NVRTC. Not together with a recorder of CUDA: NVRTC asks any libcuda in
    /// the process for private tables.
    #[test]
    fn the_shims_compiler_where_nvrtc_is_installed() {
        // Nobody else's: another user could not write where one has built before.
        let folder = std::env::temp_dir().join(format!("gpustream-hip-shim-{}", std::process::id()));
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/hip/shim/build.sh");
        assert!(std::process::Command::new(script).arg(&folder).status().unwrap().success());
        let path = folder.join("libhiprtc.so.6");
        // SAFETY: the shim's initialisers do nothing.
        let library = ManuallyDrop::new(unsafe { Library::new(&path) }.unwrap());
        std::fs::remove_dir_all(&folder).unwrap();
        let hiprtc = Hiprtc {
            functions: Functions::find(&library).unwrap(),
            path,
            runtime: Version::new(6, 4),
            compiler: (13, 0),
            _library: Some(library),
        };
        let source = Source {
            name: "twice.cu",
            text: "#include \"factor.h\"\nextern \"C\" __global__ void twice(float* x) { *x *= FACTOR; }\n",
            headers: &[("factor.h", "#define FACTOR 2.0f\n")],
            options: &["-DUNUSED=1"],
        };
        let cubin = match hiprtc.compile(&source, "gfxcuda90") {
            Ok(cubin) => cubin,
            Err(missing) if missing.message().contains("is not installed") => {
                return eprintln!("SKIPPED: {missing}; GPUSTREAM_HIP_SHIM_NVRTC names a libnvrtc");
            }
            Err(error) => panic!("{error}"),
        };
        assert!(cubin.starts_with(b"\x7fELF"));
        assert!(cubin.windows(5).any(|window| window == b"twice"));
        let error = hiprtc.compile(&Source { text: "int x = ;\n", ..source }, "gfxcuda90").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidModule);
        assert!(error.message().contains("expected an expression"), "{error}");
    }
}
