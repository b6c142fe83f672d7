//! The count of a barrier: `__syncthreads` and its kin.
//!
//! Threads come to a barrier in turn, each on its fiber; the last one lets all go and goes on itself, and its next
//! stop hands the turn to the first again. So a block with barriers in a row goes round and round, and the whole price
//! of a barrier is the hand-over from one thread to the next: [`Barrier::is_usual`] and [`Barrier::join`] are all
//! that it asks of the count, and every other arrival takes the long way.

use crate::failure::Site;

/// The barrier that threads of the block wait at, if any do.
#[derive(Debug)]
pub(crate) struct Barrier {
    /// Threads that wait.
    waiting: u32,
    /// The number of their predicates that hold.
    votes: u32,
    /// The barrier's line, if all threads of the block are known to have fibers; otherwise [`NO_LINE`].
    round: u32,
    site: Site,
}

/// No source has that many lines.
const NO_LINE: u32 = u32::MAX;

impl Default for Barrier {
    fn default() -> Self {
        Self { waiting: 0, votes: 0, round: NO_LINE, site: Site::default() }
    }
}

impl Barrier {
    /// Returns the place in the source where the threads wait.
    pub(crate) fn site(&self) -> Site {
        self.site
    }

    /// Returns whether the arrival at `line` is the usual one: neither the first nor the last of the block's `alive`
    /// threads, at the barrier where the others wait, in a block whose threads all have fibers.
    #[inline]
    pub(crate) fn is_usual(&self, line: u32, alive: u32) -> bool {
        line == self.round && self.waiting + 1 != alive
    }

    /// Counts a thread that waits.
    #[inline]
    pub(crate) fn join(&mut self, predicate: u32) {
        self.waiting += 1;
        self.votes += predicate;
    }

    /// Notes that a thread comes to the barrier at `site`; `all_held`: each thread of the block has a fiber.
    ///
    /// # Errors
    /// The place of the barrier that the other threads wait at, where that is another one.
    pub(crate) fn meet(&mut self, site: Site, all_held: bool) -> Result<(), Site> {
        if self.waiting == 0 {
            self.site = site;
            self.round = if all_held { site.line } else { NO_LINE };
        } else if self.site.line != site.line {
            self.round = NO_LINE;
            return Err(self.site);
        }
        Ok(())
    }

    /// Passes the barrier if all of the block's `alive` threads wait. Returns how many predicates held.
    pub(crate) fn pass(&mut self, alive: u32) -> Option<u32> {
        (self.waiting == alive).then(|| std::mem::take(self).votes)
    }
}
