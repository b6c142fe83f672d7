//! What is read out of a file, and every way in which a file is refused.

use proptest::prelude::*;

use super::parse;
use crate::contract::{Expr, LaunchValue};
use crate::diagnostic::SourceFile;
use crate::signature::{Module, ParamType, Scalar, ValueType};

fn read(text: &str) -> Module {
    parse(&SourceFile::new("k.cu", text), &[]).unwrap_or_else(|e| panic!("{e}"))
}

/// The errors as `line:column: message | help`.
fn errors(text: &str) -> Vec<String> {
    let Err(error) = parse(&SourceFile::new("k.cu", text), &[]) else {
        panic!("accepted:\n{text}");
    };
    assert!(!error.diagnostics().is_empty(), "{error}");
    let line = |d: &crate::Diagnostic| format!("{}:{}: {} | {}", d.line, d.column, d.message, d.help);
    error.diagnostics().iter().map(line).collect()
}

/// One error at `position` (`line:column`) whose text contains all of `parts`.
#[track_caller]
fn refused(text: &str, position: &str, parts: &[&str]) {
    let errors = errors(text);
    assert_eq!(errors.len(), 1, "{errors:#?}");
    assert!(errors[0].starts_with(&format!("{position}: ")), "wanted {position}: {}", errors[0]);
    for part in parts {
        assert!(errors[0].contains(part), "no `{part}` in {}", errors[0]);
    }
}

/// The type of the only parameter.
fn param(declaration: &str) -> ParamType {
    let text = format!("extern \"C\" __global__ void k({declaration}) {{}}");
    let module = read(&text);
    assert_eq!(module.kernels[0].params.len(), 1);
    module.kernels[0].params[0].ty.clone()
}

fn pointer(scalar: Scalar, mutable: bool) -> ParamType {
    ParamType::Pointer { element: ValueType::Scalar(scalar), mutable, volatile: false }
}

fn volatile(mutable: bool) -> ParamType {
    ParamType::Pointer { element: ValueType::Scalar(Scalar::U32), mutable, volatile: true }
}

#[test]
fn a_kernel_with_docs_and_contract() {
    let module = read(
        r#"#include <gpustream/kernel.cuh>
/// y[i] += a * x[i]
///   in any order
/// requires: n <= len(x), n <= len(y)
/// covers: n
extern "C" __global__ void saxpy(float a, const float* __restrict__ x, float* __restrict__ y, size_t n)
{
    GS_FOR_EACH(i, n) { y[i] += a * x[i]; }
}
"#,
    );
    assert_eq!(module.name, "k");
    let kernel = &module.kernels[0];
    assert_eq!(kernel.name, "saxpy");
    assert_eq!(kernel.docs, ["y[i] += a * x[i]", "  in any order"]);
    assert!(kernel.strided && kernel.contract.safe);
    let types: Vec<_> = kernel.params.iter().map(|p| (p.name.as_str(), p.ty.clone())).collect();
    assert_eq!(
        types,
        [
            ("a", ParamType::Value(ValueType::Scalar(Scalar::F32))),
            ("x", pointer(Scalar::F32, false)),
            ("y", pointer(Scalar::F32, true)),
            ("n", ParamType::Value(ValueType::Scalar(Scalar::Usize))),
        ]
    );
    assert_eq!(kernel.param_table(), [(0, 4), (8, 8), (16, 8), (24, 8)]);
    let clauses: Vec<_> = kernel.contract.requires.iter().map(|c| c.text.as_str()).collect();
    assert_eq!(clauses, ["n <= len(x)", "n <= len(y)"]);
    assert_eq!(kernel.contract.covers.as_ref().map(|c| c.extents.clone()), Some(vec![Expr::Param(3)]));
}

#[test]
fn kernels_in_every_usual_dress() {
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
    assert_eq!(module.kernels[0].max_threads, Some(256));
    assert_eq!(module.kernels[1].max_threads, Some(128));
    assert!(module.kernels[1].params.is_empty());
    assert_eq!(module.kernels[2].docs, ["Inside."]);
    assert_eq!(module.kernels[2].params[0].name, "arg0");
    assert!(!module.kernels[4].contract.safe);
}

