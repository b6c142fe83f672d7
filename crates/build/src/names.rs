//! Names: what counts as one in C++, and how to write it in Rust.

/// Returns true if a character can be part of a name.
pub(crate) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns the offsets of `word`, if it is a whole word there.
pub(crate) fn places_of<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> {
    let places = text.match_indices(word).map(|(at, _)| at);
    places.filter(move |&at| !text[..at].ends_with(is_word) && !text[at + word.len()..].starts_with(is_word))
}

/// Replaces every word that `new` returns a replacement for, unless it belongs to a namespace or a type that stands before it.
pub(crate) fn with_words(text: &str, new: impl Fn(&str) -> Option<String>) -> String {
    let mut result = String::new();
    for part in text.split_inclusive(|c| !is_word(c)) {
        let word = part.trim_end_matches(|c| !is_word(c));
        let new = new(word).filter(|_| !result.trim_end().ends_with("::"));
        result.push_str(new.as_deref().unwrap_or(word));
        result.push_str(&part[word.len()..]);
    }
    result
}

/// Returns a path without its namespaces.
pub(crate) fn last_name(path: &str) -> &str {
    path.rsplit("::").next().unwrap_or(path)
}

/// These cannot be raw identifiers either.
const NEVER: [&str; 5] = ["self", "Self", "super", "crate", "_"];

const KEYWORDS: [&str; 48] = [
    "as", "async", "await", "break", "const", "continue", "dyn", "else", "enum", "extern", "false", "fn",
    "for", "if", "impl", "in", "let", "loop", "match", "mod", "move", "mut", "pub", "ref", "return",
    "static", "struct", "trait", "true", "type", "unsafe", "use", "where", "while", "abstract", "become",
    "box", "do", "final", "macro", "override", "priv", "try", "typeof", "unsized", "virtual", "yield", "gen",
];

/// Returns the name if Rust allows it, or its raw form if it is a keyword.
pub(crate) fn identifier(name: &str) -> String {
    if NEVER.contains(&name) {
        format!("{name}_")
    } else if KEYWORDS.contains(&name) {
        format!("r#{name}")
    } else {
        name.to_owned()
    }
}

/// Returns the Rust name for a parameter of a function or template. In a parameter list `None` and the like
/// are patterns instead of names, and a type parameter called `u8` would hide the type that generated code
/// means. Such names get an underscore.
pub(crate) fn parameter(name: &str) -> String {
    if has_a_meaning(name) { format!("{name}_") } else { identifier(name) }
}

/// Returns true if generated code uses the name for something else.
pub(crate) fn has_a_meaning(name: &str) -> bool {
    const PRIMITIVES: [&str; 17] = [
        "bool", "char", "str", "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "isize", "usize", "f32",
        "f64", "i128", "u128",
    ];
    PRIMITIVES.contains(&name)
        || matches!(
            name,
            "Kernels"
                | "Self"
                | "Some"
                | "None"
                | "Ok"
                | "Err"
                | "Option"
                | "Sized"
                | "Default"
                | "Clone"
                | "Copy"
                | "Debug"
                | "PartialEq"
        )
}
