//! HIPRTC, AMD's run-time compiler.
//!
//! From HIP 7.0 on HIPRTC is a separate library, `libhiprtc.so.N`. Up to 5.x libamdhip64 has its functions too, so we
//! must look in both.

use std::ffi::{c_char, c_int};
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};

use gpustream_hal::compiler::{Compiler, RawProgram, SizedOutput};
use gpustream_hal::driver::{Codes, Status};
use gpustream_hal::library::{Library, Search, file_of};
use gpustream_hal::{Compiled, ErrorKind, Result, Source, functions};

use crate::error::{BACKEND, error};
use crate::library::compiler_names;
use crate::version::Version;

#[allow(non_camel_case_types)] // HIPRTC's own name.
type hiprtcProgram = RawProgram;
#[allow(non_camel_case_types)] // HIPRTC's own name.
type hiprtcResult = Status;

const OUT_OF_MEMORY: u32 = 1;
const INVALID_INPUT: u32 = 3;
const INVALID_PROGRAM: u32 = 4;
const INVALID_OPTION: u32 = 5;
const COMPILATION: u32 = 6;

// We compare these only with newer bindings, because hip-runtime-sys has nothing from HIPRTC.
#[cfg(all(feature = "hip-runtime-sys", newer_bindings))]
const _: () = {
    use hip_runtime_sys::hiprtcResult as Bound;
    assert!(size_of::<hiprtcResult>() == size_of::<Bound>());
    assert!(Status::SUCCESS.0 == Bound::HIPRTC_SUCCESS);
    assert!(OUT_OF_MEMORY == Bound::HIPRTC_ERROR_OUT_OF_MEMORY);
    assert!(INVALID_INPUT == Bound::HIPRTC_ERROR_INVALID_INPUT);
    assert!(INVALID_PROGRAM == Bound::HIPRTC_ERROR_INVALID_PROGRAM);
    assert!(INVALID_OPTION == Bound::HIPRTC_ERROR_INVALID_OPTION);
    assert!(COMPILATION == Bound::HIPRTC_ERROR_COMPILATION);
};

macro_rules! prove {
    ($($functions:tt)*) => {
        #[cfg(newer_bindings)]
        crate::api::prove! { $($functions)* }
    };
}

functions! {
    /// The functions of one HIPRTC.
    Api -> hiprtcResult, proved by prove;
    texts { hiprtcGetErrorString }
    required "5.0" {
        hiprtcVersion(major: *mut c_int, minor: *mut c_int);
        hiprtcCreateProgram(
            program: *mut hiprtcProgram, source: *const c_char, name: *const c_char,
            count: c_int, headers: *mut *const c_char, names: *mut *const c_char
        );
        hiprtcAddNameExpression(program: hiprtcProgram, expression: *const c_char);
        hiprtcGetLoweredName(program: hiprtcProgram, expression: *const c_char, symbol: *mut *const c_char);
        hiprtcCompileProgram(program: hiprtcProgram, count: c_int, options: *mut *const c_char);
        hiprtcDestroyProgram(program: *mut hiprtcProgram);
        hiprtcGetProgramLogSize(program: hiprtcProgram, size: *mut usize);
        hiprtcGetProgramLog(program: hiprtcProgram, log: *mut c_char);
        hiprtcGetCodeSize(program: hiprtcProgram, size: *mut usize);
        hiprtcGetCode(program: hiprtcProgram, code: *mut c_char);
    }
}

const COMPILER: Compiler<Api> = Compiler {
    create: Api::hiprtcCreateProgram,
    add_name: Api::hiprtcAddNameExpression,
    symbol: Api::hiprtcGetLoweredName,
    compile: Api::hiprtcCompileProgram,
    destroy: Api::hiprtcDestroyProgram,
    log: SizedOutput(Api::hiprtcGetProgramLogSize, Api::hiprtcGetProgramLog),
    refused: |status| status.0 == COMPILATION,
};
const CODE: SizedOutput<Api> = SizedOutput(Api::hiprtcGetCodeSize, Api::hiprtcGetCode);

impl Codes for Api {
    const BACKEND: &'static str = BACKEND;
    const INTERFACE: &'static str = "HIPRTC";
    const PRODUCT: &'static str = "ROCm";

