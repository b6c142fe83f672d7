//! Kernels for CUDA: a fat binary with one cubin per target, and PTX for the newest target.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use super::{
    Common, Image, Output, SHELL, beside, checks, dependencies, device_code, execute, include, preprocess,
    stamp, write_unit,
};
use crate::backend::Backend;
use crate::diagnostic::{Diagnostic, Error, Result};
use crate::headers::{vendor, write_if_changed};
use crate::names::places_of;
use crate::parse;
use crate::report::{KernelReport, Occupancy};
use crate::tables;
use crate::tables::nvidia::{self, Resources};
use crate::toolchain::Nvcc;
use crate::unit::Unit;

pub(crate) fn compile(unit: &Unit, nvcc: &Nvcc, archs: &[String], common: &Common) -> Result<Output> {
    let name = &unit.module.name;
    let image = common.out_dir.join(format!("{name}.fatbin"));
    // nvcc chooses the names of the cubins that it packs. We need them for their tables.
    let keep = common.out_dir.join(format!("{name}.cuda"));
    let source = format!("{name}.nvcc.cu");
    // nvcc understands CUDA's host code, but not HIP's.
    let of_hip = unit.source.text.contains("<hip/") || unit.source.text.contains("\"hip/");
    let code = if of_hip { device_code(unit)? } else { include(unit)? };
    let text = write_unit(unit, &common.out_dir.join(&source), &code)?;
    let mut numbers = numbers(archs)?;
    let Some(newest) = newest(archs) else {
        return Err(Error::message("no CUDA target was named; sm_80 is one"));
    };
    // The driver prefers this image on Hopper. Others run the plain one, whose PTX later GPUs can use.
    if wants_hopper(&unit.source.text) && numbers.contains(&"90") && !numbers.contains(&"90a") {
        numbers.push("90a");
    }

    let beside = beside(unit).filter(|argument| of_hip && !argument.contains(SHELL));
    let beside = beside.map(|argument| format!("-Xcompiler={argument}"));
    let flags: Vec<_> =
        flags(&numbers, newest).chain(common.shell_arguments(Backend::Cuda)?).chain(beside).collect();

    // nvcc passes its arguments to a shell, in quotes that still let it interpret some characters. So we run
    // it in the output folder and only use names relative to it, whatever the folder itself is called.
    let command = |more: Option<[String; 2]>| {
        let mut command = Command::new(&nvcc.path);
        command.current_dir(&common.out_dir).args(&flags).arg("--keep-dir").arg(format!("{name}.cuda"));
        command.args(more.into_iter().flatten()).arg(&source).arg("-o").arg(format!("{name}.fatbin"));
        command
    };
    let complete = numbers.iter().all(|n| cubin(&keep, n).is_some());
    let parts = [&*format!("{:?}", command(None)), &nvcc.version, &text];
    let run = |command| {
        let _ = fs::remove_dir_all(&keep);
        fs::create_dir_all(&keep)?;
        let log = execute(command, unit, Backend::Cuda, &format!("CUDA (sm_{})", numbers.join(", sm_")));
        let dependencies = dependencies::of_preprocessed(&keep, &common.out_dir);
        drop_intermediates(&keep);
        Ok((log?, dependencies))
    };
    let outcome = stamp::unless_good((&image, complete), unit, common, &parts, || {
        run(command(None)).or_else(|error| {
            // Host code often needs a library that is not installed, or functions that this version of CUDA no longer has.
            let libraries = || command(Some(host_libraries(common)));
            if unit.module.uninstantiated
                && let Ok(log) = run(libraries())
            {
                return Ok(log);
            }
            let Some(code) = without_host_code(unit, nvcc, &numbers, common) else { return Err(error) };
            write_if_changed(&common.out_dir.join(&source), code.as_bytes())?;
            run(libraries()).map_err(|kernels| {
                Error::message(format!("{kernels}\nThat is without the host code. With it:\n{error}"))
            })
        })
    })?;
    let mut targets: Vec<String> = numbers.iter().map(|n| format!("sm_{n}")).collect();
    targets.push(format!("compute_{newest}"));
    let mut image = Image { backend: Backend::Cuda, targets, path: image, symbols: Vec::new() };
    let mut found = Found { resources: nvidia::resources(&outcome.log), ..Found::default() };
    for number in &numbers {
        let target = format!("sm_{number}");
        let path = cubin(&keep, number)
            .ok_or_else(|| Error::message(format!("nvcc left no cubin for {target} of {name}")))?;
        found.read(unit, (&target, *number == newest), &path, &mut image)?;
    }
    Error::check(found.diagnostics)?;
    let warnings = nvidia::warnings(&outcome.log);
    Ok(Output::new(image, found.reports, outcome, warnings, found.writable))
}

