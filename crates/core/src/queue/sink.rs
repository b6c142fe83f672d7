//! The places that a stream's operations go to.

use std::sync::Arc;

use super::capture::Capture;
use crate::record::{NodeAdder, NodeSetter};

/// The place that a stream's operations go to. A stream keeps its sink for life.
pub enum Sink {
    /// To the driver's stream, or into the capture that the stream takes part in.
    Driver,
    /// Into a new node.
    Node(Arc<NodeAdder>),
    /// Into a node of an executable.
    Set(Arc<NodeSetter>),
}

/// The recording that a stream takes part in. Changed under the stream's lock.
pub enum Recording {
    /// Nothing: operations run.
    None,
    /// A driver's capture. Set together with the driver's state and cleared after the driver's: until then only the
    /// capturing thread's calls reach the driver.
    Capture(Arc<Capture>),
    /// A node under construction. The driver has no such stream, and operations cannot run.
    Node,
}
