//! Text that kernels print. It goes to C's standard output, which keeps text back where that is no terminal.

unsafe extern "C" {
    #[link_name = "stdout"]
    static mut STDOUT: *mut libc::FILE;
}

/// The symbols of which a module that prints imports one.
pub(crate) const SYMBOLS: [&str; 8] =
    ["printf", "__printf_chk", "vprintf", "__vprintf_chk", "puts", "putchar", "putc", "stdout"];

/// Writes out what C's standard output keeps back.
pub(crate) fn flush() {
    // SAFETY: the C library has set the variable before any of this program ran.
    let stdout = unsafe { (&raw const STDOUT).read() };
    // A failure is that of the program's standard output; a GPU's driver does not tell either.
    // SAFETY: the stream is open, or null, which flushes all.
    let _ = unsafe { libc::fflush(stdout) };
}
