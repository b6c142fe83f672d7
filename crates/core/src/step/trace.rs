//! A sequence of operations, kept as values that can be compared with later ones, changed, and run.
#![allow(
    clippy::inline_always,
    reason = "the comparison is most of the cost of an operation that is held back"
)]

use std::ffi::c_void;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use gpustream_hal::{LaunchConfig, Operation, RawFunction, Work};
use smallvec::SmallVec;

use super::Uses;
use super::seal::Seal;
use crate::memory::Access;
use crate::module_core::ModuleCore;
use crate::operation::{Call, Kept, Submission};
use crate::record::attributes::attributes;
use crate::track::{Mode, StreamId};

/// An operation that can be kept: a node of a graph whose effects are all in its accesses.
#[derive(Clone, Copy)]
pub(super) struct Offer<'a> {
    operation: Operation,
    work: Lent<'a>,
    accesses: &'a [&'a Access<'a>],
    /// The module of a kernel, and the sizes of the kernel's parameters in bytes.
    kernel: Option<(&'a Arc<ModuleCore>, &'a [usize])>,
}

/// An operation's work, as it is compared.
#[derive(Clone, Copy)]
enum Lent<'a> {
    Kernel { function: RawFunction, config: &'a LaunchConfig, args: &'a [*mut c_void] },
    Other(Work<'static>),
}

impl<'a> Offer<'a> {
    /// Returns the operation of `submission`, or the reason for which it cannot be kept.
    #[inline]
    pub(super) fn of(submission: &Submission<'a>) -> Result<Self, &'static str> {
        let &Submission { operation, accesses, ref call, kept, .. } = submission;
        let Call::Work(work) = call else { return Err("it takes several calls to the driver") };
        let (work, kernel) = match (*work, kept) {
            (Work::Kernel { function, config, args }, Kept::Kernel(module, Some(sizes))) => {
                if accesses.iter().any(|access| access.mode == Mode::Shared) {
                    return Err("it takes a flag, and the host may wait for the flag");
                }
                (Lent::Kernel { function, config, args }, Some((module, &**sizes)))
            }
            (Work::Kernel { .. }, _) => return Err("the sizes of its parameters are not known"),
            (Work::CopyToDevice { dst, src, bytes }, _) => {
                (Lent::Other(Work::CopyToDevice { dst, src, bytes }), None)
            }
            (Work::CopyToHost { dst, src, bytes }, _) => {
                (Lent::Other(Work::CopyToHost { dst, src, bytes }), None)
            }
            (Work::CopyOnDevice { dst, src, bytes }, _) => {
                (Lent::Other(Work::CopyOnDevice { dst, src, bytes }), None)
            }
            (Work::Copy3d(copy), _) => (Lent::Other(Work::Copy3d(copy)), None),
            (Work::Fill { dst, pattern, count }, _) => {
                (Lent::Other(Work::Fill { dst, pattern, count }), None)
            }
            _ => return Err("a graph cannot have it as a node"),
        };
        Ok(Self { operation, work, accesses, kernel })
    }

    #[inline]
    pub(super) fn operation(&self) -> Operation {
        self.operation
    }

    /// Returns the uses that other operations must be ordered with.
    fn touched(&self) -> impl Iterator<Item = Touch> + Clone {
        let whole_device = match self.work {
            Lent::Kernel { config, .. } if config.cooperative => Some(Touch::WHOLE_DEVICE),
            _ => None,
        };
        let accesses = self.accesses.iter().filter(|access| access.mode != Mode::Shared);
        accesses.map(|access| Touch::of(access)).chain(whole_device)
    }
}

/// A use of memory, by the device's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Touch {
    pub(super) range: Range<usize>,
    pub(super) mode: Mode,
}

impl Touch {
    /// The use of a kernel whose blocks wait for each other: two of them at once might each have a part of the device.
    /// No memory has this address.
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

/// The difference between a kept operation and another one, from the least to the greatest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Difference {
    None,
    /// Other scalars, another shape, or another source of a copy whose memory needs no order.
    Values,
    /// Other memory.
    Memory,
    /// Another kernel or kind of operation, which a node cannot be changed to.
    Kind,
}

