//! What you can make of timelines: figures, pictures, and timelines from trace files.
//!
//! [`gpustream`](https://docs.rs/gpustream) makes a [`Timeline`] while it traces a program, or writes the trace to a file. This crate is for looking at them. It is separate, so that programs that are only traced do not need it. It calls no driver, and a stream is just a number to it.
//!
//! | to | use |
//! |---|---|
//! | ask how busy everything was, what overlapped, and why anything waited | [`Report::of`] |
//! | see it | [`Picture`], as SVG or as a page |
//! | read a file | [`perfetto::read`] |
//! | print tables, times and sizes as reports do | [`text`] |
//!
//! [`Timeline`]: gpustream_timeline::Timeline
#![forbid(unsafe_code)]

mod intervals;
mod lookup;
pub mod perfetto;
mod picture;
mod report;
pub mod text;

pub use picture::Picture;
pub use report::{
    Cause, CauseReport, Culprit, DeviceReport, Engine, EngineReport, Gap, GapOf, LabelReport, Link, Overlap,
    Path, PathLabel, PathStep, Report, StreamReport, ThreadReport,
};
