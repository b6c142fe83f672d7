//! The writer of a file.

use std::io::{self, Write};

use super::encode::Encoder;
use crate::Record;

/// A writer of a trace in Perfetto's format.
///
/// Each record is written at once, in one call of `W`, so a file opens up to the last record that was written, however
/// the program ends. `W` decides whether that is a system call each time or goes through a [`std::io::BufWriter`].
/// The writer's memory does not grow with the trace.
pub struct Writer<W> {
    out: W,
    encoder: Encoder,
    /// Whether a call of `W` failed: the file may end in a part of a packet, behind which nothing could be read.
    failed: bool,
}

impl<W: Write> Writer<W> {
    /// Begins a file, whose first bytes are written together with the first record.
    pub fn new(out: W) -> Self {
        Self { out, encoder: Encoder::new(), failed: false }
    }

    /// Writes a record; returns whether it did.
    ///
    /// A time range that ends before it begins is written as an empty one.
    ///
    /// # Errors
    ///
    /// The first error of `W`, a full disk for one. Later calls write nothing and return `Ok(false)` at once: the file
    /// stays readable up to the error.
    pub fn write(&mut self, record: &Record) -> io::Result<bool> {
        if self.failed {
            return Ok(false);
        }
        self.encoder.record(record);
        self.put()?;
        Ok(true)
    }

    /// Ends the file and returns what it was written to, flushed. A file that is not ended lacks at most arrows from
    /// operations that the trace does not have.
    ///
    /// # Errors
    ///
    /// The first error of `W`, unless [`write`](Self::write) returned it.
    pub fn finish(mut self) -> io::Result<W> {
        if !self.failed {
            self.encoder.end();
            self.put()?;
            self.out.flush()?;
        }
        Ok(self.out)
    }

    fn put(&mut self) -> io::Result<()> {
        let written = self.out.write_all(self.encoder.bytes());
        self.encoder.clear();
        self.failed = written.is_err();
        written
    }
}
