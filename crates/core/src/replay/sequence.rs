//! A sequence of operations as values: we can compare them with later ones, change them, and run them.
#![allow(
    clippy::inline_always,
    reason = "the comparison is most of the cost of an operation that is held back"
)]

use std::ffi::c_void;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use gpustream_hal::{
    CallSite, Copy1d, Copy3d, Error, ErrorKind, Fill, LaunchConfig, RawFunction, Result, Work,
};

use super::Uses;
use super::arguments::Arguments;
use super::epoch::SegmentEpoch;
use crate::launch::LaunchRequest;
use crate::memory::Access;
use crate::module_core::ModuleCore;
use crate::operation::{Argument, DriverCalls, ExternalKey, KernelLaunch, Operation, Retained};
use crate::record::RecordedCalls;
use crate::record::attributes::attributes;
use crate::trace;
use crate::track::{Mode, StreamId};

/// An operation that can be deferred: it can be a node of a graph, and its accesses cover everything that it does.
#[derive(Clone, Copy)]
pub(super) struct Candidate<'a> {
    call_site: CallSite,
    work: BorrowedWork<'a>,
    accesses: &'a [&'a Access<'a>],
}

/// An operation's work, borrowed so that we can compare it.
#[derive(Clone, Copy)]
enum BorrowedWork<'a> {
    Kernel(BorrowedKernel<'a>),
    Copy(Copy1d),
    Copy3d(&'a Copy3d),
    Fill(Fill),
    External(ExternalKey),
}

#[derive(Clone, Copy)]
struct BorrowedKernel<'a> {
    function: RawFunction,
    request: &'a LaunchRequest,
    config: &'a LaunchConfig,
    args: &'a [*mut c_void],
    /// The sizes of the parameters in bytes.
    sizes: &'a Arc<[usize]>,
    module: &'a Arc<ModuleCore>,
}

impl<'a> Candidate<'a> {
    /// Returns the operation of `submission`, or the reason why it cannot be deferred.
    #[inline]
    pub(super) fn of(submission: &Operation<'a>) -> Result<Self, &'static str> {
        let &Operation { caller, accesses, ref call, kept, .. } = submission;
        let is_shared = || accesses.iter().any(|access| access.mode == Mode::Shared);
        let work = match call {
            DriverCalls::Work(work) => work,
            &DriverCalls::External { key: Some(key), .. } if !is_shared() => {
                let work = BorrowedWork::External(key);
                return Ok(Self { call_site: caller.call_site, work, accesses });
            }
            DriverCalls::External { key: None, .. } => {
                return Err("another library makes it, and it has no key (see `Stream::external_keyed`)");
            }
            _ => return Err("it makes several driver calls"),
        };
        let work = match (*work, kept) {
            (
                Work::Kernel { function, config, args },
                Retained::Kernel { module, sizes: Some(sizes), request },
            ) => {
                if is_shared() {
                    return Err("it uses a flag, and the host may wait for the flag");
                }
                BorrowedWork::Kernel(BorrowedKernel { function, request, config, args, sizes, module })
            }
            (Work::Kernel { .. }, _) => return Err("the library does not know the sizes of its parameters"),
            (Work::Copy(copy), _) => BorrowedWork::Copy(copy),
            (Work::Copy3d(copy), _) => BorrowedWork::Copy3d(copy),
            (Work::Fill(fill), _) => BorrowedWork::Fill(fill),
            _ => return Err("it cannot be a node of a graph"),
        };
        Ok(Self { call_site: caller.call_site, work, accesses })
    }

    #[inline]
    pub(super) fn operation(&self) -> CallSite {
        self.call_site
    }

    /// Returns the uses that other operations must be ordered with.
    fn touched(&self) -> impl Iterator<Item = AddressUse> + Clone {
        let whole_device = match self.work {
            BorrowedWork::Kernel(kernel) if kernel.config.cooperative => Some(AddressUse::WHOLE_DEVICE),
            _ => None,
        };
        let accesses = self.accesses.iter().filter(|access| access.mode != Mode::Shared);
        accesses.map(|access| AddressUse::of(access)).chain(whole_device)
    }
}

/// A use of memory, by the device's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AddressUse {
    pub(super) range: Range<usize>,
    pub(super) mode: Mode,
}

impl AddressUse {
    /// The use that stands for a kernel whose blocks wait for each other. If two of them ran at once, each might get only a
    /// part of the device and wait forever. No memory has this address.
    const WHOLE_DEVICE: Self = Self { range: usize::MAX - 1..usize::MAX, mode: Mode::Write };

    #[inline(always)]
    fn of(access: &Access<'_>) -> Self {
        let start = access.block.address.0;
        Self { range: start + access.range.start..start + access.range.end, mode: access.mode }
    }

