//! How compiled kernels are loaded, or compiled at run time.

use std::cmp::Reverse;
use std::panic::Location;
use std::sync::{Arc, Once};

use gpustream_core::checksum::{self, Checksum};
use gpustream_core::module_core::ModuleCore;
use gpustream_core::operation::call_site;
use gpustream_core::sync::Mutex;
use gpustream_core::{compile_cache, lint, reentrancy};
use gpustream_hal::{BackendName, DeviceInfo, Error, ErrorKind, Image, RawModule, Result, Source, variables};

use super::{LoadedModule, Module, ModuleSource, symbol_of};
use crate::device::Device;
use crate::global::{GlobalMemory, GlobalVariable, Globals};

/// What generated bindings know about variables in addition to those that they list.
pub struct Variables<'a> {
    /// The variables that kernels may write, as the images show them, if the list has no `__device__` variable.
    pub unlisted: &'a [&'a str],
    /// The variables that kernels only read. In an image made by NVIDIA's compilers you cannot tell these from others.
    pub read_only: &'a [&'a str],
}

/// Loads a module that `gpustream-build` built. Refuses an image that differs from the one that was built. If no image suits the
/// device, compiles `text`.
///
/// # Safety
/// As for [`Device::load_module`], except for images with a checksum: we compare those first, so they are what was built from
/// the source. The checksums must belong to the images, in the same order. `variables` must be those of the images. The options
/// of `text` must be harmless.
///
/// # Errors
/// As for [`Device::load_module`]; [`ErrorKind::InvalidModule`] if an image has another checksum, or if the source does not
/// compile.
#[track_caller]
pub unsafe fn load_built(
    device: &Device,
    source: &ModuleSource<'_>,
    text: Option<&Source<'_>>,
    checksums: &[Checksum],
    variables: &Variables<'_>,
) -> Result<Module> {
    let known = variables.unlisted.iter().map(|&path| path.to_owned()).collect();
    // SAFETY: handed on.
    unsafe { load(device, source, text, checksums, known, Some(variables.read_only)) }
}

/// Loads a module. `unlisted` are variables that kernels may write but that [`ModuleSource::globals`] lacks. If we compile the
/// source, we add those that its image shows, except the `read_only` ones. `None` means that the caller promises that there are
/// none.
///
/// # Safety
/// As for [`load_built`].
#[track_caller]
pub(crate) unsafe fn load(
    device: &Device,
    source: &ModuleSource<'_>,
    text: Option<&Source<'_>>,
    checksums: &[Checksum],
    unlisted: Vec<String>,
    read_only: Option<&[&str]>,
) -> Result<Module> {
    let call = call_site("load");
    // SAFETY: handed on.
    let loaded = unsafe { load_unnamed(device, source, text, checksums, unlisted, read_only, call.location) };
    loaded.map_err(|error| error.with_call_site(call))
}

/// Compiles a source for the device, or finds its image in the cache, and loads it. `location` is the line that asks for it.
pub(super) fn compile(
    device: &Device,
    source: &Source<'_>,
    location: &'static Location<'static>,
) -> Result<Module> {
    reentrancy::check_outside()?;
    let loaded = compile_image(device, source).map_err(|error| error.with_backend(device.info().backend))?;
    let unlisted: Vec<_> = loaded.compiled.iter().flat_map(|image| unlisted_in(image, &[], &[])).collect();
    module_of(device, loaded, source.name, &[], &unlisted, location)
}

/// Like [`load`], without naming the call.
///
/// # Safety
/// As for [`load_built`].
unsafe fn load_unnamed(
    device: &Device,
    source: &ModuleSource<'_>,
    text: Option<&Source<'_>>,
    checksums: &[Checksum],
    mut unlisted: Vec<String>,
    read_only: Option<&[&str]>,
    location: &'static Location<'static>,
) -> Result<Module> {
    reentrancy::check_outside()?;
    // SAFETY: handed on.
    let loaded = unsafe { load_image(device, source, text, checksums) }
        .map_err(|error| in_context(error, "loading", device, source.name))?;
    if let (Some(image), Some(read_only)) = (&loaded.compiled, read_only) {
        unlisted.extend(unlisted_in(image, source.globals, read_only));
    }
    module_of(device, loaded, source.name, source.globals, &unlisted, location)
}

fn in_context(error: Error, doing: &str, device: &Device, name: &str) -> Error {
    error.with_context(format_args!("{doing} module `{name}`")).with_backend(device.info().backend)
}

