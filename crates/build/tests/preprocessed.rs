//! Files in the style of real programs, which the parser can only read after the compiler's preprocessor: kernels that macros
//! make, kernels in headers and below an `#if`, and templates that host code instantiates by the way.

#![allow(clippy::unwrap_used, clippy::panic)]

mod fixture;

use std::fs;

use fixture::{build, cpu};
use gpustream_build::{Backend, KernelReport, Kernels, Threads, toolchain::Nvcc};

/// Builds a file for the CPU and returns the bindings.
fn bindings(text: &str, headers: &[(&str, &str)]) -> String {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in headers {
        fs::write(dir.path().join(name), text).unwrap();
    }
    let built = build(dir.path(), text, cpu).unwrap();
    fs::read_to_string(&built.files[0].bindings).unwrap()
}

/// Returns the names of the launchers in bindings.
fn launchers(bindings: &str) -> Vec<&str> {
    let methods = bindings.split("fn ").skip(1).filter_map(|rest| rest.split(['(', '<', ' ']).next());
    methods.filter(|name| !["load", "module"].contains(name)).collect()
}

/// Returns the instances of the templates.
fn instances(bindings: &str) -> Vec<&str> {
    let found = bindings.split("module.kernel_with(\"").skip(1);
    found.filter_map(|rest| rest.split('"').next()).collect()
}

const OPERATIONS: &str = "\
#include <cmath>
#include \"ops.cuh\"
#define OP(T, NAME, EXPR) extern \"C\" __global__ void NAME(const T* x, T* y, size_t n) { \\
    _Pragma(\"unroll\") \\
    for (int turn = 0; turn < TURNS; turn++) { \\
        T v = x[threadIdx.x]; \\
        if (threadIdx.x < n) y[threadIdx.x] = EXPR; \\
    } \\
}
/// Squares.
/// requires: n <= len(x), n <= len(y)
OP(float, square_f32, v * v)
OP(double, root_f64, twice(sqrt(v)))
OP(float, infinite_f32, INFINITY)
";
const HEADER: &str = "\
#pragma once
#include <cstdint>
#define TURNS 2
template <class T> __device__ T twice(T x) { return x + x; }
__global__ void of_header(uint32_t* x) { x[0] = TURNS; }
";

#[test]
fn kernels_that_macros_make_and_those_of_headers_have_launchers() {
    let bindings = bindings(OPERATIONS, &[("ops.cuh", HEADER)]);
    assert_eq!(launchers(&bindings), ["of_header", "square_f32", "root_f64", "infinite_f32"]);
    // The contract above a macro is that of its kernel, which makes the launcher safe.
    assert!(bindings.contains("pub fn square_f32("), "{bindings}");
    assert!(bindings.contains("The kernel is in `k.cu`, line 12."), "{bindings}");
    assert!(bindings.contains("The kernel is in `ops.cuh`, line 5."), "{bindings}");
}

#[test]
fn a_file_may_be_included_several_times() {
    let part = "__global__ void NAME(T* x) { x[0] = 1; }\n#undef NAME\n#undef T\n";
    let text = "#define NAME one\n#define T int\n#include \"part.inc\"\n#define NAME two\n#define T double\n#include \"part.inc\"\n";
    assert_eq!(launchers(&bindings(text, &[("part.inc", part)])), ["one", "two"]);
}

/// What comes after this pragma is a system's header for compilers, and so is what it includes from its own folder.
#[test]
fn a_header_that_calls_itself_a_systems_finds_what_is_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("lib")).unwrap();
    fs::write(dir.path().join("lib/format.cc"), "inline int two() { return 2; }\n").unwrap();
    let header = "int before;\n#pragma GCC system_header\n#include \"format.cc\"\n";
    fs::write(dir.path().join("lib/format.h"), header).unwrap();
    let text =
        "#include \"lib/format.h\"\n#define OP(NAME) __global__ void NAME(float* x) { *x = 1; }\nOP(k)\n";
    let built = build(dir.path(), text, cpu).unwrap();
    assert_eq!(built.files[0].kernels[0].kernel, "k");
}

