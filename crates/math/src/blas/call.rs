//! One call of a BLAS library in a stream: its scalars, its workspace and its key.

use std::ffi::{c_int, c_void};
use std::hash::Hash;
use std::ptr;

use gpustream::hal::RawStream;
use gpustream::half::f16;
use gpustream::{Arg, AsView as _, Buffer, ErrorKind, Result, Stream, View, bytemuck};
use smallvec::SmallVec;

use super::library::{Library, PointerMode, compute};
use crate::call::{Address, mismatch, refusal};
use crate::keys::key_of;
use crate::number::{Number, Scalar};
use crate::workspace::Workspace;

/// The bytes of a scalar, in the type that the library reads. cuBLAS reads complex numbers of `f64` from the host by instructions
/// that need this alignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C, align(16))]
struct Bytes([u8; 16]);

/// The scalars of a call. A library reads all of them from the host, or all of them from the device.
pub(super) struct Scalars<'a> {
    on_host: [Option<Bytes>; 2],
    on_device: [Option<View<'a, u8>>; 2],
    /// Scalars that the host knows, and that have to be on the device for the other one's sake.
    uploaded: [Option<Buffer<u8>>; 2],
    mode: PointerMode,
}

/// Checks that a scalar on the device is one element.
#[track_caller]
pub(super) fn check_scalars<S: Number>(label: &'static str, scalars: &[Scalar<'_, S>]) -> Result<()> {
    for scalar in scalars {
        if let Scalar::Device(view) = scalar
            && view.len() != 1
        {
            let text = format!("a scalar in a view of {} elements: give a view of one", view.len());
            return Err(mismatch(label, text));
        }
    }
    Ok(())
}