/// Makes a module of an image that the device has just loaded, and finds its variables.
fn module_of(
    device: &Device,
    loaded: Loaded,
    name: &str,
    globals: &[GlobalVariable<'_>],
    unlisted: &[String],
    location: &'static Location<'static>,
) -> Result<Module> {
    // SAFETY: the device has just loaded the module, which is not shared yet.
    let core = Arc::new(unsafe { ModuleCore::new(loaded.raw, device.0.raw.clone()) });
    if !unlisted.is_empty() && lint::is_on() {
        let names = variables::list(unlisted);
        let why = format!("launches of module `{name}` never overlap, because its kernels may write {names}");
        lint::serialises_at(&why, location);
    }
    let symbols = loaded.symbols;
    let symbol = |name| symbol_of(&symbols, name);
    let globals = Globals::find(device, &core, globals, !unlisted.is_empty(), symbol)
        .map_err(|error| in_context(error, "finding the variables of", device, name))?;
    let (device, name, declared) = (device.clone(), name.to_owned(), Mutex::default());
    Ok(Module(Arc::new(LoadedModule { core, device, name, symbols, declared, globals })))
}

/// An image that the driver has loaded.
struct Loaded {
    raw: RawModule,
    symbols: Vec<(String, String)>,
    /// The image, if the source was compiled.
    compiled: Option<Vec<u8>>,
}

/// Loads the image that fits the device best, or compiles the source.
///
/// A driver refuses an image if the toolkit that made it is too new for the driver. Then we try the next best image, and at
/// last compile the source with the driver's own run-time compiler.
///
/// # Safety
/// As for [`load_built`].
unsafe fn load_image(
    device: &Device,
    source: &ModuleSource<'_>,
    text: Option<&Source<'_>>,
    checksums: &[Checksum],
) -> Result<Loaded> {
    let raw_device = &device.0.raw;
    let mut refused: Option<Error> = None;
    for index in suitable_images(device, source) {
        let image = &source.images[index];
        if let Some(checksum) = checksums.get(index) {
            checksum::check(checksum, image)?;
        }
        // SAFETY: the checksum says that the build wrote the image, or the caller promises that it is sound.
        let raw = match unsafe { raw_device.module_load(image.bytes) } {
            Ok(raw) => raw,
            Err(error) if is_refusal(&error) => {
                refused.get_or_insert(error);
                continue;
            }
            Err(error) => return Err(error),
        };
        if let Some(refused) = &refused {
            say_once(device, source, refused, &format!("its image for {} is used", image.targets.join(", ")));
        }
        let symbols = image.symbols.iter().map(|&(name, symbol)| (name.to_owned(), symbol.to_owned()));
        return Ok(Loaded { raw, symbols: symbols.collect(), compiled: None });
    }
    let Some(text) = text else {
        return Err(refused.unwrap_or_else(|| no_image(device, source, None)));
    };
    let loaded = compile_image(device, text).map_err(|error| match (&refused, error.kind()) {
        (Some(refused), ErrorKind::Unsupported | ErrorKind::InvalidModule | ErrorKind::NoImageForDevice) => {
            let why = format_args!("the source cannot be used instead ({})", error.message());
            refused.clone().with_context(why)
        }
        (None, ErrorKind::Unsupported) => no_image(device, source, Some(&error)),
        _ => error,
    })?;
    if let Some(refused) = &refused {
        say_once(device, source, refused, "its source is compiled at run time");
    }
    Ok(loaded)
}

/// Compiles a source, or finds its image in the cache, and loads the image.
fn compile_image(device: &Device, source: &Source<'_>) -> Result<Loaded> {
    let raw_device = &device.0.raw;
    let compiled = compile_cache::compile(&**raw_device, source)?;
    // SAFETY: the compiler has made the image, now or when it was cached.
    let raw = unsafe { raw_device.module_load(&compiled.image) }?;
    let names = source.kernels.iter().map(|&(name, _)| name.to_owned());
    Ok(Loaded { raw, symbols: names.zip(compiled.symbols).collect(), compiled: Some(compiled.image) })
}

/// Returns true if the driver has looked at an image and refuses it, so that another image may still work.
fn is_refusal(error: &Error) -> bool {
    let kinds = [ErrorKind::InvalidModule, ErrorKind::NoImageForDevice];
    error.code().is_some() && kinds.contains(&error.kind())
}

/// Says on standard error that a driver refuses the best image of a module. Once per process is enough, because all modules of
/// a program come from the same toolkit.
#[cold]
fn say_once(device: &Device, source: &ModuleSource<'_>, refused: &Error, instead: &str) {
    static SAID: Once = Once::new();
    let DeviceInfo { backend, ordinal, .. } = device.info();
    SAID.call_once(|| {
        eprintln!(
            "gpustream: {backend}:{ordinal} refuses the best image of module `{}`, so {instead}: {refused}",
            source.name
        );
    });
}

/// Returns the variables that kernels of an image may write, for an image that was compiled at run time. Returns none if the
/// list already has such a variable, because launches are then ordered anyway.
fn unlisted_in(image: &[u8], globals: &[GlobalVariable<'_>], read_only: &[&str]) -> Vec<String> {
    if globals.iter().any(|global| global.memory == GlobalMemory::Device) {
        return Vec::new();
    }
    let Some(mut writable) = variables::writable(image) else {
        return vec!["variables that the image hides".to_owned()];
    };
    writable.retain(|path| !read_only.contains(&&*variables::declared(path)));
    writable
}

/// Returns the indices of the images that the device can run, the best first.
fn suitable_images(device: &Device, source: &ModuleSource<'_>) -> Vec<usize> {
    let rank = |image: &Image<'_>| {
        let ranks = image.targets.iter().filter_map(|target| device.0.raw.target_rank(target));
        ranks.max().filter(|_| image.backend == device.info().backend.as_str())
    };
    let ranked = source.images.iter().enumerate().filter_map(|(index, image)| Some((rank(image)?, index)));
    let mut ranked: Vec<_> = ranked.collect();
    ranked.sort_by_key(|&(rank, _)| Reverse(rank));
    ranked.into_iter().map(|(_, index)| index).collect()
}

#[cold]
fn no_image(device: &Device, source: &ModuleSource<'_>, compiler: Option<&Error>) -> Error {
    let info = device.info();
    let has: Vec<String> = source
        .images
        .iter()
        .map(|image| format!("{} ({})", image.backend, image.targets.join(", ")))
        .collect();
    let has = if has.is_empty() { "no images".to_owned() } else { has.join("; ") };
    let built = source.images.iter().any(|image| image.backend == info.backend.as_str());
    let mut message = format!(
        "the module has {has}, and the device {}:{} needs {}; {}",
        info.backend,
        info.ordinal,
        info.arch,
        build_too(info.backend, &info.arch, built)
    );
    if let Some(error) = compiler {
        message += &format!("; the source cannot be used instead: {}", error.message());
    }
    Error::new(ErrorKind::NoImageForDevice, message)
}

/// Returns what to do to get an image for `arch` of `backend`. `built` says whether there are images for other targets of that
/// backend.
fn build_too(backend: BackendName, arch: &str, built: bool) -> String {
    let (name, method, variable) = match backend {
        BackendName::CPU => ("Cpu", "cpu_level", "GPUSTREAM_CPU_LEVELS"),
        BackendName::CUDA => ("Cuda", "cuda_arch", "GPUSTREAM_CUDA_ARCHS"),
        BackendName::HIP => ("Hip", "hip_arch", "GPUSTREAM_HIP_ARCHS"),
        _ => return format!("build the kernels for {backend} and {arch} too"),
    };
    let target = format!("`.{method}(\"{arch}\")` in the build script, or {arch} in the list `{variable}`");
    if built {
        return format!("build the kernels for {arch} too: {target} in the environment");
    }
    format!(
        "build the kernels for {backend} and {arch} too: `.backend(Backend::{name})` and {target} and {backend} in the \
         list `GPUSTREAM_BACKENDS` in the environment"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn an_image_of_a_run_time_compiler_tells_its_variables() {
        let ptx =
            b".version 9.0\n.global .align 4 .u32 hidden;\n.global .align 4 .b8 _ZZ1kPfE5table[8] = {1};\n";
        let variable = |memory| GlobalVariable { name: "listed", memory };
        let (constant, device) = ([variable(GlobalMemory::Constant)], [variable(GlobalMemory::Device)]);
        let read_only: &[&str] = &["k::table"];
        assert_eq!(unlisted_in(ptx, &[], read_only), ["hidden"]);
        assert_eq!(unlisted_in(ptx, &constant, &[]), ["hidden", "k::table"]);
        assert_eq!(unlisted_in(ptx, &device, &[]), [""; 0], "launches are ordered already");
        assert_eq!(unlisted_in(b".version 9.0\n", &[], &[]), [""; 0]);
        assert_eq!(unlisted_in(b"CCOB", &[], read_only), ["variables that the image hides"]);
    }
}
