//! Files in Perfetto's format. You can open these traces in <https://ui.perfetto.dev> and query them with SQL
//! in `trace_processor`.
//!
//! [`Writer`] writes records as they come. `gpustream_timeline_view::perfetto::read` turns the file back into a [`Timeline`](crate::Timeline).
//!
//! ```
//! use gpustream_timeline::perfetto::Writer;
//! use gpustream_timeline::{Clock, Device, Operation, Point, Record, SourceLine, Stream, WorkKind};
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
//! assert!(file.windows(5).any(|part| part == b"saxpy"));
//! # Ok::<_, std::io::Error>(())
//! ```
//!
//! # What is in a file
//!
//! | in the timeline | in the file |
//! |---|---|
//! | [`Device`](crate::Device) | a group of tracks; its help text says which clock was used, how far it may be off, and why events were used |
//! | [`Stream`](crate::Stream) | a track in its device's group |
//! | [`Thread`](crate::Thread) | a thread with a track of its name |
//! | [`Operation`](crate::Operation) | a slice `operation` on the stream's track and a slice `submission` on the thread's, with an arrow from the submission; if it never ran, a slice `unfinished` on the thread's track |
//! | [`Piece`](crate::Piece) | a slice `piece` below the operation's |
//! | [`Operation::after`](crate::Operation::after) | an arrow from each operation that it waited for |
//! | [`Span`](crate::Span) | a slice `wait`, `allocation` or `user` on the thread's track, and an arrow to a wait's last moment from the operation that it waited for |
//! | [`Instant`](crate::Instant) | a moment `future`, `woken`, `host closure`, `lint` or `event` on the thread |
//! | [`Counter`](crate::Counter) | a track of bytes in the device's group |
//! | [`Record::Lost`](crate::Record::Lost) | a moment `lost` of the process |
//!
//! The words in code font are categories; in SQL, use `slice.category`. The rest of a record is in debug
//! annotations, such as `debug.source`, `debug.number`, `debug.bytes`, `debug.GB_per_s`, `debug.grid`, and
//! `debug.start_delay_ns`, which is the time from the beginning of the submission to the beginning on the
//! device. For example, this lists the slowest copies:
//!
//! ```sql
//! SELECT name, dur, extract_arg(arg_set_id, 'debug.GB_per_s') AS rate, extract_arg(arg_set_id, 'debug.source')
//! FROM slice
//! WHERE category = 'operation' AND extract_arg(arg_set_id, 'debug.work') = 'copy'
//! ORDER BY rate
//! ```
//!
//! Slices may overlap, for example if a graph's nodes run at the same time. They are then on separate tracks
//! that Perfetto shows as one.

mod arrows;
mod descriptor;
mod encode;
#[doc(hidden)]
pub mod format;
mod lanes;
mod message;
mod packets;
mod recent;
mod strings;
mod tracks;
mod write;

pub use write::Writer;
