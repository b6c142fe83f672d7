//! The tables that compilers leave about kernels: parameters and resources.

pub(crate) mod amdgpu;
pub(crate) mod nvidia;
pub(crate) mod symbols;

use object::{ObjectSymbol, SymbolKind};

use crate::diagnostic::{Diagnostic, SourceFile};
use crate::signature::{Instance, Kernel};

/// Offset and size in bytes of each parameter.
pub(crate) type ParamTable = Vec<(usize, usize)>;

/// Compares the parameters in a compiler's table with the parsed ones.
pub(crate) fn compare(
    source: &SourceFile,
    (kernel, instance): (&Kernel, &Instance),
    compiled: &ParamTable,
    target: &str,
) -> Option<Diagnostic> {
    if kernel.is_opaque {
        return None;
    }
    let parsed = instance.param_table();
    let sizes = |table: &ParamTable| table.iter().map(|(_, size)| *size).collect::<Vec<_>>();
    // CUDA aligns the parameter's address among all constants instead of its offset. That is fine, because
    // the driver gets each parameter separately.
    let by_address = target.starts_with("sm_") && instance.params.iter().any(|ty| ty.layout().1 > 16);
    if parsed == *compiled || by_address && sizes(&parsed) == sizes(compiled) {
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
            kernel.key(instance),
            compiled.len(),
            parsed.len()
        );
        (kernel.name_range.clone(), what)
    };
    Some(source.diagnostic(range, what, "a macro may have changed the declaration: write the types out"))
}

/// Returns the names of the variables among an image's symbols.
fn variables<'a>(symbols: impl Iterator<Item = impl ObjectSymbol<'a>>) -> Vec<String> {
    let data = symbols.filter(|symbol| symbol.kind() == SymbolKind::Data && !symbol.is_undefined());
    data.filter_map(|symbol| Some(symbol.name().ok()?.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use object::Endianness;
    use object::build::elf::{Builder, SectionData};
    use object::elf::{EM_CUDA, ET_DYN, SHT_STRTAB, SectionType};
    use proptest::prelude::*;

    /// Returns an ELF file with these sections, each with a name, kind and contents.
    pub(super) fn elf(sections: &[(&str, SectionType, Vec<u8>)]) -> Vec<u8> {
        let mut builder = Builder::new(Endianness::Little, true);
        (builder.header.e_type, builder.header.e_machine) = (ET_DYN, EM_CUDA);
        let names = (".shstrtab", SHT_STRTAB, SectionData::SectionString);
        let data =
            sections.iter().map(|(name, kind, data)| (*name, *kind, SectionData::Data(data[..].into())));
        for (name, kind, data) in data.chain([names]) {
            let section = builder.sections.add();
            (section.name, section.sh_type, section.sh_addralign) = (name.into(), kind, 4);
            section.data = data;
        }
        let mut file = Vec::new();
        builder.write(&mut file).unwrap();
        file
    }

    /// Returns the file with some bytes changed, and possibly cut short.
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
