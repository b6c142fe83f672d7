//! Checks of a call that do not need the other ranks.

use gpustream::interop::check_outside_closures;
use gpustream::{Device, Error, ErrorKind, Result, Stream};

use crate::call::Collective;
use crate::failure::invalid;

/// Checks that a stream belongs to the rank's device, and that the calling thread may wait.
pub(crate) fn stream(stream: &Stream, rank: usize, own: &Device) -> Result<()> {
    place(stream.device(), "the stream", rank, own)?;
    // Closures must not wait, because the driver may hold the lock of a stream that others need.
    check_outside_closures()
}

/// Checks that a stream runs its work instead of recording it.
pub(crate) fn not_recorded(stream: &Stream, rank: usize) -> Result<()> {
    if !stream.is_recorded() {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Captured,
        format!(
            "the stream of rank {rank} is being recorded, but a graph cannot contain calls in which the host takes part, as with the \
             engines `Local` and `Mpi`; make the call outside the recording, or in a step of a `Replay`"
        ),
    ))
}

/// Checks that memory belongs to the rank's device.
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
            "{what} belongs to {}:{}, but rank {rank} of the communicator is {}:{}; give streams and memory of the rank's own \
             device",
            given.backend, given.ordinal, own.backend, own.ordinal
        ),
    ))
}

/// Checks the lengths that a rank gives a call, and the rank that it names. Returns the number of elements in
/// a part.
pub(crate) fn count(
    operation: Collective,
    (own, size): (usize, usize),
    src: Option<usize>,
    dst: Option<usize>,
) -> Result<usize> {
    if let Some((other, what)) = operation.other()
        && other >= size
    {
        return invalid(format!(
            "rank {other} cannot be the {what} among {size} ranks; give a rank from 0 to {}",
            size - 1
        ));
    }
    let (gives, gets) = operation.parts(own, size);
    if let (Some(src), Some(dst)) = (src, dst)
        && gives > 0
        && gets > 0
    {
        let (src, dst) = (("`src`", src), ("`dst`", dst));
        let (long, short) = if gives > gets { (src, dst) } else { (dst, src) };
        lengths(operation, long, short, gives.max(gets) / gives.min(gets))?;
    }
    // If the rank gives no memory, the call is in place.
    let (len, parts) = match src {
        Some(src) if gives > 0 => (src, gives),
        _ => (dst.unwrap_or(0), gets.max(1)),
    };
    if len.is_multiple_of(parts) {
        return Ok(len / parts);
    }
    Err(Error::new(
        ErrorKind::ArgumentMismatch,
        format!(
            "`{}`: {len} elements cannot be divided equally among {size} ranks; give a multiple of {size}",
            operation.name()
        ),
    ))
}

/// Checks that `long` is `times` as long as `short`.
fn lengths(
    operation: Collective,
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
    let name = operation.name();
    Err(Error::new(
        ErrorKind::ArgumentMismatch,
        format!("`{name}`: {long} has {long_len} elements and {short} has {short_len}; {wanted}"),
    ))
}
