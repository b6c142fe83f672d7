//! The comments on a kernel: its documentation and its contract.

use super::*;

#[test]
fn a_kernel_keeps_its_docs_and_contract() {
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
            ("a", value(Scalar::F32)),
            ("x", pointer(Scalar::F32, false)),
            ("y", pointer(Scalar::F32, true)),
            ("n", value(Scalar::Usize)),
        ]
    );
    assert_eq!(kernel.instances[0].param_table(), [(0, 4), (8, 8), (16, 8), (24, 8)]);
    let clauses: Vec<_> = kernel.contract.requires.iter().map(|c| c.text.as_str()).collect();
    assert_eq!(clauses, ["n <= len(x)", "n <= len(y)"]);
    assert_eq!(kernel.contract.covers.as_ref().map(|c| c.extents.clone()), Some(vec![Expr::Param(3)]));
}

#[test]
fn docs_become_no_doc_tests() {
    let module = read(
        "/// Text.\n///     indented by four\n/// ```\n///     code();\n/// ```\n///\nextern \"C\" __global__ void k() {}\n",
    );
    assert_eq!(module.kernels[0].docs, ["Text.", "   indented by four", "```text", "    code();", "```"]);
}

/// Returns a kernel with this contract line, which is the first line of the file.
fn with_contract(line: &str) -> String {
    format!(
        "/// {line}\nextern \"C\" __global__ void k(int n, const float* x, float a, unsigned w, unsigned h) {{}}"
    )
}

