//! Finds the variables in a compiled image that its kernels could write.
//!
//! A kernel can reach a module's variables without an argument, so we have to order launches of such kernels. The parser in
//! `gpustream-build` lists the variables that it sees declared. But it does not expand macros or templates, so it may miss
//! some. The image tells for sure, because compilers put each variable into the symbol table, and the variable's section
//! says if it can be written.
//!
//! Some variables come from a compiler or a vendor's header, such as the strings of `printf`, the tables of `sinf` and the
//! guards of `static` variables. We leave those out. If we do not know a name, we count it, because too much order only
//! costs time, but too little can corrupt your data.

use cpp_demangle::{DemangleOptions, Symbol};
use object::elf::{FileHeader64, SHF_WRITE};
use object::read::elf::{ElfFile, ElfSection};
use object::{
    Endianness, Object as _, ObjectSection as _, ObjectSymbol as _, SectionFlags, SymbolKind, SymbolSection,
};

/// The first bytes of an uncompressed container of code objects.
const BUNDLE: &[u8] = b"__CLANG_OFFLOAD_BUNDLE__";
const ELF: &[u8] = b"\x7fELF";

/// Sections that are marked as writable, but hold nothing that stays: no kernel writes them, or their contents end with a
/// block or a thread.
const OTHER_SECTIONS: [&str; 4] = [".data.rel.ro", ".nv.shared", ".nv.local", ".nv.reservedSmem"];

/// The sections that hold variables.
const DATA_SECTIONS: [&str; 3] = [".data", ".bss", ".nv.global"];

/// Namespaces, and beginnings of names, that belong to compilers, to vendors' headers or to our headers.
const OTHER_NAMESPACES: [&str; 11] = [
    "std",
    "cuda",
    "cub",
    "cute",
    "thrust",
    "cooperative_groups",
    "rocprim",
    "hipcub",
    "rocrand_device",
    "gs",
    "gs_detail",
];
const OTHER_STARTS: [&str; 3] = ["__", "gs_cpu_", "precalc_xorwow"];

/// Parts of a symbol that stand for an unnamed namespace.
const UNNAMED: [&str; 3] = ["(anonymous namespace)", "_INTERNAL_", "_GLOBAL__N_"];

/// Returns the variables in an image that its kernels could write, each with its namespaces and functions: `solver::count`,
/// `step::calls`. The image can be an ELF file (an object file, a shared object, a cubin, a code object), a bundle of code
/// objects, or PTX.
///
/// Returns `None` if we cannot tell, because the image is of another kind, compressed or damaged.
#[must_use]
pub fn writable(image: &[u8]) -> Option<Vec<String>> {
    let symbols = if image.starts_with(ELF) {
        of_elf(image)?
    } else if image.starts_with(BUNDLE) {
        of_bundle(image)?
    } else {
        of_ptx(std::str::from_utf8(image).ok()?)?
    };
    let mut paths: Vec<String> = symbols.into_iter().filter_map(|symbol| path(&symbol)).collect();
    paths.sort_unstable();
    paths.dedup();
    Some(paths)
}

/// Returns variables for a message: names the first ones, and says how many more there are.
#[must_use]
pub fn list(paths: &[String]) -> String {
    const SHOWN: usize = 5;
    let shown = paths.iter().take(SHOWN).map(|path| format!("`{path}`")).collect::<Vec<_>>().join(", ");
    match paths.len().saturating_sub(SHOWN) {
        0 => shown,
        others => format!("{shown} and {others} more"),
    }
}

/// Returns a path without template arguments, as in the variable's declaration.
#[must_use]
pub fn declared(path: &str) -> String {
    let mut depth = 0_usize;
    let outside = |c: &char| {
        depth += usize::from(*c == '<');
        let outside = depth == 0;
        depth = depth.saturating_sub(usize::from(*c == '>'));
        outside
    };
    path.chars().filter(outside).collect()
}

