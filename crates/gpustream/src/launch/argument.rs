//! The arguments of a launch.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::sync::Arc;

use gpustream_core::memory::Access;
use gpustream_core::operation::Argument;
use gpustream_core::track::Mode;
use gpustream_hal::cold_path::cold_path;
use gpustream_hal::{ArgumentMemory, Error, ErrorKind, RawBuffer, Result};

use crate::module::Kernel;
use crate::plain::Plain;
use crate::stream::Stream;
use crate::surface::Surface;
use crate::texture::Texture;
use crate::view::{AsView, AsViewMut, View, ViewMut};
use crate::volatile::{Volatile, VolatileMut};

/// How many parameters a kernel may have.
const MAX_ARGS: usize = 64;

/// How many accesses to module variables a launch can count as.
const MAX_GLOBALS: usize = 2;

/// One argument of a launch.
///
/// An `Arg` is neither `Send` nor `Sync`, because it points to a value of the calling thread. Dropping it does nothing.
pub struct Arg<'a> {
    kind: ArgKind<'a>,
}

enum ArgKind<'a> {
    Value { bytes: *const u8, size: usize, lifetime: PhantomData<&'a ()> },
    Memory { address: usize, access: Access<'a>, device: &'a crate::Device, borrow: Borrow },
}

/// What is borrowed for an argument that is memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Borrow {
    /// The memory itself, so a written argument cannot overlap another argument. Its elements have this many bytes.
    Memory { element: u32 },
    /// A texture or a surface, which shares its memory with others.
    Object,
}

impl<'a> Arg<'a> {
    /// Passes a scalar or a struct by value.
    #[inline]
    pub fn value<T: Plain>(value: &'a T) -> Self {
        let bytes = std::ptr::from_ref(value).cast();
        Self { kind: ArgKind::Value { bytes, size: size_of::<T>(), lifetime: PhantomData } }
    }

    /// Passes a pointer to memory that the kernel reads.
    #[inline]
    pub fn read<T: Plain>(memory: &'a (impl AsView<T> + ?Sized)) -> Self {
        Self::of_view(memory.view())
    }

    /// Passes a pointer to memory that the kernel writes and may also read.
    #[inline]
    pub fn write<T: Plain>(memory: &'a mut (impl AsViewMut<T> + ?Sized)) -> Self {
        Self::of_view_mut(memory.view_mut())
    }

    #[inline]
    pub(crate) fn of_view<T: Plain>(view: View<'a, T>) -> Self {
        Self::memory(view, view.access(Mode::Read))
    }

    #[inline]
    #[allow(clippy::needless_pass_by_value)] // Taking it by value keeps it unique.
    pub(crate) fn of_view_mut<T: Plain>(memory: ViewMut<'a, T>) -> Self {
        let view = memory.into_view();
        Self::memory(view, view.access(Mode::Write))
    }

    /// Passes a pointer to memory that the kernel reads while it may change: `Arg::volatile(flag.volatile())`.
    #[inline]
    pub fn volatile<T: Plain>(memory: Volatile<'a, T>) -> Self {
        Self::memory(memory.view, memory.access(Mode::Read))
    }

    /// Passes a pointer to memory that the kernel writes while others may use it: `Arg::volatile_mut(flag.volatile_mut())`.
    #[inline]
    #[allow(clippy::needless_pass_by_value)] // Taking it by value keeps it unique.
    pub fn volatile_mut<T: Plain>(memory: VolatileMut<'a, T>) -> Self {
        Self::memory(memory.0.view, memory.0.access(Mode::Write))
    }

    /// Passes a texture (`cudaTextureObject_t`), whose array the kernel reads.
    #[inline]
    pub fn texture(texture: &'a Texture) -> Self {
        Self::object(texture.argument())
    }

    /// Passes a surface (`cudaSurfaceObject_t`), whose array the kernel reads and writes.
    #[inline]
    pub fn surface(surface: &'a mut Surface) -> Self {
        Self::object(surface.argument())
    }

