//! What bindings embed so that a program can load its kernels anywhere: the images, and the source with its
//! headers for run-time compilers.

use std::fs;

use hmac_sha256::Hash;

use super::fill::fill;
use super::{globals, literal};
use crate::backend::Backend;
use crate::compile::assertions::assertions;
use crate::compile::{Common, Image};
use crate::diagnostic::{Error, Result};
use crate::headers::{FOLDER, for_devices, renamed, write_if_changed};
use crate::signature::Module;
use crate::unit::Unit;

pub(super) fn image(image: &Image) -> String {
    fill!(
        "__gpustream::Image { backend: {{backend}}, targets: &{{targets}}, bytes: include_bytes!({{file}}), symbols: &{{symbols}} },\n",
        backend = literal(image.backend.name()),
        targets = literal(&image.targets),
        file = literal(&image.path.file_name().unwrap_or_default().to_string_lossy()),
        symbols = literal(&image.symbols),
    )
}

pub(super) fn checksum(image: &Image) -> Result<String> {
    let bytes = fs::read(&image.path)
        .map_err(|e| Error::message(format!("cannot read {}: {e}", image.path.display())))?;
    let checksum = Hash::hash(&bytes).iter().fold(String::new(), |hex, b| hex + &format!("{b:02x}"));
    Ok(format!("__gpustream::codegen::Checksum::new({checksum:?}),\n"))
}

/// Writes the source for run-time compilers next to the bindings, and returns its path.
pub(super) fn source(unit: &Unit, common: &Common) -> Result<String> {
    // Run-time compilers cannot read host code.
    let device = unit.device_part.as_ref().ok().and_then(Option::as_ref).unwrap_or(&unit.source.text);
    let device = renamed(device, &unit.source.path, &unit.headers);
    let source = format!("{device}{}", assertions(unit, &unit.file_name()));
    let path = format!("{}.source/kernel.cu", unit.module.name);
    write_if_changed(&common.out_dir.join(&path), source.as_bytes())?;
    Ok(path)
}

/// Writes the user's headers next to the bindings, and returns the list of all headers.
pub(super) fn headers(unit: &Unit, common: &Common) -> Result<String> {
    let mut list = String::new();
    for (i, header) in unit.headers.iter().filter(|h| for_devices(h)).enumerate() {
        let text = match &header.path {
            Some(path) => {
                let own = renamed(&header.text, path, &unit.headers);
                let path = format!("{}.source/{i}.cuh", unit.module.name);
                write_if_changed(&common.out_dir.join(&path), own.as_bytes())?;
                format!("include_str!({path:?})")
            }
            // These are unpacked once for all files.
            None if header.name.starts_with("gpustream/") => {
                format!("include_str!({:?})", format!("{FOLDER}/{}", header.name))
            }
            None => literal(&header.text),
        };
        list += &format!("({:?}, {text}),\n", header.name);
    }
    Ok(list)
}

/// Returns the options that run-time compilers get.
pub(super) fn options(common: &Common) -> Vec<String> {
    common.options(Backend::Cuda).filter(|option| option.starts_with("-D")).collect()
}

/// Returns the kernels and variables whose symbols a run-time compiler must report, each with a C++ expression
/// for its address. The expressions do not begin with `::`, because HIPRTC cannot read that.
pub(super) fn addresses(module: &Module) -> Vec<(String, String)> {
    let kernels = module.functions().filter(|(kernel, _)| !kernel.function.extern_c);
    let kernels = kernels.map(|(kernel, instance)| (kernel.key(instance), kernel.address(instance, "")));
    kernels.chain(globals::addresses(module)).collect()
}

/// Returns the source, if a run-time compiler can make every kernel of it for the device. If some targets lack a kernel, we
/// cannot know which ones a further target has.
///
/// The source must be for the device's backend. If a file is only for some backends, its source
/// would not compile for the others.
pub(super) fn usable_source(unit: &Unit) -> String {
    if unit.module.kernels.iter().any(|kernel| kernel.targets.is_some()) {
        return "None".to_owned();
    }
    let Some(only) = &unit.only else { return "Some(&SOURCE)".to_owned() };
    let names: Vec<_> = only.iter().map(|backend| backend.name()).collect();
    format!("{names:?}.contains(&device.info().backend).then_some(&SOURCE)")
}
