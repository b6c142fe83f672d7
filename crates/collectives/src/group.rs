//! Calls that are made together.

use gpustream::Result;

use crate::call::in_call;
use crate::call_group::CallGroup;
use crate::communicator::Communicator;
use crate::engine;

/// Makes several calls at once, of one or several communicators: none of them waits for another rank before
/// all are made.
///
/// If one thread has several ranks, it must make their calls in one group. Calls that wait for each other,
/// such as two ranks that send to each other, also belong in a group.
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
/// Blocks the host until the other ranks have made their calls, but does not wait for the device.
///
/// # Errors
/// The error that `add` returned, and then we make no call. Otherwise the first error of a call.
#[track_caller]
pub fn group<'a, R>(add: impl FnOnce(&mut Group<'a>) -> Result<R>) -> Result<R> {
    let mut group = Group { calls: Vec::new() };
    let returned = add(&mut group)?;
    in_call("group", engine::run(group.calls.into_iter().map(CallGroup::into_parts)))?;
    Ok(returned)
}

/// The calls of a [`group`], of any number of communicators.
#[derive(Debug)]
pub struct Group<'a> {
    calls: Vec<CallGroup<'a>>,
}

impl<'a> Group<'a> {
    /// Returns the calls of one communicator, so that you can add to them.
    pub fn on(&mut self, communicator: &'a Communicator) -> &mut CallGroup<'a> {
        let member = communicator.member();
        let at = self.calls.iter().position(|calls| calls.are_of(member)).unwrap_or_else(|| {
            self.calls.push(CallGroup::new(member));
            self.calls.len() - 1
        });
        &mut self.calls[at]
    }
}
