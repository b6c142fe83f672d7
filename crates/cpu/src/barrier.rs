//! Counts the threads at a barrier, such as `__syncthreads`.
//!
//! Threads come to a barrier in turn, each on its own fiber. The last one releases all of them and continues,
//! and when it next stops, the first has its turn again. So a block with consecutive barriers goes round and
//! round, and a barrier costs little more than switching from one thread to the next. To keep it that cheap,
//! the usual arrival only needs [`Barrier::is_usual`] and [`Barrier::join`]. Every other arrival takes the
//! long way.

use crate::failure::Site;

/// The barrier that threads of the block wait at, if any.
#[derive(Debug)]
pub(crate) struct Barrier {
    /// Threads that wait.
    waiting: u32,
    /// How many of their predicates hold.
    votes: u32,
    /// The barrier's line, if we know that all threads of the block have fibers. Otherwise [`NO_LINE`].
    round: u32,
    site: Site,
}

/// No source can have that many lines.
const NO_LINE: u32 = u32::MAX;

impl Default for Barrier {
    fn default() -> Self {
        Self { waiting: 0, votes: 0, round: NO_LINE, site: Site::default() }
    }
}

impl Barrier {
    /// Returns the line in the source that the threads wait in.
    pub(crate) fn site(&self) -> Site {
        self.site
    }

    /// Returns true for the usual arrival at `line`. It is neither the first nor the last of `alive` threads,
    /// the others wait at the same barrier, and each thread in the block has a fiber.
    #[inline]
    pub(crate) fn is_usual(&self, line: u32, alive: u32) -> bool {
        line == self.round && self.waiting + 1 != alive
    }

    /// Counts a waiting thread.
    #[inline]
    pub(crate) fn join(&mut self, predicate: u32) {
        self.waiting += 1;
        self.votes += predicate;
    }

    /// Records that a thread has come to the barrier at `site`. `all_held` is true if each thread of the
    /// block has a fiber.
    ///
    /// # Errors
    /// If the other threads wait at another barrier, returns the place of that one. The kernel is wrong then,
    /// because all threads of a block must reach the same barrier.
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

    /// If all `alive` threads wait, passes the barrier and returns how many predicates held.
    pub(crate) fn pass(&mut self, alive: u32) -> Option<u32> {
        (self.waiting == alive).then(|| std::mem::take(self).votes)
    }
}
