//! NVIDIA's names for devices and for the targets of code: `sm_90a`, `compute_80`.

/// The letter behind a compute capability: `90`, `90a`, `100f`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Suffix {
    None,
    /// The code can also run on later devices of the same family.
    Family,
    /// The code can only run on this very architecture.
    Exact,
}

fn capability(text: &str) -> Option<(u32, u32, Suffix)> {
    let (digits, suffix) = match text.as_bytes().last()? {
        b'a' => (&text[..text.len() - 1], Suffix::Exact),
        b'f' => (&text[..text.len() - 1], Suffix::Family),
        _ => (text, Suffix::None),
    };
    let number: u32 = digits.parse().ok()?;
    Some((number / 10, number % 10, suffix))
}

/// Returns how well an image for `target` suits a device with architecture `arch`.
///
/// Machine code can run on its own major version, from its own minor version on. PTX can run on anything that is not
/// older. We prefer machine code, because the driver must first compile PTX, and then the newest target.
pub(crate) fn rank(arch: &str, target: &str) -> Option<u32> {
    let (major, minor, _) = capability(arch.strip_prefix("sm_")?)?;
    let (machine_code, version) = match target.strip_prefix("sm_") {
        Some(version) => (true, version),
        None => (false, target.strip_prefix("compute_")?),
    };
    let (wants_major, wants_minor, suffix) = capability(version)?;
    let runs = match suffix {
        Suffix::Exact => (major, minor) == (wants_major, wants_minor),
        Suffix::Family => major == wants_major && minor >= wants_minor,
        Suffix::None if machine_code => major == wants_major && minor >= wants_minor,
        Suffix::None => (major, minor) >= (wants_major, wants_minor),
    };
    let specific = match suffix {
        Suffix::None => 0,
        Suffix::Family => 1,
        Suffix::Exact => 2,
    };
    runs.then_some(u32::from(machine_code) * 1_000_000 + (wants_major * 10 + wants_minor) * 10 + specific)
}

#[cfg(test)]
mod tests {
    use super::rank;

    #[test]
    fn machine_code_runs_within_its_major_version() {
        assert!(rank("sm_90", "sm_90").is_some());
        assert!(rank("sm_89", "sm_80").is_some());
        assert_eq!(rank("sm_80", "sm_89"), None);
        assert_eq!(rank("sm_90", "sm_80"), None);
        assert_eq!(rank("sm_120", "sm_100"), None);
        assert!(rank("sm_121", "sm_120").is_some());
    }

    #[test]
    fn ptx_runs_on_anything_not_older() {
        assert!(rank("sm_90", "compute_80").is_some());
        assert!(rank("sm_100", "compute_90").is_some());
        assert_eq!(rank("sm_86", "compute_90"), None);
    }

    #[test]
    fn specific_targets_run_only_where_they_say() {
        assert!(rank("sm_90", "sm_90a").is_some());
        assert_eq!(rank("sm_100", "compute_90a"), None);
        assert!(rank("sm_103", "sm_100f").is_some());
        assert_eq!(rank("sm_103", "sm_100a"), None);
    }

    #[test]
    fn the_best_of_several_is_the_newest_machine_code() {
        let best = |arch, targets: &[&'static str]| {
            targets.iter().copied().filter(|t| rank(arch, t).is_some()).max_by_key(|t| rank(arch, t))
        };
        assert_eq!(best("sm_90", &["sm_80", "compute_90", "sm_90", "compute_80"]), Some("sm_90"));
        assert_eq!(best("sm_90", &["sm_90", "sm_90a"]), Some("sm_90a"));
        assert_eq!(best("sm_89", &["sm_80", "sm_86", "compute_89", "sm_90"]), Some("sm_86"));
        assert_eq!(best("sm_120", &["sm_90", "compute_80", "compute_90"]), Some("compute_90"));
        assert_eq!(best("sm_75", &["sm_80", "gfx942", "x86-64-v3", "sm_", "compute_x"]), None);
    }
}
