//! The system's limit on the size of files (`ulimit -f`).
//!
//! A write past the limit does not simply fail: the system sends `SIGXFSZ`, whose default action ends the process. So
//! whoever writes a file of a size that is not tiny asks here first. Files in memory count too.

use std::fs::File;
use std::io::{self, Write};

/// Checks that a file may have `size` bytes.
///
/// # Errors
/// [`FileTooLarge`](io::ErrorKind::FileTooLarge), with the limit and what to do.
pub fn check(size: u64) -> io::Result<()> {
    let limit = limit();
    if size <= limit {
        return Ok(());
    }
    let text = format!(
        "a file of {size} bytes is over this process's limit of {limit} bytes: raise it (`ulimit -f`)"
    );
    Err(io::Error::new(io::ErrorKind::FileTooLarge, text))
}

#[cfg(unix)]
fn limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the call fills a structure of this function's own. It leaves it as it is if it fails.
    unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) };
    limit.rlim_cur
}

#[cfg(not(unix))]
fn limit() -> u64 {
    u64::MAX
}

/// A new file that is written from its start to its end. A write that would pass the limit is an error.
#[derive(Debug)]
pub struct LimitedFile {
    file: File,
    /// The bytes written so far; `None` if the file is a pipe or a device, which have no limit.
    written: Option<u64>,
}

impl LimitedFile {
    /// Takes a file that is empty.
    ///
    /// # Errors
    /// The system does not say what kind of file it is.
    pub fn new(file: File) -> io::Result<Self> {
        let written = file.metadata()?.is_file().then_some(0);
        Ok(Self { file, written })
    }
}

impl Write for LimitedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(written) = &mut self.written else { return self.file.write(bytes) };
        check(*written + bytes.len() as u64)?;
        let count = self.file.write(bytes)?;
        *written += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
