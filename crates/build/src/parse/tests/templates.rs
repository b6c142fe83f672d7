//! Kernel templates, and the four ways to ask for instances of them.

use super::*;
use crate::signature::Argument;

/// Returns the names of all functions to compile.
fn keys(text: &str, script: &[&str]) -> Vec<String> {
    let script: Vec<String> = script.iter().map(|&instance| instance.to_owned()).collect();
    let script = Script { instances: &script, ..Script::default() };
    let module = parse(&SourceFile::new("k.cu", text), &[], script).unwrap_or_else(|e| panic!("{e}"));
    module.functions().map(|(kernel, instance)| kernel.key(instance)).collect()
}

#[test]
fn each_choice_of_listed_types_and_numbers_is_an_instance() {
    let text = "/// types: T = float, gs::half, tile = 16,\n///        32\ntemplate <class T, int tile, bool up = false>\n\
                __global__ void k(T* x, T a) {}\n";
    assert_eq!(
        keys(text, &[]),
        ["k<float, 16, false>", "k<float, 32, false>", "k<gs::half, 16, false>", "k<gs::half, 32, false>"]
    );
    let module = read(text);
    let [kernel] = &module.kernels[..] else { panic!("{module:?}") };
    assert_eq!(kernel.generics, [Some(0), Some(0)]);
    let types: Vec<_> = kernel.instances.iter().map(|instance| instance.params[1].clone()).collect();
    let [single, half] = [Scalar::F32, Scalar::F16].map(value);
    assert_eq!(types, [single.clone(), single, half.clone(), half]);
    assert_eq!(kernel.instances[2].param_table(), [(0, 8), (8, 2)]);
}

#[test]
fn parameters_in_parentheses_are_chosen_together() {
    let template =
        "template <class T, int tile, class Sum, bool up = true> __global__ void k(const T* x, Sum* y) {}\n";
    let text = format!(
        "/// types: (T, Sum) = (float, double), (int, int64_t), tile = 8, 16,\n///        (gs::half, float)\n{template}"
    );
    refused(&text, "2:12", &["`(gs::half, float)` for `tile` is not a number"]);
    let text = format!(
        "/// types: (T, Sum) = (float, double),\n///        (int, int64_t), tile = 8, 16\n/// types: ( T,Sum ) = (gs::half, \
         float), (int, int64_t)\n{template}"
    );
    let expected = [
        "k<float, 8, double, true>",
        "k<float, 16, double, true>",
        "k<int, 8, int64_t, true>",
        "k<int, 16, int64_t, true>",
        "k<gs::half, 8, float, true>",
        "k<gs::half, 16, float, true>",
    ];
    assert_eq!(keys(&text, &[]), expected);
    assert_eq!(read(&text).kernels[0].generics, [Some(0), Some(2)]);
    let any_order = "/// types: (Sum, T) = (double, float)\n/// types: tile = 8, up = false\n";
    assert_eq!(keys(&format!("{any_order}{template}"), &[]), ["k<float, 8, double, false>"]);
    let numbers =
        "/// types: (N, M) = (2, 1 + 2), ((4), 8)\ntemplate <int N, int M> __global__ void k(int* x) {}\n";
    assert_eq!(keys(numbers, &[]), ["k<2, 3>", "k<4, 8>"]);
}

#[test]
fn types_that_are_one_in_rust_are_one_instance() {
    let template = "template <class T> __global__ void k(T* x) {}\n";
    let text = format!("/// types: T = long, int, int64_t, long long, signed char, char\n{template}");
    assert_eq!(
        keys(&text, &["k<int8_t>", "k<unsigned>"]),
        ["k<long>", "k<int>", "k<signed char>", "k<unsigned>"]
    );
    let text = format!("/// types: T = long\n{template}template __global__ void k<long long>(long long*);\n");
    let module = read(&text);
    let [only] = &module.kernels[0].instances[..] else { panic!("{module:?}") };
    assert!(!only.written, "the file instantiates another function");
}

#[test]
fn mistakes_in_parentheses_are_said_where_they_stand() {
    let after = |line: &str| {
        format!(
            "/// types: {line}\ntemplate <class T, class Sum> __global__ void k(const T* x, Sum* y) {{}}\n"
        )
    };
    refused(
        &after("(T, Sum) = (float, float), double"),
        "1:39",
        &["`double` is not a choice of 2 for `(T, Sum)`"],
    );
    refused(&after("(T, Sum) = (float)"), "1:23", &["`(float)` is not a choice of 2 for `(T, Sum)`"]);
    refused(
        &after("(T, Sum) = float, double"),
        "1:23",
        &["`float` is not a choice of 2", "(float, double), (int"],
    );
    refused(&after("(T, Acc) = (float, float)"), "1:12", &["no parameter `Acc`"]);
    refused(&after("(T, T) = (float, float)"), "1:12", &["`(T, T)` names `T` twice"]);
    refused(&after("(T) = (float)"), "1:11", &["lists nothing for `Sum`"]);
    refused(
        &after("T = int, (T, Sum) = (float, float)"),
        "1:21",
        &["`T` is listed both alone and together with others"],
    );
    refused(&after("(T, Sum) = "), "1:12", &["without the parameter's name"]);
    refused(&after("(T, Sum) = (float, 7)"), "1:31", &["`7` for `Sum` is not a type"]);
}

