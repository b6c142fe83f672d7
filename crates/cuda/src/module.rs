//! Modules and their kernels.

use std::ffi::{CString, c_void};
use std::ptr;

use cudarc::driver::sys::{CUfunction_attribute as Attribute, CUjit_option};
use gpustream_hal::driver::Status;
use gpustream_hal::{
    Compiled, ErrorKind, FunctionInfo, Modules, ParamInfo, RawBuffer, RawFunction, RawModule, Result, Source,
};

use crate::arch::rank;
use crate::compiler::{Nvrtc, compiler};
use crate::device::CudaDevice;
use crate::error::error;
use crate::handle::{function_of, module_of};
use crate::image::Aligned;

/// Room for what the driver's compiler says about PTX that it refuses.
const LOG_BYTES: usize = 8 << 10;

// SAFETY: handles and parameters come from the CUDA driver, or from the image that it loaded.
unsafe impl Modules for CudaDevice {
    fn target_rank(&self, target: &str) -> Option<u32> {
        rank(&self.info.arch, target)
    }

    unsafe fn module_load(&self, image: &[u8]) -> Result<RawModule> {
        let image = Aligned::new(image)?;
        let api = self.enter()?;
        let mut log = vec![0u8; LOG_BYTES];
        let mut options =
            [CUjit_option::CU_JIT_ERROR_LOG_BUFFER, CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
        // We must pass the size itself instead of a pointer; the driver writes back the size that it used.
        let mut values = [log.as_mut_ptr().cast::<c_void>(), ptr::without_provenance_mut(LOG_BYTES)];
        let mut module = ptr::null_mut();
        // SAFETY: all pointers are to locals that outlive the call. The image is aligned, ends with a NUL and is as long as its
        // header says.
        let answer = unsafe {
            api.cuModuleLoadDataEx(
                &raw mut module,
                image.as_ptr().cast(),
                options.len() as u32,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        };
        answer.ok().map_err(|failure| {
            let end = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
            let log = String::from_utf8_lossy(&log[..end]);
            match log.trim_end() {
                "" => failure,
                log => failure.with_context(format_args!("the driver's compiler says:\n{log}\n")),
            }
        })?;
        Ok(RawModule(module as usize))
    }

    unsafe fn module_unload(&self, module: RawModule) -> Result<()> {
        let api = self.enter()?;
        // SAFETY: the caller vouches that nothing of the module is in use.
        unsafe { api.cuModuleUnload(module_of(module)) }.ok()
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
            unsafe { api.cuModuleGetFunction(&raw mut function, module_of(module), symbol.as_ptr()) };
        answer.found(not_found)?;
        Ok(RawFunction(function as usize))
    }

    unsafe fn module_global(&self, module: RawModule, name: &str) -> Result<(RawBuffer, usize)> {
        let api = self.enter()?;
        let not_found = || {
            error(ErrorKind::GlobalNotFound, format!("the module has no variable `{name}`: check the name"))
        };
        let symbol = CString::new(name).map_err(|_| not_found())?;
        let (mut address, mut bytes) = (0, 0);
        // SAFETY: the first two pointers are to locals, the name is NUL-terminated; the caller vouches for the module.
        let answer = unsafe {
            api.cuModuleGetGlobal_v2(&raw mut address, &raw mut bytes, module_of(module), symbol.as_ptr())
        };
        answer.found(not_found)?;
        Ok((RawBuffer(address as usize), bytes))
    }

    unsafe fn function_params(&self, function: RawFunction) -> Result<Option<Vec<ParamInfo>>> {
        let api = self.enter()?;
        if api.cuFuncGetParamInfo.is_none() {
            return Ok(None);
        }
        let mut params = Vec::new();
        loop {
            let (mut offset, mut size) = (0, 0);
            let (function, index) = (function_of(function), params.len());
            // SAFETY: both pointers are to locals; the caller vouches for the function.
            let answer = unsafe { api.cuFuncGetParamInfo(function, index, &raw mut offset, &raw mut size) };
            match answer.status {
                // The index is one more than the last.
                Some(Status::INVALID_VALUE) => return Ok(Some(params)),
                Some(Status::NOT_SUPPORTED) => return Ok(None),
                _ => answer.ok()?,
            }
            params.push(ParamInfo { offset, size });
        }
    }

    unsafe fn function_info(&self, function: RawFunction) -> Result<FunctionInfo> {
        let api = self.enter()?;
        let attribute = |which: Attribute| -> Result<u32> {
            let mut value = 0;
            // SAFETY: the pointer is to a local; the caller vouches for the function.
            unsafe { api.cuFuncGetAttribute(&raw mut value, which, function_of(function)) }.ok()?;
            Ok(u32::try_from(value).unwrap_or(0))
        };
        let mut info = FunctionInfo::default();
        info.max_threads_per_block = attribute(Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?;
        info.static_shared = attribute(Attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?;
        info.registers = attribute(Attribute::CU_FUNC_ATTRIBUTE_NUM_REGS)?;
        info.local = attribute(Attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?;
        Ok(info)
    }

    unsafe fn function_set_max_dynamic_shared(&self, function: RawFunction, bytes: u32) -> Result<()> {
        let api = self.enter()?;
        let which = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the caller vouches for the function.
        unsafe { api.cuFuncSetAttribute(function_of(function), which, bytes as i32) }.ok()
    }

    unsafe fn compile(&self, source: &Source<'_>) -> Result<Compiled> {
        // SAFETY: the options are harmless, by the trait's contract.
        unsafe { compiler()?.compile(source, &self.info.arch) }
    }

    fn compiler(&self) -> Result<String> {
        compiler().map(Nvrtc::version)
    }
}
