//! The calls that one rank makes together. Each is checked when it is added.

use gpustream::{CallSite, Device, Result, Stream, View, ViewMut};

use crate::call::{Batch, Call, Collective, Signature, call_site, in_call};
use crate::check;
use crate::element::Element;
use crate::engine::{self, Endpoint};

/// One rank: its endpoint and its device.
#[derive(Debug)]
pub(crate) struct GroupMember {
    pub(crate) endpoint: Endpoint,
    pub(crate) device: Device,
}

/// Calls that one communicator makes together. Each method adds the call of the
/// [`Communicator`](crate::Communicator) method with the same name, and makes the same checks. We enqueue
/// nothing until the group ends.
///
/// So a call borrows its memory until the group ends. You can pass `&buffer` or `&mut buffer` if the buffer is
/// older than the group. Pass a view that you make in the closure **by value**, and turn a [`ViewMut`] that you
/// want to send from into a [`View`] with [`into_view`](ViewMut::into_view). Then you can group exchanges in a
/// loop, and loop in a group:
///
/// ```
/// # use gpustream::Device;
/// # use gpustream_collectives::World;
/// # let device = Device::open("cpu")?;
/// # let ranks = World::local(&[device.clone(), device.clone(), device.clone()])?.communicators()?;
/// # std::thread::scope(|threads| {
/// #     for rank in &ranks {
/// #         threads.spawn(move || spread(rank).unwrap());
/// #     }
/// # });
/// # fn spread(communicator: &gpustream_collectives::Communicator) -> gpustream::Result<()> {
/// let (rank, size) = (communicator.rank(), communicator.size());
/// let stream = communicator.device().stream()?;
/// // The rank's own elements, with one element of the rank below before them, and one of the rank above after them.
/// let mut line = stream.full(2 + 4, rank as u32)?;
/// for round in 0..3 {
///     communicator.group(|calls| {
///         let (below, rest) = line.split_at_mut(1)?;
///         let (own, above) = rest.split_at_mut(4)?;
///         let own = own.into_view();
///         let ends = [(own.slice(..1)?, below, rank.checked_sub(1)), (own.slice(3..)?, above, Some(rank + 1))];
///         for (end, halo, neighbour) in ends {
///             if let Some(neighbour) = neighbour.filter(|&neighbour| neighbour < size) {
///                 calls.send(&stream, end, neighbour)?;
///                 calls.recv(&stream, halo, neighbour)?;
///             }
///         }
///         Ok(())
///     })?;
///     // … compute the next round
/// }
/// # let (below, above) = (rank.saturating_sub(1) as u32, (rank + 1).min(size - 1) as u32);
/// # let own = rank as u32;
/// # assert_eq!(stream.download(&line)?, [below, own, own, own, own, above]);
/// # Ok(()) }
/// # Ok::<(), gpustream::Error>(())
/// ```
#[derive(Debug)]
pub struct CallGroup<'a> {
    member: &'a GroupMember,
    calls: Batch<'a>,
}

impl<'a> CallGroup<'a> {
    pub(crate) fn new(member: &'a GroupMember) -> Self {
        Self { member, calls: Batch::new() }
    }

    /// Returns true if these are this rank's calls.
    pub(crate) fn are_of(&self, member: &GroupMember) -> bool {
        std::ptr::eq(self.member, member)
    }

    /// Returns the rank's endpoint and its calls.
    pub(crate) fn into_parts(self) -> (&'a Endpoint, Batch<'a>) {
        (&self.member.endpoint, self.calls)
    }

    /// Makes the one call that was `added`, for the program's call `label`. [`group`](crate::Communicator::group) would hide its
    /// line, because a closure does not pass it on.
    #[track_caller]
    pub(crate) fn run_one(self, label: &'static str, added: Result<()>) -> Result<()> {
        in_call(label, added.and_then(|()| engine::run([self.into_parts()])))
    }

    /// Adds [`Communicator::barrier`](crate::Communicator::barrier).
    ///
    /// # Errors
    /// Those that this rank's arguments alone can cause.
    #[track_caller]
    pub fn barrier(&mut self, stream: &'a Stream) -> Result<()> {
        self.add::<u8>(stream, Collective::Barrier, None, None)
    }

    /// Adds a call. If a check fails, the error names the call.
    #[track_caller]
    pub(crate) fn add<T: Element>(
        &mut self,
        stream: &'a Stream,
        operation: Collective,
        src: Option<View<'a, T>>,
        dst: Option<ViewMut<'a, T>>,
    ) -> Result<()> {
        let caller = call_site(operation.name());
        self.add_checked(caller, stream, operation, src, dst).map_err(|error| error.at_call_site(caller))
    }

    fn add_checked<T: Element>(
        &mut self,
        caller: CallSite,
        stream: &'a Stream,
        operation: Collective,
        src: Option<View<'a, T>>,
        dst: Option<ViewMut<'a, T>>,
    ) -> Result<()> {
        let GroupMember { endpoint, device } = self.member;
        let (rank, size) = endpoint.place();
        let (src_len, dst_len) = (src.as_ref().map(View::len), dst.as_ref().map(ViewMut::len));
        let count = check::count(operation, (rank, size), src_len, dst_len)?;
        if !endpoint.records_calls() {
            check::not_recorded(stream, rank)?;
        }
        check::stream(stream, rank, device)?;
        let devices = src.as_ref().map(View::device).into_iter().chain(dst.as_ref().map(ViewMut::device));
        for given in devices {
            check::memory(given, rank, device)?;
        }
        let signature = Signature { operation, element: T::TYPE, count };
        let (src, dst) = (src.map(View::cast).transpose()?, dst.map(ViewMut::cast_mut).transpose()?);
        self.calls.push(Call { signature, caller, stream, src, dst });
        Ok(())
    }
}
