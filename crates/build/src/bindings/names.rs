//! Names in generated code.

/// Returns the field of `Kernels` that holds a kernel: never a keyword, never `module`.
pub(super) fn field(kernel: &str) -> String {
    format!("kernel_{kernel}")
}

/// Returns `name`, followed by as many underscores as it takes to be none of those that are `taken`.
pub(super) fn fresh<'a>(name: &str, taken: impl Iterator<Item = &'a String> + Clone) -> String {
    let mut name = name.to_owned();
    while taken.clone().any(|other| *other == name) {
        name.push('_');
    }
    name
}
