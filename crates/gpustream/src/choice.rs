//! Which device you get: the names of devices, and our choice if you name none.
//!
//! If you ask for the best device, you must not silently get the CPU because a GPU is broken: your program would work, at a
//! fraction of the speed. So we only skip a backend without a driver library, and one whose driver works and has no device. Any
//! other failure ends the choice, even if another vendor's GPU would work, because which of two vendors you run on should not
//! depend on a service that was not started.

use std::env;
use std::fmt::Write as _;

use gpustream_core::operation;
use gpustream_core::reentrancy;
use gpustream_hal::notice::{self, Level, Notice};
use gpustream_hal::{Backend, Error, ErrorKind, Identity, PciAddress, Result};

use crate::trace;

/// The name that stands for any GPU.
const ANY_GPU: &str = "gpu";

/// The variable that names the best device.
const VARIABLE: &str = "GPUSTREAM_DEVICE";

/// Returns the backends that are compiled in, in the order in which [`Device::best`](crate::Device::best) tries them.
pub fn backends() -> Vec<&'static dyn Backend> {
    vec![
        #[cfg(feature = "cuda")]
        gpustream_cuda::backend(),
        #[cfg(feature = "hip")]
        gpustream_hip::backend(),
        #[cfg(feature = "cpu")]
        gpustream_cpu::backend(),
    ]
}

/// Returns the backend whose device [`Device::best`](crate::Device::best) would open, without opening one. Use it if you want
/// several devices of that backend.
///
/// # Errors
/// As for [`Device::best`](crate::Device::best).
#[track_caller]
pub fn best_backend() -> Result<&'static dyn Backend> {
    operation::named(operation::call_site("best_backend"), || {
        reentrancy::check_outside()?;
        Ok(best(Among::All)?.backend)
    })
}

/// The devices to choose from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Among {
    All,
    Gpus,
}

impl Among {
    fn has(self, backend: &dyn Backend) -> bool {
        self == Self::All || backend.name() != gpustream_hal::BackendName::CPU
    }
}

/// A device that was chosen.
pub(crate) struct Choice {
    pub(crate) backend: &'static dyn Backend,
    pub(crate) ordinal: usize,
    /// Why it was chosen, for listeners.
    pub(crate) why: String,
    /// Set if the library chose the backend itself, among these. An error must then say why we did not choose another.
    free: Option<Among>,
}

impl Choice {
    /// Adds to the error of opening the device what else you can do.
    pub(crate) fn explain(&self, error: Error) -> Error {
        match self.free {
            Some(among) => insist(error, self.backend, among),
            None => error,
        }
    }
}

/// Returns the device that the environment names, or else the first device of the first backend that has one.
pub(crate) fn best(among: Among) -> Result<Choice> {
    let Some(name) = env::var_os(VARIABLE).filter(|name| !name.is_empty()) else { return first(among) };
    let name = name.to_string_lossy();
    let choice = named(&name).map_err(|error| error.with_context(format_args!("{VARIABLE}={name}")))?;
    if !among.has(choice.backend) {
        let message = format!(
            "{VARIABLE}={name} names the CPU, and the program asks for a GPU; name a GPU, or unset the variable"
        );
        return Err(Error::new(ErrorKind::InvalidArgument, message));
    }
    Ok(Choice { why: format!("{VARIABLE}={name}"), ..choice })
}

/// Returns the device with that name.
pub(crate) fn named(name: &str) -> Result<Choice> {
    if name == ANY_GPU {
        return first(Among::Gpus);
    }
    let (wanted, which) = parse(name)?;
    let backend = compiled_in(wanted)?;
    trace::expect(backend);
    let ordinal = which.find(backend, name).map_err(|error| error.with_backend(backend.name()))?;
    Ok(Choice { backend, ordinal, why: format!("the program asks for {name}"), free: None })
}

