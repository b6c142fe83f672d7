//! What compilers wrote about kernels: parameters and resources.

pub(crate) mod amdgpu;
pub(crate) mod nvidia;

use crate::diagnostic::{Diagnostic, SourceFile};
use crate::signature::Kernel;

/// Offset and size in bytes of each parameter.
pub(crate) type ParamTable = Vec<(usize, usize)>;

/// Compares what a compiler wrote with what was parsed.
pub(crate) fn compare(
    source: &SourceFile,
    kernel: &Kernel,
    compiled: &ParamTable,
    target: &str,
) -> Option<Diagnostic> {
    let parsed = kernel.param_table();
    if parsed == *compiled {
        return None;
    }
    let (range, what) = if parsed.len() == compiled.len() {
        let i = parsed.iter().zip(compiled).position(|(a, b)| a != b).unwrap_or(0);
        let param = &kernel.params[i];
        let what = format!(
            "parameter `{}` has {} bytes at offset {} in the {target} kernel, {} at {} by its declaration",
            param.name, compiled[i].1, compiled[i].0, parsed[i].1, parsed[i].0
        );
        (param.range.clone(), what)
    } else {
        let what = format!(
            "the {target} kernel `{}` has {} parameters, its declaration {}",
            kernel.name,
            compiled.len(),
            parsed.len()
        );
        (kernel.name_range.clone(), what)
    };
    Some(source.diagnostic(range, what, "a macro may have changed the declaration: write the types out"))
}
