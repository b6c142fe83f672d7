//! Modules: loading compiled kernels, or compiling them at run time.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use gpustream_core::checksum::{self, Checksum};
use gpustream_core::compile_cache;
use gpustream_core::foreign::ForeignOwner;
use gpustream_core::inside;
use gpustream_core::launch::RowLimits;
use gpustream_core::module_core::ModuleCore;
use gpustream_core::sync::{Mutex, lock};
use gpustream_hal::{
    Error, ErrorKind, FunctionInfo, Image, ParamInfo, RawFunction, RawModule, Result, Source, SuggestedLaunch,
};

use crate::device::Device;
use crate::global::{GlobalVariable, Globals};

/// The images and the source that a module can be loaded from, on any backend; `gpustream-build` embeds one in a
/// program.
#[derive(Clone, Copy, Debug)]
pub struct ModuleSource<'a> {
    /// The module's name in messages.
    pub name: &'a str,
    /// The compiled forms, for any number of backends and targets.
    pub images: &'a [Image<'a>],
    /// The source, for devices that no image suits and whose backend can compile at run time.
    pub source: Option<Source<'a>>,
    /// The variables that the source declares as `__constant__` or `__device__` and that are not `const`.
    pub globals: &'a [GlobalVariable<'a>],
}

/// The sizes of a kernel's parameters, in bytes.
type Sizes = Arc<[usize]>;

struct Shared {
    /// Shared with graphs, which keep the module loaded.
    core: Arc<ModuleCore>,
    device: Device,
    name: String,
    /// The kernels and variables that have another name in the loaded image: the program's name, and the image's symbol.
    symbols: Vec<(String, String)>,
    /// Sizes of kernels' parameters as bindings declare them, for drivers that cannot say.
    declared: Mutex<Vec<(&'static str, Sizes)>>,
    /// `None` where the source declares no variables.
    globals: Option<Arc<Globals>>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        // The blocks of variables too, which keep the module loaded.
        self.device.park(Box::new((self.core.clone(), self.globals.take())), None);
    }
}

/// Kernels loaded on one device. Clones are handles of the same module.
///
/// A `Module` is `Send` and `Sync`. Dropping the last handle and the last kernel returns at once; the driver unloads
/// the module when no kernel of it is pending.
#[derive(Clone)]
pub struct Module(Arc<Shared>);

/// A kernel of a loaded module.
///
/// A `Kernel` is `Send` and `Sync`. It keeps its module loaded; dropping it returns at once, as for the module.
#[derive(Clone)]
pub struct Kernel {
    pub(crate) raw: RawFunction,
    pub(crate) name: &'static str,
    pub(crate) info: FunctionInfo,
    pub(crate) limits: RowLimits,
    /// Sizes of the parameters in bytes; `None` where neither driver nor bindings have told them.
    pub(crate) params: Option<Arc<[usize]>>,
    /// Set once the driver lets the kernel have all of the device's dynamic shared memory.
    pub(crate) may_share_most: Arc<AtomicBool>,
    /// The variables that each launch may use; `None` where the module has none.
    pub(crate) globals: Option<Arc<Globals>>,
    module: Module,
}

impl Module {
    /// Makes a module of one that somebody else loaded. Its kernels and variables are found by the names that the image
    /// has.
    ///
    /// # Safety
    /// `raw` is a module of `device`'s context, and stays loaded until `owner` is dropped. Kernels and variables are as
    /// promised where they are used.
    pub(crate) unsafe fn foreign(device: &Device, raw: RawModule, name: &str, owner: ForeignOwner) -> Self {
        // SAFETY: by this function's contract.
        let core = Arc::new(unsafe { ModuleCore::foreign(raw, owner) });
        let (device, name) = (device.clone(), name.to_owned());
        let (symbols, declared) = (Vec::new(), Mutex::default());
        Self(Arc::new(Shared { core, device, name, symbols, declared, globals: None }))
    }

    /// Finds a kernel by its name, which may be made at run time. A kernel that is not `extern "C"` has the name that
    /// the image or the source gives it ([`Image::symbols`], [`Source::kernels`]); `gpustream-build` gives the qualified
    /// one, with the arguments of a template: `solver::step`, `axpy<float>`. The process keeps one copy of the name of
    /// each kernel that was found.
    ///
    /// # Errors
    /// [`ErrorKind::KernelNotFound`]; [`ErrorKind::Unsupported`] for more bytes of parameters than the device takes.
    pub fn kernel(&self, name: &str) -> Result<Kernel> {
        inside::check_outside()?;
        if name.is_empty() {
            let message = format!("module `{}` was asked for a kernel without a name", self.0.name);
            return Err(Error::new(ErrorKind::KernelNotFound, message));
        }
        let device = &self.0.device.0.raw;
        // SAFETY: the module is loaded as long as `self`.
        let raw = unsafe { device.module_function(self.0.core.raw(), symbol_of(&self.0.symbols, name)) };
        let raw = raw.map_err(|error| {
            error.with_context(format_args!("looking for kernel `{name}` in module `{}`", self.0.name))
        })?;
        // SAFETY: the function is of this module, which is loaded as long as `self`.
        let (params, info) = unsafe { (device.function_params(raw)?, device.function_info(raw)?) };
        let declared = || {
            let declared = lock(&self.0.declared);
            declared.iter().find(|&&(other, _)| other == name).map(|(_, sizes)| sizes.clone())
        };
        self.check_parameters(name, params.as_deref().unwrap_or_default())?;
        let params = params.map(|params| params.iter().map(|param| param.size).collect()).or_else(declared);
        let name = kept(name);
        let limits = RowLimits::new(self.0.device.info(), info);
        let (may_share_most, globals, module) = (Arc::default(), self.0.globals.clone(), self.clone());
        Ok(Kernel { raw, name, info, limits, params, may_share_most, globals, module })
    }

