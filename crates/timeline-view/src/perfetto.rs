//! Files in Perfetto's format. [`Writer`](gpustream_timeline::perfetto::Writer) writes them and
//! [`read`](fn@read) reads them.
//!
//! ```
//! use gpustream_timeline::perfetto::Writer;
//! use gpustream_timeline::{Clock, Device, Operation, Point, Record, SourceLine, Stream, Timeline, WorkKind};
//! use gpustream_timeline_view::perfetto::read;
//!
//! let records = [
//!     Record::Device(Device { id: 0, name: "cpu:0".into(), clock: Clock::Host, error: 0, reason: String::new() }),
//!     Record::Stream(Stream { id: 1, device: 0, name: "stream 1".into(), legacy: false }),
//!     Record::Operation(Operation {
//!         point: Point { stream: 1, number: 1 },
//!         label: "saxpy".into(),
//!         place: SourceLine { file: "src/main.rs".into(), line: 42 },
//!         thread: 1,
//!         submitted: 1_000..1_400,
//!         ran: Some(2_000..9_000),
//!         work: WorkKind::Kernel { grid: [64, 1, 1], block: [256, 1, 1] },
//!         after: vec![],
//!         pieces: vec![],
//!     }),
//! ];
//! let mut writer = Writer::new(Vec::new());
//! for record in &records {
//!     writer.write(record)?;
//! }
//! let file = writer.finish()?;
//!
//! assert_eq!(read(&file)?, Timeline::from_iter(records));
//! // The program was killed while it wrote: the file has all but the last record.
//! assert_eq!(read(&file[..file.len() - 1])?.operations, []);
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```

mod notes;
mod parse;
mod read;
mod schema;
#[cfg(test)]
mod tests;
mod texts;

pub use read::{ReadError, read};
