//! The message for a block whose threads all wait, so that none can continue. You get the line of the
//! barrier, and what another thread does instead.

use super::Runner;
use crate::abi::warp as kinds;
use crate::failure::{Failure, Site};
use crate::thread::ThreadState;
use crate::warp;

impl Runner {
    /// Returns why no thread of the block can continue.
    pub(super) fn stuck(&mut self) -> Failure {
        let first = |state| self.states[..self.total as usize].iter().position(|&s| s == state);
        match (first(ThreadState::AtBarrier), first(ThreadState::AtWarp)) {
            (Some(waiting), _) => self.stuck_at_barrier(waiting as u32),
            (None, Some(waiting)) => self.stuck_at_warp(waiting as u32),
            (None, None) => {
                self.failure_at(None, "stops, because no thread of the block can continue".into())
            }
        }
    }

    fn stuck_at_barrier(&self, waiting: u32) -> Failure {
        let states = &self.states[..self.total as usize];
        let other = states.iter().position(|&s| s == ThreadState::AtWarp).map_or_else(
            || "another thread never reaches it".into(),
            |thread| {
                let at = Site::from(&self.lanes[thread]);
                let what = if self.lanes[thread].kind == kinds::AWAIT {
                    "for a cuda::barrier"
                } else {
                    "in a warp operation"
                };
                format!("thread {} waits {what} at {at}", self.place(thread as u32))
            },
        );
        let message = format!(
            "waits at the barrier at {}, but {other}: every thread of a block that has not returned must reach the \
             barrier",
            self.barrier.site()
        );
        self.failure_at(Some(waiting), message)
    }

    fn stuck_at_warp(&mut self, waiting: u32) -> Failure {
        let lane = self.lanes[waiting as usize];
        if lane.kind == kinds::AWAIT {
            let message = format!(
                "waits for a cuda::barrier at {}, but no other thread of the block arrives there: as many threads must arrive \
                 as the barrier expects",
                Site::from(&lane)
            );
            return self.failure_at(Some(waiting), message);
        }
        let elsewhere = warp::missing(&self.threads(), waiting).map_or_else(
            || "a lane of its mask never comes".into(),
            |other| {
                let at = if self.states[other as usize] == ThreadState::AtBarrier {
                    self.barrier.site()
                } else {
                    Site::from(&self.lanes[other as usize])
                };
                format!("thread {}, named in its mask, waits at {at}", self.place(other))
            },
        );
        let message = format!(
            "waits in a warp operation at {}, but {elsewhere}: every lane of a mask must reach the operation",
            Site::from(&self.lanes[waiting as usize])
        );
        self.failure_at(Some(waiting), message)
    }
}