/// Returns the number of the newest target.
pub(super) fn newest(archs: &[String]) -> Option<&str> {
    numbers(archs).ok()?.into_iter().max_by_key(|number| sort_key(number))
}

/// Returns the options with which host code may include libraries that are not installed.
fn host_libraries(common: &Common) -> [String; 2] {
    let folder = common.includes.first().map(|ours| ours.join(vendor::HOST_OF_CUDA)).unwrap_or_default();
    let folder = folder.strip_prefix(&common.out_dir).unwrap_or(&folder).display();
    // CUB calls NVTX if it finds the header, and what we have has no functions.
    [format!("-I{folder}"), "-DCCCL_DISABLE_NVTX".to_owned()]
}

/// Returns the file as the preprocessor leaves it for a target.
pub(super) fn preprocess(unit: &Unit, nvcc: &Nvcc, number: &str, common: &Common) -> Result<Vec<u8>> {
    let name = format!("{}.cuda.preprocess.cu", unit.module.name);
    preprocess::write_source(unit, common, &name, "#include <cuda_runtime.h>\n")?;
    let arguments = common.shell_arguments(Backend::Cuda)?;
    preprocess::execute(unit, |kept| {
        let mut command = Command::new(&nvcc.path);
        command.current_dir(&common.out_dir).args(["-std=c++17", "-x=cu", "-E"]);
        command.arg(format!("-gencode=arch=compute_{number},code=sm_{number}"));
        command.args(&arguments).args(host_libraries(common));
        command.arg(format!("-Xcompiler={}", kept.join(","))).arg(&name);
        command
    })
}

/// Returns the file as the preprocessor leaves it for each target, without what only host code needs. Returns `None` if the file
/// has no host code, or if the preprocessor fails.
fn without_host_code(unit: &Unit, nvcc: &Nvcc, numbers: &[&str], common: &Common) -> Option<String> {
    let mut code = String::new();
    let mut has_host_code = false;
    for (at, number) in numbers.iter().enumerate() {
        let source = preprocess::source(unit, preprocess(unit, nvcc, number, common).ok()?, common);
        let part = parse::device_part(&source).ok()?;
        has_host_code |= part.is_some();
        let text = part.as_ref().unwrap_or(&source.text);
        // The host code that would instantiate templates is gone, so our checks do it, for the kernels that this target has.
        let mut here = Unit { only_if: None, ..unit.clone() };
        let module = Arc::make_mut(&mut here.module);
        module.kernels.retain(|kernel| places_of(text, kernel.function.name()).next().is_some());
        let (word, digits) =
            (if at == 0 { "if" } else { "elif" }, number.trim_end_matches(char::is_alphabetic));
        let (text, checks) = (unit.in_place(text), checks(&here));
        code.push_str(&format!("#{word} __CUDA_ARCH__ == {digits}0\n{text}{checks}"));
    }
    has_host_code.then(|| code + "#endif\n")
}

/// Returns our options for these targets.
fn flags(numbers: &[&str], newest: &str) -> impl Iterator<Item = String> {
    let always = ["-std=c++17", "-O3", "--fatbin", "-x=cu", "-Xptxas=-v", "--keep"].map(str::to_owned);
    let code = |number: &&str| format!("-gencode=arch=compute_{number},code=sm_{number}");
    let ptx = format!("-gencode=arch=compute_{newest},code=compute_{newest}");
    always.into_iter().chain(numbers.iter().map(code)).chain([ptx])
}

/// What we found in the cubins.
#[derive(Default)]
struct Found {
    /// What ptxas says about each symbol and target.
    resources: HashMap<(String, String), Resources>,
    reports: Vec<KernelReport>,
    diagnostics: Vec<Diagnostic>,
    writable: Vec<String>,
}

