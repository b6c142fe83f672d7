//! The tables that compilers wrote about kernels: parameters and resources.

pub(crate) mod amdgpu;
pub(crate) mod nvidia;

use crate::diagnostic::{Diagnostic, SourceFile};
use crate::signature::Kernel;

/// Offset and size in bytes of each parameter.
pub(crate) type ParamTable = Vec<(usize, usize)>;

/// Compares the parameters that a compiler wrote with those that were parsed.
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    pub(super) struct Section {
        pub(super) name: &'static str,
        pub(super) kind: u32,
        pub(super) data: Vec<u8>,
    }

    /// Returns an ELF file with these sections and the table of their names.
    pub(super) fn elf(sections: &[Section]) -> Vec<u8> {
        const HEADER: usize = 64;
        let mut names = vec![0];
        let mut headers = vec![[0_u64; 8]];
        let mut body = Vec::new();
        let table = Section { name: ".shstrtab", kind: 3, data: Vec::new() };
        for section in sections.iter().chain([&table]) {
            let name = names.len() as u64;
            names.extend(section.name.bytes().chain([0]));
            let data = if section.kind == 3 { &names } else { &section.data };
            body.resize(body.len().next_multiple_of(8), 0);
            // Name and type share the first word; then flags, address, offset, size, link and info, alignment, entries.
            let offset = (HEADER + body.len()) as u64;
            headers.push([name | u64::from(section.kind) << 32, 0, 0, offset, data.len() as u64, 0, 4, 0]);
            body.extend(data);
        }
        body.resize(body.len().next_multiple_of(8), 0);
        let mut file = b"\x7fELF\x02\x01\x01".to_vec();
        file.resize(16, 0);
        for half in [3_u16, 190, 1, 0] {
            file.extend(half.to_le_bytes());
        }
        for word in [0, 0, (HEADER + body.len()) as u64] {
            file.extend(word.to_le_bytes());
        }
        file.extend([0; 4]);
        for half in [64, 56, 0, 64, headers.len() as u16, headers.len() as u16 - 1] {
            file.extend(half.to_le_bytes());
        }
        file.extend(body);
        file.extend(headers.iter().flatten().flat_map(|word| word.to_le_bytes()));
        file
    }

    /// Returns the file with some bytes changed, and perhaps cut off.
    pub(super) fn damaged(file: Vec<u8>) -> impl Strategy<Value = Vec<u8>> {
        let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8);
        (changes, any::<prop::sample::Index>(), any::<bool>()).prop_map(move |(changes, end, cut)| {
            let mut file = file.clone();
            for (at, byte) in changes {
                let at = at.index(file.len());
                file[at] = byte;
            }
            if cut {
                file.truncate(end.index(file.len()));
            }
            file
        })
    }
}