/// Returns the backend with that name, or the backend of the first GPU.
pub(crate) fn backend(name: &str) -> Result<&'static dyn Backend> {
    if name == ANY_GPU {
        return Ok(first(Among::Gpus)?.backend);
    }
    if let Some((backend, _)) = name.split_once(':') {
        let message = format!(
            "`{name}` names one device, and you ask for all devices of a backend; leave out the number, as in `{backend}`, or \
             call `Device::open`"
        );
        return Err(Error::new(ErrorKind::InvalidArgument, message));
    }
    compiled_in(name)
}

fn compiled_in(name: &str) -> Result<&'static dyn Backend> {
    let all = backends();
    let found = all.iter().find(|backend| backend.name().as_str() == name);
    found.copied().ok_or_else(|| no_backend(name, &all))
}

/// Returns true if a backend fails to list its devices because this machine has none: the driver is not installed, or it works
/// and finds no device. Any other failure may hide a GPU.
pub(crate) fn is_absent(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::DriverMissing | ErrorKind::NoDevice)
}

/// Returns the first device of the first backend that has one.
fn first(among: Among) -> Result<Choice> {
    let mut passed = String::new();
    for backend in backends().into_iter().filter(|&backend| among.has(backend)) {
        trace::expect(backend);
        match backend.device_count() {
            Ok(_) => {
                let why = if passed.is_empty() {
                    "the first backend that is compiled in"
                } else {
                    "the first backend with a driver and a device"
                };
                return Ok(Choice { backend, ordinal: 0, why: why.to_owned(), free: Some(among) });
            }
            Err(error) if is_absent(&error) => {
                notice::now(Level::Info, || Notice::PassedOver {
                    backend: backend.name().as_str(),
                    why: error.message().to_owned(),
                });
                let _ = write!(passed, "\n  {}: {}", backend.name(), error.message());
            }
            Err(error) => return Err(insist(error.with_backend(backend.name()), backend, among)),
        }
    }
    let message = match (among, passed.is_empty()) {
        (Among::All, false) => format!("no device can be opened:{passed}"),
        (Among::All, true) => {
            "no backend is compiled in; turn on at least one of the features `cpu`, `cuda`, `hip`".to_owned()
        }
        (Among::Gpus, false) => format!("no GPU can be opened, and the CPU was not asked for:{passed}"),
        (Among::Gpus, true) => {
            "no backend for GPUs is compiled in; turn on at least one of the features `cuda`, `hip`"
                .to_owned()
        }
    };
    Err(Error::new(ErrorKind::NoDevice, message))
}

/// Returns the error of a backend that may have a device, with what the other backends say and how you can choose one of them.
fn insist(error: Error, failed: &dyn Backend, among: Among) -> Error {
    let mut context = format!(
        "no device was chosen, because a backend that may have one fails, and skipping it could hide a broken GPU; repair it, or \
         name another device ({VARIABLE}, or `Device::open`)"
    );
    for backend in backends().into_iter().filter(|&it| among.has(it) && it.name() != failed.name()) {
        trace::expect(backend);
        let name = backend.name();
        let _ = match backend.device_count() {
            Ok(1) => write!(context, "\n  {name}: has the device {name}:0"),
            Ok(count) => write!(context, "\n  {name}: has {count} devices, {name}:0 and so on"),
            Err(error) => write!(context, "\n  {name}: {}", error.message()),
        };
    }
    error.with_context(format_args!("{context}\n  {}", failed.name()))
}

/// One device of a backend, as its name describes it.
#[derive(Debug, PartialEq, Eq)]
enum Which<'a> {
    Ordinal(usize),
    Uuid(&'a str),
    Pci(PciAddress),
}

/// Splits `cuda:1` into a backend's name and the device.
fn parse(name: &str) -> Result<(&str, Which<'_>)> {
    let (backend, which) = name.split_once(':').unwrap_or((name, "0"));
    let begins = |prefix: &str| which.get(..prefix.len()).is_some_and(|it| it.eq_ignore_ascii_case(prefix));
    if let Ok(ordinal) = which.parse() {
        return Ok((backend, Which::Ordinal(ordinal)));
    }
    if begins("GPU-") || begins("MIG-") {
        return Ok((backend, Which::Uuid(which)));
    }
    if let Ok(address) = which.parse() {
        return Ok((backend, Which::Pci(address)));
    }
    let message = format!(
        "`{name}` is not the name of a device; write a backend and a number, such as `cuda:0`, `hip:1` or `cpu`; or instead of \
         the number a UUID or a PCI address, such as `cuda:GPU-…`, `cuda:MIG-…`, `cuda:0000:3b:00.0`; or `{ANY_GPU}` for any GPU"
    );
    Err(Error::new(ErrorKind::InvalidArgument, message))
}

