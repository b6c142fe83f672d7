//! C++ names as Rust writes them.

/// Words that cannot be raw identifiers either.
const NEVER: [&str; 5] = ["self", "Self", "super", "crate", "_"];

const KEYWORDS: [&str; 50] = [
    "as", "async", "await", "break", "const", "continue", "dyn", "else", "enum", "extern", "false", "fn",
    "for", "if", "impl", "in", "let", "loop", "match", "mod", "move", "mut", "pub", "ref", "return",
    "static", "struct", "trait", "true", "type", "unsafe", "use", "where", "while", "abstract", "become",
    "box", "do", "final", "macro", "override", "priv", "try", "typeof", "unsized", "virtual", "yield", "gen",
    "union", "safe",
];

/// Returns the same name where Rust allows it, raw where it is a keyword.
pub(crate) fn identifier(name: &str) -> String {
    if NEVER.contains(&name) {
        format!("{name}_")
    } else if KEYWORDS.contains(&name) && !matches!(name, "union" | "safe") {
        format!("r#{name}")
    } else {
        name.to_owned()
    }
}
