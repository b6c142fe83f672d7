//! Runs files through real compilers. If a compiler is missing, a test cannot run and reports itself as
//! skipped.

#![allow(clippy::unwrap_used, clippy::panic)]

mod fixture;

use std::fmt::Display;
use std::fs;
use std::path::Path;

use fixture::{CPU_LEVEL, build, cpu};
use gpustream_build::toolchain::{HipCompiler, Nvcc};
use gpustream_build::{Backend, Built, Error, KernelReport, Kernels, Threads};

/// Every kind of parameter, with gaps before some of them, because that is what parameter tables can get
/// wrong.
const MIXED: &str = r#"#include <gpustream/kernel.cuh>
struct Pair { double first; int second[2]; };
/// y[i] = x[i] + p.first
/// requires: n <= len(x), n <= len(y)
/// covers: n
extern "C" __global__ void mixed(unsigned char flags, Pair p, const float* __restrict__ x, bool up, float* __restrict__ y,
                                 short s, size_t n, gs::half h) {
    GS_FOR_EACH(i, n) { y[i] = x[i] + (float)p.first + (up ? s : flags) + (float)h; }
}
extern "C" __global__ void __launch_bounds__(128) shares(float* x) {
    __shared__ float s[128];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = s[127 - threadIdx.x];
}
extern "C" __global__ void nothing() {}
"#;

fn kernel<'a>(built: &'a Built, kernel: &str, target: &str) -> &'a KernelReport {
    let mut all = built.files[0].kernels.iter();
    all.find(|k| k.kernel == kernel && k.target == target)
        .unwrap_or_else(|| panic!("no {kernel} for {target}"))
}

/// Selects one backend, and one target for each, because each further target would take longer and show
/// nothing new.
fn on(backend: Backend) -> impl Fn(Kernels) -> Kernels {
    move |kernels| kernels.backend(backend).cpu_level(CPU_LEVEL).cuda_arch("sm_80").hip_arch("gfx90a")
}

/// Returns the bindings of the first file.
fn bindings(built: &Built) -> String {
    fs::read_to_string(&built.files[0].bindings).unwrap()
}

/// Returns true if the compiler was found. If not, reports the test as skipped.
fn have<C>(test: &str, found: Result<C, impl Display>) -> bool {
    found.inspect_err(|missing| eprintln!("SKIPPED {test}: {missing}")).is_ok()
}

fn have_nvcc(test: &str) -> bool {
    have(test, Nvcc::find())
}

fn have_hip(test: &str, targets: &[&str]) -> bool {
    have(test, HipCompiler::find(targets))
}

/// Returns the backends that this machine can compile for, HIP for gfx90a.
fn compilable(test: &str) -> Vec<Backend> {
    let mut backends = vec![Backend::Cpu];
    if have_nvcc(test) {
        backends.push(Backend::Cuda);
    }
    if have_hip(test, &["gfx90a"]) {
        backends.push(Backend::Hip);
    }
    backends
}

/// The part of the next test that needs its environment.
#[test]
#[ignore = "a part of another test"]
fn cpu_levels_of_no_choice() {
    let dir = tempfile::tempdir().unwrap();
    let built = build(dir.path(), MIXED, |k| k.backend(Backend::Cpu)).unwrap();
    let levels: Vec<_> = built.files[0].kernels.iter().map(|k| k.target.as_str()).collect();
    let expected: &[&str] =
        if cfg!(target_arch = "aarch64") { &["aarch64"] } else { &["x86-64-v2", "x86-64-v3", "x86-64-v4"] };
    for level in expected {
        assert_eq!(levels.iter().filter(|l| l == &level).count(), 3);
        let image = fs::read(built.out_dir.join(format!("k.{level}.so"))).unwrap();
        let exported = b"gpustream_cpu_module";
        assert!(image.windows(exported.len()).any(|w| w == exported), "{level} exports no module");
    }
    assert_eq!(kernel(&built, "shares", levels[0]).max_threads, Some(128));
    let bindings = bindings(&built);
    let checked = format!("{}-checked", expected[0]);
    for level in expected.iter().chain([&&*checked]) {
        let image = fs::read(built.out_dir.join(format!("k.{level}.so"))).unwrap();
        let handler = b"__ubsan_handle_out_of_bounds";
        let checks = image.windows(handler.len()).any(|w| w == handler);
        assert_eq!(checks, *level == checked, "only the image for checked mode checks bounds: {level}");
        assert!(bindings.contains(&format!("include_bytes!(\"k.{level}.so\")")), "{bindings}");
    }
}

#[test]
fn cpu_levels_are_shared_objects_of_their_own() {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "--ignored", "cpu_levels_of_no_choice"]).env_remove("GPUSTREAM_CPU_LEVELS");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn native_is_the_level_of_this_machine() {
    let dir = tempfile::tempdir().unwrap();
    let text = "__global__ void k(int* x) { *x = 1; }\n";
    let built = build(dir.path(), text, |k| k.backend(Backend::Cpu).cpu_level("native")).unwrap();
    let levels: Vec<_> = built.files[0].kernels.iter().map(|k| &*k.target).collect();
    assert_eq!(levels, [gpustream_hal::cpu_level::best()]);
}

#[test]
fn a_cpp_error_is_the_compilers_own_at_the_users_line_and_said_once() {
    let dir = tempfile::tempdir().unwrap();
    let text = "extern \"C\" __global__ void k(float* x) {\n    x[0] = undeclared_name;\n}\n";
    let error = build(dir.path(), text, |k| k.backend(Backend::Cpu)).unwrap_err().to_string();
    assert!(error.contains("k.cu does not compile for the CPU"), "{error}");
    assert_eq!(error.matches("k.cu:2:12: error:").count(), 1, "{error}");
    assert!(error.contains("undeclared_name"), "{error}");
}

/// Asserts that a build's first error is a compiler's own, at this line of the file, and that it does not
/// mention what we wrote after the file.
#[track_caller]
fn is_the_compilers_own(error: &Error, backend: Backend, line: usize) {
    let text = error.to_string();
    let (_, said) = text.split_once("does not compile for").unwrap_or_else(|| panic!("{backend}: {text}"));
    let (place, _) = said.split_once("error:").unwrap_or_else(|| panic!("{backend}: {text}"));
    let at_line =
        |text: &str| text.contains(&format!("k.cu:{line}:")) || text.contains(&format!("k.cu({line})"));
    // nvcc may name the end of its own text, and then it mentions the brace in a note.
    let by_note = place.ends_with("At end of source: ") && at_line(said);
    assert!(at_line(place) || by_note, "{backend}: {text}");
    for ours in ["gs_check", "checks-by-gpustream", "contract", "does not return void"] {
        assert!(!text.contains(ours), "{backend}: {text}");
    }
}

#[test]
fn a_file_that_does_not_parse_shows_the_compilers_own_error_first() {
    let head = "#include <gpustream/kernel.cuh>\n";
    let no_semicolon = "/// requires: 1 <= len(x)\n__global__ void k(float* x) { x[0] = 1.0f }\n";
    let no_brace = "/// requires: 1 <= len(x)\n__global__ void k(float* x) {\n    if (x[0] > 0) {\n        x[0] = 1.0f;\n}\n";
    let no_brace_before_a_kernel =
        format!("struct P {{ int a; }};\n{no_brace}__global__ void other(P p) {{}}\n");
    let after_struct = "struct P { float a; }\n/// requires: 1 <= len(x)\n__global__ void k(P p, float* x) { x[0] = p.a; }\n";
    let in_namespace = "namespace a {\n__global__ void k(float* x) { x[0] = 1.0f; }\n";
    let test = "a_file_that_does_not_parse_shows_the_compilers_own_error_first";
    for backend in compilable(test) {
        let error = |text: &str| {
            let dir = tempfile::tempdir().unwrap();
            build(dir.path(), &format!("{head}{text}"), on(backend)).unwrap_err()
        };
        // Compilers may disagree: g++ points at the last brace, clang past it, and nvcc at the first.
        let end = |cpu: usize, cuda: usize| match backend {
            Backend::Cuda => cuda,
            Backend::Hip => cpu + 1,
            Backend::Cpu => cpu,
        };
        is_the_compilers_own(&error(no_semicolon), backend, 3);
        is_the_compilers_own(&error(no_brace), backend, end(6, 3));
        is_the_compilers_own(&error(&no_brace_before_a_kernel), backend, 8);
        is_the_compilers_own(&error(after_struct), backend, if backend == Backend::Cpu { 2 } else { 4 });
        is_the_compilers_own(&error(in_namespace), backend, end(3, 2));
    }
}

