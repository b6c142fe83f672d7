//! The threads of a running block.

/// The state of a thread of the block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum ThreadState {
    /// Has not begun.
    #[default]
    Pending,
    /// It can run: it was released, or it is the running thread.
    Ready,
    /// It waits for the whole block.
    AtBarrier,
    /// It waits for lanes of its warp.
    AtWarp,
    /// Has returned.
    Exited,
}
