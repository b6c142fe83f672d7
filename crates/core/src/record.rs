//! Recordings: operations that go into a graph instead of running.
//!
//! A recorded operation does not run yet. So it must not enter the memory's own histories, and they must not order it.
//! Instead, each recording has its own histories ([`scope`]). When you launch the finished graph, the launch counts as one
//! operation that touches everything the recording touches ([`contents`]).
//!
//! | module | takes | a recorded operation becomes |
//! |---|---|---|
//! | [`nodes`] | the operations of a stream that stands for a new node | one new node |
//! | [`condition`] | the operations of a stream that stands for a conditional node's body | the body's next node |
//! | [`setter`] | the one operation of a stream that stands for a node of an executable | the new work of that node |
//!
//! If you set a node, it may now touch memory that the graph's edges do not order. [`order`] finds that out.
//!
//! Memory that you allocate inside a recording belongs to it until it ends ([`allocated`]).
//!
//! Captures by the driver are not here but in [`stream`](crate::stream), because a capture is a state of streams. This layer
//! knows operations, memory and the driver's graphs, but not streams.

mod allocated;
pub mod attributes;
mod calls;
pub(crate) mod chains;
pub(crate) mod condition;
pub(crate) mod contents;
pub mod nodes;
mod order;
mod owned;
pub(crate) mod scope;
pub mod setter;

pub use calls::RecordedCalls;
pub use condition::{Condition, check_levels};
pub use contents::{Contents, GraphOperation, GraphUses, Keep};
pub use nodes::NodeAdder;
pub use order::NodeOrder;
pub use owned::{OwnedExec, OwnedGraph};
pub use setter::NodeSetter;