#[test]
fn errors_of_ours_follow_those_of_the_compiler_if_the_file_was_understood() {
    let text = "extern \"C\" __global__ void k(float& r, float* x) {\n    x[0] = undeclared_name;\n}\n";
    let dir = tempfile::tempdir().unwrap();
    let both = build(dir.path(), text, cpu).unwrap_err().to_string();
    let (compilers, ours) =
        (both.find("k.cu:2:12: error:").unwrap(), both.find("`r` is a reference").unwrap());
    assert!(compilers < ours, "{both}");
    let ours = build(dir.path(), &text.replace("undeclared_name", "r"), cpu).unwrap_err();
    assert_eq!(ours.diagnostics().len(), 1, "{ours}");
    assert!(ours.to_string().starts_with(&format!("{}:1:", dir.path().join("k.cu").display())), "{ours}");
}

/// `GS_INLINE` must work before each kind of function. One function of each kind is unused, because an unused one must not
/// cause a warning.
const INLINE: &str = r"#include <gpustream/kernel.cuh>
GS_INLINE float half_of(float x) { return x * 0.5f; }
GS_INLINE float unused(float x) { return x; }
namespace {
GS_INLINE float unused_too(float x) { return x; }
}
struct Scaled {
    float by;
    GS_INLINE Scaled(float by) : by(by) {}
    GS_INLINE float operator()(float x) const { return by * x; }
    static GS_INLINE float plus_one(float x) { return x + 1.0f; }
    template <class T>
    GS_INLINE T unused(T x) { return x; }
};
template <class F>
GS_INLINE float applied(F f, float x) { return f(x); }
/// requires: n <= len(x)
/// covers: n
__global__ void scale(float* x, size_t n) {
    GS_FOR_EACH(i, n) { x[i] = Scaled::plus_one(applied(Scaled(2.0f), half_of(x[i]))); }
}
";

#[test]
fn inline_functions_may_be_free_or_members_and_need_not_be_used() {
    let test = "inline_functions_may_be_free_or_members_and_need_not_be_used";
    for backend in compilable(test) {
        let dir = tempfile::tempdir().unwrap();
        let flags: &[&str] = match backend {
            Backend::Cuda => &["-Werror=all-warnings", "-Xcompiler=-Wall,-Wextra,-Werror"],
            _ => &["-Wall", "-Wextra", "-Werror"],
        };
        let built = build(dir.path(), INLINE, |kernels| {
            flags.iter().fold(on(backend)(kernels), |kernels, flag| kernels.flag(backend, *flag))
        });
        assert!(built.is_ok(), "{backend}: {}", built.unwrap_err());
    }
}

/// Kernels without `extern "C"`, in namespaces and overloaded.
const FOREIGN: &str = include_str!("../../../tests/kernels/foreign.cu");

#[test]
fn kernels_are_found_by_the_names_that_compilers_give_them() {
    let test = "kernels_are_found_by_the_names_that_compilers_give_them";
    let dir = tempfile::tempdir().unwrap();
    let mut backends = Vec::new();
    if have_nvcc(test) {
        backends.push(Backend::Cuda);
    }
    if have_hip(test, &["gfx90a", "gfx1100"]) {
        backends.push(Backend::Hip);
    }
    for backend in backends {
        let built = build(dir.path(), FOREIGN, |k| {
            k.backend(backend).cuda_arch("sm_80").cuda_arch("sm_90").hip_arch("gfx90a").hip_arch("gfx1100")
        });
        let bindings = bindings(&built.unwrap());
        for symbol in [
            r#"("add_one", "_Z7add_onePfm")"#,
            r#"("solver::add_one", "_ZN6solver7add_oneEPfm")"#,
            r#"("twice(float*, size_t)", "_Z5twicePfm")"#,
            r#"("twice(int*, size_t)", "_Z5twicePim")"#,
            r#"("twice(const int* __restrict__, int64_t*, unsigned)", "_Z5twicePKiPlj")"#,
            r#"("solver::hidden", "_ZN6solver"#,
        ] {
            assert!(bindings.contains(symbol), "{symbol}: {bindings}");
        }
    }
}

/// Passes instances of struct templates by value. Every compiler's assertions compare them with what we read.
#[test]
fn instances_of_struct_templates_compile_for_every_backend() {
    const TEXT: &str = "
namespace m {
enum Kind { Small = 3 };
template <class T, int N = 2> struct Vec {
    typedef T value;
    value x[N];
    static const int n = N;
    __host__ __device__ T at(int i) const { return x[i]; }
};
template <class T, Kind K> struct Pair { Vec<T> first; const T* end; Vec<char, K> last; T** all; };
}
__global__ void plain(m::Vec<float, 2 + 1> v, m::Pair<double, m::Small> p, m::Vec<int>* memory, m::Vec<int*> w) {
    memory->x[0] = (int)v.at(2) + (int)p.first.at(1) + p.last.x[2] + *w.x[0];
}
template <class T> __global__ void generic(m::Vec<T, 4> v, T* y) { y[0] = v.at(3); }
template __global__ void generic<float>(m::Vec<float, 4> v, float* y);
";
    for backend in compilable("instances_of_struct_templates_compile_for_every_backend") {
        let dir = tempfile::tempdir().unwrap();
        let bindings = bindings(&build(dir.path(), TEXT, on(backend)).unwrap());
        for part in ["struct Pair_double_m_Kind_3 {", "struct Vec_float_4 {", "pub x: [f32; 4]"] {
            assert!(bindings.contains(part), "{part}: {bindings}");
        }
    }
}

/// HIP's older macro for dynamic shared memory, a type with a larger alignment than CUDA's parameters have,
/// and a host function with the kernel's name that launches the kernel.
#[test]
fn files_of_hip_compile_for_every_backend() {
    const TEXT: &str = "
#include <hip/hip_runtime.h>
typedef struct alignas(64) { double s[8]; } double8;
__global__ void k(float* x, const double8 by) {
    HIP_DYNAMIC_SHARED(float, cache);
    cache[threadIdx.x] = (float)by.s[7];
    __syncthreads();
    x[threadIdx.x] = cache[31 - threadIdx.x];
}
void k(float* x, int n) { double8 by = {}; hipLaunchKernelGGL(k, 1, n, 128, 0, x, by); k<<<1, n, 128>>>(x, by); }
";
    for backend in compilable("files_of_hip_compile_for_every_backend") {
        let dir = tempfile::tempdir().unwrap();
        build(dir.path(), TEXT, |k| on(backend)(k).cuda_arch("sm_90")).unwrap();
    }
}