    #[inline(always)]
    fn is(&self, access: &Access<'_>) -> bool {
        *self == Self::of(access)
    }
}

/// How much another operation differs from a deferred one. Later variants differ more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Difference {
    None,
    /// Other scalars, another shape, or another source of a copy, if that source needs no order.
    Values,
    /// Other memory.
    Memory,
    /// Another kernel or another kind of operation. We cannot set a node to that.
    Kind,
}

/// What a node still lacks of its deferred operation. Later variants lack more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lag {
    #[default]
    None,
    /// Argument values of a kernel, including the addresses of its memory.
    Values,
    /// Anything, so we must set the whole work.
    Work,
}

/// A deferred kernel.
#[derive(Clone)]
pub(super) struct DeferredKernel {
    function: RawFunction,
    request: LaunchRequest,
    /// The shape of this launch.
    config: LaunchConfig,
    args: Arguments,
    /// We keep the module loaded, so that no other kernel can get the handle.
    module: Arc<ModuleCore>,
}

/// The work of a deferred operation.
#[derive(Clone)]
pub(super) enum DeferredWork {
    Kernel(DeferredKernel),
    Copy(Copy1d),
    Copy3d(Box<Copy3d>),
    Fill(Fill),
    /// Another library's calls. They are recorded when the operation is first deferred.
    External(ExternalKey, Arc<OnceLock<RecordedCalls>>),
}

#[derive(Clone)]
struct DeferredOperation {
    call_site: CallSite,
    work: DeferredWork,
    touched: Box<[AddressUse]>,
}

/// The operations of a segment, in the order of their submission.
#[derive(Clone, Default)]
pub(super) struct Sequence {
    entries: Vec<DeferredOperation>,
}

// SAFETY: an entry's work holds addresses and pointers. The sequence never follows the addresses; the caller that runs the
// work vouches for them. The pointers are to the values of arguments, which the entry owns.
unsafe impl Send for Sequence {}
// SAFETY: the sequence never follows the addresses in an entry's work, and `&Sequence` only reads the values of
// arguments.
unsafe impl Sync for Sequence {}

impl Sequence {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn operation(&self, index: usize) -> Option<CallSite> {
        self.entries.get(index).map(|entry| entry.call_site)
    }

    pub(super) fn touched(&self, index: usize) -> &[AddressUse] {
        &self.entries[index].touched
    }

    /// Returns true if operation `index` is a copy or a fill. Drivers look at their memory when they become nodes.
    pub(super) fn is_copy_or_fill(&self, index: usize) -> bool {
        !matches!(self.entries[index].work, DeferredWork::Kernel(_) | DeferredWork::External(..))
    }

    /// Adds an operation.
    pub(super) fn push(&mut self, offer: &Candidate<'_>) {
        let work = match offer.work {
            BorrowedWork::Copy(copy) => DeferredWork::Copy(copy),
            BorrowedWork::Copy3d(copy) => DeferredWork::Copy3d(Box::new(*copy)),
            BorrowedWork::Fill(fill) => DeferredWork::Fill(fill),
            BorrowedWork::External(key) => DeferredWork::External(key, Arc::default()),
            BorrowedWork::Kernel(BorrowedKernel { function, request, config, args, sizes, module }) => {
                // SAFETY: the arguments of a submission have the sizes that the kernel expects.
                let args = unsafe { Arguments::new(sizes, args) };
                let (request, config, module) = (*request, *config, module.clone());
                DeferredWork::Kernel(DeferredKernel { function, request, config, args, module })
            }
        };
        self.entries.push(DeferredOperation {
            call_site: offer.call_site,
            work,
            touched: offer.touched().collect(),
        });
    }