/// The values of a kernel that is as expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Values {
    Same,
    /// They differed, and replaced the kept ones.
    Taken,
}

/// The unit of a kernel's arguments: each begins at a multiple of 16 bytes, as the device's vectors want it.
type Unit = u128;

/// A kernel's argument.
#[derive(Clone, Copy)]
struct Argument {
    /// The index of its first unit.
    at: u32,
    /// In bytes.
    size: u32,
}

/// A kept operation's work.
#[derive(Clone)]
enum KeptWork {
    Kernel {
        function: RawFunction,
        config: LaunchConfig,
        arguments: Range<u32>,
        /// Kept loaded, so that no other kernel gets the handle.
        _module: Option<Arc<ModuleCore>>,
    },
    /// Everything else, which holds no borrow.
    Other(Work<'static>),
}

#[derive(Clone)]
struct Entry {
    operation: Operation,
    work: KeptWork,
    touched: Range<u32>,
}

/// The operations of a segment, in the order of their submission.
#[derive(Clone, Default)]
pub(super) struct Trace {
    entries: Vec<Entry>,
    arguments: Vec<Argument>,
    units: Vec<Unit>,
    touched: Vec<Touch>,
}

// SAFETY: the pointers in an entry's work are addresses that the trace never follows; whoever runs the work vouches for
// them.
unsafe impl Send for Trace {}
// SAFETY: as for `Send`.
unsafe impl Sync for Trace {}

impl Trace {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn operation(&self, index: usize) -> Option<Operation> {
        self.entries.get(index).map(|entry| entry.operation)
    }

    pub(super) fn touched(&self, index: usize) -> &[Touch] {
        &self.touched[as_range(&self.entries[index].touched)]
    }

    /// Whether operation `index` is a kernel. Drivers look at the memory of the others when they become nodes.
    pub(super) fn is_kernel(&self, index: usize) -> bool {
        matches!(self.entries[index].work, KeptWork::Kernel { .. })
    }

    /// Adds an operation.
    pub(super) fn push(&mut self, offer: &Offer<'_>) {
        let first = self.touched.len() as u32;
        self.touched.extend(offer.touched());
        let touched = first..self.touched.len() as u32;
        let work = match offer.work {
            Lent::Other(work) => KeptWork::Other(work),
            Lent::Kernel { function, config, args } => {
                let (module, sizes) = offer.kernel.unzip();
                let first = self.arguments.len();
                for &size in sizes.unwrap_or_default() {
                    self.arguments.push(Argument { at: self.units.len() as u32, size: size as u32 });
                    self.units.resize(self.units.len() + units(size), 0);
                }
                store_all(&mut self.units, &self.arguments[first..], args);
                let arguments = first as u32..self.arguments.len() as u32;
                KeptWork::Kernel { function, config: *config, arguments, _module: module.cloned() }
            }
        };
        self.entries.push(Entry { operation: offer.operation, work, touched });
    }

    /// Compares operation `index` with a kernel, and takes the kernel's values if they alone differ. Returns `None` if more
    /// differs, if one of the two is no kernel, or if a stream but `stream` may have used memory that is not sealed.
    #[inline(never)]
    pub(super) fn follow(
        &mut self,
        index: usize,
        submission: &Submission<'_>,
        seal: Seal,
        stream: StreamId,
    ) -> Option<(Values, Uses)> {
        let &Submission { accesses, ref call, .. } = submission;
        let Call::Work(Work::Kernel { function, config, args }) = call else { return None };
        let entry = self.entries.get_mut(index)?;
        let KeptWork::Kernel { function: kept, config: kept_config, arguments, .. } = &mut entry.work else {
            return None;
        };
        let (arguments, touched) =
            (self.arguments.get(as_range(arguments))?, self.touched.get(as_range(&entry.touched))?);
        if *kept != *function || arguments.len() != args.len() || touched.len() != accesses.len() {
            return None;
        }
        let mut uses = Uses::Sealed;
        for (kept, access) in touched.iter().zip(accesses) {
            let history = &access.block.history;
            if !kept.is(access) {
                return None;
            }
            if !seal.covers(history.seal(), access.mode) {
                if history.hint() != stream.0 || access.block.in_graph.load(Ordering::Acquire) {
                    return None;
                }
                uses = Uses::New;
            }
        }
        let mut values = Values::Same;
        if !holds_all(&self.units, arguments, args) || kept_config != *config {
            if attributes(kept_config) != attributes(config) {
                return None;
            }
            *kept_config = **config;
            store_all(&mut self.units, arguments, args);
            values = Values::Taken;
        }
        entry.operation = submission.operation;
        Some((values, uses))
    }

