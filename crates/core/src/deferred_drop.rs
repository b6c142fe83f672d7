//! Your values that the library has to drop. Their destructors may do anything: panic, wait, or call the library, perhaps at
//! a place that holds a lock. So we run them on a thread of our own, while nothing is locked.

use std::any::Any;
use std::error::Error as _;

use gpustream_hal::{Error, Result};

use crate::{process, reentrancy};

/// Drops your values on a thread of the library.
pub(crate) fn drop_elsewhere(values: impl Send + 'static) {
    reentrancy::elsewhere(move || drop(values));
}

/// Drops your values when you drop their last handle: now, or on a thread of the library if this thread is inside a closure
/// that must not call the library.
pub fn drop_outside(values: impl Send + 'static) {
    if reentrancy::is_inside() { drop_elsewhere(values) } else { process::users_code(|| drop(values)) }
}

/// Owns memory or a module that you made yourself or got from another library.
pub struct ForeignOwner {
    _owner: Box<dyn Any + Send>,
}

impl ForeignOwner {
    pub fn new(owner: impl Send + 'static) -> Self {
        Self { _owner: Box::new(DropElsewhere(Some(owner))) }
    }

    /// Makes an owner that belongs to the library and runs none of your code. We drop it at once, so that an allocation that
    /// is waiting for room can use what this one had.
    pub fn ours(owner: impl Send + 'static) -> Self {
        Self { _owner: Box::new(owner) }
    }
}

/// Drops its value on a thread of the library.
struct DropElsewhere<T: Send + 'static>(Option<T>);

impl<T: Send + 'static> Drop for DropElsewhere<T> {
    fn drop(&mut self) {
        if let Some(value) = self.0.take() {
            drop_elsewhere(value);
        }
    }
}

/// An error that we have not reported yet. Its source is a value of yours. So if another error replaces it, or its stream
/// ends first, we must drop it elsewhere.
#[derive(Clone)]
pub(crate) struct Untold(Option<Error>);

impl Untold {
    pub(crate) fn new(error: Error) -> Self {
        Self(Some(error))
    }

    /// Reports the error.
    pub(crate) fn tell(mut self) -> Result<()> {
        self.0.take().map_or(Ok(()), Err)
    }
}

impl Drop for Untold {
    fn drop(&mut self) {
        if let Some(error) = self.0.take().filter(|error| error.source().is_some()) {
            drop_elsewhere(error);
        }
    }
}