impl<'a> Scalars<'a> {
    /// Takes the scalars of a call.
    #[track_caller]
    pub(super) fn new<S: Number, const N: usize>(
        stream: &Stream,
        scalars: [Scalar<'a, S>; N],
    ) -> Result<Self> {
        let mut all = Self::read_from(scalars.iter().any(Scalar::is_on_device));
        for (at, scalar) in scalars.into_iter().enumerate().take(2) {
            all.set(stream, at, scalar)?;
        }
        Ok(all)
    }

    /// Takes two scalars of different types.
    #[track_caller]
    pub(super) fn of_types<S: Number, T: Number>(
        stream: &Stream,
        first: Scalar<'a, S>,
        second: Scalar<'a, T>,
    ) -> Result<Self> {
        let mut all = Self::read_from(first.is_on_device() || second.is_on_device());
        all.set(stream, 0, first)?;
        all.set(stream, 1, second)?;
        Ok(all)
    }

    fn read_from(device: bool) -> Self {
        let mode = if device { PointerMode::Device } else { PointerMode::Host };
        Self { on_host: [None; 2], on_device: [None; 2], uploaded: [const { None }; 2], mode }
    }

    /// Takes one scalar. If the library reads them from the device, it goes there.
    #[track_caller]
    fn set<S: Number>(&mut self, stream: &Stream, at: usize, scalar: Scalar<'a, S>) -> Result<()> {
        match scalar {
            Scalar::Device(view) => self.on_device[at] = Some(view.cast()?),
            Scalar::Host(value) if self.mode == PointerMode::Device => {
                let mut memory = stream.alloc::<u8>(size_of::<S>())?;
                stream.fill(&mut memory.cast_mut::<S>()?, value)?;
                self.uploaded[at] = Some(memory);
            }
            Scalar::Host(value) => {
                let bytes = &mut self.on_host[at].insert(Bytes([0; 16])).0;
                let own = bytemuck::bytes_of(&value);
                bytes[..own.len()].copy_from_slice(own);
            }
        }
        Ok(())
    }

    /// Takes the scalars of a product, in the type that its way to compute wants.
    #[track_caller]
    pub(super) fn of_product<S: Number>(
        stream: &Stream,
        scalars: [Scalar<'a, S>; 2],
        compute: u32,
    ) -> Result<Self> {
        let scalars = Self::new(stream, scalars)?;
        if compute == compute::F16 { scalars.in_f16() } else { Ok(scalars) }
    }

    /// Returns the scalars of a call that has none, and whose result goes to the device.
    pub(super) fn of_result() -> Self {
        Self::read_from(true)
    }

    /// Turns scalars of `f32` into `f16`.
    #[track_caller]
    fn in_f16(mut self) -> Result<Self> {
        if self.mode == PointerMode::Device {
            let text = "`Compute::F16` takes scalars in `f16`, which views of `f32` are not; give scalars that the host knows";
            return Err(refusal(ErrorKind::InvalidArgument, "gemm", text.to_owned()));
        }
        for Bytes(bytes) in self.on_host.iter_mut().flatten() {
            let wide = f32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            bytes[..2].copy_from_slice(&f16::from_f32(wide).to_ne_bytes());
        }
        Ok(self)
    }

    /// Returns where the library reads the scalars.
    pub(super) fn mode(&self) -> PointerMode {
        self.mode
    }

    fn views(&self) -> [Option<View<'_, u8>>; 2] {
        [0, 1].map(|at| self.on_device[at].or_else(|| self.uploaded[at].as_ref().map(|buffer| buffer.view())))
    }
}

/// Enqueues one call of the library. `call` gets the handle, and the addresses of the scalars.
///
/// # Safety
/// The call goes to the handle's stream, reads the scalars, keeps to `memory`, and depends on nothing but the label, `description`,
/// the scalars and the memory.
#[track_caller]
pub(super) unsafe fn enqueue<'a, D: Eq + Hash + Send + 'static>(
    stream: &Stream,
    label: &'static str,
    library: &Library,
    scalars: &'a Scalars<'_>,
    description: D,
    memory: SmallVec<[Arg<'a>; 6]>,
    call: impl FnOnce(*mut c_void, [*const c_void; 2]) -> Result<()>,
) -> Result<()> {
    // SAFETY: by this function's contract. The handle lives as long as the device.
    unsafe {
        enqueue_with(stream, label, &library.workspace, scalars, description, memory, |raw, workspace, at| {
            let state = library.begin(raw, workspace, scalars.mode)?;
            call(state.handle, at)
        })
    }
}

/// Enqueues one call with workspace. `call` gets the stream, and the addresses of the workspace and the scalars.
///
/// # Safety
/// As for [`enqueue`]; besides, the call may write the workspace.
#[track_caller]
pub(super) unsafe fn enqueue_with<'a, D: Eq + Hash + Send + 'static>(
    stream: &Stream,
    label: &'static str,
    workspace: &Workspace,
    scalars: &'a Scalars<'_>,
    description: D,
    memory: SmallVec<[Arg<'a>; 6]>,
    call: impl FnOnce(RawStream, Address, [*const c_void; 2]) -> Result<()>,
) -> Result<()> {
    let views = scalars.views();
    let key = key_of(stream, (label, description, scalars.on_host))?;
    let at = [0, 1].map(|at| match (&views[at], &scalars.on_host[at]) {
        (Some(view), _) => view.as_raw().0 as *const c_void,
        (None, Some(bytes)) => bytes.0.as_ptr().cast(),
        (None, None) => ptr::null(),
    });
    workspace.lend(stream, |work| {
        let address = Address(work.as_raw().0);
        // For as long as the workspace is borrowed.
        let mut all: SmallVec<[Arg<'_>; 6]> = memory.into_iter().map(|arg| arg as Arg<'_>).collect();
        all.push(Arg::write(work));
        all.extend(views.iter().flatten().map(Arg::read));
        // SAFETY: by this function's contract. The workspace is written too.
        unsafe { stream.external_keyed(label, &all[..], key, |raw, ()| call(raw, address, at)) }
    })
}

/// Returns the numbers as a C `int`, if they all fit.
pub(super) fn small<const N: usize>(numbers: [usize; N]) -> Option<[c_int; N]> {
    let mut small = [0; N];
    for (small, number) in small.iter_mut().zip(numbers) {
        *small = number.try_into().ok()?;
    }
    Some(small)
}
