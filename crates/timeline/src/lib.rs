//! Timelines: what devices and host threads did, and when, on one time axis.
//!
//! [`gpustream`](https://docs.rs/gpustream) makes them while it traces a program. This crate contains only the data: it calls no driver, and a stream is just a number to it. To make reports and pictures from timelines, use `gpustream-timeline-view`.
//!
//! A trace is a sequence of [`Record`]s, in the order in which we learned of them. A receiver can either
//! write each one to a file at once, with [`perfetto::Writer`], or keep them in a [`Timeline`], which sorts
//! them by kind.
#![forbid(unsafe_code)]

pub mod perfetto;
mod record;
mod timeline;

pub use record::{
    Clock, Counter, Device, Direction, Instant, InstantKind, Nanos, Operation, Piece, Point, Record,
    SourceLine, Span, SpanKind, Stream, Thread, WorkKind,
};
pub use timeline::Timeline;
