//! Timelines: what devices and host threads did, and when, on one time axis.
//!
//! [`gpustream`](https://docs.rs/gpustream) makes them while it traces a program. This crate contains only the data: it calls no driver, and a stream is just a number to it. To make reports and pictures from timelines, use `gpustream-timeline-view`.
//!
//! A trace is a sequence of [`Record`]s. If you receive one, you can write each record to a file at once,
//! with [`perfetto::Writer`], so that a program that crashes still leaves its trace behind. Or you can keep
//! the records in a [`Timeline`], which sorts them by kind.
//!
//! The order of the records is not the order of time, because we can only report an operation once it is
//! over. So sort by time yourself if you need that.
#![forbid(unsafe_code)]

pub mod perfetto;
mod record;
mod timeline;

pub use record::{
    Clock, Counter, Device, Direction, Instant, InstantKind, Nanos, Operation, Piece, Point, Record,
    SourceLine, Span, SpanKind, Stream, Thread, WorkKind,
};
pub use timeline::Timeline;
