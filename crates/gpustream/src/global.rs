//! Variables of a module: `__constant__` and `__device__` memory that kernels reach by name.

use std::any::type_name;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Range, RangeBounds};
use std::sync::Arc;

use gpustream_core::memory::{Access, Block};
use gpustream_core::module_core::ModuleCore;
use gpustream_core::operation::{call_site, named};
use gpustream_core::track::Mode;
use gpustream_hal::{Error, ErrorKind, RawBuffer, Result};
use smallvec::SmallVec;

use crate::device::Device;
use crate::module::Module;
use crate::plain::Plain;
use crate::stream::Stream;
use crate::view::{AsView, AsViewMut, View, ViewMut, kernel_alignment};

/// A variable that a module's source declares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GlobalVariable<'a> {
    /// Your name for the variable, with its namespaces: `solver::weights`. The image may use another
    /// ([`Image::symbols`](crate::Image::symbols)).
    pub name: &'a str,
    /// The kind of memory that it is in.
    pub memory: GlobalMemory,
}

/// The kind of memory that a variable is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GlobalMemory {
    /// `__constant__`: kernels read the variable, and only the host writes it.
    Constant,
    /// `__device__`: kernels read and write the variable.
    Device,
}

/// A variable as the driver found it.
struct Variable {
    name: String,
    memory: GlobalMemory,
    /// Its address and its size in bytes, or the error if the image has no such variable.
    place: Result<(usize, usize)>,
}

impl Variable {
    fn range(&self) -> Range<usize> {
        self.place.as_ref().map_or(0..0, |&(start, bytes)| start..start + bytes)
    }
}

/// The variables of one kind, as the tracker knows them.
struct Tracked {
    /// The memory that begins with the first variable.
    block: Arc<Block>,
    /// How many bytes it is to the end of the last variable.
    bytes: usize,
}

impl Tracked {
    fn access(&self, mode: Mode) -> Access<'_> {
        Access { block: &self.block, range: 0..self.bytes, mode }
    }
}

/// The variables of a loaded module.
///
/// We cannot see which variables a kernel uses. So each launch counts as reading all constants of its module and as writing all
/// its other variables.
pub(crate) struct Globals {
    variables: Vec<Variable>,
    constants: Option<Tracked>,
    writable: Option<Tracked>,
}

