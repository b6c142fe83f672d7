//! The notes in AMD code objects.

use std::collections::HashMap;

use object::read::elf::{ElfFile64, FileHeader as _, SectionHeader as _};
use object::{Endianness, Object as _, ObjectSymbol as _};
use rmpv::Value;

use super::ParamTable;

/// `NT_AMDGPU_METADATA`.
const METADATA: u32 = 32;

/// What a code object's notes say about a kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kernel {
    pub(crate) params: ParamTable,
    /// Bytes of shared memory (LDS).
    pub(crate) shared: u32,
    pub(crate) wavefront: u32,
    pub(crate) max_workgroup: u32,
    pub(crate) vgprs: u32,
    pub(crate) sgprs: u32,
    /// Bytes of code.
    pub(crate) code_size: u64,
    /// How many registers were spilled.
    pub(crate) spills: u32,
    /// Bytes of scratch memory of each thread.
    pub(crate) scratch: u32,
}

/// Returns every kernel of a code object, by name.
pub(crate) fn kernels(code_object: &[u8]) -> Result<HashMap<String, Kernel>, String> {
    let read = |e: object::Error| format!("the code object cannot be read: {e}");
    let file = ElfFile64::<Endianness>::parse(code_object).map_err(read)?;
    let endian = file.endian();
    let header = file.elf_header();
    for section in header.section_headers(endian, code_object).map_err(read)? {
        let Some(mut notes) = section.notes(endian, code_object).map_err(read)? else { continue };
        while let Some(note) = notes.next().map_err(read)? {
            if note.name() == b"AMDGPU" && note.n_type(endian).0 == METADATA {
                let mut bytes = note.desc();
                let metadata = rmpv::decode::read_value(&mut bytes)
                    .map_err(|e| format!("the code object's notes cannot be read: {e}"))?;
                return Ok(with_code_sizes(from_metadata(&metadata), &file));
            }
        }
    }
    Err("the code object has no notes".to_owned())
}

/// Returns the symbols of all variables in a code object that the driver can find.
pub(crate) fn variables(code_object: &[u8]) -> Vec<String> {
    let Ok(file) = ElfFile64::<Endianness>::parse(code_object) else { return Vec::new() };
    super::variables(file.dynamic_symbols())
}

fn from_metadata(metadata: &Value) -> HashMap<String, Kernel> {
    list(metadata, "amdhsa.kernels")
        .filter_map(|kernel| {
            let number = |name| field(kernel, name).and_then(Value::as_u64).unwrap_or(0) as u32;
            let params = list(kernel, ".args")
                .filter(|arg| {
                    let kind = field(arg, ".value_kind").and_then(Value::as_str);
                    !kind.is_some_and(|kind| kind.starts_with("hidden"))
                })
                .filter_map(|arg| {
                    let number = |name| field(arg, name).and_then(Value::as_u64).map(|v| v as usize);
                    Some((number(".offset")?, number(".size")?))
                })
                .collect();
            let name = field(kernel, ".name").and_then(Value::as_str)?;
            let kernel = Kernel {
                params,
                shared: number(".group_segment_fixed_size"),
                wavefront: number(".wavefront_size"),
                max_workgroup: number(".max_flat_workgroup_size"),
                vgprs: number(".vgpr_count"),
                sgprs: number(".sgpr_count"),
                code_size: 0,
                scratch: number(".private_segment_fixed_size"),
                spills: number(".vgpr_spill_count").saturating_add(number(".sgpr_spill_count")),
            };
            Some((name.to_owned(), kernel))
        })
        .collect()
}

fn with_code_sizes(mut kernels: HashMap<String, Kernel>, file: &ElfFile64<'_>) -> HashMap<String, Kernel> {
    for symbol in file.dynamic_symbols() {
        if let Some(kernel) = symbol.name().ok().and_then(|name| kernels.get_mut(name)) {
            kernel.code_size = symbol.size();
        }
    }
    kernels
}

fn field<'a>(map: &'a Value, name: &str) -> Option<&'a Value> {
    map.as_map()?.iter().find(|(key, _)| key.as_str() == Some(name)).map(|(_, value)| value)
}

fn list<'a>(map: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    field(map, name).and_then(Value::as_array).into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use object::elf::SHT_NOTE;
    use proptest::prelude::*;

    use super::super::tests::{damaged, elf};
    use super::*;

    /// Returns a code object with a kernel that has two parameters and a hidden one.
    fn code_object() -> Vec<u8> {
        let text = |text: &str| Value::from(text);
        let arg = |offset: u64, size: u64, kind: &str| {
            let fields = [(".offset", offset.into()), (".size", size.into()), (".value_kind", text(kind))];
            Value::Map(fields.into_iter().map(|(name, value): (_, Value)| (text(name), value)).collect())
        };
        let args =
            vec![arg(0, 8, "global_buffer"), arg(8, 4, "by_value"), arg(16, 8, "hidden_block_count_x")];
        let kernel = [
            (".name", text("k")),
            (".args", Value::Array(args)),
            (".vgpr_spill_count", u32::MAX.into()),
            (".sgpr_spill_count", u32::MAX.into()),
        ];
        let kernel = Value::Map(kernel.into_iter().map(|(name, value)| (text(name), value)).collect());
        let metadata = Value::Map(vec![(text("amdhsa.kernels"), Value::Array(vec![kernel]))]);
        let mut description = Vec::new();
        rmpv::encode::write_value(&mut description, &metadata).unwrap();
        let mut note = Vec::new();
        for word in [7, description.len() as u32, METADATA] {
            note.extend(word.to_le_bytes());
        }
        note.extend(b"AMDGPU\0\0");
        note.extend(description);
        note.resize(note.len().next_multiple_of(4), 0);
        elf(&[(".note", SHT_NOTE, note)])
    }

    #[test]
    fn the_notes_name_kernels_and_what_is_passed() {
        let kernels = kernels(&code_object()).unwrap();
        assert_eq!(kernels["k"].params, [(0, 8), (8, 4)]);
        assert_eq!(kernels["k"].spills, u32::MAX);
    }

    proptest! {
        #[test]
        fn whatever_is_read_ends_in_an_answer(bytes: Vec<u8>, notes: Vec<u8>) {
            prop_assert!(kernels(&bytes).is_err());
            let _ = kernels(&elf(&[(".note", SHT_NOTE, notes)]));
        }

        #[test]
        fn damage_ends_in_an_answer(damaged in damaged(code_object())) {
            let _ = kernels(&damaged);
            let _ = variables(&damaged);
        }
    }
}
