//! How much host memory this process can have.
//!
//! A container, a systemd unit or a Slurm job has a control group with a memory limit. If its processes exceed the limit,
//! the system kills one of them. Groups are nested, and the limit of each enclosing group counts too. With version 2, all
//! groups are in one tree. With version 1, the groups for memory have their own tree. `/proc/self/mountinfo` says where a
//! tree is mounted, and which group is at the top of that mount.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns how many bytes of memory this process can have: what the machine has, or the limit of its control groups if that
/// is lower.
#[must_use]
#[cfg(unix)]
pub fn total() -> u64 {
    // SAFETY: both calls are queries without side effects.
    let [pages, size] = unsafe { [libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)] };
    let machine = pages.max(0) as u64 * size.max(0) as u64;
    machine.min(memory_limit().unwrap_or(u64::MAX))
}

/// On other systems we don't know a limit.
#[must_use]
#[cfg(not(unix))]
pub fn total() -> u64 {
    u64::MAX
}

/// Returns the lowest memory limit among the groups of this process, in bytes.
fn memory_limit() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let read = |path: &Path| fs::read_to_string(path).ok()?.trim().parse().ok();
    limit_files(&groups, &mounts).iter().filter_map(|path| read(path)).min()
}

/// Returns the files that may have a limit, given the contents of `/proc/self/cgroup` and `/proc/self/mountinfo`.
fn limit_files(groups: &str, mounts: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for group in groups.lines() {
        // Hierarchy, controllers, path.
        let mut parts = group.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (kind, file) = if controllers.is_empty() {
            ("cgroup2", "memory.max")
        } else if controllers.split(',').any(|name| name == "memory") {
            ("cgroup", "memory.limit_in_bytes")
        } else {
            continue;
        };
        let Some((root, mounted)) = mounts.lines().find_map(|line| mount(line, kind)) else { continue };
        // If a container has no namespace of its own, it sees its group's full path, but only that group is mounted.
        let below = Path::new(path).strip_prefix(root).unwrap_or(Path::new(""));
        files.extend(below.ancestors().map(|group| mounted.join(group).join(file)));
    }
    files
}

/// If the line is about a memory tree of this kind, returns which group is mounted, and where.
fn mount<'a>(line: &'a str, kind: &str) -> Option<(&'a Path, &'a Path)> {
    let (before, after) = line.split_once(" - ")?;
    let mut after = after.split(' ');
    let is_memory = after.next()? == kind
        && (kind == "cgroup2" || after.nth(1)?.split(',').any(|option| option == "memory"));
    let mut places = before.split(' ').skip(3);
    let (root, mounted) = (places.next()?, places.next()?);
    is_memory.then_some((Path::new(root), Path::new(mounted)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
24 1 0:22 / /proc rw,nosuid - proc proc rw
30 25 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
31 25 0:27 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct
32 25 0:28 /docker/4711 /sys/fs/cgroup/memory ro master:11 - cgroup cgroup rw,memory
";

    fn files(groups: &str) -> Vec<String> {
        limit_files(groups, MOUNTS).iter().map(|path| path.display().to_string()).collect()
    }

    #[test]
    fn every_group_on_the_way_up_counts() {
        let at = |group: &str| format!("/sys/fs/cgroup/unified{group}/memory.max");
        assert_eq!(
            files("0::/system.slice/app.service\n"),
            [at("/system.slice/app.service"), at("/system.slice"), at("")].map(|path| path)
        );
        assert_eq!(files("0::/\n"), [at("")]);
    }

    #[test]
    fn version_1_has_the_container_at_the_mount() {
        let at = |group: &str| format!("/sys/fs/cgroup/memory{group}/memory.limit_in_bytes");
        assert_eq!(files("4:memory:/docker/4711/job\n3:cpu,cpuacct:/docker/4711\n"), [at("/job"), at("")]);
        assert_eq!(files("4:memory:/elsewhere\n"), [at("")]);
    }

    #[test]
    fn what_is_no_group_is_passed_over() {
        assert_eq!(
            limit_files("0::/a\nnonsense\n1:memory\n", "nonsense\n1 2 - cgroup2\n"),
            [""; 0].map(PathBuf::from)
        );
    }
}
