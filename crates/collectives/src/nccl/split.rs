//! Splitting a communicator: its ranks show each other their colors and keys, and those of one color meet by an id of their own,
//! so that a failure of the part leaves the whole alone.

use gpustream::{Error, Plain, Result, Stream};
use smallvec::smallvec;

use super::api::ncclUniqueId;
use super::comm::Handles;
use super::{Seat, enqueue, start};
use crate::call::{Call, Operation, Signature};

/// Returns the handles of this rank's part, and the rank's number there with the number of ranks. Blocks until all ranks of
/// the whole have called this, and then for those of the part.
pub(super) fn split(seat: &Seat, color: i32, key: i32) -> Result<(Handles, (usize, usize))> {
    let api = seat.comm.api;
    let stream = seat.device.stream()?;
    let places = show(seat, &stream, [color, key])?;
    let part = places.iter().zip(0..).filter(|([other, _], _)| *other == color);
    let mut part: Vec<(i32, usize)> = part.map(|([_, key], rank)| (*key, rank)).collect();
    part.sort_unstable();
    let place = part.iter().take_while(|(_, rank)| *rank != seat.comm.rank).count();
    let own = if place == 0 { start::new_id(api)?.internal } else { [0; 128] };
    let ids = show(seat, &stream, own)?;
    let id = part.first().and_then(|&(_, first)| ids.get(first)).copied();
    let id = id.ok_or_else(|| Error::external("the ranks' colors came back without this rank's"))?;
    let id = ncclUniqueId { internal: id };
    let place = (place, part.len());
    let handles = start::connect_one(api, id, place, &seat.device, seat.comm.limit)?;
    Ok((handles, place))
}

/// Shows all ranks some values, and returns theirs in the order of the ranks.
fn show<T: Plain>(seat: &Seat, stream: &Stream, own: T) -> Result<Vec<T>> {
    let (own, mut all) = (stream.upload(&[own])?, stream.alloc::<T>(seat.comm.size)?);
    let signature = Signature::of_bytes(Operation::Split, size_of::<T>());
    let (src, dst) = (Some(own.cast::<u8>()?), Some(all.cast_mut::<u8>()?));
    enqueue::run(smallvec![(seat, smallvec![Call { signature, stream, src, dst }])])?;
    stream.download(&all)
}
