//! The two-array pipeline: both arrays go to the device, `a += 1` and `b += a + 3` run there, and both come back,
//! round after round.

/// How often the arrays travel.
pub(crate) const ROUNDS: usize = 50;

/// Into how many pieces the arrays are cut, which take turns on two streams.
pub(crate) const PIECES: usize = 4;
