//! CUPTI: NVIDIA's library for tools, which records when each kernel, copy and fill ran.
//!
//! `api` has the library's functions, and opens it. CUPTI asks for memory and hands it back full of records:
//! `buffers`. `record` reads these, `attribution` finds the operation that each belongs to, and `session` ties the
//! parts together for the whole process, since CUPTI knows one user only. `graph_calls` keeps threads out of a deadlock in it.

mod api;
mod attribution;
mod buffers;
pub(crate) mod graph_calls;
mod record;
mod session;

pub(crate) use session::{Cupti, begin, cupti, note_graph, opened};
