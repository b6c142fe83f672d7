//! CUPTI: NVIDIA's library for tools, which records when each kernel, copy and fill ran.
//!
//! `api` opens the library and has its functions. CUPTI asks for memory and returns it full of records: `buffers`. `record` reads
//! them, and `attribution` finds the operation for each. `session` ties the parts together for the whole process, because CUPTI
//! accepts only one user. `graph_calls` avoids a deadlock in CUPTI.

mod api;
mod attribution;
mod buffers;
pub(crate) mod graph_calls;
mod record;
mod session;

pub(crate) use session::{Cupti, begin, cupti, note_graph, opened};
