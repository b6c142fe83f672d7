//! Timelines: what devices and host threads did, and when, on one axis of time.
//!
//! [`gpustream`](https://docs.rs/gpustream) makes them while it traces a program. This crate has the data alone, and
//! everything made of it: it calls no driver, and knows no stream but by its number.
//!
//! A trace is a sequence of [`Record`]s, in the order in which they became known. Their receiver either writes
//! each one down at once or keeps them in a [`Timeline`], which has a place for each kind.
//!
//! A timeline answers questions by [`Timeline::report`], and is looked at by [`Timeline::svg`] and [`Timeline::html`].
#![forbid(unsafe_code)]

mod intervals;
mod lookup;
pub mod perfetto;
mod picture;
mod record;
mod report;
pub mod text;
mod timeline;

pub use picture::Picture;
pub use record::{
    Clock, Counter, Device, Direction, Instant, InstantKind, Nanos, Operation, Piece, Place, Point, Record,
    Span, SpanKind, Stream, Thread, Work,
};
pub use report::{
    Cause, CauseReport, Culprit, DeviceReport, Engine, EngineReport, Gap, GapOf, LabelReport, Link, Overlap,
    Path, PathLabel, Report, Step, StreamReport, ThreadReport,
};
pub use timeline::Timeline;
