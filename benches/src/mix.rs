//! A random mix of allocations: a list of slots, their sizes in bytes, and the streams that make them. All contenders
//! must get the same list.

/// The number of streams that take part.
pub(crate) const STREAMS: usize = 8;

/// How many allocations live at once.
pub(crate) const LIVE: usize = 400;

/// One allocation; the slot's earlier allocation is freed first.
#[derive(Clone, Copy)]
pub(crate) struct Step {
    pub(crate) slot: usize,
    pub(crate) bytes: usize,
    pub(crate) stream: usize,
}

/// Returns the same steps for every contender: sizes from 256 bytes to 16 MiB, equally likely on a logarithmic scale.
pub(crate) fn steps(count: usize) -> Vec<Step> {
    let mut state = 0x1234_5678_9abc_def1u64;
    let mut next = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as usize % below
    };
    (0..count)
        .map(|_| {
            let log = 8.0 + 16.0 * next(1 << 20) as f64 / f64::from(1 << 20);
            Step { slot: next(LIVE), bytes: log.exp2() as usize, stream: next(STREAMS) }
        })
        .collect()
}
