//! Splits a communicator. Its ranks tell each other their colors and keys, and the ranks of one color connect
//! through their own id. So if the part fails, the whole is not affected.

use std::sync::Arc;

use gpustream::{Error, Plain, Result, Stream};
use smallvec::smallvec;

use super::api::ncclUniqueId;
use super::comm::Handles;
use super::local_ranks::{Contribution, LocalRanks};
use super::{Endpoint, enqueue, start};
use crate::call::{Call, Collective, Signature, call_site};

/// This rank's part of a communicator.
pub(super) struct SplitRank {
    pub(super) handles: Handles,
    /// The rank's number in the part, and the number of ranks there.
    pub(super) place: (usize, usize),
    pub(super) local_ranks: Arc<LocalRanks>,
}

/// The ranks of one color, ordered by their keys.
struct Color {
    /// This rank's number among them.
    place: usize,
    /// Their numbers in the whole.
    ranks: Vec<usize>,
}

/// Makes this rank's part. Blocks until all ranks of the whole have called this, and then for the ranks of
/// the part.
pub(super) fn split(endpoint: &Endpoint, color: i32, key: i32) -> Result<SplitRank> {
    if endpoint.local_ranks.is_whole() {
        in_process(endpoint, color, key)
    } else {
        among_processes(endpoint, color, key)
    }
}

/// Splits a communicator whose ranks are all in this process, so they can meet on the host. They also leave
/// together: a rank that is done might start work, and another rank that still connects may make driver calls
/// that wait for that work.
fn in_process(endpoint: &Endpoint, color: i32, key: i32) -> Result<SplitRank> {
    let call = Collective::Split;
    let contributions = endpoint.exchange(Contribution::Place([color, key]), call)?;
    let places = contributions
        .iter()
        .map(|given| if let Contribution::Place(place) = given { Some(*place) } else { None });
    let color = Color::of(endpoint, color, &places.collect::<Option<Vec<_>>>().ok_or_else(mixed)?);
    let api = endpoint.comm.api;
    let made = (color.place == 0).then(|| start::new_id(api)).transpose();
    let for_part =
        made.as_ref().ok().copied().flatten().map(|id| (id, LocalRanks::of_process(color.ranks.len())));
    let contributions = endpoint.exchange(Contribution::Part(for_part), call)?;
    let part = color.ranks.first().and_then(|&first| contributions.get(first));
    let connected = match part {
        Some(Contribution::Part(Some((id, local_ranks)))) => {
            let place = color.place();
            start::connect_one(api, *id, place, &endpoint.device, endpoint.comm.limit)
                .map(|handles| SplitRank { handles, place, local_ranks: local_ranks.clone() })
        }
        _ => Err(Error::external(
            "the first rank of this part could not make the part's id, so the part has no communicator; that \
             rank's error says why",
        )),
    };
    endpoint.exchange(Contribution::Done, call)?;
    made?;
    connected
}

/// Splits a communicator whose other ranks are in other processes.
fn among_processes(endpoint: &Endpoint, color: i32, key: i32) -> Result<SplitRank> {
    let api = endpoint.comm.api;
    let stream = endpoint.device.stream()?;
    let color = Color::of(endpoint, color, &all_gather(endpoint, &stream, [color, key])?);
    let own = if color.place == 0 { start::new_id(api)?.internal } else { [0; 128] };
    let ids = all_gather(endpoint, &stream, own)?;
    let id = color.ranks.first().and_then(|&first| ids.get(first)).copied();
    let id = ncclUniqueId { internal: id.ok_or_else(mixed)? };
    let place = color.place();
    let handles = start::connect_one(api, id, place, &endpoint.device, endpoint.comm.limit)?;
    Ok(SplitRank { handles, place, local_ranks: LocalRanks::of_one() })
}

/// Gives all ranks some values through NCCL, and returns theirs in the order of the ranks.
fn all_gather<T: Plain>(endpoint: &Endpoint, stream: &Stream, own: T) -> Result<Vec<T>> {
    let (own, mut all) = (stream.upload(&[own])?, stream.alloc::<T>(endpoint.comm.size)?);
    let signature = Signature::of_bytes(Collective::Split, size_of::<T>());
    let caller = call_site(signature.operation.name());
    let (src, dst) = (Some(own.cast::<u8>()?), Some(all.cast_mut::<u8>()?));
    enqueue::run(smallvec![(endpoint, smallvec![Call { signature, caller, stream, src, dst }])])?;
    stream.download(&all)
}

impl Color {
    /// Returns this rank's color. `places` has the colors and keys of all ranks.
    fn of(endpoint: &Endpoint, color: i32, places: &[[i32; 2]]) -> Self {
        let ranks = places.iter().zip(0..).filter(|([other, _], _)| *other == color);
        let mut ranks: Vec<(i32, usize)> = ranks.map(|([_, key], rank)| (*key, rank)).collect();
        ranks.sort_unstable();
        let place = ranks.iter().take_while(|(_, rank)| *rank != endpoint.comm.rank).count();
        Self { place, ranks: ranks.into_iter().map(|(_, rank)| rank).collect() }
    }

    fn place(&self) -> (usize, usize) {
        (self.place, self.ranks.len())
    }
}

/// The error of a split that met another call.
#[cold]
fn mixed() -> Error {
    Error::external(
        "this rank's color is missing among the ranks' colors, because some rank did not call `split`; every rank \
         must make the same calls in the same order",
    )
}
