//! Modules: compiled kernels on a device.

mod compile;
mod load;

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use gpustream_core::deferred_drop::ForeignOwner;
use gpustream_core::launch::RowLimits;
use gpustream_core::module_core::ModuleCore;
use gpustream_core::operation::{call_site, named};
use gpustream_core::reentrancy;
use gpustream_core::sync::{Mutex, lock};
use gpustream_hal::{
    Error, ErrorKind, FunctionInfo, Image, ParamInfo, RawFunction, RawModule, Result, SuggestedLaunch,
};

pub use self::compile::{Build, Compile};
pub(crate) use self::load::load;
pub use self::load::{Variables, load_built};
use crate::device::Device;
use crate::global::{GlobalVariable, Globals};
use crate::launch::{Parameters, TypedKernel, placed};

/// The images that a module can be loaded from, for any backend. `gpustream-build` embeds one of these in your program. If you
/// have a source text instead, see [`Device::compile`].
#[derive(Clone, Copy, Debug)]
pub struct ModuleSource<'a> {
    /// The module's name in messages.
    pub name: &'a str,
    /// The compiled forms. There may be any number, for different backends and targets.
    pub images: &'a [Image<'a>],
    /// The variables that the source declares as `__constant__` or `__device__` and that are not `const`. Launches are ordered
    /// by them: if one is a [`GlobalMemory::Device`](crate::GlobalMemory::Device), launches of the module never overlap.
    pub globals: &'a [GlobalVariable<'a>],
}

/// How many bytes each parameter of a kernel has.
type Sizes = Arc<[usize]>;

struct LoadedModule {
    /// Shared with graphs, which keep the module loaded.
    core: Arc<ModuleCore>,
    device: Device,
    name: String,
    /// Kernels and variables that the loaded image knows by another name: your name, and the image's symbol.
    symbols: Vec<(String, String)>,
    /// The sizes of kernels' parameters as bindings declare them, by the kernels' names, because some drivers cannot tell.
    declared: Mutex<HashMap<Arc<str>, Sizes>>,
    /// `None` if the source declares no variables.
    globals: Option<Arc<Globals>>,
}

impl Drop for LoadedModule {
    fn drop(&mut self) {
        // We park the variables' blocks too, because they keep the module loaded.
        self.device.park(Box::new((self.core.clone(), self.globals.take())), None);
    }
}

/// Kernels loaded on one device. Clones are handles of the same module.
///
/// A `Module` is `Send` and `Sync`. Dropping the last handle and the last kernel returns at once. The driver unloads the module
/// when none of its kernels is pending any more.
#[derive(Clone)]
pub struct Module(Arc<LoadedModule>);

/// A kernel of a loaded module.
///
/// A `Kernel` is `Send` and `Sync`. It keeps its module loaded, and dropping it returns at once, like dropping the module.
#[derive(Clone)]
pub struct Kernel {
    pub(crate) raw: RawFunction,
    pub(crate) name: Arc<str>,
    /// The name in errors, graphs and logs: see [`label`].
    pub(crate) label: &'static str,
    pub(crate) info: FunctionInfo,
    pub(crate) limits: RowLimits,
    /// The sizes of the parameters in bytes, or `None` if neither the driver nor bindings have told us.
    pub(crate) params: Option<Arc<[usize]>>,
    /// True once the driver lets the kernel use all dynamic shared memory that the device has.
    pub(crate) may_share_most: Arc<AtomicBool>,
    /// The variables that each launch may use, or `None` if the module has none.
    pub(crate) globals: Option<Arc<Globals>>,
    module: Module,
}

