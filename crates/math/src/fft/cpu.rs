//! Transforms on the CPU device: one pass for each dimension, whose lines the device's workers share. A line is transformed by
//! the crate `rustfft`, and between real numbers and half of a transform by `realfft`.

use std::any::TypeId;
use std::marker::PhantomData;
use std::slice::{from_raw_parts, from_raw_parts_mut};

use gpustream::{Arg, AsView as _, AsViewMut as _, Part, Plain, Result, Stream, ViewMut};
use num_complex::Complex;
use realfft::{ComplexToReal, RealToComplex};
use rustfft::Fft as Plan;

use super::real::{Planners, Real, Room};
use super::shape::Side;
use super::transform::{Ends, Kind, Transform};
use crate::call::Address;

/// How many elements of a transform are worth a part of their own.
const WORTH_A_PART: usize = 4096;

/// How many neighbouring lines a worker moves at once if their elements are far apart, so that it uses all of a cache line.
const NEIGHBOURS: usize = 16;

/// One side of a pass.
#[derive(Clone, Copy)]
struct End {
    address: Address,
    side: Side,
}

impl End {
    fn of<T: Plain>(memory: &ViewMut<'_, T>, side: Side) -> Self {
        Self { address: Address(memory.view().as_raw().0), side }
    }

    /// Returns the first element of a line in the last dimension. Lines are counted through all transforms.
    fn line<T>(&self, line: usize) -> *mut T {
        let [planes, rows, _] = self.side.lens;
        let (row, plane, transform) = (line % rows, line / rows % planes, line / rows / planes);
        let [plane_step, row_step, _] = self.side.steps;
        self.at(transform * self.side.distance + plane * plane_step + row * row_step)
    }

    fn at<T>(&self, index: usize) -> *mut T {
        self.address.write::<T>().wrapping_add(index)
    }

    fn step(&self) -> usize {
        self.side.steps[2]
    }

    /// Returns the number of lines in the last dimension.
    fn lines(&self) -> usize {
        let [planes, rows, _] = self.side.lens;
        self.side.batch * planes * rows
    }
}

/// Enqueues the passes of a transform.
#[track_caller]
pub(super) fn enqueue<T: Real, X: Plain, Y: Plain>(
    stream: &Stream,
    label: &'static str,
    transform: &Transform,
    ends: Ends<'_, '_, X, Y>,
) -> Result<()> {
    let Transform { kind, input, output, .. } = *transform;
    let passes =
        Passes::<T> { stream, label, kind, columns: output.lens[2].max(input.lens[2]), number: PhantomData };
    match (kind, ends) {
        (Kind::FromHalf, Ends::Apart(x, y)) => {
            let from = End { address: Address(x.as_raw().0), side: input };
            let mut outer = outer_dimensions(&input);
            let Some(first) = outer.next() else {
                let to = End::of(y, output);
                return passes.lines(&[Arg::read(&x), Arg::write(y)], from, to);
            };
            // The input stays as it is, so the outer dimensions are transformed in a copy.
            let side = input.dense();
            let mut copy = stream.alloc::<Complex<T>>(side.span())?;
            let mut copy = copy.view_mut();
            let at = End::of(&copy, side);
            passes.outer(&[Arg::read(&x), Arg::write(&mut copy)], from, at, first)?;
            for dimension in outer {
                passes.outer(&[Arg::write(&mut copy)], at, at, dimension)?;
            }
            let to = End::of(y, output);
            passes.lines(&[Arg::read(&copy), Arg::write(y)], at, to)
        }
        (Kind::FromHalf, Ends::Overwriting(x, y)) => {
            let (from, to) = (End::of(x, input), End::of(y, output));
            for dimension in outer_dimensions(&input) {
                passes.outer(&[Arg::write(x)], from, from, dimension)?;
            }
            passes.lines(&[Arg::read(x), Arg::write(y)], from, to)
        }
        (Kind::FromHalf, Ends::InPlace(x)) => {
            let (from, to) = (End::of(x, input), End::of(x, output));
            for dimension in outer_dimensions(&input) {
                passes.outer(&[Arg::write(x)], from, from, dimension)?;
            }
            passes.lines(&[Arg::write(x)], from, to)
        }
        (_, Ends::Apart(x, y)) => {
            let (from, to) = (End { address: Address(x.as_raw().0), side: input }, End::of(y, output));
            passes.lines(&[Arg::read(&x), Arg::write(y)], from, to)?;
            outer_dimensions(&output)
                .try_for_each(|dimension| passes.outer(&[Arg::write(y)], to, to, dimension))
        }
        (_, Ends::InPlace(x)) => {
            let (from, to) = (End::of(x, input), End::of(x, output));
            passes.lines(&[Arg::write(x)], from, to)?;
            outer_dimensions(&output)
                .try_for_each(|dimension| passes.outer(&[Arg::write(x)], to, to, dimension))
        }
        (_, Ends::Overwriting(x, y)) => {
            let (from, to) = (End::of(x, input), End::of(y, output));
            passes.lines(&[Arg::read(x), Arg::write(y)], from, to)?;
            outer_dimensions(&output)
                .try_for_each(|dimension| passes.outer(&[Arg::write(y)], to, to, dimension))
        }
    }
}

