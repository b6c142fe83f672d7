//! Finds the symbols that compilers give to kernels in images.

use cpp_demangle::{DemangleOptions, Symbol};

use crate::names::with_words;
use crate::parse::constants::evaluate;
use crate::parse::kernel_templates::split;
use crate::signature::{Argument, Global, Instance, Kernel, Module, ends_in};
use crate::types::{ParamType, Scalar, ValueType, vector_from_cpp};

/// Returns the one of `symbols` that is this function.
pub(crate) fn find<'a>(
    (kernel, instance): (&Kernel, &Instance),
    module: &Module,
    symbols: impl Iterator<Item = &'a String>,
) -> Result<&'a str, String> {
    let key = kernel.key(instance);
    let (mut found, mut others) = (Vec::new(), Vec::new());
    for symbol in symbols {
        match names(symbol, kernel, instance, module) {
            Named::It => found.push(&**symbol),
            Named::Other(instance) => others.push(instance),
            Named::Not => {}
        }
    }
    found.sort_unstable();
    match *found {
        [symbol] => Ok(symbol),
        [] if others.is_empty() => Err(format!("no kernel `{key}` in it")),
        [] => {
            others.sort_unstable();
            Err(format!(
                "it has no kernel `{key}`, only {}; name the types as the compiler does",
                others.join(", ")
            ))
        }
        _ => Err(format!("several kernels `{key}` in it: {}", found.join(", "))),
    }
}

/// Returns the one of `symbols` that is this variable, if there is exactly one. nvcc puts internal variables
/// into namespaces of their own.
pub(crate) fn find_variable<'a>(global: &Global, symbols: &'a [String]) -> Option<&'a str> {
    let is = |symbol: &&String| {
        if !symbol.starts_with("_Z") {
            return global.path.ends_with(&***symbol) && ends_in(&global.path, symbol);
        }
        demangled(symbol, DemangleOptions::new()).is_some_and(|path| {
            let own = |part: &&str| {
                !["(anonymous namespace)", "_INTERNAL_", "_GLOBAL__N_"]
                    .iter()
                    .any(|start| part.starts_with(start))
            };
            path.split("::").filter(own).eq(global.path.split("::"))
        })
    };
    let mut found = symbols.iter().filter(is);
    found.next().filter(|_| found.next().is_none()).map(|symbol| &**symbol)
}

/// How a symbol relates to a function.
enum Named {
    /// It is this function.
    It,
    /// It is another instance of the same template, demangled.
    Other(String),
    Not,
}

/// Compares a symbol with a function. If a header declared the kernel `extern "C"`, its symbol is its plain
/// name.
fn names(symbol: &str, kernel: &Kernel, instance: &Instance, module: &Module) -> Named {
    let function = &kernel.function;
    let plain = function.name();
    let when = |is: bool| if is { Named::It } else { Named::Not };
    if function.extern_c || symbol == plain {
        return when(symbol == plain);
    }
    // Demangling is slow, and most symbols belong to other kernels.
    if !symbol.starts_with("_Z") || !symbol.contains(plain) {
        return Named::Not;
    }
    let Some(path) = demangled(symbol, DemangleOptions::new().no_params().no_return_type()) else {
        return Named::Not;
    };
    let path = path.replace("(anonymous namespace)::", "");
    let Some(rest) = path.strip_prefix(&*function.path) else { return Named::Not };
    if kernel.template.is_empty() {
        let same = !function.overloaded
            || demangled(symbol, DemangleOptions::new()).is_some_and(|text| takes(&text, kernel, module));
        return when(rest.is_empty() && same);
    }
    let Some(arguments) = rest.strip_prefix('<').and_then(|rest| rest.strip_suffix('>')) else {
        return Named::Not;
    };
    let arguments: Vec<&str> = split(arguments).collect();
    let same = arguments.len() == instance.arguments.len()
        && arguments
            .iter()
            .zip(&instance.arguments)
            .all(|(text, argument)| stands_for(text, argument, module));
    if same { Named::It } else { Named::Other(path) }
}

/// Returns true if `text`, a demangled template argument, means this one.
fn stands_for(text: &str, argument: &Argument, module: &Module) -> bool {
    match argument {
        Argument::Type { ty: Some(ty), .. } => is(text, ty, module),
        Argument::Type { cpp, ty: None } => ends_in(&spelled(text), &spelled(cpp)),
        // `(unsigned int)16`
        Argument::Constant { value, .. } => {
            evaluate(text.rsplit(')').next().unwrap_or_default(), &mut |_| None) == Some(*value)
        }
    }
}

/// The names of 16-bit floating-point types in vendors' headers. A file may use an alias, but compilers print the real name.
const F16: &[&str] = &["__half", "_Float16", "half"];
const BF16: &[&str] =
    &["__nv_bfloat16", "nv_bfloat16", "__hip_bfloat16", "hip_bfloat16", "__bf16", "bfloat16"];