impl Module {
    /// Wraps a module that another library loaded. You find its kernels and variables by the image's names.
    ///
    /// # Safety
    /// `raw` must be a module in `device`'s context that stays loaded until `owner` is dropped. Its kernels and variables must
    /// be what their users promise.
    pub(crate) unsafe fn foreign(device: &Device, raw: RawModule, name: &str, owner: ForeignOwner) -> Self {
        // SAFETY: by this function's contract.
        let core = Arc::new(unsafe { ModuleCore::foreign(raw, owner) });
        let (device, name) = (device.clone(), name.to_owned());
        let (symbols, declared) = (Vec::new(), Mutex::default());
        Self(Arc::new(LoadedModule { core, device, name, symbols, declared, globals: None }))
    }

    /// Finds a kernel by its name, which you may compose at run time. An `extern "C"` kernel has its C name. Any other has the
    /// name that the image gives it ([`Image::symbols`]), or by which you asked for it ([`Compile::instance`]). `gpustream-build`
    /// uses the qualified name, with a template's arguments: `solver::step`, `axpy<float>`.
    ///
    /// Errors, graphs and logs may need a kernel's name after its module is gone. So the process keeps the names of the first
    /// 4096 differently named kernels, and calls later ones "a kernel".
    ///
    /// # Errors
    /// [`ErrorKind::KernelNotFound`] if the module has no such kernel; [`ErrorKind::Unsupported`] if the kernel takes more
    /// bytes of parameters than the device allows.
    #[track_caller]
    pub fn kernel(&self, name: &str) -> Result<Kernel> {
        named(call_site("kernel"), || self.find_kernel(name))
    }

    fn find_kernel(&self, name: &str) -> Result<Kernel> {
        reentrancy::check_outside()?;
        if name.is_empty() {
            let message = format!(
                "module `{}` was asked for a kernel with an empty name; give the kernel's name",
                self.0.name
            );
            return Err(Error::new(ErrorKind::KernelNotFound, message));
        }
        let device = &self.0.device.0.raw;
        // SAFETY: the module is loaded as long as `self`.
        let raw = unsafe { device.module_function(self.0.core.raw(), symbol_of(&self.0.symbols, name)) };
        let raw = raw.map_err(|error| {
            let names = self.0.symbols.iter().map(|(name, _)| format!("`{name}`")).collect::<Vec<_>>();
            let has =
                if names.is_empty() { String::new() } else { format!(", which has {}", names.join(", ")) };
            error.with_context(format_args!("looking for kernel `{name}` in module `{}`{has}", self.0.name))
        })?;
        // SAFETY: the function belongs to this module, which is loaded as long as `self`.
        let (params, info) = unsafe { (device.function_params(raw)?, device.function_info(raw)?) };
        let declared = || lock(&self.0.declared).get(name).cloned();
        self.check_parameters(name, params.as_deref().unwrap_or_default())?;
        let params = params.map(|params| params.iter().map(|param| param.size).collect()).or_else(declared);
        let (label, name) = (label(name), name.into());
        let limits = RowLimits::new(self.0.device.info(), info);
        let (may_share_most, globals, module) = (Arc::default(), self.0.globals.clone(), self.clone());
        Ok(Kernel { raw, name, label, info, limits, params, may_share_most, globals, module })
    }

