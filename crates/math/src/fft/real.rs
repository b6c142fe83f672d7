//! The precisions of transforms, and what the CPU device's workers keep for each.

use std::cell::RefCell;
use std::sync::{Mutex, PoisonError};

use gpustream::{Plain, Result, Stream};
use num_complex::Complex;
use realfft::RealFftPlanner;
use rustfft::FftPlanner;

use super::Direction;

/// The real numbers that can be transformed: `f32` and `f64`.
pub trait Real: Plain + rustfft::FftNum {
    /// Whether the numbers have 64 bits.
    #[doc(hidden)]
    const IS_DOUBLE: bool;

    /// Lends the calling thread's room for lines and for the crates' own use.
    #[doc(hidden)]
    fn with_room<R>(work: impl FnOnce(&mut Room<Self>) -> R) -> R;
}

/// Room that a worker keeps between transforms.
#[doc(hidden)]
#[derive(Debug)]
pub struct Room<T> {
    pub(super) complex: Vec<Complex<T>>,
    pub(super) real: Vec<T>,
    pub(super) scratch: Vec<Complex<T>>,
}

macro_rules! reals {
    ($($real:ty: $is_double:expr;)*) => {$(
        impl Real for $real {
            const IS_DOUBLE: bool = $is_double;

            fn with_room<R>(work: impl FnOnce(&mut Room<Self>) -> R) -> R {
                thread_local! {
                    static ROOM: RefCell<Room<$real>> =
                        const { RefCell::new(Room { complex: Vec::new(), real: Vec::new(), scratch: Vec::new() }) };
                }
                ROOM.with_borrow_mut(work)
            }
        }
    )*};
}
reals! {
    f32: false;
    f64: true;
}

/// The crates' plans of one device.
pub(super) struct Planners<T: Real>(Mutex<(FftPlanner<T>, RealFftPlanner<T>)>);

impl<T: Real> Planners<T> {
    /// Lets `plan` take plans from the device's planners, which keep them for the next call.
    pub(super) fn with<R>(
        stream: &Stream,
        plan: impl FnOnce(&mut FftPlanner<T>, &mut RealFftPlanner<T>) -> R,
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
