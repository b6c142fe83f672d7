//! The reactor, the thread that asks about events for futures, as the system reports it.

use std::fs;
use std::path::PathBuf;

/// The reactor's folder in the system's list of this process's threads.
#[derive(Debug)]
pub struct ReactorThread(PathBuf);

impl ReactorThread {
    /// Returns the reactor, or `None` if no future has waited yet or the system keeps no such list.
    #[must_use]
    pub fn find() -> Option<Self> {
        let tasks = fs::read_dir("/proc/self/task").ok()?.flatten().map(|task| task.path());
        let is_reactor = |task: &PathBuf| {
            fs::read_to_string(task.join("comm")).is_ok_and(|name| name.starts_with("gpustream-react"))
        };
        { tasks }.find(is_reactor).map(Self)
    }

    /// Returns whether the thread sleeps until it is woken, that is, waits on a futex without a time limit. Returns
    /// `None` if the system does not tell.
    #[must_use]
    pub fn sleeps_until_woken(&self) -> Option<bool> {
        const FUTEX: &str = if cfg!(target_arch = "x86_64") { "202" } else { "98" };
        let call = fs::read_to_string(self.0.join("syscall")).ok()?;
        // The line has the system call's number, then its arguments: address, operation, value, time limit.
        let words: Vec<&str> = call.split_whitespace().collect();
        Some(words.first() == Some(&FUTEX) && words.get(4) == Some(&"0x0"))
    }

    /// Returns how often the thread has left a processor. A sleeping thread does not; a thread that wakes up does so to
    /// sleep again.
    #[must_use]
    pub fn switches(&self) -> Vec<String> {
        let status = fs::read_to_string(self.0.join("status")).unwrap_or_default();
        status.lines().filter(|line| line.contains("ctxt_switches")).map(str::to_owned).collect()
    }
}
