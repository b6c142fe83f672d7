//! Variables of the environment that decide what code runs in the process, or which files it writes.

use std::ffi::OsString;

/// Returns such a variable, unless it is not set or empty.
///
/// A program that runs with rights which its caller lacks (setuid, setgid, file capabilities) gets no such variable: the
/// caller, whom the system does not trust with those rights, would have its code run with them. The dynamic linker ignores
/// `LD_LIBRARY_PATH` there for the same reason.
pub fn trusted(variable: &str) -> Option<OsString> {
    if is_privileged() {
        return None;
    }
    std::env::var_os(variable).filter(|value| !value.is_empty())
}

/// Returns whether this program has rights that its caller lacks.
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
