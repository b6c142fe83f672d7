//! Modules and their kernels.

use std::ffi::{CString, c_int};
use std::ptr;

use gpustream_hal::lock::lock;
use gpustream_hal::{
    Compiled, ErrorKind, FunctionInfo, Modules, ParamInfo, RawBuffer, RawFunction, RawModule, Result, Source,
};

use crate::compiler::Hiprtc;
use crate::device::HipDevice;
use crate::error::error;
use crate::ffi::{
    HIP_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
    HIP_FUNC_ATTRIBUTE_NUM_REGS, HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, hipFunction_attribute,
};
use crate::handle::{function_of, module_of};

// SAFETY: handles and parameters come from the HIP driver, or from the image that it loaded.
unsafe impl Modules for HipDevice {
    fn target_rank(&self, target: &str) -> Option<u32> {
        self.arch.rank(target)
    }

    /// `hipModuleLoadData` gets no length, copies nothing, and builds the module on first use. So we must keep the
    /// image until the module is unloaded, with a zero after it, because HIP may read it as text.
    unsafe fn module_load(&self, image: &[u8]) -> Result<RawModule> {
        let api = self.enter()?;
        let image: Box<[u8]> = [image, &[0]].concat().into();
        let mut module = ptr::null_mut();
        // SAFETY: the pointer is to a local; the caller vouches for the image, which we keep as long as the module.
        unsafe { api.hipModuleLoadData(&raw mut module, image.as_ptr().cast()) }.ok()?;
        lock(&self.images).insert(module as usize, image);
        Ok(RawModule(module as usize))
    }

    unsafe fn module_unload(&self, module: RawModule) -> Result<()> {
        let api = self.enter()?;
        // SAFETY: the caller vouches that nothing of the module is in use.
        unsafe { api.hipModuleUnload(module_of(module)) }.ok()?;
        lock(&self.images).remove(&module.0);
        Ok(())
    }

    unsafe fn module_function(&self, module: RawModule, name: &str) -> Result<RawFunction> {
        let api = self.enter()?;
        let not_found = || {
            let message = format!(
                "the module has no kernel `{name}`: check the name, and that the kernel is declared extern \"C\""
            );
            error(ErrorKind::KernelNotFound, message)
        };
        let symbol = CString::new(name).map_err(|_| not_found())?;
        let mut function = ptr::null_mut();
        // SAFETY: the first pointer is to a local, the name is NUL-terminated; the caller vouches for the module.
        let answer =
            unsafe { api.hipModuleGetFunction(&raw mut function, module_of(module), symbol.as_ptr()) };
        answer.found(not_found)?;
        Ok(RawFunction(function as usize))
    }

    unsafe fn module_global(&self, module: RawModule, name: &str) -> Result<(RawBuffer, usize)> {
        let api = self.enter()?;
        let not_found = || {
            let message = format!(
                "the module has no variable `{name}`: check the name, and that the variable is not `static`, because HIP cannot find those"
            );
            error(ErrorKind::GlobalNotFound, message)
        };
        let symbol = CString::new(name).map_err(|_| not_found())?;
        let (mut address, mut bytes) = (ptr::null_mut(), 0);
        // SAFETY: the first two pointers are to locals, the name is NUL-terminated; the caller vouches for the module.
        let answer = unsafe {
            api.hipModuleGetGlobal(&raw mut address, &raw mut bytes, module_of(module), symbol.as_ptr())
        };
        answer.found(not_found)?;
        Ok((RawBuffer(address as usize), bytes))
    }

    /// We cannot ask HIP, but we need not: `gpustream-build` has compared the table with the notes in the code object.
    unsafe fn function_params(&self, function: RawFunction) -> Result<Option<Vec<ParamInfo>>> {
        let _ = function;
        Ok(None)
    }

    unsafe fn function_info(&self, function: RawFunction) -> Result<FunctionInfo> {
        let api = self.enter()?;
        let attribute = |which: hipFunction_attribute| -> Result<u32> {
            let mut value: c_int = 0;
            // SAFETY: the pointer is to a local; the caller vouches for the function.
            unsafe { api.hipFuncGetAttribute(&raw mut value, which, function_of(function)) }.ok()?;
            Ok(u32::try_from(value).unwrap_or(0))
        };
        let mut info = FunctionInfo::default();
        info.max_threads_per_block = attribute(HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?;
        info.static_shared = attribute(HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?;
        info.registers = attribute(HIP_FUNC_ATTRIBUTE_NUM_REGS)?;
        info.local = attribute(HIP_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?;
        Ok(info)
    }

    unsafe fn compile(&self, source: &Source<'_>) -> Result<Compiled> {
        // SAFETY: the options are harmless, by the trait's contract.
        unsafe { self.driver.hiprtc()?.compile(source, self.arch.processor()) }
    }

    fn compiler(&self) -> Result<String> {
        self.driver.hiprtc().map(Hiprtc::description)
    }
}
