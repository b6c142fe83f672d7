//! Plans of the vendors' libraries: the last ones that a device has used.
//!
//! A plan must live until its last transform is done, and in a graph as long as the graph. Nothing tells us when that is, but
//! `gpustream` knows when memory is no longer used. So each plan owns a byte of device memory, its *marker*, which every
//! transform names as memory that it reads. When the plan is forgotten, its marker is dropped, and the library drops the
//! marker's owner, which is the vendor's handle, after its last use.

use std::ffi::{c_int, c_longlong, c_void};
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use gpustream::hal::RawStream;
use gpustream::{Buffer, Device, Error, ErrorKind, Result, Stream};

use super::Direction;
use super::library::{Api, CudaHandle, HipHandle, amd, nvidia};
use super::real::{Precision, Real};
use super::shape::Side;
use super::transform::{Kind, Transform};
use crate::call::Address;
use crate::number::DataType;
use crate::recent::Recent;
use crate::table::Vendor;
use crate::workspace::Workspace;

/// What a plan depends on. A plan for complex numbers serves both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PlanKind {
    number: Number,
    rank: usize,
    lens: [usize; 3],
    input: Side,
    output: Side,
}

impl PlanKind {
    pub(super) fn new<T: Real>(transform: &Transform) -> Self {
        let Transform { kind, rank, input, output } = *transform;
        let number = match (kind, T::PRECISION) {
            (Kind::ToHalf, Precision::Single) => Number::Type(0x2a),
            (Kind::FromHalf, Precision::Single) => Number::Type(0x2c),
            (Kind::Complex(_), Precision::Single) => Number::Type(0x29),
            (Kind::ToHalf, Precision::Double) => Number::Type(0x6a),
            (Kind::FromHalf, Precision::Double) => Number::Type(0x6c),
            (Kind::Complex(_), Precision::Double) => Number::Type(0x69),
            (_, Precision::Half) => Number::Half {
                input: if kind == Kind::ToHalf { DataType::F16 } else { DataType::C16 },
                output: if kind == Kind::FromHalf { DataType::F16 } else { DataType::C16 },
            },
        };
        // The side that is not halved has the transform's lengths.
        let lens = if kind == Kind::FromHalf { output.lens } else { input.lens };
        Self { number, rank, lens, input, output }
    }

    fn is_half(&self) -> bool {
        matches!(self.number, Number::Half { .. })
    }
}

/// How the libraries call a kind of transform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Number {
    /// The number of `cufftType`, which hipFFT shares.
    Type(u32),
    /// A transform of `f16` has no such number, but types of its ends.
    Half { input: DataType, output: DataType },
}

/// Work areas up to this many bytes come from memory that we keep. For a larger one it does not matter what allocating it costs.
const SMALL: usize = 1 << 20;

/// A plan, with what keeps it alive.
pub(super) struct Plan {
    /// For small work areas, shared by all plans of the device.
    small: Arc<Workspace>,
    handle: Arc<dyn Transforms>,
    marker: Buffer<u8>,
    work_bytes: usize,
}

/// A device's plans.
struct Plans {
    /// This handle of the device does not keep the plans, so that they go with the program's last handle.
    device: Device,
    small: Arc<Workspace>,
    last: Recent<PlanKind, Arc<Plan>>,
}