/// Returns which of planes and rows have something to transform.
fn outer_dimensions(side: &Side) -> impl Iterator<Item = usize> + use<> {
    let lens = side.lens;
    (0..2).filter(move |dimension| lens[*dimension] > 1)
}

/// What the passes of one transform share.
struct Passes<'a, T> {
    stream: &'a Stream,
    label: &'static str,
    kind: Kind,
    /// The length of the last dimension. One side may have half of it.
    columns: usize,
    number: PhantomData<T>,
}

impl<T: Real> Passes<'_, T> {
    /// Returns in how many parts to share so many lines.
    fn parts(&self, lines: usize, len: usize) -> u32 {
        let workers = self.stream.device().info().multiprocessors;
        let worth = lines.saturating_mul(len).div_ceil(WORTH_A_PART);
        (4 * workers).min(u32::try_from(lines.min(worth)).unwrap_or(u32::MAX)).max(1)
    }

    /// Transforms the last dimension.
    #[track_caller]
    fn lines(&self, memory: &[Arg<'_>], from: End, to: End) -> Result<()> {
        let (stream, columns, direction) = (self.stream, self.columns, self.kind.direction());
        let lines = from.lines();
        let parts = self.parts(lines, columns);
        // SAFETY, for all three: both sides are within `memory`, and a part reads and writes its own lines. If they are the same
        // memory, each line stays in its place.
        match self.kind {
            Kind::Complex(_) => {
                let plan = Planners::<T::Wide>::with(stream, |complex, _| {
                    complex.plan_fft(columns, direction.into())
                })?;
                // SAFETY: as above.
                let work = move |line, room: &mut _| unsafe { complex::<T>(&*plan, from, to, line, room) };
                // SAFETY: as above.
                unsafe { self.each(memory, lines, parts, work) }
            }
            Kind::ToHalf => {
                let plan = Planners::<T::Wide>::with(stream, |_, real| real.plan_fft_forward(columns))?;
                // SAFETY: as above.
                let work = move |line, room: &mut _| unsafe { to_half::<T>(&*plan, from, to, line, room) };
                // SAFETY: as above.
                unsafe { self.each(memory, lines, parts, work) }
            }
            Kind::FromHalf => {
                let plan = Planners::<T::Wide>::with(stream, |_, real| real.plan_fft_inverse(columns))?;
                // SAFETY: as above.
                let work = move |line, room: &mut _| unsafe { from_half::<T>(&*plan, from, to, line, room) };
                // SAFETY: as above.
                unsafe { self.each(memory, lines, parts, work) }
            }
        }
    }

    /// Enqueues `work` for each of `units`, in parts.
    ///
    /// # Safety
    /// `work` only touches `memory`, only writes what is passed for writing, and no two units touch what one of them writes.
    #[track_caller]
    unsafe fn each(
        &self,
        memory: &[Arg<'_>],
        units: usize,
        parts: u32,
        work: impl Fn(usize, &mut Room<T::Wide>) + Send + Sync + 'static,
    ) -> Result<()> {
        let closure = move |part: Part, ()| {
            T::with_room(|room| part.range(units).for_each(|unit| work(unit, room)));
        };
        // SAFETY: by this function's contract.
        unsafe { self.stream.external_parallel(self.label, memory, parts, closure) }
    }

    /// Transforms the planes' or the rows' dimension.
    #[track_caller]
    fn outer(&self, memory: &[Arg<'_>], from: End, to: End, dimension: usize) -> Result<()> {
        let direction = self.kind.direction();
        let len = from.side.lens[dimension];
        let plan =
            Planners::<T::Wide>::with(self.stream, |complex, _| complex.plan_fft(len, direction.into()))?;
        let columns = from.side.lens[2];
        let groups = columns.div_ceil(NEIGHBOURS);
        let others = from.side.lens[1 - dimension];
        let units = from.side.batch * others * groups;
        let parts = self.parts(units, len * NEIGHBOURS.min(columns));
        let work = move |unit: usize, room: &mut _| {
            let (group, other, transform) = (unit % groups, unit / groups % others, unit / groups / others);
            let first = group * NEIGHBOURS;
            let place = Group { transform, other, first, lines: NEIGHBOURS.min(columns - first), dimension };
            // SAFETY: as for the whole pass.
            unsafe { neighbours::<T>(&*plan, from, to, place, room) };
        };
        // SAFETY: both sides are within `memory`, and a part reads and writes its own groups of lines.
        unsafe { self.each(memory, units, parts, work) }
    }
}

/// Returns a slice of room that is at least so long.
fn room_of<V: Plain>(room: &mut Vec<V>, len: usize) -> &mut [V] {
    if room.len() < len {
        room.resize(len, V::zeroed());
    }
    &mut room[..len]
}

/// Copies a line from memory whose elements are `step` apart, in the type that we compute with.
///
/// # Safety
/// The memory has the line, and it does not change. It is not where `line` is.
unsafe fn gather<V: Copy, W>(from: *const V, step: usize, line: &mut [W], widen: impl Fn(V) -> W) {
    // SAFETY: by this function's contract.
    unsafe {
        if step == 1 {
            let from = from_raw_parts(from, line.len());
            line.iter_mut().zip(from).for_each(|(value, from)| *value = widen(*from));
        } else {
            line.iter_mut().enumerate().for_each(|(i, value)| *value = widen(*from.add(i * step)));
        }
    }
}

/// Copies a line into memory whose elements are `step` apart.
///
/// # Safety
/// The memory has room for the line, and is not used elsewhere.
unsafe fn scatter<V, W: Copy>(line: &[W], to: *mut V, step: usize, narrow: impl Fn(W) -> V) {
    // SAFETY: by this function's contract.
    line.iter().enumerate().for_each(|(i, value)| unsafe { *to.add(i * step) = narrow(*value) });
}

/// Returns the memory that begins at `at` as a slice if its elements follow each other and have the type that we compute with.
///
/// # Safety
/// The memory has so many elements, and is not used elsewhere.
unsafe fn directly<'a, V: 'static, W: 'static>(at: *mut V, step: usize, len: usize) -> Option<&'a mut [W]> {
    // SAFETY: by this function's contract, since it is one type.
    (step == 1 && TypeId::of::<V>() == TypeId::of::<W>())
        .then(|| unsafe { from_raw_parts_mut(at.cast(), len) })
}

fn widened<T: Real>(value: Complex<T>) -> Complex<T::Wide> {
    Complex::new(value.re.widen(), value.im.widen())
}

fn narrowed<T: Real>(value: Complex<T::Wide>) -> Complex<T> {
    Complex::new(T::narrow(value.re), T::narrow(value.im))
}

/// Transforms one line of complex numbers.
///
/// # Safety
/// Both sides have the line. The one does not change, and the other is not used elsewhere.
unsafe fn complex<T: Real>(
    plan: &dyn Plan<T::Wide>,
    from: End,
    to: End,
    line: usize,
    room: &mut Room<T::Wide>,
) {
    let (x, y) = (from.line::<Complex<T>>(line), to.line::<Complex<T>>(line));
    let scratch = room_of(&mut room.scratch, plan.get_inplace_scratch_len());
    // SAFETY: by this function's contract.
    unsafe {
        if let Some(whole) = directly(y, to.step(), plan.len()) {
            if x != y {
                gather(x, from.step(), whole, widened);
            }
            return plan.process_with_scratch(whole, scratch);
        }
        let whole = room_of(&mut room.complex, plan.len());
        gather(x, from.step(), whole, widened);
        plan.process_with_scratch(whole, scratch);
        scatter(whole, y, to.step(), narrowed);
    }
}

/// Transforms one line of real numbers into half of its transform.
///
/// # Safety
/// As for [`complex`].
unsafe fn to_half<T: Real>(
    plan: &dyn RealToComplex<T::Wide>,
    from: End,
    to: End,
    line: usize,
    room: &mut Room<T::Wide>,
) {
    let (x, y) = (from.line::<T>(line), to.line::<Complex<T>>(line));
    let (scratch, half) = (room_of(&mut room.scratch, plan.get_scratch_len()), plan.len() / 2 + 1);
    let real = room_of(&mut room.real, plan.len());
    // SAFETY: by this function's contract.
    unsafe {
        gather(x, from.step(), real, T::widen);
        // It only fails for lengths that are not the plan's.
        if let Some(whole) = directly(y, to.step(), half) {
            let _ = plan.process_with_scratch(real, whole, scratch);
            return;
        }
        let whole = room_of(&mut room.complex, half);
        let _ = plan.process_with_scratch(real, whole, scratch);
        scatter(whole, y, to.step(), narrowed);
    }
}

/// Transforms the first half back into one line of real numbers.
///
/// # Safety
/// As for [`complex`].
unsafe fn from_half<T: Real>(
    plan: &dyn ComplexToReal<T::Wide>,
    from: End,
    to: End,
    line: usize,
    room: &mut Room<T::Wide>,
) {
    let (x, y) = (from.line::<Complex<T>>(line), to.line::<T>(line));
    let scratch = room_of(&mut room.scratch, plan.get_scratch_len());
    let half = room_of(&mut room.complex, plan.len() / 2 + 1);
    // SAFETY: by this function's contract.
    unsafe {
        gather(x, from.step(), half, widened);
        // Besides lengths that are not the plan's, it complains of imaginary parts that should be 0, and takes them as 0. So do
        // the vendors' libraries.
        if let Some(whole) = directly(y, to.step(), plan.len()) {
            let _ = plan.process_with_scratch(half, whole, scratch);
            return;
        }
        let whole = room_of(&mut room.real, plan.len());
        let _ = plan.process_with_scratch(half, whole, scratch);
        scatter(whole, y, to.step(), T::narrow);
    }
}

/// Neighbouring lines of an outer dimension.
#[derive(Clone, Copy)]
struct Group {
    transform: usize,
    /// The place in the other outer dimension.
    other: usize,
    /// The first line's column.
    first: usize,
    lines: usize,
    dimension: usize,
}

impl Group {
    /// Returns the index of the first element, and the distances to the next element of a line and to the next line.
    fn place(&self, side: &Side) -> (usize, usize, usize) {
        let other = side.steps[1 - self.dimension];
        let start = self.transform * side.distance + self.other * other + self.first * side.steps[2];
        (start, side.steps[self.dimension], side.steps[2])
    }
}

/// Transforms neighbouring lines.
///
/// # Safety
/// As for [`complex`].
unsafe fn neighbours<T: Real>(
    plan: &dyn Plan<T::Wide>,
    from: End,
    to: End,
    group: Group,
    room: &mut Room<T::Wide>,
) {
    let (len, lines) = (plan.len(), group.lines);
    let scratch = room_of(&mut room.scratch, plan.get_inplace_scratch_len());
    let whole = room_of(&mut room.complex, len * lines);
    let (start, step, next) = group.place(&from.side);
    for i in 0..len {
        for line in 0..lines {
            // SAFETY: by this function's contract.
            whole[line * len + i] =
                widened(unsafe { *from.at::<Complex<T>>(start + i * step + line * next) });
        }
    }
    // One transform after the other.
    plan.process_with_scratch(whole, scratch);
    let (start, step, next) = group.place(&to.side);
    for i in 0..len {
        for line in 0..lines {
            // SAFETY: by this function's contract.
            unsafe { *to.at::<Complex<T>>(start + i * step + line * next) = narrowed(whole[line * len + i]) };
        }
    }
}