/// Kernels must compile even if they use none of our headers: a plain kernel, a kernel that is defined by its path, and templates
/// over enumerators.
#[test]
fn kernels_of_other_forms_compile_for_every_backend() {
    const TEXT: &str = "
extern \"C\" __global__ void plain(const float* a, const float* b, float* c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = sqrtf(a[i]) + b[i];
}
namespace shapes { struct Point { float x, y; }; __global__ void move_by(Point* p, Point by); }
__global__ void shapes::move_by(Point* p, Point by) {
    __shared__ float sum[32];
    sum[threadIdx.x] = by.x;
    __syncthreads();
    p[threadIdx.x].x += sum[31 - threadIdx.x];
}
enum Op { Add, Multiply = 5 };
namespace modes { enum class Mode : unsigned char { Shared, Global = 200 }; }
typedef int Number;
template <class T, Op op, modes::Mode mode = modes::Mode::Global> __global__ void apply(T* x, T by) {
    x[threadIdx.x] = op == Add ? x[threadIdx.x] + by : x[threadIdx.x] * by;
    if (mode == modes::Mode::Global) x[threadIdx.x] += 1;
}
template __global__ void apply<int, Add, modes::Mode::Shared>(int* x, int by);
template <Number N, bool B> __global__ void fill(int* x) { x[threadIdx.x] = B ? N : -N; }
#define REAL double // what host code launches
void host(float* x, int* y) { apply<float, Multiply><<<1, 32>>>(x, 2.0f); fill<3, true><<<1, 32>>>(y); }
void host(REAL* x) { apply<REAL, Add><<<1, 32>>>(x, 2.0); }
";
    for backend in compilable("kernels_of_other_forms_compile_for_every_backend") {
        let dir = tempfile::tempdir().unwrap();
        let built = build(dir.path(), TEXT, on(backend)).unwrap();
        let file = &built.files[0];
        let names: Vec<_> = file.kernels.iter().map(|k| k.kernel.clone()).collect();
        for name in [
            "plain",
            "move_by",
            "apply<int, (Op)0, (modes::Mode)0>",
            "apply<float, (Op)5, (modes::Mode)200>",
            "apply<double, (Op)0, (modes::Mode)200>",
            "fill<3, true>",
        ] {
            assert!(names.iter().any(|known| known == name), "{backend}: {name} of {names:?}");
        }
        let bindings = bindings(&built);
        for part in ["const op: i32, const mode: u8", "HasApply<5, 200>] for f32", "Multiply: Self = Self(5"]
        {
            assert!(bindings.contains(part), "{part}: {bindings}");
        }
        let forms = file.kernels.iter().filter(|k| k.kernel == "move_by").filter_map(|k| k.threads.as_ref());
        assert!(forms.clone().all(|form| matches!(form, Threads::Loops)), "{:?}", forms.collect::<Vec<_>>());
    }
}

/// You may find a host function with the kernel's name in many programs, because it launches the kernel.
#[test]
fn a_kernel_may_share_its_name_with_other_functions() {
    const TEXT: &str = "
#include <stddef.h>
struct P { int at; };
void copy(float* x, size_t n, int blocks);
__global__ void copy(float* x, const P* p) { x[p->at] = 1; }
void copy(float* x, size_t n, int blocks) { }
inline int& twice(int& x, int y) { return x += y; }
__device__ float* twice(float* x, float* y) { return x < y ? x : y; }
extern \"C\" __global__ void twice(float* x) { *twice(x, x + 1) = 2; }
template <class T> void scale(T* x, T by, size_t n) { }
template <class T, int N> __global__ void scale(const T* x, T* __restrict__ y, T by) { y[0] = x[N - 1] * by; }
template <class T> __global__ void once(T* x) { x[0] = 1; }
template <class T> T once(T x, int n) { return x; }
template __global__ void once<double>(double* x);
namespace solver {
void step(int* x, int blocks) { }
__global__ void step(int* x) { x[0] = 1; }
}
template <class A, class B> void any(A a, B b) { }
__global__ void any(int* x, int y) { x[0] = y; }
";
    for backend in compilable("a_kernel_may_share_its_name_with_other_functions") {
        let dir = tempfile::tempdir().unwrap();
        let built = build(dir.path(), TEXT, |k| {
            on(backend)(k).instantiate("scale<float, 4>").instantiate("scale<int, 2>")
        });
        let names: Vec<_> = built.unwrap().files[0].kernels.iter().map(|k| k.kernel.clone()).collect();
        for name in ["copy", "twice", "scale<float, 4>", "scale<int, 2>", "once<double>", "step", "any"] {
            assert!(names.iter().any(|known| known == name), "{backend}: {name} of {names:?}");
        }
    }
}

