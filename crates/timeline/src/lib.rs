//! Timelines: what devices and host threads did, and when, on one axis of time.
//!
//! [`gpustream`](https://docs.rs/gpustream) makes them while it traces a program. This crate has the data alone: it calls no
//! driver, and knows no stream but by its number. What is made of timelines, reports and pictures, is in
//! `gpustream-timeline-view`.
//!
//! A trace is a sequence of [`Record`]s, in the order in which they became known. Their receiver either writes
//! each one down at once, by [`perfetto::Writer`], or keeps them in a [`Timeline`], which has a place for each kind.
#![forbid(unsafe_code)]

pub mod perfetto;
mod record;
mod timeline;

pub use record::{
    Clock, Counter, Device, Direction, Instant, InstantKind, Nanos, Operation, Piece, Point, Record,
    SourceLine, Span, SpanKind, Stream, Thread, WorkKind,
};
pub use timeline::Timeline;