#[test]
fn errors_are_at_the_users_lines() {
    let dir = tempfile::tempdir().unwrap();
    let text = "#define K(T, NAME) \\\n    __global__ void NAME(T x) {}\nK(int, fine)\n\nK(int&, refused)\n";
    let error = build(dir.path(), text, cpu).unwrap_err();
    let found: Vec<_> = error.diagnostics().iter().map(|d| (d.line, d.message.as_str())).collect();
    assert_eq!(found, [(5, "`x` is a reference, which the host cannot pass")]);
    // The compiler's own errors, too.
    let text = "#define K(NAME) __global__ void NAME(int* x) { x[0] = undeclared; }\n\n\nK(wrong)\n";
    let error = build(dir.path(), text, cpu).unwrap_err().to_string();
    assert!(error.contains("k.cu:4:"), "{error}");
}

#[test]
fn a_kernel_that_some_targets_lack_says_which_ones_have_it() {
    let text = "__global__ void everywhere(int* x) { x[0] = 1; }\n#if __CUDA_ARCH__ >= 900\n\
        __global__ void new_ones(int* x) { x[0] = 2; }\n#endif\n";
    let dir = tempfile::tempdir().unwrap();
    // The CPU has only one of them.
    let built = build(dir.path(), text, cpu).unwrap();
    assert_eq!(launchers(&fs::read_to_string(&built.files[0].bindings).unwrap()), ["everywhere"]);
    if Nvcc::find().is_err() {
        return;
    }
    let both = |kernels| cpu(kernels).backend(Backend::Cuda).cuda_arch("sm_80").cuda_arch("sm_90");
    let built = build(dir.path(), text, both).unwrap();
    let bindings = fs::read_to_string(&built.files[0].bindings).unwrap();
    assert_eq!(launchers(&bindings), ["everywhere", "new_ones"]);
    assert!(bindings.contains("It was compiled for sm_90."), "{bindings}");
    assert!(bindings.contains("kernel_new_ones: ::core::option::Option<__gpustream::Kernel>"), "{bindings}");
    assert!(bindings.contains("kernel_everywhere: __gpustream::Kernel"), "{bindings}");
}

#[test]
fn a_backend_for_which_all_kernels_are_left_out_gets_no_image() {
    if Nvcc::find().is_err() {
        return;
    }
    let text = "#ifdef __CUDA_ARCH__\n__global__ void k(int* x) { x[0] = 1; }\n#endif\n";
    let dir = tempfile::tempdir().unwrap();
    let both = |kernels| cpu(kernels).backend(Backend::Cuda).cuda_arch("sm_80");
    let built = build(dir.path(), text, both).unwrap();
    let images: Vec<_> = built.files[0].images.iter().map(|path| path.extension().unwrap()).collect();
    assert_eq!(images, ["fatbin"]);
}

#[test]
fn host_code_instantiates_templates() {
    let text = "\
template <class T> __global__ void deduced(const T* x, T* y, int n) { y[n] = x[n]; }
template <int N, class T> __global__ void partly(T* x) { x[N] = 0; }
template <class T, int N> __global__ void in_template(T* x) { x[N] = 1; }
template <float (*op)(float)> __global__ void with_function(float* x) { x[0] = op(x[0]); }
template <int N> __global__ void passed_on(float* x) { x[N] = 0; }
__device__ float op_neg(float x) { return -x; }
template <class Kernel, class... Args> void start(Kernel kernel, int blocks, Args... args) { kernel<<<blocks, 1>>>(args...); }
template <class T, int D> void run(T* x) {
    constexpr int half = D / 2;
    in_template<T, half><<<1, 1>>>(x);
}
void host(float* a, double* b, void* c) {
    deduced<<<1, 1>>>(a, a + 1, 3);
    deduced<<<1, 1>>>((const int*)c, (int*)c, 3);
    partly<4><<<1, 1>>>(b);
    run<float, 64>(a);
    run<double, 16>(b);
    with_function<op_neg><<<1, 1>>>(a);
    start(passed_on<7>, 3, a);
}
";
    let bindings = bindings(text, &[]);
    let expected = [
        "deduced<float>",
        "deduced<int>",
        "partly<4, double>",
        "in_template<float, 32>",
        "in_template<double, 8>",
        "with_function<op_neg>",
        "passed_on<7>",
    ];
    assert_eq!(instances(&bindings), expected);
}

