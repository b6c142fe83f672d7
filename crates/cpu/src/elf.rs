//! Reads a module's file before it is loaded, to see if it is complete and to find its shared arrays.

use gpustream_hal::{ErrorKind, Result};
use object::read::elf::{Dyn as _, ElfFile64, FileHeader, ProgramHeader};
use object::{Endianness, Object, ObjectSymbol, SymbolKind, elf};

use crate::error::error;
use crate::{abi, arch, print};

/// A thread-local variable of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SharedArray {
    /// The name that the linker sees.
    pub(crate) symbol: String,
    /// Bytes from the start of the thread-local block.
    pub(crate) offset: u64,
    /// Bytes of the array.
    pub(crate) size: u64,
}

/// A shared object that was checked as far as possible without loading it.
pub(crate) struct Image {
    pub(crate) arrays: Vec<SharedArray>,
    /// True if its kernels can print.
    pub(crate) prints: bool,
    /// Bytes of the address space from the image's start to its end.
    pub(crate) span: usize,
    /// True if threads need the thread-local block from their start.
    pub(crate) wants_static_tls: bool,
}

impl Image {
    /// Reads the file. The dynamic loader trusts every file, so we must find damage here.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self> {
        let damaged = |what: &dyn std::fmt::Display| {
            error(
                ErrorKind::InvalidModule,
                format!(
                    "the module image is damaged, or is not a kernel module for the CPU ({what}): build it again"
                ),
            )
        };
        let file = ElfFile64::<Endianness>::parse(bytes).map_err(|e| damaged(&e))?;
        let (header, endian) = (file.elf_header(), file.endian());
        if header.e_machine(endian) != arch::MACHINE {
            return Err(error(
                ErrorKind::NoImageForDevice,
                "the module image is for another processor: build it for this one",
            ));
        }
        if header.e_type(endian) != elf::ET_DYN {
            return Err(damaged(&"it is not a shared object"));
        }
        let (mut span, mut wants_static_tls) = (1_u64, false);
        for segment in header.program_headers(endian, bytes).map_err(|e| damaged(&e))? {
            segment
                .data(endian, bytes)
                .map_err(|()| damaged(&"a segment lies beyond the end of the file"))?;
            if segment.p_type(endian) == elf::PT_LOAD {
                span = span.max(segment.p_vaddr(endian).saturating_add(segment.p_memsz(endian)));
            }
            if let Ok(Some(entries)) = segment.dynamic(endian, bytes) {
                wants_static_tls |= entries.iter().any(|entry| {
                    entry.tag(endian) == elf::DT_FLAGS && entry.val(endian) & elf::DF_STATIC_TLS.0 != 0
                });
            }
        }
        for section in header.sections(endian, bytes).map_err(|e| damaged(&e))?.iter() {
            use object::read::elf::SectionHeader;
            section.data(endian, bytes).map_err(|_| damaged(&"a section lies beyond the end of the file"))?;
        }
        if !file.dynamic_symbols().any(|s| s.name() == Ok(abi::MODULE_SYMBOL) && s.is_definition()) {
            return Err(damaged(&"it has no kernel table"));
        }
        let arrays = file
            .symbols()
            .filter(|s| s.kind() == SymbolKind::Tls && !s.is_undefined())
            .filter_map(|s| {
                Some(SharedArray { symbol: s.name().ok()?.into(), offset: s.address(), size: s.size() })
            })
            .collect();
        let mut imports = file.dynamic_symbols().filter(ObjectSymbol::is_undefined);
        let prints = imports.any(|s| s.name().is_ok_and(|name| print::SYMBOLS.contains(&name)));
        Ok(Self { arrays, prints, span: span as usize, wants_static_tls })
    }

    /// Returns the offset of a variable in the thread-local block.
    pub(crate) fn offset(&self, symbol: &str) -> Option<u64> {
        self.arrays.iter().find(|a| a.symbol == symbol).map(|a| a.offset)
    }

    /// Returns the total size of the shared arrays that a kernel declares in its body.
    pub(crate) fn static_shared(&self, kernel: &str) -> u64 {
        // The mangled name of a static variable contains its function: _ZZ6kernelE4tile.
        let prefix = format!("_ZZ{}{kernel}E", kernel.len());
        self.arrays
            .iter()
            .filter(|a| a.symbol.starts_with(&prefix))
            .fold(0, |sum: u64, array| sum.saturating_add(array.size))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns a shared object of this processor with a kernel table and two shared arrays of the kernel `k`.
    fn module() -> Vec<u8> {
        const HEADER: u64 = 64;
        let names = format!("\0{}\0_ZZ1kE4tile\0_ZZ1kE5other\0", abi::MODULE_SYMBOL);
        let at = |name: &str| names.find(name).unwrap() as u32;
        let symbol = |name: &str, kind: u8, value: u64, size: u64| {
            // Name, type and binding, visibility, section, value, size.
            let mut bytes = at(name).to_le_bytes().to_vec();
            bytes.extend([0x10 | kind, 0]);
            bytes.extend(1_u16.to_le_bytes());
            bytes.extend(value.to_le_bytes());
            bytes.extend(size.to_le_bytes());
            bytes
        };
        let table = symbol(abi::MODULE_SYMBOL, 1, 0, 32);
        let arrays = [symbol("_ZZ1kE4tile", 6, 64, u64::MAX), symbol("_ZZ1kE5other", 6, 128, 100)].concat();
        let (dynamic, all) = ([vec![0; 24], table].concat(), [vec![0; 24], arrays].concat());
        let parts = [(11_u64, dynamic, 2_u64), (2, all, 2), (3, names.into_bytes(), 0)];
        let (mut headers, mut body) = (vec![[0_u64; 8]], Vec::new());
        for (kind, data, link) in [(parts[2].0, &parts[2].1, 0), (parts[2].0, &parts[2].1, 0)]
            .into_iter()
            .chain(parts[..2].iter().map(|(kind, data, link)| (*kind, data, *link)))
        {
            body.resize(body.len().next_multiple_of(8), 0);
            let (offset, size) = (HEADER + body.len() as u64, data.len() as u64);
            let entry = if kind == 3 { 0 } else { 24 };
            headers.push([kind << 32, 0, 0, offset, size, link | 1 << 32, 8, entry]);
            body.extend(data);
        }
        body.resize(body.len().next_multiple_of(8), 0);
        let mut file = b"\x7fELF\x02\x01\x01".to_vec();
        file.resize(16, 0);
        for half in [elf::ET_DYN.0, arch::MACHINE.0, 1, 0] {
            file.extend(half.to_le_bytes());
        }
        for word in [0, 0, HEADER + body.len() as u64] {
            file.extend(word.to_le_bytes());
        }
        file.extend([0; 4]);
        for half in [64, 56, 0, 64, headers.len() as u16, 1] {
            file.extend(half.to_le_bytes());
        }
        file.extend(body);
        file.extend(headers.iter().flatten().flat_map(|word| word.to_le_bytes()));
        file
    }

    #[test]
    fn a_module_tells_its_arrays() {
        let image = Image::read(&module()).unwrap();
        assert_eq!(image.offset("_ZZ1kE5other"), Some(128));
        assert_eq!(image.static_shared("k"), u64::MAX, "sizes that add up to more than there is");
        assert_eq!(image.static_shared("other"), 0);
    }

    proptest! {
        #[test]
        fn whatever_is_read_ends_in_an_answer(bytes: Vec<u8>) {
            prop_assert!(Image::read(&bytes).is_err());
            let _ = Image::read(&[b"\x7fELF\x02\x01\x01", &bytes[..]].concat());
        }

        #[test]
        fn damage_ends_in_an_answer(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
            end: prop::sample::Index,
            cut: bool,
        ) {
            let mut bytes = module();
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            if cut {
                bytes.truncate(end.index(bytes.len()));
            }
            if let Ok(image) = Image::read(&bytes) {
                let _ = (image.offset("_ZZ1kE4tile"), image.static_shared("k"));
            }
        }
    }
}
