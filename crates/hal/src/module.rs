//! Modules: compiled kernels, and what is known of their parameters.

use crate::{Error, Result};

pub use crate::handle::{RawFunction, RawModule};

/// One compiled form of a module.
#[derive(Clone, Copy, Debug)]
pub struct Image<'a> {
    /// The backend it is for: `cpu`, `cuda`, `hip`.
    pub backend: &'a str,
    /// What it was compiled for. One name for a plain image (`x86-64-v3`), several for a container that the
    /// driver picks from (`sm_80`, `sm_90`, `compute_90` in a fatbin; `gfx90a`, `gfx942` in a bundle).
    pub targets: &'a [&'a str],
    /// The file's contents.
    pub bytes: &'a [u8],
}

/// A module's source, for backends that can compile at run time.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// File name, for the compiler's messages.
    pub name: &'a str,
    /// The text.
    pub text: &'a str,
    /// Headers it includes: name as written in `#include`, and text.
    pub headers: &'a [(&'a str, &'a str)],
    /// Further compiler options.
    pub options: &'a [&'a str],
}

/// Offset and size of one kernel parameter, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParamInfo {
    /// From the start of the parameter block.
    pub offset: usize,
    /// The parameter's own size.
    pub size: usize,
}

/// What the compiler made of a kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FunctionInfo {
    /// Most threads a block may have with this kernel.
    pub max_threads_per_block: u32,
    /// Shared memory the kernel declares, in bytes.
    pub static_shared: u32,
    /// Registers of a thread.
    pub registers: u32,
    /// Local memory of a thread (spills and arrays), in bytes.
    pub local: u32,
}

/// Loading modules and asking about their kernels.
///
/// # Safety
/// Arguments are checked against what is answered here. An implementor promises that a function belongs to the module
/// and name it was asked for, that parameters and limits are those of the compiled kernel, and that handles stay valid
/// until the module is unloaded.
pub unsafe trait Modules {
    /// How well an image built for `target` suits this device: `None` if it cannot run, otherwise higher is
    /// better. A pure function of the names.
    fn target_rank(&self, target: &str) -> Option<u32>;

    /// Loads an image that [`target_rank`](Self::target_rank) accepted (`cuModuleLoadData`).
    ///
    /// # Errors
    /// `InvalidModule` for damaged bytes, `NoImageForDevice` where the driver finds none for the device.
    ///
    /// # Safety
    /// `image` is what a compiler made: drivers do not withstand made-up bytes, and a CPU image is code that runs as it
    /// is loaded.
    unsafe fn module_load(&self, image: &[u8]) -> Result<RawModule>;

    /// Unloads a module (`cuModuleUnload`).
    ///
    /// # Safety
    /// No kernel of it runs or will be launched.
    unsafe fn module_unload(&self, module: RawModule) -> Result<()>;

    /// Finds a kernel by its C name (`cuModuleGetFunction`).
    ///
    /// # Errors
    /// `KernelNotFound`.
    ///
    /// # Safety
    /// `module` is loaded.
    unsafe fn module_function(&self, module: RawModule, name: &str) -> Result<RawFunction>;

    /// The kernel's parameters as the compiled module has them (`cuFuncGetParamInfo`), or `None` where the
    /// driver cannot say.
    ///
    /// # Safety
    /// The function's module is loaded.
    unsafe fn function_params(&self, function: RawFunction) -> Result<Option<Vec<ParamInfo>>>;

    /// Limits and resources of the kernel (`cuFuncGetAttribute`).
    ///
    /// # Safety
    /// The function's module is loaded.
    unsafe fn function_info(&self, function: RawFunction) -> Result<FunctionInfo>;

    /// Lets a kernel use up to `bytes` of dynamic shared memory, beyond the default limit
    /// (`CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`). Succeeds without effect where nothing is needed.
    ///
    /// # Safety
    /// The function's module is loaded.
    unsafe fn function_set_max_dynamic_shared(&self, function: RawFunction, bytes: u32) -> Result<()> {
        let _ = (function, bytes);
        Ok(())
    }

    /// Compiles source for this device (NVRTC, HIPRTC); the result suits [`module_load`](Self::module_load).
    /// Blocks, for seconds.
    ///
    /// # Errors
    /// `Unsupported` where there is no run-time compiler; `InvalidModule` with the compiler's log.
    ///
    /// # Safety
    /// The options are harmless: a compiler runs in this process, and some make it load and run a library.
    unsafe fn compile(&self, source: &Source<'_>) -> Result<Vec<u8>> {
        let _ = source;
        Err(Error::unsupported("compiling kernels at run time"))
    }

    /// The run-time compiler's name and version, part of the key under which its output is cached.
    ///
    /// # Errors
    /// As [`compile`](Self::compile).
    fn compiler(&self) -> Result<String> {
        Err(Error::unsupported("compiling kernels at run time"))
    }
}