/// Overloads of one name may call each other in very many ways. This test would not end if we followed them all.
#[test]
fn overloads_that_call_each_other_are_followed_once() {
    let overloads =
        (0..30).map(|i| format!("template <class T> void run(T* x, One<{i}>) {{ run(x, next({i})); }}\n"));
    let text = format!(
        "template <class T> __global__ void scale(T* x, T by) {{ *x *= by; }}\ntemplate <int> struct One {{}};\n{}\
         template <class T> void run(T* x) {{ scale<T><<<1, 1>>>(x, T(2)); }}\nvoid both(float* x) {{ run(x); }}\n",
        overloads.collect::<String>()
    );
    assert_eq!(instances(&bindings(&text, &[])), ["scale<float>"]);
}

/// ggml has overloads that call each other and differ in how many values they take.
#[test]
fn a_call_means_the_overload_that_takes_as_many_values() {
    let text = "\
struct Tensor { void* data; };
template <class T, class U> __global__ void set(const T* x, U* y) { *y = U(*x); }
template <class T, class U> void run(const T* x, U* y, int stream = 0) { set<T, U><<<1, 1>>>(x, y); }
template <class T> void run(Tensor* x, Tensor* y, int stream, int) {
    run((const T*)x->data, (float*)y->data, stream);
    run((const T*)x->data, (int*)y->data);
}
void both(Tensor* x, Tensor* y) { run<float>(x, y, 0, 0); }
";
    assert_eq!(instances(&bindings(text, &[])), ["set<float, float>", "set<float, int>"]);
}

#[test]
fn a_specialisation_of_a_host_template_launches_only_its_own() {
    let text = "\
struct Half { unsigned short bits; };
template <class T> __global__ void fill(T* x, T by) { *x = by; }
template <class T> void run(T* x, T by) { fill<<<1, 1>>>(x, by); }
template <> void run<Half>(Half* x, Half by) { fill<<<1, 1>>>((float*)x, 1.0f); }
void both(Half* x, double* y, Half by) { run<Half>(x, by); run<double>(y, 2.0); }
";
    assert_eq!(instances(&bindings(text, &[])), ["fill<double>", "fill<float>"]);
}

#[test]
fn the_address_of_a_host_template_instantiates_what_it_launches() {
    let text = "\
template <class T, int N> __global__ void widen(const T* x, float* y) { *y = float(*x) * N; }
template <int N, class T> void run(const void* x, float* y) { widen<T, N><<<1, 1>>>((const T*)x, y); }
typedef void (*Run)(const void*, float*);
Run pick(int kind) {
    switch (kind) {
        case 0: return run<3, int>;
        case 1: return &run<4, double>;
        default: return nullptr;
    }
}
";
    assert_eq!(instances(&bindings(text, &[])), ["widen<int, 3>", "widen<double, 4>"]);
}

