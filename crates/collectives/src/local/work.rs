//! The work of matched calls: copies into each rank's memory on its own stream, and kernels there. A copy may
//! read memory of other ranks. We need not wait for them, because the tracker orders it with the work on
//! their streams.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use gpustream::interop::on_behalf;
use gpustream::{Device, Error, Result, Tracking};

use super::combine::{Kernels, combine};
use crate::call::{Call, Collective};
use crate::op::Op;

/// How many bytes we combine at once. We must copy them to one device first, so a larger number would need
/// more memory there.
const PIECE: usize = 4 << 20;

/// The devices of some ranks.
pub(super) struct RankDevices {
    ranks: Vec<Rank>,
}

#[derive(Clone)]
struct Rank {
    device: Device,
    kernels: Arc<Kernels>,
}

/// The calls of all ranks, by rank; or a send and its receive.
type Calls<'c, 'a> = [&'c mut Call<'a>];

impl RankDevices {
    /// Loads the kernels on each device, if they are not there yet.
    pub(super) fn load(devices: &[Device]) -> Result<Self> {
        let rank =
            |device: &Device| Ok(Rank { device: device.clone(), kernels: device.extension(Kernels::load)? });
        Ok(Self { ranks: devices.iter().map(rank).collect::<Result<_>>()? })
    }

    /// Returns the devices of some of the ranks, in this order.
    pub(super) fn of(&self, ranks: &[usize]) -> Self {
        Self { ranks: ranks.iter().map(|&rank| self.ranks[rank].clone()).collect() }
    }

    pub(super) fn size(&self) -> usize {
        self.ranks.len()
    }

    /// Enqueues the work of matching calls. If that fails, some of the work may already be enqueued, so the
    /// ranks cannot continue.
    pub(super) fn run(&self, calls: &mut Calls<'_, '_>) -> Result<()> {
        let Some(signature) = calls.first().map(|call| call.signature) else { return Ok(()) };
        // Without tracking, a rank's stream must wait for the streams whose memory it reads, and they must
        // wait for it.
        let tracked = calls.iter().all(|call| call.stream.device().tracking() == Some(Tracking::Auto));
        if !tracked || signature.operation == Collective::Barrier {
            join(calls)?;
        }
        let part = signature.bytes();
        let whole = 0..part;
        // Where a rank's part is among those of all ranks.
        let place = |rank: usize| rank * part..(rank + 1) * part;
        match signature.operation {
            Collective::Barrier | Collective::Split | Collective::Compare => return Ok(()),
            Collective::AllReduce(op) => {
                let share = |rank| self.share(signature.count, signature.element.size(), rank);
                each(calls, |calls, rank| self.reduce(calls, op, share(rank), rank, share(rank)))?;
                if !tracked {
                    join(calls)?;
                }
                each(calls, |calls, rank| {
                    others(rank, calls.len())
                        .try_for_each(|other| pull_result(calls, other, rank, share(other)))
                })?;
            }
            Collective::ReduceScatter(op) => {
                each(calls, |calls, rank| self.reduce(calls, op, place(rank), rank, whole.clone()))?;
            }
            Collective::Reduce { op, root } => {
                one(calls, root, |calls| self.reduce(calls, op, whole.clone(), root, whole))
                    .map_err(of(root))?;
            }
            Collective::AllGather => {
                each(calls, |calls, rank| gather(calls, rank, |_| whole.clone(), place))?;
            }
            Collective::Gather { root } => {
                one(calls, root, |calls| gather(calls, root, |_| whole.clone(), place)).map_err(of(root))?;
            }
            Collective::AllToAll => {
                each(calls, |calls, rank| gather(calls, rank, |_| place(rank), place))?;
            }
            Collective::Broadcast { root } => {
                each(calls, |calls, rank| pull(calls, root, whole.clone(), rank, whole.clone()))?;
            }
            Collective::Scatter { root } => {
                each(calls, |calls, rank| pull(calls, root, place(rank), rank, whole.clone()))?;
            }
            // The sender's call comes first, then the receiver's.
            Collective::Send { to } | Collective::Recv { from: to } => {
                one(calls, 1, |calls| pull(calls, 0, whole.clone(), 1, whole)).map_err(of(to))?;
            }
        }
        if tracked { Ok(()) } else { join(calls) }
    }

    /// Returns the bytes that `rank` combines for all ranks. Every rank combines the same number of elements,
    /// give or take one.
    fn share(&self, count: usize, size: usize, rank: usize) -> Range<usize> {
        let (each, rest) = (count / self.size(), count % self.size());
        let start = |rank: usize| (rank * each + rank.min(rest)) * size;
        start(rank)..start(rank + 1)
    }

