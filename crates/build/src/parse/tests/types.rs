//! The types of parameters: their Rust types, and those that Rust cannot pass.

use super::*;

/// Returns the type of the only parameter.
fn param(declaration: &str) -> ParamType {
    let text = format!("extern \"C\" __global__ void k({declaration}) {{}}");
    let module = read(&text);
    assert_eq!(module.kernels[0].params.len(), 1);
    module.kernels[0].params[0].ty.clone()
}

fn volatile(mutable: bool) -> ParamType {
    ParamType::Pointer { element: ValueType::Scalar(Scalar::U32), mutable, volatile: true }
}

#[test]
fn scalars_and_pointers_become_types_of_rust() {
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
fn structs_and_aliases_become_types_of_rust() {
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
    assert_eq!(module.kernels[0].instances[0].param_table(), [(0, 44), (48, 8), (56, 4), (64, 16)]);
}

#[test]
fn parameters_the_host_cannot_pass_are_refused() {
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
fn structs_rust_cannot_hold_are_refused() {
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
