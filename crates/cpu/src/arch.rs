//! Instruction levels: which images this machine can run.

use gpustream_hal::cpu_level;
use object::elf;

/// The processor that a module is for, in ELF's numbers.
pub(crate) const MACHINE: elf::Machine =
    if cfg!(target_arch = "aarch64") { elf::EM_AARCH64 } else { elf::EM_X86_64 };

/// What follows the level in the name of an image for checked mode. Such an image checks array bounds.
const CHECKED: &str = "-checked";

/// Returns how well an image for `target` suits this machine; higher is better. Images for checked mode only
/// suit that mode, and are best there.
pub(crate) fn rank(target: &str, check: bool) -> Option<u32> {
    match target.strip_suffix(CHECKED) {
        Some(target) => {
            cpu_level::rank(target).filter(|_| check).map(|rank| rank + cpu_level::LEVELS.len() as u32)
        }
        None => cpu_level::rank(target),
    }
}

#[cfg(test)]
mod tests {
    use gpustream_hal::cpu_level::{LEVELS, best};

    use super::*;

    #[test]
    fn the_best_target_ranks_highest_and_strangers_not_at_all() {
        for check in [false, true] {
            assert!(rank(best(), check).is_some());
            for target in LEVELS {
                assert!(rank(target, check) <= rank(best(), check), "{target}");
            }
            assert_eq!(rank("sm_90", check), None);
            assert_eq!(rank("", check), None);
        }
    }

    #[test]
    fn images_with_checks_are_for_checked_mode() {
        let least = format!("{}-checked", LEVELS[0]);
        assert_eq!(rank(&least, false), None);
        assert!(rank(&least, true) > rank(best(), true));
        assert_eq!(rank("-checked", true), None);
    }
}