#[test]
fn variables_are_found_by_the_names_that_compilers_give_them() {
    let test = "variables_are_found_by_the_names_that_compilers_give_them";
    let dir = tempfile::tempdir().unwrap();
    let text = "__constant__ float plain[3];\nnamespace ns { __device__ int within; static __device__ int internal = 3; }\n\
                namespace { __constant__ int own; }\nextern \"C\" { __device__ unsigned c; }\n\
                extern \"C\" __global__ void k(int* y) { y[0] = plain[0] + ns::within + ns::internal++ + own + c; }\n";
    let bindings =
        |backend| bindings(&build(dir.path(), text, |k| on(backend)(k).cuda_arch("sm_90")).unwrap());
    let on_cpu = bindings(Backend::Cpu);
    assert!(on_cpu.contains(r#"kernels: &[("ns::within", "&ns::within")]"#), "{on_cpu}");
    if have_nvcc(test) {
        let on_cuda = bindings(Backend::Cuda);
        for symbol in [r#"("ns::within", "_ZN2ns6withinE")"#, r#"("ns::internal", "_ZN"#, r#"("own", "_ZN"#] {
            assert!(on_cuda.contains(symbol), "{symbol}: {on_cuda}");
        }
    }
    if have_hip(test, &["gfx90a"]) {
        let on_hip = bindings(Backend::Hip);
        assert!(on_hip.contains(r#"symbols: &[("ns::within", "_ZN2ns6withinE")]"#), "{on_hip}");
    }
}

/// The parser cannot find these variables, but every compiler's image shows them.
#[test]
fn variables_that_only_the_images_show_are_told() {
    let text = include_str!("../../../tests/kernels/unlisted.cu");
    for backend in compilable("variables_that_only_the_images_show_are_told") {
        let dir = tempfile::tempdir().unwrap();
        for again in [false, true] {
            let built = build(dir.path(), text, on(backend)).unwrap();
            let bindings = bindings(&built);
            let list = bindings.split("unlisted: &[").nth(1).and_then(|rest| rest.split(']').next()).unwrap();
            let mut names: Vec<_> = list.split(", ").map(|name| name.trim_matches('"')).collect();
            names.sort_unstable();
            let want = [
                "by_a_macro",
                "in_a_template<unsigned int>",
                "in_an_if",
                "plain",
                "type_first",
                "variable::in_a_function",
                "with_a_macro",
            ];
            assert_eq!(names, want, "{backend}, again: {again}");
        }
    }
}

/// Compilers may put data next to kernels. It must not count as variables that kernels could write.
#[test]
fn files_without_variables_have_none_in_their_images() {
    let text = "#include <gpustream/kernel.cuh>
#include <cassert>
struct Holder { static constexpr float table[3] = {1, 2, 3}; };
namespace tables { __device__ const float squares[5] = {0, 1, 4, 9, 16}; static __device__ constexpr int odd[3] = {1, 3, 5}; }
#if defined(__CUDACC__) || defined(__HIP__)
__constant__ float factors[4];
static __constant__ const float fixed[4] = {1, 2, 3, 4};
#endif
template <class T> __device__ T weight(int i) { static const T weights[5] = {5, 4, 3, 2, 1}; return weights[i]; }
/// requires: n <= len(y)
/// covers: n
__global__ void k(float* y, size_t n, long spins) {
    __shared__ float tile[64];
    static __shared__ int count;
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    tile[threadIdx.x % 64] = y[0];
    __syncthreads();
    GS_FOR_EACH(i, n) {
        y[i] = sinf(y[i]) + tables::squares[i % 5] + tables::odd[i % 3] + factors[i % 4] + fixed[i % 4] + weight<float>(i % 5) + tile[i % 64];
        assert(spins < 5);
        printf(\"%d %s\\n\", count, __PRETTY_FUNCTION__);
    }
}
";
    for backend in compilable("files_without_variables_have_none_in_their_images") {
        let dir = tempfile::tempdir().unwrap();
        let bindings = bindings(&build(dir.path(), text, on(backend)).unwrap());
        assert!(bindings.contains("unlisted: &[]"), "{backend}: {bindings}");
    }
}

#[test]
fn variables_of_other_types_than_are_written_are_caught() {
    let dir = tempfile::tempdir().unwrap();
    let text = "#include \"wide.h\"\n__constant__ float x[3];\n#undef float\n__global__ void k(int y) {}\n";
    let headers = dir.path().join("headers");
    fs::create_dir_all(&headers).unwrap();
    fs::write(headers.join("wide.h"), "#define float double\n").unwrap();
    let built = build(dir.path(), text, |k| cpu(k).include(headers));
    let error = built.unwrap_err().to_string();
    assert!(error.contains("x: the compiler sees another type of variable"), "{error}");
}

/// Builds a file with PTX and another one. `files_for_some_backends_limit_the_environment` sets the
/// environment.
#[test]
#[ignore = "a part of another test"]
fn files_for_some_backends() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let ptx = "__global__ void k(unsigned* x) { asm(\"mov.u32 %0, %%smid;\" : \"=r\"(*x)); }\n";
    let kernels = Kernels::new()
        .file_for(file("ptx.cu", ptx), [Backend::Cuda])
        .file_for(file("plain.cu", "__global__ void k(int x) {}\n"), [Backend::Cpu, Backend::Cuda]);
    let built = kernels.cpu_level("aarch64").out_dir(dir.path().join("out")).build().unwrap();
    let images: Vec<_> = built.files.iter().map(|file| file.images.len()).collect();
    println!("images: {images:?}");
    let bindings = bindings(&built);
    assert!(
        bindings.contains(r#"["cuda"].contains(&device.info().backend).then_some(&SOURCE)"#),
        "{bindings}"
    );
}

/// Only the compiler sees this macro defined, so it cannot reach the file's `#error`.
#[test]
fn an_error_that_only_the_reader_would_see_is_no_error() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("inc")).unwrap();
    fs::write(dir.path().join("inc/vendor.h"), "#define VENDOR_NAME \"x\"\n").unwrap();
    let text = "#include VENDOR\n#ifndef VENDOR_NAME\n#error \"no vendor\"\n#endif\n\
                __global__ void k(int* x) { *x = 1; }\n";
    let include = dir.path().join("inc");
    let configure = |k: Kernels| k.include(&include).define("VENDOR", "<vendor.h>");
    build(dir.path(), text, |k| configure(cpu(k))).unwrap();
    let error = build(dir.path(), text, |k| cpu(k).define("VENDOR", "<stddef.h>")).unwrap_err().to_string();
    assert!(error.contains("no vendor") && !error.contains("was read as if"), "the compiler's own: {error}");
    if have_nvcc("an_error_that_only_the_reader_would_see_is_no_error") {
        build(dir.path(), text, |k| configure(on(Backend::Cuda)(k))).unwrap();
    }
}

/// Pairs, tuples, complex numbers and operations of Thrust in kernels, and its containers in declarations.
const THRUST: &str = r"
#include <thrust/complex.h>
#include <thrust/device_ptr.h>
#include <thrust/device_vector.h>
#include <thrust/functional.h>
#include <thrust/host_vector.h>
#include <thrust/iterator/zip_iterator.h>
#include <thrust/pair.h>
#include <thrust/swap.h>

void fill(thrust::device_vector<float>& values, thrust::device_ptr<float> first, const thrust::host_vector<float>& from);

__device__ thrust::tuple<float, int> with_place(float x, int i) { return thrust::make_tuple(x, i); }

__global__ void k(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    thrust::complex<float> z(x[i], 1.0f);
    z = z * thrust::conj(z) + thrust::abs(z);
    thrust::pair<float, int> best = thrust::make_pair(z.real(), i);
    float least = thrust::minimum<float>()(best.first, 3.0f), most = thrust::maximum<float>()(best.first, 3.0f);
    thrust::swap(least, most);
    y[i] = thrust::plus<float>()(least, most) + thrust::get<0>(with_place(x[i], i));
}
";

#[test]
fn files_that_name_thrust_compile() {
    let dir = tempfile::tempdir().unwrap();
    build(dir.path(), THRUST, cpu).unwrap();
    if have_nvcc("files_that_name_thrust_compile") {
        build(dir.path(), THRUST, on(Backend::Cuda)).unwrap();
    }
}

/// A file of another program, with numbers of 16 and 8 bits by NVIDIA's names.
const SHORT_FLOATS: &str = "
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda/std/limits>
__global__ void k(const __nv_bfloat16* x, const nv_bfloat162* pairs, const half* h, const half2* h2, __nv_fp8_e4m3* bytes,
                  float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    __nv_bfloat16 a = x[i], b = __float2bfloat16(2.0f), c = 1.0;
    a = __hfma(a, b, c) + hexp(a) / hsqrt(b);
    a += __hmax_nan(a, __habs(b));
    if (__hisnan(a) || a > b) a = -a;
    __nv_bfloat162 pair = __hfma2(pairs[i], pairs[i], __bfloat162bfloat162(a));
    float2 both = __bfloat1622float2(__hadd2(pair, h2exp(pair)));
    half least = __hmax_nan(h[i], __hmin(h[i], __habs(h[i])));
    half2 leasts = __hmin2(h2[i], __habs2(h2[i]));
    bytes[i] = __nv_fp8_e4m3(__bfloat162float(a));
    y[i] = both.x + both.y + (float)least + __low2float(leasts) + float(bytes[i]);
    y[i] += __half2float(__nv_cvt_fp8_to_halfraw(bytes[i].__x, __NV_E4M3));
    y[i] = min(y[i], cuda::std::numeric_limits<float>::max());
}
";

#[test]
fn short_floats_of_nvidias_headers_compile_for_every_backend() {
    for backend in compilable("short_floats_of_nvidias_headers_compile_for_every_backend") {
        let dir = tempfile::tempdir().unwrap();
        let targets = |k: Kernels| on(backend)(k).hip_arch("gfx942").hip_arch("gfx1100");
        build(dir.path(), SHORT_FLOATS, targets).unwrap();
    }
}

/// A file may have functions that NVIDIA's headers lack for some GPUs, and HIP has for all.
#[test]
fn files_may_define_what_a_vendor_has() {
    const TEXT: &str = "
#if __CUDA_ARCH__ < 600
__device__ double atomicAdd(double* address, double value) {
    unsigned long long old = __double_as_longlong(*address), assumed;
    do {
        assumed = old;
        const double sum = value + __longlong_as_double(assumed);
        old = atomicCAS((unsigned long long*)address, assumed, (unsigned long long)__double_as_longlong(sum));
    } while (assumed != old);
    return __longlong_as_double(old);
}
#endif
__global__ void k(double* x, float* y, unsigned* z, unsigned long long* w) {
    atomicAdd(x, 1.0);
    atomicAdd(y, 1.0f);
    atomicAdd(z, 1);
    atomicAdd(w, 1);
    atomicMin((long long*)w, atomicMax((long long*)w, 1ll));
    if (*x != *x) __trap();
}
";
    for backend in compilable("files_may_define_what_a_vendor_has") {
        let dir = tempfile::tempdir().unwrap();
        build(dir.path(), TEXT, on(backend)).unwrap();
    }
}

/// The build script may say what a comment would, for a file that you cannot edit.
#[test]
fn contracts_in_the_build_script_are_read_like_comments() {
    let text = "namespace layers {\n__global__ void add(float* x, const float* bias, float* out, unsigned n) {\n    \
                out[threadIdx.x] = x[threadIdx.x] + (bias ? bias[n] : 0.0f);\n}\n}\n";
    let with = |lines: &str| {
        let dir = tempfile::tempdir().unwrap();
        build(dir.path(), text, |k| cpu(k).contract("layers::add", lines))
            .map(|built| bindings(&built))
            .map_err(|error| error.to_string())
    };
    let found = with("reads: x\noptional: bias\nstacks: it has none").unwrap();
    assert!(
        found.contains("x: &(impl __gpustream::AsView<f32>")
            && found.contains("bias: ::core::option::Option<&"),
        "{found}"
    );
    let safe =
        with("requires: n < len(bias), 32 <= len(x), 32 <= len(out), block.x <= 32, grid.x == 1").unwrap();
    assert!(safe.contains("pub fn add(") && found.contains("pub unsafe fn add("), "{safe}");
    let error = with("optional: biases").unwrap_err();
    assert!(error.contains("build.rs:1:11") && error.contains("no parameter `biases`"), "{error}");
    assert!(with("bias").unwrap_err().contains("this is no contract for `add`"));
    let dir = tempfile::tempdir().unwrap();
    let error = build(dir.path(), text, |k| cpu(k).contract("sub", "reads: x")).unwrap_err().to_string();
    assert!(error.contains("no kernel for `.contract(\"sub\", …)`"), "{error}");
}

/// If one backend's compiler cannot find a header, the advice must name the other backends.
#[test]
fn a_missing_header_says_how_to_leave_the_backend_out() {
    let dir = tempfile::tempdir().unwrap();
    let text = "#include <vendor_only.h>\n__global__ void k(int* x) { *x = 1; }\n";
    for backend in compilable("a_missing_header_says_how_to_leave_the_backend_out") {
        let (others, variable) = match backend {
            Backend::Cpu => ("Backend::Cuda, Backend::Hip", "GPUSTREAM_BACKENDS=cuda,hip"),
            Backend::Cuda => ("Backend::Cpu, Backend::Hip", "GPUSTREAM_BACKENDS=cpu,hip"),
            Backend::Hip => ("Backend::Cpu, Backend::Cuda", "GPUSTREAM_BACKENDS=cpu,cuda"),
        };
        let error = build(dir.path(), text, on(backend)).unwrap_err().to_string();
        for part in ["`vendor_only.h`", ".include(FOLDER)", ".file_for(", others, variable] {
            assert!(error.contains(part), "{part}: {error}");
        }
    }
}

#[test]
fn files_for_some_backends_limit_the_environment() {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "--ignored", "--nocapture", "files_for_some_backends"]);
    // No file is for HIP, so we must not look for its compiler.
    let command = command
        .env("GPUSTREAM_BACKENDS", "cpu,hip")
        .env("GPUSTREAM_CPU_LEVELS", CPU_LEVEL)
        .env("HIPCC", "/none");
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let all = text(&output.stdout) + &text(&output.stderr);
    assert!(output.status.success(), "{all}");
    for expected in [
        "images: [0, 2]",
        "ptx.cu: no image, because the build script names its backends (GPUSTREAM_BACKENDS also asks for cpu, hip)",
        "plain.cu: images only for cpu, because the build script names its backends (GPUSTREAM_BACKENDS also asks for hip)",
    ] {
        assert!(all.contains(expected), "{expected}: {all}");
    }
}

/// The part of the next test that needs its environment.
#[test]
#[ignore = "a part of another test"]
fn flags_for_compiling() {
    let dir = tempfile::tempdir().unwrap();
    let built = build(dir.path(), "__global__ void k(float* x) { x[0] += 1; }\n", cpu).unwrap();
    for image in &built.files[0].images {
        let image = fs::read(image).unwrap();
        let has = |text: &str| image.windows(text.len()).any(|bytes| bytes == text.as_bytes());
        println!("adds code that sets the processor: {}", has("set_fast_math"));
        println!("wants a sanitizer's library: {}", has("asan"));
    }
}

#[test]
fn flags_for_compiling_change_no_program() {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "--ignored", "--nocapture", "flags_for_compiling"]);
    command.env("CXXFLAGS", "-ffast-math -fsanitize=address");
    let output = command.output().unwrap();
    let all = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{all}");
    assert!(all.contains("processor: false") && !all.contains("processor: true"), "{all}");
    assert!(all.contains("library: false") && !all.contains("library: true"), "{all}");
}

