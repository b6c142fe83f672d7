//! Conditional nodes: when the graph gets there, a word in memory decides if the body runs, or how often.

use std::sync::Arc;

use gpustream_hal::{
    self as hal, Conditional, Error, ErrorKind, NodePlace, RawBuffer, RawGraphNode, Repeat, Result,
};

use super::{Contents, NodeAdder};
use crate::memory::Access;
use crate::operation::not_a_node;

/// The word that decides about a conditional node, and how often it may run the body.
pub struct Condition<'a> {
    pub repeat: Repeat,
    pub word: &'a Access<'a>,
    /// The address of the word, which must be an aligned `u32`.
    pub address: RawBuffer,
}

/// We allow at most this many levels of child graphs and bodies, because drivers, and the code that draws or drops a graph,
/// go down them by recursion, which could otherwise overflow the stack.
const MOST_LEVELS: usize = 64;

/// Checks the number of levels that a graph would have with one more child or body.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] if there are too many.
pub fn check_levels(levels: usize) -> Result<()> {
    if levels <= MOST_LEVELS {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::InvalidArgument,
        format!(
            "this would be level {levels} of child graphs and conditions inside each other, but at most {MOST_LEVELS} are \
             possible; put more of the work into one level"
        ),
    ))
}

/// The body of a conditional node under construction.
pub(crate) struct Body {
    conditional: Conditional,
    adder: Arc<NodeAdder>,
}

impl Body {
    /// Begins a conditional node. Its body is on `level`; a graph's own operations are on level 0.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the level is too deep, and the driver's refusal.
    ///
    /// # Safety
    /// As for [`conditional_begin`](hal::Graphs::conditional_begin); the graph or stream of `place` stays alive until
    /// the body is filled.
    pub(crate) unsafe fn begin(
        device: &Arc<dyn hal::Device>,
        place: NodePlace<'_>,
        repeat: Repeat,
        level: usize,
    ) -> Result<Self> {
        check_levels(level)?;
        // SAFETY: by this function's contract.
        let conditional = unsafe { device.conditional_begin(place, repeat) }?;
        // SAFETY: the body belongs to the graph at `place`, and its adder is finished by `fill`.
        let adder = unsafe { NodeAdder::of_body(device.clone(), conditional.body, level) };
        Ok(Self { conditional, adder: Arc::new(adder) })
    }

    /// Calls `fill` to fill the body. Returns the node, the contents of body and word, and the body's last node. If `fill`
    /// fails or panics, the driver's node stays but never runs its body, and `keep` gets the contents that the body refers
    /// to.
    pub(crate) fn fill(
        self,
        word: &Access<'_>,
        fill: impl FnOnce(&Arc<NodeAdder>) -> Result<()>,
        keep: impl FnOnce(Contents),
    ) -> Result<(Conditional, Contents, RawGraphNode)> {
        struct Finishing<F: FnOnce(Contents)>(Body, Option<F>);
        impl<F: FnOnce(Contents)> Drop for Finishing<F> {
            fn drop(&mut self) {
                if let Some(keep) = self.1.take() {
                    keep(self.0.contents());
                }
            }
        }

        let mut finishing = Finishing(self, Some(keep));
        fill(&finishing.0.adder)?;
        let Some(last) = finishing.0.adder.last() else {
            return Err(not_a_node(
                "make a condition with an empty body; submit something to the stream that the body gets",
            ));
        };
        finishing.1 = None;
        let mut contents = finishing.0.contents();
        contents.uses.add(word.block, &word.range, word.mode);
        Ok((finishing.0.conditional, contents, last))
    }

    /// Ends the body, and returns its contents.
    fn contents(&self) -> Contents {
        let contents = self.adder.finish().contents;
        Contents { conditional: true, levels: contents.levels + 1, ..contents }
    }
}