    /// Checks that the device allows that many bytes of parameters.
    fn check_parameters(&self, kernel: &str, params: &[ParamInfo]) -> Result<()> {
        let bytes = params.iter().map(|param| param.offset.saturating_add(param.size)).max().unwrap_or(0);
        let info = self.0.device.info();
        if bytes <= info.limits.parameter_bytes as usize {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "kernel `{kernel}` of module `{}` takes {bytes} bytes of parameters, and {}:{} allows at most {} (CUDA more \
                 than 4096 from driver 12.1 on); pass a buffer instead",
                self.0.name, info.backend, info.ordinal, info.limits.parameter_bytes
            ),
        ))
    }

    /// Returns the driver's handle (`CUmodule`, `hipModule_t`), for other libraries. The module stays loaded as long as this
    /// value or one of its kernels lives.
    pub fn as_raw(&self) -> RawModule {
        self.0.core.raw()
    }

    pub(crate) fn device(&self) -> &Device {
        &self.0.device
    }

    pub(crate) fn name(&self) -> &str {
        &self.0.name
    }

    pub(crate) fn globals(&self) -> Option<&Arc<Globals>> {
        self.0.globals.as_ref()
    }

    /// Finds a kernel and compares its compiled parameters with those that you expect. If the driver cannot tell the compiled
    /// ones (HIP, and CUDA before 12.4), launches are checked against yours.
    ///
    /// # Errors
    /// [`ErrorKind::KernelNotFound`] if the module has no such kernel; [`ErrorKind::Unsupported`] if there are more bytes of
    /// parameters than the device allows; [`ErrorKind::ArgumentMismatch`] if the parameters differ.
    #[track_caller]
    pub fn kernel_with(&self, name: &str, params: &[ParamInfo]) -> Result<Kernel> {
        named(call_site("kernel_with"), || {
            self.find_kernel_with(name, params, |_| "its bindings expect", "build both from the same source")
        })
    }

    /// Finds a kernel like [`kernel`](Self::kernel), and compares its compiled parameters with the types that you name, so that
    /// launches take arguments of these types:
    /// `module.typed_kernel::<(View<f32>, ViewMut<f32>, f32)>("scale<float, 4>")`. See [`Parameter`](crate::Parameter) for the
    /// type of each C++ parameter. We can only compare numbers and sizes, and on HIP and on CUDA before 12.4 not even these.
    ///
    /// # Errors
    /// As for [`kernel`](Self::kernel); [`ErrorKind::ArgumentMismatch`] if there is another number of parameters or if one has
    /// another size. The message names that parameter.
    #[track_caller]
    pub fn typed_kernel<P: Parameters>(&self, name: &str) -> Result<TypedKernel<P>> {
        named(call_site("typed_kernel"), || {
            let layouts = P::layouts();
            let expects = |index: usize| format!("you named `{}` for it, which has", layouts[index].0);
            let advice = "name the types that the kernel was compiled with";
            if let Some(index) = layouts.iter().position(|(_, [size, _])| *size == 0) {
                let message = format!(
                    "`{}` was named for parameter {} of kernel `{name}`, and a type of 0 bytes cannot be passed; leave it out",
                    layouts[index].0,
                    index + 1
                );
                return Err(Error::new(ErrorKind::ArgumentMismatch, message));
            }
            self.find_kernel_with(name, &placed(&layouts), expects, advice).map(TypedKernel::new)
        })
    }

    /// Finds a kernel with these parameters. If the size of one differs, the error has the words of `expects` before the size
    /// that we expect.
    fn find_kernel_with<T: fmt::Display>(
        &self,
        name: &str,
        params: &[ParamInfo],
        expects: impl Fn(usize) -> T,
        advice: &str,
    ) -> Result<Kernel> {
        self.check_parameters(name, params)?;
        let mut kernel = self.find_kernel(name)?;
        let expected: Arc<[usize]> = params.iter().map(|param| param.size).collect();
        let Some(found) = &kernel.params else {
            lock(&self.0.declared).insert(kernel.name.clone(), expected.clone());
            kernel.params = Some(expected);
            return Ok(kernel);
        };
        if *found == expected {
            return Ok(kernel);
        }
        let what = match found.iter().zip(&*expected).position(|(found, expected)| found != expected) {
            Some(index) if found.len() == expected.len() => format!(
                "parameter {} of kernel `{name}` of module `{}` has {} bytes, and {} {} bytes",
                index + 1,
                self.0.name,
                found[index],
                expects(index),
                expected[index]
            ),
            _ => format!(
                "kernel `{name}` of module `{}` has {} parameters of {found:?} bytes, and was asked for with {} of \
                 {expected:?}",
                self.0.name,
                found.len(),
                expected.len()
            ),
        };
        Err(Error::new(ErrorKind::ArgumentMismatch, format!("{what}; {advice}")))
    }
}