#[test]
fn instances_that_no_template_has_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    let text = "/// types: T = float\ntemplate <class T> __global__ void axpy(T* x) { x[0] = 1; }\n";
    for wrong in ["axpy", "axpy<int", "other<int>", ""] {
        let error = build(dir.path(), text, |k| cpu(k).instantiate(wrong)).unwrap_err().to_string();
        assert!(error.contains(&format!("no kernel template for `.instantiate({wrong:?})`")), "{error}");
    }
    build(dir.path(), text, |k| cpu(k).instantiate(" axpy<int> ")).unwrap();
}

/// Only CUDA can build such a kernel, so the other backends' errors must say that.
#[test]
fn kernels_that_launch_kernels_are_built_for_cuda() {
    let dir = tempfile::tempdir().unwrap();
    let text = "__global__ void child(int* x) { x[0] = 1; }\n__global__ void parent(int* x) { child<<<1, 1>>>(x); }\n";
    let error = build(dir.path(), text, cpu).unwrap_err().to_string();
    assert!(error.contains("a kernel that launches kernels only works with CUDA"), "{error}");
    if have_nvcc("kernels_that_launch_kernels_are_built_for_cuda") {
        let cuda = |k: Kernels| k.backend(Backend::Cuda).cuda_arch("sm_90").flag(Backend::Cuda, "-rdc=true");
        build(dir.path(), text, cuda).unwrap();
    }
}

/// In each of these files a compiler sees something else than what you read there. The last column is the
/// parameter or member that the error must name.
const LIES: [(&str, &str, &str); 17] = [
    (
        "a value",
        "#define int float\nextern \"C\" __global__ void k(float* p, int n) { p[0] = n; }\n#undef int\n",
        "parameter n",
    ),
    (
        "a value, to the end",
        "#define int float\nextern \"C\" __global__ void k(float* p, int n) { p[0] = n; }\n",
        "parameter n",
    ),
    (
        "an element",
        "#define float int\nextern \"C\" __global__ void k(float* p) { p[0] = 1; }\n#undef float\n",
        "parameter p",
    ),
    ("const", "#define const\nextern \"C\" __global__ void k(const int* p) { p[0] = 1; }\n", "parameter p"),
    (
        "volatile",
        "#define volatile\nextern \"C\" __global__ void k(volatile int* p) { p[0] = 1; }\n",
        "parameter p",
    ),
    (
        "a standard name",
        "#define size_t unsigned\nextern \"C\" __global__ void k(size_t n) {}\n",
        "parameter n",
    ),
    (
        "a vector",
        "#define float2 int2\nextern \"C\" __global__ void k(float2* p) { p[0] = p[1]; }\n",
        "parameter p",
    ),
    (
        "a 16-bit type",
        "#include <gpustream/kernel.cuh>\n#define half bfloat16\nextern \"C\" __global__ void k(gs::half* p) { p[0] = p[1]; }\n",
        "parameter p",
    ),
    (
        "a member",
        "#define unsigned float\nstruct S { unsigned a; };\n#undef unsigned\nextern \"C\" __global__ void k(S s) {}\n",
        "S::a: the compiler sees another type",
    ),
    (
        "a struct's alignment",
        "#pragma pack(push, 1)\nstruct S { double a; int b, c; };\n#pragma pack(pop)\n\
         extern \"C\" __global__ void k(S* s) { s->a = 1; }\n",
        "S: the compiler lays it out",
    ),
    (
        "padding",
        "#pragma pack(push, 1)\nstruct S { char a; double b; };\n#pragma pack(pop)\n\
         extern \"C\" __global__ void k(S* s) { s->b = 1; }\n",
        "S: the compiler lays it out",
    ),
    (
        "a byte",
        "#define char signed char\nextern \"C\" __global__ void k(char* p) { p[0] = 1; }\n#undef char\n",
        "parameter p",
    ),
    (
        "a pair",
        "#include <gpustream/kernel.cuh>\n#define half2 float2\nextern \"C\" __global__ void k(half2* p) { p[0] = p[1]; }\n",
        "parameter p",
    ),
    (
        "an address",
        "typedef int* address;\n#define address long\nextern \"C\" __global__ void k(address* p) { p[0] = p[1]; }\n",
        "parameter p",
    ),
    (
        "an array",
        "#define float double\nextern \"C\" __global__ void k(float p[][4]) { p[1][2] = 1; }\n#undef float\n",
        "parameter p",
    ),
    (
        "the checks themselves",
        "#define static_assert(...)\n#define int float\nextern \"C\" __global__ void k(int n) {}\n",
        "parameter n",
    ),
    (
        "the number",
        "#define MORE , int more\n#define n n MORE\nextern \"C\" __global__ void k(int n) {}\n",
        "number of parameters",
    ),
];

