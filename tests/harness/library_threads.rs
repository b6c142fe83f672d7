//! What the system reports about the library's threads: the reactor, which polls events for futures, and those that drop
//! what belongs to you.

use std::fs;
use std::path::PathBuf;

/// The reactor's folder in `/proc/self/task`, where the system lists the threads.
#[derive(Debug)]
pub struct ReactorThread(PathBuf);

impl ReactorThread {
    /// Returns the reactor, or `None` if no future has waited yet or if the system has no such list.
    #[must_use]
    pub fn find() -> Option<Self> {
        find("gpustream-reactor").map(Self)
    }

    /// Returns true if the thread sleeps until something wakes it, so it waits on a futex without a time limit. Returns
    /// `None` if the system does not tell.
    #[must_use]
    pub fn sleeps_until_woken(&self) -> Option<bool> {
        const FUTEX: &str = if cfg!(target_arch = "x86_64") { "202" } else { "98" };
        let call = fs::read_to_string(self.0.join("syscall")).ok()?;
        // The line contains the system call's number, then its arguments: address, operation, value, time limit.
        let words: Vec<&str> = call.split_whitespace().collect();
        Some(words.first() == Some(&FUTEX) && words.get(4) == Some(&"0x0"))
    }

    /// Returns how often the thread has left a processor. The numbers stay the same while a thread sleeps, and change
    /// if it wakes up and goes back to sleep.
    #[must_use]
    pub fn switches(&self) -> Vec<String> {
        let status = fs::read_to_string(self.0.join("status")).unwrap_or_default();
        status.lines().filter(|line| line.contains("ctxt_switches")).map(str::to_owned).collect()
    }
}

/// Returns true if the library still drops what belongs to you on a thread of its own. These threads end when there is nothing
/// more to drop.
#[must_use]
pub fn still_drops() -> bool {
    ["gpustream-drop", "gpustream-work", "gpustream-events"].into_iter().any(|name| find(name).is_some())
}

/// Returns the folder of a thread in `/proc/self/task`. The system lists the first 15 bytes of names there.
fn find(name: &str) -> Option<PathBuf> {
    let tasks = fs::read_dir("/proc/self/task").ok()?.flatten().map(|task| task.path());
    let has_name = |task: &PathBuf| {
        fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.trim_end() == &name[..name.len().min(15)])
    };
    { tasks }.find(has_name)
}
