//! Kernels of loaded modules.

use std::ffi::CStr;
use std::sync::Arc;

use gpustream_hal::{ParamInfo, RawFunction};

use crate::abi;
use crate::elf::Image;

/// A kernel of a loaded module.
pub(crate) struct Function {
    pub(crate) name: Arc<str>,
    pub(crate) entry: abi::Entry,
    pub(crate) params: Vec<ParamInfo>,
    pub(crate) params_size: usize,
    /// The alignment of the parameter block, in bytes.
    pub(crate) params_align: usize,
    max_threads: u32,
    pub(crate) static_shared: u32,
    pub(crate) locals: Arc<Locals>,
    /// True if the module's kernels can print.
    pub(crate) prints: bool,
}

/// Where a module's thread-local variables are, relative to its anchor.
pub(crate) struct Locals {
    anchor: unsafe extern "C" fn() -> *mut u8,
    thread_index: Option<isize>,
    dynamic_shared: Option<isize>,
}

impl Locals {
    pub(crate) fn new(anchor: unsafe extern "C" fn() -> *mut u8, image: &Image) -> Self {
        let base = image.offset(abi::ANCHOR_SYMBOL);
        let relative = |symbol| Some((image.offset(symbol)? as isize).wrapping_sub(base? as isize));
        Self {
            anchor,
            thread_index: relative(abi::THREAD_INDEX_SYMBOL),
            dynamic_shared: relative(abi::DYNAMIC_SHARED_SYMBOL),
        }
    }

    /// Returns this OS thread's `threadIdx`. Kernels usually keep it in registers; only the general entry
    /// stores it here.
    ///
    /// # Safety
    /// The module is loaded.
    pub(crate) unsafe fn thread_index(&self) -> Option<abi::Dim> {
        // SAFETY: the symbol table's distance between two variables of this thread's block.
        unsafe { Some((self.anchor)().offset(self.thread_index?).cast::<abi::Dim>().read_unaligned()) }
    }

    /// Returns this OS thread's dynamic shared memory. It has a margin on either side.
    ///
    /// # Safety
    /// The module is loaded.
    pub(crate) unsafe fn dynamic_shared(&self) -> Option<*mut u8> {
        // SAFETY: the symbol table's distance between two variables of this thread's block.
        unsafe { Some((self.anchor)().offset(self.dynamic_shared?)) }
    }
}

impl Function {
    /// Reads an entry from the table of a module.
    ///
    /// # Safety
    /// `kernel` is an entry of a loaded module's table.
    pub(crate) unsafe fn new(kernel: &abi::Kernel, image: &Image, locals: &Arc<Locals>) -> Self {
        // SAFETY: a constant string and a constant array of the module.
        let (name, params) = unsafe {
            (
                CStr::from_ptr(kernel.name).to_string_lossy().into_owned(),
                std::slice::from_raw_parts(kernel.params, kernel.param_count as usize),
            )
        };
        Self {
            static_shared: image.static_shared(&name) as u32,
            name: name.into(),
            entry: kernel.entry,
            params: params
                .iter()
                .map(|p| ParamInfo { offset: p.offset as usize, size: p.size as usize })
                .collect(),
            params_size: kernel.params_size as usize,
            params_align: kernel.params_align as usize,
            max_threads: kernel.max_threads,
            locals: locals.clone(),
            prints: image.prints,
        }
    }

    /// Returns the kernel behind a handle.
    ///
    /// # Safety
    /// Its module is loaded.
    pub(crate) unsafe fn borrow<'a>(raw: RawFunction) -> &'a Self {
        // SAFETY: made in `module_function`; the module's table does not move.
        unsafe { &*(raw.0 as *const Self) }
    }

    /// Returns how many threads a block of this kernel may have.
    pub(crate) fn most_threads(&self) -> u32 {
        let most = abi::MAX_THREADS as u32;
        if self.max_threads == 0 { most } else { self.max_threads.min(most) }
    }
}
