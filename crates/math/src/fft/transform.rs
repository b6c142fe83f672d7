//! Checks a transform and enqueues it.

use gpustream::hal::RawBuffer;
use gpustream::{Arg, AsView as _, Buffer, ErrorKind, Plain, Result, Stream, View, ViewMut};
use num_complex::Complex;
use smallvec::{SmallVec, smallvec};

use super::plan::{Plan, PlanKind};
use super::shape::{FftShape, Side};
use super::{Direction, Real, cpu, library};
use crate::call::{Address, mismatch, named, refusal};
use crate::keys::key_of;

/// What a transform turns into what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Complex(Direction),
    /// Real numbers into the first half of their transform.
    ToHalf,
    /// The first half of a transform into real numbers.
    FromHalf,
}

impl Kind {
    /// Returns which sides have half of the last dimension: input and output.
    pub(super) fn halves(self) -> [bool; 2] {
        [self == Self::FromHalf, self == Self::ToHalf]
    }

    pub(super) fn direction(self) -> Direction {
        match self {
            Self::Complex(direction) => direction,
            Self::ToHalf => Direction::Forward,
            Self::FromHalf => Direction::Inverse,
        }
    }
}

/// The memory of a transform.
pub(super) enum Ends<'a, 'b, X: Plain, Y: Plain> {
    Apart(View<'a, X>, &'b mut ViewMut<'a, Y>),
    /// The input may be overwritten.
    Overwriting(&'b mut ViewMut<'a, X>, &'b mut ViewMut<'a, Y>),
    /// The memory is an input of `X`, and becomes an output of the type that the transform gives.
    InPlace(&'b mut ViewMut<'a, X>),
}

/// A transform with checked sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Transform {
    pub(super) kind: Kind,
    pub(super) rank: usize,
    pub(super) input: Side,
    pub(super) output: Side,
}

impl Transform {
    fn of(label: &'static str, shape: &FftShape, kind: Kind, overwrites: bool) -> Result<Self> {
        let [input, output] = shape.sides(kind.halves())?;
        if !output.is_apart() || overwrites && !input.is_apart() {
            let text = format!(
                "{shape}: some of its elements are at the same place, so they cannot be written; give spacings apart"
            );
            return Err(refusal(ErrorKind::InvalidArgument, label, text));
        }
        Ok(Self { kind, rank: shape.rank, input, output })
    }
}

/// Checks a transform of numbers of `T`, and enqueues it.
#[track_caller]
pub(super) fn enqueue<T: Real, X: Plain, Y: Plain>(
    stream: &Stream,
    label: &'static str,
    shape: &FftShape,
    kind: Kind,
    ends: Ends<'_, '_, X, Y>,
) -> Result<()> {
    let overwrites = !matches!(ends, Ends::Apart(..));
    let transform = named(label, || Transform::of(label, shape, kind, overwrites))?;
    let lens = match &ends {
        Ends::Apart(x, y) => [x.len(), y.len()],
        Ends::Overwriting(x, y) => [x.len(), y.len()],
        Ends::InPlace(x) => in_place_lens::<T, X>(x.len(), kind),
    };
    for (what, side, len) in [("input", transform.input, lens[0]), ("output", transform.output, lens[1])] {
        let span = side.span();
        if len < span {
            let text =
                format!("{shape}: its {what} ends {span} elements after its first, and the memory has {len}");
            return Err(mismatch(label, text));
        }
    }
    if transform.input.batch == 0 {
        return Ok(());
    }
    match library::vendor_of(stream.device()) {
        None => cpu::enqueue::<T, X, Y>(stream, label, &transform, ends),
        Some(vendor) => on_library::<T, X, Y>(stream, label, vendor, &transform, ends),
    }
}

/// Returns how many elements of the input, and of the output, memory of `len` elements of `X` has. In place, a real transform
/// takes and gives the same memory as real numbers.
fn in_place_lens<T: Real, X: Plain>(len: usize, kind: Kind) -> [usize; 2] {
    let bytes = len * size_of::<X>();
    let (real, complex) = (bytes / size_of::<T>(), bytes / size_of::<Complex<T>>());
    match kind {
        Kind::Complex(_) => [complex, complex],
        Kind::ToHalf => [real, complex],
        Kind::FromHalf => [complex, real],
    }
}

