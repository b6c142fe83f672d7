//! Instruction levels: which images this machine can run.

use cfg_if::cfg_if;
use object::elf;

cfg_if! {
    if #[cfg(target_arch = "aarch64")] {
        /// The processor that a module is for, in ELF's numbers.
        pub(crate) const MACHINE: elf::Machine = elf::EM_AARCH64;
        /// Levels from least to most able.
        const LEVELS: [&str; 1] = ["aarch64"];

        /// Returns the index of the best level that this machine can run.
        fn level() -> usize {
            0
        }
    } else {
        /// The processor that a module is for, in ELF's numbers.
        pub(crate) const MACHINE: elf::Machine = elf::EM_X86_64;
        /// Levels from least to most able.
        const LEVELS: [&str; 4] = ["x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4"];

        /// Returns the index of the best level that this machine can run.
        fn level() -> usize {
            macro_rules! all {
                ($($feature:tt),*) => { $(std::is_x86_feature_detected!($feature))&&* };
            }
            if !all!("sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "cmpxchg16b") {
                0
            } else if !all!("avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "lzcnt", "movbe") {
                1
            } else if !all!("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl") {
                2
            } else {
                3
            }
        }
    }
}

/// What follows the level in the name of an image for checked mode. Such an image checks array bounds.
const CHECKED: &str = "-checked";

/// Returns how well an image for `target` suits this machine; higher is better. Images for checked mode only
/// suit that mode, and are best there.
pub(crate) fn rank(target: &str, check: bool) -> Option<u32> {
    match target.strip_suffix(CHECKED) {
        Some(target) => level_rank(target).filter(|_| check).map(|rank| rank + LEVELS.len() as u32),
        None => level_rank(target),
    }
}

fn level_rank(target: &str) -> Option<u32> {
    let rank = LEVELS.iter().position(|&level| level == target)?;
    (rank <= level()).then_some(rank as u32 + 1)
}

/// Returns the best target that this machine can run.
pub(crate) fn best() -> &'static str {
    LEVELS[level()]
}

#[cfg(test)]
mod tests {
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