/// Returns the symbols of the variables in writable memory.
fn of_elf(image: &[u8]) -> Option<Vec<String>> {
    let file = ElfFile::<FileHeader64<Endianness>>::parse(image).ok()?;
    let mut symbols = Vec::new();
    for symbol in file.symbols().chain(file.dynamic_symbols()) {
        // Thread-local variables have another kind. An unknown kind is GNU's unique object.
        if !matches!(symbol.kind(), SymbolKind::Data | SymbolKind::Unknown) || symbol.size() == 0 {
            continue;
        }
        let writable = match symbol.section() {
            SymbolSection::Section(index) => is_writable(&file.section_by_index(index).ok()?),
            SymbolSection::Common => true,
            _ => false,
        };
        if writable {
            symbols.push(symbol.name().ok()?.to_owned());
        }
    }
    // If a file has no symbol table of its own, it only tells us the variables of other files.
    let hides = |section: Section<'_>| {
        let name = section.name().unwrap_or_default();
        is_writable(&section)
            && section.size() != 0
            && DATA_SECTIONS.iter().any(|data| name.starts_with(data))
    };
    let hidden = file.symbol_table().is_none() && file.sections().any(hides);
    (!hidden).then_some(symbols)
}

type Section<'a> = ElfSection<'a, 'a, FileHeader64<Endianness>>;

/// Returns true if a kernel could write into a section so that other kernels see it.
fn is_writable(section: &Section<'_>) -> bool {
    let SectionFlags::Elf { sh_flags, .. } = section.flags() else { return false };
    let other = |name: &str| OTHER_SECTIONS.iter().any(|other| name.starts_with(other));
    sh_flags.0 & SHF_WRITE.0 != 0 && !section.name().is_ok_and(other)
}

/// Returns the symbols of all code objects in a bundle. A bundle has a count, then entries with offset, size and name, then
/// the objects.
fn of_bundle(image: &[u8]) -> Option<Vec<String>> {
    let number = |at: usize| -> Option<usize> {
        let bytes = image.get(at..at.checked_add(8)?)?;
        usize::try_from(u64::from_le_bytes(bytes.try_into().ok()?)).ok()
    };
    let (count, mut at) = (number(BUNDLE.len())?, BUNDLE.len() + 8);
    let mut symbols = Vec::new();
    for _ in 0..count {
        let (offset, size, name) = (number(at)?, number(at + 8)?, number(at + 16)?);
        let object = image.get(offset..offset.checked_add(size)?)?;
        if !object.is_empty() {
            symbols.extend(of_elf(object)?);
        }
        at = at.checked_add(24)?.checked_add(name)?;
    }
    Some(symbols)
}

/// Returns the symbols of the `.global` variables that PTX declares, such as `.visible .global .align 4 .b8 name[12] =
/// {…};`.
fn of_ptx(text: &str) -> Option<Vec<String>> {
    if !text.lines().any(|line| line.trim_start().starts_with(".version")) {
        return None;
    }
    let mut symbols = Vec::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let word = words.by_ref().find(|word| ![".visible", ".weak", ".common"].contains(word));
        if word != Some(".global") {
            continue;
        }
        let declared = line.split(['=', '[', ';']).next().unwrap_or(line);
        symbols.push(declared.split_whitespace().last()?.to_owned());
    }
    Some(symbols)
}

/// Returns a symbol's readable path, or `None` if the symbol belongs to the compiler, a vendor or this library.
fn path(symbol: &str) -> Option<String> {
    // If a `static` variable is set up at run time, it has a guard. If a function cleans up after an exception, g++ keeps the
    // address of its handler in a variable.
    if symbol.starts_with(['$', '.'])
        || ["_ZGV", "_ZTV", "DW.ref."].iter().any(|start| symbol.starts_with(start))
    {
        return None;
    }
    let options = DemangleOptions::new().no_params().no_return_type();
    let demangled = Symbol::new(symbol).ok().and_then(|it| it.demangle_with_options(&options).ok());
    let whole = demangled.unwrap_or_else(|| symbol.to_owned());
    let own = |part: &&str| !UNNAMED.iter().any(|start| part.starts_with(start));
    let parts: Vec<&str> = parts(&whole).filter(own).collect();
    let others = OTHER_NAMESPACES.contains(parts.first()?)
        || parts.iter().any(|part| OTHER_STARTS.iter().any(|start| part.starts_with(start)));
    // Of a function, we show only the name and not the parameters.
    let short =
        |part: &&str| part.split('(').next().filter(|name| !name.is_empty()).unwrap_or(part).to_owned();
    (!others).then(|| parts.iter().map(short).collect::<Vec<_>>().join("::"))
}