    #[inline]
    fn object((address, access, device): (usize, Access<'a>, &'a crate::Device)) -> Self {
        Self { kind: ArgKind::Memory { address, access, device, borrow: Borrow::Object } }
    }

    #[inline]
    fn memory<T: Plain>(view: View<'a, T>, access: Access<'a>) -> Self {
        let (address, device) = (view.as_raw().0, view.device);
        let borrow = Borrow::Memory { element: const { size_of::<T>() as u32 } };
        Self { kind: ArgKind::Memory { address, access, device, borrow } }
    }

    /// Returns the argument as the core knows it, or `None` if it is memory of another device.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "the path of a deferred operation")]
    pub(super) fn on(&self, device: &crate::Device) -> Option<Argument<'_>> {
        match &self.kind {
            &ArgKind::Value { bytes, size, .. } => Some(Argument::Value { bytes, size }),
            ArgKind::Memory { address, access, device: own, .. } => {
                own.is_same(device).then_some(Argument::Memory { address, access })
            }
        }
    }

    /// Returns the address of the argument's memory, or 0 if the argument is a value.
    #[inline]
    pub(crate) fn address(&self) -> RawBuffer {
        match self.kind {
            ArgKind::Value { .. } => RawBuffer(0),
            ArgKind::Memory { address, .. } => RawBuffer(address),
        }
    }

    /// Returns the memory that a kernel gets as argument `number`, for a device that checks accesses. `None` for a value, a
    /// texture and a surface.
    fn lent(&self, number: usize) -> Option<ArgumentMemory> {
        match &self.kind {
            ArgKind::Memory { address, access, borrow: Borrow::Memory { element }, .. } => {
                Some(ArgumentMemory {
                    argument: number,
                    address: RawBuffer(*address),
                    bytes: access.range.len(),
                    element: *element as usize,
                    writes: access.mode != Mode::Read,
                })
            }
            _ => None,
        }
    }

    /// Returns the argument's memory and its device, or `None` if the argument is a value.
    pub(crate) fn access(&self) -> Option<(&Access<'a>, &'a crate::Device)> {
        match &self.kind {
            ArgKind::Value { .. } => None,
            ArgKind::Memory { access, device, .. } => Some((access, device)),
        }
    }

    /// Returns how many bytes the parameter has that takes this argument.
    fn size(&self) -> usize {
        match self.kind {
            ArgKind::Value { size, .. } => size,
            ArgKind::Memory { .. } => size_of::<usize>(),
        }
    }
}

/// The addresses from which the driver reads a launch's arguments.
pub(super) struct Pointers {
    room: [MaybeUninit<*mut c_void>; MAX_ARGS],
    /// How many addresses have been written.
    len: usize,
}

impl Pointers {
    #[inline]
    pub(super) const fn new() -> Self {
        Self { room: [const { MaybeUninit::uninit() }; MAX_ARGS], len: 0 }
    }

    #[inline]
    pub(super) fn filled(&self) -> &[*mut c_void] {
        // SAFETY: `len` addresses have been written, which is at most as many as there is room for.
        unsafe { std::slice::from_raw_parts(self.room.as_ptr().cast(), self.len) }
    }
}

/// Room for the memory that a kernel touches: its arguments and its module's variables.
pub(super) struct AccessRoom<'a>([MaybeUninit<&'a Access<'a>>; MAX_ARGS + MAX_GLOBALS]);

impl AccessRoom<'_> {
    #[inline]
    pub(super) const fn new() -> Self {
        Self([const { MaybeUninit::uninit() }; MAX_ARGS + MAX_GLOBALS])
    }
}

