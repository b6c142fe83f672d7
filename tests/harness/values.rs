//! Values that tests write and expect.

use std::fmt::Debug;

use bytemuck::Pod;
use gpustream::{AsView, Result, Stream};

/// Asserts that every element is `value`. If not, the message names the first one that differs.
///
/// # Errors
/// The errors of the download.
///
/// # Panics
/// If an element differs.
#[track_caller]
pub fn assert_all<T: Pod + PartialEq + Debug>(
    stream: &Stream,
    memory: &impl AsView<T>,
    value: T,
) -> Result<()> {
    let values = stream.download(memory)?;
    assert_eq!(values.len(), memory.view().len());
    if let Some(at) = values.iter().position(|it| *it != value) {
        panic!("element {at} of {} is {:?}, not {value:?}", values.len(), values[at]);
    }
    Ok(())
}

/// Returns what the kernel `step` makes of `x`. The kernel `mix` computes the same from an element of `y` and its `x`.
#[must_use]
pub fn next(x: u32, value: u32) -> u32 {
    x.wrapping_mul(5).wrapping_add(value)
}

/// Returns number `i` of numbers that look random.
#[must_use]
pub fn noise(i: usize) -> u64 {
    let z = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (z ^ (z >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// Random numbers. The same seed always gives the same numbers.
#[derive(Debug)]
pub struct Random(pub u64);

impl Random {
    /// Returns the next number.
    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Returns a number below `limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.number() >> 11) as usize % limit
    }
}
