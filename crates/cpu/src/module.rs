//! Modules: shared objects, loaded from memory.

use std::ffi::CStr;
use std::sync::Arc;

use gpustream_hal::{ErrorKind, FunctionInfo, Modules, ParamInfo, RawBuffer, RawFunction, RawModule, Result};

use crate::abi;
use crate::arch;
use crate::device::CpuDevice;
use crate::elf::Image;
use crate::error::error;
use crate::kernel::{Function, Locals};
use crate::loader::{self, Loaded, loader_text};

/// A loaded shared object.
struct Module {
    functions: Vec<Function>,
    globals: Vec<Global>,
    _loaded: Loaded,
}

/// A variable. Its memory is inside the shared object.
struct Global {
    name: String,
    address: RawBuffer,
    /// In bytes.
    size: usize,
}

impl Global {
    /// # Safety
    /// The entry must belong to a loaded module's table.
    unsafe fn new(entry: &abi::Global) -> Self {
        // SAFETY: names are nul-terminated strings of the module.
        let name = unsafe { CStr::from_ptr(entry.name) }.to_string_lossy().into_owned();
        Self { name, address: RawBuffer(entry.address as usize), size: entry.size as usize }
    }
}

impl Module {
    fn load(bytes: &[u8]) -> Result<Self> {
        let image = Image::read(bytes)?;
        // SAFETY: a kernel module's only start-up code is the compiler's, and we found the image complete. To
        // run a user's module is the user's wish.
        let loaded = unsafe { loader::open(bytes, &image) }?;
        let library = &loaded.library;
        // SAFETY: the symbol is a constant of this type in every module; we look at its version first.
        let table = unsafe { library.get::<*const abi::Module>(abi::MODULE_SYMBOL.as_bytes()) };
        let table = *table.map_err(|e| {
            let message = format!("the image is not a kernel module: {}; build it again", loader_text(&e));
            error(ErrorKind::InvalidModule, message)
        })?;
        // SAFETY: the symbol is a constant of this type, and the library stays open as long as the result.
        let table = unsafe { &*table };
        if table.abi != abi::ABI {
            let message = format!(
                "the module was built for version {} of the kernel interface, but this library has version {}: build it again",
                table.abi,
                abi::ABI
            );
            return Err(error(ErrorKind::InvalidModule, message));
        }
        let locals = Arc::new(Locals::new(table.anchor, &image));
        let functions = (0..table.kernel_count as usize)
            // SAFETY: the table has this many entries.
            .map(|index| unsafe { Function::new(&*table.kernels.add(index), &image, &locals) })
            .collect();
        let globals = (0..table.global_count as usize)
            // SAFETY: the table has this many entries.
            .map(|index| unsafe { Global::new(&*table.globals.add(index)) })
            .collect();
        Ok(Self { functions, globals, _loaded: loaded })
    }
}

// SAFETY: a kernel is what the image's own table describes.
unsafe impl Modules for CpuDevice {
    fn target_rank(&self, target: &str) -> Option<u32> {
        arch::rank(target, self.shared.options.check)
    }

    unsafe fn module_load(&self, image: &[u8]) -> Result<RawModule> {
        self.shared.alive()?;
        let module = Box::new(Module::load(image)?);
        Ok(RawModule(Box::into_raw(module) as usize))
    }

    unsafe fn module_unload(&self, module: RawModule) -> Result<()> {
        // A child process leaves it to its parent, whose threads may have held the loader's lock.
        self.shared.not_forked()?;
        // SAFETY: made by `Box::into_raw` in `module_load`, and not used again.
        drop(unsafe { Box::from_raw(module.0 as *mut Module) });
        Ok(())
    }

    unsafe fn module_function(&self, module: RawModule, name: &str) -> Result<RawFunction> {
        // SAFETY: alive by the caller's promise.
        let module = unsafe { &*(module.0 as *const Module) };
        if let Some(function) = module.functions.iter().find(|f| *f.name == *name) {
            return Ok(RawFunction(std::ptr::from_ref(function) as usize));
        }
        let names: Vec<_> = module.functions.iter().map(|f| &*f.name).collect();
        let message = format!("the module has no kernel `{name}`; it has: {}", names.join(", "));
        Err(error(ErrorKind::KernelNotFound, message))
    }

    unsafe fn module_global(&self, module: RawModule, name: &str) -> Result<(RawBuffer, usize)> {
        // SAFETY: alive by the caller's promise.
        let module = unsafe { &*(module.0 as *const Module) };
        let found = module.globals.iter().find(|global| global.name == name);
        found.map(|global| (global.address, global.size)).ok_or_else(|| {
            error(
                ErrorKind::GlobalNotFound,
                format!("the module has no variable `{name}`: declare it in the kernel file"),
            )
        })
    }

    unsafe fn function_params(&self, function: RawFunction) -> Result<Option<Vec<ParamInfo>>> {
        // SAFETY: passed on to the caller.
        Ok(Some(unsafe { Function::borrow(function) }.params.clone()))
    }

    unsafe fn function_info(&self, function: RawFunction) -> Result<FunctionInfo> {
        // SAFETY: passed on to the caller.
        let function = unsafe { Function::borrow(function) };
        let mut info = FunctionInfo::default();
        info.max_threads_per_block = function.most_threads();
        info.static_shared = function.static_shared;
        Ok(info)
    }

    fn compiler(&self) -> Result<String> {
        let message = "the CPU device compiles kernels when your program is built, not at run time; name the file in your \
                       `build.rs`: `gpustream_build::Kernels::new().file(\"kernels/NAME.cu\").build()`";
        Err(error(ErrorKind::Unsupported, message))
    }
}