    /// Compares operation `index` with another one.
    pub(super) fn difference(&self, index: usize, offer: &Offer<'_>) -> Difference {
        self.compare(index, offer.work, offer.touched())
    }

    /// Compares operation `index` with the same operation of `other`.
    pub(super) fn difference_from(&self, other: &Self, index: usize) -> Difference {
        if index >= self.len().min(other.len()) {
            return Difference::Kind;
        }
        other.lend(index, |work| self.compare(index, work, other.touched(index).iter().cloned()))
    }

    #[inline]
    fn compare(
        &self,
        index: usize,
        work: Lent<'_>,
        mut touched: impl Iterator<Item = Touch> + Clone,
    ) -> Difference {
        let entry = &self.entries[index];
        let same_values = match (&entry.work, work) {
            (
                KeptWork::Kernel { function, config, arguments, .. },
                Lent::Kernel { function: other, config: new, args },
            ) => {
                if *function != other
                    || attributes(config) != attributes(new)
                    || arguments.len() != args.len()
                {
                    return Difference::Kind;
                }
                config == new && holds_all(&self.units, &self.arguments[as_range(arguments)], args)
            }
            (KeptWork::Other(kept), Lent::Other(new)) => match same_work(kept, &new) {
                Some(same) => same,
                None => return Difference::Kind,
            },
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

    /// Puts another operation, which differs by no more than its memory, in the place of operation `index`.
    pub(super) fn replace(&mut self, index: usize, offer: &Offer<'_>) {
        let touched = as_range(&self.entries[index].touched);
        self.touched[touched].iter_mut().zip(offer.touched()).for_each(|(kept, new)| *kept = new);
        self.entries[index].operation = offer.operation;
        self.replace_work(index, offer.work);
    }

    /// Puts the values of operation `index` of `other`, which differs by no more than these, in the place of ours.
    pub(super) fn take_values(&mut self, other: &Self, index: usize) {
        other.lend(index, |work| self.replace_work(index, work));
    }

    fn replace_work(&mut self, index: usize, work: Lent<'_>) {
        match (&mut self.entries[index].work, work) {
            (KeptWork::Kernel { config, arguments, .. }, Lent::Kernel { config: new, args, .. }) => {
                *config = *new;
                store_all(&mut self.units, &self.arguments[as_range(arguments)], args);
            }
            (KeptWork::Other(kept), Lent::Other(new)) => *kept = new,
            _ => {}
        }
    }

    /// Notes the place in the source that an equal operation came from.
    #[inline]
    pub(super) fn came_from(&mut self, index: usize, operation: Operation) {
        self.entries[index].operation = operation;
    }

    /// Calls `with` with the work of operation `index`.
    pub(super) fn with_work<T>(&self, index: usize, with: impl FnOnce(&Work<'_>) -> T) -> T {
        self.lend(index, |work| match work {
            Lent::Kernel { function, config, args } => with(&Work::Kernel { function, config, args }),
            Lent::Other(work) => with(&work),
        })
    }

    fn lend<T>(&self, index: usize, with: impl FnOnce(Lent<'_>) -> T) -> T {
        match &self.entries[index].work {
            KeptWork::Kernel { function, config, arguments, .. } => {
                let pointer = |it: &Argument| self.units[it.at as usize..].as_ptr().cast_mut().cast();
                let arguments = &self.arguments[as_range(arguments)];
                let args: SmallVec<[*mut c_void; 16]> = arguments.iter().map(pointer).collect();
                with(Lent::Kernel { function: *function, config, args: &args })
            }
            KeptWork::Other(work) => with(Lent::Other(*work)),
        }
    }

    /// Returns the first `len` operations.
    pub(super) fn first(&self, len: usize) -> Self {
        let entries = self.entries[..len].to_vec();
        let touched = entries.last().map_or(0, |last| last.touched.end) as usize;
        let arguments = entries.iter().rev().find_map(|entry| match &entry.work {
            KeptWork::Kernel { arguments, .. } => Some(arguments.end as usize),
            KeptWork::Other(_) => None,
        });
        let arguments = &self.arguments[..arguments.unwrap_or(0)];
        let units = arguments.last().map_or(0, |it| it.at as usize + units(it.size as usize));
        Self {
            entries,
            arguments: arguments.to_vec(),
            units: self.units[..units].to_vec(),
            touched: self.touched[..touched].to_vec(),
        }
    }
}

/// Returns how many units an argument of `size` bytes takes.
const fn units(size: usize) -> usize {
    size.div_ceil(size_of::<Unit>())
}

#[inline(always)]
fn as_range(range: &Range<u32>) -> Range<usize> {
    range.start as usize..range.end as usize
}

/// Copies the value of an argument from the caller's.
#[inline]
fn store(units: &mut [Unit], &Argument { at, size }: &Argument, from: *mut c_void) {
    let to = units[at as usize..].as_mut_ptr();
    // SAFETY: the caller's argument has the size of the kernel's parameter, and `push` made room for that size at `at`,
    // aligned to 16 bytes.
    unsafe {
        match size {
            8 => to.cast::<u64>().write(from.cast::<u64>().read_unaligned()),
            4 => to.cast::<u32>().write(from.cast::<u32>().read_unaligned()),
            size => to.cast::<u8>().copy_from_nonoverlapping(from.cast::<u8>(), size as usize),
        }
    }
}

fn store_all(units: &mut [Unit], arguments: &[Argument], args: &[*mut c_void]) {
    arguments.iter().zip(args).for_each(|(argument, &from)| store(units, argument, from));
}

/// Returns whether the values of kept arguments are the caller's.
#[inline(always)]
fn holds_all(units: &[Unit], arguments: &[Argument], args: &[*mut c_void]) -> bool {
    for (argument, &from) in arguments.iter().zip(args) {
        if !holds(units, argument, from) {
            return false;
        }
    }
    true
}

/// Returns whether the value of a kept argument is the caller's.
#[inline(always)]
fn holds(units: &[Unit], &Argument { at, size }: &Argument, from: *mut c_void) -> bool {
    let kept = units[at as usize..].as_ptr();
    // SAFETY: both have the size of the kernel's parameter; the kept one is aligned to 16 bytes, the caller's perhaps not.
    unsafe {
        match size {
            8 => kept.cast::<u64>().read() == from.cast::<u64>().read_unaligned(),
            4 => kept.cast::<u32>().read() == from.cast::<u32>().read_unaligned(),
            size => {
                let size = size as usize;
                std::slice::from_raw_parts(kept.cast::<u8>(), size)
                    == std::slice::from_raw_parts(from.cast::<u8>().cast_const(), size)
            }
        }
    }
}

/// Returns whether two operations that are no kernels are equal; `None` where they are of different kinds.
fn same_work(one: &Work<'_>, other: &Work<'_>) -> Option<bool> {
    Some(match (*one, *other) {
        (Work::CopyToDevice { dst, src, bytes }, Work::CopyToDevice { dst: to, src: from, bytes: len }) => {
            (dst, src, bytes) == (to, from, len)
        }
        (Work::CopyToHost { dst, src, bytes }, Work::CopyToHost { dst: to, src: from, bytes: len }) => {
            (dst, src, bytes) == (to, from, len)
        }
        (Work::CopyOnDevice { dst, src, bytes }, Work::CopyOnDevice { dst: to, src: from, bytes: len }) => {
            (dst, src, bytes) == (to, from, len)
        }
        (Work::Copy3d(one), Work::Copy3d(other)) => one == other,
        (Work::Fill { dst, pattern, count }, Work::Fill { dst: to, pattern: value, count: len }) => {
            if pattern.width() != value.width() {
                return None;
            }
            (dst, pattern, count) == (to, value, len)
        }
        _ => return None,
    })
}
