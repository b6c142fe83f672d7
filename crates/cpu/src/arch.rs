//! Instruction levels: which images this machine can run.

/// Levels from least to most able.
const LEVELS: [&str; 4] = ["x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4"];

/// How well an image for `target` suits this machine; higher is better.
pub(crate) fn rank(target: &str) -> Option<u32> {
    if cfg!(target_arch = "aarch64") {
        return (target == "aarch64").then_some(1);
    }
    let rank = LEVELS.iter().position(|&level| level == target)?;
    (rank <= level()).then_some(rank as u32 + 1)
}

/// The best target of this machine.
pub(crate) fn best() -> &'static str {
    if cfg!(target_arch = "aarch64") { "aarch64" } else { LEVELS[level()] }
}

#[cfg(target_arch = "x86_64")]
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

#[cfg(not(target_arch = "x86_64"))]
fn level() -> usize {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_target_ranks_highest_and_strangers_not_at_all() {
        assert!(rank(best()).is_some());
        for target in LEVELS {
            assert!(rank(target) <= rank(best()), "{target}");
        }
        assert_eq!(rank("sm_90"), None);
        assert_eq!(rank(""), None);
    }
}
