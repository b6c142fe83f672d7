//! Names in generated code.

use crate::signature::Kernel;

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

/// A kernel, and the names that its launchers use for their own values.
pub(super) struct Names<'a> {
    pub(super) kernel: &'a Kernel,
    pub(super) stream: String,
    pub(super) launch: String,
    pub(super) config: String,
    pub(super) args: Vec<String>,
}

impl Names<'_> {
    /// Returns true if an argument is an `Option`.
    pub(super) fn is_optional(&self, param: usize) -> bool {
        self.kernel.contract.optional.contains(&param)
    }

    /// Returns a name for a value that the launcher itself introduces. No parameter has that name.
    pub(super) fn fresh(kernel: &Kernel, name: &str) -> String {
        fresh(name, |name| kernel.params.iter().any(|param| param.name == name))
    }
}