    /// Compares operation `index` with a launch. Returns `None` if more than values differ, or if a stream other than
    /// `stream` may have used memory that has no epoch. In the same walk we take the new values, and `lag` says so. If the
    /// walk ends early, the operation keeps the values taken so far, so its node must be set even then.
    ///
    /// # Safety
    /// As for [`DeferredOperation::follow`](crate::stream::StreamEntry::follow).
    #[inline(always)]
    #[allow(clippy::too_many_arguments, reason = "it is taken in where it is called")]
    pub(super) unsafe fn follow<'a, A>(
        &mut self,
        index: usize,
        launch: &KernelLaunch<'a, A>,
        shown: impl Fn(&'a A) -> Option<Argument<'a>>,
        resolved: impl Fn() -> Option<LaunchConfig>,
        epoch: SegmentEpoch,
        stream: StreamId,
        lag: &mut Lag,
    ) -> Option<Uses> {
        let DeferredOperation { call_site: operation, work: DeferredWork::Kernel(kept), touched } =
            self.entries.get_mut(index)?
        else {
            return None;
        };
        if kept.function != launch.function || kept.args.len() != launch.args.len() {
            return None;
        }
        if kept.request != *launch.request {
            let config = resolved()?;
            if attributes(&kept.config) != attributes(&config) {
                return None;
            }
            (kept.request, kept.config) = (*launch.request, config);
            *lag = Lag::Work;
        }
        let mut uses = Uses::Sealed;
        let mut touched = touched.iter();
        for (value, arg) in kept.args.values().zip(launch.args) {
            let bytes = match shown(arg)? {
                Argument::Value { bytes, size } if size == value.size => bytes,
                Argument::Memory { address, access } if value.size == size_of::<usize>() => {
                    let history = &access.block.history;
                    if !touched.next()?.is(access) {
                        return None;
                    }
                    if !epoch.covers(history.epoch(), access.mode) {
                        if history.hint() != Some(stream.get())
                            || access.block.in_graph.load(Ordering::Acquire)
                        {
                            return None;
                        }
                        uses = Uses::New;
                    }
                    std::ptr::from_ref(address).cast()
                }
                _ => return None,
            };
            // SAFETY: both have this size, and we hold the only reference to the value.
            if unsafe { value.replace(bytes) } {
                *lag = (*lag).max(Lag::Values);
            }
        }
        if touched.next().is_some() {
            return None;
        }
        *operation = launch.caller.call_site;
        Some(uses)
    }

    /// Compares operation `index` with another one. Another library's calls differ from all others until they are recorded.
    pub(super) fn difference(&self, index: usize, offer: &Candidate<'_>) -> Difference {
        match &self.entries[index].work {
            DeferredWork::External(_, recorded) if recorded.get().is_none() => Difference::Kind,
            _ => self.compare(index, offer.work, offer.touched()),
        }
    }

    /// If operation `index` is this one and would be deferred if its calls were recorded, returns the room for the recording.
    pub(super) fn unrecorded(
        &self,
        index: usize,
        offer: &Candidate<'_>,
    ) -> Option<&Arc<OnceLock<RecordedCalls>>> {
        match &self.entries.get(index)?.work {
            DeferredWork::External(_, room)
                if room.get().is_none()
                    && self.compare(index, offer.work, offer.touched()) == Difference::None =>
            {
                Some(room)
            }
            _ => None,
        }
    }

    /// Compares operation `index` with the same operation of `other`.
    pub(super) fn difference_from(&self, other: &Self, index: usize) -> Difference {
        if index >= self.len().min(other.len()) {
            return Difference::Kind;
        }
        self.compare(index, other.lend(index), other.touched(index).iter().cloned())
    }

    #[inline]
    fn compare(
        &self,
        index: usize,
        work: BorrowedWork<'_>,
        mut touched: impl Iterator<Item = AddressUse> + Clone,
    ) -> Difference {
        let entry = &self.entries[index];
        let same_values = match (&entry.work, work) {
            (
                DeferredWork::Kernel(kept),
                BorrowedWork::Kernel(BorrowedKernel { function, config, args, .. }),
            ) => {
                if kept.function != function
                    || attributes(&kept.config) != attributes(config)
                    || kept.args.len() != args.len()
                {
                    return Difference::Kind;
                }
                // SAFETY: the arguments are of one kernel, whose parameters have these sizes.
                kept.config == *config && unsafe { kept.args.are(args) }
            }
            (DeferredWork::Copy(kept), BorrowedWork::Copy(new)) if kept.direction() == new.direction() => {
                *kept == new
            }
            (DeferredWork::Copy3d(kept), BorrowedWork::Copy3d(new)) => **kept == *new,
            (DeferredWork::Fill(kept), BorrowedWork::Fill(new))
                if kept.pattern.width() == new.pattern.width() =>
            {
                *kept == new
            }
            (DeferredWork::External(kept, _), BorrowedWork::External(new)) => {
                // A recording cannot be changed.
                let touched = touched.eq(entry.touched.iter().cloned());
                return if *kept == new && touched { Difference::None } else { Difference::Kind };
            }
            _ => return Difference::Kind,
        };
        let all = touched.clone();
        for touch in self.touched(index) {
            match touched.next() {
                Some(other) if other == *touch => {}
                _ if all.count() == entry.touched.len() => return Difference::Memory,
                _ => return Difference::Kind,
            }
        }
        match touched.next() {
            Some(_) => Difference::Kind,
            None if same_values => Difference::None,
            None => Difference::Values,
        }
    }

