//! Enqueues calls. If NCCL has a function for a call, we use it. Otherwise the call becomes a group of sends
//! and receives.

use std::ffi::{c_int, c_void};

use gpustream::hal::{RawBuffer, RawStream};
use gpustream::interop::on_behalf;
use gpustream::{Arg, AsView, Buffer, Error, ErrorKind, Result, Stream, View};
use smallvec::SmallVec;

use super::Endpoint;
use super::api::{Api, element, op};
use super::comm::{Handle, LockedComm, grouped, started};
use super::watchdog::Watchdog;
use crate::call::{Batches, Call, Collective, Signature};
use crate::element::ElementType;
use crate::failure::CommunicatorFailure;
use crate::op::Op;

/// A call, with the memory that a barrier needs.
struct Prepared<'c, 'a> {
    call: &'c mut Call<'a>,
    barrier: Option<Buffer<u8>>,
    /// NCCL's element type and the number of elements. If nothing is combined, these are bytes.
    element: u32,
    count: usize,
}

type PreparedBatch<'c, 'a> = SmallVec<[Prepared<'c, 'a>; 1]>;

/// What NCCL's functions take for a call, except communicator and stream.
#[derive(Clone, Copy)]
struct Issue {
    operation: Collective,
    element: u32,
    count: usize,
    /// The size in bytes of one part.
    part: usize,
    src: *const c_void,
    dst: *mut c_void,
}