    fn kind(status: Status) -> ErrorKind {
        match status.0 {
            OUT_OF_MEMORY => ErrorKind::OutOfMemory,
            INVALID_INPUT | INVALID_OPTION => ErrorKind::InvalidArgument,
            INVALID_PROGRAM | COMPILATION => ErrorKind::InvalidModule,
            _ => ErrorKind::Driver,
        }
    }

    fn describe(&self, status: Status) -> String {
        self.hiprtcGetErrorString(status).unwrap_or_else(|| format!("HIPRTC error {}", status.0))
    }
}

/// The opened compiler. There is one for each libamdhip64, because two versions must not be mixed.
pub(crate) struct Hiprtc {
    api: Api,
    major: c_int,
    minor: c_int,
    library: PathBuf,
    /// The version of the HIP that it came with.
    runtime: Version,
}

impl Hiprtc {
    /// Opens the HIPRTC that came with the libamdhip64 `driver`, which is at `path` and has this version.
    ///
    /// # Errors
    /// `Unsupported`, with each name tried.
    pub(crate) fn open(driver: &ManuallyDrop<Library>, path: &Path, version: Version) -> Result<Self> {
        // SAFETY: the names are HIPRTC's.
        let search = unsafe { Search::open("GPUSTREAM_HIPRTC_LIBRARY", compiler_names(path, version)) };
        if let Some(library) = search.library.map(ManuallyDrop::new)
            // SAFETY: we open it as HIPRTC and never close it.
            && let (api, missing) = unsafe { Api::load(&library) }
            && missing.is_empty()
        {
            let path = api.hiprtcVersion.and_then(|function| file_of(function as usize));
            return Ok(Self::new(api, path.unwrap_or_default(), version));
        }
        // SAFETY: libamdhip64 is never closed.
        let (api, missing) = unsafe { Api::load(driver) };
        if missing.is_empty() {
            return Ok(Self::new(api, path.to_owned(), version));
        }
        Err(error(
            ErrorKind::Unsupported,
            format!(
                "HIPRTC, which compiles kernels at run time, is not installed: {}; install ROCm's package hiprtc \
                 (hip-runtime-amd has it), or compile the kernels ahead with hipcc",
                search.tried.join("; "),
            ),
        ))
    }

    fn new(api: Api, library: PathBuf, runtime: Version) -> Self {
        let (mut major, mut minor) = (0, 0);
        // SAFETY: both pointers are to locals, which stay zero if this fails.
        let _ = unsafe { api.hiprtcVersion(&raw mut major, &raw mut minor) };
        Self { api, major, minor, library, runtime }
    }

    /// Returns name, version and file, so that you can tell two compilers' outputs apart.
    pub(crate) fn description(&self) -> String {
        format!("HIPRTC {}.{} of HIP {} ({})", self.major, self.minor, self.runtime, self.library.display())
    }

    /// Compiles `source` into a code object for `processor`.
    ///
    /// # Safety
    /// The options must be harmless, because some make the compiler load and run a library.
    pub(crate) unsafe fn compile(&self, source: &Source<'_>, processor: &str) -> Result<Compiled> {
        if let Some(reason) = refusal(self.runtime, processor) {
            return Err(error(ErrorKind::Unsupported, reason));
        }
        let target = format!("--offload-arch={processor}");
        let mut options = vec![target, "-O3".to_owned(), "-std=c++17".to_owned()];
        options.extend(source.options.iter().map(|&option| option.to_owned()));
        let title = format!("HIPRTC refused {} for {processor}", source.name);
        // SAFETY: the functions come from this library; the options are harmless by this function's contract.
        let compile = |source| unsafe { COMPILER.run(&self.api, source, &options, &CODE, &title) };
        let compiled = compile(source);
        let spelled: Vec<String> = source.kernels.iter().map(|(_, address)| demangled(address)).collect();
        let kernels: Vec<_> =
            source.kernels.iter().zip(&spelled).map(|((name, _), it)| (*name, &**it)).collect();
        if compiled.is_ok() || kernels == source.kernels {
            return compiled;
        }
        compile(&Source { kernels: &kernels, ..*source }).or(compiled)
    }
}