/// Types as existing files have them, with constant expressions, padding, and names from a header.
const TYPES: &str = r#"#include <time.h>
#include "mine.h"
enum Mode { OFF = -1, ON = N };
enum class Small : unsigned short { A = 65535 };
enum Truth : bool { NO, YES };
struct box { const int type; volatile float match[2]; int* const self; const short fixed[3]; Truth truth; };
typedef struct __align__(16) tag { char c; Inner inner[N - 1]; Mode mode; bool good; const float* next; void (*call)(int); } Outer;
union Both { double d; int i[3]; };
namespace a { namespace b { struct Deep { Small small; long2 wide; }; } }
extern "C" __global__ void k(Outer o, const Outer* const __restrict p, Both b, a::b::Deep d, Mode* modes, const bool* flags,
                             real** rows, const float* const* const_rows, const real table[][N], double (*cube)[2][3],
                             volatile char* text, clock_t* ticks, uchar3 colour, void* bytes, real, Vector<float>* unknown) {
    if (flags[0]) rows[0][1] = table[1][2] + (real)o.inner[0].values[1] + const_rows[0][0];
    ticks[0] = (clock_t)p->c + d.wide.y + colour.z + (clock_t)b.i[2];
    cube[1][1][2] = 1;
    text[0] = 'x';
    modes[0] = ON;
    ((char*)bytes)[0] = (char)unknown->x;
}
/// types: T = Outer, Both, Mode, bool, a::b::Deep, double2
template <class T> __global__ void any_of(T* to, T value) { *to = value; }
__global__ void over(Outer* x) {}
__global__ void over(Both* x, bool* y) {}
__global__ void keywords(box in, const box* impl, Truth use) {}
"#;

fn types_of_existing_files(configure: impl Fn(Kernels) -> Kernels) {
    let dir = tempfile::tempdir().unwrap();
    let header = "#pragma once\n#define N 4\n#ifdef SINGLE\n#define real float\n#else\n#define real double\n#endif\n\
                  struct Inner { short tag; double values[N / 2]; unsigned char end; };\n\
                  template <class T> struct Vector { T x; };\n";
    fs::write(dir.path().join("mine.h"), header).unwrap();
    let bindings = bindings(&build(dir.path(), TYPES, &configure).unwrap());
    for part in
        ["pub struct Outer", "padding_1: __gpustream::Padding<7>", "pub const ON: Self = Self(4_i128 as i32)"]
    {
        assert!(bindings.contains(part), "no `{part}` in {bindings}");
    }
    build(dir.path(), TYPES, |k| configure(k).define("SINGLE", None)).unwrap();
    // A macro that the parser does not know chooses another type.
    let flagged = |k| {
        [Backend::Cpu, Backend::Cuda, Backend::Hip]
            .into_iter()
            .fold(configure(k), |k, b| k.flag(b, "-DSINGLE"))
    };
    let error = build(dir.path(), TYPES, flagged).unwrap_err().to_string();
    assert!(error.contains("SINGLE is defined") && error.contains("Kernels::define"), "{error}");
}

#[test]
fn types_of_existing_files_compile_for_the_cpu() {
    types_of_existing_files(cpu);
}

#[test]
fn types_of_existing_files_compile_for_cuda() {
    if have_nvcc("types_of_existing_files_compile_for_cuda") {
        types_of_existing_files(on(Backend::Cuda));
        let text = "#include <cuda_bf16.h>\n#include <cuda_fp16.h>\nextern \"C\" __global__ void k(__half2 h, const __nv_bfloat162* b, \
                    cudaTextureObject_t t) {}\n";
        build(tempfile::tempdir().unwrap().path(), text, on(Backend::Cuda)).unwrap();
    }
}

#[test]
fn types_of_existing_files_compile_for_hip() {
    if have_hip("types_of_existing_files_compile_for_hip", &["gfx90a"]) {
        types_of_existing_files(on(Backend::Hip));
    }
}

fn are_caught(lies: &[(&str, &str, &str)], configure: impl Fn(Kernels) -> Kernels) {
    for (what, text, expected) in lies {
        let dir = tempfile::tempdir().unwrap();
        let Err(error) = build(dir.path(), text, &configure) else { panic!("{what}: accepted") };
        let error = error.to_string();
        assert!(error.contains(expected), "{what}: {error}");
        assert!(
            !expected.starts_with("parameter") || error.contains("k.cu"),
            "{what}: not at its line: {error}"
        );
    }
    // The macro changes the type for one compiler, and then for none.
    let told = |to: &str| {
        format!(
            "#{to}\n#define float double\n#endif\nextern \"C\" __global__ void k(int n, float* x) {{ x[n] = 1; }}\n"
        )
    };
    let dir = tempfile::tempdir().unwrap();
    let to = "if defined(__CUDACC__) || defined(__HIP__) || defined(GPUSTREAM_CPU)";
    let error = build(dir.path(), &told(to), &configure).unwrap_err().to_string();
    assert!(error.contains("parameter x") && error.contains("k.cu"), "{error}");
    build(dir.path(), &told("ifdef NOT_DEFINED"), &configure).unwrap();
    build(dir.path(), MIXED, &configure).unwrap();
}

#[test]
fn types_changed_behind_the_parsers_back_are_caught_on_the_cpu() {
    are_caught(&LIES, cpu);
}

#[test]
fn types_changed_behind_the_parsers_back_are_caught_by_nvcc() {
    if have_nvcc("types_changed_behind_the_parsers_back_are_caught_by_nvcc") {
        are_caught(&LIES, on(Backend::Cuda));
        // This name belongs to AMD. NVIDIA's compiler lets any file define it.
        let text =
            "typedef double hip_bfloat16;\nextern \"C\" __global__ void k(hip_bfloat16* p) { p[0] = 1; }\n";
        let dir = tempfile::tempdir().unwrap();
        let error = build(dir.path(), text, on(Backend::Cuda)).unwrap_err();
        assert!(error.to_string().contains("does not see a 16-bit type"), "{error}");
    }
}

#[test]
fn types_changed_behind_the_parsers_back_are_caught_by_hipcc() {
    if have_hip("types_changed_behind_the_parsers_back_are_caught_by_hipcc", &["gfx90a"]) {
        // We only take every third, because hipcc is slow.
        let lies: Vec<_> = LIES.into_iter().step_by(3).collect();
        are_caught(&lies, on(Backend::Hip));
    }
}

/// Run-time compilers get the assertions in the form that their own tests use. `BLESS=1` accepts the present
/// text.
#[test]
fn the_checks_travel_with_the_source() {
    let dir = tempfile::tempdir().unwrap();
    let text = "struct Pair { double first; int second[2]; };\nextern \"C\" __global__ void asserted(Pair p, const float* x, \
                volatile unsigned* y, unsigned long long n) {\n    if (n > 1) y[0] = (unsigned)(x[0] * p.first);\n}\n";
    let built = build(dir.path(), text, cpu).unwrap();
    let written = fs::read_to_string(built.out_dir.join("k.source/kernel.cu")).unwrap();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/asserted.txt");
    if std::env::var_os("BLESS").is_some() {
        fs::write(&golden, &written).unwrap();
    }
    assert_eq!(fs::read_to_string(&golden).unwrap(), written, "{}", golden.display());
    assert!(written.starts_with(text));
}

/// Folder names with characters that mean something to a shell or to C++. You may have such a folder, so we
/// must quote.
#[test]
fn kernels_compile_in_folders_of_any_name() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("it's \"a\" $HOME `pwd` ; b & (c) %d *");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("mine.cuh"), "#define TWO 2\n").unwrap();
    let text = "#include \"mine.cuh\"\nextern \"C\" __global__ void k(float* x) { x[0] = TWO; }\n";
    for backend in compilable("kernels_compile_in_folders_of_any_name") {
        build(&folder, text, on(backend)).unwrap();
    }
    let both = dir.path().join("a\"b>c");
    fs::create_dir(&both).unwrap();
    let error = build(&both, "extern \"C\" __global__ void k() {}\n", cpu).unwrap_err().to_string();
    assert!(error.contains("can hold a quote or `>`"), "{error}");
}