impl Which<'_> {
    /// Returns the device's number within its backend. `name` is the name as you wrote it.
    fn find(&self, backend: &dyn Backend, name: &str) -> Result<usize> {
        if let Self::Ordinal(ordinal) = *self {
            return Ok(ordinal);
        }
        // If a device cannot tell its names, we cannot know that it is this one.
        let identities: Vec<Identity> = (0..backend.device_count()?)
            .map(|ordinal| backend.identity(ordinal).unwrap_or_default())
            .collect();
        let is_it = |identity: &Identity| match *self {
            Self::Ordinal(_) => false,
            Self::Uuid(uuid) => identity.has_uuid(uuid),
            Self::Pci(address) => identity.pci == Some(address),
        };
        let list = |ordinals: &[usize]| {
            let names = ordinals.iter().map(|&ordinal| {
                let Identity { uuid, pci } = &identities[ordinal];
                let uuid = uuid.as_deref().unwrap_or("no UUID");
                let pci = pci.map_or_else(|| "no PCI address".to_owned(), |pci| pci.to_string());
                format!("{}:{ordinal} ({uuid}, {pci})", backend.name())
            });
            names.collect::<Vec<_>>().join(", ")
        };
        let all: Vec<usize> = (0..identities.len()).collect();
        let found: Vec<usize> = all.iter().copied().filter(|&ordinal| is_it(&identities[ordinal])).collect();
        match found[..] {
            [one] => Ok(one),
            [] => {
                let message = format!(
                    "there is no device `{name}`; this process sees {}; the environment (CUDA_VISIBLE_DEVICES, \
                     HIP_VISIBLE_DEVICES) may hide others, and a GPU in MIG mode only shows its instances",
                    list(&all)
                );
                Err(Error::new(ErrorKind::NoDevice, message))
            }
            _ => {
                let message = format!(
                    "`{name}` fits several devices, {}; name one by its UUID or number",
                    list(&found)
                );
                Err(Error::new(ErrorKind::InvalidArgument, message))
            }
        }
    }
}

fn no_backend(wanted: &str, all: &[&dyn Backend]) -> Error {
    let names: Vec<_> = all.iter().map(|backend| backend.name().as_str()).collect();
    let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let why = if ["cpu", "cuda", "hip"].contains(&wanted) {
        format!(
            "the backend `{wanted}` is not compiled in; turn on the feature `{wanted}` of the crate gpustream"
        )
    } else {
        format!("there is no backend named `{wanted}`")
    };
    Error::new(ErrorKind::Unsupported, format!("{why}; the backends of this program: {names}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let address: PciAddress = "0000:3b:00.0".parse().unwrap();
        for (name, expected) in [
            ("cpu", ("cpu", Which::Ordinal(0))),
            ("hip:3", ("hip", Which::Ordinal(3))),
            ("cuda:GPU-1", ("cuda", Which::Uuid("GPU-1"))),
            ("cuda:mig-1", ("cuda", Which::Uuid("mig-1"))),
            ("cuda:0000:3B:00.0", ("cuda", Which::Pci(address))),
            ("cuda:3b:00.0", ("cuda", Which::Pci(address))),
        ] {
            assert_eq!(parse(name).unwrap(), expected);
        }
        for bad in ["cuda:", "cuda:x", "cuda:-1", "cuda:1:2", "cuda:€€€€", "cuda:3b:20.0"] {
            assert_eq!(parse(bad).unwrap_err().kind(), ErrorKind::InvalidArgument, "{bad}");
        }
    }
}