/// In the style of programs with namespaces: names mean what they mean at the launch, templates are arguments of templates,
/// and values are made where they are passed.
#[test]
fn launches_in_namespaces_instantiate_templates() {
    let text = "\
namespace app { namespace cuda {
using index_t = unsigned int;
template <class T> struct DeviceType { using type = T; };
template <class T> using device_type = typename DeviceType<T>::type;
template <class T> struct Twice { __device__ T operator()(T x) const { return x + x; } };
struct Nothing { __device__ float operator()(float x) const { return x; } };
} }
namespace at {
template <class T> struct Exponent { __device__ T of(T x) const { return x * x; } };
template <class T, class I> __global__ void norm(I n, const T* x, T* y);
template <class T, template <class> class Epilogue> __global__ void softmax(T* x) { x[0] = Epilogue<T>().of(x[0]); }
template <class T, class F> __global__ void apply(T* x, F f) { x[0] = f(x[0]); }
}
namespace app { namespace ops {
struct Layer { template <int D, class T> void compute(T* x) const; };
template <class T, template <class> class Epilogue> void run(T* x) { at::softmax<T, Epilogue><<<1, 1>>>(x); }
template <int D, class T> void Layer::compute(T* x) const {
    at::norm<cuda::device_type<T>, cuda::index_t><<<1, 1>>>(3, x, x);
    run<T, at::Exponent>(x);
    at::apply<<<1, 1>>>(x, cuda::Twice<T>());
}
template void Layer::compute<1, float>(float* x) const;
void host(float* x) { at::apply<<<1, 1>>>(x != nullptr ? x : nullptr, cuda::Nothing()); }
} }
namespace at { template <class T, class I> __global__ void norm(I n, const T* x, T* y) { y[0] = x[n]; } }
";
    let dir = tempfile::tempdir().unwrap();
    let built = build(dir.path(), text, |kernels| cpu(kernels).by_name()).unwrap();
    let kernels: Vec<_> = built.files[0].kernels.iter().map(|kernel| &*kernel.kernel).collect();
    let expected = [
        "at::softmax<float, at::Exponent>",
        "at::apply<float, app::cuda::Twice<float>>",
        "at::apply<float, app::cuda::Nothing>",
        "at::norm<float, app::cuda::index_t>",
    ];
    assert_eq!(kernels, expected);
}

/// A program passes objects whose types have no names in Rust, with a copy constructor. Other classes use libraries' types.
#[test]
fn kernels_found_by_name_may_take_objects() {
    let text = "\
#include <cublas_v2.h>
#if CUDA_VERSION < 8000
#error \"needs a new toolkit\"
#endif
class Resources { virtual cublasHandle_t handle(cublasStatus_t* status) = 0; };
template <class T, template <class> class Traits> class Tensor {
    T* data;
  public:
    __host__ __device__ Tensor(Tensor& other) : data(other.data) {}
    __device__ T& operator[](int i) { return data[i]; }
};
template <class T> struct Plain {};
template <class T> __global__ void scale(Tensor<T, Plain> x, T by) { x[threadIdx.x] *= by; }
#define SCALE(T) void scale_##T(Tensor<T, Plain>& x) { scale<T><<<1, 32>>>(x, 2); }
SCALE(float)
";
    let dir = tempfile::tempdir().unwrap();
    let error = build(dir.path(), text, cpu).unwrap_err().to_string();
    assert!(error.contains("this member of `Tensor<float, Plain>` is private"), "{error}");
    let built = build(dir.path(), text, |kernels| cpu(kernels).by_name()).unwrap();
    assert_eq!(built.files[0].kernels[0].kernel, "scale<float>");
}

/// faiss calls a kernel's host function like the kernel, so only the types of the parameters tell them apart.
#[test]
fn types_of_outer_namespaces_tell_a_kernel_from_its_host_function() {
    let text = "\
namespace outer { typedef int index; }
namespace outer::inner {
template <class T> struct View { T* data; };
template <class T> __global__ void scale(View<T> x, index by) { x.data[threadIdx.x] *= by; }
template <class T> void scale(View<T> x, int by, int stream) { scale<T><<<1, 32>>>(x, by); }
void both(View<float> x) { scale<float>(x, 2, 0); }
}
";
    let dir = tempfile::tempdir().unwrap();
    let built = build(dir.path(), text, |kernels| cpu(kernels).by_name()).unwrap();
    assert_eq!(built.files[0].kernels[0].kernel, "outer::inner::scale<float>");
}