/// Enqueues the calls of some ranks together. If NCCL must first connect the ranks, blocks for the others.
pub(super) fn run(mut sets: Batches<'_, Endpoint>) -> Result<()> {
    let mut ranks = SmallVec::<[_; 1]>::with_capacity(sets.len());
    for (endpoint, calls) in &mut sets {
        let mut prepared = PreparedBatch::new();
        for call in calls {
            prepared.extend(on_behalf(call.caller, || prepare(call, endpoint.place()))?);
        }
        if !prepared.is_empty() {
            ranks.push((*endpoint, prepared));
        }
    }
    // If two threads hold the same communicators, they lock them in the same order.
    ranks.sort_unstable_by_key(|(endpoint, _)| std::ptr::from_ref(*endpoint).addr());
    let mut held: SmallVec<[LockedComm<'_>; 1]> =
        ranks.iter().map(|(endpoint, _)| endpoint.comm.hold()).collect();
    let handles = held.iter().map(LockedComm::handle).collect::<Result<SmallVec<[_; 1]>>>()?;
    let Some(first) = ranks.first().and_then(|(_, calls)| calls.first()) else { return Ok(()) };
    let (call, stream) = (first.call.signature, first.call.stream);
    let is_one = ranks.len() == 1 && ranks[0].1.iter().all(|call| std::ptr::eq(call.call.stream, stream));
    let enqueued = if is_one {
        let caller = first.call.caller;
        on_behalf(caller, || enqueue_in(stream, &mut ranks[0], handles[0], &held[0]))
    } else {
        enqueue_over(&mut ranks, &handles, &held)
    };
    enqueued.map_err(|error| {
        // The calls of one group end together, whichever rank was interrupted.
        let interrupted = held.iter().find_map(LockedComm::interrupted);
        let reason = |held: &LockedComm<'_>| interrupted.clone().or_else(|| held.reason(call, &error));
        let reasons: Vec<_> = held.iter().map(reason).collect();
        let mut returned = error;
        for (((endpoint, _), held), reason) in ranks.iter().zip(&mut held).zip(reasons) {
            if let Some(broken) = reason {
                returned = break_up(&endpoint.watch, held, &broken);
            }
        }
        returned
    })
}

fn break_up(watch: &Watchdog, held: &mut LockedComm<'_>, broken: &CommunicatorFailure) -> Error {
    // The failure must be there before the work ends, so that waiting for the stream finds it.
    let broken = watch.fail(broken);
    held.break_up(broken.clone());
    Error::external(broken)
}

/// Enqueues one rank's calls in one stream as a single operation. If a graph records them, it keeps the
/// communicator alive and its runs are watched.
fn enqueue_in(
    stream: &Stream,
    (endpoint, calls): &mut (&Endpoint, PreparedBatch<'_, '_>),
    handle: Handle,
    held: &LockedComm<'_>,
) -> Result<()> {
    let (api, size, rank) = (held.comm.api, held.comm.size, held.comm.rank);
    let (call, label) = (calls[0].call.signature, calls[0].label());
    let watched = endpoint.watch.call(call, bytes(calls))?;
    let (args, issues) = split(calls);
    let make_all = |raw, ()| {
        let make = |issue: &Issue| issue.make(api, handle, (rank, size), raw);
        if grouped(api, || issues.iter().try_for_each(make))? { held.settle() } else { Ok(()) }
    };
    if stream.is_recorded() {
        stream.watch_launches(&endpoint.graphs)?;
        endpoint.comm.record(call);
        // SAFETY: NCCL's work goes to this stream, only touches the calls' memory and NCCL's own, and comes
        // after the work that is already there. We close the communicator once no graph has its watcher. An
        // abort ends the work of graphs, and waits for the last of them before anything is freed.
        return unsafe { stream.external(label, &args[..], make_all) };
    }
    // SAFETY: NCCL's work goes to this stream, only touches the calls' memory and NCCL's own, and comes after
    // the work that is already there. The work ends before the communicator does.
    let ((), section) = unsafe { stream.external_watched(label, &args[..], watched.grown(), make_all) }?;
    watched.add(call, stream, section, None);
    Ok(())
}

/// Enqueues calls of several ranks, or in several streams. NCCL enqueues all of them at the end of the group.
/// So for each call we submit one operation before that, which reserves its place in the order, and one after
/// it.
fn enqueue_over(
    ranks: &mut [(&Endpoint, PreparedBatch<'_, '_>)],
    handles: &[Handle],
    held: &[LockedComm<'_>],
) -> Result<()> {
    let Some(api) = held.first().map(|held| held.comm.api) else { return Ok(()) };
    if ranks.iter().flat_map(|(_, calls)| calls).any(|call| call.call.stream.is_recorded()) {
        let message = "in a graph, a group may only have calls of one rank, in one stream";
        return Err(Error::new(ErrorKind::Captured, message));
    }
    let watched =
        ranks.iter().map(|(endpoint, calls)| endpoint.watch.call(calls[0].call.signature, bytes(calls)));
    let watched = watched.collect::<Result<SmallVec<[_; 1]>>>()?;
    let count = ranks.iter().map(|(_, calls)| calls.len()).sum();
    let mut streams = SmallVec::<[_; 1]>::with_capacity(count);
    for ((_, calls), watched) in ranks.iter_mut().zip(&watched) {
        let grown = if calls.len() == 1 { watched.grown() } else { None };
        for call in calls {
            let (stream, label, caller) = (call.call.stream, call.label(), call.call.caller);
            let (args, _) = split(std::slice::from_mut(call));
            // SAFETY: the work of the call only touches this memory. It is enqueued below, before the other
            // operation.
            streams
                .push(on_behalf(caller, || unsafe { stream.external_elsewhere(label, &args[..], grown) })?);
        }
    }
    let mut raws = streams.iter().map(|(raw, _)| *raw);
    let goes_on = grouped(api, || {
        for (((_, calls), &handle), held) in ranks.iter_mut().zip(handles).zip(held) {
            for (call, raw) in calls.iter_mut().zip(&mut raws) {
                call.issue().make(api, handle, (held.comm.rank, held.comm.size), raw)?;
            }
        }
        Ok(())
    })?;
    if goes_on {
        held.iter().try_for_each(LockedComm::settle)?;
    }
    let mut fronts = streams.into_iter().map(|(_, front)| front);
    for ((_, calls), watched) in ranks.iter_mut().zip(&watched) {
        for (call, front) in calls.iter_mut().zip(&mut fronts) {
            let Call { signature, stream, caller, .. } = *call.call;
            let label = call.label();
            let (args, _) = split(std::slice::from_mut(call));
            let grown = front.as_ref().or(watched.grown());
            // SAFETY: the work of the call only touches this memory, and is already enqueued.
            let (_, behind) =
                on_behalf(caller, || unsafe { stream.external_elsewhere(label, &args[..], grown) })?;
            watched.add(signature, stream, front, behind);
        }
    }
    Ok(())
}

/// Returns how many bytes one rank gives in some calls.
fn bytes(calls: &[Prepared<'_, '_>]) -> usize {
    calls.iter().map(|call| call.call.signature.bytes()).sum()
}

/// Prepares a rank's call. Returns `None` if it has no elements, which is then true on all ranks.
fn prepare<'c, 'a>(call: &'c mut Call<'a>, (rank, size): (usize, usize)) -> Result<Option<Prepared<'c, 'a>>> {
    let Signature { operation, element, count } = call.signature;
    let (barrier, element, count) = match operation {
        Collective::Barrier => (Some(call.stream.alloc::<u8>(1)?), element::UINT8, 1),
        _ if count == 0 => return Ok(None),
        _ if operation.op().is_some() => (None, combined(element)?, count),
        _ => (None, element::UINT8, call.signature.bytes()),
    };
    // Drops memory that only other ranks use. If a call then has only one of the two, it is in place.
    if call.src.is_some() && call.dst.is_some() {
        let (gives, gets) = operation.parts(rank, size);
        call.src.take_if(|_| gives == 0);
        call.dst.take_if(|_| gets == 0);
    }
    Ok(Some(Prepared { call, barrier, element, count }))
}

/// Returns NCCL's type for elements that are combined.
fn combined(element: ElementType) -> Result<u32> {
    Ok(match element {
        ElementType::F16 => element::FLOAT16,
        ElementType::Bf16 => element::BFLOAT16,
        ElementType::F32 => element::FLOAT32,
        ElementType::F64 => element::FLOAT64,
        ElementType::I8 => element::INT8,
        ElementType::U8 => element::UINT8,
        ElementType::I32 => element::INT32,
        ElementType::U32 => element::UINT32,
        ElementType::I64 => element::INT64,
        ElementType::U64 => element::UINT64,
        ElementType::I16 | ElementType::U16 => {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "NCCL cannot combine elements of {element}; combine them as i32 or u32 (it can move any type)"
                ),
            ));
        }
    })
}