    /// Checks that the device takes as many bytes of parameters.
    fn check_parameters(&self, kernel: &str, params: &[ParamInfo]) -> Result<()> {
        let bytes = params.iter().map(|param| param.offset.saturating_add(param.size)).max().unwrap_or(0);
        let info = self.0.device.info();
        if bytes <= info.parameter_bytes as usize {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "kernel `{kernel}` of module `{}` takes {bytes} bytes of parameters, and {}:{} takes at most {} (CUDA more \
                 than 4096 from driver 12.1 on); pass a buffer",
                self.0.name, info.backend, info.ordinal, info.parameter_bytes
            ),
        ))
    }

    /// Returns the driver's handle (`CUmodule`, `hipModule_t`), for other libraries; the module stays loaded as long as this
    /// value or a kernel of it.
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

    /// Finds a kernel and compares its compiled parameters with the caller's. Where the driver cannot tell the compiled
    /// ones (HIP; CUDA before 12.4), launches are checked against the caller's from here on.
    ///
    /// # Errors
    /// [`ErrorKind::KernelNotFound`]; [`ErrorKind::Unsupported`] for more bytes of parameters than the device takes;
    /// [`ErrorKind::ArgumentMismatch`] where the two differ.
    pub fn kernel_with(&self, name: &str, params: &[ParamInfo]) -> Result<Kernel> {
        self.check_parameters(name, params)?;
        let mut kernel = self.kernel(name)?;
        let expected = || params.iter().map(|param| param.size);
        if let Some(found) = &kernel.params
            && !found.iter().copied().eq(expected())
        {
            let expected: Vec<_> = expected().collect();
            return Err(Error::new(
                ErrorKind::ArgumentMismatch,
                format!(
                    "kernel `{name}` of module `{}` was compiled with parameters of {found:?} bytes, and its \
                     bindings expect {expected:?}; build both from the same source",
                    self.0.name
                ),
            ));
        }
        if kernel.params.is_none() {
            let sizes: Arc<[usize]> = expected().collect();
            lock(&self.0.declared).push((kernel.name, sizes.clone()));
            kernel.params = Some(sizes);
        }
        Ok(kernel)
    }
}

/// Returns the loaded image's name of a kernel or variable.
fn symbol_of<'a>(symbols: &'a [(String, String)], name: &'a str) -> &'a str {
    symbols.iter().find(|(known, _)| known == name).map_or(name, |(_, symbol)| symbol)
}

/// Returns the process's copy of a kernel's name. Errors, graphs and logs name operations long after a module is gone.
fn kept(name: &str) -> &'static str {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut names = lock(&NAMES);
    if let Some(kept) = names.get(name) {
        return kept;
    }
    let kept = name.to_owned().leak();
    names.insert(kept);
    kept
}

impl Kernel {
    /// Returns the name by which the kernel was found.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the kernel's limits and resources, as compiled.
    pub fn info(&self) -> FunctionInfo {
        self.info
    }

    /// Returns the device that the kernel is loaded on.
    pub fn device(&self) -> &Device {
        &self.module.0.device
    }