/// What the parser says of a file that it cannot preprocess follows from that, so only the preprocessor's error counts.
#[test]
fn a_preprocessors_error_is_the_one_that_is_shown() {
    let text =
        "#include \"ops.cuh\"\n#ifndef TWICE\n#error \"no TWICE here\"\n#endif\nOP(float, twice, v + v)\n";
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("k.cu"), text).unwrap();
    fs::write(
        dir.path().join("ops.cuh"),
        "#define OP(T, NAME, EXPR) __global__ void NAME(T* x) { T v = *x; *x = EXPR; }\n",
    )
    .unwrap();
    let kernels = Kernels::new().file(dir.path().join("k.cu")).out_dir(dir.path().join("out"));
    let error = cpu(kernels.environment_overrides(false)).check().unwrap_err().to_string();
    assert!(error.contains("no TWICE here") && !error.contains("cannot be read"), "{error}");
}

/// A header may break on comments, and then a file is read without them. But a contract is a comment, which must not get lost.
#[test]
fn contracts_are_never_left_out_with_the_comments() {
    let text = |contract: &str| {
        format!(
            "#define PASTE(a, b) a##b\n#define CALL(x) PASTE(pa, x)\nstatic int CALL(/* pasted */ ck);\n\
             #define KERNEL(NAME) __global__ void NAME(float* x, const float* bias) {{ *x = bias ? *bias : 1; }}\n\
             {contract}\nKERNEL(add)\n"
        )
    };
    assert_eq!(launchers(&bindings(&text("// optional: not a doc comment"), &[])), ["add"]);
    let dir = tempfile::tempdir().unwrap();
    for contract in ["/// optional: bias", "/**\n * optional: bias\n */", "/** It adds.\n optional: bias */"]
    {
        let error = build(dir.path(), &text(contract), cpu).unwrap_err().to_string();
        assert!(error.contains("pasting"), "{error}");
    }
}

/// nvcc reads the host code and instantiates what it launches, even if we cannot follow that.
#[test]
fn nvcc_instantiates_kernels_found_by_name() {
    let text = "\
#define PASTE(a, b) a##b
#define CALL(x) PASTE(pa, x)
template <class T, class... Rest> __global__ void pack(T* x, Rest... rest) { x[0] = (T)sizeof...(rest); }
template <class F> void launched(F f) { f(1, 2.0f); }
void host(float* x) { launched([x](auto... rest) { CALL( // a comment in what is pasted
    ck)<<<1, 1>>>(x, rest...); }); }
";
    if let Err(missing) = Nvcc::find() {
        return eprintln!("SKIPPED nvcc_instantiates_kernels_found_by_name: {missing}");
    }
    let dir = tempfile::tempdir().unwrap();
    let on = |kernels: Kernels| kernels.backend(Backend::Cuda).cuda_arch("sm_80").by_name();
    build(dir.path(), text, on).unwrap();
    let nothing = "template <class T> __global__ void k(T* x) { *x = 0; }\n";
    let error = build(dir.path(), nothing, on).unwrap_err().to_string();
    assert!(error.contains("nothing in the file instantiates"), "{error}");
}

#[test]
fn kernels_found_by_name_need_no_launchers() {
    let text = "#include <vector>\nextern \"C\" __global__ void known(float* x, int n) { x[0] = n; }\n\
        extern \"C\" __global__ void unknown(std::vector<int>::size_type n, float* x) { x[0] = n; }\n";
    let dir = tempfile::tempdir().unwrap();
    assert!(build(dir.path(), text, cpu).is_err());
    let built = build(dir.path(), text, |kernels: Kernels| cpu(kernels).by_name()).unwrap();
    let bindings = fs::read_to_string(&built.files[0].bindings).unwrap();
    assert_eq!(launchers(&bindings), [""; 0]);
    // The module knows the parameters that we could read.
    assert!(bindings.contains("module.kernel_with(\"known\", &[param(0, 8), param(8, 4)])"), "{bindings}");
    assert_eq!(built.files[0].kernels.iter().filter(|kernel| kernel.kernel == "unknown").count(), 1);
}