fn reduction(op: Op) -> u32 {
    match op {
        Op::Sum => op::SUM,
        Op::Product => op::PROD,
        Op::Min => op::MIN,
        Op::Max => op::MAX,
        Op::Average => op::AVG,
    }
}

/// Returns the memory that some calls touch, and the arguments of their NCCL functions.
fn split<'p>(calls: &'p mut [Prepared<'_, '_>]) -> (SmallVec<[Arg<'p>; 2]>, SmallVec<[Issue; 1]>) {
    let issues = calls.iter().map(Prepared::issue).collect();
    let mut args = SmallVec::new();
    for Prepared { call, barrier, .. } in calls {
        args.extend(call.src.as_ref().map(Arg::read));
        args.extend(call.dst.as_mut().map(Arg::write));
        args.extend(barrier.as_mut().map(Arg::write));
    }
    (args, issues)
}

impl Prepared<'_, '_> {
    fn label(&self) -> &'static str {
        self.call.signature.operation.name()
    }

    fn issue(&self) -> Issue {
        let src = self.call.src.as_ref().map(View::as_raw);
        let dst = self.call.dst.as_ref().map(|dst| dst.view().as_raw());
        let barrier = self.barrier.as_ref().map(Buffer::as_raw);
        let address = |memory: Option<RawBuffer>| -> *mut c_void {
            std::ptr::with_exposed_provenance_mut(memory.map_or(0, |memory| memory.0))
        };
        Issue {
            operation: self.call.signature.operation,
            element: self.element,
            count: self.count,
            part: self.call.signature.bytes(),
            // If a call has only one of the two, it is in place.
            src: address(src.or(dst).or(barrier)).cast_const(),
            dst: address(dst.or(src).or(barrier)),
        }
    }
}

impl Issue {
    /// Makes the calls, inside a group.
    fn make(
        &self,
        api: &Api,
        Handle(comm): Handle,
        (rank, size): (usize, usize),
        stream: RawStream,
    ) -> Result<()> {
        let &Self { operation, element, count, part, src, dst } = self;
        let stream = std::ptr::with_exposed_provenance_mut(stream.0);
        let number = |rank: usize| rank as c_int;
        // SAFETY: the call's checks have found the memory long enough, and the caller keeps it until the work
        // is done. Handle and stream are alive.
        let send = |at: usize, to| unsafe {
            started(api.ncclSend(src.wrapping_byte_add(at), count, element, number(to), comm, stream))
        };
        // SAFETY: the call's checks have found the memory long enough, and the caller keeps it until the work
        // is done. Handle and stream are alive.
        let recv = |at: usize, from| unsafe {
            started(api.ncclRecv(dst.wrapping_byte_add(at), count, element, number(from), comm, stream))
        };
        // SAFETY: the call's checks have found the memory long enough, and the caller keeps it until the work
        // is done. Handle and stream are alive.
        let answer = unsafe {
            match operation {
                Collective::Barrier => api.ncclAllReduce(src, dst, count, element, op::SUM, comm, stream),
                Collective::AllReduce(op) => {
                    api.ncclAllReduce(src, dst, count, element, reduction(op), comm, stream)
                }
                Collective::ReduceScatter(op) => {
                    api.ncclReduceScatter(src, dst, count, element, reduction(op), comm, stream)
                }
                Collective::Reduce { op, root } => {
                    api.ncclReduce(src, dst, count, element, reduction(op), number(root), comm, stream)
                }
                Collective::AllGather | Collective::Split | Collective::Compare => {
                    api.ncclAllGather(src, dst, count, element, comm, stream)
                }
                Collective::Broadcast { root } => {
                    api.ncclBroadcast(src, dst, count, element, number(root), comm, stream)
                }
                Collective::Gather { root } => {
                    send(0, root)?;
                    let parts = if rank == root { size } else { 0 };
                    return (0..parts).try_for_each(|from| recv(from * part, from));
                }
                Collective::Scatter { root } => {
                    let parts = if rank == root { size } else { 0 };
                    (0..parts).try_for_each(|to| send(to * part, to))?;
                    return recv(0, root);
                }
                Collective::AllToAll => {
                    return (0..size).try_for_each(|other| {
                        send(other * part, other)?;
                        recv(other * part, other)
                    });
                }
                Collective::Send { to } => return send(0, to),
                Collective::Recv { from } => return recv(0, from),
            }
        };
        started(answer)
    }
}
