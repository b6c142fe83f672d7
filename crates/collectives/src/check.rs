//! Checks of one rank's call that need no other rank.

use gpustream::{Device, Error, ErrorKind, Result, Stream, check_outside_closures};

/// Checks that a stream is of the rank's device, and that the calling thread may wait.
pub(crate) fn stream(stream: &Stream, rank: usize, own: &Device) -> Result<()> {
    place(stream.device(), "the stream", rank, own)?;
    // Closures must not wait, and a stream may be locked there that others need.
    check_outside_closures()
}

/// Checks that a stream runs what it is given.
pub(crate) fn not_recorded(stream: &Stream, rank: usize) -> Result<()> {
    if !stream.is_captured() {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Captured,
        format!(
            "a graph contains no calls in which the host takes part, as it does by the engines `Local` and `Mpi`, and the stream of \
             rank {rank} is recorded; make the call outside the recording, or in a run of a `Replay`"
        ),
    ))
}

/// Checks that memory is of the rank's device.
pub(crate) fn memory(memory: &Device, rank: usize, own: &Device) -> Result<()> {
    place(memory, "the memory", rank, own)
}

fn place(given: &Device, what: &str, rank: usize, own: &Device) -> Result<()> {
    let (given, own) = (given.info(), own.info());
    if (given.backend, given.ordinal) == (own.backend, own.ordinal) {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::DeviceMismatch,
        format!(
            "{what} is of {}:{}, and rank {rank} of the communicator is {}:{}; give streams and memory of the rank's own \
             device",
            given.backend, given.ordinal, own.backend, own.ordinal
        ),
    ))
}

/// Checks that `rank` is one of `size` ranks; `what` says what it is for.
pub(crate) fn rank(rank: usize, size: usize, what: &str) -> Result<()> {
    if rank < size {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::InvalidArgument,
        format!("rank {rank} as the {what} among {size} ranks; give one of 0 to {}", size - 1),
    ))
}

/// Checks that one length is `times` another; `long` and `short` name them.
pub(crate) fn lengths(
    operation: &str,
    (long, long_len): (&str, usize),
    (short, short_len): (&str, usize),
    times: usize,
) -> Result<()> {
    if short_len.checked_mul(times) == Some(long_len) {
        return Ok(());
    }
    let wanted = match times {
        1 => format!("{long} needs as many as {short}"),
        _ => format!("{long} needs {times} times as many as {short}, a part for each rank"),
    };
    Err(Error::new(
        ErrorKind::ArgumentMismatch,
        format!("`{operation}`: {long} has {long_len} elements and {short} {short_len}; {wanted}"),
    ))
}

/// Checks that a length is a multiple of the number of ranks, and returns the length of a part.
pub(crate) fn parts(operation: &str, len: usize, size: usize) -> Result<usize> {
    if len.is_multiple_of(size) {
        return Ok(len / size);
    }
    Err(Error::new(
        ErrorKind::ArgumentMismatch,
        format!(
            "`{operation}`: {len} elements are not as many for each of {size} ranks; give a multiple of {size}"
        ),
    ))
}