impl Plan {
    /// Returns the plan of this kind for a stream's device. Makes it if there is none, which blocks.
    ///
    /// # Errors
    /// `Captured` if it is still to be made and the stream is recorded; the library's errors.
    #[track_caller]
    pub(super) fn of(stream: &Stream, vendor: Vendor, kind: PlanKind) -> Result<Arc<Self>> {
        let make = |device: &Device| {
            let small = Arc::new(Workspace::new(device, SMALL)?);
            Ok(Plans { device: device.clone(), small, last: Recent::default() })
        };
        let plans = stream.device().extension(make)?;
        if let Some(plan) = plans.last.find(&kind) {
            return Ok(plan);
        }
        if vendor == Vendor::Nvidia && kind.is_half() && !kind.lens.into_iter().all(usize::is_power_of_two) {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "cuFFT transforms `f16` only in lengths that are powers of 2; pad the data, or use `f32`",
            ));
        }
        if stream.is_recorded() {
            return Err(Error::new(
                ErrorKind::Captured,
                "the FFT library cannot make a plan while a graph is recorded; call `stream.prepare_fft::<T>(&shape)` with the \
                 element type and the same shape before the capture",
            ));
        }
        let plan = Arc::new(Self::new(&plans, vendor, &kind)?);
        plans.last.add(kind, plan.clone());
        Ok(plan)
    }

    fn new(Plans { device, small, .. }: &Plans, vendor: Vendor, kind: &PlanKind) -> Result<Self> {
        let (handle, work_bytes): (Arc<dyn Transforms>, _) = match vendor {
            Vendor::Nvidia => {
                let (plan, work) = PlanHandle::<CudaHandle>::new(device.stream()?, nvidia()?, 0, kind)?;
                (Arc::new(plan), work)
            }
            Vendor::Amd => {
                let (plan, work) =
                    PlanHandle::<HipHandle>::new(device.stream()?, amd()?, ptr::null_mut(), kind)?;
                (Arc::new(plan), work)
            }
        };
        let stream = device.stream()?;
        let memory = stream.alloc::<u8>(1)?;
        let at = memory.as_raw().0 as *mut u8;
        // SAFETY: the byte belongs to `memory`, which the marker owns, and nothing else uses it.
        let marker = unsafe { Buffer::from_raw(&stream, at, 1, (memory, handle.clone())) }?;
        Ok(Self { small: small.clone(), handle, marker, work_bytes })
    }

    pub(super) fn marker(&self) -> &Buffer<u8> {
        &self.marker
    }

    /// Makes one call, which gets the work area, or `None` if the plan needs none.
    #[track_caller]
    pub(super) fn lend<R>(
        &self,
        stream: &Stream,
        call: impl FnOnce(Option<&mut Buffer<u8>>) -> Result<R>,
    ) -> Result<R> {
        match self.work_bytes {
            0 => call(None),
            1..=SMALL => self.small.lend(stream, |work| call(Some(work))),
            bytes => call(Some(&mut stream.alloc(bytes)?)),
        }
    }

    /// Enqueues a transform. Only for use inside an external operation.
    ///
    /// # Safety
    /// The stream is alive. The addresses are those of memory that the plan fits, and of work area, on the plan's device.
    pub(super) unsafe fn run(
        &self,
        stream: RawStream,
        work: Address,
        direction: Direction,
        from: Address,
        to: Address,
    ) -> Result<()> {
        // SAFETY: passed on to the caller.
        unsafe { self.handle.run(stream, work, direction, from, to) }
    }
}

/// A vendor's plan.
trait Transforms: Send + Sync {
    /// # Safety
    /// As for [`Plan::run`].
    unsafe fn run(
        &self,
        stream: RawStream,
        work: Address,
        direction: Direction,
        from: Address,
        to: Address,
    ) -> Result<()>;
}

struct PlanHandle<Handle: Copy + 'static> {
    api: &'static Api<Handle>,
    number: Number,
    state: Mutex<State<Handle>>,
    /// Makes the device's context current when the handle is destroyed.
    stream: Stream,
}

/// What the library's handle is set to. We set it only if that changes.
struct State<Handle> {
    handle: Handle,
    stream: RawStream,
    work: Address,
}

// SAFETY: any thread may use a plan, as long as only one does so at a time.
unsafe impl<Handle> Send for State<Handle> {}