/// Returns the address of a template instance, with arguments as a demangled symbol shows them. ROCm 5's HIPRTC can
/// only find instances by that text, and it must not contain typedefs.
fn demangled(address: &str) -> String {
    let Some((path, arguments)) = address.strip_suffix('>').and_then(|rest| rest.split_once('<')) else {
        return address.to_owned();
    };
    let arguments = arguments.split(", ").map(|argument| {
        let typedef = TYPEDEFS.iter().find(|(name, _)| *name == argument);
        typedef.map_or(argument, |(_, ty)| *ty)
    });
    format!("{path}<{}>", arguments.collect::<Vec<_>>().join(", "))
}

/// Typedefs, and types with several names: as you write them, and as a demangler does.
const TYPEDEFS: [(&str, &str); 11] = [
    ("gs::half", "__half"),
    ("unsigned", "unsigned int"),
    ("int8_t", "signed char"),
    ("uint8_t", "unsigned char"),
    ("int16_t", "short"),
    ("uint16_t", "unsigned short"),
    ("int32_t", "int"),
    ("uint32_t", "unsigned int"),
    ("int64_t", "long long"),
    ("uint64_t", "unsigned long long"),
    ("size_t", "unsigned long"),
];

/// If we must not ask this compiler for this target, returns why.
///
/// If a HIPRTC 5.x meets a processor that is newer than the compiler, it ends the process with a segmentation fault
/// instead of an error. We saw this with 5.2.3 and gfx940, gfx942, gfx1100 and gfx1201. A child process could turn the
/// crash into a refusal, but a library cannot start its host program again. So we must not call the compiler at all.
/// From 6.0 on you get an ordinary error for an unknown processor.
fn refusal(version: Version, processor: &str) -> Option<String> {
    let since = match processor {
        "gfx900" | "gfx906" | "gfx908" | "gfx90a" | "gfx1030" => Version::new(5, 0),
        "gfx1100" | "gfx1101" | "gfx1102" => Version::new(5, 5),
        "gfx940" | "gfx941" | "gfx942" => Version::new(5, 7),
        _ => Version::new(6, 0),
    };
    (version < since).then(|| {
        format!(
            "HIPRTC of HIP {version} crashes on {processor}, so we do not call it: compile the kernels ahead with \
             hipcc (`gpustream-build` does so if it finds one), or install ROCm {}.{} or later",
            since.major(),
            since.minor(),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Found;

    fn compile(hiprtc: &Hiprtc, source: &Source<'_>, processor: &str) -> Result<Vec<u8>> {
        // SAFETY: the tests' options are macros.
        unsafe { hiprtc.compile(source, processor) }.map(|compiled| compiled.image)
    }

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

    /// The real compiler works without a GPU: it makes a code object for the processor you ask for and explains a refusal. If a
    /// processor would crash it, we do not ask.
    #[test]
    fn real_compiler_compiles_and_refuses_where_one_is_installed() {
        // SAFETY: no choice is made.
        let driver = match unsafe { Found::open(None) }.driver {
            Ok(driver) => driver,
            Err(missing) => return eprintln!("SKIPPED: {missing}"),
        };
        let hiprtc = match driver.hiprtc() {
            Ok(hiprtc) => hiprtc,
            Err(missing) => return eprintln!("SKIPPED: {missing}"),
        };
        let source = Source {
            name: "scale.cu",
            text: "#include \"factor.h\"\nextern \"C\" __global__ void scale(float* x) { *x *= FACTOR; }\n",
            headers: &[("factor.h", "#define FACTOR 2.0f\n")],
            options: &[],
            kernels: &[],
        };
        let object = compile(hiprtc, &source, "gfx90a").unwrap();
        // An ELF file, or an offload bundle around one.
        assert!(object.starts_with(b"\x7fELF") || object.starts_with(b"__CLANG_OFFLOAD_BUNDLE__"));
        assert!(object.windows(5).any(|window| window == b"scale"));

        let text = "namespace solver { template <class T, int N> __global__ void step(T* x) { *x += N; } }\n";
        let named = Source { text, headers: &[], kernels: &[("step", "&solver::step<float, 3>")], ..source };
        // SAFETY: there are no options.
        let compiled = unsafe { hiprtc.compile(&named, "gfx90a") }.unwrap();
        assert_eq!(compiled.symbols, ["_ZN6solver4stepIfLi3EEEvPT_"]);

        let text = "namespace gs { typedef __half half; }\ntemplate <class T, class Sum, int N> __global__ void \
                    sum(const T* x, Sum* y) { *y = N; }\n";
        let kernels = [("float", "&sum<gs::half, float, 3>"), ("integer", "&sum<unsigned, uint64_t, 4>")];
        // SAFETY: there are no options.
        let compiled =
            unsafe { hiprtc.compile(&Source { text, kernels: &kernels, ..named }, "gfx90a") }.unwrap();
        assert_eq!(compiled.symbols, ["_Z3sumI6__halffLi3EEvPKT_PT0_", "_Z3sumIjyLi4EEvPKT_PT0_"]);

        let headers = [("gpustream/backend.cuh", include_str!("../fixtures/backend.cuh"))];
        let text = include_str!("../fixtures/integers.cu");
        let integers = Source { name: "integers.cu", text, headers: &headers, options: &[], kernels: &[] };
        compile(hiprtc, &integers, "gfx90a").unwrap();

        // The bindings embed the source, so it must not compile with types other than the parsed ones.
        let text = include_str!("../fixtures/asserted.txt");
        let asserted = Source { name: "asserted.cu", text, headers: &[], options: &[], kernels: &[] };
        compile(hiprtc, &asserted, "gfx90a").unwrap();
        for (lie, place) in
            [("float double", "parameter x"), ("volatile", "parameter y"), ("int float", "Pair::second")]
        {
            let text = format!("#define {lie}\n{text}");
            let error = compile(hiprtc, &Source { text: &text, ..asserted }, "gfx90a").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidModule);
            assert!(
                error.message().contains(place) && error.message().contains("another type"),
                "{lie}: {error}"
            );
        }

        let error = compile(hiprtc, &Source { text: "int x = ;\n", ..source }, "gfx90a").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidModule);
        assert!(error.message().contains("expected expression"), "{error}");
        if driver.version < Version::new(5, 5) {
            let error = compile(hiprtc, &source, "gfx1100").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
        }
        assert!(hiprtc.description().starts_with("HIPRTC "), "{}", hiprtc.description());
    }

    /// Uses the test-only HIPRTC that forwards to NVRTC. The process must not contain the CUDA recorder, because NVRTC asks any
    /// libcuda that it finds for private tables.
    #[test]
    fn shims_compiler_compiles_where_nvrtc_is_installed() {
        // The folder belongs to this process, because otherwise one user's build would keep another user from writing there.
        let folder = std::env::temp_dir().join(format!("gpustream-hip-shim-{}", std::process::id()));
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests");
        if !tests.exists() {
            return eprintln!("SKIPPED: the shim is no part of this package");
        }
        let script = tests.join("fixtures/hip/shim/build.sh");
        assert!(std::process::Command::new(script).arg(&folder).status().unwrap().success());
        let path = folder.join("libhiprtc.so.6");
        // SAFETY: the shim's initialisers do nothing.
        let library = ManuallyDrop::new(unsafe { Library::new(&path) }.unwrap());
        std::fs::remove_dir_all(&folder).unwrap();
        // SAFETY: it is opened as HIPRTC, and never closed.
        let (api, _) = unsafe { Api::load(&library) };
        let hiprtc = Hiprtc { api, major: 13, minor: 0, library: path, runtime: Version::new(6, 4) };
        let source = Source {
            name: "twice.cu",
            text: "#include \"factor.h\"\nextern \"C\" __global__ void twice(float* x) { *x *= FACTOR; }\n",
            headers: &[("factor.h", "#define FACTOR 2.0f\n")],
            options: &["-DUNUSED=1"],
            kernels: &[],
        };
        let cubin = match compile(&hiprtc, &source, "gfxcuda90") {
            Ok(cubin) => cubin,
            Err(missing) if missing.message().contains("is not installed") => {
                return eprintln!("SKIPPED: {missing}; GPUSTREAM_HIP_SHIM_NVRTC names a libnvrtc");
            }
            Err(error) => panic!("{error}"),
        };
        assert!(cubin.starts_with(b"\x7fELF"));
        assert!(cubin.windows(5).any(|window| window == b"twice"));
        let error = compile(&hiprtc, &Source { text: "int x = ;\n", ..source }, "gfxcuda90").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidModule);
        assert!(error.message().contains("expected an expression"), "{error}");
    }
}
