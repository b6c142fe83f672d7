//! Device memory for other libraries, and theirs for [`gpustream`], without a copy: DLPack in both directions.
//!
//! [DLPack](https://dmlc.github.io/dlpack/latest/) is a C struct with an address, a shape and a deleter. It comes in two
//! forms, [`DLManagedTensor`] of versions up to 0.8 and [`DLManagedTensorVersioned`] of 1.x, and both are here. A
//! [`Managed`] owns one of either; [`from_dlpack`] takes one in, and [`into_dlpack`] makes one:
//!
//! ```
//! use gpustream::Device;
//! use gpustream_dlpack::{DLManagedTensorVersioned, from_dlpack, into_dlpack};
//!
//! let device = Device::open("cpu")?;
//! let stream = device.stream()?;
//! let buffer = stream.upload(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
//!
//! // Six numbers as two rows of three, for another library.
//! let theirs = into_dlpack::<DLManagedTensorVersioned, _>(buffer, &[2, 3], &stream)?;
//!
//! // SAFETY: the tensor was made for this stream, and nobody else has it.
//! let tensor = unsafe { from_dlpack::<f32, _>(&stream, theirs) }?;
//! assert_eq!(tensor.shape(), [2, 3]);
//! assert_eq!(stream.download(&tensor.view())?, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
//! # Ok::<(), gpustream::Error>(())
//! ```
//!
//! # Order
//!
//! The protocol has one rule for order: the consumer names a stream, and the producer makes it wait for the work on the
//! memory that it has enqueued. Here this is the stream that both functions take. The host does not wait, except for a
//! tensor that is made on the CPU, where the protocol has no streams.
//!
//! The struct says nothing about the end of the consumer's work. So a consumer must have enqueued the last of it on that
//! same stream when it calls the deleter, or on streams that the stream has waited for.
//!
//! # Deleters
//!
//! A deleter runs exactly once. The deleter of a tensor that was taken in runs on a thread of the library's, once the
//! tensor is dropped and its last use is done; the deleter of a tensor that was refused runs before the call returns. A
//! deleter may take its time, as NumPy's does, which waits for the interpreter's lock: no call of the library waits for
//! a deleter.
#![warn(clippy::missing_errors_doc)]

mod call;
mod element;
mod export;
mod import;
mod managed;
mod place;
mod shape;

/// The protocol's C structs and codes, of the crate `dlpack-rs`.
pub use dlpack_rs::ffi;
pub use dlpack_rs::ffi::{DLDevice, DLManagedTensor, DLManagedTensorVersioned};
pub use element::Element;
pub use export::{into_dlpack, into_dlpack_with_owner};
pub use import::{Tensor, from_dlpack};
pub use managed::{Form, Managed};
pub use place::device_of;