/// Returns a type or a function without spaces, with the compiler's names of scalars. Compilers print a function as `&f(float)`
/// or `&(f(float))`, and nvcc puts an internal one into a namespace of its own; we leave that out.
fn spelled(text: &str) -> String {
    let real = |word: &str| {
        if let Some(names) = [F16, BF16].into_iter().find(|names| names.contains(&word)) {
            return Some(names[0].to_owned());
        }
        if word.starts_with("_INTERNAL_") {
            return Some(String::new());
        }
        // Not a word of `unsigned int`.
        let scalar = Scalar::from_cpp(word).filter(|_| word.ends_with("_t"))?;
        scalar.cpp().first().map(|name| (*name).to_owned())
    };
    let has_function = text.contains('&');
    let text = with_words(&text.replace("&(", "&"), real).replace([' ', '\n'], "");
    let (mut depth, mut kept) = (0_usize, String::new());
    for c in text.chars() {
        match c {
            '(' if has_function => depth += 1,
            ')' if has_function => depth = depth.saturating_sub(1),
            // After a type it makes a reference.
            '&' if kept.is_empty() || kept.ends_with(['<', ',']) => {}
            _ if depth == 0 => kept.push(c),
            _ => {}
        }
    }
    let kept = kept.replace("<::", "<").replace(",::", ",").replace("::::", "::");
    kept.trim_start_matches("::").to_owned()
}

fn demangled(symbol: &str, options: DemangleOptions) -> Option<String> {
    Symbol::new(symbol).ok()?.demangle_with_options(&options).ok()
}

/// Returns true if a demangled function takes what the kernel takes.
fn takes(signature: &str, kernel: &Kernel, module: &Module) -> bool {
    let types = signature.rsplit_once('(').map_or("", |(_, types)| types.trim_end_matches(')'));
    let types: Vec<&str> = types.split(", ").filter(|ty| !ty.is_empty() && *ty != "void").collect();
    types.len() == kernel.params.len()
        && types.iter().zip(&kernel.params).all(|(ty, param)| fits(ty, &param.ty, module))
}

/// Returns true if a demangled type is the parameter's.
fn fits(ty: &str, param: &ParamType, module: &Module) -> bool {
    match param {
        ParamType::Value(value) => is(ty, value, module),
        // `float (*) [4]`, `float const (*) [4]`.
        ParamType::Pointer { element: ValueType::Array { .. }, .. } => ty.contains("(*)"),
        ParamType::Pointer { element, mutable, volatile } => {
            let Some(mut pointee) = ty.strip_suffix('*') else { return false };
            for (present, word) in [(*volatile, " volatile"), (!*mutable, " const")] {
                if present {
                    let Some(rest) = pointee.strip_suffix(word) else { return false };
                    pointee = rest;
                }
            }
            is(pointee, element, module)
        }
    }
}

/// Returns true if a type is HIP's vector template with these lanes: `HIP_vector_type<unsigned char, 4u>`.
fn is_hip_vector(ty: &str, lane: Scalar, lanes: usize) -> bool {
    let inner = ty.strip_prefix("HIP_vector_type<").and_then(|rest| rest.strip_suffix('>'));
    let Some((of, count)) = inner.and_then(|inner| inner.rsplit_once(',')) else { return false };
    let (of, count) = (of.trim(), count.rsplit(')').next().unwrap_or_default());
    let is_lane = lane.cpp().contains(&of) || lane.cpp().is_empty() || lane == Scalar::I8 && of == "char";
    is_lane && count.trim().trim_end_matches('u') == lanes.to_string()
}

/// Returns true if a demangled type is this one.
fn is(ty: &str, value: &ValueType, module: &Module) -> bool {
    let ends = |name: &str| ends_in(ty, name);
    match value {
        ValueType::Scalar(scalar) if scalar.cpp().is_empty() => {
            let names = if *scalar == Scalar::F16 { F16 } else { BF16 };
            names.iter().any(|name| ends(name))
                || module.halves.iter().any(|(half, name)| half == scalar && ends(name))
        }
        ValueType::Scalar(scalar) => scalar.cpp().contains(&ty),
        // A vector may be a typedef of another one.
        ValueType::Vector { cpp, lane, lanes, .. } => {
            ends(cpp)
                || is_hip_vector(ty, *lane, *lanes)
                || vector_from_cpp(ty).is_some_and(|other| other.rust() == value.rust())
        }
        ValueType::Struct { cpp, .. } | ValueType::Enum { cpp, .. } => {
            let tag = module.tags.iter().find(|(name, _)| name == cpp);
            ends(cpp) || tag.is_some_and(|(_, tag)| ends(tag))
        }
        ValueType::Handle { .. } => ty == "unsigned long long" || ty.ends_with('*'),
        ValueType::Array { .. } | ValueType::Bytes { .. } => true,
        ValueType::Address => ty.contains('*'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_and_scalars_are_compared_by_their_own_names() {
        let printed = "&_INTERNAL_54_11_k_cu_3b::copy<&_INTERNAL_54_11_k_cu_3b::read(void const*, long, float2&), __half, \
            unsigned int>(char const*, char*)";
        for written in ["copy<read, half, uint32_t>", "&copy< &read, __half, unsigned int >"] {
            assert_eq!(spelled(printed), spelled(written));
        }
        assert_eq!(spelled("&(mine::copy<&(read(float))>(char*))"), spelled("mine::copy<read>"));
        assert_eq!(spelled("int32_t &"), "int&");
        assert_eq!(spelled("void (*) (int)"), "void(*)(int)");
    }
}