#[test]
fn contracts_that_say_nothing_sensible_are_refused() {
    for (line, position, parts) in [
        ("requires: m <= len(x)", "1:15", &["`m` is not a parameter of kernel `k`", "n, len(x), w, h"][..]),
        ("requires: n <= len(y)", "1:24", &["`y` is not a parameter"]),
        ("requires: n <= len(n)", "1:24", &["not a pointer", "`n` without `len`"]),
        ("requires: n <= x", "1:20", &["`x` is a pointer", "len(x)"]),
        ("requires: a <= 1", "1:15", &["not an integer"]),
        ("requires: 1 < 2", "1:15", &["names no parameter"]),
        ("requires: n", "1:15", &["comparison is missing"]),
        ("requires: n = 1", "1:17", &["`=` is not a comparison", "`==`"]),
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
        ("covers: w, h by 0, 4", "1:21", &["`0` is not a block size"]),
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
fn a_contract_above_no_kernel_is_refused() {
    for gap in ["\n", "// why\n", "__device__ int f() { return 1; }\n"] {
        let text = format!("/// requires: n <= 4\n{gap}extern \"C\" __global__ void k(int n) {{}}");
        refused(&text, "1:4", &["is not above a kernel", "directly above"]);
    }
}

#[test]
fn contract_expressions_keep_their_structure() {
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
    assert_eq!(module.kernels[0].usual_block(&module.kernels[0].instances[0]), 256);
}

#[test]
fn pointers_may_be_read_only_and_optional() {
    let at = |lines: &str, params: &str| format!("{lines}\n__global__ void k({params}) {{}}");
    let module = read(&at("/// reads: a, b\n/// optional: b", "float* a, float* b, int n"));
    let contract = &module.kernels[0].contract;
    assert_eq!((&*contract.reads, &*contract.optional, contract.safe), (&[0, 1][..], &[1][..], false));
    let params = "float* a, volatile int* v, int n";
    for (lines, position, part) in [
        ("/// reads: a, c", "1:15", "no parameter `c`"),
        ("/// optional: n", "1:15", "`n` is not a pointer"),
        ("/// optional: v", "1:15", "`v` is volatile"),
        ("/// reads:", "1:11", "no parameter ``"),
        ("/// optional: a\n/// covers: len(a)", "3:19", "`covers:` needs the length of `a`"),
    ] {
        refused(&at(lines, params), position, &[part]);
    }
}

/// Structs, vectors and arrays that a contract may look into.
const STRUCTS: &str = "\
struct Size { int width, height; float scale; };\n\
struct Grid { Size sizes[2]; unsigned char type; dim3 cells; half2 pair; long shape[2][3]; };\n\
union Either { int i; float f; };\n\
template <class T> struct Pair { T first, second; };\n\
enum Mode : int { Off, On };\n\
struct Ref { int* at; int n; };\n\
struct Flags { bool on; char letter; Mode mode; };\n";

fn of_structs(contract: &str, params: &str) -> String {
    format!("{STRUCTS}/// {contract}\n__global__ void k({params}) {{}}")
}

#[test]
fn contracts_compute_with_integers_in_structs() {
    let params = "Grid g, const Size s, dim3 d, Pair<long> p, float* y";
    for (written, rust) in [
        ("s.width", ".width"),
        ("g.sizes[1].height", ".sizes[1].height"),
        ("g . sizes [ 0x1 ] . height", ".sizes[1].height"),
        ("g.type", ".r#type"),
        ("g.cells.z", ".cells[2]"),
        ("g.shape[1][2]", ".shape[1][2]"),
        ("d.x", "[0]"),
        ("p.second", ".second"),
    ] {
        let text =
            of_structs(&format!("requires: 2 * {written} + 1 <= len(y)\n/// covers: {written}"), params);
        let module = read(&text);
        let contract = &module.kernels[0].contract;
        let Some([Expr::Member { rust: found, .. }]) =
            contract.covers.as_ref().map(|covers| &*covers.extents)
        else {
            panic!("{contract:?}");
        };
        assert_eq!(found, rust, "{written}");
        assert!(contract.requires[0].left.values().contains(&&contract.covers.as_ref().unwrap().extents[0]));
    }
    // A parameter's name comes before the launch's values.
    let module = read("struct S { int x; };\n/// requires: grid.x <= 4\n__global__ void k(S grid) {}");
    assert!(matches!(module.kernels[0].contract.requires[0].left, Expr::Member { param: 0, .. }));
    // A launcher without `requires:` may take its shape from a struct with addresses.
    let module = read(&of_structs("covers: r.n", "Ref r"));
    assert!(!module.kernels[0].contract.safe && module.kernels[0].contract.covers.is_some());
}

#[test]
fn errors_point_at_the_member_that_a_contract_cannot_use() {
    let line = STRUCTS.lines().count() + 1;
    let params = "Grid g, Size s, Either u, Flags f, Mode m, Size* p, half2 h, float* y";
    for (contract, column, parts) in [
        ("s.widht <= 4", 17, &["a value of `Size` has no member `widht`", "s.width, s.height"][..]),
        ("s <= 4", 15, &["`s` is not an integer", "s.width, s.height"]),
        ("s.scale <= 4", 17, &["`s.scale` is not an integer", "you can use s.width"]),
        ("f.on == 1", 17, &["`f.on` is not an integer", "contracts compute with"]),
        ("f.letter == 1", 17, &["`f.letter` is not an integer"]),
        ("f.mode == 1", 17, &["`f.mode` is not an integer"]),
        ("g.sizes.width <= 4", 23, &["`g.sizes` is an array", "g.sizes[0]"]),
        ("g.sizes[2].width <= 4", 23, &["`g.sizes` has 2 elements", "below 2"]),
        ("g.sizes[n].width <= 4", 23, &["an element's index is a number"]),
        ("g.sizes[1.width <= 4", 24, &["expected `]`"]),
        ("g.shape[1] <= 4", 23, &["`g.shape[1]` is not an integer", "g.shape[1][0]"]),
        ("g.cells.w <= 4", 23, &["`g.cells` has no member `w`", "g.cells.x, g.cells.y, g.cells.z"]),
        ("g.type.x <= 4", 22, &["`g.type` is not a struct"]),
        ("g.type[0] <= 4", 22, &["`g.type` is not an array"]),
        ("g. <= 4", 18, &["the name of a member is missing"]),
        ("u.i <= 4", 17, &["`Either` is a union"]),
        ("h.x <= 4", 17, &["`h.x` is not an integer", "contracts compute with"]),
        ("m.x <= 4", 17, &["`m` is not a struct"]),
        ("p->width <= 4", 15, &["`p` is a pointer", "pass the struct by value"]),
        ("w <= len(y)", 15, &["`w` is not a parameter", "s.width, s.height, len(p)"]),
    ] {
        let contract = format!("requires: {contract}, 0 <= len(y), 0 <= len(p)");
        refused(&of_structs(&contract, params), &format!("{line}:{column}"), parts);
    }
    // Only the error about the parameter itself.
    let text = of_structs("requires: r.width <= 4, r.size[9].x <= 4", "Size& r");
    assert_eq!(errors(&text).len(), 1, "{:#?}", errors(&text));
    let text = "template <class T> struct Pair { T first; };\n/// requires: p.first <= 4\n/// types: T = int, Pair<int>\n\
                template <class T> __global__ void k(T p) {}";
    assert!(errors(text).iter().all(|e| e.starts_with("2:")), "{:#?}", errors(text));
    let text = "struct A { int n; };\nstruct B { int n; };\n/// types: T = A, B\n/// requires: p.n <= 4\n\
                template <class T> __global__ void k(T p) {}";
    refused(text, "5:38", &["the contract computes with `p`, whose type the template chooses"]);
}