#[test]
fn scalars_and_pointers() {
    for (text, expected) in [
        ("const float* x", pointer(Scalar::F32, false)),
        ("float const* const __restrict__ x", pointer(Scalar::F32, false)),
        ("float* const x", pointer(Scalar::F32, true)),
        ("volatile unsigned* x", volatile(true)),
        ("const volatile unsigned int* x", volatile(false)),
        ("unsigned* volatile x", pointer(Scalar::U32, true)),
        ("unsigned char* __restrict x", pointer(Scalar::U8, true)),
        ("std::size_t x", ParamType::Value(ValueType::Scalar(Scalar::Usize))),
        ("const long long x", ParamType::Value(ValueType::Scalar(Scalar::I64))),
        ("unsigned long long int x", ParamType::Value(ValueType::Scalar(Scalar::U64))),
        ("gs::half x", ParamType::Value(ValueType::Scalar(Scalar::F16))),
        ("const gs::bfloat16* x", pointer(Scalar::Bf16, false)),
        ("gs::u64* x", pointer(Scalar::U64, true)),
        ("__nv_bfloat16* x", pointer(Scalar::Bf16, true)),
        ("bool x", ParamType::Value(ValueType::Scalar(Scalar::Bool))),
        ("uint8_t x", ParamType::Value(ValueType::Scalar(Scalar::U8))),
        ("float4 x", ParamType::Value(ValueType::Vector { lane: Scalar::F32, lanes: 4, align: 16 })),
        ("double3 x", ParamType::Value(ValueType::Vector { lane: Scalar::F64, lanes: 3, align: 8 })),
    ] {
        assert_eq!(param(text), expected, "{text}");
    }
}

#[test]
fn structs_and_aliases() {
    let module = read(
        r#"
using real = float;
typedef real scalar_t;
/// A particle.
struct Particle {
    /// Where.
    float position[3];
    scalar_t mass;
    int tag, group[2][3];
    int sum() const { return tag; }
};
typedef struct { double x; } Point;
struct alignas(16) Wide { float4 v; };
struct Unused { void* p; };
extern "C" __global__ void k(const Particle p, const Point* q, real r, struct Wide w) {}
"#,
    );
    let names: Vec<_> = module.structs.iter().map(|s| (s.name.as_str(), s.size, s.align)).collect();
    assert_eq!(names, [("Particle", 44, 4), ("Point", 8, 8), ("Wide", 16, 16)]);
    assert_eq!(module.structs[0].docs, ["A particle."]);
    let fields: Vec<_> = module.structs[0]
        .fields
        .iter()
        .map(|f| (f.name.as_str(), f.extents.clone(), f.offset, f.docs.clone()))
        .collect();
    assert_eq!(
        fields,
        [
            ("position", vec![3], 0, vec!["Where.".to_owned()]),
            ("mass", vec![], 12, vec![]),
            ("tag", vec![], 16, vec![]),
            ("group", vec![2, 3], 20, vec![]),
        ]
    );
    assert_eq!(module.kernels[0].param_table(), [(0, 44), (48, 8), (56, 4), (64, 16)]);
}

#[test]
fn strided_is_found_through_helpers() {
    let source = SourceFile::new(
        "k.cu",
        r#"
template <typename T> __device__ void inner(T* x, size_t n) { GS_FOR_EACH_WIDE(i, n) { x[i] = 0; } }
template <typename T> __device__ void outer(T* x, size_t n) { inner(x, n); }
extern "C" __global__ void direct(float* x, size_t n) { GS_FOR_EACH(i, n) { x[i] = 0; } }
extern "C" __global__ void through(float* x, size_t n) { outer<float>(x, n); }
extern "C" __global__ void header(float* x, size_t n) { mine::from_header(x, n); }
extern "C" __global__ void guarded(float* x, size_t n) { /* GS_FOR_EACH */ size_t i = threadIdx.x; if (i < n) x[i] = 0; }
"#,
    );
    let helper = "namespace mine { inline __device__ void from_header(float* x, size_t n) \
                  { GS_FOR_EACH(i, n) { x[i] = 0; } } }";
    let module = parse(&source, &[helper.to_owned()]).unwrap();
    let strided: Vec<_> = module.kernels.iter().map(|k| (k.name.as_str(), k.strided)).collect();
    assert_eq!(strided, [("direct", true), ("through", true), ("header", true), ("guarded", false)]);
}