#[test]
fn functions_in_which_threads_meet_keep_no_kernel_from_loops() {
    let text = "\
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;
struct Both { float x, y; };
static __device__ float warp_sum(float v) {
    for (int step = 16; step > 0; step /= 2) v += __shfl_xor_sync(~0u, v, step, 32);
    return v;
}
static __device__ float2 warp_sum(float2 v) {
    for (int step = 16; step > 0; step /= 2) {
        v.x += __shfl_xor_sync(~0u, v.x, step, 32);
        v.y += __shfl_xor_sync(~0u, v.y, step, 32);
    }
    return v;
}
template <class T> __device__ void sum_of(size_t n, const T* x, T* y) {
    __shared__ T all[256];
    all[threadIdx.x] = threadIdx.x < n ? x[threadIdx.x] : T(0);
    for (int s = blockDim.x / 2; s > 0; s >>= 1) {
        __syncthreads();
        if (threadIdx.x < s) all[threadIdx.x] += all[threadIdx.x + s];
    }
    if (threadIdx.x == 0) y[blockIdx.x] = all[0];
}
using reduction = float (*)(float);
template <reduction reduce> __device__ float of_block(float v, float outside = 0.0f) {
    __shared__ float of_warp[32];
    v = reduce(v);
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = v;
    __syncthreads();
    v = threadIdx.x % 32 < blockDim.x / 32 ? of_warp[threadIdx.x % 32] : outside;
    v = reduce(v);
    return v;
}
#define SUM(T, NAME) __global__ void NAME(size_t n, const T* x, T* y) { sum_of(n, x, y); }
SUM(float, sum_f32)
SUM(long long, sum_i64)
__device__ float only(float v) {
    for (int step = 16; step > 0; step /= 2) v += __shfl_xor_sync(~0u, v, step, 32);
    return v;
}
__global__ void overloads(float* x) {
    float one = x[threadIdx.x];
    float2 two = make_float2(one, 2 * one);
    one = warp_sum(one);
    two = warp_sum(two);
    x[threadIdx.x] = one + two.x + two.y;
}
__global__ void pointers(float* x) { float v = x[threadIdx.x]; float s = of_block<only>(v); x[threadIdx.x] = s; }
__global__ void group(float* x) {
    cg::thread_block_tile<32> warp = cg::tiled_partition<32>(cg::this_thread_block());
    float v = x[threadIdx.x];
    float sum = cg::reduce(warp, v, cg::plus<float>());
    float most = cg::reduce(warp, v, cg::greater<float>{});
    x[threadIdx.x] = sum + most;
}
struct Larger { __device__ float operator()(float a, float b) const { return a > b ? a : b; } };
template <class T> struct Product { __device__ T operator()(T a, T b) const { return a * b; } };
__device__ float hypotenuse(float a, float b) { return sqrtf(a * a + b * b); }
__global__ void group_with_own_operations(float* x) {
    auto warp = cg::tiled_partition<32>(cg::this_thread_block());
    float v = x[threadIdx.x];
    float most = cg::reduce(warp, v, Larger());
    float product = cg::reduce(warp, v, Product<float>{});
    float length = cg::reduce(warp, v, hypotenuse);
    float sum = cg::reduce(warp, v, [](float a, float b) { return a + b; });
    x[threadIdx.x] = sum + most + product + length;
}
__global__ void logarithm(float* x) {
    for (int i = 1; i <= __log2f(16.0f); i++) { __syncthreads(); x[threadIdx.x ^ i] += 1; }
}
";
    let dir = tempfile::tempdir().unwrap();
    let built = build(dir.path(), text, cpu).unwrap();
    let on_stacks = |kernel: &&KernelReport| matches!(kernel.threads, Some(Threads::Fibers { .. }));
    let slow: Vec<_> = built.files[0].kernels.iter().filter(on_stacks).collect();
    assert!(slow.is_empty(), "{slow:?}");
}

