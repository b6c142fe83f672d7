//! Versions of CUDA.

use std::ffi::c_int;
use std::fmt;

/// A version of CUDA, as `cuDriverGetVersion` returns it: 12080 is 12.8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version(pub(crate) c_int);

impl Version {
    /// The oldest version that has the required functions, and whose behaviour we know.
    pub(crate) const OLDEST: Self = Self(12_000);

    pub(crate) const fn major(self) -> u32 {
        self.0 as u32 / 1000
    }
}

impl fmt::Display for Version {
    /// `12.8`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0 / 1000, self.0 % 1000 / 10)
    }
}
