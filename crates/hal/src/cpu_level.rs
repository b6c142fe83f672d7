//! Instruction levels of processors, which images for the CPU are compiled for.

use cfg_if::cfg_if;

cfg_if! {
    if #[cfg(target_arch = "aarch64")] {
        /// The levels from least to most able.
        pub const LEVELS: [&str; 1] = ["aarch64"];

        fn index() -> usize {
            0
        }
    } else {
        /// The levels from least to most able.
        pub const LEVELS: [&str; 4] = ["x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4"];

        fn index() -> usize {
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

/// Returns the best level that this machine can run.
#[must_use]
pub fn best() -> &'static str {
    LEVELS[index()]
}

/// Returns how good a level is, or `None` if this machine cannot run it. Higher is better.
#[must_use]
pub fn rank(level: &str) -> Option<u32> {
    let rank = LEVELS.iter().position(|&known| known == level)?;
    (rank <= index()).then_some(rank as u32 + 1)
}
