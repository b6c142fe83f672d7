//! Warp-wide operations: lanes wait until all lanes of their group are there, and then all get their results
//! at once. A thread may also wait alone, until another thread of the block wakes it: `cuda::barrier` counts
//! its arrivals itself, and needs no more than that.

use crate::abi::{Lane, warp as kinds};
use crate::thread::ThreadState;

/// The threads of a block, as warp operations see them.
pub(crate) struct Threads<'a> {
    /// One per thread.
    pub(crate) states: &'a mut [ThreadState],
    /// At least one per thread: the operation that the thread waits in, or last waited in.
    pub(crate) lanes: &'a mut [Lane],
    /// Lanes of a warp.
    pub(crate) warp_size: u32,
}

/// Returns the warp of `thread`: its first thread, and a mask of the lanes that the block has.
fn warp_of(threads: &Threads<'_>, thread: u32) -> (u32, u64) {
    let size = threads.warp_size;
    let first = thread / size * size;
    let lanes = (threads.states.len() as u32 - first).min(size);
    (first, if lanes == 64 { u64::MAX } else { (1 << lanes) - 1 })
}

fn lanes(mask: u64) -> impl Iterator<Item = u32> {
    let mut rest = mask;
    std::iter::from_fn(move || {
        let lane = (rest != 0).then(|| rest.trailing_zeros());
        rest &= rest.wrapping_sub(1);
        lane
    })
}

/// Puts `thread` into its lane's operation. Returns true if that completes it, so the result is there and no
/// lane must wait.
pub(crate) fn enter(threads: &mut Threads<'_>, thread: u32) -> bool {
    let (first, existing) = warp_of(threads, thread);
    let lane = &mut threads.lanes[thread as usize];
    match lane.kind {
        kinds::AWAIT => {
            threads.states[thread as usize] = ThreadState::AtWarp;
            return false;
        }
        kinds::WAKE => {
            let value = lane.value;
            wake(threads, value);
            threads.states[thread as usize] = ThreadState::Ready;
            return true;
        }
        _ => {}
    }
    if lane.mask != 0 {
        lane.mask = lane.mask & existing | 1 << (thread - first);
    }
    let group = if lane.mask == 0 { existing } else { lane.mask };
    threads.states[thread as usize] = ThreadState::AtWarp;
    complete(threads, first, group, thread)
}

/// Lets the threads go on that wait with this value.
fn wake(threads: &mut Threads<'_>, value: u64) {
    for (state, lane) in threads.states.iter_mut().zip(&*threads.lanes) {
        if *state == ThreadState::AtWarp && lane.kind == kinds::AWAIT && lane.value == value {
            *state = ThreadState::Ready;
        }
    }
}

/// Completes the operation that `leader` waits in, if all lanes of `group` that have not returned wait in it
/// too.
fn complete(threads: &mut Threads<'_>, first: u32, group: u64, leader: u32) -> bool {
    // Lanes usually come in order, so as long as the last is not there, we need not count.
    let last = threads.states[(first + 63 - group.leading_zeros()) as usize];
    if !matches!(last, ThreadState::AtWarp | ThreadState::Exited) {
        return false;
    }
    let leader = threads.lanes[leader as usize];
    let mut active = 0;
    for lane in lanes(group) {
        let thread = (first + lane) as usize;
        match threads.states[thread] {
            ThreadState::Exited => {}
            ThreadState::AtWarp if same(&threads.lanes[thread], &leader) => active |= 1 << lane,
            _ => return false,
        }
    }
    finish(threads, first, active);
    true
}

fn same(a: &Lane, b: &Lane) -> bool {
    a.mask == b.mask && a.kind == b.kind
}

/// Gives each lane of `active` its result and releases it.
fn finish(threads: &mut Threads<'_>, first: u32, active: u64) {
    let mut values = [0; 64];
    let mut ballot = 0;
    for lane in lanes(active) {
        let value = threads.lanes[(first + lane) as usize].value;
        values[lane as usize] = value;
        ballot |= u64::from(value != 0) << lane;
    }
    for lane in lanes(active) {
        let thread = (first + lane) as usize;
        let wait = &mut threads.lanes[thread];
        wait.active = active;
        wait.value = match wait.kind {
            kinds::SHUFFLE if wait.source < 64 && active >> wait.source & 1 == 1 => {
                values[wait.source as usize]
            }
            kinds::SHUFFLE => wait.value,
            kinds::BALLOT => ballot,
            kinds::MATCH => lanes(active)
                .filter(|&other| values[other as usize] == values[lane as usize])
                .fold(0, |mask, other| mask | 1 << other),
            _ => 0,
        };
        threads.states[thread] = ThreadState::Ready;
    }
}

/// If no thread of the block can run, completes operations whose missing lanes have returned, or that wait
/// for whichever lanes can come. Returns false if there are none.
pub(crate) fn resolve_stall(threads: &mut Threads<'_>) -> bool {
    let mut resolved = false;
    for thread in 0..threads.states.len() as u32 {
        if threads.states[thread as usize] != ThreadState::AtWarp {
            continue;
        }
        let leader = threads.lanes[thread as usize];
        if leader.kind == kinds::AWAIT {
            continue;
        }
        let (first, existing) = warp_of(threads, thread);
        if leader.mask != 0 {
            resolved |= complete(threads, first, leader.mask, thread);
            continue;
        }
        // The lanes have diverged. Those that wait at the same place are the active ones.
        let active = lanes(existing)
            .filter(|&lane| {
                let thread = (first + lane) as usize;
                let other = &threads.lanes[thread];
                threads.states[thread] == ThreadState::AtWarp
                    && same(other, &leader)
                    && other.line == leader.line
            })
            .fold(0, |mask, lane| mask | 1 << lane);
        finish(threads, first, active);
        resolved = true;
    }
    resolved
}

/// Returns a thread in the mask of `waiting` that does not wait in the same operation.
pub(crate) fn missing(threads: &Threads<'_>, waiting: u32) -> Option<u32> {
    let wait = &threads.lanes[waiting as usize];
    let (first, _) = warp_of(threads, waiting);
    lanes(wait.mask).map(|lane| first + lane).find(|&other| {
        let (state, other) = (threads.states[other as usize], &threads.lanes[other as usize]);
        state != ThreadState::Exited && !(state == ThreadState::AtWarp && same(other, wait))
    })
}