/// Makes the plans of all kinds for a shape.
#[track_caller]
pub(super) fn prepare<T: Real>(stream: &Stream, shape: &FftShape) -> Result<()> {
    let Some(vendor) = library::vendor_of(stream.device()) else {
        return named("prepare_fft", || shape.sides([false; 2]).map(drop));
    };
    let forward = Kind::Complex(Direction::Forward);
    for kind in [forward, Kind::ToHalf, Kind::FromHalf] {
        let transform = named("prepare_fft", || Transform::of("prepare_fft", shape, kind, false))?;
        named("prepare_fft", || Plan::of(stream, vendor, PlanKind::new::<T>(&transform)))?;
    }
    Ok(())
}

/// Makes the plans of real transforms in place, forward and back.
#[track_caller]
pub(super) fn prepare_in_place<T: Real>(stream: &Stream, shape: &FftShape) -> Result<()> {
    const LABEL: &str = "prepare";
    for (kind, forward) in [(Kind::ToHalf, true), (Kind::FromHalf, false)] {
        let shape = shape.padded_in_place(forward);
        let transform = named(LABEL, || Transform::of(LABEL, &shape, kind, true))?;
        if let Some(vendor) = library::vendor_of(stream.device()) {
            named(LABEL, || Plan::of(stream, vendor, PlanKind::new::<T>(&transform)))?;
        }
    }
    Ok(())
}

#[track_caller]
fn on_library<T: Real, X: Plain, Y: Plain>(
    stream: &Stream,
    label: &'static str,
    vendor: crate::table::Vendor,
    transform: &Transform,
    ends: Ends<'_, '_, X, Y>,
) -> Result<()> {
    let plan = named(label, || Plan::of(stream, vendor, PlanKind::new::<T>(transform)))?;
    // The libraries overwrite the input of a transform into real numbers.
    let mut copy = match (&ends, transform.kind) {
        (Ends::Apart(x, _), Kind::FromHalf) => Some(copy_of(stream, x.slice(..transform.input.span())?)?),
        _ => None,
    };
    let key = key_of(stream, (*transform, T::PRECISION))?;
    plan.lend(stream, |work| {
        let work_at = Address(work.as_ref().map_or(0, |work| work.as_raw().0));
        let (from, to, input);
        let mut memory: SmallVec<[Arg<'_>; 4]> = smallvec![Arg::read(plan.marker())];
        memory.extend(work.map(Arg::write));
        match (ends, &mut copy) {
            (Ends::Apart(_, y), Some(copy)) => {
                (from, to) = (Address(copy.as_raw().0), Address(y.view().as_raw().0));
                memory.extend([Arg::write(copy), Arg::write(y)]);
            }
            (Ends::Apart(x, y), None) => {
                (from, to) = (Address(x.as_raw().0), Address(y.view().as_raw().0));
                input = x;
                memory.extend([Arg::read(&input), Arg::write(y)]);
            }
            (Ends::Overwriting(x, y), _) => {
                (from, to) = (Address(x.view().as_raw().0), Address(y.view().as_raw().0));
                memory.extend([Arg::write(x), Arg::write(y)]);
            }
            (Ends::InPlace(x), _) => {
                (from, to) = (Address(x.view().as_raw().0), Address(x.view().as_raw().0));
                memory.push(Arg::write(x));
            }
        }
        // SAFETY: the transform goes to the stream that we are given, reads and writes `memory` alone, and depends on nothing but
        // `transform` and that memory. The plan lives until this use of its marker is done, and in a graph as long as the graph.
        unsafe {
            stream.external_keyed(label, &memory[..], key, |raw, ()| {
                plan.run(raw, work_at, transform.kind.direction(), from, to)
            })
        }
    })
}

/// Copies memory, of which some elements may be unwritten: those between the ones that a transform reads.
#[track_caller]
fn copy_of<T: Plain>(stream: &Stream, x: View<'_, T>) -> Result<Buffer<T>> {
    let mut copy = stream.alloc::<T>(x.len())?;
    let (device, bytes) = (stream.device().raw(), x.len() * size_of::<T>());
    // SAFETY: the copy goes to the stream that we are given, reads `x` and writes as much of `copy`.
    unsafe {
        stream.external_keyed("copy", (x, &mut copy), 0, |raw, (from, to)| {
            device.copy_on_device(RawBuffer(to.addr()), RawBuffer(from.addr()), bytes, raw)
        })?;
    }
    Ok(copy)
}
