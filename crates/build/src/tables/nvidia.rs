//! The `.nv.info.KERNEL` sections of cubins, and the output of `ptxas -v`.

use std::collections::HashMap;

use object::{Object as _, ObjectSection as _};

use super::ParamTable;

/// `EIATTR_KPARAM_INFO`: one record per parameter.
const KPARAM_INFO: u8 = 0x17;
/// `EIATTR_KPARAM_INFO_V2`: the same, for kernels with more than 4096 bytes of parameters.
const KPARAM_INFO_V2: u8 = 0x45;
/// `EIFMT_SVAL`: the record's 16-bit value is the length of the payload after it.
const FORMAT_SVAL: u8 = 4;

/// What a cubin's tables say about a kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kernel {
    pub(crate) params: ParamTable,
    /// Bytes of code.
    pub(crate) code_size: u64,
}

/// Returns every kernel of a cubin, by name.
pub(crate) fn kernels(cubin: &[u8]) -> Result<HashMap<String, Kernel>, String> {
    let file = object::File::parse(cubin).map_err(|e| format!("the cubin cannot be read: {e}"))?;
    let mut kernels: HashMap<String, Kernel> = HashMap::new();
    for section in file.sections() {
        let name = section.name().unwrap_or_default();
        if let Some(kernel) = name.strip_prefix(".nv.info.") {
            let data = section.data().map_err(|e| format!("section {name}: {e}"))?;
            let params = records(data).ok_or_else(|| format!("section {name} is damaged"))?;
            kernels.entry(kernel.to_owned()).or_default().params = params;
        } else if let Some(kernel) = name.strip_prefix(".text.") {
            kernels.entry(kernel.to_owned()).or_default().code_size = section.size();
        }
    }
    Ok(kernels)
}

/// Returns the symbols of all variables in a cubin.
pub(crate) fn variables(cubin: &[u8]) -> Vec<String> {
    let Ok(file) = object::File::parse(cubin) else { return Vec::new() };
    super::variables(file.symbols())
}

fn records(mut data: &[u8]) -> Option<ParamTable> {
    let mut params = Vec::new();
    while let Some((head, rest)) = data.split_first_chunk::<4>() {
        let [format, attribute, low, high] = *head;
        let length = if format == FORMAT_SVAL { usize::from(u16::from_le_bytes([low, high])) } else { 0 };
        let payload = rest.get(..length)?;
        if matches!(attribute, KPARAM_INFO | KPARAM_INFO_V2) {
            let half = |at: usize| Some(u16::from_le_bytes(payload.get(at..at + 2)?.try_into().ok()?));
            let last = u32::from_le_bytes(payload.get(8..12)?.try_into().ok()?);
            // The first version keeps flags in the bits below the size.
            let size = if attribute == KPARAM_INFO { last >> 18 } else { last };
            params.push((half(4)?, usize::from(half(6)?), size as usize));
        }
        data = &rest[length..];
    }
    params.sort_unstable();
    Some(params.into_iter().map(|(_, offset, size)| (offset, size)).collect())
}

/// What ptxas reports about a kernel for one target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Resources {
    pub(crate) registers: u32,
    /// Bytes of spill stores and loads.
    pub(crate) spills: u32,
    /// Bytes of a thread's stack frame.
    pub(crate) scratch: u32,
    pub(crate) shared: u32,
}

/// Reads the output of `ptxas -v`, by kernel and target.
pub(crate) fn resources(log: &str) -> HashMap<(String, String), Resources> {
    let mut all: HashMap<_, Resources> = HashMap::new();
    let mut current = None;
    for line in log.lines() {
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            let mut quoted = rest.split('\'');
            if let (Some(kernel), Some(target)) = (quoted.next(), quoted.nth(1)) {
                current = Some((kernel.to_owned(), target.to_owned()));
            }
        }
        let Some(key) = &current else { continue };
        let number = |words| number_before(line, words).unwrap_or(0);
        if line.contains("bytes spill stores") {
            let spills = number(" bytes spill stores").saturating_add(number(" bytes spill loads"));
            let entry = all.entry(key.clone()).or_default();
            (entry.spills, entry.scratch) = (spills, number(" bytes stack frame"));
        } else if line.contains("Used ") {
            let entry = all.entry(key.clone()).or_default();
            (entry.registers, entry.shared) = (number(" registers"), number(" bytes smem"));
        }
    }
    all
}

