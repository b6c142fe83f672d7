//! Finds the part of a file that its kernels can reach.
//!
//! Many CUDA files contain kernels together with the host code that launches them. When a host compiler
//! builds kernels for the CPU, it cannot read `<<<…>>>` or the vendor's host interface, and the kernels need
//! neither. So we leave out functions and variables that no device code names. We compare names without
//! scopes or overloads. That is safe, because at worst we keep a function that is not needed.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use tree_sitter::Node;

use super::uses::identifiers;
use super::{
    child_of_kind, children, declarators, declared, descendants, function_name, has_word, is_constant, named,
    preprocess, tree, visit,
};
use crate::diagnostic::{Error, Result, SourceFile};
use crate::names::{is_word, last_name};

/// Words that make a declaration part of the device code.
const DEVICE: [&str; 4] = ["__global__", "__device__", "__constant__", "__managed__"];

/// Prefixes of names in the vendors' host interfaces. A capital letter follows them.
const HOST: [&str; 3] = ["cuda", "hip", "cu"];

/// The same of libraries.
const LIBRARIES: [&str; 18] = [
    "cudnn", "nccl", "nvrtc", "hiprtc", "cublas", "hipblas", "rocblas", "cufft", "curand", "cusolver",
    "cusparse", "npp", "nvtx", "gl", "glut", "glfw", "egl", "vk",
];

/// Returns the text of a file without what only host code needs. Lines and columns do not change. Returns
/// `None` if there is nothing to leave out.
///
/// # Errors
/// A kernel that launches kernels, because only CUDA supports that.
pub(crate) fn device_part(source: &SourceFile) -> Result<Option<String>> {
    let text = &*source.text;
    let tree = tree(&preprocess::readable(text))?;
    let mut launches = Vec::new();
    visit(tree.root_node(), &mut |node| {
        let is_device = node.kind() == "function_definition"
            && DEVICE.iter().any(|word| text[node.byte_range()].contains(word));
        if is_device {
            for launch in descendants(node).filter(|inner| inner.kind() == "kernel_call_syntax") {
                launches.push(source.diagnostic(
                    launch.byte_range(),
                    "a kernel that launches kernels only works with CUDA",
                    "launch from the Rust program, or leave the other backends out for this file",
                ));
            }
        }
        !is_device
    });
    Error::check(launches)?;
    let mut file = Items {
        text,
        list: Vec::new(),
        roots: HashSet::new(),
        kernels: HashSet::new(),
        bodies: Vec::new(),
        instantiations: Vec::new(),
        macros: HashMap::new(),
    };
    file.gather(tree.root_node());
    let (left_out, declared) = file.unreached();
    if left_out.is_empty() && declared.is_empty() {
        return Ok(None);
    }
    let mut rest = text.as_bytes().to_vec();
    for range in left_out {
        blank(&mut rest, beginning(text, range.start)..range.end);
    }
    for body in declared {
        blank(&mut rest, body.clone());
        rest[body.start] = b';';
    }
    // We only replaced whole characters, byte by byte, with spaces.
    Ok(Some(String::from_utf8_lossy(&rest).into_owned()))
}

/// Returns where the declaration at an offset begins. The tree lacks words of ours before it, and if tree-sitter could not
/// read what follows, it may have cut `template <…>` from a function.
fn beginning(text: &str, start: usize) -> usize {
    let before = text[..start].trim_end();
    let ours = ["GS_INLINE", "GS_GROUP"].into_iter().find_map(|word| before.strip_suffix(word));
    if let Some(rest) = ours.filter(|rest| !rest.ends_with(is_word)) {
        return beginning(text, rest.len());
    }
    let line = before.strip_suffix('>').and_then(|_| before.rfind("template"));
    line.filter(|&at| {
        let list = before[at + "template".len()..].trim_start();
        let mut depth = 0;
        let closes = list.char_indices().find(|(_, c)| {
            depth += i32::from(*c == '<') - i32::from(*c == '>');
            depth == 0
        });
        list.starts_with('<') && closes.is_some_and(|(at, _)| at + 1 == list.len())
    })
    .unwrap_or(start)
}

