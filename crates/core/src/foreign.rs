//! The owners of things that the library did not make.

use std::any::Any;

use crate::inside;

/// The owner of memory or of a module that the program made itself or got from another library. The owner is dropped on a
/// thread of this library's, because it is the program's and may do anything: panic, wait, or drop the last handle of a
/// device.
pub struct ForeignOwner(Option<Box<dyn Any + Send>>);

impl ForeignOwner {
    pub fn new(owner: impl Send + 'static) -> Self {
        Self(Some(Box::new(owner)))
    }
}

impl Drop for ForeignOwner {
    fn drop(&mut self) {
        if let Some(owner) = self.0.take() {
            inside::elsewhere(move || drop(owner));
        }
    }
}
