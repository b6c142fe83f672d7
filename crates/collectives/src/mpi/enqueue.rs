//! Enqueues calls: for each piece of a call, its copies and waits.

use std::ops::Range;
use std::sync::MutexGuard;

use gpustream::interop::on_behalf;
use gpustream::{Error, Result, WaitValue};

use super::Endpoint;
use super::comm::Memory;
use super::group::Piece;
use super::process::Task;
use super::stage::{SLOTS, Staging};
use crate::call::{Batches, Call, Collective, Signature};
use crate::failure::CommunicatorFailure;

/// A call on its way through a lane.
struct Transfer<'a> {
    call: Call<'a>,
    /// The index of its rank among those in this run.
    rank: usize,
    lane: usize,
    /// How many parts the rank gives and gets. All parts have the same number of elements.
    gives: usize,
    gets: usize,
    /// How many elements of each part we exchange at once.
    step: usize,
    pieces: usize,
    /// The lane's count before the first piece.
    first: u32,
}

/// Enqueues the calls of some ranks together. Never waits for another rank.
pub(super) fn run(mut ranks: Batches<'_, Endpoint>) -> Result<()> {
    // If two threads hold the same communicators, they lock them in the same order.
    ranks.sort_unstable_by_key(|(endpoint, _)| std::ptr::from_ref(*endpoint).addr());
    let (mut endpoints, mut staging) = (Vec::new(), Vec::new());
    let mut transfers: Vec<Transfer<'_>> = Vec::new();
    for (rank, (endpoint, calls)) in ranks.into_iter().enumerate() {
        let mut held = endpoint.staging();
        endpoint.state.check()?;
        let mut taken = Vec::new();
        for call in calls {
            if call.signature.count == 0 && call.signature.operation != Collective::Barrier {
                continue; // All ranks make it alike.
            }
            let lane = on_behalf(call.caller, || held.lane(call.stream, &taken))?;
            taken.push(lane);
            transfers.push(Transfer::new(call, rank, lane, endpoint, &held));
        }
        endpoints.push(endpoint);
        staging.push(held);
    }
    let mut given = false;
    let enqueued = enqueue(&mut transfers, &endpoints, &mut staging, &mut given);
    enqueued.map_err(|error| {
        if !given || endpoints.is_empty() {
            return error;
        }
        // The other ranks' calls now wait for the rest of this one, which will never come.
        let call = transfers.first().map(|transfer| transfer.call.signature.to_string()).unwrap_or_default();
        let broken = CommunicatorFailure::Failed { call, message: error.to_string() };
        for endpoint in endpoints {
            endpoint.break_up(broken.clone());
        }
        Error::external(broken)
    })
}

/// Enqueues the pieces in turn, so that calls that wait for each other progress together: while one piece is
/// exchanged, the next pieces of all calls are copied.
fn enqueue(
    transfers: &mut [Transfer<'_>],
    endpoints: &[&Endpoint],
    staging: &mut [MutexGuard<'_, Staging>],
    given: &mut bool,
) -> Result<()> {
    let most = transfers.iter().map(|transfer| transfer.pieces).max().unwrap_or(0);
    for turn in 0..most + SLOTS {
        for transfer in &mut *transfers {
            let (staging, caller) = (&mut staging[transfer.rank], transfer.call.caller);
            if let Some(piece) = turn.checked_sub(SLOTS).filter(|&piece| piece < transfer.pieces) {
                on_behalf(caller, || transfer.get(piece, staging))?;
            }
            if turn < transfer.pieces {
                on_behalf(caller, || transfer.give(turn, endpoints[transfer.rank], staging))?;
                *given = true;
            }
        }
    }
    for Transfer { call, rank, lane, .. } in transfers {
        staging[*rank].lanes[*lane].leave(call.stream)?;
    }
    Ok(())
}

impl<'a> Transfer<'a> {
    fn new(call: Call<'a>, rank: usize, lane: usize, endpoint: &Endpoint, staging: &Staging) -> Self {
        let Signature { operation, element, count } = call.signature;
        let (own, size) = endpoint.place();
        let (gives, gets) = operation.parts(own, size);
        let most = match operation {
            // All ranks must divide a call into the same pieces, whatever they give or get.
            Collective::ReduceScatter(_)
            | Collective::AllGather
            | Collective::Gather { .. }
            | Collective::Scatter { .. }
            | Collective::AllToAll => size,
            _ => 1,
        };
        let step = staging.area / element.size() / most;
        let (pieces, first) = (count.div_ceil(step).max(1), staging.lanes[lane].count);
        Self { call, rank, lane, gives, gets, step, pieces, first }
    }

    /// Returns which elements of each part belong to a piece.
    fn elements(&self, piece: usize) -> Range<usize> {
        let count = self.call.signature.count;
        (piece * self.step).min(count)..((piece + 1) * self.step).min(count)
    }

    /// Copies what the rank gives for a piece, and then starts its exchange.
    fn give(&mut self, piece: usize, endpoint: &Endpoint, staging: &mut Staging) -> Result<()> {
        let (elements, stream) = (self.elements(piece), self.call.stream);
        let lane = &mut staging.lanes[self.lane];
        let slot = &mut lane.slots[piece % SLOTS];
        for (user, staged) in self.copies(self.gives, piece) {
            let mut place = slot.gives.memory.slice_mut(staged)?;
            stream.copy(&self.call.input(user)?, &mut place)?;
        }
        let ready = stream.record()?;
        let address = |address: usize, parts: usize| match parts {
            0 => std::ptr::null_mut(),
            _ => std::ptr::with_exposed_provenance_mut(address),
        };
        lane.count += 1;
        let piece = Piece {
            call: self.call.signature,
            count: elements.len(),
            memory: Memory {
                gives: address(slot.gives.address, self.gives),
                gets: address(slot.gets.address, self.gets),
            },
            ready,
            done: lane.done.clone(),
            number: lane.count,
            lane: self.lane,
            failures: stream.failures(),
        };
        endpoint.process.give(endpoint.number, Task::Start(piece));
        Ok(())
    }

    /// Makes the stream wait for a piece's exchange, and copies what the rank gets.
    fn get(&mut self, piece: usize, staging: &mut Staging) -> Result<()> {
        let lane = &mut staging.lanes[self.lane];
        let number = self.first + u32::try_from(piece + 1).map_err(Error::external)?;
        self.call.stream.wait_flag(&lane.done, WaitValue::AtLeast(number))?;
        let slot = &lane.slots[piece % SLOTS];
        for (user, staged) in self.copies(self.gets, piece) {
            let stream = self.call.stream;
            stream.copy(&slot.gets.memory.slice(staged)?, &mut self.call.output(user)?)?;
        }
        Ok(())
    }

    /// Returns the byte ranges of a piece in the user's memory, for that many parts, and in staging memory.
    fn copies(&self, parts: usize, piece: usize) -> Vec<(Range<usize>, Range<usize>)> {
        let Signature { element, count, .. } = self.call.signature;
        let (elements, size) = (self.elements(piece), element.size());
        let len = elements.len();
        let bytes = |start: usize, len: usize| start * size..(start + len) * size;
        match parts {
            0 => Vec::new(),
            _ if len == count => vec![(bytes(0, count * parts), bytes(0, count * parts))],
            _ => (0..parts)
                .map(|part| (bytes(part * count + elements.start, len), bytes(part * len, len)))
                .collect(),
        }
    }
}
