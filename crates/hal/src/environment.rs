//! Environment variables that decide what code runs in the process, or which files it writes.

use std::ffi::OsString;

/// Returns such a variable, or `None` if it is unset or empty.
///
/// Also returns `None` if the program has rights that its caller does not have (setuid, setgid, file capabilities).
/// Otherwise the caller could run its own code with those rights. The dynamic linker ignores `LD_LIBRARY_PATH` there for
/// the same reason.
pub fn trusted(variable: &str) -> Option<OsString> {
    if is_privileged() {
        return None;
    }
    std::env::var_os(variable).filter(|value| !value.is_empty())
}

/// Returns true if this program has rights that its caller does not have.
pub fn is_privileged() -> bool {
    cfg_if::cfg_if! {
        if #[cfg(any(target_os = "linux", target_os = "android"))] {
            // SAFETY: the call has no preconditions.
            unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
        } else if #[cfg(unix)] {
            // SAFETY: the calls have no preconditions.
            unsafe { libc::geteuid() != libc::getuid() || libc::getegid() != libc::getgid() }
        } else {
            false
        }
    }
}
