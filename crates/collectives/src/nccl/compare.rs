//! Checked calls: the ranks show each other what they call, and find out which of them differ, before NCCL gets the calls.

use gpustream::{AsView, AsViewMut, Buffer, Error, Result, Stream};
use smallvec::smallvec;

use super::{Seat, enqueue};
use crate::call::{Batch, Call, Operation, Signature};
use crate::compare::{SHOWN, different, show, texts};
use crate::element::ElementType;

/// A rank about to show a call.
struct Show<'a> {
    seat: &'a Seat,
    text: &'a str,
    stream: &'a Stream,
    own: Buffer<u8>,
    all: Buffer<u8>,
}

/// Compares the calls of some ranks, but for sends and receives, with those of all others. Blocks until these have shown
/// theirs.
pub(super) fn compare_calls(sets: &[(&Seat, Batch<'_>)]) -> Result<()> {
    let checked = sets.iter().filter(|(seat, _)| seat.comparisons.is_some());
    let texts: Vec<_> = checked.map(|(seat, calls)| (*seat, texts(calls))).collect();
    let most = texts.iter().map(|(_, texts)| texts.len()).max().unwrap_or(0);
    (0..most)
        .try_for_each(|at| compare(texts.iter().filter_map(|(seat, texts)| Some((*seat, texts.get(at)?)))))
}

/// Compares one call of each of some ranks with those of all others.
pub(super) fn compare<'a>(calls: impl Iterator<Item = (&'a Seat, &'a String)>) -> Result<()> {
    let mut shows = Vec::new();
    for (seat, text) in calls {
        let Some(stream) = &seat.comparisons else { continue };
        let (own, all) = (stream.upload(&show(text))?, stream.alloc(SHOWN * seat.size())?);
        shows.push(Show { seat, text, stream, own, all });
    }
    // Ranks of one thread show theirs at once.
    let signature = Signature { operation: Operation::Compare, element: ElementType::U8, count: SHOWN };
    let calls = shows.iter_mut().map(|Show { seat, stream, own, all, .. }| {
        let (src, dst) = (Some(own.view()), Some(all.view_mut()));
        (*seat, smallvec![Call { signature, stream, src, dst }])
    });
    enqueue::run(calls.collect())?;
    let mut outcome = Ok(());
    for Show { seat, text, stream, all, .. } in &shows {
        let all = stream.download(all).map_err(|error| error.with_context(format_args!("before {text}")))?;
        if let Some(broken) = different(&all) {
            // No abort, which might end the comparison of a rank that is not so far.
            seat.comm.hold().refuse(broken.clone());
            outcome = Err(Error::external(broken));
        }
    }
    outcome
}