fn number_before(line: &str, words: &str) -> Option<u32> {
    let before = &line[..line.find(words)?];
    before.rsplit(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Returns the log without the lines that [`resources`] reads. The rest are the compiler's warnings.
pub(crate) fn warnings(log: &str) -> String {
    let chatter =
        |line: &str| line.starts_with("ptxas info") || line.trim_start().starts_with("0 bytes stack frame");
    let kept: Vec<_> = log
        .lines()
        .filter(|line| !chatter(line) && !line.contains("bytes spill stores") && !line.trim().is_empty())
        .collect();
    kept.join("\n")
}

#[cfg(test)]
mod tests {
    use object::elf::SHT_PROGBITS;
    use proptest::prelude::*;

    use super::super::tests::{damaged, elf};
    use super::*;

    const LOG: &str = "ptxas info    : 24 bytes gmem
ptxas info    : Compiling entry function 'a' for 'sm_90'
ptxas info    : Function properties for a
    8 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads
ptxas info    : Used 24 registers, used 1 barriers, 256 bytes smem
k.cu(3): warning #177-D: variable \"v\" was declared but never referenced
ptxas info    : Compiling entry function 'a' for 'sm_80'
ptxas info    : Function properties for a
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 23 registers, 408 bytes cmem[0]
";

    #[test]
    fn resources_are_read_by_kernel_and_target() {
        let all = resources(LOG);
        let at = |target: &str| all[&("a".to_owned(), target.to_owned())];
        assert_eq!(at("sm_90"), Resources { registers: 24, spills: 28, scratch: 8, shared: 256 });
        assert_eq!(at("sm_80"), Resources { registers: 23, spills: 0, scratch: 0, shared: 0 });
        assert_eq!(
            warnings(LOG),
            "k.cu(3): warning #177-D: variable \"v\" was declared but never referenced"
        );
    }

    #[test]
    fn damaged_records_are_refused() {
        assert_eq!(records(&[4, KPARAM_INFO, 12, 0, 1, 2, 3]), None);
        let short = [4, KPARAM_INFO, 4, 0, 1, 2, 3, 4];
        assert_eq!(records(&short), None);
        assert_eq!(records(&[1, 2, 3, 4]), Some(Vec::new()));
    }

    /// The table that nvcc 13.0 writes for a kernel that takes a struct of 8192 bytes, a pointer and an int.
    const LARGE: [u8; 56] = [
        4, 0x37, 4, 0, 0x82, 0, 0, 0, 4, 0x45, 12, 0, 0, 0, 0, 0, 2, 0, 8, 0x20, 4, 0, 0, 0, 4, 0x45, 12, 0,
        0, 0, 0, 0, 1, 0, 0, 0x20, 8, 0, 0, 0, 4, 0x45, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x20, 0, 0,
    ];

    #[test]
    fn more_than_4096_bytes_of_parameters_have_records_of_their_own() {
        assert_eq!(records(&LARGE), Some(vec![(0, 8192), (8192, 8), (8200, 4)]));
        assert_eq!(records(&LARGE[..55]), None);
    }

    /// Returns a cubin with a kernel that has two parameters.
    fn cubin() -> Vec<u8> {
        let mut info = Vec::new();
        for (ordinal, offset, size) in [(1_u16, 8_u16, 4_u32), (0, 0, 8)] {
            info.extend([FORMAT_SVAL, KPARAM_INFO, 12, 0, 0, 0, 0, 0]);
            info.extend(ordinal.to_le_bytes());
            info.extend(offset.to_le_bytes());
            info.extend((size << 18).to_le_bytes());
        }
        elf(&[(".nv.info.k", SHT_PROGBITS, info), (".text.k", SHT_PROGBITS, vec![0; 32])])
    }

    #[test]
    fn a_cubin_names_kernels_and_what_is_passed() {
        let kernels = kernels(&cubin()).unwrap();
        assert_eq!(kernels["k"], Kernel { params: vec![(0, 8), (8, 4)], code_size: 32 });
    }

    proptest! {
        #[test]
        fn whatever_is_read_ends_in_an_answer(bytes: Vec<u8>, info: Vec<u8>, log: String) {
            prop_assert!(kernels(&bytes).is_err());
            let _ = kernels(&elf(&[(".nv.info.k", SHT_PROGBITS, info)]));
            let _ = resources(&log);
            let _ = warnings(&log);
        }

        #[test]
        fn damage_ends_in_an_answer(damaged in damaged(cubin())) {
            let _ = kernels(&damaged);
            let _ = variables(&damaged);
            let _ = gpustream_hal::variables::writable(&damaged);
        }

        #[test]
        fn words_of_ptxas_in_any_order_end_in_an_answer(
            words in prop::collection::vec(
                prop::sample::select(vec![
                    "Compiling entry function '", "a' for 'sm_90'", "\n", "Used ", "99999999999", "4294967295",
                    " bytes spill stores", " bytes spill loads", " registers", " bytes smem", ",", "é",
                ]),
                0..40,
            ),
        ) {
            let _ = resources(&words.concat());
        }
    }
}
