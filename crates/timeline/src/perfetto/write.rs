//! Writes a file.

use std::io::{self, Write};

use super::encode::Encoder;
use crate::Record;

/// Writes a trace in Perfetto's format.
///
/// Each record is written immediately, in a single call to `W`. So however the program ends, you can open the
/// file and see everything up to the last record written. `W` decides whether that is a system call each
/// time; use a [`std::io::BufWriter`] if not. The writer's memory does not grow with the trace.
pub struct Writer<W> {
    out: W,
    encoder: Encoder,
    /// True if a call to `W` failed. The file may then end in the middle of a packet, and a reader could not
    /// find the beginning of the next one.
    failed: bool,
}

impl<W: Write> Writer<W> {
    /// Begins a file. Its first bytes can only be seen after the first record, or after
    /// [`finish`](Self::finish), because they are written together.
    pub fn new(out: W) -> Self {
        Self { out, encoder: Encoder::new(), failed: false }
    }

    /// Writes a record. Returns true if it did.
    ///
    /// If a time range ends before it begins, it is written as empty.
    ///
    /// # Errors
    ///
    /// The first error of `W`, such as a full disk. Later calls write nothing and return `Ok(false)` at once,
    /// so that the file stays readable up to the error.
    pub fn write(&mut self, record: &Record) -> io::Result<bool> {
        if self.failed {
            return Ok(false);
        }
        self.encoder.record(record);
        self.put()?;
        Ok(true)
    }

    /// Ends the file and returns `W`, flushed. You need not call this: without it, the file may only lack
    /// arrows from operations that the trace does not have.
    ///
    /// # Errors
    ///
    /// The first error of `W`, unless [`write`](Self::write) has already returned it.
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
