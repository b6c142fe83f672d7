//! Names in generated code.

/// Returns the field of `Kernels` that holds a kernel: never a keyword, never `module`.
pub(super) fn field(kernel: &str) -> String {
    format!("kernel_{kernel}")
}

/// Returns `name`, followed by as many underscores as it takes until nothing else has the name.
pub(super) fn fresh(name: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let mut name = name.to_owned();
    while is_taken(&name) {
        name.push('_');
    }
    name
}
