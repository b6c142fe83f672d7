//! rocprofiler-sdk: AMD's library for tools, which records when each kernel and copy ran.
//!
//! `api` has the library's functions, and opens it. The library is set up once, before HIP starts, and then calls what
//! `tool` gave it: for the number of the operation that a thread submits (`operation`), with the names of kernels
//! (`names`), and with records of what has run (`buffers`). `record` reads these, `whole` waits for all of an
//! operation, `clock` brings their times to the host's clock, and `session` ties the parts together for the whole
//! process, since the library is set up for all devices at once.

mod api;
mod buffers;
mod clock;
mod names;
mod operation;
mod record;
mod session;
mod tool;
mod whole;

pub(crate) use operation::{enter, leave};
pub(crate) use session::{Rocprofiler, opened, rocprofiler, set_up};