#[test]
fn dynamic_shared_arrays() {
    let module = read(
        r#"
template <typename T> __device__ T* tile() { extern __shared__ __align__(16) unsigned char bytes[]; return (T*)bytes; }
extern "C" __global__ void a() { extern __shared__ float tile_f[]; __shared__ float fixed[4]; }
extern "C" __global__ void b() { extern __shared__ float tile_f[]; }
"#,
    );
    assert_eq!(module.dynamic_shared, ["bytes", "tile_f"]);
}

#[test]
fn docs_become_no_doc_tests() {
    let module = read(
        "/// Text.\n///     indented by four\n/// ```\n///     code();\n/// ```\n///\nextern \"C\" __global__ void k() {}\n",
    );
    assert_eq!(module.kernels[0].docs, ["Text.", "   indented by four", "```text", "    code();", "```"]);
}

#[test]
fn kernels_that_have_no_name_to_find() {
    refused(
        "template <typename T>\n__global__ void k(T* x) {}\n",
        "2:17",
        &["kernel `k` is a template", "`extern \"C\"` kernel per type", "__global__ void k_f32(float* x"],
    );
    refused(
        "__global__ void k(int x) {}",
        "1:1",
        &["not `extern \"C\"`", "write `extern \"C\" __global__ void k(…)`"],
    );
    refused("extern \"C++\" __global__ void k(int x) {}", "1:14", &["not `extern \"C\"`"]);
    refused(
        "namespace a {\nextern \"C\" __global__ void k() {}\n}",
        "2:28",
        &["stands in a namespace", "move it out"],
    );
    refused("struct A {\n  static __global__ void k() {}\n};", "2:26", &["member of a class"]);
    refused(
        "#ifdef FOO\nextern \"C\" __global__ void k() {}\n#endif",
        "2:28",
        &["stands in an #if", "into the kernel's body"],
    );
    refused(
        "#define K(name) extern \"C\" __global__ void name(float* x) {}\nK(a)\n",
        "1:28",
        &["made by a macro", "write each kernel out"],
    );
    refused("extern \"C\" __global__ int k(int x) { return x; }", "1:23", &["does not return void"]);
    refused("extern \"C\" __global__ void* k(int x) { return 0; }", "1:23", &["does not return void"]);
    refused("extern \"C\" __global__ void load(int x) {}", "1:28", &["own `load`", "rename"]);
    refused("int x;\n", "1:1", &["no kernel in this file", "extern \"C\" __global__ void"]);
}

#[test]
fn include_guards_are_no_condition() {
    read("#ifndef A_CU\n#define A_CU\nextern \"C\" __global__ void k() {}\n#endif\n");
}