/// Replaces a range with spaces, except for line breaks and directives.
fn blank(text: &mut [u8], range: Range<usize>) {
    let mut directive = false;
    let mut line_start =
        text[..range.start].iter().rev().take_while(|&&b| b != b'\n').all(u8::is_ascii_whitespace);
    for at in range {
        match text[at] {
            b'\n' => {
                directive = directive && at > 0 && text[at - 1] == b'\\';
                line_start = true;
            }
            b'#' if line_start => directive = true,
            _ if directive => {}
            byte => {
                line_start = line_start && byte.is_ascii_whitespace();
                text[at] = b' ';
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A function, or a variable that is not a constant.
    Use,
    /// Anything else. We leave it out only if it needs the vendors' host interfaces.
    Other,
}

/// A declaration outside functions and classes.
struct Item {
    range: Range<usize>,
    kind: Kind,
    names: HashSet<String>,
    /// True for a member that is defined outside of its class, which declares it in any case.
    is_member: bool,
    words: HashSet<String>,
    /// True if it launches kernels, which device code never does.
    launches: bool,
    /// The bodies to leave out if it stays: of functions that call the vendors' host interfaces.
    bodies: Vec<Range<usize>>,
}

struct Items<'a> {
    text: &'a str,
    list: Vec<Item>,
    /// The words in everything that we keep in any case.
    roots: HashSet<String>,
    /// The names of kernels. Device code never calls a kernel, nor a host function of the same name.
    kernels: HashSet<String>,
    /// The bodies to leave out of what we keep in any case.
    bodies: Vec<Range<usize>>,
    /// Explicit instantiations of host templates.
    instantiations: Vec<Range<usize>>,
    /// The words in each macro.
    macros: HashMap<String, HashSet<String>>,
}

impl Items<'_> {
    fn gather(&mut self, node: Node<'_>) {
        match node.kind() {
            "translation_unit"
            | "namespace_definition"
            | "declaration_list"
            | "preproc_if"
            | "preproc_ifdef"
            | "preproc_else"
            | "preproc_elif"
            | "ERROR" => {
                for child in children(node) {
                    self.gather(child);
                }
            }
            "linkage_specification" => match node.child_by_field_name("body") {
                Some(body) if body.kind() == "declaration_list" => self.gather(body),
                Some(body) => self.item(node, body),
                None => {}
            },
            "preproc_def" | "preproc_function_def" => {
                if let Some(name) = node.child_by_field_name("name") {
                    let words = self.macros.entry(self.text[name.byte_range()].to_owned()).or_default();
                    identifiers(self.text, node, words);
                }
            }
            "template_declaration" => {
                // A member of a template may be a template itself.
                let mut inner = node;
                while inner.kind() == "template_declaration"
                    && let Some(child) = named(inner).into_iter().rfind(|child| child.kind() != "comment")
                {
                    inner = child;
                }
                self.item(node, inner);
            }
            "function_definition"
            | "declaration"
            | "template_instantiation"
            | "type_definition"
            | "alias_declaration"
            | "struct_specifier"
            | "class_specifier"
            | "union_specifier"
            | "expression_statement" => {
                self.item(node, node);
            }
            kind if kind.starts_with("preproc") || kind == "comment" => {}
            _ => identifiers(self.text, node, &mut self.roots),
        }
    }

    /// Records a declaration. `inner` is the declaration without its wrappers.
    fn item(&mut self, node: Node<'_>, inner: Node<'_>) {
        let text = &self.text[node.byte_range()];
        if DEVICE.iter().any(|word| text.contains(word)) {
            identifiers(self.text, node, &mut self.roots);
            self.bodies.extend(self.methods_of_libraries(inner));
            if text.contains("__global__") {
                let declarator = inner.child_by_field_name("declarator");
                self.kernels.extend(declarator.map(|declarator| self.name(declarator)));
            }
            return;
        }
        let end = node.next_sibling().filter(|next| next.kind() == ";").unwrap_or(node).end_byte();
        let range = node.start_byte()..end;
        if inner.kind() == "template_instantiation" {
            // What it is for may be left out.
            self.instantiations.push(range);
            return;
        }
        let (mut names, mut words) = (HashSet::new(), HashSet::new());
        identifiers(self.text, node, &mut words);
        let declarators = declarators(inner);
        names.extend(declarators.iter().map(|declarator| self.name(*declarator)));
        names.extend(inner.child_by_field_name("name").map(|name| self.name(name)));
        let defined = inner.child_by_field_name("type").filter(|ty| ty.child_by_field_name("body").is_some());
        if let Some(name) = defined.and_then(|ty| ty.child_by_field_name("name")) {
            names.insert(self.name(name));
        }
        let mut inside = declarators.into_iter().flat_map(descendants);
        let is_operator = inside.any(|node| node.kind() == "operator_name");
        let is_constant = is_constant(self.text, inner);
        let function = inner.kind() == "function_definition" && !is_operator;
        let variable = inner.kind() == "declaration" && !is_constant && !is_operator && defined.is_none();
        let kind = if function || variable { Kind::Use } else { Kind::Other };
        let launches =
            kind == Kind::Use && ["<<<", "hipLaunchKernelGGL"].iter().any(|launch| text.contains(launch));
        let is_member =
            function && function_name(inner).is_some_and(|name| name.kind() == "qualified_identifier");
        let is_emitted = function
            && node == inner
            && !is_member
            && !["static", "inline", "constexpr"].iter().any(|word| has_word(self.text, inner, word));
        let calls_host = |body: &Node<'_>| {
            let mut called = descendants(*body).filter_map(|node| node.child_by_field_name("function"));
            called.any(|function| is_host(&self.text[function.byte_range()]))
        };
        let body = inner.child_by_field_name("body").filter(|body| is_emitted && calls_host(body));
        let mut bodies = self.methods_of_libraries(inner);
        bodies.extend(body.map(|body| body.byte_range()));
        self.list.push(Item { range, kind, names, is_member, words, launches, bodies });
    }

    /// Returns the bodies of the functions in a class that call a vendor's library, with the initialisers before them.
    fn methods_of_libraries(&self, class: Node<'_>) -> Vec<Range<usize>> {
        let mut bodies = Vec::new();
        if !matches!(class.kind(), "struct_specifier" | "class_specifier" | "union_specifier") {
            return bodies;
        }
        visit(class, &mut |node| {
            let body = node.child_by_field_name("body").filter(|_| node.kind() == "function_definition");
            if let Some(body) = body {
                let text = &self.text[node.byte_range()];
                let calls = text.split(|c| !is_word(c)).any(|word| has_prefix(word, &LIBRARIES));
                if calls && !DEVICE.iter().any(|word| text.contains(word)) {
                    let first = child_of_kind(node, "field_initializer_list").unwrap_or(body);
                    bodies.push(first.start_byte()..body.end_byte());
                }
            }
            body.is_none()
        });
        bodies
    }

    /// Returns the name that a declarator declares, without its scope and its template's arguments.
    fn name(&self, declarator: Node<'_>) -> String {
        let name = self.text[declared(declarator).byte_range()].trim();
        // A template's arguments may have scopes too, as in `scope::limits<other::Type>`.
        let mut depth = 0;
        let arguments = name.ends_with('>').then(|| {
            name.rfind(|c| {
                depth += i32::from(c == '>') - i32::from(c == '<');
                depth == 0
            })
        });
        // A destructor belongs to its class, as constructors do.
        last_name(&name[..arguments.flatten().unwrap_or(name.len())])
            .trim()
            .trim_start_matches('~')
            .to_owned()
    }

    /// Returns what to leave out: whole declarations, and the bodies of some functions that stay declared.
    fn unreached(&self) -> (Vec<Range<usize>>, Vec<Range<usize>>) {
        let mut by_name: HashMap<&str, Vec<usize>> = HashMap::new();
        for (index, item) in self.list.iter().enumerate() {
            item.names.iter().for_each(|name| by_name.entry(name).or_default().push(index));
        }
        let (mut reached, mut kept) = (HashSet::new(), vec![false; self.list.len()]);
        let mut new: Vec<&str> = self.roots.iter().map(String::as_str).collect();
        while let Some(word) = new.pop() {
            if !reached.insert(word) {
                continue;
            }
            new.extend(self.macros.get(word).into_iter().flatten().map(String::as_str));
            for &index in by_name.get(word).into_iter().flatten() {
                let item = &self.list[index];
                if item.launches || item.kind == Kind::Use && self.kernels.contains(word) {
                    continue;
                }
                kept[index] = true;
                new.extend(self.list[index].words.iter().map(String::as_str));
            }
        }
        // If we leave out a name, we must also leave out whatever uses it.
        let stays = |item: &Item, kept: bool, gone: &HashSet<&str>| {
            let needs_host = || item.words.iter().any(|word| is_host(word) || gone.contains(&**word));
            kept || item.kind == Kind::Other && !needs_host()
        };
        let mut gone: HashSet<&str> = HashSet::new();
        loop {
            let before = gone.len();
            for (item, &kept) in self.list.iter().zip(&kept) {
                if !item.is_member && !stays(item, kept, &gone) {
                    gone.extend(item.names.iter().map(String::as_str));
                }
            }
            if gone.len() == before {
                break;
            }
        }
        let items = self.list.iter().zip(kept);
        let (stay, leave): (Vec<_>, Vec<_>) = items.partition(|&(item, kept)| stays(item, kept, &gone));
        let leave = leave.into_iter().map(|(item, _)| &item.range).chain(&self.instantiations);
        let bodies = stay.into_iter().flat_map(|(item, _)| &item.bodies).chain(&self.bodies);
        (leave.cloned().collect(), bodies.cloned().collect())
    }
}

