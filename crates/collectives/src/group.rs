//! Calls that are made together.

use gpustream::Result;

use crate::call::in_call;
use crate::call_group::CallGroup;
use crate::communicator::Communicator;
use crate::engine;

/// Makes several calls at once, of one communicator or of several: none of them waits until all are made.
///
/// A thread that has several ranks makes their calls in one group. Calls that wait for each other in turn, such as two ranks
/// that send to each other, belong in a group too.
///
/// ```
/// use gpustream::Device;
/// use gpustream_collectives::{Op, World, group};
///
/// let device = Device::open("cpu")?;
/// let ranks = World::local(&[device.clone(), device.clone(), device.clone()])?.communicators()?;
/// let stream = device.stream()?;
/// let mut values = [stream.full(5, 1.0f32)?, stream.full(5, 2.0)?, stream.full(5, 4.0)?];
/// group(|group| {
///     for (rank, values) in ranks.iter().zip(&mut values) {
///         group.on(rank).all_reduce_in_place(&stream, values, Op::Sum)?;
///     }
///     Ok(())
/// })?;
/// assert_eq!(stream.download(&values[2])?, [7.0; 5]);
/// # Ok::<(), gpustream::Error>(())
/// ```
///
/// Blocks the host until the other ranks have made their calls, and not for the device.
///
/// # Errors
/// The error of `add`, and then no call is made; otherwise the first error of a call.
#[track_caller]
pub fn group<'a, R>(add: impl FnOnce(&mut Group<'a>) -> Result<R>) -> Result<R> {
    let mut group = Group { calls: Vec::new() };
    let returned = add(&mut group)?;
    in_call("group", engine::run(group.calls.into_iter().map(CallGroup::into_parts)))?;
    Ok(returned)
}

/// Calls that a [`group`] makes, of any number of communicators.
#[derive(Debug)]
pub struct Group<'a> {
    calls: Vec<CallGroup<'a>>,
}

impl<'a> Group<'a> {
    /// Returns the calls of one communicator, to add to them.
    pub fn on(&mut self, communicator: &'a Communicator) -> &mut CallGroup<'a> {
        let member = communicator.member();
        let at = self.calls.iter().position(|calls| calls.are_of(member)).unwrap_or_else(|| {
            self.calls.push(CallGroup::new(member));
            self.calls.len() - 1
        });
        &mut self.calls[at]
    }
}
