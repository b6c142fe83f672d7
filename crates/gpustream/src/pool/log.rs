//! A record of allocations, to be replayed against other policies.
//!
//! One line each: `a POOL KIND ADDRESS BYTES STREAM` and `f POOL KIND ADDRESS STREAM`, where the stream of a free is
//! the one that follows all uses, 0 where there are none. The file is named by `GPUSTREAM_ALLOC_LOG`; devices and processes append to it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::memory::Kind;
use crate::track::StreamId;

pub(crate) struct Log {
    file: File,
    /// Process and device.
    pool: String,
}

impl Log {
    pub(crate) fn append_to(path: &Path) -> io::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        let pool = format!("{}.{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        Ok(Self { file, pool })
    }

    fn write(&self, line: std::fmt::Arguments<'_>) {
        // One write each, so that lines of several processes do not mix.
        let _ = (&self.file).write_all(line.to_string().as_bytes());
    }

    #[cold]
    pub(crate) fn alloc(&self, kind: Kind, address: usize, bytes: usize, stream: Option<StreamId>) {
        self.write(format_args!(
            "a {} {kind:?} {address:#x} {bytes} {}\n",
            self.pool,
            stream.map_or(0, |stream| stream.0)
        ));
    }

    #[cold]
    pub(crate) fn free(&self, kind: Kind, address: usize, stream: StreamId) {
        self.write(format_args!("f {} {kind:?} {address:#x} {}\n", self.pool, stream.0));
    }
}
