//! Names in generated code.

/// Returns the field of `Kernels` that holds a kernel: never a keyword, never `module`.
pub(super) fn field(kernel: &str) -> String {
    format!("kernel_{kernel}")
}

/// Names for a launcher's own values that no parameter has.
pub(super) struct Fresh<'a> {
    pub(super) taken: Vec<&'a str>,
}

impl Fresh<'_> {
    /// Returns `name`, followed by as many underscores as it takes.
    pub(super) fn name(&self, name: &str) -> String {
        let mut name = name.to_owned();
        while self.taken.contains(&name.as_str()) {
            name.push('_');
        }
        name
    }
}
