//! Modules on `hipModule_t`.

use std::ffi::{CString, c_int, c_void};
use std::ptr;
use std::sync::PoisonError;

use gpustream_hal::{ErrorKind, FunctionInfo, Modules, ParamInfo, RawFunction, RawModule, Result, Source};

use crate::compiler::Hiprtc;
use crate::device::HipDevice;
use crate::error::error;
use crate::ffi::{
    HIP_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
    HIP_FUNC_ATTRIBUTE_NUM_REGS, HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, hipFunction_attribute, hipFunction_t,
};

/// HIP's form of a kernel.
pub(crate) fn function_of(function: RawFunction) -> hipFunction_t {
    function.0 as *mut c_void
}

// SAFETY: handles and parameters are the HIP driver's, or read from the image that it loaded.
unsafe impl Modules for HipDevice {
    fn target_rank(&self, target: &str) -> Option<u32> {
        self.arch.rank(target)
    }

    /// `hipModuleLoadData` is told no length and copies nothing, and builds the module on first use: the image is
    /// kept until the module is unloaded, with a zero after it for a reader that takes it for a text.
    unsafe fn module_load(&self, image: &[u8]) -> Result<RawModule> {
        let api = self.enter()?;
        let image: Box<[u8]> = [image, &[0]].concat().into();
        let mut module = ptr::null_mut();
        // SAFETY: the image is a whole one, by the trait's contract, and is kept as long as the module.
        unsafe { api.hipModuleLoadData(&raw mut module, image.as_ptr().cast()) }.ok()?;
        self.images.lock().unwrap_or_else(PoisonError::into_inner).insert(module as usize, image);
        Ok(RawModule(module as usize))
    }

    unsafe fn module_unload(&self, module: RawModule) -> Result<()> {
        let api = self.enter()?;
        // SAFETY: the module is loaded and not used again, by the trait's contract.
        unsafe { api.hipModuleUnload(module.0 as *mut c_void) }.ok()?;
        self.images.lock().unwrap_or_else(PoisonError::into_inner).remove(&module.0);
        Ok(())
    }

    unsafe fn module_function(&self, module: RawModule, name: &str) -> Result<RawFunction> {
        let api = self.enter()?;
        let not_found = || error(ErrorKind::KernelNotFound, format!("the module has no kernel `{name}`"));
        let symbol = CString::new(name).map_err(|_| not_found())?;
        let mut function = ptr::null_mut();
        // SAFETY: the module is loaded, by the trait's contract; the name is a C string.
        let answer =
            unsafe { api.hipModuleGetFunction(&raw mut function, module.0 as *mut c_void, symbol.as_ptr()) };
        let call = answer.function.name;
        answer.ok().map_err(|failure| match failure.kind() {
            ErrorKind::KernelNotFound => not_found().with_call(call, failure.code().unwrap_or(0)),
            _ => failure,
        })?;
        Ok(RawFunction(function as usize))
    }

    /// HIP cannot be asked; `gpustream-build` has compared the table with the code object's notes.
    unsafe fn function_params(&self, function: RawFunction) -> Result<Option<Vec<ParamInfo>>> {
        let _ = function;
        Ok(None)
    }

    unsafe fn function_info(&self, function: RawFunction) -> Result<FunctionInfo> {
        let api = self.enter()?;
        let read = |attribute: hipFunction_attribute| -> Result<u32> {
            let mut value: c_int = 0;
            // SAFETY: the function's module is loaded, by the trait's contract; the pointer is to a local.
            let answer = unsafe { api.hipFuncGetAttribute(&raw mut value, attribute, function_of(function)) };
            answer.ok()?;
            Ok(value.max(0) as u32)
        };
        let mut info = FunctionInfo::default();
        info.max_threads_per_block = read(HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?;
        info.static_shared = read(HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?;
        info.registers = read(HIP_FUNC_ATTRIBUTE_NUM_REGS)?;
        info.local = read(HIP_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?;
        Ok(info)
    }

    unsafe fn compile(&self, source: &Source<'_>) -> Result<Vec<u8>> {
        // SAFETY: the options are harmless, by the trait's contract.
        unsafe { self.driver.hiprtc()?.compile(source, self.arch.processor()) }
    }

    fn compiler(&self) -> Result<String> {
        self.driver.hiprtc().map(Hiprtc::description)
    }
}
