//! `gpustream doctor`: shows what gpustream can use on this machine, and how you get what is missing.

mod engines;
mod layout;
mod links;
mod mathematics;
mod tool;
mod world;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use gpustream::hal::Probe;
use gpustream::{Backend, Device, DeviceInfo, DeviceOptions, backends};
use gpustream_build::toolchain::{CxxCompiler, HipCompiler, Nvcc};
use gpustream_timeline_view::text::Table;
use serde_json::{Value, json};

use self::layout::{entry, wrapped};
use self::links::Links;
use self::tool::{Found, Missing, Tool};
use self::world::Told;

/// Show backends, devices, compilers and what ranks need on this machine, and how to get what is missing
#[derive(clap::Args)]
pub struct Args {
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// We try a HIP compiler with these targets, because it has no option that lists its own.
const HIP_TARGETS: [&str; 16] = [
    "gfx900", "gfx906", "gfx908", "gfx90a", "gfx942", "gfx950", "gfx1010", "gfx1030", "gfx1100", "gfx1101",
    "gfx1102", "gfx1150", "gfx1151", "gfx1153", "gfx1200", "gfx1201",
];

/// The default targets for kernels of this project.
const DEFAULT_HIP: [&str; 5] = ["gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201"];

/// Prints the report. Succeeds if the CPU backend works and we found its compiler.
pub(crate) fn run(args: &Args) -> ExitCode {
    let report = Report::collect();
    if args.json {
        println!("{:#}", report.json());
    } else {
        print!("{}", report.text());
    }
    if report.usable() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

struct Report {
    backends: Vec<BackendReport>,
    compilers: Vec<Tool>,
    engines: Vec<Tool>,
    mathematics: Vec<Tool>,
    told: Told,
}

struct BackendReport {
    name: &'static str,
    probe: Probe,
    devices: Vec<DeviceReport>,
    links: Links,
}

/// A device that the driver lists. `info` is missing if we could not open it.
struct DeviceReport {
    name: String,
    info: Option<DeviceInfo>,
    free: Option<u64>,
    /// Why we could not open the device, or copy there and back.
    problem: Option<String>,
}

impl Report {
    fn collect() -> Self {
        let backends: Vec<_> = backends().into_iter().map(BackendReport::collect).collect();
        let mut compilers = vec![
            Tool::new("C++", "compiles kernels for the CPU", cxx()),
            Tool::new("nvcc", "compiles kernels for CUDA", nvcc()),
            Tool::new("hipcc", "compiles kernels for HIP", hip()),
        ];
        compilers.extend(backends.iter().filter_map(BackendReport::runtime_compiler));
        let (engines, mathematics) = (engines::collect(), mathematics::collect());
        Self { backends, compilers, engines, mathematics, told: Told::collect() }
    }

    fn usable(&self) -> bool {
        let cpu = self.backends.iter().find(|backend| backend.name == "cpu");
        let compiler = self.compilers.first().is_some_and(|compiler| compiler.search.is_ok());
        compiler && cpu.is_some_and(|cpu| cpu.devices.iter().any(|device| device.problem.is_none()))
    }

    fn missing(&self) -> Vec<(String, String)> {
        let backends = self.backends.iter().flat_map(|backend| {
            let problem = backend.probe.problem.as_deref().filter(|_| backend.devices.is_empty());
            // The line already begins with the name.
            let prefix = format!("{}: ", backend.name);
            let problem = problem.map(|problem| problem.strip_prefix(&prefix).unwrap_or(problem).to_owned());
            let devices = backend.devices.iter().filter_map(|d| Some((d.name.clone(), d.problem.clone()?)));
            problem.map(|problem| (backend.name.to_owned(), problem)).into_iter().chain(devices)
        });
        let tools = self.compilers.iter().chain(&self.mathematics).chain(&self.engines);
        let tools =
            tools.filter_map(|tool| Some((tool.name.to_owned(), tool.search.as_ref().err()?.how.to_owned())));
        backends.chain(tools).collect()
    }

    fn text(&self) -> String {
        let mut text = String::from("Backends\n");
        for backend in &self.backends {
            let state = match backend.devices.len() {
                0 => "no device".to_owned(),
                1 => "1 device".to_owned(),
                n => format!("{n} devices"),
            };
            entry(&mut text, backend.name, &state, &backend.details());
        }
        text.push_str("\nDevices\n");
        if self.backends.iter().all(|backend| backend.devices.is_empty()) {
            text.push_str("  none\n");
        } else {
            for line in self.devices().to_string().lines() {
                let _ = writeln!(text, "  {line}");
            }
        }
        let devices = self.backends.iter().flat_map(|backend| &backend.devices);
        let names: Vec<_> = devices.filter_map(DeviceReport::other_names).collect();
        if !names.is_empty() {
            text.push_str("\nOther names of devices, for GPUSTREAM_DEVICE and Device::open\n");
            for (name, others) in &names {
                let _ = writeln!(text, "  {name:<8}{}", others.join("  "));
            }
        }
        if self.backends.iter().any(|backend| backend.links.devices.len() > 1) {
            text.push_str("\nLinks between devices\n");
            for backend in &self.backends {
                backend.links.write(&mut text);
            }
        }
        for (title, tools) in
            [("Compilers", &self.compilers), ("Mathematics", &self.mathematics), ("Ranks", &self.engines)]
        {
            let _ = writeln!(text, "\n{title}");
            for tool in tools {
                entry(&mut text, tool.name, tool.state(), &tool.details());
            }
        }
        for words in self.told.words() {
            entry(&mut text, words.name, &words.state, &words.details);
        }
        let missing = self.missing();
        if !missing.is_empty() {
            text.push_str("\nMissing, should you need it\n");
            for (name, how) in &missing {
                wrapped(&mut text, &format!("  {name:<8}"), how, 92);
            }
        }
        text.push_str(if self.usable() {
            "\nThe CPU backend works, and kernels can be built for it.\n"
        } else {
            "\nNot even the CPU backend is complete: see above.\n"
        });
        text
    }

    fn devices(&self) -> Table {
        let titles =
            "device, name, arch, memory, free, units, warp, copies beside kernels, kernels overlap, test";
        let mut table = Table::new(titles.split(", "));
        for device in self.backends.iter().flat_map(|backend| &backend.devices) {
            let test = if device.problem.is_some() { "FAILED" } else { "ok" };
            let facts = device.info.as_ref().map(|info| {
                [
                    info.name.clone(),
                    info.arch.clone(),
                    gibibytes(info.total_memory),
                    device.free.map(gibibytes).unwrap_or_default(),
                    info.multiprocessors.to_string(),
                    info.warp_size.to_string(),
                    copies(info.limits.async_engine_count),
                    if info.features.concurrent_kernels { "yes" } else { "no" }.to_owned(),
                ]
            });
            let name = [device.name.clone()].into_iter();
            table.row(name.chain(facts.unwrap_or_default()).chain([test.to_owned()]));
        }
        table
    }

    fn json(&self) -> Value {
        let missing = self.missing();
        json!({
            "usable": self.usable(),
            "backends": self.backends.iter().map(BackendReport::json).collect::<Value>(),
            "compilers": self.compilers.iter().map(Tool::json).collect::<Value>(),
            "mathematics": self.mathematics.iter().map(Tool::json).collect::<Value>(),
            "engines": self.engines.iter().map(Tool::json).collect::<Value>(),
            "world": self.told.json(),
            "missing": missing.iter().map(|(what, how)| json!({ "what": what, "how": how })).collect::<Value>(),
        })
    }
}

impl BackendReport {
    fn collect(backend: &'static dyn Backend) -> Self {
        let ordinals = 0..backend.device_count().unwrap_or(0);
        let (devices, opened): (Vec<_>, Vec<_>) = ordinals.map(|n| DeviceReport::collect(backend, n)).unzip();
        let opened: Vec<_> = opened.into_iter().flatten().collect();
        Self { name: backend.name().as_str(), probe: backend.probe(), devices, links: Links::of(&opened) }
    }

    fn details(&self) -> Vec<(&'static str, String)> {
        let Probe { library, tried, driver_version, runtime_version, tracer, .. } = &self.probe;
        let library = match library {
            Some(path) => path.display().to_string(),
            None if tried.is_empty() => "built in".to_owned(),
            None => "not found".to_owned(),
        };
        let mut details = vec![("library", library)];
        // Most problems already name the libraries that we tried.
        let problem = self.probe.problem.as_deref().unwrap_or_default();
        if self.probe.library.is_none() && !tried.iter().all(|name| problem.contains(name.as_str())) {
            details.extend(tried.iter().map(|name| ("tried", name.clone())));
        }
        details.extend(driver_version.clone().map(|version| ("driver", version)));
        details.extend(runtime_version.clone().map(|version| ("runtime", version)));
        details.extend(tracer.clone().map(|tracer| ("traces by", tracer)));
        details
    }

    /// Returns the vendor's run-time compiler; the CPU backend has none.
    fn runtime_compiler(&self) -> Option<Tool> {
        let (name, what, how) = match self.name {
            "cuda" => (
                "NVRTC",
                "compiles for CUDA at run time",
                "Needed only if kernels were not built with nvcc. Install the CUDA toolkit, or the Python package \
                 nvidia-cuda-nvrtc. The variable GPUSTREAM_NVRTC_LIBRARY names its path.",
            ),
            "hip" => (
                "HIPRTC",
                "compiles for HIP at run time",
                "Needed only if kernels were not built with hipcc. It comes with ROCm (package hiprtc), and from 5.x \
                 in libamdhip64. The variable GPUSTREAM_HIPRTC_LIBRARY names its path.",
            ),
            _ => return None,
        };
        let version = self.probe.runtime_compiler.clone();
        let found = version.map(|version| Found { version, ..Found::default() });
        Some(Tool::new(name, what, found.ok_or(Missing { tried: Vec::new(), how })))
    }

    fn json(&self) -> Value {
        let Probe {
            library, tried, driver_version, runtime_version, runtime_compiler, tracer, problem, ..
        } = &self.probe;
        json!({
            "name": self.name,
            "library": library.as_ref().map(|path| path.display().to_string()),
            "tried": tried,
            "driver_version": driver_version,
            "runtime_version": runtime_version,
            "runtime_compiler": runtime_compiler,
            "tracer": tracer,
            "problem": problem,
            "devices": self.devices.iter().map(DeviceReport::json).collect::<Value>(),
            "links": self.links.json(),
        })
    }
}

impl DeviceReport {
    /// Returns the report, and the device if we could open it.
    fn collect(backend: &dyn Backend, ordinal: usize) -> (Self, Option<Device>) {
        let name = format!("{}:{ordinal}", backend.name());
        match Device::open_on(backend, ordinal, DeviceOptions::default()) {
            Ok(device) => {
                let report = Self {
                    name,
                    info: Some(device.info().clone()),
                    free: device.memory().ok().map(|memory| memory.free),
                    problem: round_trip(&device).err().map(|error| error.to_string()),
                };
                (report, Some(device))
            }
            Err(error) => (Self { name, info: None, free: None, problem: Some(error.to_string()) }, None),
        }
    }

    /// Returns the device's name and those by UUID and PCI address, if it has any.
    fn other_names(&self) -> Option<(&str, Vec<String>)> {
        let info = self.info.as_ref()?;
        let names = [info.uuid.clone(), info.pci.map(|pci| pci.to_string())].into_iter().flatten();
        let names: Vec<_> = names.map(|name| format!("{}:{name}", info.backend)).collect();
        (!names.is_empty()).then_some((&*self.name, names))
    }

    fn json(&self) -> Value {
        let info = self.info.as_ref();
        json!({
            "device": self.name,
            "uuid": info.map(|info| &info.uuid),
            "pci": info.and_then(|info| info.pci).map(|pci| pci.to_string()),
            "name": info.map(|info| &info.name),
            "arch": info.map(|info| &info.arch),
            "total_memory_bytes": info.map(|info| info.total_memory),
            "free_memory_bytes": self.free,
            "multiprocessors": info.map(|info| info.multiprocessors),
            "warp_size": info.map(|info| info.warp_size),
            "async_engine_count": info.map(|info| info.limits.async_engine_count),
            "concurrent_kernels": info.map(|info| info.features.concurrent_kernels),
            "problem": self.problem,
        })
    }
}

fn cxx() -> Result<Found, Missing> {
    let cxx = CxxCompiler::find(None)?;
    let targets = cxx.levels().iter().map(|&level| level.to_owned()).collect();
    let path = Some(on_path(&cxx.path).display().to_string());
    Ok(Found { version: cxx.version, path, targets, ..Found::default() })
}

fn nvcc() -> Result<Found, Missing> {
    let nvcc = Nvcc::find()?;
    let targets = nvcc.targets().unwrap_or_default();
    let (path, by) = (Some(nvcc.path.display().to_string()), Some(nvcc.found_by));
    Ok(Found { version: nvcc.version, path, by, targets, on_demand: !nvcc.system })
}

fn hip() -> Result<Found, Missing> {
    let (hip, _) = HipCompiler::search(&DEFAULT_HIP)?;
    let targets = hip.supported(&HIP_TARGETS).into_iter().map(str::to_owned).collect();
    let (path, by) = (Some(hip.path.display().to_string()), Some(hip.found_by));
    Ok(Found { version: hip.version, path, by, targets, on_demand: !hip.system })
}

/// Returns the file that a bare name means.
fn on_path(name: &Path) -> PathBuf {
    let bare = name.components().count() == 1;
    let folders = std::env::var_os("PATH").filter(|_| bare).unwrap_or_default();
    let mut files = std::env::split_paths(&folders).map(|folder| folder.join(name));
    files.find(|file| file.is_file()).unwrap_or_else(|| name.to_owned())
}

/// Does the least that must work: an allocation, copies both ways, and a wait. A driver may list a device that you
/// still cannot use.
fn round_trip(device: &Device) -> gpustream::Result<()> {
    let stream = device.stream()?;
    let sent: Vec<u32> = (0..1024).collect();
    let buffer = stream.upload(&sent)?;
    if stream.download(&buffer)? == sent {
        return Ok(());
    }
    let message = "what was copied to the device came back changed";
    Err(gpustream::Error::new(gpustream::ErrorKind::Driver, message))
}

fn copies(engines: u32) -> String {
    match engines {
        0 => "no".to_owned(),
        1 => "one way at a time (1 engine)".to_owned(),
        n => format!("both ways at once ({n} engines)"),
    }
}

fn gibibytes(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / (1u64 << 30) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_any_backend_is_not_usable() {
        let compilers = vec![Tool::new("C++", "", cxx())];
        let report = Report {
            backends: Vec::new(),
            compilers,
            engines: Vec::new(),
            mathematics: Vec::new(),
            told: Told::collect(),
        };
        assert!(!report.usable());
        assert_eq!(report.json()["usable"], json!(false));
    }

    #[test]
    fn a_device_is_shown_with_the_names_that_open_it() {
        let mut info = DeviceInfo::new(gpustream::BackendName::CUDA, 0);
        info.uuid = Some("GPU-1".into());
        info.pci = "0000:3b:00.0".parse().ok();
        let device = |info| DeviceReport { name: "cuda:0".into(), info, free: None, problem: None };
        let (probe, links) = (Probe::default(), Links::default());
        let devices = vec![device(Some(info)), device(None)];
        let backends = vec![BackendReport { name: "cuda", probe, devices, links }];
        let report = Report {
            backends,
            compilers: vec![Tool::new("C++", "", cxx())],
            engines: Vec::new(),
            mathematics: Vec::new(),
            told: Told::collect(),
        };
        assert!(report.text().contains("cuda:0  cuda:GPU-1  cuda:0000:3b:00.0\n"), "{}", report.text());
        let json = &report.json()["backends"][0]["devices"];
        assert_eq!((&json[0]["uuid"], &json[0]["pci"]), (&json!("GPU-1"), &json!("0000:3b:00.0")));
        assert_eq!((&json[1]["uuid"], &json[1]["pci"]), (&Value::Null, &Value::Null));
    }

    #[test]
    fn a_device_that_fails_its_test_is_listed_as_missing() {
        let device =
            DeviceReport { name: "hip:0".into(), info: None, free: None, problem: Some("no room".into()) };
        let (probe, links) = (Probe::default(), Links::default());
        let backend = BackendReport { name: "hip", probe, devices: vec![device], links };
        let (compilers, engines, mathematics) = (Vec::new(), Vec::new(), Vec::new());
        let report =
            Report { backends: vec![backend], compilers, engines, mathematics, told: Told::collect() };
        assert_eq!(report.missing(), [("hip:0".to_owned(), "no room".to_owned())]);
        assert!(report.text().contains("FAILED"), "{}", report.text());
    }
}
