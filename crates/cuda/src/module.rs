//! Modules and their kernels.

use std::ffi::{CString, c_void};
use std::ptr;

use cudarc::driver::sys::{CUfunction, CUfunction_attribute as Attribute, CUjit_option, CUmodule};
use gpustream_hal::{
    Error, ErrorKind, FunctionInfo, Modules, ParamInfo, RawFunction, RawModule, Result, Source,
};

use crate::device::CudaDevice;
use crate::driver::{Status, call};
use crate::error::failed;
use crate::image::Aligned;
use crate::nvrtc;

/// Room for what the driver's compiler says about PTX it refuses.
const LOG_BYTES: usize = 8 << 10;

// SAFETY: handles and parameters are the CUDA driver's, or read from the image that it loaded.
unsafe impl Modules for CudaDevice {
    fn target_rank(&self, target: &str) -> Option<u32> {
        rank(&self.info.arch, target)
    }

    unsafe fn module_load(&self, image: &[u8]) -> Result<RawModule> {
        let image = Aligned::new(image)?;
        let driver = self.enter()?;
        let mut log = vec![0u8; LOG_BYTES];
        let mut options =
            [CUjit_option::CU_JIT_ERROR_LOG_BUFFER, CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
        // The driver wants the size itself where it expects a pointer, and writes back what it used.
        let mut values = [log.as_mut_ptr().cast::<c_void>(), ptr::without_provenance_mut(LOG_BYTES)];
        let mut module = ptr::null_mut();
        // SAFETY: all pointers are to locals that outlive the call; the image is aligned, NUL-terminated and as
        // long as its header says.
        let status = unsafe {
            (driver.api.cuModuleLoadDataEx)(
                &raw mut module,
                image.as_ptr().cast(),
                options.len() as u32,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        };
        if status == Status::OK {
            return Ok(RawModule(module as usize));
        }
        let mut error = failed(&driver.api, "cuModuleLoadDataEx", status);
        let end = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
        let log = String::from_utf8_lossy(&log[..end]);
        if !log.trim().is_empty() {
            error = error.with_context(format_args!("the driver's compiler says:\n{}\n", log.trim_end()));
        }
        Err(error)
    }

    unsafe fn module_unload(&self, module: RawModule) -> Result<()> {
        let driver = self.enter()?;
        // SAFETY: the caller vouches that nothing of the module is in use.
        unsafe { call!(driver, cuModuleUnload(module.0 as CUmodule)) }
    }

    unsafe fn module_function(&self, module: RawModule, name: &str) -> Result<RawFunction> {
        let Ok(c_name) = CString::new(name) else {
            let text = format!("a kernel's name has no NUL in it: {name:?}");
            return Err(Error::new(ErrorKind::KernelNotFound, text).with_backend("cuda"));
        };
        let driver = self.enter()?;
        let mut function = ptr::null_mut();
        // SAFETY: the first pointer is to a local, the name is NUL-terminated; the caller vouches for the module.
        unsafe {
            call!(driver, cuModuleGetFunction(&raw mut function, module.0 as CUmodule, c_name.as_ptr()))
        }
        .map_err(|e| e.with_context(format_args!("kernel `{name}`")))?;
        Ok(RawFunction(function as usize))
    }

    unsafe fn function_params(&self, function: RawFunction) -> Result<Option<Vec<ParamInfo>>> {
        let driver = self.enter()?;
        let Some(param_info) = driver.api.cuFuncGetParamInfo else { return Ok(None) };
        let mut params = Vec::new();
        loop {
            let (mut offset, mut size) = (0, 0);
            // SAFETY: both pointers are to locals; the caller vouches for the function.
            let status = unsafe { param_info(raw(function), params.len(), &raw mut offset, &raw mut size) };
            match status {
                Status::OK => params.push(ParamInfo { offset, size }),
                // One beyond the last.
                Status::INVALID_VALUE => return Ok(Some(params)),
                Status::NOT_SUPPORTED => return Ok(None),
                status => return Err(failed(&driver.api, "cuFuncGetParamInfo", status)),
            }
        }
    }

    unsafe fn function_info(&self, function: RawFunction) -> Result<FunctionInfo> {
        let driver = self.enter()?;
        let attribute = |which: Attribute| -> Result<u32> {
            let mut value = 0;
            // SAFETY: the pointer is to a local; the caller vouches for the function.
            unsafe { call!(driver, cuFuncGetAttribute(&raw mut value, which, raw(function)))? };
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
        let driver = self.enter()?;
        let which = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the caller vouches for the function.
        unsafe { call!(driver, cuFuncSetAttribute(raw(function), which, bytes as i32)) }
    }

    unsafe fn compile(&self, source: &Source<'_>) -> Result<Vec<u8>> {
        nvrtc::compiler()?.compile(source, &self.info.arch)
    }

    fn compiler(&self) -> Result<String> {
        Ok(nvrtc::compiler()?.version())
    }
}

/// The driver's handle.
pub(crate) const fn raw(function: RawFunction) -> CUfunction {
    function.0 as CUfunction
}

/// A compute capability and what is behind it: `90`, `90a`, `100f`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Suffix {
    None,
    /// Runs on later devices of the same family.
    Family,
    /// Runs on this very architecture.
    Exact,
}

fn capability(text: &str) -> Option<(u32, u32, Suffix)> {
    let (digits, suffix) = match text.as_bytes().last()? {
        b'a' => (&text[..text.len() - 1], Suffix::Exact),
        b'f' => (&text[..text.len() - 1], Suffix::Family),
        _ => (text, Suffix::None),
    };
    let number: u32 = digits.parse().ok()?;
    Some((number / 10, number % 10, suffix))
}

/// How well an image for `target` suits a device of architecture `arch`.
///
/// Machine code runs on its own major version, at its own minor or later; PTX on anything not older. Machine
/// code is preferred, then the newest target.
fn rank(arch: &str, target: &str) -> Option<u32> {
    let (major, minor, _) = capability(arch.strip_prefix("sm_")?)?;
    let (machine_code, version) = match target.strip_prefix("sm_") {
        Some(version) => (true, version),
        None => (false, target.strip_prefix("compute_")?),
    };
    let (wants_major, wants_minor, suffix) = capability(version)?;
    let runs = match suffix {
        Suffix::Exact => (major, minor) == (wants_major, wants_minor),
        Suffix::Family => major == wants_major && minor >= wants_minor,
        Suffix::None if machine_code => major == wants_major && minor >= wants_minor,
        Suffix::None => (major, minor) >= (wants_major, wants_minor),
    };
    let specific = match suffix {
        Suffix::None => 0,
        Suffix::Family => 1,
        Suffix::Exact => 2,
    };
    runs.then_some(u32::from(machine_code) * 1_000_000 + (wants_major * 10 + wants_minor) * 10 + specific)
}

#[cfg(test)]
mod tests {
    use super::rank;

    #[test]
    fn machine_code_runs_within_its_major_version() {
        assert!(rank("sm_90", "sm_90").is_some());
        assert!(rank("sm_89", "sm_80").is_some());
        assert_eq!(rank("sm_80", "sm_89"), None);
        assert_eq!(rank("sm_90", "sm_80"), None);
        assert_eq!(rank("sm_120", "sm_100"), None);
        assert!(rank("sm_121", "sm_120").is_some());
    }

    #[test]
    fn ptx_runs_on_anything_not_older() {
        assert!(rank("sm_90", "compute_80").is_some());
        assert!(rank("sm_100", "compute_90").is_some());
        assert_eq!(rank("sm_86", "compute_90"), None);
    }

    #[test]
    fn specific_targets_run_only_where_they_say() {
        assert!(rank("sm_90", "sm_90a").is_some());
        assert_eq!(rank("sm_100", "compute_90a"), None);
        assert!(rank("sm_103", "sm_100f").is_some());
        assert_eq!(rank("sm_103", "sm_100a"), None);
    }

    #[test]
    fn the_best_of_several_is_the_newest_machine_code() {
        let best = |arch, targets: &[&'static str]| {
            targets.iter().copied().filter(|t| rank(arch, t).is_some()).max_by_key(|t| rank(arch, t))
        };
        assert_eq!(best("sm_90", &["sm_80", "compute_90", "sm_90", "compute_80"]), Some("sm_90"));
        assert_eq!(best("sm_90", &["sm_90", "sm_90a"]), Some("sm_90a"));
        assert_eq!(best("sm_89", &["sm_80", "sm_86", "compute_89", "sm_90"]), Some("sm_86"));
        assert_eq!(best("sm_120", &["sm_90", "compute_80", "compute_90"]), Some("compute_90"));
        assert_eq!(best("sm_75", &["sm_80", "gfx942", "x86-64-v3", "sm_", "compute_x"]), None);
    }
}
