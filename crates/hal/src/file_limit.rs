//! The system's limit on the size of files (`ulimit -f`).
//!
//! If you write past the limit, the write does not just fail: the system sends `SIGXFSZ`, and that ends the process by
//! default. So before you write a file that is not tiny, ask here if it fits. Files in memory count too.

use std::fs::File;
use std::io::{self, Write};

/// Checks that a file may have `size` bytes.
///
/// # Errors
/// [`FileTooLarge`](io::ErrorKind::FileTooLarge) if it may not. The error tells the limit and what to do.
pub fn check(size: u64) -> io::Result<()> {
    let limit = limit();
    if size <= limit {
        return Ok(());
    }
    let text = format!(
        "a file of {size} bytes is over this process's limit of {limit} bytes; raise the limit (`ulimit -f`)"
    );
    Err(io::Error::new(io::ErrorKind::FileTooLarge, text))
}

#[cfg(unix)]
fn limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the call fills a structure on this function's stack. If it fails, it leaves the structure as it is.
    unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) };
    limit.rlim_cur
}

#[cfg(not(unix))]
fn limit() -> u64 {
    u64::MAX
}

/// A new file that you write from start to end. If a write would pass the limit, you get an error instead.
#[derive(Debug)]
pub struct LimitedFile {
    file: File,
    /// How many bytes you have written so far; `None` if this is a pipe or a device, because those have no limit.
    written: Option<u64>,
}

impl LimitedFile {
    /// Takes an empty file.
    ///
    /// # Errors
    /// The system's error if it cannot tell what kind of file this is.
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
