//! What the service does with an image, without HTTP: `beside_cudarc` runs it too.

pub mod blur;
pub mod image;