/// Checks the arguments of `kernel`, and writes them as the driver needs them and as the tracker needs them, in one walk. The
/// tracker also gets `globals`, at most [`MAX_GLOBALS`] of them.
#[inline]
pub(super) fn lower<'t, 'a>(
    kernel: &Kernel,
    stream: &Stream,
    args: &'a [Arg<'_>],
    globals: &'a [Access<'a>],
    pointers: &mut Pointers,
    AccessRoom(accesses): &'t mut AccessRoom<'a>,
) -> Result<&'t [&'a Access<'a>]> {
    let sizes = kernel.params.as_deref();
    let mut matches = args.len() <= MAX_ARGS && sizes.is_none_or(|sizes| sizes.len() == args.len());
    let sizes = sizes.unwrap_or_default();
    let (mut touched, mut objects) = (0, false);
    for (index, (arg, to)) in args.iter().zip(&mut pointers.room).enumerate() {
        let (pointer, size) = match &arg.kind {
            ArgKind::Value { bytes, size, .. } => (*bytes, *size),
            ArgKind::Memory { address, access, device, borrow } => {
                if !stream.device.0.reaches(&device.0, access.block.kind)? {
                    let what = format!("argument {} of `{}`", index + 1, kernel.name);
                    return Err(stream.foreign(&what, device));
                }
                accesses[touched].write(access);
                touched += 1;
                objects |= *borrow == Borrow::Object;
                (std::ptr::from_ref(address).cast(), size_of::<usize>())
            }
        };
        to.write(pointer.cast_mut().cast());
        matches &= sizes.get(index).is_none_or(|wants| *wants == size);
    }
    if !matches {
        return Err(argument_mismatch(kernel, args));
    }
    if !globals.is_empty() {
        cold_path();
        for (access, to) in globals.iter().zip(&mut accesses[touched..]) {
            to.write(access);
            touched += 1;
        }
    }
    if objects {
        check_objects(args)?;
    }
    pointers.len = args.len();
    // SAFETY: `touched` of them have been written.
    Ok(unsafe { std::slice::from_raw_parts(accesses.as_ptr().cast(), touched) })
}

/// Returns the memory of all arguments, for a device that checks accesses.
#[cold]
pub(super) fn lent(args: &[Arg<'_>]) -> Vec<ArgumentMemory> {
    args.iter().enumerate().filter_map(|(number, arg)| arg.lent(number)).collect()
}

/// Checks that a kernel does not write memory that it also gets as a texture or a surface. Devices do not keep these two ways
/// to the memory coherent within a kernel, and a compiler may fetch twice.
#[inline(never)]
fn check_objects(args: &[Arg<'_>]) -> Result<()> {
    let memory = |arg: &'_ Arg<'_>| match &arg.kind {
        ArgKind::Memory { access, borrow, .. } => {
            Some((Arc::as_ptr(access.block), access.mode == Mode::Write, *borrow))
        }
        ArgKind::Value { .. } => None,
    };
    for (at, (block, written, borrow)) in
        args.iter().enumerate().filter_map(|(at, arg)| Some((at, memory(arg)?)))
    {
        for (other, other_written, other_borrow) in args[..at].iter().filter_map(memory) {
            let is_object = [borrow, other_borrow].contains(&Borrow::Object);
            if block == other && is_object && (written || other_written) {
                return Err(Error::new(
                    ErrorKind::InvalidArgument,
                    "the launch writes memory that it also reads or writes through a texture or a surface; a kernel cannot see \
                     its own writes there, so pass the memory in one way only, or write other memory",
                ));
            }
        }
    }
    Ok(())
}

#[cold]
fn argument_mismatch(kernel: &Kernel, args: &[Arg<'_>]) -> Error {
    let given: Vec<usize> = args.iter().map(Arg::size).collect();
    let wants = match &kernel.params {
        Some(params) if params.len() <= MAX_ARGS => {
            format!("takes {} parameters of {params:?} bytes", params.len())
        }
        _ => format!("takes at most {MAX_ARGS} parameters"),
    };
    Error::new(
        ErrorKind::ArgumentMismatch,
        format!(
            "kernel `{}` {wants}, and was given {} of {given:?} bytes; pass what it takes",
            kernel.name,
            given.len()
        ),
    )
}
