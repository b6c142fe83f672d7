//! Checked calls: the ranks tell each other what they are about to call, so that we find out which ones
//! differ before NCCL gets the calls.

use gpustream::{AsView, AsViewMut, Buffer, Error, Result, Stream};
use smallvec::smallvec;

use super::local_ranks::Contribution;
use super::{Endpoint, enqueue};
use crate::call::{Call, Collective, Signature, call_site};
use crate::compare::{ENCODED, different, encode};
use crate::failure::CommunicatorFailure;

/// A rank about to send its call to other processes.
struct Comparison<'a> {
    endpoint: &'a Endpoint,
    text: &'a str,
    stream: &'a Stream,
    own: Buffer<u8>,
    all: Buffer<u8>,
}

/// Compares one call of each given rank with those of all other ranks. Blocks until all have sent theirs.
pub(super) fn compare(calls: &[(&Endpoint, &str)]) -> Result<()> {
    let (here, elsewhere): (Vec<_>, Vec<_>) =
        calls.iter().partition(|(endpoint, _)| endpoint.local_ranks.is_whole());
    in_process(&here).and(among_processes(&elsewhere))
}

/// Compares calls on the host.
fn in_process(calls: &[(&Endpoint, &str)]) -> Result<()> {
    // All ranks of one thread must contribute before the first of them waits.
    let contribute = |(endpoint, text): &(&Endpoint, &str)| {
        endpoint.local_ranks.contribute(endpoint.comm.rank, Contribution::Call((*text).to_owned()))
    };
    let exchanges: Vec<_> = calls.iter().map(contribute).collect();
    let mut outcome = Ok(());
    for ((endpoint, text), exchange) in calls.iter().zip(exchanges) {
        let contributions = endpoint.meet(exchange, text)?;
        let texts = contributions.into_iter().map(|contribution| match contribution {
            Contribution::Call(text) => text,
            _ => Collective::Split.to_string(),
        });
        outcome = outcome.and(agree(endpoint, CommunicatorFailure::different(texts)));
    }
    outcome
}

/// Compares calls through NCCL.
fn among_processes(calls: &[(&Endpoint, &str)]) -> Result<()> {
    let mut comparisons = Vec::new();
    for &(endpoint, text) in calls {
        let Some(stream) = &endpoint.comparisons else { continue };
        let (own, all) = (stream.upload(&encode(text))?, stream.alloc(ENCODED * endpoint.comm.size)?);
        comparisons.push(Comparison { endpoint, text, stream, own, all });
    }
    let Some(&Comparison { text, .. }) = comparisons.first() else { return Ok(()) };
    let before = |error: Error, text: &str| error.with_context(format_args!("before {text}"));
    // All ranks of one thread send theirs at once.
    let signature = Signature::of_bytes(Collective::Compare, ENCODED);
    let caller = call_site(signature.operation.name());
    let calls = comparisons.iter_mut().map(|Comparison { endpoint, stream, own, all, .. }| {
        let (src, dst) = (Some(own.view()), Some(all.view_mut()));
        (*endpoint, smallvec![Call { signature, caller, stream, src, dst }])
    });
    // In their first call NCCL connects the ranks, and waits for them.
    enqueue::run(calls.collect()).map_err(|error| before(error, text))?;
    let mut outcome = Ok(());
    for Comparison { endpoint, text, stream, all, .. } in &comparisons {
        let all = stream.download(all).map_err(|error| before(error, text))?;
        outcome = outcome.and(agree(endpoint, different(&all)));
    }
    outcome
}

/// If the ranks' calls differ, refuses this rank's call and all later ones.
fn agree(endpoint: &Endpoint, different: Option<CommunicatorFailure>) -> Result<()> {
    let Some(broken) = different else { return Ok(()) };
    // We do not abort, because that might end the comparison of a rank that is not as far.
    endpoint.comm.hold().refuse(broken.clone());
    Err(Error::external(broken))
}
