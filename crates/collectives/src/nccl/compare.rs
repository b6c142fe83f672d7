//! Checked calls: the ranks show each other what they call, and find out which of them differ, before NCCL gets the calls.

use gpustream::{AsView, AsViewMut, Buffer, Error, Result, Stream};
use smallvec::smallvec;

use super::local_ranks::Contribution;
use super::{Endpoint, enqueue};
use crate::call::{Call, Collective, Signature};
use crate::compare::{SHOWN, different, show};
use crate::failure::CommunicatorFailure;

/// A rank about to show a call to other processes.
struct Show<'a> {
    endpoint: &'a Endpoint,
    text: &'a str,
    stream: &'a Stream,
    own: Buffer<u8>,
    all: Buffer<u8>,
}

/// Compares one call of each of some ranks with those of all others. Blocks until these have shown theirs.
pub(super) fn compare(calls: &[(&Endpoint, &str)]) -> Result<()> {
    let (here, elsewhere): (Vec<_>, Vec<_>) =
        calls.iter().partition(|(endpoint, _)| endpoint.team.is_whole());
    in_process(&here).and(among_processes(&elsewhere))
}

/// Compares calls on the host.
fn in_process(calls: &[(&Endpoint, &str)]) -> Result<()> {
    // Ranks of one thread show theirs before the first of them waits.
    let show = |(endpoint, text): &(&Endpoint, &str)| {
        endpoint.team.show(endpoint.comm.rank, Contribution::Call((*text).to_owned()))
    };
    let meetings: Vec<_> = calls.iter().map(show).collect();
    let mut outcome = Ok(());
    for ((endpoint, text), meeting) in calls.iter().zip(meetings) {
        let shown = endpoint.meet(meeting, text)?;
        let texts = shown.into_iter().map(|shown| match shown {
            Contribution::Call(text) => text,
            _ => Collective::Split.to_string(),
        });
        outcome = outcome.and(agree(endpoint, CommunicatorFailure::different(texts)));
    }
    outcome
}

/// Compares calls by NCCL.
fn among_processes(calls: &[(&Endpoint, &str)]) -> Result<()> {
    let mut shows = Vec::new();
    for &(endpoint, text) in calls {
        let Some(stream) = &endpoint.comparisons else { continue };
        let (own, all) = (stream.upload(&show(text))?, stream.alloc(SHOWN * endpoint.comm.size)?);
        shows.push(Show { endpoint, text, stream, own, all });
    }
    let Some(&Show { text, .. }) = shows.first() else { return Ok(()) };
    let before = |error: Error, text: &str| error.with_context(format_args!("before {text}"));
    // Ranks of one thread show theirs at once.
    let signature = Signature::of_bytes(Collective::Compare, SHOWN);
    let calls = shows.iter_mut().map(|Show { endpoint, stream, own, all, .. }| {
        let (src, dst) = (Some(own.view()), Some(all.view_mut()));
        (*endpoint, smallvec![Call { signature, stream, src, dst }])
    });
    // NCCL connects the ranks in their first call, and waits for them there.
    enqueue::run(calls.collect()).map_err(|error| before(error, text))?;
    let mut outcome = Ok(());
    for Show { endpoint, text, stream, all, .. } in &shows {
        let all = stream.download(all).map_err(|error| before(error, text))?;
        outcome = outcome.and(agree(endpoint, different(&all)));
    }
    outcome
}

/// Refuses this call of a rank's, and all later ones, if the ranks' calls differ.
fn agree(endpoint: &Endpoint, different: Option<CommunicatorFailure>) -> Result<()> {
    let Some(broken) = different else { return Ok(()) };
    // No abort, which might end the comparison of a rank that is not so far.
    endpoint.comm.hold().refuse(broken.clone());
    Err(Error::external(broken))
}
