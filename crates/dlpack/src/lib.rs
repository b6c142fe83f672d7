//! Shares device memory between [`gpustream`] and other libraries without a copy, through DLPack.
//!
//! [DLPack](https://dmlc.github.io/dlpack/latest/) is a C struct with an address, a shape and a deleter. It comes in two forms, [`DLManagedTensor`] for versions up to 0.8 and [`DLManagedTensorVersioned`] for 1.x, and this crate supports both. A [`Managed`] owns a tensor of either form. [`from_dlpack`] imports one, and [`into_dlpack`] exports one:
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
//! DLPack has one rule for order: the consumer names a stream, and the producer must make that stream wait
//! for the work that it has enqueued on the memory. Here it is the stream that you pass to both functions.
//! The host does not wait, except when you export a tensor from the CPU, because DLPack has no streams there.
//!
//! The struct does not say when the consumer's work ends. So before a consumer calls the deleter, it must
//! have enqueued all of its work on that same stream, or on streams that this stream waits for.
//!
//! # Deleters
//!
//! Each deleter runs exactly once. If you import a tensor, its deleter runs on a thread of the library, after
//! you have dropped the tensor and its last use is done. If we refuse the tensor, its deleter runs before the
//! call returns. A deleter may be slow, because NumPy's, for example, must wait for the interpreter's lock.
//! No call of the library waits for it.
#![warn(clippy::missing_errors_doc)]

mod call;
mod element;
mod export;
mod import;
mod managed;
mod place;
mod shape;

/// DLPack's C structs and codes, from the crate `dlpack-rs`.
pub use dlpack_rs::ffi;
pub use dlpack_rs::ffi::{DLDevice, DLManagedTensor, DLManagedTensorVersioned};
pub use element::Element;
pub use export::{into_dlpack, into_dlpack_with_owner};
pub use import::{Tensor, from_dlpack};
pub use managed::{Form, Managed};
pub use place::device_of;
