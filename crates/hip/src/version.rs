//! Versions of HIP.

use std::ffi::c_int;
use std::fmt;

/// A version of HIP: `major * 10^7 + minor * 10^5 + patch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version(pub(crate) u32);

impl Version {
    /// The oldest version that has the required functions, and whose behaviour we know.
    pub(crate) const OLDEST: Self = Self::new(5, 0);

    /// From this version on, each bit in a mask stands for a unit as HIP counts them, on every device. Before, a bit
    /// was a compute unit, but on RDNA HIP counts workgroup processors, so we could not tell how many bits a mask
    /// needs.
    pub(crate) const MASKS: Self = Self::new(5, 7);

    /// The first version that imports a descriptor by its number. Before, we must pass the number's address.
    pub(crate) const DESCRIPTORS_BY_VALUE: Self = Self::new(7, 1);
    /// From this version on, a batch of copies can be faster than a loop. Up to 7.2 the function makes one copy after
    /// the other, and we measured 7.13 to be slower than single copies.
    pub(crate) const BATCHES: Self = Self::new(7, 14);

    pub(crate) const fn new(major: u32, minor: u32) -> Self {
        Self(major * 10_000_000 + minor * 100_000)
    }

    pub(crate) const fn major(self) -> u32 {
        self.0 / 10_000_000
    }

    pub(crate) const fn minor(self) -> u32 {
        self.0 / 100_000 % 100
    }

    /// Returns a known fault in this version's graphs. The patch number cannot tell us which release of a version it
    /// is.
    pub(crate) const fn graph_fault(self) -> Option<&'static str> {
        match (self.major(), self.minor()) {
            (7, 2) => Some("graphs of HIP 7.2 hang or compute wrong results (ROCm/clr issue 279)"),
            (7, 14) => Some("graphs of HIP 7.14 compute wrong results (kokkos/kokkos issue 9390)"),
            _ => None,
        }
    }
}

impl From<c_int> for Version {
    fn from(number: c_int) -> Self {
        Self(u32::try_from(number).unwrap_or(0))
    }
}

impl fmt::Display for Version {
    /// `6.4.43483`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major(), self.minor(), self.0 % 100_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faulty_graphs_are_known_by_version() {
        let faulty = |number| Version(number).graph_fault().is_some();
        assert!(faulty(70_226_015) && faulty(71_400_000));
        assert!(!faulty(60_443_483) && !faulty(70_125_424) && !faulty(71_500_001));
    }

    #[test]
    fn versions_read_as_the_vendor_writes_them() {
        for (number, text) in [(50_221_153, "5.2.21153"), (60_443_483, "6.4.43483"), (71_500_001, "7.15.1")] {
            assert_eq!(Version(number).to_string(), text);
        }
        assert!(Version(50_221_153) > Version::OLDEST && Version(40_500_000) < Version::OLDEST);
    }
}