#[test]
fn cuda_reports_every_target_and_packs_one_fat_binary() {
    if !have_nvcc("cuda_reports_every_target_and_packs_one_fat_binary") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let built = build(dir.path(), MIXED, |k| k.backend(Backend::Cuda)).unwrap();
    assert_eq!(built.files[0].kernels.len(), 6);
    for target in ["sm_80", "sm_90"] {
        let shares = kernel(&built, "shares", target);
        assert_eq!((shares.shared, shares.spills, shares.max_threads), (Some(512), Some(0), Some(128)));
        assert!(shares.registers > Some(0) && shares.code_size > Some(0));
        assert!(kernel(&built, "mixed", target).occupancy.is_some_and(|o| o.percent > 0));
    }
    let image = fs::read(built.out_dir.join("k.fatbin")).unwrap();
    assert_eq!(image[..4], 0xba55_ed50_u32.to_le_bytes(), "not a fat binary");
    let bindings = bindings(&built);
    assert!(
        bindings.contains(r#"backend: "cuda", targets: &["sm_80", "sm_90", "compute_90"]"#),
        "{bindings}"
    );

    let again = build(dir.path(), MIXED, |k| k.backend(Backend::Cuda)).unwrap();
    let shares = kernel(&again, "shares", "sm_90");
    assert_eq!((shares.compile_time, shares.shared), (None, Some(512)), "read back without compiling");
}

/// `wgmma` and tensor maps exist for `sm_90a` only, and an image for it runs nowhere else. So a file asks for one, and keeps
/// the others.
#[test]
fn a_file_can_ask_for_sm_90a_beside_sm_90() {
    if !have_nvcc("a_file_can_ask_for_sm_90a_beside_sm_90") {
        return;
    }
    let text = "#define GS_SM_90A 1\nextern \"C\" __global__ void k(float* x) {\n\
        #if defined(__CUDA_ARCH_FEAT_SM90_ALL)\n    asm volatile(\"wgmma.fence.sync.aligned;\");\n    for (int i = 1; i < 64; ++i) x[3 * i] = i;\n#endif\n    x[0] = 1;\n}\n";
    let dir = tempfile::tempdir().unwrap();
    let built = build(dir.path(), text, |k| k.backend(Backend::Cuda)).unwrap();
    let targets = r#"targets: &["sm_80", "sm_90", "sm_90a", "compute_90"]"#;
    assert!(bindings(&built).contains(targets), "{}", bindings(&built));
    assert!(kernel(&built, "k", "sm_90a").code_size > kernel(&built, "k", "sm_90").code_size);

    let plain = tempfile::tempdir().unwrap();
    let built = build(plain.path(), text, |k| k.backend(Backend::Cuda).cuda_arch("sm_80")).unwrap();
    assert!(
        bindings(&built).contains(r#"targets: &["sm_80", "compute_80"]"#),
        "there is no sm_90 to be beside"
    );
}

#[test]
fn hip_reports_every_target_and_packs_one_bundle() {
    let targets = ["gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201"];
    if !have_hip("hip_reports_every_target_and_packs_one_bundle", &targets) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let built = build(dir.path(), MIXED, |k| k.backend(Backend::Hip)).unwrap();
    assert_eq!(built.files[0].kernels.len(), 15);
    for target in targets {
        let shares = kernel(&built, "shares", target);
        let wave = if target.starts_with("gfx9") { 64 } else { 32 };
        assert_eq!((shares.wave_size, shares.shared, shares.spills), (Some(wave), Some(512), Some(0)));
        assert_eq!(shares.max_threads, Some(128));
        assert!(
            shares.registers > Some(0) && shares.scalar_registers > Some(0) && shares.code_size > Some(0)
        );
    }
    let bundle = fs::read(built.out_dir.join("k.hipfb")).unwrap();
    let entries = bundle_entries(&bundle);
    assert_eq!(entries[0].0, "host-x86_64-unknown-linux--");
    for (target, (name, object)) in targets.iter().zip(&entries[1..]) {
        assert_eq!(name, &format!("hipv4-amdgcn-amd-amdhsa--{target}"));
        assert_eq!(&object[..4], b"\x7fELF");
        assert_eq!(*object, fs::read(built.out_dir.join(format!("k.{target}.co"))).unwrap());
    }
}

/// Returns names and contents, reading the bundle as the HIP runtime does.
fn bundle_entries(bundle: &[u8]) -> Vec<(String, &[u8])> {
    let number = |at: usize| u64::from_le_bytes(bundle[at..at + 8].try_into().unwrap()) as usize;
    assert_eq!(&bundle[..24], b"__CLANG_OFFLOAD_BUNDLE__");
    let mut at = 32;
    let mut entries = Vec::new();
    for _ in 0..number(24) {
        let (offset, size, length) = (number(at), number(at + 8), number(at + 16));
        assert_eq!(offset % 4096, 0);
        let name = String::from_utf8(bundle[at + 24..at + 24 + length].to_vec()).unwrap();
        entries.push((name, &bundle[offset..offset + size]));
        at += 24 + length;
    }
    entries
}

#[test]
fn only_what_changed_is_compiled_again() {
    let dir = tempfile::tempdir().unwrap();
    let header = dir.path().join("mine.cuh");
    fs::write(&header, "__device__ inline float two() { return 2; }\n").unwrap();
    let text = "#include \"mine.cuh\"\nextern \"C\" __global__ void k(float* x) { x[0] = two(); }\n";
    let compiled = |built: Result<Built, Error>| built.unwrap().files[0].kernels[0].compile_time.is_some();
    assert!(compiled(build(dir.path(), text, cpu)), "the first time");
    assert!(!compiled(build(dir.path(), text, cpu)), "nothing changed");
    assert!(compiled(build(dir.path(), text, |k| cpu(k).rebuild(true))), "asked for");
    fs::write(&header, "__device__ inline float two() { return 3; }\n").unwrap();
    assert!(compiled(build(dir.path(), text, cpu)), "a header changed");
    assert!(compiled(build(dir.path(), text, |k| cpu(k).define("A", "1"))), "an option changed");
    fs::remove_file(dir.path().join(format!("out/k.{CPU_LEVEL}.so"))).unwrap();
    assert!(compiled(build(dir.path(), text, |k| cpu(k).define("A", "1"))), "the image is gone");
}

/// Dependencies that only the compiler knows and that a search of the text would miss.
#[test]
fn what_a_compiler_read_is_compiled_again() {
    let dir = tempfile::tempdir().unwrap();
    let at = |path: &str| dir.path().join(path);
    fs::create_dir(at("flagged")).unwrap();
    let text = "#define NAME \"mine.cuh\"\n#if defined(__CUDA_ARCH__) || !defined(__NVCC__)\n\
        #include NAME\n#else\n#define TWO 2\n#endif\n#if __has_include(<added.cuh>)\n#include <added.cuh>\n#else\n#define ADDED 0\n#endif\n\
        extern \"C\" __global__ void k(float* x) { x[0] = TWO + ADDED; }\n";
    for backend in compilable("what_a_compiler_read_is_compiled_again") {
        let _ = fs::remove_file(at("flagged/added.cuh"));
        fs::write(at("mine.cuh"), "#define TWO 2\n").unwrap();
        let compiled = || {
            let flag = format!("-I{}", at("flagged").display());
            let built = build(dir.path(), text, |k| on(backend)(k).flag(backend, flag)).unwrap();
            built.files[0].kernels[0].compile_time.is_some()
        };
        assert!(compiled(), "{backend}: the first time");
        assert!(!compiled(), "{backend}: nothing changed");
        fs::write(at("mine.cuh"), "#define TWO 2.0\n").unwrap();
        assert!(compiled(), "{backend}: the header behind a macro changed");
        fs::write(at("flagged/added.cuh"), "#define ADDED 1\n").unwrap();
        assert!(compiled(), "{backend}: a header appeared");
        fs::write(at("flagged/added.cuh"), "#define ADDED 2\n").unwrap();
        assert!(compiled(), "{backend}: that header changed");
        assert!(!compiled(), "{backend}: nothing changed");
    }
}

#[test]
fn folders_that_options_name_count_from_the_package_for_every_compiler() {
    let dir = tempfile::tempdir().unwrap();
    let text =
        "#if !__has_include(<saxpy.cu>)\n#error no folder\n#endif\nextern \"C\" __global__ void k() {}\n";
    for backend in compilable("folders_that_options_name_count_from_the_package_for_every_compiler") {
        build(dir.path(), text, |k| on(backend)(k).flag(backend, "-Itests/golden")).unwrap();
    }
}

/// The type that musl gives to the function behind `assert`.
#[test]
fn assertions_compile_with_the_headers_of_each_c_library() {
    let dir = tempfile::tempdir().unwrap();
    let header = "#define assert(x) ((void)((x) || (__assert_fail(#x, __FILE__, __LINE__, __func__), 0)))\n\
        extern \"C\" [[noreturn]] void __assert_fail(const char*, const char*, int, const char*);\n";
    fs::write(dir.path().join("assert.h"), header).unwrap();
    let text =
        "#include <assert.h>\nextern \"C\" __global__ void k(float* x) { assert(x[0] > 0); x[0] = 1; }\n";
    build(dir.path(), text, |k| cpu(k).include(dir.path())).unwrap();
}

#[test]
fn all_files_are_parsed_before_any_is_compiled() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (dir.path().join("a.cu"), dir.path().join("b.cu"));
    fs::write(&first, "extern \"C\" __global__ void k(float& x) {}\n").unwrap();
    fs::write(&second, "__global__ void k(float* x, ...) {}\n").unwrap();
    let missing = dir.path().join("c.cu");
    let kernels = Kernels::new().files([&first, &second, &missing]).out_dir(dir.path().join("out"));
    let error = cpu(kernels).build().unwrap_err();
    let paths: Vec<_> = error.diagnostics().iter().map(|d| d.path.clone()).collect();
    assert_eq!(paths, [first, second]);
    assert!(error.to_string().contains("cannot read kernel file"), "{error}");
}

#[test]
fn the_source_travels_with_its_headers_but_not_the_cpus() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("inc")).unwrap();
    fs::write(dir.path().join("inc/mine.cuh"), "#define MINE 1\n").unwrap();
    let text = "#include <gpustream/kernel.cuh>\n#include <mine.cuh>\nextern \"C\" __global__ void k() {}\n";
    let include = dir.path().join("inc");
    let built = build(dir.path(), text, |k| cpu(k).include(include).define("DEPTH", "3")).unwrap();
    let bindings = bindings(&built);
    assert!(bindings.contains("(\"mine.cuh\", include_str!(\"k.source/"), "{bindings}");
    assert!(bindings.contains("(\"gpustream/kernel.cuh\", include_str!("), "{bindings}");
    assert!(!bindings.contains("gpustream/cpu/"), "{bindings}");
    assert!(bindings.contains("options: &[\"-DDEPTH=3\"]"), "{bindings}");
}

