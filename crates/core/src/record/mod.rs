//! Recordings: operations that go into a graph instead of running.
//!
//! A recorded operation does not run, so it may not enter the memory's own histories, and those histories may not order
//! it: each recording has histories of its own ([`scope`]). A launch of the graph touches all the memory that the
//! finished recording touches ([`contents`]).
//!
//! | module | takes | a recorded operation becomes |
//! |---|---|---|
//! | [`nodes`] | the operations of a stream that stands for a node under construction | one new node |
//! | [`condition`] | the operations of a stream that stands for the body of a conditional node | the body's next node |
//! | [`setter`] | the one operation of a stream that stands for a node of an executable | that node's work |
//!
//! A node that is set may come to touch other memory than the graph's edges were made for: [`order`] finds that out.
//!
//! Memory that is allocated inside belongs to the recording until that ends ([`allocated`]).
//!
//! A driver's capture is a state of streams, and its code is with theirs ([`queue`](crate::stream)). This layer knows
//! operations, memory and the driver's graphs, but no streams.

mod allocated;
pub mod attributes;
pub(crate) mod chains;
pub(crate) mod condition;
pub(crate) mod contents;
pub mod nodes;
mod order;
mod owned;
pub(crate) mod scope;
pub mod setter;

pub use condition::{Condition, check_levels};
pub use contents::{Contents, GraphOperation, GraphUses, Keep};
pub use nodes::NodeAdder;
pub use order::NodeOrder;
pub use owned::{OwnedExec, OwnedGraph};
pub use setter::NodeSetter;
