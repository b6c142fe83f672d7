//! What a module's file says about itself: whether it is whole, and where its shared arrays lie.

use gpustream_hal::{ErrorKind, Result};
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use object::{Endianness, Object, ObjectSymbol, SymbolKind, elf};

use crate::abi;
use crate::error::error;

/// A thread-local variable of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SharedArray {
    /// As the linker sees it.
    pub(crate) symbol: String,
    /// From the start of the module's thread-local block.
    pub(crate) offset: u64,
    /// In bytes.
    pub(crate) size: u64,
}

/// A shared object, checked as far as is possible without loading it.
pub(crate) struct Image {
    pub(crate) arrays: Vec<SharedArray>,
}

impl Image {
    /// Reads the file. The dynamic loader trusts what it is given, so that damage is looked for here.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self> {
        let damaged = |what: &dyn std::fmt::Display| {
            error(
                ErrorKind::InvalidModule,
                format!(
                    "the module image is damaged or no kernel module for the CPU: {what}; build it again"
                ),
            )
        };
        let file = ElfFile64::<Endianness>::parse(bytes).map_err(|e| damaged(&e))?;
        let (header, endian) = (file.elf_header(), file.endian());
        let machine = if cfg!(target_arch = "aarch64") { elf::EM_AARCH64 } else { elf::EM_X86_64 };
        if header.e_machine(endian) != machine {
            return Err(error(
                ErrorKind::NoImageForDevice,
                "the module image is for another processor: build it for this one",
            ));
        }
        if header.e_type(endian) != elf::ET_DYN {
            return Err(damaged(&"not a shared object"));
        }
        for segment in header.program_headers(endian, bytes).map_err(|e| damaged(&e))? {
            segment.data(endian, bytes).map_err(|()| damaged(&"a segment lies beyond the file's end"))?;
        }
        for section in header.sections(endian, bytes).map_err(|e| damaged(&e))?.iter() {
            use object::read::elf::SectionHeader;
            section.data(endian, bytes).map_err(|_| damaged(&"a section lies beyond the file's end"))?;
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
        Ok(Self { arrays })
    }

    /// Offset of a variable in the thread-local block.
    pub(crate) fn offset(&self, symbol: &str) -> Option<u64> {
        self.arrays.iter().find(|a| a.symbol == symbol).map(|a| a.offset)
    }

    /// Bytes of the shared arrays that a kernel declares in its own body.
    pub(crate) fn static_shared(&self, kernel: &str) -> u64 {
        // A function's static variable is mangled after the function: _ZZ6kernelE4tile.
        let prefix = format!("_ZZ{}{kernel}E", kernel.len());
        self.arrays.iter().filter(|a| a.symbol.starts_with(&prefix)).map(|a| a.size).sum()
    }
}
