//! The two-array pipeline: both arrays go to the device, `a += 1` and `b += a + 3` run there, and both come back,
//! round after round.

/// The number of rounds.
pub(crate) const ROUNDS: usize = 50;

/// How many pieces we cut the arrays into. They take turns on two streams, so that copies and kernels can overlap.
pub(crate) const PIECES: usize = 4;
