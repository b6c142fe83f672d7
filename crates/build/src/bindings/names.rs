//! Names in generated code.

/// Returns the field of `Kernels` for a kernel. The prefix keeps it apart from keywords and from `module`.
pub(super) fn field(kernel: &str) -> String {
    format!("kernel_{kernel}")
}

/// Appends underscores to `name` until nothing else has that name.
pub(super) fn fresh(name: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let mut name = name.to_owned();
    while is_taken(&name) {
        name.push('_');
    }
    name
}