#[test]
fn instances_follow_from_explicit_instantiations_and_types_of_functions() {
    let text = "\
template <class T> struct DeviceType { using type = T; };
namespace host { struct half_of_host { unsigned short bits; }; }
using float16_t = host::half_of_host;
template <> struct DeviceType<float16_t> { typedef __half type; };
template <class T> using device_type = typename DeviceType<T>::type;
template <class T> device_type<T>* device_cast(T* x) { return (device_type<T>*)x; }
template <class T> const device_type<T>* device_cast(const T* x) { return (const device_type<T>*)x; }
enum class Device { CPU, CUDA };
struct View { void* p; template <class T> T* data(); template <class T> const T* data() const; };
struct Scale { template <Device D, class T> void compute(View& x) const; };
template <class T> __global__ void scale(T* x) { *x = *x + *x; }
template <class T, bool Far> __global__ void move(const T* x) {}
template <Device D, class T> void Scale::compute(View& x) const {
    const auto* known = device_cast(x.data<T>());
    scale<<<1, 1>>>(device_cast(x.data<T>()));
    move<device_type<T>, /* far: */ true><<<1, 1>>>(known);
}
#define COMPUTE(T) template void Scale::compute<Device::CUDA, T>(View& x) const;
COMPUTE(float)
COMPUTE(float16_t)
";
    let bindings = bindings(text, &[]);
    assert_eq!(
        instances(&bindings),
        ["scale<float>", "scale<__half>", "move<float, true>", "move<__half, true>"]
    );
}

#[test]
fn kernels_compile_for_cuda_without_what_their_host_code_needs() {
    // A library that is not installed, a member that CUDA 13 no longer has, and a type that comes with the library.
    let text = "\
#include <cublas_v2.h>
#include <cuda_profiler_api.h>
#include <nccl.h>
#include <nvtx3/nvToolsExtCudaRt.h>
template <void (*act)(float&), class T> __global__ void each(T* x) { float v = x[0]; act(v); x[0] = v; }
__device__ void twice(float& v) { v *= 2; }
__device__ void half_of(float& v) { v /= 2; }
cublasHandle_t handle;
#if __CUDA_ARCH__ >= 900
__global__ void newest(__nv_bfloat16* x) { *x = 1.0f; }
#endif
int clock_rate(cublasHandle_t blas) {
    cudaDeviceProp properties;
    return properties.clockRate + cublasFunctionOfTomorrow(blas);
}
void run(__nv_bfloat16* x, float* y) {
    each<twice><<<1, 1>>>(x);
    each<half_of><<<1, 1>>>(y);
    nvtxRangePush(\"both\");
    missing_function(handle, x);
}
";
    if Nvcc::find().is_err() {
        println!("skipped: no nvcc");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let built = build(dir.path(), text, |kernels| {
        kernels.backend(Backend::Cuda).cuda_arch("sm_80").cuda_arch("sm_90")
    })
    .unwrap();
    let of =
        |name: &str| built.files[0].kernels.iter().filter(|kernel| kernel.kernel.starts_with(name)).count();
    assert_eq!((of("each"), of("newest")), (4, 1), "{:?}", built.files[0].kernels);
    // If the kernels do not compile either, that comes first.
    let text = text.replace("v *= 2;", "v *= missing;");
    let error = build(dir.path(), &text, |kernels| kernels.backend(Backend::Cuda).cuda_arch("sm_80"));
    let error = error.unwrap_err().to_string();
    let (kernels, host) = error.split_once("That is without the host code.").unwrap();
    assert!(kernels.contains("\"missing\" is undefined") && host.contains("cublas_v2.h"), "{error}");
}
