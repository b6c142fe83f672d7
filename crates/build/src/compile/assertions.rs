//! Assertions that the compiler sees the same types as our parser.
//!
//! The parser reads a file as written, but macros, `#if` and `#pragma` may turn it into something else for
//! each compiler. If the launchers were then made for the wrong types, a launch would pass garbage. So these
//! lines follow the file wherever it is compiled: in each backend's translation unit, and in the source that
//! is compiled at run time. They need no header, because run-time compilers have none, and they undefine
//! every name before they use it, because any name could be a macro.

use std::collections::BTreeSet;

use crate::definition::{Definition, Enum, Struct};
use crate::diagnostic::quoted;
use crate::names::is_word;
use crate::signature::{Global, Module};
use crate::types::{ParamType, ValueType};
use crate::unit::Unit;

/// How to write types and compare them. `gs_check_any` matches any one of several types, `gs_check_address`
/// any pointer, and `gs_check_bytes` anything. NVRTC needs its own `offsetof`.
const DECLARATIONS: &str = "\
#if defined(__CUDACC_RTC__)
#define gs_check_offset(gs_check_A, gs_check_B) __INTADDR__(&(((gs_check_A*)0)->gs_check_B))
#else
#define gs_check_offset(gs_check_A, gs_check_B) __builtin_offsetof(gs_check_A, gs_check_B)
#endif
template <class gs_check_A, class gs_check_B> struct gs_check_same { enum { gs_check_holds = 0 }; };
template <class gs_check_A> struct gs_check_same<gs_check_A, gs_check_A> { enum { gs_check_holds = 1 }; };
template <class... gs_check_P> struct gs_check_any {};
template <class gs_check_A, class gs_check_B> struct gs_check_fits : gs_check_same<gs_check_A, gs_check_B> {};
template <class gs_check_A> struct gs_check_fits<gs_check_A, gs_check_any<>> { enum { gs_check_holds = 0 }; };
template <class gs_check_A, class gs_check_B, class... gs_check_P>
struct gs_check_fits<gs_check_A, gs_check_any<gs_check_B, gs_check_P...>> {
  enum { gs_check_holds = gs_check_same<gs_check_A, gs_check_B>::gs_check_holds ||
                          gs_check_fits<gs_check_A, gs_check_any<gs_check_P...>>::gs_check_holds };
};
template <class gs_check_A, class gs_check_B>
struct gs_check_fits<const gs_check_A, const gs_check_B> : gs_check_fits<gs_check_A, gs_check_B> {};
template <class gs_check_A, class gs_check_B>
struct gs_check_fits<volatile gs_check_A, volatile gs_check_B> : gs_check_fits<gs_check_A, gs_check_B> {};
template <class gs_check_A, class gs_check_B>
struct gs_check_fits<const volatile gs_check_A, const volatile gs_check_B> : gs_check_fits<gs_check_A, gs_check_B> {};
template <class gs_check_A, class gs_check_B>
struct gs_check_fits<gs_check_A*, gs_check_B*> : gs_check_fits<gs_check_A, gs_check_B> {};
template <class gs_check_A, class gs_check_B>
struct gs_check_fits<gs_check_A* __restrict__, gs_check_B*> : gs_check_fits<gs_check_A, gs_check_B> {};
template <class gs_check_A, class gs_check_B, decltype(sizeof(0)) gs_check_N>
struct gs_check_fits<gs_check_A[gs_check_N], gs_check_B[gs_check_N]> : gs_check_fits<gs_check_A, gs_check_B> {};
template <class gs_check_A, class gs_check_B, decltype(sizeof(0)) gs_check_N>
struct gs_check_fits<const gs_check_A[gs_check_N], const gs_check_B[gs_check_N]> : gs_check_fits<gs_check_A, gs_check_B> {};
template <class gs_check_A, class gs_check_B, decltype(sizeof(0)) gs_check_N>
struct gs_check_fits<volatile gs_check_A[gs_check_N], volatile gs_check_B[gs_check_N]> : gs_check_fits<gs_check_A, gs_check_B> {};
template <class gs_check_A, class gs_check_B, decltype(sizeof(0)) gs_check_N>
struct gs_check_fits<const volatile gs_check_A[gs_check_N], const volatile gs_check_B[gs_check_N]> : gs_check_fits<gs_check_A, gs_check_B> {};
template <class gs_check_A, decltype(sizeof(0)) gs_check_N> struct gs_check_array { typedef gs_check_A gs_check_type[gs_check_N]; };
struct gs_check_bytes {};
template <class gs_check_A> struct gs_check_fits<gs_check_A, gs_check_bytes> { enum { gs_check_holds = 1 }; };
struct gs_check_address {};
template <class gs_check_A> struct gs_check_fits<gs_check_A*, gs_check_address> { enum { gs_check_holds = 1 }; };
template <class gs_check_A> struct gs_check_fits<gs_check_A* const, gs_check_address> { enum { gs_check_holds = 1 }; };
template <class gs_check_A> struct gs_check_fits<gs_check_A* __restrict__, gs_check_address> { enum { gs_check_holds = 1 }; };
template <decltype(sizeof(0)) gs_check_N, class... gs_check_P> struct gs_check_at {};
template <class gs_check_A, class... gs_check_P>
struct gs_check_at<0, gs_check_A, gs_check_P...> { typedef gs_check_A gs_check_type; };
template <decltype(sizeof(0)) gs_check_N, class gs_check_A, class... gs_check_P>
struct gs_check_at<gs_check_N, gs_check_A, gs_check_P...> : gs_check_at<gs_check_N - 1, gs_check_P...> {};
template <class gs_check_A> struct gs_check_kernel {};
template <class... gs_check_P> struct gs_check_kernel<void (*)(gs_check_P...)> {
  enum { gs_check_count = sizeof...(gs_check_P) };
  template <decltype(sizeof(0)) gs_check_N, class gs_check_B>
  struct gs_check_fits : ::gs_check_fits<typename gs_check_at<gs_check_N, gs_check_P...>::gs_check_type, gs_check_B> {};
};
template <class... gs_check_P>
struct gs_check_kernel<void (*)(gs_check_P...) noexcept> : gs_check_kernel<void (*)(gs_check_P...)> {};
static_assert(sizeof(long) == 8 && sizeof(long long) == 8 && sizeof(void*) == 8, \"long and pointers have 64 bits\");
";

/// The file name that compilers print for lines that we wrote.
pub(super) const CHECKS: &str = "checks-by-gpustream-build";

/// Returns the assertions about a file's structs and kernels, to append to the file. If an assertion about a
/// kernel fails, the compiler reports it at that kernel's line of `file`.
pub(crate) fn assertions(unit: &Unit, file: &str) -> String {
    let module = &unit.module;
    let mut text = DECLARATIONS.to_owned();
    // These types belong to the vendors, so a file may define them itself for a compiler that lacks them.
    for (_, name) in &module.halves {
        text.push_str(&format!("static_assert(sizeof({name}) == 2 && alignof({name}) <= 2, \"{name}: this compiler does not see a 16-bit type\");\n"
        ));
    }
    for (number, definition) in module.definitions.iter().enumerate() {
        match definition {
            Definition::Struct(definition) => write_struct(&mut text, number, definition, module),
            Definition::Enum(definition) => write_enum(&mut text, definition),
        }
    }
    let file = quoted(file);
    // If the module is put together from several versions of the file, its places mean nothing in one of them.
    let place = |offset: usize| {
        let directive = unit.versions.is_empty().then(|| unit.source.line_directive(offset, &file) + "\n");
        directive.unwrap_or_default()
    };
    // Parameter types may come from the kernels' namespaces.
    let namespaces: BTreeSet<_> =
        module.kernels.iter().filter_map(|kernel| Some(kernel.function.path.rsplit_once("::")?.0)).collect();
    let (scope, end) = if namespaces.is_empty() { ("", "") } else { ("namespace gs_check_scope {\n", "}\n") };
    let mut checked = Vec::new();
    for (kernel, instance) in module.functions().filter(|(kernel, _)| !kernel.is_opaque) {
        let mut ty = format!("decltype({})", kernel.address(instance, "::"));
        // The parameters' types mean what they mean in the kernel's namespace.
        if let Some(namespace) = kernel.cast_in() {
            let name = format!("gs_check_type_{}", checked.len());
            text.push_str(&format!("namespace {namespace} {{ typedef {ty} {name}; }}\n"));
            ty = format!("::{namespace}::{name}");
        }
        checked.push((kernel, instance, ty));
    }
    text.push_str(scope);
    for namespace in namespaces {
        text.push_str(&format!("using namespace ::{namespace};\n"));
    }
    for (kernel, instance, seen) in checked {
        let name = kernel.key(instance);
        text.push_str(&format!("{}static_assert(gs_check_kernel<{seen}>::gs_check_count == {}, \"{name}: the compiler sees another \
             number of parameters than its declaration has as written: does a macro change them?\");\n",
            place(kernel.name_range.start),
            kernel.params.len()
        ));
        for (i, (param, ty)) in kernel.params.iter().zip(&instance.params).enumerate() {
            text.push_str(&format!("{}static_assert(gs_check_kernel<{seen}>::gs_check_fits<{i}, {}>::gs_check_holds, \"{name}: \
                 the compiler sees parameter {} as another type than its declaration has as written: does a macro or \
                 an #if change it?\");\n",
                place(param.range.start),
                parameter(ty, module),
                param.name
            ));
        }
    }
    for Global { path, ty, .. } in &module.globals {
        let Some(ty) = ty else { continue };
        text.push_str(&format!("static_assert(gs_check_fits<decltype(::{path}), {}>::gs_check_holds, \"{path}: the compiler sees another type of \
             variable than its declaration has as written: does a macro or an #if change it?\");\n",
            value(&ty.whole(), module)
        ));
    }
    text.push_str(end);
    let undefined =
        identifiers(&text).into_iter().fold(String::new(), |text, name| text + "#undef " + name + "\n");
    let assumed = module.assumed.iter().fold(String::new(), |text, name| {
        format!(
            "{text}#ifdef {name}\n#error \"{name} is defined, and this file was read as if it were not: define it with \
             Kernels::define in the build script\"\n#endif\n"
        )
    });
    let instances = instantiations(module, &place);
    let place = format!("#line 1 \"{CHECKS}\"\n");
    let (begin, end) = match &unit.only_if {
        Some(condition) => (format!("#if {condition}\n"), "#endif\n"),
        None => (String::new(), ""),
    };
    format!("\n{begin}{instances}{place}{assumed}{undefined}{text}{end}{place}")
}

/// Returns the instantiations that the file does not contain itself. They come before the `#undef`s, because
/// they may need the file's macros; even the keyword may be one.
fn instantiations(module: &Module, place: &dyn Fn(usize) -> String) -> String {
    let mut text = String::new();
    for (kernel, instance) in module.functions() {
        if !kernel.template.is_empty() && !instance.written {
            text.push_str(&format!("{}{}\n", place(kernel.name_range.start), kernel.instantiation(instance)));
        }
    }
    text
}

/// Returns every name in the assertions, outside strings and directives. Any of them could be a macro.
fn identifiers(text: &str) -> BTreeSet<&str> {
    let lines = text.lines().map(|line| line.strip_prefix("#define ").unwrap_or(line));
    let lines = lines.filter(|line| !line.starts_with('#'));
    let code = lines.flat_map(|line| line.split('"').step_by(2));
    let words = code.flat_map(|code| code.split(|c| !is_word(c)));
    words.filter(|word| word.starts_with(|c: char| !c.is_numeric())).collect()
}

fn write_enum(text: &mut String, definition: &Enum) {
    let Enum { cpp, repr, values, .. } = definition;
    text.push_str(&format!("static_assert(sizeof({cpp}) == {0} && alignof({cpp}) == {0}, \"{cpp}: the compiler lays it out differently\");\n",
        repr.size()
    ));
    for (name, value) in values {
        text.push_str(&format!("static_assert((long long)({cpp}::{name}) == {}, \"{cpp}::{name}: the compiler sees another value than is \
             written\");\n",
            literal(*value)
        ));
    }
}

/// Returns a number as a C++ literal. The smallest integer has none, so it becomes an expression.
fn literal(value: i128) -> String {
    let bits = value as i64;
    if bits == i64::MIN { format!("{}ll - 1", bits + 1) } else { format!("{bits}ll") }
}

fn write_struct(text: &mut String, number: usize, definition: &Struct, module: &Module) {
    let name = &definition.cpp;
    let mut word = name.clone();
    if name.contains('<') {
        // A macro would split the name at the commas between its arguments.
        word = format!("gs_check_struct_{number}");
        text.push_str(&format!("typedef {name} {word};\n"));
    }
    text.push_str(&format!(
        "static_assert(sizeof({name}) == {} && alignof({name}) == {}, \"{name}: the compiler lays it out \
         differently\");\n",
        definition.size, definition.align
    ));
    for field in definition.fields.iter().filter(|field| field.in_cpp) {
        let extents = field.extents.iter().map(|extent| format!("[{extent}]")).collect::<Vec<_>>().concat();
        text.push_str(&format!("static_assert(gs_check_offset({word}, {0}) == {1}, \"{name}::{0}: the compiler places it \
             elsewhere\");\nstatic_assert(gs_check_fits<decltype({name}::{0}), {2}{extents}>::gs_check_holds, \
             \"{name}::{0}: the compiler sees another type than is written\");\n",
            field.name,
            field.offset,
            qualified(field.constant, field.volatile, &value(&field.ty, module))
        ));
    }
}

fn qualified(constant: bool, volatile: bool, ty: &str) -> String {
    format!("{}{}{ty}", if constant { "const " } else { "" }, if volatile { "volatile " } else { "" })
}

fn parameter(ty: &ParamType, module: &Module) -> String {
    match ty {
        ParamType::Value(ty) => value(ty, module),
        ParamType::Pointer { element, mutable, volatile } => {
            let (mut inner, mut lens) = (element, Vec::new());
            while let ValueType::Array { element, len } = inner {
                lens.push(*len);
                inner = element;
            }
            let scalar = qualified(!*mutable, *volatile, &value(inner, module));
            // Arrays are written from the inside out.
            lens.iter().rev().fold(scalar, |of, len| format!("gs_check_array<{of}, {len}>::gs_check_type"))
                + "*"
        }
    }
}

fn value(ty: &ValueType, module: &Module) -> String {
    match ty {
        ValueType::Struct { cpp, .. }
        | ValueType::Enum { cpp, .. }
        | ValueType::Vector { cpp, .. }
        | ValueType::Handle { cpp } => cpp.clone(),
        ValueType::Array { element, len } => {
            format!("gs_check_array<{}, {len}>::gs_check_type", value(element, module))
        }
        ValueType::Address => "gs_check_address".to_owned(),
        ValueType::Bytes { .. } => "gs_check_bytes".to_owned(),
        ValueType::Scalar(scalar) => match scalar.cpp() {
            [name] => (*name).to_owned(),
            [] => {
                let names = module.halves.iter().filter(|(half, _)| half == scalar).map(|(_, name)| &**name);
                any_of(&names.collect::<Vec<_>>())
            }
            names => any_of(names),
        },
    }
}

fn any_of(names: &[&str]) -> String {
    format!("gs_check_any<{}>", names.join(", "))
}
