//! Recording operations into graphs instead of running them.
//!
//! An operation that comes to a stream goes into the stream's [`Sink`]. Recorded work does not run, so it may not enter
//! the memory's own histories, and work outside may not order it: each recording has histories of its own
//! ([`scope`]). What a finished recording touches in all is what a launch of the graph touches ([`contents`]).
//!
//! | sink | fed by | a recorded operation becomes |
//! |---|---|---|
//! | [`capture`] | a driver's stream that is being captured | what the driver makes of its calls |
//! | [`nodes`] | a stream that stands for a node under construction | one new node |
//! | [`setter`] | a stream that stands for a node of an executable | that node's work |
//!
//! This layer knows streams and memory, and nothing of the handles that users hold.

pub(crate) mod attributes;
pub(crate) mod capture;
pub(crate) mod contents;
pub(crate) mod nodes;
mod scope;
pub(crate) mod setter;

use std::sync::Arc;

use gpustream_hal::{Error, ErrorKind};

pub(crate) use capture::{Capture, CapturedPoint};
pub(crate) use contents::{Contents, GraphUses};
pub(crate) use nodes::NodeAdder;
pub(crate) use setter::NodeSetter;

/// Where a stream's operations go. A stream keeps its sink for life.
pub(crate) enum Sink {
    /// To the driver's stream, or into the capture that the stream takes part in.
    Driver,
    /// Into a new node.
    Node(Arc<NodeAdder>),
    /// Into a node of an executable.
    Set(Arc<NodeSetter>),
}

/// What a stream takes part in. Changed under the stream's lock.
pub(crate) enum Recording {
    /// Nothing: operations run.
    None,
    /// A driver's capture. It was set together with the driver's state and is cleared after the driver's: until then
    /// only the capturing thread's calls reach the driver.
    Capture(Arc<Capture>),
    /// The stream is no driver's. It stands for a node, and there is nothing to run its operations.
    Node,
}

/// The error for something that cannot be part of a recording.
#[cold]
pub(crate) fn refused(what: &str) -> Error {
    Error::new(ErrorKind::Captured, format!("a capture is being recorded, and one cannot {what}"))
}

/// The error for something that is no single node.
#[cold]
pub(crate) fn no_node() -> Error {
    refused("do that in a node of a graph; nodes are kernels, copies, fills and host closures")
}