/// Returns the name that a kernel or variable has in the loaded image.
fn symbol_of<'a>(symbols: &'a [(String, String)], name: &'a str) -> &'a str {
    symbols.iter().find(|(known, _)| known == name).map_or(name, |(_, symbol)| symbol)
}

/// How many names the process keeps. There is a limit because a program that generates kernels may come to any number.
const MOST_LABELS: usize = 4096;

/// Returns the name of a kernel for errors, graphs and logs. These may outlive all modules, so the process keeps the name
/// forever.
fn label(name: &str) -> &'static str {
    static LABELS: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut labels = lock(&LABELS);
    if let Some(label) = labels.get(name) {
        return label;
    }
    if labels.len() >= MOST_LABELS {
        return "a kernel";
    }
    let label = name.to_owned().leak();
    labels.insert(label);
    label
}

impl Kernel {
    /// Returns the name that you found the kernel by.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the kernel's limits and resources, as compiled.
    pub fn info(&self) -> FunctionInfo {
        self.info
    }

    /// Returns the device that the kernel is loaded on.
    pub fn device(&self) -> &Device {
        &self.module.0.device
    }

    /// Returns how many blocks of `threads` threads and `dynamic_shared` bytes fit on one multiprocessor at the same time
    /// (`cuOccupancyMaxActiveBlocksPerMultiprocessor`). Returns 0 if the device cannot run such a block.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the backend cannot tell.
    #[track_caller]
    pub fn occupancy(&self, threads: u32, dynamic_shared: u32) -> Result<u32> {
        named(call_site("occupancy"), || self.blocks_at_once(threads, dynamic_shared))
    }

    /// Returns the [`occupancy`](Self::occupancy) without naming a call.
    pub(crate) fn blocks_at_once(&self, threads: u32, dynamic_shared: u32) -> Result<u32> {
        reentrancy::check_outside()?;
        match self.check_block([threads, 1, 1], dynamic_shared) {
            Err(error) if error.kind() == ErrorKind::InvalidLaunch => return Ok(0),
            _ if threads == 0 => return Ok(0),
            other => other?,
        }
        let device = &self.device().0.raw;
        // SAFETY: the module is loaded as long as `self`.
        let occupancy = unsafe { device.occupancy(self.raw, threads, dynamic_shared) }?;
        Ok(occupancy.blocks_per_multiprocessor)
    }

    /// Returns a grid and a block size that fill the device with this kernel (`cuOccupancyMaxPotentialBlockSize`).
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the backend cannot tell; [`ErrorKind::InvalidLaunch`] if there is not that much shared
    /// memory.
    #[track_caller]
    pub fn suggested_launch(&self, dynamic_shared: u32) -> Result<SuggestedLaunch> {
        named(call_site("suggested_launch"), || {
            reentrancy::check_outside()?;
            self.check_block([1, 1, 1], dynamic_shared)?;
            // SAFETY: the module is loaded as long as `self`.
            unsafe { self.device().0.raw.suggested_launch(self.raw, dynamic_shared) }
        })
    }

    /// Returns the part of the module that a graph keeps alive.
    pub(crate) fn module(&self) -> &Arc<ModuleCore> {
        &self.module.0.core
    }

    /// Returns the driver's handle, which is valid as long as this value lives.
    pub fn as_raw(&self) -> RawFunction {
        self.raw
    }
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Module({})", self.0.name)
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kernel({} of {})", self.name, self.module.0.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endless_names_are_not_all_kept() {
        let labels: Vec<_> = (0..2 * MOST_LABELS).map(|number| label(&format!("kernel_{number}"))).collect();
        assert_eq!((labels[0], labels[2 * MOST_LABELS - 1]), ("kernel_0", "a kernel"));
        assert!(std::ptr::eq(label("kernel_7"), labels[7]));
    }
}
