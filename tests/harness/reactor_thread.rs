//! The thread that looks at events for futures, seen from outside.

use std::fs;
use std::path::PathBuf;

/// The thread, in the system's list of this process's.
#[derive(Debug)]
pub struct ReactorThread(PathBuf);

impl ReactorThread {
    /// The one there is. None where no future has waited yet, or the system keeps no such list.
    #[must_use]
    pub fn find() -> Option<Self> {
        let tasks = fs::read_dir("/proc/self/task").ok()?.flatten().map(|task| task.path());
        let is_reactor = |task: &PathBuf| {
            fs::read_to_string(task.join("comm")).is_ok_and(|name| name.starts_with("gpustream-react"))
        };
        { tasks }.find(is_reactor).map(Self)
    }

    /// Whether it sleeps until somebody wakes it: in a wait on a futex that has no time limit. `None` where the system does
    /// not say.
    #[must_use]
    pub fn sleeps_until_woken(&self) -> Option<bool> {
        const FUTEX: &str = if cfg!(target_arch = "x86_64") { "202" } else { "98" };
        let call = fs::read_to_string(self.0.join("syscall")).ok()?;
        // Number, then arguments: address, operation, value, time limit.
        let words: Vec<&str> = call.split_whitespace().collect();
        Some(words.first() == Some(&FUTEX) && words.get(4) == Some(&"0x0"))
    }

    /// How often it has left a processor: a thread that sleeps does not, and one that wakes up does to sleep again.
    #[must_use]
    pub fn switches(&self) -> Vec<String> {
        let status = fs::read_to_string(self.0.join("status")).unwrap_or_default();
        status.lines().filter(|line| line.contains("ctxt_switches")).map(str::to_owned).collect()
    }
}