/// Run-time compilers only look at the names of headers.
#[test]
fn headers_of_one_name_travel_apart() {
    let dir = tempfile::tempdir().unwrap();
    let at = |path: &str| dir.path().join(path);
    for folder in ["a", "b", "inc"] {
        fs::create_dir(at(folder)).unwrap();
    }
    for (path, text) in [
        (
            "a/first.cuh",
            "#include \"common.cuh\" // its own\n#include \"../b/common.cuh\"\n#include \"b.cuh\"\n",
        ),
        (
            "a/common.cuh",
            "#pragma once\n#include \"../common.cuh\"\nenum { OF_A = 1 };\nstruct InA { int x; };\n",
        ),
        ("b/second.cuh", "#include \"common.cuh\"\n#include <b.cuh>\n#include <common.cuh>\n"),
        ("b/common.cuh", "#pragma once\nenum { OF_B = 2 };\nstruct InB { float y; };\n"),
        ("b.cuh", "enum { BESIDE = 3 };\n"),
        ("inc/common.cuh", "#pragma once\nenum { ON_PATH = 4 };\n"),
        ("inc/b.cuh", "enum { B_ON_PATH = 5 };\n"),
        ("common.cuh", "#pragma once\nenum { OF_KERNEL = 6 };\n"),
    ] {
        fs::write(at(path), text).unwrap();
    }
    fs::rename(at("b.cuh"), at("a/b.cuh")).unwrap();
    let text = "#include \"a/first.cuh\"\n#include \"b/second.cuh\"\n#include \"./common.cuh\"\n#include \"common.cuh\"\n\
        #if 0\n#include \"c/common.cuh\"\n#endif\n\
        static_assert(OF_A + OF_B + BESIDE + ON_PATH + B_ON_PATH + OF_KERNEL == 21, \"\");\n\
        extern \"C\" __global__ void k(int* x, InA a, InB b) { x[0] = OF_A + OF_B + ON_PATH; }\n";
    let built = build(dir.path(), text, |k| cpu(k).include(at("inc"))).unwrap();

    let bindings = bindings(&built);
    assert!(bindings.contains("pub struct InA {") && bindings.contains("pub struct InB {"), "{bindings}");
    let headers: Vec<_> = bindings
        .lines()
        .filter_map(|line| line.trim().strip_prefix("(\"")?.split_once("\", include_str!(\""))
        .collect();
    assert_eq!(headers.len(), 8, "{headers:?}");
    let names = at("names");
    for (name, file) in headers {
        let text = fs::read_to_string(built.out_dir.join(file.trim_end_matches("\")),"))).unwrap();
        let path = names.join(name);
        assert!(!path.exists(), "{name} is the name of two headers");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    fs::copy(built.out_dir.join("k.source/kernel.cu"), names.join("kernel.cu")).unwrap();
    let compiler = gpustream_build::toolchain::CxxCompiler::find(None).unwrap();
    let mut command = std::process::Command::new(compiler.path);
    command.current_dir(&names).args(["-fsyntax-only", "-I.", "-D__global__=", "-xc++", "kernel.cu"]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// You read this text if you open the generated file. `BLESS=1` accepts the present text.
#[test]
fn the_generated_file_reads_as_agreed() {
    let dir = tempfile::tempdir().unwrap();
    let text = include_str!("golden/saxpy.cu");
    let built = build(dir.path(), text, cpu).unwrap();
    let written = bindings(&built).replace(CPU_LEVEL, "LEVEL").replace(env!("CARGO_PKG_VERSION"), "VERSION");
    // The parts of the portable header do not matter here.
    let lines = written.lines().filter(|line| !line.trim_start().starts_with("(\"gpustream/"));
    // Another compiler makes other images.
    let lines = lines.map(|line| match line.split_once("Checksum::new(\"") {
        Some((before, digits)) => {
            assert_eq!(digits.find('"'), Some(64), "{line}");
            format!("{before}Checksum::new(\"SHA-256{}", &digits[64..])
        }
        None => line.to_owned(),
    });
    let written = lines.collect::<Vec<_>>().join("\n");
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/saxpy.rs");
    if std::env::var_os("BLESS").is_some() {
        fs::write(&golden, &written).unwrap();
    }
    let agreed = fs::read_to_string(&golden).unwrap_or_default();
    let mut lines = agreed.lines().zip(written.lines()).enumerate();
    if let Some((i, (agreed, written))) = lines.find(|(_, (a, b))| a != b) {
        panic!("line {} of {}:\n  agreed  {agreed}\n  written {written}", i + 1, golden.display());
    }
    assert_eq!(agreed.lines().count(), written.lines().count());
}

#[test]
fn targets_that_do_not_exist_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let text = "extern \"C\" __global__ void k() {}\n";
    let error = build(dir.path(), text, |k| k.backend(Backend::Cpu).cpu_level("x86-64-v9")).unwrap_err();
    assert!(error.to_string().contains("x86-64-v9"), "{error}");
    if have_nvcc("targets_that_do_not_exist_are_refused (cuda)") {
        let error = build(dir.path(), text, |k| k.backend(Backend::Cuda).cuda_arch("gfx90a")).unwrap_err();
        assert!(error.to_string().contains("`gfx90a` is not a CUDA target"), "{error}");
    }
    let error = build(dir.path(), text, |k| k.backend(Backend::Hip).hip_arch("gfx9zz")).unwrap_err();
    assert!(error.to_string().contains("gfx9zz"), "{error}");
}
