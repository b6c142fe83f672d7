//! The driver's own words about a failure, from the error log that it keeps (CUDA 12.9 and later).
//!
//! A code such as `CUDA_ERROR_INVALID_VALUE` does not say which argument was wrong, but the log often does. The log
//! belongs to the process: it holds the last hundred entries from all threads, and from all libraries that call the
//! driver. So we only use an entry if it names the same function and the same code. If two such failures happen at one
//! moment, or the driver notes only one of them, an error may still contain the reason for the other failure.
//!
//! We read the log only after a failure, so it costs nothing if calls succeed. The driver also offers a callback, but it would
//! call us for every library's failures, on any thread, until the process ends.

use std::ptr;

use gpustream_hal::driver::Status;

use crate::api::Api;

/// The driver keeps at most this many bytes.
const ROOM: usize = 25_600;
/// We put at most this many bytes of a reason into an error.
const LONGEST: usize = 240;

/// Returns the reason in the driver's log for the failure of `function` with `status`. `None` if the driver keeps no log, or the
/// log has no reason.
pub(crate) fn reason_for(api: &Api, function: &str, status: Status) -> Option<String> {
    api.cuLogsDumpToMemory?;
    let (mut log, mut size) = (vec![0_u8; ROOM + 1], ROOM);
    // SAFETY: the buffer is that large, plus a byte for the terminator; without an iterator the driver reads the whole log.
    let answer =
        unsafe { api.cuLogsDumpToMemory(ptr::null_mut(), log.as_mut_ptr().cast(), &raw mut size, 0) };
    if answer.status != Some(Status::SUCCESS) {
        return None;
    }
    log.truncate(size.min(ROOM));
    let log = String::from_utf8_lossy(&log);
    find(&log, function, status).map(cut)
}

/// An entry of the log: `[time][thread][CUDA][E] message`, or with the function's name as a fifth field.
struct LogEntry<'a> {
    thread: &'a str,
    function: Option<&'a str>,
    message: &'a str,
}

impl<'a> LogEntry<'a> {
    /// Reads a line; `None` for anything but an error.
    fn read(line: &'a str) -> Option<Self> {
        let mut rest = line;
        let mut mark = || {
            let (mark, after) = rest.strip_prefix('[')?.split_once(']')?;
            rest = after;
            Some(mark)
        };
        let (_time, thread, _source, severity) = (mark()?, mark()?, mark()?, mark()?);
        let function = mark();
        (severity == "E").then(|| Self { thread, function, message: rest.trim() })
    }

    /// Returns the code and function from `Returning 1 (CUDA_ERROR_INVALID_VALUE) from cuLaunchKernel`, which is a failure's last
    /// entry.
    fn end(&self) -> Option<(&'a str, &'a str)> {
        let (code, rest) = self.message.strip_prefix("Returning ")?.split_once(' ')?;
        Some((code, rest.rsplit_once(" from ")?.1))
    }
}

/// Returns the reason for the last failure of `function` with `status` in `log`.
fn find<'a>(log: &'a str, function: &str, status: Status) -> Option<&'a str> {
    let code = status.0.to_string();
    let mut entries = log.lines().rev().filter_map(LogEntry::read);
    while let Some(entry) = entries.next() {
        match (entry.end(), entry.function) {
            (Some((its_code, its_function)), _) if its_code == code && is_same(its_function, function) => {
                let before = entries.find(|before| before.thread == entry.thread)?;
                return before.end().is_none().then_some(before.message);
            }
            (None, Some(its_function)) if is_same(its_function, function) => return Some(entry.message),
            _ => {}
        }
    }
    None
}

/// Returns true if two symbols are versions of one function.
fn is_same(one: &str, other: &str) -> bool {
    one.split('_').next() == other.split('_').next()
}

fn cut(reason: &str) -> String {
    if reason.len() <= LONGEST {
        return reason.to_owned();
    }
    let end = (0..=LONGEST).rev().find(|&end| reason.is_char_boundary(end)).unwrap_or(0);
    format!("{}…", &reason[..end])
}

#[cfg(test)]
mod tests {
    use super::{LONGEST, Status, cut, find};

    const INVALID: Status = Status(1);

    #[test]
    fn reason_is_the_entry_before_the_failures_end_on_its_thread() {
        let log = "note: some entries were lost\n\
                   [14:38:03.928][71][CUDA][E] old reason\n\
                   [14:38:03.928][71][CUDA][E] Returning 1 (CUDA_ERROR_INVALID_VALUE) from cuLaunchKernel\n\
                   [14:38:03.929][71][CUDA][E] block dimensions of (4096,1,1) exceed [1024]\n\
                   [14:38:03.929][72][CUDA][E] another thread's\n\
                   [14:38:03.929][72][CUDA][W] a warning\n\
                   [14:38:03.930][71][CUDA][E] Returning 1 (CUDA_ERROR_INVALID_VALUE) from cuLaunchKernel_ptsz\n\
                   [14:38:03.930][72][CUDA][E] Returning 2 (CUDA_ERROR_OUT_OF_MEMORY) from cuMemAlloc_v2\n";
        assert_eq!(
            find(log, "cuLaunchKernel", INVALID),
            Some("block dimensions of (4096,1,1) exceed [1024]")
        );
        assert_eq!(find(log, "cuMemAlloc_v2", Status(2)), Some("another thread's"));
        assert_eq!(find(log, "cuLaunchKernelEx", INVALID), None, "another function");
        assert_eq!(find(log, "cuLaunchKernel", Status(700)), None, "another code");
    }

    #[test]
    fn failure_without_reason_takes_no_other_ones() {
        let log = "[1][71][CUDA][E] a reason\n\
                   [1][71][CUDA][E] Returning 1 (CUDA_ERROR_INVALID_VALUE) from cuEventQuery\n\
                   [2][71][CUDA][E] Returning 1 (CUDA_ERROR_INVALID_VALUE) from cuStreamQuery\n";
        assert_eq!(find(log, "cuStreamQuery", INVALID), None);
        let first = "[2][71][CUDA][E] Returning 1 (CUDA_ERROR_INVALID_VALUE) from cuStreamQuery";
        assert_eq!(find(first, "cuStreamQuery", INVALID), None);
    }

    #[test]
    fn functions_name_may_be_a_mark() {
        let log = "[22:21:32.099][25642][CUDA][E][cuMemFree_v2] pointer cannot be NULL\n\
                   [22:21:32.100][25642][CUDA][E][cuEventQuery] event cannot be NULL\n";
        assert_eq!(find(log, "cuMemFree_v2", INVALID), Some("pointer cannot be NULL"));
    }

    #[test]
    fn nonsense_is_no_entry() {
        for log in ["", "\n\n", "[", "[][", "[a][b][c][E", "plain words", "[a][b][c] Returning 1 () from f"] {
            assert_eq!(find(log, "f", INVALID), None, "{log:?}");
        }
    }

    #[test]
    fn long_reasons_are_cut_between_characters() {
        assert_eq!(cut("short"), "short");
        let long = cut(&"é".repeat(LONGEST));
        assert!(long.ends_with('…') && long.len() <= LONGEST + '…'.len_utf8());
    }
}