    /// Returns how many blocks of `threads` threads and `dynamic_shared` bytes fit on one multiprocessor at once
    /// (`cuOccupancyMaxActiveBlocksPerMultiprocessor`); 0 where the device cannot run such a block.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where the backend cannot say.
    pub fn occupancy(&self, threads: u32, dynamic_shared: u32) -> Result<u32> {
        inside::check_outside()?;
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

    /// Returns a grid and block size that fill the device with this kernel (`cuOccupancyMaxPotentialBlockSize`).
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where the backend cannot say, [`ErrorKind::InvalidLaunch`] for more shared memory
    /// than there is.
    pub fn suggested_launch(&self, dynamic_shared: u32) -> Result<SuggestedLaunch> {
        inside::check_outside()?;
        self.check_block([1, 1, 1], dynamic_shared)?;
        // SAFETY: the module is loaded as long as `self`.
        unsafe { self.device().0.raw.suggested_launch(self.raw, dynamic_shared) }
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

/// Loads a module that `gpustream-build` built, and refuses an image that is not the one that was built.
///
/// # Safety
/// As for [`Device::load_module`], but for images that have a checksum, which are compared with it first: those were built
/// from the source. The checksums are those of the images, in the same order.
///
/// # Errors
/// As for [`Device::load_module`]; [`ErrorKind::InvalidModule`] where an image has another checksum.
pub unsafe fn load_built(
    device: &Device,
    source: &ModuleSource<'_>,
    checksums: &[Checksum],
) -> Result<Module> {
    inside::check_outside()?;
    let raw_device = &device.0.raw;
    let load = || -> Result<(RawModule, Vec<(String, String)>)> {
        if let Some(index) = best_image(device, source) {
            let image = &source.images[index];
            if let Some(checksum) = checksums.get(index) {
                checksum::check(checksum, image)?;
            }
            // SAFETY: the build wrote the image, as its checksum says, or the caller vouches for it.
            let raw = unsafe { raw_device.module_load(image.bytes) }?;
            let symbols = image.symbols.iter().map(|&(name, symbol)| (name.to_owned(), symbol.to_owned()));
            return Ok((raw, symbols.collect()));
        }
        let Some(text) = &source.source else { return Err(no_image(device, source, None)) };
        let compiled = compile_cache::compile(&**raw_device, text).map_err(|error| match error.kind() {
            ErrorKind::Unsupported => no_image(device, source, Some(&error)),
            _ => error,
        })?;
        // SAFETY: the compiler has just made the image, or had when it was cached.
        let raw = unsafe { raw_device.module_load(&compiled.image) }?;
        let names = text.kernels.iter().map(|&(name, _)| name.to_owned());
        Ok((raw, names.zip(compiled.symbols).collect()))
    };
    let (raw, symbols) = load().map_err(|error| {
        let backend = device.info().backend;
        error.with_context(format_args!("loading module `{}`", source.name)).with_backend(backend)
    })?;
    // SAFETY: the device has just loaded the module, which belongs to nobody else.
    let core = Arc::new(unsafe { ModuleCore::new(raw, raw_device.clone()) });
    let globals = Globals::find(device, &core, source.globals, |name| symbol_of(&symbols, name));
    let globals = globals.map_err(|error| {
        error.with_context(format_args!("finding the variables of module `{}`", source.name))
    })?;
    let (device, name, declared) = (device.clone(), source.name.to_owned(), Mutex::default());
    Ok(Module(Arc::new(Shared { core, device, name, symbols, declared, globals })))
}

/// Returns the index of the image that suits the device best, the first among equals.
fn best_image(device: &Device, source: &ModuleSource<'_>) -> Option<usize> {
    let rank =
        |image: &Image<'_>| image.targets.iter().filter_map(|target| device.0.raw.target_rank(target)).max();
    let mut best = None;
    for (index, image) in source.images.iter().enumerate() {
        if image.backend == device.info().backend
            && let Some(rank) = rank(image)
            && best.is_none_or(|(other, _)| rank > other)
        {
            best = Some((rank, index));
        }
    }
    best.map(|(_, index)| index)
}

#[cold]
fn no_image(device: &Device, source: &ModuleSource<'_>, compiler: Option<&Error>) -> Error {
    let info = device.info();
    let has: Vec<String> = source
        .images
        .iter()
        .map(|image| format!("{} ({})", image.backend, image.targets.join(", ")))
        .collect();
    let has = if has.is_empty() { "no images".to_owned() } else { has.join("; ") };
    let built = source.images.iter().any(|image| image.backend == info.backend);
    let mut message = format!(
        "the module has {has}, and the device {}:{} wants {}; {}",
        info.backend,
        info.ordinal,
        info.arch,
        build_too(info.backend, &info.arch, built)
    );
    if let Some(error) = compiler {
        message += &format!("; or make its source compile at run time ({})", error.message());
    }
    Error::new(ErrorKind::NoImageForDevice, message)
}

/// Returns how to have an image for `arch` of `backend`, whose other targets were `built` or not.
fn build_too(backend: &str, arch: &str, built: bool) -> String {
    let (name, method, variable) = match backend {
        "cpu" => ("Cpu", "cpu_level", "GPUSTREAM_CPU_LEVELS"),
        "cuda" => ("Cuda", "cuda_arch", "GPUSTREAM_CUDA_ARCHS"),
        "hip" => ("Hip", "hip_arch", "GPUSTREAM_HIP_ARCHS"),
        _ => return format!("build the kernels for {backend} and {arch} too"),
    };
    let target = format!("`.{method}(\"{arch}\")` in the build script, or {arch} in the list `{variable}`");
    if built {
        return format!("build the kernels for {arch} too: {target} in the environment");
    }
    format!(
        "build the kernels for {backend} and {arch} too: `.backend(Backend::{name})` and {target} and {backend} in the \
         list `GPUSTREAM_BACKENDS` in the environment"
    )
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
