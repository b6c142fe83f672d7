//! Values for memory, and contents that a test expects.

use std::fmt::Debug;

use bytemuck::Pod;
use gpustream::{AsView, Result, Stream};

/// Asserts that every element of the memory is `value`, and names the first that is not.
///
/// # Errors
/// The errors of the download.
///
/// # Panics
/// An element is another value.
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

/// Returns what the kernel `step` makes of `x`, and the kernel `mix` of an element of `y` and its `x`.
#[must_use]
pub fn next(x: u32, value: u32) -> u32 {
    x.wrapping_mul(5).wrapping_add(value)
}

/// Random numbers that the seed determines.
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
