//! Which functions of a file are kernels, and what they may be called.

use super::*;

#[test]
fn kernels_are_found_in_every_usual_dress() {
    let module = read(
        r#"
/** Block comment.
 * Second line.
 *  requires: nothing
 */
extern "C" __global__ void __launch_bounds__(256, 2) a(int n) {}
extern "C" __launch_bounds__(128) __global__ void b(void) {}
extern "C" {
  /// Inside.
  __global__ void c(int /* unnamed */) {}
}
extern "C" __global__ void d(int later);
extern "C" __global__ void d(int later) {}
// requires: this is an ordinary comment
extern "C" __global__ void e(int n = 3) {}
__device__ void helper(float& x) {}
template <typename T> __device__ void generic(T* x) {}
"#,
    );
    let names: Vec<_> = module.kernels.iter().map(|k| k.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "c", "d", "e"]);
    assert_eq!(module.kernels[0].docs, ["Block comment.", "Second line."]);
    assert!(module.kernels[0].contract.safe && module.kernels[0].contract.requires.is_empty());
    assert!(module.kernels[1].params.is_empty());
    assert_eq!(module.kernels[2].docs, ["Inside."]);
    assert_eq!(module.kernels[2].params[0].name, "arg0");
    assert!(!module.kernels[4].contract.safe);
    assert_eq!(module.warnings.len(), 1, "{:#?}", module.warnings);
    assert!(module.warnings[0].starts_with("k.cu:14:4: this looks like the contract of `e`"));
}

#[test]
fn the_first_argument_of_launch_bounds_is_the_bound() {
    let bounds =
        |text: &str| read(text).functions().map(|(_, instance)| instance.max_threads).collect::<Vec<_>>();
    let bound = |before: &str, arguments: &str| {
        bounds(&format!("{before}\n__global__ void __launch_bounds__({arguments}) k(int n) {{}}"))[0]
    };
    assert_eq!(bound("", "256, 2"), Some(256));
    assert_eq!(bound("", "/* threads */ 256, /* blocks */ 2"), Some(256));
    for defined in
        ["#define B 256", "#define B (2 * HALF) // threads\n#define HALF 128", "constexpr int B = 256;"]
    {
        assert_eq!(bound(defined, "B"), Some(256), "{defined}");
        assert_eq!(bound(defined, "B, 2"), Some(256), "{defined}");
        assert_eq!(bound(defined, "B, 2, 1"), Some(256), "{defined}");
        assert_eq!(bound(defined, "2 * B, 1"), Some(512), "{defined}");
        assert_eq!(bound(defined, "(B / 2), (1), (1)"), Some(128), "{defined}");
    }
    assert_eq!(bound("namespace tuning { constexpr int B = 64; }", "tuning::B, 2"), Some(64));
    assert_eq!(
        bounds("namespace a { enum { B = 96 }; __global__ __launch_bounds__(B, 2) void k() {} }"),
        [Some(96)]
    );
    // What only a compiler can know is not a bound.
    let either = "#ifdef __CUDACC__\nconstexpr int B = 256;\n#else\nconstexpr int B = 512;\n#endif";
    for (before, arguments) in [
        ("#include <tuning.h>", "B, 2"),
        ("#define BLOCK(n) (n * 32)", "BLOCK(8), 2"),
        ("#define B(n) n", "2 * B(64), 1, 1"),
        ("constexpr int f() { return 256; }", "f(), 2"),
        ("#ifdef __CUDACC__\n#define B 256\n#else\n#define B 512\n#endif", "B, 2"),
        (either, "B, 2"),
        ("", "0, 2"),
    ] {
        assert_eq!(bound(before, arguments), None, "{before} {arguments}");
    }
    let template =
        "/// types: B = 64, 128\ntemplate <int B> __global__ void __launch_bounds__(2 * B, 2) k(int n) {}";
    assert_eq!(bounds(template), [Some(128), Some(256)]);
}

#[test]
fn blocks_of_a_contract_fit_the_bound_of_every_instance() {
    let text = "/// types: B = 64, 128\n/// requires: nothing\n/// covers: n by 128\n\
                template <int B> __global__ void __launch_bounds__(B, 2) k(int n) {}";
    refused(text, "4:58", &["blocks of 128 threads", "`k` takes at most 64"]);
    read(&text.replace("(B, 2)", "(2 * B, 2)"));
}