#[test]
fn names_that_collide() {
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
fn parameters_the_host_cannot_pass() {
    let at = |declaration: &str| format!("extern \"C\" __global__ void k(int n, {declaration}) {{}}");
    for (declaration, position, parts) in [
        ("float& r", "1:37", &["`r` is a reference", "write `float* r`"][..]),
        ("const float& r", "1:37", &["`r` is a reference"]),
        ("float&& r", "1:37", &["reference"]),
        ("float m[4]", "1:37", &["written as an array", "write `float* m`"]),
        ("float** p", "1:37", &["pointer to a pointer"]),
        ("void (*f)(int)", "1:37", &["a function"]),
        ("void* p", "1:37", &["points to void", "`unsigned char* p`"]),
        ("bool* p", "1:37", &["neither true nor false", "`unsigned char* p`"]),
        ("char c", "1:37", &["signed on some systems", "signed char"]),
        ("const char* c", "1:43", &["signed on some systems"]),
        ("long double d", "1:37", &["no `long double`"]),
        ("Unknown u", "1:37", &["unknown type `Unknown`", "declared in this file"]),
        ("std::vector<float> v", "1:37", &["is a template"]),
        ("std::string s", "1:37", &["unknown type"]),
        ("auto a", "1:37", &["deduced type"]),
        ("enum E e", "1:37", &["an enum"]),
        ("...", "1:37", &["variable number"]),
    ] {
        refused(&at(declaration), position, parts);
    }
}

#[test]
fn structs_rust_cannot_hold() {
    let at = |body: &str| format!("struct S {{ {body} }};\nextern \"C\" __global__ void k(S s) {{}}");
    for (body, position, parts) in [
        ("float* p;", "1:12", &["holds a pointer", "parameter of its own"][..]),
        ("char c;", "1:12", &["signed on some systems"]),
        ("uint8_t b; int i;", "1:23", &["3 bytes of padding before `i`", "large to small"]),
        ("int i; uint8_t b;", "1:8", &["ends with 3 bytes of padding", "add members"]),
        ("bool b;", "1:12", &["neither true nor false", "unsigned char"]),
        ("int a : 3;", "1:12", &["bit field"]),
        ("int a[N];", "1:16", &["length as a number"]),
        ("Other o;", "1:12", &["unknown type `Other`"]),
        ("S s;", "1:12", &["refers to itself"]),
        ("", "1:1", &["no members"]),
    ] {
        refused(&at(body), position, parts);
    }
    let inherits = "struct B { int a; };\nstruct S : B { int b; };\nextern \"C\" __global__ void k(S s) {}";
    refused(inherits, "2:10", &["inherits"]);
}

#[test]
fn too_many_parameters() {
    let list = |n: usize| (0..n).map(|i| format!("int p{i}")).collect::<Vec<_>>().join(", ");
    let text = |n| format!("extern \"C\" __global__ void k({}) {{}}", list(n));
    assert_eq!(read(&text(64)).kernels[0].params.len(), 64);
    let errors = errors(&text(65));
    assert_eq!(errors.len(), 1);
    assert!(errors[0].contains("65 parameters; the most is 64"), "{errors:?}");
}

/// A kernel with this contract line; the line is the first of the file.
fn with_contract(line: &str) -> String {
    format!(
        "/// {line}\nextern \"C\" __global__ void k(int n, const float* x, float a, unsigned w, unsigned h) {{}}"
    )
}

#[test]
fn contracts_that_say_nothing_sensible() {
    for (line, position, parts) in [
        ("requires: m <= len(x)", "1:15", &["`m` is not a parameter of kernel `k`", "n, len(x), w, h"][..]),
        ("requires: n <= len(y)", "1:24", &["`y` is not a parameter"]),
        ("requires: n <= len(n)", "1:24", &["not a pointer", "`n` alone"]),
        ("requires: n <= x", "1:20", &["`x` is a pointer", "len(x)"]),
        ("requires: a <= 1", "1:15", &["not an integer"]),
        ("requires: 1 < 2", "1:15", &["names no parameter"]),
        ("requires: n", "1:15", &["comparison is missing"]),
        ("requires: n = 1", "1:17", &["`=` is no comparison", "`==`"]),
        ("requires: 0 <= n < 4", "1:22", &["cannot be chained", "two conditions"]),
        ("requires: n < 4 && n > 1", "1:21", &["no && and ||", "commas"]),
        ("requires: n <= (w + h", "1:25", &["expected `)`"]),
        ("requires: n <=", "1:18", &["expression is missing"]),
        ("requires: n <= len", "1:20", &["len(pointer)"]),
        ("requires: grid.w == 1", "1:15", &["`grid` has three parts", "grid.x"]),
        ("requires: n <= 12abc", "1:20", &["not an integer"]),
        ("requires: n @ 4", "1:17", &["not part of a contract's language"]),
        ("requires: n <= 4 5", "1:22", &["expected `,`"]),
        ("requires:", "1:14", &["empty `requires:`", "requires: nothing"]),
        ("Requires: n <= 4", "1:13", &["looks like a contract line", "lower case"]),
        ("require: n <= 4", "1:12", &["looks like a contract line"]),
        ("- requires: n <= 4", "1:15", &["looks like a contract line"]),
        ("**requires**: n <= 4", "1:14", &["looks like a contract line"]),
        ("requires\u{ff1a} n <= 4", "1:12", &["looks like a contract line"]),
        ("requires n <= 4", "1:12", &["looks like a contract line"]),
        ("requires: n <= 010", "1:20", &["`010` is octal in C++"]),
        ("covers: m", "1:13", &["`m` is not a parameter"]),
        ("covers: w, h", "1:12", &["needs a block shape", "by 16, 16"]),
        ("covers: w, h by 16", "1:21", &["1 dimensions, the covered range 2"]),
        ("covers: w, h by 64, 64", "1:21", &["a block of 4096 threads"]),
        ("covers: w, h by 0, 4", "1:21", &["`0` is no block size"]),
        ("covers: n * grid.x", "1:12", &["cannot depend on the launch"]),
        ("covers: w, h, n, w by 1, 1, 1, 1", "1:12", &["4 extents"]),
    ] {
        refused(&with_contract(line), position, parts);
    }
    refused(
        "/// covers: n\n/// covers: n\nextern \"C\" __global__ void k(int n) {}",
        "2:12",
        &["second `covers:`"],
    );
}

#[test]
fn a_contract_goes_on_to_the_end_of_its_comment() {
    let clauses = |text: &str| {
        let kernel = &read(text).kernels[0];
        let clauses: Vec<_> = kernel.contract.requires.iter().map(|c| c.text.clone()).collect();
        (clauses, kernel.contract.covers.as_ref().map(|c| c.text.clone()))
    };
    let kernel = "extern \"C\" __global__ void k(const float* x, float* y, size_t n, size_t m) {}";
    let both = vec!["n <= len(x)".to_owned(), "n * 2 <= len(y)".to_owned()];
    for (comment, covers) in [
        ("/// Docs.\n/// requires: n <= len(x),\n///   n * 2 <= len(y)\n/// covers: n\n", Some("n")),
        ("/// requires: n <=\n///\n/// len(x), n *\n///  2 <= len(y)\n", None),
        (
            "/** é\n * requires: n <= len(x)\n *   , n * 2 <= len(y)\n * covers: n,\n *  m by 8,\n * 8\n */\n",
            Some("n, m by 8, 8"),
        ),
        ("/// requires:\n///   n <= len(x), n\n/// * 2 <= len(y)\n", None),
    ] {
        assert_eq!(
            clauses(&format!("{comment}{kernel}")),
            (both.clone(), covers.map(str::to_owned)),
            "{comment}"
        );
    }
    for (comment, position, part) in [
        ("/// requires: n <= len(x)\n///   and n <= len(y)\n", "2:7", "expected `,`"),
        ("/// requires: n <= len(x)\n/// n <= len(y)\n", "2:5", "expected `,`"),
        ("/// requires: n <= len(x), n <= len(y)\n///\n/// Nothing else.\n", "3:5", "expected `,`"),
        ("/// requires: nothing\n///   n <= len(x)\n", "1:15", "`nothing` is not a parameter"),
        ("/// covers: n\n/// n <= len(y)\n", "2:5", "expected `,`"),
        ("/// requires: n <= len(x) \\\n n <= len(y)\n", "1:27", "not part of a contract's language"),
    ] {
        refused(&format!("{comment}{kernel}"), position, &[part]);
    }
    let docs = read("/// One.\n///\n/// requires: nothing\nextern \"C\" __global__ void k() {}").kernels[0]
        .docs
        .clone();
    assert_eq!(docs, ["One."]);
    let declared = "/// requires: n <= 4\nextern \"C\" __global__ void k(int n);\nextern \"C\" __global__ void k(int n) {}";
    refused(declared, "1:14", &["above a declaration", "definition"]);
}

#[test]
fn a_safe_kernel_says_how_long_its_memory_must_be() {
    let text = |contract: &str| {
        format!(
            "/// requires: {contract}\nextern \"C\" __global__ void k(const float* x, float* y, int n) {{}}"
        )
    };
    for enough in [
        "n <= len(x), n <= len(y)",
        "len(x) >= n, len(y) > n",
        "len(x) == n, n == len(y)",
        "n < len(x) / 2, n + 4 <= 3 * len(y) - 1",
        "n - len(x) <= 0, -len(y) <= -n",
        "n <= len(x) + len(y)",
        "0 <= len(x), 0 <= len(y)",
    ] {
        assert!(read(&text(enough)).kernels[0].contract.safe, "{enough}");
    }
    for (little, position, pointer) in [
        ("n <= len(x)", "2:46", "y"),
        ("n <= len(y)", "2:30", "x"),
        ("n <= len(x), len(y) <= n", "2:46", "y"),
        ("n <= len(x), len(y) != n", "2:46", "y"),
        ("n <= len(x), n <= 100 - len(y)", "2:46", "y"),
        ("n <= len(x), n <= 100 / len(y)", "2:46", "y"),
        ("n <= len(x), n <= len(y) % 8", "2:46", "y"),
    ] {
        refused(&text(little), position, &[&format!("how long `{pointer}` must be"), "unsafe fn"]);
    }
    assert_eq!(errors(&text("nothing")).len(), 2);
    assert!(!read("extern \"C\" __global__ void k(float* y) {}").kernels[0].contract.safe);
}

#[test]
fn a_safe_kernel_says_how_much_shared_memory_it_needs() {
    let text = |contract: &str| {
        format!(
            "__device__ float* tile() {{ extern __shared__ float tile_of_all[]; return tile_of_all; }}\n\
             /// requires: {contract}\nextern \"C\" __global__ void k(int n) {{ tile()[threadIdx.x] = n; }}\n\
             /// requires: nothing\nextern \"C\" __global__ void other(int n) {{}}"
        )
    };
    for enough in ["4 * block.x <= shared", "shared == 4 * n", "0 <= shared"] {
        assert!(read(&text(enough)).kernels[0].contract.safe, "{enough}");
    }
    for little in ["nothing", "block.x <= 32", "shared <= 4096", "shared != 0"] {
        refused(&text(little), "3:28", &["how much dynamic shared memory `tile_of_all`", "unsafe fn"]);
    }
    let without = "extern \"C\" __global__ void k() { extern __shared__ float t[]; t[0] = 1; }";
    assert!(!read(without).kernels[0].contract.safe);
}

#[test]
fn a_contract_in_two_kinds_of_comment_is_refused() {
    let kernel = "/// requires: n <= 4\nextern \"C\" __global__ void k(int n) {}";
    for (comment, position) in [
        ("// requires: 0 <= n\n", "1:4"),
        ("// requires: 0 <= n\n// as said\n", "1:4"),
        ("//! requires: 0 <= n\n", "1:5"),
        ("/*! requires: 0 <= n */\n", "1:5"),
        ("/* For all:\n * requires: 0 <= n\n */\n", "2:4"),
    ] {
        refused(&format!("{comment}{kernel}"), position, &["ordinary comment", "`///`"]);
    }
    for apart in ["// requires: 0 <= n\n\n", "// It requires: little.\n"] {
        assert!(read(&format!("{apart}{kernel}")).kernels[0].contract.safe);
    }
}

#[test]
fn a_barrier_of_the_grid_makes_its_kernel_cooperative() {
    const USES: [&str; 9] = [
        "extern \"C\" __global__ void k(unsigned* a) { gs::grid_barrier(a); }",
        "namespace { __device__ void meet(unsigned* a) { grid_barrier(a); }\n__device__ void go(unsigned* a) { meet(a); } }\n\
         extern \"C\" __global__ void k(unsigned* a) { go(a); }",
        "#define MEET(a) gs::grid_barrier(a)\nextern \"C\" __global__ void k(unsigned* a) { MEET(a); }",
        "struct Meet { unsigned* a; __device__ void operator()() const { gs::grid_barrier(a); } };\n\
         extern \"C\" __global__ void k(unsigned* a) { Meet{a}(); }",
        "static const auto meet = [](unsigned* a) { gs::grid_barrier(a); };\nextern \"C\" __global__ void k(unsigned* a) { meet(a); }",
        "extern \"C\" __global__ void k(unsigned* a) { cooperative_groups::this_grid().sync(); }",
        "extern \"C\" __global__ void k(unsigned* a) { auto g = cg::this_grid(); cg::sync(g); }",
        "__device__ void f(cg::grid_group g) { g.sync(); }\nextern \"C\" __global__ void k(unsigned* a) { f(make()); }",
        "extern \"C\" __global__ void k(unsigned* a) { mine::meet(a); }",
    ];
    let header =
        "namespace mine { inline __device__ void meet(unsigned* a) { gs::grid_barrier(a); } }".to_owned();
    for text in USES {
        let with = |contract: &str| {
            let at = text.find("extern").unwrap();
            let text = format!("{}/// requires: {contract}\n{}", &text[..at], &text[at..]);
            parse(&SourceFile::new("k.cu", text), std::slice::from_ref(&header))
        };
        let module = with("1 <= len(a)").unwrap();
        assert!(module.kernels[0].contract.cooperative, "{text}");
        assert!(module.warnings[0].contains("barrier of the whole grid"), "{:?}", module.warnings);
        assert!(module.warnings[0].contains("`requires: cooperative, …`"), "{:?}", module.warnings);
        let module = with("cooperative, 1 <= len(a)").unwrap();
        assert!(module.warnings.is_empty());
        assert!(module.kernels[0].contract.cooperative && module.kernels[0].contract.requires.len() == 1);
        let unsafe_one = parse(&SourceFile::new("k.cu", text), std::slice::from_ref(&header)).unwrap();
        assert!(!unsafe_one.kernels[0].contract.safe);
    }
    let none = "__device__ void meet(unsigned* a) { gs::grid_barrier(a); }\n/// requires: 1 <= len(a)\n\
                extern \"C\" __global__ void k(unsigned* a) { cg::this_thread_block().sync(); /* grid_barrier */ }";
    assert!(!read(none).kernels[0].contract.cooperative);
    let parameter =
        read("/// requires: cooperative <= 4\nextern \"C\" __global__ void k(int cooperative) {}");
    assert!(!parameter.kernels[0].contract.cooperative);
}

#[test]
fn types_that_depend_on_the_compiler_are_refused() {
    let two = "#ifdef __CUDACC__\ntypedef double real;\n#else\ntypedef float real;\n#endif\n\
               extern \"C\" __global__ void k(real* p) {}";
    refused(two, "6:30", &["`real` is declared more than once", "on line 4", "declare it once"]);
    let structs = "#if A\nstruct S { int a; };\n#else\nstruct S { float a; };\n#endif\n\
                   extern \"C\" __global__ void k(struct S s) {}";
    refused(structs, "6:37", &["`S` is declared more than once"]);
    read("typedef float real;\ntypedef float real;\nextern \"C\" __global__ void k(real* p) {}");
    refused(
        "typedef bool flag;\nextern \"C\" __global__ void k(flag* p) {}",
        "2:30",
        &["neither true nor false"],
    );
    refused(
        "/// requires: 1 <= len(p)\nextern \"C\" __global__ void k(volatile int* __restrict__ p) {}",
        "2:30",
        &["volatile and restrict"],
    );
    refused(
        "/// covers: n by 256\nextern \"C\" __global__ void __launch_bounds__(128) k(int n) {}",
        "2:51",
        &["blocks of 256 threads", "at most 128"],
    );
}

#[test]
fn a_contract_above_no_kernel_is_refused() {
    for gap in ["\n", "// why\n", "__device__ int f() { return 1; }\n"] {
        let text = format!("/// requires: n <= 4\n{gap}extern \"C\" __global__ void k(int n) {{}}");
        refused(&text, "1:4", &["stands above no kernel", "directly above"]);
    }
}

#[test]
fn contract_expressions() {
    let clause = |line: &str| {
        let module = read(&with_contract(&format!("requires: {line}, 0 <= len(x)")));
        let clause = &module.kernels[0].contract.requires[0];
        format!("{:?} {} {:?}", clause.left, clause.comparison, clause.right)
    };
    let text = clause("(n + 1) * 2 - w / 3 % 4 >= -len(x)");
    assert_eq!(
        text,
        "Binary(Subtract, Binary(Multiply, Binary(Add, Param(0), Literal(1)), Literal(2)), Binary(Remainder, \
         Binary(Divide, Param(3), Literal(3)), Literal(4))) >= Negate(Len(1))"
    );
    assert_eq!(clause("block.y == 0x10"), "Launch(Block(1)) == Literal(16)");
    assert_eq!(
        clause("shared >= 4 * block.x"),
        "Launch(Shared) >= Binary(Multiply, Literal(4), Launch(Block(0)))"
    );
    let module = read("/// requires: shared <= 4\nextern \"C\" __global__ void k(int shared) {}");
    assert_eq!(module.kernels[0].contract.requires[0].left, Expr::Param(0));
    assert!(!matches!(module.kernels[0].contract.requires[0].left, Expr::Launch(LaunchValue::Shared)));
    let module = read(&with_contract("covers: w, h by 32, 8"));
    assert_eq!(module.kernels[0].contract.covers.as_ref().unwrap().block, Some(vec![32, 8]));
    assert_eq!(module.kernels[0].usual_block(), 256);
}

#[test]
fn every_error_of_a_file_is_reported_in_order() {
    let text = r#"/// requires: n <= len(z)
extern "C" __global__ void a(float& r, int n) {}
__global__ void b(Unknown u) {}
/// requires: r <= 4
extern "C" __global__ void c(float& r) {}
"#;
    let positions: Vec<_> =
        errors(text).iter().map(|e| e.splitn(3, ':').take(2).collect::<Vec<_>>().join(":")).collect();
    // The last contract names a parameter that was refused: one error is enough for it.
    assert_eq!(positions, ["1:24", "2:30", "3:1", "3:19", "5:30"]);
}

#[test]
fn broken_text_around_a_kernel_is_no_silent_loss() {
    let errors = errors("int f( { \nextern \"C\" __global__ void k(int n) {}\n");
    assert!(errors.iter().any(|e| e.contains("cannot be read")), "{errors:#?}");
}

#[test]
fn file_names_must_be_identifiers() {
    let error = parse(&SourceFile::new("kernels/my-kernel.cu", ""), &[]).unwrap_err().to_string();
    assert!(error.contains("my_kernel.cu"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_comment_ends_in_an_answer(comment: String) {
        let text = format!("/// {comment}\nextern \"C\" __global__ void k(const float* x, int n) {{}}\n/** {comment}");
        let _ = parse(&SourceFile::new("k.cu", text), &[]);
    }

    #[test]
    fn any_words_end_in_an_answer(
        words in prop::collection::vec(
            prop::sample::select(vec![
                "extern \"C\" __global__ void ", "k", "(", ")", "{", "}", "float", "* ", "x", ", ", "int ", "n", "\n",
                "/// requires: ", "/// covers: ", "/// ", "/** ", " */", "/*", "n <= len(x)", "cooperative", " by 16",
                "#define ", "#ifdef A\n", "#endif\n", "struct S", ";", "typedef ", "const ", "volatile ", "<", ">", "é",
                "template <class T> ", "namespace ", "gs::grid_barrier", "\\", "\"", "\r", "bool ", "[2]", "=",
            ]),
            0..60,
        ),
    ) {
        let text = words.concat();
        let _ = parse(&SourceFile::new("k.cu", text.clone()), &[]);
        let _ = parse(&SourceFile::new("k.cu", "extern \"C\" __global__ void f() {}\n"), &[text]);
    }
}
