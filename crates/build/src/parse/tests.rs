//! How we read a file, and every reason to refuse one.

mod bodies;
mod contracts;
mod kernels;
mod templates;
mod types;

use proptest::prelude::*;

use super::{Helper, Script, parse};
use crate::contract::{Expr, LaunchValue};
use crate::diagnostic::{Result, SourceFile};
use crate::headers::Included;
use crate::signature::Module;
use crate::types::{ParamType, Scalar, ValueType};

/// Reads a file with a header `k.cuh` that it may include.
fn with_header(text: &str, header: &str) -> Result<Module> {
    let included =
        ["\"k.cuh\"", "<k.cuh>"].map(|written| Included { by: "k.cu".into(), written: written.to_owned() });
    let header = Helper { source: SourceFile::new("k.cuh", header), included: included.to_vec() };
    parse(&SourceFile::new("k.cu", text), &[header], Script::default())
}

fn parsed(text: &str) -> Result<Module> {
    parse(&SourceFile::new("k.cu", text), &[], Script::default())
}

fn read(text: &str) -> Module {
    parsed(text).unwrap_or_else(|e| panic!("{e}"))
}

/// Returns the errors as `line:column: message | help`.
fn errors(text: &str) -> Vec<String> {
    let Err(error) = parsed(text) else { panic!("accepted:\n{text}") };
    assert!(!error.diagnostics().is_empty(), "{error}");
    let line = |d: &crate::Diagnostic| format!("{}:{}: {} | {}", d.line, d.column, d.message, d.help);
    error.diagnostics().iter().map(line).collect()
}

/// Asserts that there is one error, at `position` (`line:column`), and that its text contains all of `parts`.
#[track_caller]
fn refused(text: &str, position: &str, parts: &[&str]) {
    let errors = errors(text);
    assert_eq!(errors.len(), 1, "{errors:#?}");
    assert!(errors[0].starts_with(&format!("{position}: ")), "wanted {position}: {}", errors[0]);
    for part in parts {
        assert!(errors[0].contains(part), "no `{part}` in {}", errors[0]);
    }
}

fn value(scalar: Scalar) -> ParamType {
    ParamType::Value(ValueType::Scalar(scalar))
}

fn pointer(scalar: Scalar, mutable: bool) -> ParamType {
    ParamType::Pointer { element: ValueType::Scalar(scalar), mutable, volatile: false }
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
    // The last contract names a parameter that was refused. One error is enough for that.
    assert_eq!(positions, ["1:24", "2:30", "3:19", "5:30"]);
}

#[test]
fn broken_text_around_a_kernel_is_no_silent_loss() {
    let errors = errors("int f( { \nextern \"C\" __global__ void k(int n) {}\n");
    assert!(errors.iter().any(|e| e.contains("cannot be read")), "{errors:#?}");
}

#[test]
fn any_file_name_names_a_module() {
    let name = |path: &str| {
        let text = "extern \"C\" __global__ void k() {}\n";
        parse(&SourceFile::new(path, text), &[], Script::default()).unwrap().name
    };
    let names = ["kernels/my-kernel.cu", "3d.cu", "a b.c\"d.cu", "größe.cu"].map(name);
    assert_eq!(names, ["my-kernel", "3d", "a_b_c_d", "größe"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_comment_ends_in_an_answer(comment: String) {
        let text = format!("/// {comment}\nextern \"C\" __global__ void k(const float* x, int n) {{}}\n/** {comment}");
        let _ = parsed(&text);
    }

    #[test]
    fn any_words_end_in_an_answer(
        words in prop::collection::vec(
            prop::sample::select(vec![
                "extern \"C\" __global__ void ", "k", "(", ")", "{", "}", "float", "* ", "x", ", ", "int ", "n", "\n",
                "/// requires: ", "/// covers: ", "/// ", "/** ", " */", "/*", "n <= len(x)", "cooperative", " by 16",
                "#define ", "#ifdef A\n", "#endif\n", "struct S", ";", "typedef ", "const ", "volatile ", "<", ">", "é",
                "template <class T> ", "template ", "/// types: ", "T = float", "<<<1, 2>>>", "namespace ", "gs::grid_barrier", "\\", "\"", "\r", "bool ", "[2]", "=",
            ]),
            0..60,
        ),
    ) {
        let text = words.concat();
        let _ = parsed(&text);
        let _ = with_header("extern \"C\" __global__ void f() {}\n", &text);
    }
}