impl Globals {
    /// Finds the variables of a module that `device` has just loaded, by the symbols that `symbol` returns. `unlisted` is true
    /// if kernels may write other variables too. Returns `None` if there are no variables at all.
    pub(crate) fn find<'s>(
        device: &Device,
        module: &Arc<ModuleCore>,
        variables: &[GlobalVariable<'s>],
        unlisted: bool,
        symbol: impl Fn(&'s str) -> &'s str,
    ) -> Result<Option<Arc<Self>>> {
        if variables.is_empty() && !unlisted {
            return Ok(None);
        }
        let mut found = Vec::new();
        for &GlobalVariable { name, memory } in variables {
            // SAFETY: the module is loaded.
            let place = match unsafe { device.raw().module_global(module.raw(), symbol(name)) } {
                Ok((address, bytes)) => Ok((address.0, bytes)),
                Err(error) if matches!(error.kind(), ErrorKind::GlobalNotFound | ErrorKind::Unsupported) => {
                    Err(error)
                }
                Err(error) => return Err(error),
            };
            found.push(Variable { name: name.to_owned(), memory, place });
        }
        let track = |memory: GlobalMemory| {
            let of_kind = || found.iter().filter(move |variable| variable.memory == memory);
            if of_kind().next().is_none() && !(unlisted && memory == GlobalMemory::Device) {
                return None;
            }
            let ranges = || of_kind().map(Variable::range).filter(|range| !range.is_empty());
            let start = ranges().map(|range| range.start).min().unwrap_or(0);
            // Even if the driver does not show a variable, kernels may share it, so we need at least one byte to track.
            let bytes = ranges().map(|range| range.end - start).max().unwrap_or(1);
            // SAFETY: the variables belong to the module. Each launch and each copy counts as a use.
            let block = unsafe { device.0.pools.of_module(module.clone(), RawBuffer(start), bytes) };
            Some(Tracked { block, bytes })
        };
        let (constants, writable) = (track(GlobalMemory::Constant), track(GlobalMemory::Device));
        Ok(Some(Arc::new(Self { variables: found, constants, writable })))
    }

    /// Returns what a launch of any kernel of the module uses.
    pub(crate) fn accesses(&self) -> SmallVec<[Access<'_>; 2]> {
        let constants = self.constants.iter().map(|constants| constants.access(Mode::Read));
        constants.chain(self.writable.iter().map(|writable| writable.access(Mode::Write))).collect()
    }

    fn tracked(&self, memory: GlobalMemory) -> Option<&Tracked> {
        match memory {
            GlobalMemory::Constant => self.constants.as_ref(),
            GlobalMemory::Device => self.writable.as_ref(),
        }
    }
}

/// A variable of a module, as `len` elements: `__constant__` or `__device__` memory that the module's kernels reach by name.
/// Generated bindings have a method for each variable of a kernel file, or you find one by name with [`Module::global`].
///
/// Each time you load a module, you get a new copy of its variables. They start with the source's values, or zeros, and keep
/// what was written last until the module is unloaded.
///
/// Copies are ordered like those of a [`Buffer`](crate::Buffer). But we cannot see which variables a kernel uses, so **each
/// launch of a kernel counts as reading all `__constant__` variables of its module, and as writing all its `__device__`
/// variables**. That means launches from a module with `__device__` variables never overlap. If your kernels should overlap,
/// put them into a file without such variables. A graph's launch counts as the launches in the graph, and its kernels see the
/// values of that moment.
///
/// You cannot pass a variable to a kernel as an argument, because the kernel also reaches the memory by its name.
///
/// A `Global` is `Send` and `Sync`, and keeps its module loaded. Dropping it returns at once.
pub struct Global<T> {
    module: Module,
    block: Arc<Block>,
    /// The first byte in the block.
    start: usize,
    /// The number of elements, which are all inside the block.
    len: usize,
    element: PhantomData<T>,
}

impl<T> Clone for Global<T> {
    fn clone(&self) -> Self {
        let Self { module, block, start, len, .. } = self;
        Self { module: module.clone(), block: block.clone(), start: *start, len: *len, element: PhantomData }
    }
}

impl Module {
    /// Finds a variable by name, among those that the module was loaded with ([`ModuleSource::globals`]), as elements of `T`.
    /// `gpustream-build` uses qualified names: `solver::weights`.
    ///
    /// # Errors
    /// [`ErrorKind::GlobalNotFound`] if the module was loaded without such a variable, or if the image has none, because a
    /// compiler may remove a `static` variable or hide it from the driver. [`ErrorKind::ArgumentMismatch`] if the variable is
    /// not a whole number of such elements, or is not aligned for them.
    ///
    /// # Safety
    /// Every kernel of the module that you can launch without `unsafe` must be sound, whatever elements of `T` the variable
    /// holds.
    ///
    /// [`ModuleSource::globals`]: crate::ModuleSource::globals
    #[track_caller]
    pub unsafe fn global<T: Plain>(&self, name: &str) -> Result<Global<T>> {
        named(call_site("global"), || {
            self.find_global(name).map_err(|error| {
                error.with_context(format_args!("looking for variable `{name}` in module `{}`", self.name()))
            })
        })
    }

    fn find_global<T: Plain>(&self, name: &str) -> Result<Global<T>> {
        let globals = self.globals();
        let known = || globals.into_iter().flat_map(|globals| &globals.variables);
        let Some(variable) = known().find(|variable| variable.name == name) else {
            let names: Vec<&str> = known().map(|variable| &*variable.name).collect();
            let has = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            let message = format!("the module was not loaded with this variable; use one that it has: {has}");
            return Err(Error::new(ErrorKind::GlobalNotFound, message));
        };
        let (address, bytes) = variable.place.clone()?;
        let mismatch = |why: String| {
            let message = format!(
                "the {bytes} bytes at {address:#x} cannot be elements of `{}`: {why}",
                type_name::<T>()
            );
            Err(Error::new(ErrorKind::ArgumentMismatch, message))
        };
        match bytes.checked_rem(size_of::<T>()) {
            None => return mismatch("the type has no bytes; use the variable's type".to_owned()),
            Some(0) => {}
            Some(rest) => {
                return mismatch(format!(
                    "one has {} bytes, and {rest} are left over; use the variable's type",
                    size_of::<T>()
                ));
            }
        }
        if !address.is_multiple_of(align_of::<T>()) {
            return mismatch(format!(
                "one must be at a multiple of {} bytes; use the variable's type",
                align_of::<T>()
            ));
        }
        let Some(Tracked { block, .. }) = globals.and_then(|globals| globals.tracked(variable.memory)) else {
            return mismatch("the module does not track the variable; please report this bug".to_owned());
        };
        // A variable without bytes may be anywhere.
        let start = if bytes == 0 { 0 } else { address - block.address.0 };
        let (module, len) = (self.clone(), bytes / size_of::<T>());
        Ok(Global { module, block: block.clone(), start, len, element: PhantomData })
    }
}

impl<T: Plain> Global<T> {
    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the device that the module is loaded on.
    pub fn device(&self) -> &Device {
        self.module.device()
    }

    /// Returns the elements of `range`.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfBounds`] if the range ends after the last element.
    #[track_caller]
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Self> {
        named(call_site("slice"), || {
            let View { start, len, .. } = self.view().part(range)?;
            Ok(Self { start, len, ..self.clone() })
        })
    }

