//! The precisions of transforms, and what the CPU device's workers keep for each.

use std::cell::RefCell;
use std::convert::identity;
use std::sync::{Mutex, PoisonError};

use gpustream::half::f16;
use gpustream::{Plain, Result, Stream};
use num_complex::Complex;
use realfft::RealFftPlanner;
use rustfft::{FftNum, FftPlanner};

use super::Direction;

/// The real numbers that can be transformed: `f32`, `f64` and `f16`.
pub trait Real: Plain {
    #[doc(hidden)]
    #[allow(private_interfaces, reason = "nobody else implements or reads it")]
    const PRECISION: Precision;

    /// What the CPU device computes with.
    #[doc(hidden)]
    type Wide: Plain + rustfft::FftNum;

    #[doc(hidden)]
    fn widen(self) -> Self::Wide;

    #[doc(hidden)]
    fn narrow(wide: Self::Wide) -> Self;

    /// Lends the calling thread's room for lines and for the crates' own use.
    #[doc(hidden)]
    fn with_room<R>(work: impl FnOnce(&mut Room<Self::Wide>) -> R) -> R;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Precision {
    Half,
    Single,
    Double,
}

/// Room that a worker keeps between transforms.
#[doc(hidden)]
#[derive(Debug)]
pub struct Room<W> {
    pub(super) complex: Vec<Complex<W>>,
    pub(super) real: Vec<W>,
    pub(super) scratch: Vec<Complex<W>>,
}

macro_rules! reals {
    ($($real:ty, $wide:ty: $precision:ident, $widen:expr, $narrow:expr;)*) => {$(
        impl Real for $real {
            #[allow(private_interfaces, reason = "as in the trait")]
            const PRECISION: Precision = Precision::$precision;

            type Wide = $wide;

            #[inline]
            fn widen(self) -> $wide {
                ($widen)(self)
            }

            #[inline]
            fn narrow(wide: $wide) -> Self {
                ($narrow)(wide)
            }

            fn with_room<R>(work: impl FnOnce(&mut Room<$wide>) -> R) -> R {
                thread_local! {
                    static ROOM: RefCell<Room<$wide>> =
                        const { RefCell::new(Room { complex: Vec::new(), real: Vec::new(), scratch: Vec::new() }) };
                }
                ROOM.with_borrow_mut(work)
            }
        }
    )*};
}
reals! {
    f16, f32: Half, f16::to_f32, f16::from_f32;
    f32, f32: Single, identity, identity;
    f64, f64: Double, identity, identity;
}

/// The crates' plans of one device.
pub(super) struct Planners<W: FftNum>(Mutex<(FftPlanner<W>, RealFftPlanner<W>)>);

impl<W: FftNum> Planners<W> {
    /// Lets `plan` take plans from the device's planners, which keep them for the next call.
    pub(super) fn with<R>(
        stream: &Stream,
        plan: impl FnOnce(&mut FftPlanner<W>, &mut RealFftPlanner<W>) -> R,
    ) -> Result<R> {
        let make = |_: &_| Ok(Self(Mutex::new((FftPlanner::new(), RealFftPlanner::new()))));
        let planners = stream.device().extension(make)?;
        let mut planners = planners.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (complex, real) = &mut *planners;
        Ok(plan(complex, real))
    }
}

impl From<Direction> for rustfft::FftDirection {
    fn from(direction: Direction) -> Self {
        match direction {
            Direction::Forward => Self::Forward,
            Direction::Inverse => Self::Inverse,
        }
    }
}