    /// Replaces operation `index` with another one that differs at most in its memory. Returns what its node lacks now.
    pub(super) fn replace(&mut self, index: usize, offer: &Candidate<'_>) -> Lag {
        let entry = &mut self.entries[index];
        entry.touched.iter_mut().zip(offer.touched()).for_each(|(kept, new)| *kept = new);
        entry.call_site = offer.call_site;
        entry.work.replace(offer.work)
    }

    /// Takes the values of operation `index` in `other`, which differs at most in these. Returns what its node lacks now.
    pub(super) fn take_values(&mut self, other: &Self, index: usize) -> Lag {
        self.entries[index].work.replace(other.lend(index))
    }

    /// If operation `index` is calls of another library that are recorded in `other` and not here, takes the recording.
    pub(super) fn take_recording(&mut self, other: &Self, index: usize) {
        if let (DeferredWork::External(_, ours), DeferredWork::External(_, theirs)) =
            (&mut self.entries[index].work, &other.entries[index].work)
            && ours.get().is_none()
        {
            *ours = theirs.clone();
        }
    }

    /// Notes which line an equal operation came from.
    #[inline]
    pub(super) fn came_from(&mut self, index: usize, call_site: CallSite) {
        self.entries[index].call_site = call_site;
    }

    /// Returns operation `index`.
    #[inline]
    pub(super) fn deferred(&self, index: usize) -> Deferred<'_> {
        self.entries[index].work.lend()
    }

    fn lend(&self, index: usize) -> BorrowedWork<'_> {
        match &self.entries[index].work {
            DeferredWork::Kernel(DeferredKernel { function, request, config, args, module }) => {
                BorrowedWork::Kernel(BorrowedKernel {
                    function: *function,
                    request,
                    config,
                    args: args.pointers(),
                    sizes: args.sizes(),
                    module,
                })
            }
            DeferredWork::Copy(copy) => BorrowedWork::Copy(*copy),
            DeferredWork::Copy3d(copy) => BorrowedWork::Copy3d(copy),
            DeferredWork::Fill(fill) => BorrowedWork::Fill(*fill),
            DeferredWork::External(key, _) => BorrowedWork::External(*key),
        }
    }

    /// Returns the first `len` operations.
    pub(super) fn first(&self, len: usize) -> Self {
        Self { entries: self.entries[..len].to_vec() }
    }
}

/// A deferred operation, to be run or to become a node.
#[derive(Clone, Copy)]
pub(super) enum Deferred<'a> {
    Work(Work<'a>),
    Calls(&'a Arc<OnceLock<RecordedCalls>>),
}

impl Deferred<'_> {
    /// Returns what a trace says about the operation.
    pub(super) fn kind(self) -> trace::WorkKind {
        match self {
            Self::Work(work) => trace::timeline_kind(work.kind()),
            Self::Calls(_) => trace::WorkKind::External,
        }
    }
}

/// Returns the recording of calls that are deferred, so they have one.
pub(super) fn recorded(calls: &OnceLock<RecordedCalls>) -> Result<&RecordedCalls> {
    let message = "another library's calls were deferred before they were recorded; please report this bug";
    calls.get().ok_or_else(|| Error::new(ErrorKind::Driver, message))
}

impl DeferredWork {
    #[inline(always)]
    fn lend(&self) -> Deferred<'_> {
        Deferred::Work(match self {
            Self::Kernel(DeferredKernel { function, config, args, .. }) => {
                Work::Kernel { function: *function, config, args: args.pointers() }
            }
            Self::Copy(copy) => Work::Copy(*copy),
            Self::Copy3d(copy) => Work::Copy3d(copy),
            Self::Fill(fill) => Work::Fill(*fill),
            Self::External(_, calls) => return Deferred::Calls(calls),
        })
    }

    /// Replaces this with work of the same kind, or with a launch of the same kernel.
    fn replace(&mut self, work: BorrowedWork<'_>) -> Lag {
        match (self, work) {
            (Self::Kernel(kept), BorrowedWork::Kernel(BorrowedKernel { request, config, args, .. })) => {
                let lag = if kept.config == *config { Lag::Values } else { Lag::Work };
                (kept.request, kept.config) = (*request, *config);
                // SAFETY: the arguments are of one kernel, whose parameters have these sizes.
                unsafe { kept.args.store(args) };
                return lag;
            }
            (Self::Copy(kept), BorrowedWork::Copy(new)) => *kept = new,
            (Self::Copy3d(kept), BorrowedWork::Copy3d(new)) => **kept = *new,
            (Self::Fill(kept), BorrowedWork::Fill(new)) => *kept = new,
            _ => {}
        }
        Lag::Work
    }
}