impl<Handle: Copy> PlanHandle<Handle> {
    fn new(
        stream: Stream,
        api: &'static Api<Handle>,
        none: Handle,
        kind: &PlanKind,
    ) -> Result<(Self, usize)> {
        let PlanKind { number, rank, lens, input, output } = *kind;
        let numbers = |lens: [usize; 3]| lens.map(|len| len as c_longlong);
        let first = 3 - rank;
        let mut lens = numbers(lens);
        // The outermost length of an array is not used, because the distances between transforms are given.
        let array = |side: Side| numbers([side.lens[0], side.array[0], side.array[1]]);
        let (mut input_array, mut output_array) = (array(input), array(output));
        let (mut handle, mut work) = (none, 0);
        // SAFETY: the pointer is to a local, and nothing is enqueued.
        unsafe { stream.external("create", (), |_, ()| api.create(&raw mut handle)) }?;
        let nowhere = Address(usize::MAX);
        let state = Mutex::new(State { handle, stream: RawStream(usize::MAX), work: nowhere });
        // From here on, dropping it destroys the handle.
        let plan = Self { api, number, state, stream };
        // SAFETY: the pointers are to locals with `rank` numbers each, and nothing is enqueued.
        unsafe {
            plan.stream.external("plan", (), |_, ()| {
                api.set_auto_allocation(handle, 0)?;
                let (rank, batch, work) = (rank as c_int, input.batch as c_longlong, &raw mut work);
                let lens = lens[first..].as_mut_ptr();
                let (x, y) = (input_array[first..].as_mut_ptr(), output_array[first..].as_mut_ptr());
                let [(x_step, x_distance), (y_step, y_distance)] =
                    [input, output].map(|side| (side.steps[2] as c_longlong, side.distance as c_longlong));
                match number {
                    Number::Type(number) => api.make_plan(
                        handle, rank, lens, x, x_step, x_distance, y, y_step, y_distance, number, batch, work,
                    ),
                    Number::Half { input, output } => api.make_plan_of_types(
                        handle,
                        rank,
                        lens,
                        x,
                        x_step,
                        x_distance,
                        input as u32,
                        y,
                        y_step,
                        y_distance,
                        output as u32,
                        batch,
                        work,
                        DataType::C16 as u32,
                    ),
                }
            })
        }?;
        Ok((plan, work))
    }
}

impl<Handle: Copy> Transforms for PlanHandle<Handle> {
    unsafe fn run(
        &self,
        stream: RawStream,
        work: Address,
        direction: Direction,
        from: Address,
        to: Address,
    ) -> Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (api, handle) = (self.api, state.handle);
        let sign = if direction == Direction::Forward { -1 } else { 1 };
        let (x, y): (*mut c_void, *mut c_void) = (from.write(), to.write());
        // SAFETY: by this function's contract.
        unsafe {
            if state.stream != stream {
                api.set_stream(handle, stream.0 as *mut c_void)?;
                state.stream = stream;
            }
            if state.work != work {
                api.set_work_area(handle, work.write())?;
                state.work = work;
            }
            match self.number {
                Number::Type(0x29) => api.complex(handle, x, y, sign),
                Number::Type(0x2a) => api.real_to_half(handle, x, y),
                Number::Type(0x2c) => api.half_to_real(handle, x, y),
                Number::Type(0x6a) => api.real_to_half_double(handle, x, y),
                Number::Type(0x6c) => api.half_to_real_double(handle, x, y),
                Number::Type(_) => api.complex_double(handle, x, y, sign),
                Number::Half { .. } => api.transform(handle, x, y, sign),
            }
        }
    }
}

impl<Handle: Copy> Drop for PlanHandle<Handle> {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let (api, handle) = (self.api, state.handle);
        // SAFETY: the handle is not used again, and its work is done.
        let _ = unsafe { self.stream.external("destroy", (), |_, ()| api.destroy(handle)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hip_bindings::hipfftType_t as HipType;
    use cudarc::cufft::sys::cufftType as Type;

    #[test]
    fn numbers_are_those_of_cufft_and_hipfft() {
        let shape = super::super::FftShape::new_1d(4);
        let number = |kind: Kind, is_double: bool| {
            let [input, output] = shape.sides(kind.halves()).unwrap();
            let transform = Transform { kind, rank: 1, input, output };
            let kind =
                if is_double { PlanKind::new::<f64>(&transform) } else { PlanKind::new::<f32>(&transform) };
            kind.number
        };
        let complex = Kind::Complex(Direction::Forward);
        let all = [
            (number(complex, false), Type::CUFFT_C2C, HipType::HIPFFT_C2C),
            (number(complex, true), Type::CUFFT_Z2Z, HipType::HIPFFT_Z2Z),
            (number(Kind::ToHalf, false), Type::CUFFT_R2C, HipType::HIPFFT_R2C),
            (number(Kind::ToHalf, true), Type::CUFFT_D2Z, HipType::HIPFFT_D2Z),
            (number(Kind::FromHalf, false), Type::CUFFT_C2R, HipType::HIPFFT_C2R),
            (number(Kind::FromHalf, true), Type::CUFFT_Z2D, HipType::HIPFFT_Z2D),
        ];
        for (ours, cuda, hip) in all {
            assert_eq!((ours, ours), (Number::Type(cuda as u32), Number::Type(hip as u32)));
        }
    }
}