/// Splits a path at each `::` outside brackets.
fn parts(path: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(path);
    std::iter::from_fn(move || {
        let text = rest?;
        let (mut depth, mut previous) = (0_usize, ' ');
        for (at, c) in text.char_indices() {
            match c {
                '(' | '<' | '[' | '{' => depth += 1,
                ')' | '>' | ']' | '}' => depth = depth.saturating_sub(1),
                ':' if previous == ':' && depth == 0 => {
                    rest = Some(&text[at + 1..]);
                    return Some(&text[..at - 1]);
                }
                _ => {}
            }
            previous = c;
        }
        rest = None;
        Some(text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(symbols: &[&str]) -> Vec<String> {
        symbols.iter().filter_map(|symbol| path(symbol)).collect()
    }

    #[test]
    fn the_users_variables_have_readable_paths() {
        // The symbols of g++ 12, clang 15 and nvcc 13.0.
        assert_eq!(
            paths(&[
                "hidden",
                "DW.ref.__gxx_personality_v0",
                "_ZL1x",
                "_ZN6Holder6memberE",
                "_Z9templatedIjE",
                "_ZZ1kPfiE5local",
                "_ZZ1fIiEvT_E1n",
                "_ZN12_GLOBAL__N_19anon_usedE",
                "_ZN29_INTERNAL_c3f3a869_4_n_cu_v_c31_GLOBAL__N__c3f3a869_4_n_cu_v_c9anon_usedE",
                "_Znonsense",
            ]),
            [
                "hidden",
                "x",
                "Holder::member",
                "templated<unsigned int>",
                "k::local",
                "f<int>::n",
                "anon_used",
                "anon_used",
                "_Znonsense"
            ]
        );
        let paths = ["a::b<c::d<e>>::templated<unsigned int>", "k::local", "hidden>", ""];
        assert_eq!(paths.map(declared), ["a::b::templated", "k::local", "hidden>", ""]);
    }

    #[test]
    fn long_lists_are_cut() {
        let paths: Vec<_> = (0..7).map(|number| format!("v{number}")).collect();
        assert_eq!(list(&paths[..2]), "`v0`, `v1`");
        assert_eq!(list(&paths), "`v0`, `v1`, `v2`, `v3`, `v4` and 2 more");
    }

    #[test]
    fn what_compilers_and_vendors_add_does_not_count() {
        assert_eq!(
            paths(&[
                "$str$1",
                "__unnamed_1",
                "__cudart_i2opi_f",
                "__hip_cuid_1234",
                "_ZGVZ1kvE5local",
                "_ZStL8__ioinit",
                "_ZN4cuda3std3__45__cpo5beginE",
                "_ZN29_INTERNAL_c3f3a869_4_n_cu_v_c4cuda3std3__45__cpo5beginE",
                "_ZN6thrust12placeholders2_1E",
                "precalc_xorwow_matrix",
            ]),
            [""; 0]
        );
    }

    /// What nvcc 13.0 declares for one file.
    const PTX: &str = "//
.version 9.0
.target sm_90
.global .align 4 .u32 hidden;
.visible .global .align 4 .b8 table[20] = {0, 0, 128, 63};
.const .align 4 .b8 constant[16];
.global .attribute(.managed) .align 4 .u32 managed;
.global .align 4 .u32 _ZZ1kPfiE5local = 1;
.global .align 1 .b8 $str[3] = {37, 100};
.visible .entry k(.param .u64 k_param_0) {
\t.shared .align 4 .b8 tile[256];
\tld.global.u32 \t%r1, [%rd1];
}
";

    #[test]
    fn ptx_declares_its_variables() {
        assert_eq!(writable(PTX.as_bytes()).unwrap(), ["hidden", "k::local", "managed", "table"]);
    }

    #[test]
    fn an_image_that_cannot_be_read_has_no_list() {
        for image in [&b""[..], b"CCOB", b"\x50\xed\x55\xba\x01\0", b"\x7fELF", b"text", &[0xff; 100]] {
            assert_eq!(writable(image), None, "{image:?}");
        }
        let mut bundle = BUNDLE.to_vec();
        bundle.extend(u64::MAX.to_le_bytes());
        assert_eq!(writable(&bundle), None);
        let mut empty = BUNDLE.to_vec();
        empty.extend(0_u64.to_le_bytes());
        assert_eq!(writable(&empty), Some(Vec::new()));
    }
}