#[test]
fn kernels_without_a_name_to_find_are_refused() {
    refused("struct A {\n  static __global__ void k() {}\n};", "2:26", &["member of a class"]);
    refused(
        "#ifdef __CUDACC__\nextern \"C\" __global__ void k() {}\n#endif",
        "2:28",
        &["is inside an #if", "into the kernel's body"],
    );
    refused(
        "#define K(name) extern \"C\" __global__ void name(float* x) {}\nK(a)\n",
        "1:28",
        &["made by a macro", "write each kernel out"],
    );
    refused("extern \"C\" __global__ int k(int x) { return x; }", "1:23", &["does not return void"]);
    refused("extern \"C\" __global__ void* k(int x) { return 0; }", "1:23", &["does not return void"]);
    refused("extern \"C\" __global__ void load(int x) {}", "1:28", &["own `load`", "rename"]);
    refused(
        "#ifdef FOO\nextern \"C\" __global__ void k() {}\n#endif",
        "1:1",
        &["condition is false", "define"],
    );
    refused("int a = 1\nint b;\n", "1:10", &["`;` is missing here"]);
    refused("int x;\n", "1:1", &["no kernel in this file", "write `__global__ void"]);
}

#[test]
fn kernels_have_the_names_of_cpp() {
    let module = read(
        r#"
extern "C" __global__ void c() {}
extern "C++" __global__ void cpp(int x) {}
namespace a {
namespace { __global__ void hidden() {} }
namespace b::c { static __global__ void deep(float* x) {} }
extern "C" __global__ void flat() {}
__global__ void same() {}
}
__global__ void same() {}
__global__ void over(const float *__restrict__ x, size_t n = 3) {}
__global__ void over(double*, int n) {}
"#,
    );
    let names: Vec<_> =
        module.functions().map(|(k, i)| (k.name.as_str(), k.key(i), k.address(i, "::"))).collect();
    let expected = [
        ("c", "c", "&::c"),
        ("cpp", "cpp", "&::cpp"),
        ("hidden", "a::hidden", "&::a::hidden"),
        ("deep", "a::b::c::deep", "&::a::b::c::deep"),
        ("flat", "flat", "&::a::flat"),
        ("a_same", "a::same", "&::a::same"),
        ("same", "same", "&::same"),
        (
            "over",
            "over(const float *__restrict__, size_t)",
            "static_cast<void (*)(const float *__restrict__, size_t)>(&::over)",
        ),
        ("over_2", "over(double*, int)", "static_cast<void (*)(double*, int)>(&::over)"),
    ];
    assert_eq!(names, expected.map(|(name, key, address)| (name, key.to_owned(), address.to_owned())));
}

#[test]
fn include_guards_are_no_condition() {
    read("#ifndef A_CU\n#define A_CU\nextern \"C\" __global__ void k() {}\n#endif\n");
}

#[test]
fn names_that_collide_are_refused() {
    let text = "extern \"C\" __global__ void k(int x) {}\nextern \"C\" __global__ void k(float x) {}\n";
    refused(text, "2:28", &["`k` is already defined on line 1"]);
    refused("extern \"C\" __global__ void k(int x, int x) {}", "1:37", &["two parameters `x`"]);
    refused(
        "/// covers: n\nextern \"C\" __global__ void k(size_t n) {}\nextern \"C\" __global__ void k_with(int x) {}\n",
        "3:28",
        &["generated launcher of `k`"],
    );
}

#[test]
fn too_many_parameters_are_refused() {
    let list = |n: usize| (0..n).map(|i| format!("int p{i}")).collect::<Vec<_>>().join(", ");
    let text = |n| format!("extern \"C\" __global__ void k({}) {{}}", list(n));
    assert_eq!(read(&text(64)).kernels[0].params.len(), 64);
    let errors = errors(&text(65));
    assert_eq!(errors.len(), 1);
    assert!(errors[0].contains("65 parameters; at most 64"), "{errors:?}");
}

#[test]
fn too_many_bytes_of_parameters_are_refused() {
    let text = |n: usize| {
        format!("struct S {{ char c[{n}]; }};\nextern \"C\" __global__ void k(S s, char c, float* x) {{}}\n")
    };
    assert_eq!(
        read(&text(32_740)).kernels[0].instances[0].param_table(),
        [(0, 32_740), (32_740, 1), (32_744, 8)]
    );
    refused(&text(32_760), "2:28", &["`k` have 32776 bytes; at most 32764"]);
}