/// Returns true if a header has host code that only a vendor's compiler can read with the libraries' own headers: a launch,
/// or names of a library. The CPU knows the names of the run-time interface itself.
pub(crate) fn has_host_code(text: &str) -> bool {
    text.contains("<<<") || text.split(|c| !is_word(c)).any(|word| has_prefix(word, &LIBRARIES))
}

/// Returns true if the name belongs to a vendor's host interface.
fn is_host(word: &str) -> bool {
    has_prefix(word, &HOST) || has_prefix(word, &LIBRARIES)
}

fn has_prefix(word: &str, prefixes: &[&str]) -> bool {
    prefixes.iter().any(|prefix| {
        word.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn rest(text: &str) -> String {
        let rest = device_part(&SourceFile::new("k.cu", text)).unwrap().unwrap_or_else(|| text.to_owned());
        assert_eq!(rest.len(), text.len());
        let lines = rest.lines().map(str::trim_end).filter(|line| !line.is_empty());
        lines.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn host_code_is_left_out() {
        let text = "\
#include <a.h>
#define TWICE(x) twice(x)
struct Timer { cudaEvent_t begin; };
struct Pair { int a, b; };
template <class T> T twice(T x) { return x + x; }
static void check(cudaError_t e) { if (e != cudaSuccess) exit(1); }
const char* usage = \"{ main\";
int width = 3;
__constant__ int table[4];
extern \"C\" __global__ void k(int* x) { x[0] = TWICE(table[0]); }
namespace host {
void run(int* x) {
    Timer t;
#define LATER 1
    k<<<1, LATER>>>(x);
}
}
int main() { check(cudaMalloc(0, 4)); host::run(0); return 0; }
";
        let left = "\
#include <a.h>
#define TWICE(x) twice(x)
struct Pair { int a, b; };
template <class T> T twice(T x) { return x + x; }
const char* usage = \"{ main\";
__constant__ int table[4];
extern \"C\" __global__ void k(int* x) { x[0] = TWICE(table[0]); }
namespace host {
#define LATER 1
}";
        assert_eq!(rest(text), left);
    }

    #[test]
    fn a_function_that_launches_kernels_is_none_of_the_devices() {
        let text = "__global__ void run(int* x) { *x = 1; }\nvoid run(int* x, int n) { run<<<1, n>>>(x); }\n";
        assert_eq!(rest(text), "__global__ void run(int* x) { *x = 1; }");
        let text = "void run(int* x, int n);\n__global__ void run(int* x) { *x = 1; }\n";
        assert_eq!(rest(text), "__global__ void run(int* x) { *x = 1; }", "a declaration");
    }

    #[test]
    fn words_before_a_declaration_go_with_it() {
        let text = "GS_INLINE float unused(float x) { return x; }\ntemplate <class T>\nGS_INLINE T gone(T x) { return x; }\n\
            __global__ void k(int* x) { *x = 1; }\n";
        assert_eq!(rest(text), "__global__ void k(int* x) { *x = 1; }");
    }

    #[test]
    fn device_code_stays_with_all_that_it_names() {
        for text in [
            "float half_of(float x) { return x / 2; }\n__global__ void k(float* x) { *x = half_of(*x); }\n",
            "int n() { return 3; }\nint m() { return n(); }\n#define M m()\n__device__ int f() { return M; }\n",
            "struct V { float x; };\nV operator+(V a, V b) { return {a.x + b.x}; }\n__global__ void k(V* v) {}\n",
            "constexpr int N = 3;\nenum Kind { A, B };\ntypedef float real;\n__global__ void k(real* v) {}\n",
        ] {
            assert_eq!(device_part(&SourceFile::new("k.cu", text)).unwrap(), None, "{text}");
        }
    }

    #[test]
    fn a_kernel_that_launches_kernels_is_refused_at_its_place() {
        let text = "__global__ void a() {}\n__global__ void b() {\n    a<<<1, 1>>>();\n}\nvoid c() { b<<<1, 1>>>(); }\n";
        let error = device_part(&SourceFile::new("k.cu", text)).unwrap_err();
        let places: Vec<_> = error.diagnostics().iter().map(|d| (d.line, d.column)).collect();
        assert_eq!(places, [(3, 6)]);
    }

    #[test]
    fn a_specialisation_stays_with_what_uses_its_template() {
        let text = "\
namespace fmt { struct Dummy {}; }
template <class T> struct limits {};
template <> struct limits<fmt::Dummy> { static int two() { return odd() ? cudaGet() : 2; } };
inline int odd() { return cudaGet(); }
typedef limits<fmt::Dummy> Util;
__global__ void k(int* x) { *x = Util::two(); }";
        assert_eq!(rest(text), text);
    }

    /// A method may have reached the function, but it runs only on the host.
    #[test]
    fn a_function_that_stays_is_only_declared_if_it_needs_the_host() {
        let text = "\
void fill(int* x) { if (cudaMemset(x, 0, 4) != cudaSuccess) exit(1); }
void fill(int* x, cudaStream_t stream) { *x = 0; }
inline void fill(float* x) { cudaMemset(x, 0, 4); }
struct Tensor { int* data; void clear() { fill(data); } };
__global__ void k(Tensor x) { *x.data = 1; }";
        assert_eq!(rest(text), text.replace("{ if (cudaMemset(x, 0, 4) != cudaSuccess) exit(1); }", ";"));
    }

    #[test]
    fn templates_in_templates_stay_with_what_uses_them() {
        let text = "\
template <class C> struct Writer { template <class T> void put(T x); };
template <class C>
template <class T>
void Writer<C>::put(T x) { log(x); }
inline void log(int x) { cudaLog(x); }
__global__ void k(int* x) { Writer<int> w; w.put(*x); }";
        assert_eq!(rest(text), text);
    }

    #[test]
    fn methods_are_only_declared_if_they_call_a_library() {
        let text = "\
class Handle { cublasHandle_t blas; Handle(int) : blas(cublasCreate()) { cudaFree(0); } ~Handle() { cublasDestroy(blas); } };
struct Both { Handle* handle; void free() { ncclDestroy(); } __device__ int two() { return 2; } };
__global__ void k(Both x, int* y) { *y = x.two(); }";
        let left = "\
class Handle { cublasHandle_t blas; Handle(int) ;                                       ~Handle() ;                        };
struct Both { Handle* handle; void free() ;                  __device__ int two() { return 2; } };
__global__ void k(Both x, int* y) { *y = x.two(); }";
        assert_eq!(rest(text), left);
    }

    #[test]
    fn a_destructor_stays_with_its_class() {
        let text = "\
struct Log { virtual ~Log(); };
inline Log::~Log() { cudaFree(0); }
struct Tensor { Log* log; int* data; };
__global__ void k(Tensor x) { *x.data = 1; }";
        assert_eq!(rest(text), text);
    }

    #[test]
    fn instantiations_go_with_what_they_instantiate() {
        let text = "\
enum class Device { CUDA };
template <Device D> struct primitives { template <class U> static void convert(const U* x, U* y, long size); };
template <>
template <typename U>
void primitives<Device::CUDA>::convert(const U* x, U* y, long size) { cublasCopy(x, y, size); }
template void primitives<Device::CUDA>::convert(const float*, float*, long);
__global__ void k(float* x) { *x = 1; }
";
        let left = "\
enum class Device { CUDA };
template <Device D> struct primitives { template <class U> static void convert(const U* x, U* y, long size); };
__global__ void k(float* x) { *x = 1; }";
        assert_eq!(rest(text), left);
    }
}
