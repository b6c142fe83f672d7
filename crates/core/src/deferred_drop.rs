//! Values of the program that the library has to drop. Their destructors may do anything: panic, wait, or call the library,
//! which may hold a lock at that place. So they run on a thread of the library, where nothing is locked.

use std::any::Any;
use std::error::Error as _;

use gpustream_hal::{Error, Result};

use crate::{process, reentrancy};

/// Drops values of the program on a thread of the library.
pub(crate) fn drop_elsewhere(values: impl Send + 'static) {
    reentrancy::elsewhere(move || drop(values));
}

/// Drops values of the program where it drops their last handle: now, or on a thread of the library if this thread is inside a
/// closure that may not call the library.
pub fn drop_outside(values: impl Send + 'static) {
    if reentrancy::is_inside() { drop_elsewhere(values) } else { process::users_code(|| drop(values)) }
}

/// The owner of memory or of a module that the program made itself or got from another library.
pub struct ForeignOwner {
    owner: Option<Box<dyn Any + Send>>,
    is_ours: bool,
}

impl ForeignOwner {
    pub fn new(owner: impl Send + 'static) -> Self {
        Self { owner: Some(Box::new(owner)), is_ours: false }
    }

    /// An owner of the library's own, which runs no code of the program's: it is dropped at once, so that an allocation which
    /// waits for room finds what this one had.
    pub fn ours(owner: impl Send + 'static) -> Self {
        Self { owner: Some(Box::new(owner)), is_ours: true }
    }
}

impl Drop for ForeignOwner {
    fn drop(&mut self) {
        if !self.is_ours
            && let Some(owner) = self.owner.take()
        {
            drop_elsewhere(owner);
        }
    }
}

/// An error that waits until the program is told of it. Another may take its place, or its stream may end before, and its source
/// is a value of the program.
#[derive(Clone)]
pub(crate) struct Untold(Option<Error>);

impl Untold {
    pub(crate) fn new(error: Error) -> Self {
        Self(Some(error))
    }

    /// Fails with the error, for the program.
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
