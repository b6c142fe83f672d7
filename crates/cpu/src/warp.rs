//! Warp-wide operations: lanes wait until those of their group are there, then all get their results at once.

use crate::abi::{Context, Lane, warp as kinds};
use crate::block::{Runner, State};
use crate::failure::{Failure, Site};

/// A thread comes to a warp operation, which its lane describes, and waits with its stack pointer at `here`. Gives the
/// one to go on with: of another thread, of the worker, or its own again if that completes the operation.
///
/// # Safety
/// Called by [`crate::switch::warp`] for the thread that runs.
pub(crate) unsafe extern "C" fn arrive(context: *mut Context, thread: u32, here: usize) -> usize {
    // SAFETY: the context is the first field of a runner, whose worker waits in `Exchange::run` while kernels run.
    let runner = unsafe { &mut *context.cast::<Runner>() };
    runner.hold(thread);
    if enter(runner, thread) {
        return here;
    }
    let next = runner.successor();
    runner.exchange.pass_turn(here, next)
}

/// The warp that `thread` belongs to: its first thread and the mask of lanes the block has.
fn warp_of(runner: &Runner, thread: u32) -> (u32, u64) {
    let size = runner.context.warp_size;
    let first = thread / size * size;
    let lanes = (runner.total - first).min(size);
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

/// Puts `thread` into its lane's operation. True if that completes it: the result is there and nobody needs to wait.
fn enter(runner: &mut Runner, thread: u32) -> bool {
    let (first, existing) = warp_of(runner, thread);
    let lane = &mut runner.lanes[thread as usize];
    if lane.mask != 0 {
        lane.mask = lane.mask & existing | 1 << (thread - first);
    }
    let group = if lane.mask == 0 { existing } else { lane.mask };
    runner.states[thread as usize] = State::AtWarp;
    complete(runner, first, group, thread)
}

/// Completes the operation that `leader` waits in, if all of `group` that have not returned wait in it too.
fn complete(runner: &mut Runner, first: u32, group: u64, leader: u32) -> bool {
    // Lanes mostly come in order: as long as the last is not there, there is nothing to count.
    let last = runner.states[(first + 63 - group.leading_zeros()) as usize];
    if !matches!(last, State::AtWarp | State::Exited) {
        return false;
    }
    let leader = runner.lanes[leader as usize];
    let mut active = 0;
    for lane in lanes(group) {
        let thread = (first + lane) as usize;
        match runner.states[thread] {
            State::Exited => {}
            State::AtWarp if same(&runner.lanes[thread], &leader) => active |= 1 << lane,
            _ => return false,
        }
    }
    finish(runner, first, active);
    true
}

fn same(a: &Lane, b: &Lane) -> bool {
    a.mask == b.mask && a.kind == b.kind
}

/// Gives each lane of `active` its result and lets it go.
fn finish(runner: &mut Runner, first: u32, active: u64) {
    let mut values = [0; 64];
    let mut ballot = 0;
    for lane in lanes(active) {
        let value = runner.lanes[(first + lane) as usize].value;
        values[lane as usize] = value;
        ballot |= u64::from(value != 0) << lane;
    }
    for lane in lanes(active) {
        let thread = (first + lane) as usize;
        let wait = &mut runner.lanes[thread];
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
        runner.states[thread] = State::Ready;
    }
}

/// No thread of the block can run: completes operations whose missing lanes have returned, or that wait for
/// whoever can come. False if there are none.
pub(crate) fn resolve_stall(runner: &mut Runner) -> bool {
    let mut resolved = false;
    for thread in 0..runner.total {
        if runner.states[thread as usize] != State::AtWarp {
            continue;
        }
        let leader = runner.lanes[thread as usize];
        let (first, existing) = warp_of(runner, thread);
        if leader.mask != 0 {
            resolved |= complete(runner, first, leader.mask, thread);
            continue;
        }
        // Divergent lanes: those that wait at the same place are the active ones.
        let active = lanes(existing)
            .filter(|&lane| {
                let thread = (first + lane) as usize;
                let other = &runner.lanes[thread];
                runner.states[thread] == State::AtWarp && same(other, &leader) && other.line == leader.line
            })
            .fold(0, |mask, lane| mask | 1 << lane);
        finish(runner, first, active);
        resolved = true;
    }
    resolved
}

/// Why no lane can go on: one waits for another that is elsewhere.
pub(crate) fn stuck(runner: &Runner) -> Failure {
    let Some(waiting) = runner.states().iter().position(|&s| s == State::AtWarp) else {
        return runner.failure_at(None, "no thread of the block can go on".into());
    };
    let wait = &runner.lanes[waiting];
    let (first, _) = warp_of(runner, waiting as u32);
    let other = lanes(wait.mask).map(|lane| first + lane).find(|&other| {
        let (state, other) = (runner.states[other as usize], &runner.lanes[other as usize]);
        state != State::Exited && !(state == State::AtWarp && same(other, wait))
    });
    let elsewhere = other.map_or_else(
        || "a lane of its mask never comes".into(),
        |other| {
            let state = runner.states[other as usize];
            let at = if state == State::AtBarrier {
                runner.barrier.site()
            } else {
                Site::from(&runner.lanes[other as usize])
            };
            format!("thread {}, named in its mask, waits at {at}", runner.place(other))
        },
    );
    let message = format!(
        "waits in a warp operation at {}, but {elsewhere}: every lane of a mask must reach the operation",
        Site::from(wait)
    );
    runner.failure_at(Some(waiting as u32), message)
}
