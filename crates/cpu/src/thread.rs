//! The threads of a block that is run.

/// The state of a thread of the block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum ThreadState {
    /// Has not begun.
    #[default]
    Pending,
    /// Can run: it was let go, or it is the one that runs.
    Ready,
    /// Waits for the whole block.
    AtBarrier,
    /// Waits for lanes of its warp.
    AtWarp,
    /// Has returned.
    Exited,
}
