//! Kernels for the CPU: a shared object per instruction level, and one more for the backend's checked mode.
//!
//! Checks of array bounds keep loops over arrays of known size from being vectorised, whether or not the result is
//! used, so they have an image of their own. That image takes a sixth of the compile time, since it is not made to be
//! fast.

use std::fmt::Write as _;
use std::time::Instant;

use super::stamp::Stamp;
use super::{Common, Image, Output, checks, execute, file_size, include};
use crate::backend::Backend;
use crate::diagnostic::Result;
use crate::headers::{for_hosts, write_if_changed};
use crate::report::KernelReport;
use crate::toolchain::CxxCompiler;
use crate::unit::Unit;

/// The flags that keep kernels vectorised; without any one of these the loop over a block's threads stays scalar, up to
/// 20 times slower. Strict aliasing, on by default, is needed too.
const VECTORISING: [&str; 6] = [
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=fast",
    "-fvisibility=hidden",
    "-fvisibility-inlines-hidden",
    "-fno-semantic-interposition",
];

/// Flags for linking. The symbol table stays: the backend's checked mode finds shared arrays by it.
const LINK: [&str; 8] = [
    "-shared",
    "-static-libgcc",
    "-static-libstdc++",
    "-Wl,--as-needed",
    "-Wl,-Bsymbolic",
    "-Wl,-z,defs",
    "-Wl,-z,noexecstack",
    "-Wl,--strip-debug",
];

/// The end, after an instruction level, of the name of the image for checked mode.
pub(crate) const CHECKED: &str = "-checked";

pub(super) fn compile(unit: &Unit, compiler: &CxxCompiler, level: &str, common: &Common) -> Result<Output> {
    let name = &unit.module.name;
    let source = common.out_dir.join(format!("{name}.cpu.cpp"));
    let text = translation_unit(unit)?;
    write_if_changed(&source, text.as_bytes())?;
    let target = level.to_owned();
    let image = common.out_dir.join(format!("{name}.{target}.so"));

    let mut flags: Vec<String> = Vec::new();
    flags.extend(["-std=c++17", "-fPIC", "-Wno-unknown-pragmas", "-Wno-unused-function"].map(str::to_owned));
    flags.extend(VECTORISING.map(str::to_owned));
    // Frames larger than the guard pages below a thread's stack are touched from the top down, so that one frame too
    // many is a fault of its kernel and not a write beyond.
    flags.push("-fstack-clash-protection".to_owned());
    let (level, checked) = match level.strip_suffix(CHECKED) {
        Some(level) => (level, true),
        None => (level, false),
    };
    let own: &[&str] = if compiler.clang { &[] } else { &["-fno-gnu-unique", "-fno-extern-tls-init"] };
    let bounds = if compiler.clang { "-fsanitize=array-bounds" } else { "-fsanitize=bounds" };
    let kind: &[&str] = if checked { &["-O1", bounds, "-DGS_CPU_CHECKED"] } else { &["-O3"] };
    flags.extend(own.iter().chain(kind).map(|&flag| flag.to_owned()));
    match level {
        "aarch64" => flags.push("-march=armv8-a".to_owned()),
        level => flags.push(format!("-march={level}")),
    }
    flags.extend(common.arguments(Backend::Cpu));

    let object = image.with_extension("o");
    let command = || {
        let mut command = compiler.command();
        command.args(&flags).arg("-c").arg(&source).arg("-o").arg(&object);
        command
    };
    // A step of its own: with -fsanitize the driver would link a run-time library that nothing needs.
    let link = || {
        let mut command = compiler.command();
        command.arg(&object).args(LINK).arg("-o").arg(&image);
        command
    };
    let commands = format!("{:?} {:?}", command(), link());
    let mut parts: Vec<&str> = vec![&commands, &compiler.version, &text];
    parts.extend(for_hosts().map(|text| -> &str { text }));
    let stamp = Stamp::new(&image, unit, &parts);
    let mut compile_time = None;
    let mut warnings = String::new();
    if !stamp.is_good(&image, common) {
        stamp.clear();
        let start = Instant::now();
        warnings = execute(command(), unit, &format!("the CPU ({level})"))?;
        warnings += &execute(link(), unit, &format!("the CPU ({level})"))?;
        let _ = std::fs::remove_file(&object);
        compile_time = Some(start.elapsed());
        stamp.set("")?;
    }
    // The figures of that image would say nothing about the kernels that people run.
    let kernels = if checked { &[] } else { &*unit.module.kernels };
    let reports = kernels
        .iter()
        .map(|kernel| KernelReport {
            file: unit.source.path.clone(),
            kernel: kernel.name.clone(),
            backend: Backend::Cpu.name(),
            target: target.clone(),
            registers: None,
            scalar_registers: None,
            spills: None,
            shared: None,
            wave_size: None,
            max_threads: kernel.max_threads,
            occupancy: None,
            code_size: None,
            image_size: file_size(&image),
            compile_time,
        })
        .collect();
    let image = Image { backend: Backend::Cpu, targets: vec![target], path: image };
    Ok(Output { backend: Backend::Cpu, image, reports, compile_time, warnings })
}

/// Returns the user's file between the prelude and the module table, with the assertions against which the compiler's
/// idea of the file is held.
fn translation_unit(unit: &Unit) -> Result<String> {
    let mut text = String::from("// Generated by gpustream-build.\n#include <gpustream/cpu/prelude.cuh>\n");
    text.push_str(&include(unit)?);
    text.push_str(&checks(unit));
    text.push_str("#include <gpustream/cpu/export.cuh>\n");
    for name in &unit.module.dynamic_shared {
        let _ = writeln!(text, "GS_CPU_DYNAMIC_SHARED({name})");
    }
    text.push_str("GS_CPU_MODULE(\n");
    for kernel in &unit.module.kernels {
        let _ = match kernel.max_threads {
            Some(threads) => writeln!(text, "  GS_CPU_KERNEL_BOUNDS({}, {threads})", kernel.name),
            None => writeln!(text, "  GS_CPU_KERNEL({})", kernel.name),
        };
    }
    text.push_str(")\n");
    Ok(text)
}
