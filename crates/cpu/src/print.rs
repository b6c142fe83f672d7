//! Text that kernels print. It goes to C's standard output. Unless that is a terminal, it is buffered, so we
//! must flush it before you may expect to see the text.

unsafe extern "C" {
    #[link_name = "stdout"]
    static mut STDOUT: *mut libc::FILE;
}

/// A module that prints imports one of these symbols.
pub(crate) const SYMBOLS: [&str; 8] =
    ["printf", "__printf_chk", "vprintf", "__vprintf_chk", "puts", "putchar", "putc", "stdout"];

/// Flushes C's standard output.
pub(crate) fn flush() {
    // SAFETY: the C library has set the variable before any of this program ran.
    let stdout = unsafe { (&raw const STDOUT).read() };
    // If this fails, the program's standard output has failed. A GPU's driver does not report that either.
    // SAFETY: the stream is open, or null, which flushes all.
    let _ = unsafe { libc::fflush(stdout) };
}
