//! Kernels for the CPU: a shared object per instruction level, and one more for the backend's checked mode.
//!
//! Checks of array bounds keep loops over arrays of known size from being vectorised, whether or not the result is
//! used, so they have an image of their own. That image takes a sixth of the compile time, since it is not made to be
//! fast.

use std::fmt::Write as _;

use super::{Common, Image, Output, checks, execute, include, stamp};
use crate::backend::Backend;
use crate::diagnostic::Result;
use crate::headers::{for_hosts, write_if_changed};
use crate::parse::device_part;
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

pub(crate) fn compile(unit: &Unit, compiler: &CxxCompiler, level: &str, common: &Common) -> Result<Output> {
    let name = &unit.module.name;
    let source = common.out_dir.join(format!("{name}.cpu.cpp"));
    let text = translation_unit(unit)?;
    write_if_changed(&source, text.as_bytes())?;
    let target = level;
    let image = common.out_dir.join(format!("{name}.{target}.so"));

    let mut flags: Vec<String> = Vec::new();
    flags.extend(["-std=c++17", "-fPIC", "-Wno-unknown-pragmas", "-Wno-unused-function"].map(str::to_owned));
    flags.extend(VECTORISING.map(str::to_owned));
    // Frames larger than the guard pages below a thread's stack are touched from the top down, so that one frame too
    // many is a fault of its kernel and not a write beyond.
    flags.push("-fstack-clash-protection".to_owned());
    let level = level.strip_suffix(CHECKED).unwrap_or(level);
    let checked = level != target;
    let own: &[&str] = if compiler.clang { &[] } else { &["-fno-gnu-unique", "-fno-extern-tls-init"] };
    let bounds = if compiler.clang { "-fsanitize=array-bounds" } else { "-fsanitize=bounds" };
    let kind: &[&str] = if checked { &["-O1", bounds, "-DGS_CPU_CHECKED"] } else { &["-O3"] };
    flags.extend(own.iter().chain(kind).map(|&flag| flag.to_owned()));
    flags.push(format!("-march={}", if level == "aarch64" { "armv8-a" } else { level }));
    flags.extend(common.arguments(Backend::Cpu));
    // The translation unit may hold the file's text, from which quoted names are sought beside the file.
    flags.extend(unit.absolute.parent().map(|folder| format!("-iquote{}", folder.display())));

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
    let what = format!("the CPU ({level})");
    let (compile_time, log) = stamp::unless_good((&image, true), unit, common, &parts, || {
        let log = execute(command(), unit, &what)? + &execute(link(), unit, &what)?;
        let _ = std::fs::remove_file(&object);
        Ok(log)
    })?;
    // The figures of that image would say nothing about the kernels that people run.
    let functions = unit.module.functions().filter(|_| !checked);
    let reports =
        functions.map(|function| KernelReport::new(unit, function, Backend::Cpu, target, &image)).collect();
    // The module table has the program's names.
    let image =
        Image { backend: Backend::Cpu, targets: vec![target.to_owned()], path: image, symbols: Vec::new() };
    Ok(Output::new(image, reports, compile_time, log))
}

/// Returns the user's file between the prelude and the module table, with the assertions against which the compiler's
/// idea of the file is held. The headers of ours that the file includes come before it: a macro of the file could change
/// them. Where the file has host code too, the rest stands here instead of the file.
fn translation_unit(unit: &Unit) -> Result<String> {
    let mut text = String::from("// Generated by gpustream-build.\n#include <gpustream/cpu/prelude.cuh>\n");
    let mut texts = unit.headers.iter().map(|header| &header.text).chain([&unit.source.text]);
    if texts.any(|text| text.contains("cooperative_groups")) {
        text.push_str("#include <gpustream/groups.cuh>\n");
    }
    let ours =
        unit.headers.iter().filter(|header| header.path.is_none() && header.name.starts_with("gpustream/"));
    for name in ours.map(|header| &header.name) {
        let _ = writeln!(text, "#include <{name}>");
    }
    match device_part(&unit.source.text)? {
        Some(part) => {
            let path = unit.absolute.display().to_string().replace('\\', "\\\\").replace('"', "\\\"");
            let _ = writeln!(text, "#line 1 \"{path}\"\n{part}");
        }
        None => text.push_str(&include(unit)?),
    }
    text.push_str(&checks(unit));
    text.push_str("#include <gpustream/cpu/export.cuh>\n");
    for name in &unit.module.dynamic_shared {
        let _ = writeln!(text, "GS_CPU_DYNAMIC_SHARED({name})");
    }
    text.push_str("GS_CPU_MODULE(\n");
    for (kernel, instance) in unit.module.functions() {
        let (key, threads, address) =
            (kernel.key(instance), kernel.max_threads.unwrap_or(0), kernel.address(instance));
        let _ = writeln!(text, "  GS_CPU_KERNEL({key:?}, {threads}, {address})");
    }
    text.push_str(")\n");
    Ok(text)
}
