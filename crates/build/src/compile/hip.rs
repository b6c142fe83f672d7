//! Kernels for HIP: one code object per target, and the bundle that ships them.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::{
    Common, Image, Output, SHELL, beside, dependencies, device_code, execute, preprocess, stamp, write_unit,
};
use crate::backend::Backend;
use crate::diagnostic::{Error, Result};
use crate::headers::write_if_changed;
use crate::report::{KernelReport, Occupancy};
use crate::tables::{self, amdgpu};
use crate::toolchain::{HipCompiler, HipKind};
use crate::unit::Unit;

pub(crate) fn compile(
    unit: &Unit,
    compiler: &HipCompiler,
    libs: Option<&Path>,
    arch: &str,
    common: &Common,
) -> Result<Output> {
    let name = format!("{}.{}", unit.module.name, arch.replace(':', "."));
    let (image, source) = (format!("{name}.co"), format!("{name}.hip"));
    let text = write_unit(unit, &common.out_dir.join(&source), &device_code(unit)?)?;
    let mut flags = flags(unit, compiler, libs, arch, common)?;

    let rule = format!("{name}.d");
    flags.extend(["-MD", "-MF", &rule].map(str::to_owned));

    // hipcc may be a script that lets a shell run the compiler, as nvcc does.
    let command = || {
        let mut command = Command::new(&compiler.path);
        command.current_dir(&common.out_dir).args(&flags).arg(&source).arg("-o").arg(&image);
        command
    };
    let image = common.out_dir.join(&image);
    let parts = [&*format!("{:?}", command()), &compiler.version, &text];
    let outcome = stamp::unless_good((&image, true), unit, common, &parts, || {
        let log = execute(command(), unit, Backend::Hip, &format!("HIP ({arch})"))?;
        Ok((log, dependencies::take_rule(&common.out_dir.join(&rule), &common.out_dir)))
    })?;
    let failed = |e| Error::message(format!("{}: {e}", image.display()));
    let bytes = fs::read(&image)?;
    let compiled = amdgpu::kernels(&bytes).map_err(failed)?;
    let targets = vec![arch.to_owned()];
    let mut object = Image { backend: Backend::Hip, targets, path: image.clone(), symbols: Vec::new() };
    object.add_globals(&unit.module, &amdgpu::variables(&bytes));
    let mut reports = Vec::new();
    let mut diagnostics = Vec::new();
    for function in unit.module.functions() {
        let (kernel, instance) = function;
        let symbol = tables::symbols::find(function, &unit.module, compiled.keys()).map_err(failed)?;
        object.add(&kernel.key(instance), symbol)?;
        let notes = &compiled[symbol];
        diagnostics.extend(tables::compare(&unit.source, function, &notes.params, arch));
        reports.push(KernelReport {
            registers: Some(notes.vgprs),
            scalar_registers: Some(notes.sgprs),
            spills: Some(notes.spills),
            scratch: Some(notes.scratch),
            shared: Some(notes.shared),
            wave_size: Some(notes.wavefront),
            max_threads: Some(notes.max_workgroup),
            occupancy: Occupancy::amd(arch, notes, kernel.usual_block(instance)),
            code_size: Some(notes.code_size),
            ..KernelReport::new(unit, function, Backend::Hip, arch, &image)
        });
    }
    Error::check(diagnostics)?;
    let log = outcome.log.clone();
    Ok(Output::new(object, reports, outcome, log, super::writable(&image, &bytes)?))
}

/// Returns the file as the preprocessor leaves it for a target.
pub(super) fn preprocess(
    unit: &Unit,
    compiler: &HipCompiler,
    arch: &str,
    common: &Common,
) -> Result<Vec<u8>> {
    let name = format!("{}.{}.preprocess.hip", unit.module.name, arch.replace(':', "."));
    preprocess::write_source(unit, common, &name, "")?;
    let flags = flags(unit, compiler, None, arch, common)?;
    preprocess::execute(unit, |kept| {
        let mut command = Command::new(&compiler.path);
        command.current_dir(&common.out_dir).args(&flags).arg("-nogpulib").arg("-E").args(kept).arg(&name);
        command
    })
}

/// Returns our options for a target.
fn flags(
    unit: &Unit,
    compiler: &HipCompiler,
    libs: Option<&Path>,
    arch: &str,
    common: &Common,
) -> Result<Vec<String>> {
    // nvcc includes its own header, and so do we here: a file without any include can still define a kernel.
    let mut flags = ["-x", "hip", "-std=c++17", "-O3", "-include", "gpustream/hip/compat.cuh"]
        .map(str::to_owned)
        .to_vec();
    flags.push(format!("--offload-arch={arch}"));
    match compiler.kind {
        HipKind::Rocm if compiler.path.ends_with("hipcc") => flags.push("--genco".to_owned()),
        HipKind::Rocm => flags.push("--offload-device-only".to_owned()),
        HipKind::Clang => {
            flags.push("--offload-device-only".to_owned());
            flags.push("-D__HIP_PLATFORM_AMD__".to_owned());
            // Every ROCm from 5.0 on reads the fourth format. A new Clang's default is newer.
            flags.push("-mcode-object-version=4".to_owned());
            if let Some(libs) = libs {
                flags.push(format!("--rocm-device-lib-path={}", libs.display()));
            }
        }
    }
    flags.push("--no-gpu-bundle-output".to_owned());
    flags.extend(common.shell_arguments(Backend::Hip)?);
    flags.extend(beside(unit).filter(|argument| !argument.contains(SHELL)));
    Ok(flags)
}

/// Packs code objects into the uncompressed container that every HIP runtime reads: a header, entries with
/// offset, size and name, then the objects. The first entry is empty and stands for the host.
pub(crate) fn bundle(unit: &Unit, objects: &[Image], common: &Common) -> Result<Image> {
    const MAGIC: &[u8; 24] = b"__CLANG_OFFLOAD_BUNDLE__";
    /// Code objects are mapped into memory, so each begins on a page.
    const ALIGN: usize = 4096;

    let mut entries = vec![("host-x86_64-unknown-linux--".to_owned(), Vec::new())];
    let mut targets = Vec::new();
    for object in objects {
        for target in &object.targets {
            entries.push((format!("hipv4-amdgcn-amd-amdhsa--{target}"), fs::read(&object.path)?));
            targets.push(target.clone());
        }
    }
    let header: usize = MAGIC.len() + 8 + entries.iter().map(|(name, _)| 24 + name.len()).sum::<usize>();
    let mut bytes = MAGIC.to_vec();
    bytes.extend((entries.len() as u64).to_le_bytes());
    let mut offset = header.next_multiple_of(ALIGN);
    for (name, object) in &entries {
        for field in [offset, object.len(), name.len()] {
            bytes.extend((field as u64).to_le_bytes());
        }
        bytes.extend(name.as_bytes());
        offset = (offset + object.len()).next_multiple_of(ALIGN);
    }
    for (_, object) in &entries {
        bytes.resize(bytes.len().next_multiple_of(ALIGN), 0);
        bytes.extend(object);
    }
    let path = common.out_dir.join(format!("{}.hipfb", unit.module.name));
    write_if_changed(&path, &bytes)?;
    let mut image = Image { backend: Backend::Hip, targets, path, symbols: Vec::new() };
    for (key, symbol) in objects.iter().flat_map(|object| &object.symbols) {
        image.add(key, symbol)?;
    }
    Ok(image)
}
