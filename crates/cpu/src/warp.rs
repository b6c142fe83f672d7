//! Warp-wide operations: lanes wait until those of their group are there, then all get their results at once.

use crate::abi::warp as kinds;
use crate::block::{Failure, Runner, Site, State};

/// A lane's part in a warp operation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wait {
    /// One of [`kinds`].
    pub(crate) kind: u32,
    /// The lane a shuffle reads.
    pub(crate) source: u32,
    /// The lanes it waits for; 0 for those of the warp that can get here.
    pub(crate) mask: u64,
    /// What it gives; afterwards what it gets.
    pub(crate) value: u64,
    /// Afterwards: who took part.
    pub(crate) active: u64,
}

/// The warp that `thread` belongs to: its first thread and the mask of lanes the block has.
fn warp_of(runner: &Runner, thread: u32) -> (u32, u64) {
    let size = runner.context.warp_size;
    let first = thread / size * size;
    let lanes = (runner.threads.len() as u32 - first).min(size);
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

/// Puts `thread` into an operation. True if that completes it: the result is there and nobody needs to wait.
pub(crate) fn arrive(runner: &mut Runner, thread: u32, mut wait: Wait, site: Site) -> bool {
    let (first, existing) = warp_of(runner, thread);
    if wait.mask != 0 {
        wait.mask = wait.mask & existing | 1 << (thread - first);
    }
    let entry = &mut runner.threads[thread as usize];
    entry.warp = wait;
    entry.site = site;
    entry.state = State::AtWarp;
    let group = if wait.mask == 0 { existing } else { wait.mask };
    complete(runner, first, group, thread)
}

/// Completes the operation that `leader` waits in, if all of `group` that have not returned wait in it too.
fn complete(runner: &mut Runner, first: u32, group: u64, leader: u32) -> bool {
    let leader = runner.threads[leader as usize];
    let mut active = 0;
    for lane in lanes(group) {
        let thread = &runner.threads[(first + lane) as usize];
        match thread.state {
            State::Exited => {}
            State::AtWarp if same(&thread.warp, &leader.warp) => active |= 1 << lane,
            _ => return false,
        }
    }
    finish(runner, first, active);
    true
}

fn same(a: &Wait, b: &Wait) -> bool {
    a.mask == b.mask && a.kind == b.kind
}

/// Gives each lane of `active` its result and lets it go.
fn finish(runner: &mut Runner, first: u32, active: u64) {
    let mut values = [0; 64];
    let mut ballot = 0;
    for lane in lanes(active) {
        let value = runner.threads[(first + lane) as usize].warp.value;
        values[lane as usize] = value;
        ballot |= u64::from(value != 0) << lane;
    }
    for lane in lanes(active) {
        let thread = &mut runner.threads[(first + lane) as usize];
        let wait = &mut thread.warp;
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
        thread.state = State::Ready;
    }
}

/// No thread of the block can run: completes operations whose missing lanes have returned, or that wait for
/// whoever can come. False if there are none.
pub(crate) fn resolve_stall(runner: &mut Runner) -> bool {
    let mut resolved = false;
    for thread in 0..runner.threads.len() as u32 {
        let Wait { mask, .. } = runner.threads[thread as usize].warp;
        if runner.threads[thread as usize].state != State::AtWarp {
            continue;
        }
        let (first, existing) = warp_of(runner, thread);
        if mask != 0 {
            resolved |= complete(runner, first, mask, thread);
            continue;
        }
        // Divergent lanes: those that wait at the same place are the active ones.
        let leader = runner.threads[thread as usize];
        let active = lanes(existing)
            .filter(|&lane| {
                let other = &runner.threads[(first + lane) as usize];
                other.state == State::AtWarp
                    && same(&other.warp, &leader.warp)
                    && other.site.line == leader.site.line
            })
            .fold(0, |mask, lane| mask | 1 << lane);
        finish(runner, first, active);
        resolved = true;
    }
    resolved
}

/// Why no lane can go on: one waits for another that is elsewhere.
pub(crate) fn stuck(runner: &Runner) -> Failure {
    let waiting = runner.threads.iter().position(|t| t.state == State::AtWarp);
    let Some(waiting) = waiting else {
        return runner.failure_at(None, "no thread of the block can go on".into());
    };
    let thread = &runner.threads[waiting];
    let (first, _) = warp_of(runner, waiting as u32);
    let other = lanes(thread.warp.mask).map(|lane| first + lane).find(|&other| {
        let other = &runner.threads[other as usize];
        other.state != State::Exited && !(other.state == State::AtWarp && same(&other.warp, &thread.warp))
    });
    let elsewhere = other.map_or_else(
        || "a lane of its mask never comes".into(),
        |other| {
            let site = runner.threads[other as usize].site;
            format!("thread {}, named in its mask, waits at {site}", runner.place(other))
        },
    );
    let message = format!(
        "waits in a warp operation at {}, but {elsewhere}: every lane of a mask must reach the operation",
        thread.site
    );
    runner.failure_at(Some(waiting as u32), message)
}