#[test]
fn instances_are_asked_for_in_the_file_in_host_code_and_in_the_build_script() {
    let text = "namespace n {\ntemplate <typename T, unsigned N> __global__ void k(T* x) {}\n}\n\
                template __global__ void n::k<float, 0x10>(float*);\n\
                template __global__ void n::k<struct_of_mine, 1'000u>(struct_of_mine*);\n\
                void host() { n::k<double, 16><<<1, 2>>>(x); k<float, 16><<<1, 2>>>(x); n::k<T, M><<<1, 2>>>(y); k<U, 3><<<1, 2>>>(z); }\n";
    let text = format!("struct struct_of_mine {{ int a; }};\n{text}");
    let expected = ["n::k<float, 16>", "n::k<struct_of_mine, 1000>", "n::k<double, 16>", "n::k<int, 3>"];
    assert_eq!(keys(&text, &["k< int, 3 >", "n::k<double, 16>"]), expected);
    let module = read(&text);
    let written: Vec<_> = module.functions().map(|(_, instance)| instance.written).collect();
    assert_eq!(written, [true, true, false]);
}

#[test]
fn launches_name_constants_and_come_in_hips_dress() {
    let text = "#define TILE 8\nconst int wide = 2 * TILE;\ntemplate <class T, int N> __global__ void k(T* x) {}\nint main() {\n    \
                constexpr unsigned int size = 512;\n    k<float, size><<<1, 2>>>(x);\n    k<float, wide><<<1, 2>>>(x);\n    \
                hipLaunchKernelGGL(HIP_KERNEL_NAME(k<int, TILE>), 1, 2, 0, 0, y);\n    \
                hipLaunchKernelGGL(k<int, unknown>, dim3(1), 2, 0, 0, y);\n}\n";
    assert_eq!(keys(text, &[]), ["k<float, 512>", "k<float, 16>", "k<int, 8>"]);
}

/// No macro may change what the name of an instance means.
#[test]
fn instances_have_the_types_that_macros_stand_for() {
    let text = "#define WORD unsigned\n#define REAL Real // of this program\n#define Real double\nstruct Pair { REAL a, b; };\n\
                #define PAIR Pair\ntemplate <class T> __global__ void k(T* x) {}\ntemplate __global__ void k<WORD>(WORD*);\n\
                void host() { k<REAL><<<1, 2>>>(x); k<PAIR><<<1, 2>>>(y); }\n";
    assert_eq!(keys(text, &["k<WORD>"]), ["k<unsigned>", "k<double>", "k<Pair>"]);
}

#[test]
fn templates_may_choose_too() {
    let text = "template <class T> struct Sum {};\ntemplate <class T, template <class> class Op> __global__ void k(T* x) {}\n\
                void host(float* x) { k<float, Sum><<<1, 1>>>(x); }\n";
    assert_eq!(keys(text, &["k<int, Sum>"]), ["k<float, Sum>", "k<int, Sum>"]);
}

#[test]
fn types_that_only_cpp_has_may_choose_but_not_be_passed() {
    let module =
        read("/// types: Op = Sum, T = int\ntemplate <class Op, class T> __global__ void k(T* x) {}\n");
    let unknown = Argument::Type { cpp: "Sum".to_owned(), ty: None };
    assert_eq!(module.kernels[0].instances[0].arguments[0], unknown);
    let module = read("/// types: Op = Sum\ntemplate <class Op> __global__ void k(Op* x) {}\n");
    assert_eq!(module.kernels[0].generics, [None], "bytes, whatever is chosen");
    let errors = errors("/// types: Op = Sum\ntemplate <class Op> __global__ void k(Op x) {}\n");
    assert!(errors.iter().all(|e| e.contains("unknown type `Op`")), "{errors:?}");
}

#[test]
fn a_template_without_instances_has_no_launcher_and_says_so() {
    let text = "template <typename T>\n__global__ void k(T* x) {}\n";
    refused(
        text,
        "2:17",
        &["template that nothing instantiates", "/// types: T = …", ".instantiate(\"k<…>\")"],
    );
    let module = read(&format!("{text}__global__ void other() {{}}\n"));
    assert_eq!(module.kernels.len(), 1);
    assert!(module.warnings[0].starts_with("k.cu:2:17: kernel `k` is a template"), "{:?}", module.warnings);
}

#[test]
fn mistakes_in_instances_are_said_where_they_stand() {
    let template = "template <class T, int N> __global__ void k(T* x) {}\n";
    let after = |line: &str| format!("/// types: {line}\n{template}");
    refused(&after("T = float"), "1:11", &["lists nothing for `N`", "add `N = …`"]);
    refused(&after("T = float, M = 3"), "1:23", &["no parameter `M`"]);
    refused(&after("float"), "1:12", &["without the parameter's name"]);
    refused(&after("T = float, int, N = three"), "1:32", &["`three` for `N` is not a number"]);
    refused(&after("T = 7, N = 3"), "1:16", &["`7` for `T` is not a type"]);
    let safe = format!("/// requires: 1 <= len(x)\n{}", after("T = float, bool, N = 3"));
    refused(&safe, "3:45", &["neither true nor false"]);
    refused(
        &format!("{template}template __global__ void k<float>(float*);\n"),
        "2:1",
        &["does not give all 2 arguments"],
    );
    refused("/// types: T = float\n__global__ void k(float* x) {}\n", "1:11", &["`k` is not a template"]);
    refused(
        "template <class... C> __global__ void k(int* x) {}\n",
        "1:11",
        &["template parameter cannot be read"],
    );
    refused(
        "/// types: T = int, float\n/// requires: n <= len(x)\ntemplate <class T> __global__ void k(int* x, T n) {}\n",
        "3:46",
        &["the contract computes with `n`, whose type the template chooses"],
    );
}
