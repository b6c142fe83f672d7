//! Modules: compiled kernels, and their parameters.

use crate::{Error, Result};

use crate::handle::RawBuffer;
pub use crate::handle::{RawFunction, RawModule};

/// One compiled form of a module.
#[derive(Clone, Copy, Debug)]
pub struct Image<'a> {
    /// The backend that the image is for: `cpu`, `cuda`, `hip`.
    pub backend: &'a str,
    /// The targets that the image was compiled for. A plain image has one name (`x86-64-v3`). A container has several for
    /// the driver to pick from (`sm_80`, `sm_90`, `compute_90` in a fatbin; `gfx90a`, `gfx942` in a bundle).
    pub targets: &'a [&'a str],
    /// The file's contents.
    pub bytes: &'a [u8],
    /// The kernels and variables whose name in the image is not the one in your program: your name (`solver::step`,
    /// `axpy<float>`), and the image's symbol. Kernels that are `extern "C"` need no entry.
    pub symbols: &'a [(&'a str, &'a str)],
}

/// The source of a module, for backends that can compile at run time.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// File name, for the compiler's messages.
    pub name: &'a str,
    /// The text.
    pub text: &'a str,
    /// The headers that the text includes: each with its name as in `#include`, and its text.
    pub headers: &'a [(&'a str, &'a str)],
    /// Further compiler options.
    pub options: &'a [&'a str],
    /// The kernels that are not `extern "C"`, and the variables in namespaces. Each has the name in your program, and the
    /// C++ expression for its address, such as `&solver::step` or `&axpy<float>`. The compiler instantiates that expression.
    pub kernels: &'a [(&'a str, &'a str)],
}

/// An image that we compiled at run time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiled {
    /// The image. You can pass it to [`Modules::module_load`].
    pub image: Vec<u8>,
    /// The symbols for [`Source::kernels`], in the same order.
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

/// What a compiled kernel can have at most, and what it uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FunctionInfo {
    /// How many threads a block may have with this kernel.
    pub max_threads_per_block: u32,
    /// Shared memory that the kernel declares, in bytes.
    pub static_shared: u32,
    /// Registers that each thread uses.
    pub registers: u32,
    /// Local memory that each thread uses for spills and arrays, in bytes.
    pub local: u32,
}

/// Loading modules and asking about their kernels.
///
/// # Safety
/// The safe crate checks arguments against these answers. So if you implement this, you promise that a function belongs to
/// the module and name that it was asked for, that parameters and limits are the compiled kernel's, and that handles stay
/// valid until the module is unloaded.
#[expect(unused_variables, reason = "the names in the defaults are documentation")]
pub unsafe trait Modules {
    /// Returns how well an image for `target` suits this device: `None` if the device cannot run it, otherwise higher is
    /// better. The answer depends only on the names.
    fn target_rank(&self, target: &str) -> Option<u32>;

    /// Loads an image that [`target_rank`](Self::target_rank) accepted (`cuModuleLoadData`).
    ///
    /// # Errors
    /// `InvalidModule` if the bytes are damaged, `NoImageForDevice` if the driver finds none for the device.
    ///
    /// # Safety
    /// A compiler made `image`, because drivers do not withstand made-up bytes, and a CPU image is code that runs while it
    /// is loaded.
    unsafe fn module_load(&self, image: &[u8]) -> Result<RawModule>;

    /// Unloads a module (`cuModuleUnload`).
    ///
    /// # Errors
    /// The driver's failure.
    ///
    /// # Safety
    /// No kernel of the module runs or will be launched.
    unsafe fn module_unload(&self, module: RawModule) -> Result<()>;

    /// Finds a kernel by its symbol (`cuModuleGetFunction`), or on the CPU by the program's name.
    ///
    /// # Errors
    /// `KernelNotFound`.
    ///
    /// # Safety
    /// `module` is loaded.
    unsafe fn module_function(&self, module: RawModule, name: &str) -> Result<RawFunction>;

    /// Finds a `__constant__` or `__device__` variable by its symbol (`cuModuleGetGlobal`, `hipModuleGetGlobal`), or on the
    /// CPU by the program's name. Returns its address, which is valid until the module is unloaded, and its size in bytes.
    ///
    /// # Errors
    /// `GlobalNotFound`.
    ///
    /// # Safety
    /// `module` is loaded.
    unsafe fn module_global(&self, module: RawModule, name: &str) -> Result<(RawBuffer, usize)> {
        Err(Error::unsupported("a variable of a module"))
    }

    /// Returns the kernel's parameters as the compiled module has them (`cuFuncGetParamInfo`), or `None` if the driver
    /// cannot tell.
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

    /// Lets a kernel use up to `bytes` of dynamic shared memory, more than the default limit
    /// (`CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`). If nothing is needed, succeeds without effect.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if it is more than the device allows; otherwise the driver's
    /// failure.
    ///
    /// # Safety
    /// The function's module is loaded.
    unsafe fn function_set_max_dynamic_shared(&self, function: RawFunction, bytes: u32) -> Result<()> {
        Ok(())
    }

    /// Compiles source for this device (NVRTC, HIPRTC). Can block for seconds.
    ///
    /// # Errors
    /// `Unsupported` if there is no run-time compiler; `InvalidModule` with the compiler's log.
    ///
    /// # Safety
    /// The options must be harmless, because the compiler runs in this process, and some options make it load and run a
    /// library.
    unsafe fn compile(&self, source: &Source<'_>) -> Result<Compiled> {
        Err(Error::unsupported("compiling kernels at run time"))
    }

    /// Returns the run-time compiler's name and version. They are part of the key in the cache of compiled images.
    ///
    /// # Errors
    /// As for [`compile`](Self::compile).
    fn compiler(&self) -> Result<String> {
        Err(Error::unsupported("compiling kernels at run time"))
    }
}
