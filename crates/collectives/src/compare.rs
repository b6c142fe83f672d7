//! Calls as the ranks compare them. If calls differ, we must find out before an engine gets them, because an
//! engine would wait forever or write to the wrong memory.

use gpustream::Result;

use crate::call::{Batch, Call, Collective};
use crate::failure::CommunicatorFailure;

/// How many bytes we send to compare a call: its text, padded with zeros. Longer texts are cut off.
pub(crate) const ENCODED: usize = 160;

/// Returns these bytes for a call's text.
pub(crate) fn encode(text: &str) -> [u8; ENCODED] {
    let mut bytes = [0; ENCODED];
    bytes.iter_mut().zip(text.bytes()).for_each(|(place, byte)| *place = byte);
    bytes
}

/// Returns [`CommunicatorFailure::Different`] unless all ranks made the same call. `all` holds their bytes,
/// in the order of the ranks.
pub(crate) fn different(all: &[u8]) -> Option<CommunicatorFailure> {
    let text = |call| String::from_utf8_lossy(call).trim_end_matches('\0').to_owned();
    CommunicatorFailure::different(all.chunks_exact(ENCODED).map(text))
}

/// Compares the calls that all ranks make, one after another. `compare` gets the next call of each checked
/// rank, as text.
pub(crate) fn each<S>(
    sets: &[(&S, Batch<'_>)],
    is_checked: impl Fn(&S) -> bool,
    compare: impl Fn(&[(&S, &str)]) -> Result<()>,
) -> Result<()> {
    let checked = sets.iter().filter(|(endpoint, _)| is_checked(endpoint));
    let texts: Vec<_> = checked.map(|(endpoint, calls)| (*endpoint, texts(calls))).collect();
    let most = texts.iter().map(|(_, texts)| texts.len()).max().unwrap_or(0);
    (0..most).try_for_each(|at| {
        let next = texts.iter().filter_map(|(endpoint, texts)| Some((*endpoint, &**texts.get(at)?)));
        compare(&next.collect::<Vec<_>>())
    })
}

/// Returns the texts of the calls that all ranks make.
fn texts(calls: &[Call<'_>]) -> Vec<String> {
    let common = calls.iter().map(|call| call.signature);
    let common: Vec<_> = common
        .filter(|call| !matches!(call.operation, Collective::Send { .. } | Collective::Recv { .. }))
        .collect();
    match common.as_slice() {
        [call] => vec![call.to_string()],
        calls => (1..)
            .zip(calls)
            .map(|(number, call)| format!("{call}, number {number} of {} in a group", calls.len()))
            .collect(),
    }
}
