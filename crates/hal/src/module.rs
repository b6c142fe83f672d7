//! Modules: compiled kernels, and their parameters.

use crate::{Error, Result};

use crate::handle::RawBuffer;
pub use crate::handle::{RawFunction, RawModule};

/// One compiled form of a module.
#[derive(Clone, Copy, Debug)]
pub struct Image<'a> {
    /// The backend that the image is for: `cpu`, `cuda`, `hip`.
    pub backend: &'a str,
    /// The targets that the image was compiled for: one name for a plain image (`x86-64-v3`), several for a container
    /// that the driver picks from (`sm_80`, `sm_90`, `compute_90` in a fatbin; `gfx90a`, `gfx942` in a bundle).
    pub targets: &'a [&'a str],
    /// The file's contents.
    pub bytes: &'a [u8],
    /// The kernels and variables that have another name in the image than in the program: the program's name
    /// (`solver::step`, `axpy<float>`), and the image's symbol. Kernels that are `extern "C"` need no entry.
    pub symbols: &'a [(&'a str, &'a str)],
}

/// A module's source, for backends that can compile at run time.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// File name, for the compiler's messages.
    pub name: &'a str,
    /// The text.
    pub text: &'a str,
    /// The headers that the text includes: name as written in `#include`, and text.
    pub headers: &'a [(&'a str, &'a str)],
    /// Further compiler options.
    pub options: &'a [&'a str],
    /// The kernels that are not `extern "C"`, and the variables within namespaces: the program's name of each, and the
    /// C++ expression of its address, such as `&solver::step` or `&axpy<float>`, which is instantiated.
    pub kernels: &'a [(&'a str, &'a str)],
}

/// An image that was compiled at run time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiled {
    /// The image, which suits [`Modules::module_load`].
    pub image: Vec<u8>,
    /// The symbols of [`Source::kernels`], in their order.
    pub symbols: Vec<String>,
}

/// Offset and size of one kernel parameter, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParamInfo {
    /// The distance from the start of the parameter block.
    pub offset: usize,
    /// The parameter's own size.
    pub size: usize,
}

/// The limits and resources of a compiled kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FunctionInfo {
    /// Most threads a block may have with this kernel.
    pub max_threads_per_block: u32,
    /// Shared memory that the kernel declares, in bytes.
    pub static_shared: u32,
    /// Registers of a thread.
    pub registers: u32,
    /// Local memory of a thread (spills and arrays), in bytes.
    pub local: u32,
}

/// Loading modules and asking about their kernels.
///
/// # Safety
/// Arguments are checked against these answers. An implementor promises that a function belongs to the module and the
/// name that it was asked for, that parameters and limits are those of the compiled kernel, and that handles stay valid
/// until the module is unloaded.
#[expect(unused_variables, reason = "the names in the defaults are documentation")]
pub unsafe trait Modules {
    /// Returns how well an image built for `target` suits this device: `None` if the image cannot run, otherwise higher
    /// is better. The answer depends on the names alone.
    fn target_rank(&self, target: &str) -> Option<u32>;

    /// Loads an image that [`target_rank`](Self::target_rank) accepted (`cuModuleLoadData`).
    ///
    /// # Errors
    /// `InvalidModule` for damaged bytes, `NoImageForDevice` where the driver finds none for the device.
    ///
    /// # Safety
    /// `image` was made by a compiler: drivers do not withstand made-up bytes, and a CPU image is code that runs while
    /// it is loaded.
    unsafe fn module_load(&self, image: &[u8]) -> Result<RawModule>;

    /// Unloads a module (`cuModuleUnload`).
    ///
    /// # Errors
    /// The driver's failure.
    ///
    /// # Safety
    /// No kernel of the module runs or will be launched.
    unsafe fn module_unload(&self, module: RawModule) -> Result<()>;

    /// Finds a kernel by its symbol (`cuModuleGetFunction`); on the CPU, by the program's name.
    ///
    /// # Errors
    /// `KernelNotFound`.
    ///
    /// # Safety
    /// `module` is loaded.
    unsafe fn module_function(&self, module: RawModule, name: &str) -> Result<RawFunction>;

    /// Finds a `__constant__` or `__device__` variable by its symbol (`cuModuleGetGlobal`, `hipModuleGetGlobal`); on the
    /// CPU, by the program's name. Returns the variable's address, which is valid until the module is unloaded, and its
    /// size in bytes.
    ///
    /// # Errors
    /// `GlobalNotFound`.
    ///
    /// # Safety
    /// `module` is loaded.
    unsafe fn module_global(&self, module: RawModule, name: &str) -> Result<(RawBuffer, usize)> {
        Err(Error::unsupported("a variable of a module"))
    }

    /// Returns the kernel's parameters as the compiled module has them (`cuFuncGetParamInfo`), or `None` if the
    /// driver cannot say.
    ///
    /// # Errors
    /// The driver's failure.
    ///
    /// # Safety
    /// The function's module is loaded.
    unsafe fn function_params(&self, function: RawFunction) -> Result<Option<Vec<ParamInfo>>>;

    /// Returns the limits and resources of the kernel (`cuFuncGetAttribute`).
    ///
    /// # Errors
    /// The driver's failure.
    ///
    /// # Safety
    /// The function's module is loaded.
    unsafe fn function_info(&self, function: RawFunction) -> Result<FunctionInfo>;

    /// Lets a kernel use up to `bytes` of dynamic shared memory, beyond the default limit
    /// (`CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`). Succeeds without effect where nothing is needed.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for more than the device allows; otherwise the driver's
    /// failure.
    ///
    /// # Safety
    /// The function's module is loaded.
    unsafe fn function_set_max_dynamic_shared(&self, function: RawFunction, bytes: u32) -> Result<()> {
        Ok(())
    }

    /// Compiles source for this device (NVRTC, HIPRTC). Blocks for seconds.
    ///
    /// # Errors
    /// `Unsupported` where there is no run-time compiler; `InvalidModule` with the compiler's log.
    ///
    /// # Safety
    /// The options are harmless: the compiler runs in this process, and some options make it load and run a library.
    unsafe fn compile(&self, source: &Source<'_>) -> Result<Compiled> {
        Err(Error::unsupported("compiling kernels at run time"))
    }

    /// Returns the run-time compiler's name and version, part of the key under which its output is cached.
    ///
    /// # Errors
    /// As for [`compile`](Self::compile).
    fn compiler(&self) -> Result<String> {
        Err(Error::unsupported("compiling kernels at run time"))
    }
}
