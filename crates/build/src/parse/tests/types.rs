//! The types of parameters: their Rust types, and those that Rust cannot pass.

use super::*;
use crate::definition::{Definition, Struct};

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

fn vector(cpp: &str, lane: Scalar, lanes: usize, align: usize) -> ParamType {
    ParamType::Value(ValueType::Vector { cpp: cpp.to_owned(), lane, lanes, align })
}

fn memory(element: ValueType, mutable: bool) -> ParamType {
    ParamType::Pointer { element, mutable, volatile: false }
}

fn array(element: ValueType, len: usize) -> ValueType {
    ValueType::Array { element: Box::new(element), len }
}

fn structs(module: &Module) -> Vec<&Struct> {
    let structs = module.definitions.iter().filter_map(|definition| match definition {
        Definition::Struct(definition) => Some(definition),
        Definition::Enum(_) => None,
    });
    structs.collect()
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
        ("std::size_t x", value(Scalar::Usize)),
        ("const long long x", value(Scalar::I64)),
        ("unsigned long long int x", value(Scalar::U64)),
        ("gs::half x", value(Scalar::F16)),
        ("const gs::bfloat16* x", pointer(Scalar::Bf16, false)),
        ("gs::u64* x", pointer(Scalar::U64, true)),
        ("__nv_bfloat16* x", pointer(Scalar::Bf16, true)),
        ("bool x", value(Scalar::Bool)),
        ("uint8_t x", value(Scalar::U8)),
        ("float4 x", vector("float4", Scalar::F32, 4, 16)),
        ("double3 x", vector("double3", Scalar::F64, 3, 8)),
        ("ulong2 x", vector("ulong2", Scalar::U64, 2, 16)),
        ("__half2 x", vector("__half2", Scalar::F16, 2, 4)),
        ("__nv_bfloat162 x", vector("__nv_bfloat162", Scalar::Bf16, 2, 4)),
        ("dim3 x", vector("dim3", Scalar::U32, 3, 4)),
        ("char x", value(Scalar::Char)),
        ("const char* x", pointer(Scalar::Char, false)),
        ("bool* x", pointer(Scalar::StoredBool, true)),
        ("clock_t* x", pointer(Scalar::I64, true)),
        ("const int* const __restrict x", pointer(Scalar::I32, false)),
        ("float** x", memory(ValueType::Address, true)),
        ("int**__restrict__ x", memory(ValueType::Address, true)),
        ("const float* const* x", memory(ValueType::Address, false)),
        ("void* x", memory(ValueType::Bytes { unknown: None }, true)),
        ("const void* x", memory(ValueType::Bytes { unknown: None }, false)),
        ("float x[4]", pointer(Scalar::F32, true)),
        ("const float x[]", pointer(Scalar::F32, false)),
        ("float x[][2 * 4]", memory(array(ValueType::Scalar(Scalar::F32), 8), true)),
        ("const float x[][2]", memory(array(ValueType::Scalar(Scalar::F32), 2), false)),
        ("double (*x)[3][4]", memory(array(array(ValueType::Scalar(Scalar::F64), 4), 3), true)),
        (
            "cudaTextureObject_t x",
            ParamType::Value(ValueType::Handle { cpp: "cudaTextureObject_t".to_owned() }),
        ),
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
    let names: Vec<_> = structs(&module).iter().map(|s| (s.name.as_str(), s.size, s.align)).collect();
    assert_eq!(names, [("Particle", 44, 4), ("Point", 8, 8), ("Wide", 16, 16)]);
    assert_eq!(structs(&module)[0].docs, ["A particle."]);
    let fields: Vec<_> = structs(&module)[0]
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

/// Returns the parameter types.
fn types(text: &str) -> Vec<ParamType> {
    read(text).kernels[0].params.iter().map(|param| param.ty.clone()).collect()
}

#[test]
fn names_are_followed_through_typedefs_and_macros() {
    let kernel =
        |types: &str, params: &str| format!("{types}\nextern \"C\" __global__ void k({params}) {{}}");
    let f32 = || pointer(Scalar::F32, true);
    for (text, params, expected) in [
        ("#define real float", "real* x", vec![f32()]),
        ("#define REAL(x) x\n#define real Real\ntypedef float Real;", "real* x", vec![f32()]),
        ("#define word std::uint8_t", "const word* x", vec![pointer(Scalar::U8, false)]),
        ("#define in const float*", "in x", vec![pointer(Scalar::F32, false)]),
        (
            "typedef unsigned int uint, *words;",
            "words x, uint y",
            vec![pointer(Scalar::U32, true), value(Scalar::U32)],
        ),
        ("typedef const float cfloat;", "cfloat* x", vec![pointer(Scalar::F32, false)]),
        (
            "typedef unsigned long long ulong;\nusing std::size_t;",
            "ulong* x, size_t n",
            vec![pointer(Scalar::U64, true), value(Scalar::Usize)],
        ),
        (
            "typedef float vec[3];",
            "vec x, vec* y",
            vec![f32(), memory(array(ValueType::Scalar(Scalar::F32), 3), true)],
        ),
        ("using size_t = std::size_t;", "size_t n", vec![value(Scalar::Usize)]),
        (
            "namespace a { typedef float real; }\nusing namespace a;",
            "real* x, a::real* y",
            vec![f32(), f32()],
        ),
        ("#ifdef DOUBLE\n#define real double\n#else\n#define real float\n#endif", "real* x", vec![f32()]),
        (
            "#define DOUBLE 0\n#if DOUBLE\ntypedef double real;\n#else\ntypedef float real;\n#endif",
            "real* x",
            vec![f32()],
        ),
    ] {
        assert_eq!(types(&kernel(text, params)), expected, "{text}");
    }
    let loops = kernel("#define a b\n#define b a\ntypedef d c; typedef c d;", "a x, c y");
    let errors = errors(&loops);
    assert!(errors.iter().all(|error| error.contains("refers to itself")), "{errors:#?}");
}

#[test]
fn padding_and_alignment_are_those_of_c() {
    let module = read(
        r#"
#define N (1 << 1)
constexpr int M = N + 1;
enum { ROWS = 2, COLUMNS };
struct Inner { char tag; double value; };
typedef struct __align__(16) _Outer {
    struct Deep { short a[N][M]; } deep;
    Inner inner[ROWS * COLUMNS];
    bool good;
    float *next, other;
    float4 wide;
} Outer;
union Both { float f; int i[3]; };
struct __attribute__((aligned(8))) One { int x; };
namespace my { struct One { char c; static const int n = 4; int sum() const { return n; } __device__ One() {} }; }
extern "C" __global__ void k(Outer o, struct _Outer* p, Both b, One one, my::One other) {}
"#,
    );
    let layouts: Vec<_> =
        structs(&module).iter().map(|s| (s.name.as_str(), s.cpp.as_str(), s.size, s.align)).collect();
    assert_eq!(
        layouts,
        [
            ("Deep", "_Outer::Deep", 12, 2),
            ("Inner", "Inner", 16, 8),
            ("Outer", "Outer", 160, 16),
            ("Both", "Both", 12, 4),
            ("One", "One", 8, 8),
            ("my_One", "my::One", 1, 1),
        ]
    );
    assert!(module.warnings.is_empty(), "{:#?}", module.warnings);
    let offsets: Vec<_> = structs(&module)[2].fields.iter().map(|f| (f.name.as_str(), f.offset)).collect();
    assert_eq!(
        offsets,
        [("deep", 0), ("inner", 16), ("good", 112), ("next", 120), ("other", 128), ("wide", 144)]
    );
}

#[test]
fn enums_have_values() {
    let module = read(
        r#"
#define FIRST 3
enum Mode { OFF = FIRST, ON, LAST = ON * 10 };
enum class Small : unsigned char { A, B = 200 };
typedef enum { X = -1 } Anonymous;
struct S { Mode mode; enum Kind { ONE = 1 } kind; };
extern "C" __global__ void k(Mode m, const enum Mode* p, Small s, Anonymous a, S t) {}
"#,
    );
    let enums: Vec<_> = module
        .definitions
        .iter()
        .filter_map(|definition| match definition {
            Definition::Enum(e) => Some((e.cpp.as_str(), e.repr, e.values.iter().map(|v| v.1).collect())),
            Definition::Struct(_) => None,
        })
        .collect();
    assert_eq!(
        enums,
        [
            ("Mode", Scalar::I32, vec![3, 4, 40]),
            ("Small", Scalar::U8, vec![0, 200]),
            ("Anonymous", Scalar::I32, vec![-1]),
            ("S::Kind", Scalar::I32, vec![1]),
        ]
    );
}

#[test]
fn types_come_from_the_users_headers() {
    let header = "#ifndef K_CUH\n#define K_CUH\n#define N 4\n#define real double\n/// A pair.\nstruct Pair { real a[N]; };\n#endif\n";
    let text = "#include \"k.cuh\"\nextern \"C\" __global__ void k(const Pair* p, real r) {}";
    let module = with_header(text, header).unwrap();
    assert_eq!((structs(&module)[0].size, &*structs(&module)[0].docs), (32, &["A pair.".to_owned()][..]));

    let refused = |header: &str, text: &str| {
        let error = with_header(text, header).unwrap_err();
        let diagnostics = error.diagnostics().to_vec();
        assert_eq!(diagnostics.len(), 1, "{diagnostics:#?}");
        diagnostics[0].clone()
    };
    let kernel = "extern \"C\" __global__ void k(S s) {}";
    let wrong = refused("struct S { int a : 3; };\n", &format!("#include \"k.cuh\"\n{kernel}"));
    assert_eq!((wrong.path.to_str(), wrong.line), (Some("k.cuh"), 1), "{wrong}");
    let unknown = refused("", &format!("#include \"k.cuh\"\n#include \"gone.h\"\n{kernel}"));
    for part in ["headers were read: k.cuh", "not found: gone.h", "Kernels::include"] {
        assert!(unknown.help.contains(part), "no `{part}` in {}", unknown.help);
    }
    // If an `#if` leaves out the include, the header declares nothing.
    let unknown =
        refused("struct S { int a; };\n", &format!("#ifdef MORE\n#include \"k.cuh\"\n#endif\n{kernel}"));
    assert!(unknown.message.contains("unknown type"), "{unknown}");
}

#[test]
fn macros_of_the_build_choose_types() {
    let text = "#ifdef DOUBLE\ntypedef double real;\n#else\ntypedef float real;\n#endif\n\
                extern \"C\" __global__ void k(real x[N]) {}";
    let defines = [("DOUBLE", None), ("N", Some("4"))].map(|(n, v)| (n.to_owned(), v.map(str::to_owned)));
    let module =
        parse(&SourceFile::new("k.cu", text), &[], Script { defines: &defines, ..Script::default() })
            .unwrap();
    assert_eq!(module.kernels[0].params[0].ty, pointer(Scalar::F64, true));
    assert!(module.assumed.is_empty());
    let text = text.replace("[N]", "[2]");
    assert_eq!(read(&text).assumed, ["DOUBLE"]);
}

/// A header that we do not read may define such a macro. That is no reason to refuse the file.
#[test]
fn macros_that_change_nothing_may_be_defined() {
    let kernel = "extern \"C\" __global__ void k(int n) {}\n";
    let host = "#ifndef GLX_EXTENSION_NAME\n#error \"no GL\"\nvoid draw();\n#endif\n#if defined(A) && defined(B)\n#error \"both\"\n#endif\n";
    assert!(read(&format!("{host}{kernel}")).assumed.is_empty());
    // Neither one alone changes anything.
    let both = "#if defined(A) && defined(B)\nextern \"C\" __global__ void more(int n) {}\n#endif\n";
    assert_eq!(read(&format!("{both}{kernel}")).assumed, ["A", "B"]);
    let other = format!("#ifdef A\n{kernel}#else\n{}#endif\n", kernel.replace("int n", "float n"));
    assert_eq!(read(&other).assumed, ["A"]);
}

#[test]
fn memory_of_unknown_types_is_bytes_and_said_to_be() {
    let text =
        "template <class T> struct V;\nextern \"C\" __global__ void k(const V<float>* v, curandState* s) {}";
    let module = read(text);
    assert_eq!(module.warnings.len(), 2, "{:#?}", module.warnings);
    assert!(module.warnings[0].contains("k.cu:2:30") && module.warnings[0].contains("is a template"));
    assert!(module.warnings[1].contains("plain bytes for `s`: unknown type `curandState`"));
}

/// An instance of a struct template has the layout of the struct with the arguments filled in.
#[test]
fn instances_of_struct_templates_are_structs() {
    let text = "namespace m { typedef float real; enum Kind { Small = 3 };\n\
                template <class T, int N = 2> struct Vec { typedef T value; value x[N]; static const int n = N; T at(int i); };\n\
                template <class T, Kind K> struct Pair { Vec<T> first; const T* const end; Vec<char, K> last; T** all; };\n\
                extern \"C\" __global__ void k(Vec<real, 2 + 1> v, Pair<double, Small> p, const Vec<float>* memory, Vec<int*> w) {} }";
    let module = read(text);
    let found: Vec<_> = structs(&module).iter().map(|it| (&*it.name, &*it.cpp, it.size)).collect();
    let expected = [
        ("Vec_m_real_3", "m::Vec<m::real, 3>", 12),
        ("Vec_double_2", "m::Vec<double, 2>", 16),
        ("Vec_char_3", "m::Vec<char, 3>", 3),
        ("Pair_double_m_Kind_3", "m::Pair<double, (m::Kind)3>", 40),
        ("Vec_float_2", "m::Vec<float, 2>", 8),
        ("Vec_int_2", "m::Vec<int*, 2>", 16),
    ];
    assert_eq!(found, expected);
    assert_eq!(module.kernels[0].instances[0].param_table(), [(0, 12), (16, 40), (56, 8), (64, 16)]);
    // The same inside a kernel template, for each of its instances.
    let generic = "template <class T> struct Dims { T sizes[4]; };\n\
                   /// types: I = int, long\ntemplate <class I> __global__ void k(const Dims<I>* d, I n) {}";
    let module = read(generic);
    assert!(
        module.warnings[0].contains("plain bytes: `d` has another type in each instance"),
        "{:?}",
        module.warnings
    );
    let one = read(&generic.replace("int, long", "long").replace("const Dims<I>* d", "Dims<I> d"));
    assert_eq!(one.kernels[0].instances[0].param_table(), [(0, 32), (32, 8)]);
}

#[test]
fn struct_templates_that_cannot_be_read_are_refused() {
    let kernel = "extern \"C\" __global__ void k(V<float> v) {}";
    for (declared, why) in [
        (
            "template <class T> struct V { T x; };\ntemplate <> struct V<int> { char x; };\n",
            "a specialisation",
        ),
        ("template <class T> struct V;\n", "`V<float>` is a template"),
        ("template <class T, class... Rest> struct V { T x; };\n", "parameters cannot be read"),
        ("template <class T, int N> struct V { T x[N]; };\n", "with 2 parameters"),
        ("template <class T> class V { T x; };\n", "is private"),
        ("template <class T> struct V { V<T> x; };\n", "refers to itself"),
    ] {
        let errors = errors(&format!("{declared}{kernel}"));
        assert!(errors[0].contains(why), "{declared}: {errors:?}");
    }
    let two = "template <class T> struct V { T x; };\n/// types: T = int, float\ntemplate <class T> __global__ void k(V<T> v) {}";
    assert!(errors(two)[0].contains("another type in each instance"), "{:?}", errors(two));
}

#[test]
fn safe_launchers_take_no_memory_of_unknown_contents() {
    let at = |declaration: &str| {
        format!(
            "struct B {{ bool b; }};\nstruct P {{ int* p; }}; struct T {{ cudaTextureObject_t t; }};\n/// requires: 1 <= n\nextern \"C\" __global__ void k(int n, {declaration}) {{}}"
        )
    };
    for (declaration, part) in [
        ("B b", "`b` has a bool"),
        ("P p", "holds addresses"),
        ("cudaGraphConditionalHandle t", "holds addresses or handles"),
        ("T t", "holds addresses or handles"),
    ] {
        refused(&at(declaration), "4:37", &[part, "unsafe fn"]);
    }
    for object in ["cudaTextureObject_t t", "hipSurfaceObject_t t"] {
        assert!(read(&at(object)).kernels[0].contract.safe, "{object}");
    }
    let at = |declaration: &str| at(declaration).replace("1 <= n", "1 <= len(x)");
    for (declaration, part) in [
        ("float** x", "holds addresses"),
        ("P* x", "holds addresses"),
        ("void* x", "points to void"),
        ("bool* x", "neither true nor false"),
        ("Gone* x", "unknown type `Gone`"),
    ] {
        refused(&at(declaration), "4:37", &[part]);
    }
}

#[test]
fn parameters_the_host_cannot_pass_are_refused() {
    let at = |declaration: &str| format!("extern \"C\" __global__ void k(int n, {declaration}) {{}}");
    for (declaration, position, parts) in [
        ("float& r", "1:37", &["`r` is a reference", "write `float* r`"][..]),
        ("const float& r", "1:37", &["`r` is a reference"]),
        ("float&& r", "1:37", &["reference"]),
        ("void (*f)(int)", "1:37", &["a function"]),
        ("long double d", "1:37", &["no `long double`"]),
        ("Unknown u", "1:37", &["unknown type `Unknown`", "a header of yours declares"]),
        ("std::vector<float> v", "1:37", &["is a template"]),
        ("std::string s", "1:37", &["unknown type"]),
        ("auto a", "1:37", &["deduced type"]),
        ("enum E e", "1:42", &["unknown type `E`"]),
        ("float m[][N]", "1:47", &["the array's length `N` is unknown"]),
        ("...", "1:37", &["variable number"]),
    ] {
        refused(&at(declaration), position, parts);
    }
}

#[test]
fn structs_rust_cannot_hold_are_refused() {
    let at = |body: &str| format!("struct S {{ {body} }};\nextern \"C\" __global__ void k(S s) {{}}");
    for (body, position, parts) in [
        ("int a : 3;", "1:12", &["bit field"][..]),
        ("float& r;", "1:12", &["cannot be bound"]),
        ("struct { int x; };", "1:12", &["cannot be bound"]),
        ("virtual void f(); int a;", "1:12", &["virtual functions"]),
        ("float a[99999999][99999999];", "1:1", &["too large"]),
        ("float a[4294967296][4294967296];", "1:12", &["too large"]),
        ("int a[N];", "1:18", &["length `N` is unknown"]),
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
               extern \"C\" __global__ void k(real p) {}";
    refused(two, "6:30", &["`real` is declared more than once", "on line 4", "declare it once"]);
    let warning = &read(&two.replace("real p", "real* p")).warnings[0];
    assert!(warning.contains("plain bytes for `p`: `real` is declared more than once"), "{warning}");
    let structs = "#if __CUDA_ARCH__\nstruct S { int a; };\n#else\nstruct S { float a; };\n#endif\n\
                   extern \"C\" __global__ void k(struct S s) {}";
    refused(structs, "6:37", &["`S` is declared more than once"]);
    let packed =
        "struct __attribute__((packed)) S { char a; int b; };\nextern \"C\" __global__ void k(S s) {}";
    refused(packed, "1:1", &["packed"]);
    let aligned = "struct alignas(1024) S { int b; };\nextern \"C\" __global__ void k(S s) {}";
    refused(aligned, "1:1", &["alignment `(1024)`", "power of two"]);
    read("typedef float real;\ntypedef float real;\nextern \"C\" __global__ void k(real* p) {}");
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
