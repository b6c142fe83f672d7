//! Checked calls: the ranks show each other what they call, and find out which of them differ, before NCCL gets the calls.

use gpustream::{AsView, AsViewMut, Buffer, Error, Result, Stream};
use smallvec::smallvec;

use super::team::Shown;
use super::{Seat, enqueue};
use crate::broken::Broken;
use crate::call::{Call, Operation, Signature};
use crate::compare::{SHOWN, different, show};

/// A rank about to show a call to other processes.
struct Show<'a> {
    seat: &'a Seat,
    text: &'a str,
    stream: &'a Stream,
    own: Buffer<u8>,
    all: Buffer<u8>,
}

/// Compares one call of each of some ranks with those of all others. Blocks until these have shown theirs.
pub(super) fn compare(calls: &[(&Seat, &str)]) -> Result<()> {
    let (here, elsewhere): (Vec<_>, Vec<_>) = calls.iter().partition(|(seat, _)| seat.team.is_whole());
    in_process(&here).and(among_processes(&elsewhere))
}

/// Compares calls on the host.
fn in_process(calls: &[(&Seat, &str)]) -> Result<()> {
    // Ranks of one thread show theirs before the first of them waits.
    let show = |(seat, text): &(&Seat, &str)| seat.team.show(seat.comm.rank, Shown::Call((*text).to_owned()));
    let meetings: Vec<_> = calls.iter().map(show).collect();
    let mut outcome = Ok(());
    for ((seat, text), meeting) in calls.iter().zip(meetings) {
        let shown = seat.meet(meeting, text)?;
        let texts = shown.into_iter().map(|shown| match shown {
            Shown::Call(text) => text,
            _ => Operation::Split.to_string(),
        });
        outcome = outcome.and(agree(seat, Broken::different(texts)));
    }
    outcome
}

/// Compares calls by NCCL.
fn among_processes(calls: &[(&Seat, &str)]) -> Result<()> {
    let mut shows = Vec::new();
    for &(seat, text) in calls {
        let Some(stream) = &seat.comparisons else { continue };
        let (own, all) = (stream.upload(&show(text))?, stream.alloc(SHOWN * seat.comm.size)?);
        shows.push(Show { seat, text, stream, own, all });
    }
    let Some(&Show { text, .. }) = shows.first() else { return Ok(()) };
    let before = |error: Error, text: &str| error.with_context(format_args!("before {text}"));
    // Ranks of one thread show theirs at once.
    let signature = Signature::of_bytes(Operation::Compare, SHOWN);
    let calls = shows.iter_mut().map(|Show { seat, stream, own, all, .. }| {
        let (src, dst) = (Some(own.view()), Some(all.view_mut()));
        (*seat, smallvec![Call { signature, stream, src, dst }])
    });
    // NCCL connects the ranks in their first call, and waits for them there.
    enqueue::run(calls.collect()).map_err(|error| before(error, text))?;
    let mut outcome = Ok(());
    for Show { seat, text, stream, all, .. } in &shows {
        let all = stream.download(all).map_err(|error| before(error, text))?;
        outcome = outcome.and(agree(seat, different(&all)));
    }
    outcome
}

/// Refuses this call of a rank's, and all later ones, if the ranks' calls differ.
fn agree(seat: &Seat, different: Option<Broken>) -> Result<()> {
    let Some(broken) = different else { return Ok(()) };
    // No abort, which might end the comparison of a rank that is not so far.
    seat.comm.hold().refuse(broken.clone());
    Err(Error::external(broken))
}
