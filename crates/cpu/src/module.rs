//! Modules: shared objects, loaded from memory.

use std::ffi::CStr;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gpustream_hal::{
    Error, ErrorKind, FunctionInfo, Modules, ParamInfo, RawBuffer, RawFunction, RawModule, Result,
};
use libloading::os::unix::Library;

use crate::abi;
use crate::arch;
use crate::device::CpuDevice;
use crate::elf::Image;
use crate::error::error;
use crate::export::memory_file;
use crate::kernel::{Function, Locals};

/// A loaded shared object. Dropped, and so closed, before the file it came from.
struct Module {
    functions: Vec<Function>,
    globals: Vec<Global>,
    _library: Library,
    _file: ImageFile,
}

/// A variable, whose memory lies in the shared object.
struct Global {
    name: String,
    address: RawBuffer,
    /// In bytes.
    size: usize,
}

impl Global {
    /// # Safety
    /// The entry is of a loaded module's table.
    unsafe fn new(entry: &abi::Global) -> Self {
        // SAFETY: names are nul-terminated strings of the module.
        let name = unsafe { CStr::from_ptr(entry.name) }.to_string_lossy().into_owned();
        Self { name, address: RawBuffer(entry.address as usize), size: entry.size as usize }
    }
}

/// The place of a module's file while the module is loaded. The loader knows modules by path, so one path must not
/// stand for two of them.
enum ImageFile {
    /// A file in memory, kept open: its number is part of the path.
    Memory {
        _file: OwnedFd,
    },
    Temporary(PathBuf),
}

impl Drop for ImageFile {
    fn drop(&mut self) {
        if let Self::Temporary(path) = self {
            // A failure leaves a file in the temporary folder, and nothing else.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Module {
    fn load(bytes: &[u8]) -> Result<Self> {
        let image = Image::read(bytes)?;
        let (file, path) = write_image(bytes).map_err(|e| {
            error(ErrorKind::InvalidModule, format!("the module image cannot be written for loading: {e}"))
        })?;
        // SAFETY: a kernel module's only start-up code is the compiler's, and the image was found whole. Running a
        // user's module is the user's wish.
        let library = unsafe { Library::open(Some(&path), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        let library = library.map_err(|e| not_loaded(&e))?;
        // SAFETY: the symbol is a constant of this type in every module; its version is looked at first.
        let table = unsafe { library.get::<*const abi::Module>(abi::MODULE_SYMBOL.as_bytes()) };
        let table = *table.map_err(|e| {
            let message = format!("the image is no kernel module: {}; build it again", loader_text(&e));
            error(ErrorKind::InvalidModule, message)
        })?;
        // SAFETY: the symbol is a constant of this type; the library stays open as long as the result.
        let table = unsafe { &*table };
        if table.abi != abi::ABI {
            let message = format!(
                "the module was built for version {} of the kernel interface, this is version {}: build it again",
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
        Ok(Self { functions, globals, _library: library, _file: file })
    }
}

/// Returns the loader's words; the error's own text names the call only.
fn loader_text(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

#[cold]
fn not_loaded(error: &libloading::Error) -> Error {
    let text = loader_text(error);
    let advice = if text.contains("Too many open files") {
        "close files, or raise the limit of open ones (`ulimit -n`)"
    } else if text.contains("annot allocate memory") || text.contains("failed to map") {
        "free memory, or raise the limit of address space (`ulimit -v`)"
    } else if text.contains("not permitted") || text.contains("ermission denied") {
        "allow this process to map executable memory"
    } else {
        "build the module again, on or for this system"
    };
    crate::error::error(
        ErrorKind::InvalidModule,
        format!("the system's loader does not take the module: {text}; {advice}"),
    )
}

/// The number of temporary files so far, which tells them apart.
static FILES: AtomicU64 = AtomicU64::new(0);

/// Writes the image to a file that the loader can open: in memory, or where that is not possible in the temporary
/// folder.
fn write_image(bytes: &[u8]) -> std::io::Result<(ImageFile, PathBuf)> {
    if let Ok(fd) = memory_file(c"gpustream-module", 0) {
        let mut file = std::fs::File::from(fd);
        file.write_all(bytes)?;
        let fd = OwnedFd::from(file);
        let path = PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()));
        if path.exists() {
            return Ok((ImageFile::Memory { _file: fd }, path));
        }
    }
    let number = FILES.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("gpustream-{}-{number}.so", std::process::id()));
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    file.write_all(bytes)?;
    Ok((ImageFile::Temporary(path.clone()), path))
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
        // A child leaves it to its parent, whose threads may have held the loader's lock.
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
            error(ErrorKind::GlobalNotFound, format!("the module's table has no variable `{name}`"))
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
}
