//! Runs the compilers' preprocessors, for files that the parser cannot read as they are written.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};

use super::{Common, cpu, cuda, hip};
use crate::backend::Backend;
use crate::diagnostic::{Error, Result, SourceFile};
use crate::headers::write_if_changed;
use crate::parse::Script;
use crate::plan::Plan;
use crate::preprocessed::{self, Own};
use crate::unit::{Unit, Version};

/// Options for what a preprocessor leaves besides the text: `#define`s, and comments, because contracts are in them.
const KEPT: [&str; 2] = ["-dD", "-C"];

/// Reads a file again as each compiler of the plan sees it, if the parser needs that. If a preprocessor fails, the
/// compiler will too and say more, so we then leave the file as it is. What the parser misses in it follows from the
/// preprocessor's error, so we keep only that.
pub(crate) fn read(unit: Unit, plan: &Plan, common: &Common, script: Script<'_>) -> Unit {
    if !unit.needs_preprocessing {
        return unit;
    }
    let mut versions = BTreeMap::new();
    let mut add = |backend: Backend, target: &str, output: Result<Vec<u8>>, only_if: Option<String>| {
        let version = match output {
            Ok(output) => {
                Version { only_if, ..unit.preprocessed(source(&unit, output, common), backend, script) }
            }
            Err(error) if unit.mentions_kernels() => {
                Version { refused: unit.refused.as_ref().map(|_| error), ..unit.clone() }
            }
            Err(_) => unit.clone(),
        };
        versions.insert((backend, target.to_owned()), version);
    };
    if let Some((compiler, levels)) = plan.cpu.as_ref().filter(|_| unit.is_for(Backend::Cpu))
        && let Some(level) = levels.first()
    {
        add(Backend::Cpu, "", cpu::preprocess(&unit, compiler, level, common), None);
    }
    if let Some((nvcc, archs)) = plan.cuda.as_ref().filter(|_| unit.is_for(Backend::Cuda))
        && let Some(arch) = cuda::newest(archs)
    {
        let only_if = format!("__CUDA_ARCH__ == {}0", arch.trim_end_matches(char::is_alphabetic));
        add(Backend::Cuda, "", cuda::preprocess(&unit, nvcc, arch, common), Some(only_if));
    }
    if let Some((compiler, archs)) = plan.hip.as_ref().filter(|_| unit.is_for(Backend::Hip)) {
        for arch in archs {
            add(Backend::Hip, arch, hip::preprocess(&unit, compiler, arch, common), None);
        }
    }
    unit.with_versions(versions)
}

/// Returns the file as a preprocessor has left it.
pub(super) fn source(unit: &Unit, output: Vec<u8>, common: &Common) -> SourceFile {
    preprocessed::read(output, &unit.absolute, &unit.source.path, &own(unit, common))
}

/// Returns which headers are yours.
fn own(unit: &Unit, common: &Common) -> Own {
    let resolved = |path: &Path| path.canonicalize().ok();
    // A unit that was preprocessed before has their text in its own.
    let headers = unit.headers.iter().filter_map(|header| header.path.as_deref()).chain(unit.source.files());
    let folders =
        common.includes.iter().skip(1).chain(&common.searched).filter_map(|folder| resolved(folder));
    Own {
        headers: headers.filter_map(resolved).collect::<BTreeSet<_>>(),
        folders: folders
            .chain(unit.absolute.parent().and_then(|folder| folder.canonicalize().ok()))
            .collect(),
    }
}

/// Writes the text that a preprocessor reads: `before`, and then the file with CUDA's words as they are.
pub(super) fn write_source(unit: &Unit, common: &Common, name: &str, before: &str) -> Result<()> {
    let text = format!("{before}{}{}", preprocessed::kept_words(), super::include(unit)?);
    write_if_changed(&common.out_dir.join(name), text.as_bytes())
}

/// Runs a preprocessor and returns what it prints. `command` adds options to it. Some headers break on comments, because they
/// paste words to what an argument begins with. So if it fails, and the file has no contracts, we run it without comments.
pub(super) fn execute(unit: &Unit, command: impl Fn(&[&str]) -> Command) -> Result<Vec<u8>> {
    run(command(&KEPT)).or_else(|error| {
        if unit.has_contracts() { Err(error) } else { run(command(&KEPT[..1])).map_err(|_| error) }
    })
}

fn run(mut command: Command) -> Result<Vec<u8>> {
    let program = command.get_program().to_owned();
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|e| Error::message(format!("cannot run {}: {e}", program.display())))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    Err(Error::message(String::from_utf8_lossy(&output.stderr)))
}
