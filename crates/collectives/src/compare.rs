//! Calls as the ranks show them to each other, to find out which of them differ before an engine gets them.

use gpustream::Result;

use crate::call::{Batch, Call, Collective};
use crate::failure::CommunicatorFailure;

/// The bytes in which a rank shows a call: its text, and zeros. Longer texts are cut.
pub(crate) const SHOWN: usize = 160;

/// Returns what a rank shows of a call.
pub(crate) fn show(text: &str) -> [u8; SHOWN] {
    let mut bytes = [0; SHOWN];
    bytes.iter_mut().zip(text.bytes()).for_each(|(place, byte)| *place = byte);
    bytes
}

/// Returns [`CommunicatorFailure::Different`] unless all ranks show the same; `all` is what they show, in their order.
pub(crate) fn different(all: &[u8]) -> Option<CommunicatorFailure> {
    let text = |call| String::from_utf8_lossy(call).trim_end_matches('\0').to_owned();
    CommunicatorFailure::different(all.chunks_exact(SHOWN).map(text))
}

/// Compares the calls that all ranks make, one after the other: `compare` gets the next of each rank that is checked, as text.
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
