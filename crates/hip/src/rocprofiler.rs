//! rocprofiler-sdk: AMD's library for tools, which records when each kernel and copy ran.
//!
//! `api` opens the library and has its functions. We set the library up once, before HIP starts. Then it calls what `tool` gave
//! it: to ask for the number of the operation that a thread submits (`operation`), with the names of kernels (`names`), and with
//! records of what has run (`buffers`). `record` reads them, `whole` waits for all of an operation, and `clock` converts their
//! times to the host's clock. `session` ties the parts together for the whole process, because the library is set up for all
//! devices at once.

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