#[test]
fn variables_of_the_device_are_found() {
    let module = read(
        "struct Pair { int a; float b[2]; };\n/// The table.\n__constant__ float table[3];\n\
         namespace a { static __constant__ int one = 1, two[2][4]; namespace { __device__ Pair pair; } }\n\
         extern __constant__ int other;\nextern \"C\" __device__ int elsewhere;\nextern \"C\" { __device__ int third; }\n\
         __constant__ const int fixed[2] = {1, 2};\n__device__ constexpr int seven = 7;\n__device__ float twice(float x);\n\
         #ifdef __CUDA_ARCH__\n__device__ int sometimes;\n#endif\n__device__ volatile int moving;\n__device__ float* address;\n\
         __managed__ __device__ int managed;\nclass C { static __device__ int member; };\n__device__ int C::member;\n__global__ void k() { __shared__ int x[4]; static __device__ int y; }\n",
    );
    let found: Vec<_> = module
        .globals
        .iter()
        .map(|global| {
            let ty = global.ty.as_ref().map(|ty| (ty.element.rust(), ty.len));
            (&*global.path, global.constant, global.internal, ty, &*global.place)
        })
        .collect();
    let ty = |element: &str, len| Some((element.to_owned(), len));
    let want = [
        ("table", true, false, ty("f32", Some(3)), "`k.cu`, line 3"),
        ("a::one", true, true, ty("i32", None), "`k.cu`, line 4"),
        ("a::two", true, true, ty("[i32; 4]", Some(2)), "`k.cu`, line 4"),
        ("a::pair", false, true, ty("Pair", None), "`k.cu`, line 4"),
        ("third", false, false, ty("i32", None), "`k.cu`, line 7"),
        ("moving", false, false, None, "`k.cu`, line 14"),
        ("address", false, false, None, "`k.cu`, line 15"),
    ];
    assert_eq!(found, want);
    assert_eq!(module.globals[0].docs, ["The table."]);
    assert!(module.warnings.is_empty(), "{:?}", module.warnings);
}

#[test]
fn variables_that_kernels_only_read_are_known() {
    let module = read(
        "__constant__ float table[3];\nnamespace a { namespace b { __device__ const int squares[2] = {1, 4}; } }\n\
         #ifdef __CUDA_ARCH__\n__constant__ int sometimes;\n__device__ const int both = 1;\n#else\n__device__ int both;\n#endif\n\
         static constexpr __device__ float halves[] = {0.5};\nstruct S { static constexpr int n[2] = {1, 2}; int m; const int f; };\n\
         template <class T> struct V { static constexpr T t[2] = {1, 2}; };\n\
         template <class T> __device__ T weight(int i) { static const T w[2] = {1, 2}; const int local = 3; return w[i]; }\n\
         __device__ const float* pointer;\n__device__ const float* const fixed = nullptr;\n__device__ int written;\n\
         __device__ int* const cells[2] = {};\nusing E = int;\n__device__ const E aliased = 1, second[2] = {};\n\
         __global__ void k() { static const int here[1] = {1}; static int count; int x = here[0]; }\n",
    );
    let want = [
        "S::n",
        "V::t",
        "a::b::squares",
        "aliased",
        "cells",
        "fixed",
        "halves",
        "k::here",
        "second",
        "sometimes",
        "table",
        "weight::w",
    ];
    assert_eq!(module.read_only, want);
    let writable =
        ["k::count", "weight<float>::w", "V<double>::t", "both", "table"].map(str::to_owned).to_vec();
    assert_eq!(
        module.unlisted(writable.clone()),
        [""; 0],
        "`written` is listed, so all launches are ordered"
    );
    let module = Module { globals: Vec::new(), ..module };
    assert_eq!(module.unlisted(writable), ["k::count", "both"]);
}

#[test]
fn constant_memory_that_nothing_fills_is_pointed_out() {
    let module = read(
        "__constant__ float* table[3];\n__constant__ int* filled = 0;\n#ifdef __CUDA_ARCH__\n__constant__ int two;\n#endif\n\
         __constant__ float good;\n__global__ void k() {}\n",
    );
    let places: Vec<_> =
        module.warnings.iter().map(|warning| &warning[..warning.find("constant").unwrap()]).collect();
    assert_eq!(places, ["k.cu:1:19: ", "k.cu:4:18: "]);
    for (warning, text) in module
        .warnings
        .iter()
        .zip(["`table` has no values and no setter, since it holds addresses", "inside an `#if`"])
    {
        assert!(warning.contains(text), "{warning}");
    }
}

#[test]
fn variables_with_names_of_other_methods_are_refused() {
    let kernel = "__global__ void set_x(int x) {}\n";
    refused(&format!("__constant__ int x;\n{kernel}"), "1:18", &["`set_x`", "kernel `set_x` has a launcher"]);
    refused(&format!("__device__ int module;\n{kernel}"), "1:16", &["`Kernels` has its own `module`"]);
    refused(&format!("__device__ int set_y;\n__constant__ int y;\n{kernel}"), "2:18", &["variable `set_y`"]);
    let module =
        read(&format!("namespace a {{ __device__ int v; }}\nnamespace b {{ __device__ int v; }}\n{kernel}"));
    let names: Vec<_> = module.globals.iter().map(|global| &*global.name).collect();
    assert_eq!(names, ["a_v", "b_v"]);
}