impl Found {
    /// Reads a target's cubin: its variables, and each kernel's parameters and resources.
    fn read(
        &mut self,
        unit: &Unit,
        (target, is_newest): (&str, bool),
        path: &Path,
        image: &mut Image,
    ) -> Result<()> {
        let cubin = fs::read(path)?;
        image.add_globals(&unit.module, &nvidia::variables(&cubin));
        self.writable.extend(super::writable(path, &cubin)?);
        let tables =
            nvidia::kernels(&cubin).map_err(|e| Error::message(format!("{}: {e}", path.display())))?;
        if tables.is_empty() && unit.module.kernels.is_empty() {
            let name = unit.source.path.display();
            return Err(Error::message(format!(
                "{name}: nothing in the file instantiates its kernel templates for {target}; name instances with \
                 `Kernels::instantiate`"
            )));
        }
        for function in unit.module.functions() {
            let (kernel, instance) = function;
            let symbol = match tables::symbols::find(function, &unit.module, tables.keys()) {
                Ok(symbol) => symbol,
                // We have read the file for the newest target. Another may lack a kernel.
                Err(_) if unit.only_if.is_some() && !is_newest => continue,
                Err(e) => return Err(Error::message(format!("{}: {e}", path.display()))),
            };
            image.add(&kernel.key(instance), symbol)?;
            let compiled = &tables[symbol];
            self.diagnostics.extend(tables::compare(&unit.source, function, &compiled.params, target));
            let used = self.resources.get(&(symbol.to_owned(), target.to_owned()));
            let block = kernel.usual_block(instance);
            self.reports.push(KernelReport {
                registers: used.map(|r| r.registers),
                spills: used.map(|r| r.spills),
                scratch: used.map(|r| r.scratch),
                shared: used.map(|r| r.shared),
                wave_size: Some(32),
                max_threads: instance.max_threads.or(Some(1024)),
                occupancy: used.and_then(|r| Occupancy::nvidia(target, r.registers, r.shared, block)),
                code_size: Some(compiled.code_size),
                ..KernelReport::new(unit, function, Backend::Cuda, target, path)
            });
        }
        Ok(())
    }
}

/// Returns the numbers of the targets without duplicates: `90` for `sm_90`, `90a` for `sm_90a`.
fn numbers(archs: &[String]) -> Result<Vec<&str>> {
    let mut numbers = Vec::new();
    for arch in archs {
        let number = arch.strip_prefix("sm_").or_else(|| arch.strip_prefix("compute_"));
        let valid = |n: &&str| {
            let digits = n.trim_end_matches(['a', 'f']);
            digits.len() >= 2 && n.len() - digits.len() <= 1 && digits.bytes().all(|b| b.is_ascii_digit())
        };
        match number.filter(valid) {
            Some(number) if numbers.contains(&number) => {}
            Some(number) => numbers.push(number),
            None => {
                return Err(Error::message(format!("`{arch}` is not a CUDA target; they look like sm_80")));
            }
        }
    }
    Ok(numbers)
}

/// Returns true if the file asks for `sm_90a` too, with `#define GS_SM_90A 1` on a line of its own.
fn wants_hopper(text: &str) -> bool {
    text.lines().any(|line| line.split_whitespace().eq(["#define", "GS_SM_90A", "1"]))
}

/// A target with a letter comes before the same one without, because the PTX of such a target runs nowhere else.
fn sort_key(number: &str) -> (u32, bool) {
    let digits = number.trim_end_matches(char::is_alphabetic);
    (digits.parse().unwrap_or(0), digits == number)
}

/// Returns the cubin that nvcc kept for a target. It is called `k.sm_80.cubin`, `k.compute_80.cubin` or
/// `k.compute_80.sm_80.cubin`, depending on how many targets there are.
fn cubin(keep: &Path, number: &str) -> Option<PathBuf> {
    let parts = [format!("sm_{number}"), format!("compute_{number}")];
    keep.read_dir().ok()?.filter_map(|e| e.ok().map(|e| e.path())).find(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.ends_with(".cubin") && name.split('.').any(|part| parts.iter().any(|p| p == part))
    })
}

/// Deletes the other files that nvcc keeps. They are a hundred times larger than the cubins.
fn drop_intermediates(keep: &Path) {
    for entry in keep.read_dir().into_iter().flatten().flatten() {
        if entry.path().extension().is_none_or(|e| e != "cubin" && e != "ptx") {
            let _ = fs::remove_file(entry.path());
        }
    }
}