    /// Copies `values` to the variable. Blocks as [`Stream::upload_into`] does.
    ///
    /// # Errors
    /// [`ErrorKind::ArgumentMismatch`] if the lengths differ; [`ErrorKind::DeviceMismatch`] if the stream belongs to another
    /// device; [`ErrorKind::Captured`] in a capture, where you can use [`copy_from`](Self::copy_from) instead.
    #[track_caller]
    pub fn upload(&self, stream: &Stream, values: &[T]) -> Result<()> {
        named(call_site("upload"), || self.check_device(stream))?;
        stream.upload_into(values, &mut self.view_mut())
    }

    /// Copies the variable to the host. Blocks until this copy is done, including the work that it depends on. It does not wait
    /// for anything else.
    ///
    /// # Errors
    /// [`ErrorKind::DeviceMismatch`] if the stream belongs to another device; [`ErrorKind::Captured`] in a capture.
    #[track_caller]
    pub fn download(&self, stream: &Stream) -> Result<Vec<T>> {
        named(call_site("download"), || self.check_device(stream))?;
        stream.download(&self.view())
    }

    /// Sets every element to `value`, in the stream's order.
    ///
    /// # Errors
    /// As for [`Stream::fill`]; [`ErrorKind::DeviceMismatch`] if the stream belongs to another device.
    #[track_caller]
    pub fn fill(&self, stream: &Stream, value: T) -> Result<()> {
        named(call_site("fill"), || self.check_device(stream))?;
        // A driver can only fill with patterns of up to four bytes, at multiples of their size.
        if self.as_raw().0.is_multiple_of(kernel_alignment(size_of::<T>()).min(4)) {
            stream.fill(&mut self.view_mut(), value)
        } else {
            stream.upload_into(&vec![value; self.len], &mut self.view_mut())
        }
    }

    /// Copies device or pinned memory to the variable in the stream's order, like [`Stream::copy`].
    ///
    /// # Errors
    /// As for [`Stream::copy`]; [`ErrorKind::DeviceMismatch`] if the stream belongs to another device.
    #[track_caller]
    pub fn copy_from(&self, stream: &Stream, src: &(impl AsView<T> + ?Sized)) -> Result<()> {
        named(call_site("copy_from"), || self.check_device(stream))?;
        stream.copy(src, &mut self.view_mut())
    }

    /// Copies the variable to device or pinned memory in the stream's order, like [`Stream::copy`].
    ///
    /// # Errors
    /// As for [`Stream::copy`]; [`ErrorKind::DeviceMismatch`] if the stream belongs to another device.
    #[track_caller]
    pub fn copy_to(&self, stream: &Stream, dst: &mut (impl AsViewMut<T> + ?Sized)) -> Result<()> {
        named(call_site("copy_to"), || self.check_device(stream))?;
        stream.copy(&self.view(), dst)
    }

    /// Returns the address of the first element as kernels see it. If you use the address, we cannot track it.
    pub fn as_raw(&self) -> RawBuffer {
        self.view().as_raw()
    }

    fn view(&self) -> View<'_, T> {
        View::at(&self.block, self.module.device(), self.start, self.len)
    }

    /// Returns the memory as an exclusive view, although kernels and other handles can reach it without a borrow. That is
    /// sound, as for memory that graphs use, because the tracker only lets one operation at a time in, and the host has no
    /// access.
    fn view_mut(&self) -> ViewMut<'_, T> {
        ViewMut::new(self.view())
    }

    /// Checks that the stream was made with the same handle of the device, because a module belongs to one handle.
    fn check_device(&self, stream: &Stream) -> Result<()> {
        self.device().check_made(stream, "variable's module")
    }
}

impl<T> fmt::Debug for Global<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { module, block, start, len, .. } = self;
        let address = block.address.offset(*start);
        write!(f, "Global<{}>({len} elements at {address} of {module:?})", type_name::<T>())
    }
}

/// Returns a variable of a module that `gpustream-build` built. The bindings declare it as `len` elements.
///
/// # Errors
/// As for [`Module::global`]; [`ErrorKind::ArgumentMismatch`] if it has another number of elements.
///
/// # Safety
/// As for [`Module::global`].
#[track_caller]
pub unsafe fn global_of<T: Plain>(module: &Module, name: &str, len: usize) -> Result<Global<T>> {
    // SAFETY: handed on.
    let global = unsafe { module.global::<T>(name) }?;
    if global.len == len {
        return Ok(global);
    }
    let message = format!(
        "variable `{name}` of module `{}` was compiled with {} elements, and its bindings expect {len}; build both from \
         the same source",
        module.name(),
        global.len
    );
    Err(Error::new(ErrorKind::ArgumentMismatch, message))
}