    /// Reads the bytes `from` of every rank, combines them in the order of the ranks, and writes the bytes `to` of a result.
    fn reduce(
        &self,
        calls: &mut Calls<'_, '_>,
        op: Op,
        from: Range<usize>,
        rank: usize,
        to: Range<usize>,
    ) -> Result<()> {
        let (element, stream) = (calls[rank].signature.element, calls[rank].stream);
        if calls.len() == 1 {
            return calls[rank].copy_own(from, to);
        }
        let row = PIECE.min(from.len());
        if row == 0 {
            return Ok(());
        }
        let mut rows = stream.alloc::<u8>(row * calls.len())?;
        for start in (0..from.len()).step_by(PIECE) {
            let len = row.min(from.len() - start);
            for other in others(rank, calls.len()).chain([rank]) {
                let src = calls[other].input(from.start + start..from.start + start + len)?;
                stream
                    .copy(&src, &mut rows.slice_mut(other * row..other * row + len)?)
                    .map_err(brought(other))?;
            }
            let mut dst = calls[rank].output(to.start + start..to.start + start + len)?;
            let kernels = &self.ranks[rank].kernels;
            combine(kernels, stream, element, op, (&rows, self.size(), row / element.size()), &mut dst)?;
        }
        Ok(())
    }
}

/// Enqueues each rank's work. If that fails, the error names the rank, so that you know which device to look
/// at.
fn each(
    calls: &mut Calls<'_, '_>,
    mut enqueue: impl FnMut(&mut Calls<'_, '_>, usize) -> Result<()>,
) -> Result<()> {
    (0..calls.len()).try_for_each(|rank| one(calls, rank, |calls| enqueue(calls, rank)).map_err(of(rank)))
}

/// Enqueues the work of one call, for the line of your program that made it.
fn one(
    calls: &mut Calls<'_, '_>,
    call: usize,
    enqueue: impl FnOnce(&mut Calls<'_, '_>) -> Result<()>,
) -> Result<()> {
    on_behalf(calls[call].caller, || enqueue(calls))
}

/// Returns the other ranks, beginning with the next one, so that not all ranks read from the same rank at
/// once.
fn others(rank: usize, size: usize) -> impl Iterator<Item = usize> {
    (1..size).map(move |distance| (rank + distance) % size)
}

/// Copies a part of what each rank gives into a result.
fn gather(
    calls: &mut Calls<'_, '_>,
    rank: usize,
    from: impl Fn(usize) -> Range<usize>,
    to: impl Fn(usize) -> Range<usize>,
) -> Result<()> {
    others(rank, calls.len())
        .chain([rank])
        .try_for_each(|other| pull(calls, other, from(other), rank, to(other)))
}

/// Copies what call `giver` gives into the result of call `taker`, on the taker's stream.
fn pull(
    calls: &mut Calls<'_, '_>,
    giver: usize,
    from: Range<usize>,
    taker: usize,
    to: Range<usize>,
) -> Result<()> {
    if giver == taker {
        return calls[taker].copy_own(from, to);
    }
    let [giving, taking] = calls.get_disjoint_mut([giver, taker]).map_err(Error::external)?;
    let stream = taking.stream;
    stream.copy(&giving.input(from)?, &mut taking.output(to)?).map_err(brought(giver))
}

/// Copies bytes from a result to the same place in the result of another rank, on that rank's stream.
fn pull_result(calls: &mut Calls<'_, '_>, giver: usize, taker: usize, bytes: Range<usize>) -> Result<()> {
    let [giving, taking] = calls.get_disjoint_mut([giver, taker]).map_err(Error::external)?;
    let stream = taking.stream;
    stream.copy(&giving.result(bytes.clone())?, &mut taking.output(bytes)?)
}

/// Makes each stream wait for all work on the others.
fn join(calls: &Calls<'_, '_>) -> Result<()> {
    let events = calls.iter().map(|call| call.stream.record()).collect::<Result<Vec<_>>>()?;
    calls.iter().try_for_each(|call| events.iter().try_for_each(|event| call.stream.wait(event)))
}

/// Names the rank whose work could not be enqueued.
fn of(rank: usize) -> impl Fn(Error) -> Error {
    move |error| error.with_context(format_args!("on rank {rank}"))
}

/// Names the rank whose memory could not be read.
fn brought(rank: usize) -> impl Fn(Error) -> Error {
    move |error| error.with_context(format_args!("reading what rank {rank} brought"))
}

impl fmt::Debug for RankDevices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.ranks.iter().map(|rank| &rank.device)).finish()
    }
}
