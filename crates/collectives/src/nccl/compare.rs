//! Checked calls: the ranks show each other what they call, and find out which of them differ, before NCCL gets the calls.

use gpustream::{AsView, AsViewMut, Buffer, Error, Result, Stream};
use smallvec::smallvec;

use super::{Seat, enqueue};
use crate::call::{Call, Operation, Signature};
use crate::compare::{SHOWN, different, show};

/// A rank about to show a call.
struct Show<'a> {
    seat: &'a Seat,
    text: &'a str,
    stream: &'a Stream,
    own: Buffer<u8>,
    all: Buffer<u8>,
}

/// Compares one call of each of some ranks with those of all others. Blocks until these have shown theirs.
pub(super) fn compare(calls: &[(&Seat, &str)]) -> Result<()> {
    let mut shows = Vec::new();
    for &(seat, text) in calls {
        let Some(stream) = &seat.comparisons else { continue };
        let (own, all) = (stream.upload(&show(text))?, stream.alloc(SHOWN * seat.comm.size)?);
        shows.push(Show { seat, text, stream, own, all });
    }
    // Ranks of one thread show theirs at once.
    let signature = Signature::of_bytes(Operation::Compare, SHOWN);
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
