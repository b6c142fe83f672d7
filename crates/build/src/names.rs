//! Names: their letters and scopes in C++, and how Rust writes them.

/// Returns whether a character can stand in a name.
pub(crate) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns the places where `word` stands alone in a text.
pub(crate) fn places_of<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> {
    let places = text.match_indices(word).map(|(at, _)| at);
    places.filter(move |&at| !text[..at].ends_with(is_word) && !text[at + word.len()..].starts_with(is_word))
}

/// Returns a text with other words for those for which `new` has one.
pub(crate) fn with_words(text: &str, new: impl Fn(&str) -> Option<String>) -> String {
    let parts = text.split_inclusive(|c| !is_word(c)).map(|part| {
        let word = part.trim_end_matches(|c| !is_word(c));
        new(word).map_or(part.to_owned(), |new| new + &part[word.len()..])
    });
    parts.collect()
}

/// Returns a path without its namespaces.
pub(crate) fn last_name(path: &str) -> &str {
    path.rsplit("::").next().unwrap_or(path)
}

/// Words that cannot be raw identifiers either.
const NEVER: [&str; 5] = ["self", "Self", "super", "crate", "_"];

const KEYWORDS: [&str; 48] = [
    "as", "async", "await", "break", "const", "continue", "dyn", "else", "enum", "extern", "false", "fn",
    "for", "if", "impl", "in", "let", "loop", "match", "mod", "move", "mut", "pub", "ref", "return",
    "static", "struct", "trait", "true", "type", "unsafe", "use", "where", "while", "abstract", "become",
    "box", "do", "final", "macro", "override", "priv", "try", "typeof", "unsized", "virtual", "yield", "gen",
];

/// Returns the same name where Rust allows it, raw where it is a keyword.
pub(crate) fn identifier(name: &str) -> String {
    if NEVER.contains(&name) {
        format!("{name}_")
    } else if KEYWORDS.contains(&name) {
        format!("r#{name}")
    } else {
        name.to_owned()
    }
}

/// Returns the name of a parameter, of a function or of a template: where Rust expects a new name, `None` and its kin are no
/// names but patterns, and a type called `u8` would hide the one that generated code means.
pub(crate) fn parameter(name: &str) -> String {
    if has_a_meaning(name) { format!("{name}_") } else { identifier(name) }
}

/// Returns whether generated code uses the name for something else.
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
