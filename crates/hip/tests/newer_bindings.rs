//! Proves our declarations against HIP versions that hip-runtime-sys does not know, because it ends with 5.4.
//!
//! The crate cubecl-hip-sys carries bindings from 6.2 to 7.14, which bindgen wrote from AMD's headers. We cannot build
//! that crate, because its build script depends on the installed ROCm. So we make each of its files into a crate that
//! replaces hip-runtime-sys, and compile gpustream-hip with it. The proof in its sources must then compare every
//! declaration.
#![allow(clippy::unwrap_used, clippy::panic)] // Also in the tests' helpers.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs};

/// What AMD's headers define by macros, because bindgen does not see macros.
const MACROS: &str = "
pub use hipDeviceProp_tR0600 as hipDeviceProp_t;
pub use hipLaunchAttributeID as hipKernelNodeAttrID;
pub use hipLaunchAttributeValue as hipKernelNodeAttrValue;
impl hipKernelNodeAttrID {
    pub const hipKernelNodeAttributeCooperative: u32 = Self::hipLaunchAttributeCooperative;
}
";

/// The functions that some of these versions do not have yet, as we declare them.
const YOUNGER: [(&str, &str); 1] = [(
    "pub fn hipMemcpyBatchAsync(",
    "
pub enum hipMemcpyAttributes {}
extern \"C\" {
    pub fn hipMemcpyBatchAsync(
        dsts: *mut *mut ::std::os::raw::c_void, srcs: *mut *mut ::std::os::raw::c_void, sizes: *mut usize,
        count: usize, attributes: *mut hipMemcpyAttributes, firsts: *mut usize, attribute_count: usize,
        failed: *mut usize, stream: hipStream_t,
    ) -> hipError_t;
}
",
)];

/// A crate outside the workspace that depends on gpustream-hip, with the crate `bindings` instead of hip-runtime-sys.
struct Proof(PathBuf);

impl Proof {
    fn new(name: &str) -> Self {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("newer-bindings").join(name);
        for part in ["src", "bindings/src"] {
            fs::create_dir_all(folder.join(part)).unwrap();
            fs::write(folder.join(part).join("lib.rs"), "").unwrap();
        }
        // The lock file has cubecl-hip-sys's version, as for every dependency.
        let manifest = format!(
            "[package]\nname = 'proof'\nversion = '0.0.0'\nedition = '2024'\n\n[workspace]\n\n\
             [dependencies]\ngpustream-hip.path = '{}'\n\n\
             [target.'cfg(any())'.dependencies]\ncubecl-hip-sys = '*'\n\n\
             [patch.crates-io]\nhip-runtime-sys.path = 'bindings'\n",
            workspace.join("crates/hip").display()
        );
        fs::write(folder.join("Cargo.toml"), manifest).unwrap();
        let lock = fs::read_to_string(workspace.join("Cargo.lock")).unwrap();
        let (_, version) = lock.split_once("name = \"hip-runtime-sys\"\nversion = \"").unwrap();
        let version = version.split('"').next().unwrap();
        let manifest =
            format!("[package]\nname = 'hip-runtime-sys'\nversion = '{version}'\nedition = '2021'\n");
        fs::write(folder.join("bindings/Cargo.toml"), manifest).unwrap();
        fs::write(folder.join("Cargo.lock"), lock).unwrap();
        Self(folder)
    }

    fn cargo(&self, args: &[&str]) -> Output {
        Command::new(env!("CARGO"))
            .args(args)
            .current_dir(&self.0)
            .env("CARGO_TARGET_DIR", self.0.join("target"))
            .env("CARGO_ENCODED_RUSTFLAGS", "--cfg=newer_bindings")
            .output()
            .unwrap()
    }

    /// Returns the bindings of each minor version's last release, with its number, the oldest first. If the sources are not on
    /// this machine, cargo fetches them.
    fn bindings(&self) -> Vec<(u32, String)> {
        let question = ["metadata", "--format-version", "1", "--offline"];
        let mut answer = self.cargo(&question);
        if !answer.status.success() {
            answer = self.cargo(&question[..3]);
        }
        assert!(
            answer.status.success(),
            "the sources of cubecl-hip-sys are neither here nor to be had; `cargo fetch` brings them:\n{}",
            String::from_utf8_lossy(&answer.stderr)
        );
        let metadata: serde_json::Value = serde_json::from_slice(&answer.stdout).unwrap();
        let packages = metadata["packages"].as_array().unwrap();
        let package = packages.iter().find(|package| package["name"] == "cubecl-hip-sys").unwrap();
        let manifest = Path::new(package["manifest_path"].as_str().unwrap());
        let mut last = BTreeMap::new();
        for file in fs::read_dir(manifest.with_file_name("src").join("bindings")).unwrap() {
            let text = fs::read_to_string(file.unwrap().path()).unwrap();
            let Some((_, version)) = text.split_once("pub const HIP_VERSION: u32 = ") else { continue };
            let version: u32 = version.split(';').next().unwrap().parse().unwrap();
            let known = last.entry(version / 100_000).or_insert((version, String::new()));
            *known = known.clone().max((version, text));
        }
        last.into_values().collect()
    }

    /// Compiles gpustream-hip with these bindings. If the compiler refuses, returns what it says.
    fn check(&self, bindings: &str) -> Result<(), String> {
        let adapted = like_hip_runtime_sys(bindings);
        fs::write(self.0.join("bindings/src/lib.rs"), &adapted).unwrap();
        let output = self.cargo(&["check", "--quiet", "--offline"]);
        if output.status.success() {
            return Ok(());
        }
        let mut errors = String::from_utf8_lossy(&output.stderr).into_owned();
        // The compiler names only the place, and there we find which function differs.
        let places: Vec<_> = errors.split("bindings/src/lib.rs:").skip(1).map(str::to_owned).collect();
        for place in places {
            let line: usize = place.split(':').next().unwrap().parse().unwrap();
            writeln!(errors, "{line}: {}", adapted.lines().nth(line - 1).unwrap()).unwrap();
        }
        Err(errors)
    }
}

/// Writes enumerations as hip-runtime-sys has them, with their values inside their types.
fn like_hip_runtime_sys(bindings: &str) -> String {
    let mut adapted = String::from("#![allow(warnings)]\n");
    let mut enumerations = Vec::new();
    for item in bindings.split_inclusive(';') {
        let start = item.rfind("pub const ").or_else(|| item.rfind("pub type ")).unwrap_or(item.len());
        let (before, declaration) = item.split_at(start);
        adapted.push_str(before);
        if let Some((name, ty, value)) = constant(declaration)
            && let Some(name) = name.strip_prefix(ty).and_then(|name| name.strip_prefix('_'))
        {
            enumerations.push(ty);
            write!(adapted, "impl {ty} {{ pub const {name}: u32 = {value} as u32; }}").unwrap();
        } else if let Some((name, integer)) = alias(declaration)
            && enumerations.contains(&name)
        {
            adapted.push_str("#[repr(transparent)] #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]");
            write!(adapted, "pub struct {name}(pub {integer});").unwrap();
        } else {
            adapted.push_str(declaration);
        }
    }
    for (name, declaration) in YOUNGER {
        if !bindings.contains(name) {
            adapted.push_str(declaration);
        }
    }
    adapted + MACROS
}

/// Returns a constant's name, type and value.
fn constant(declaration: &str) -> Option<(&str, &str, &str)> {
    let (name, rest) = declaration.strip_prefix("pub const ")?.strip_suffix(';')?.split_once(':')?;
    let (ty, value) = rest.split_once('=')?;
    Some((name.trim(), ty.trim(), value.trim()))
}

/// Returns an alias and the type behind it.
fn alias(declaration: &str) -> Option<(&str, &str)> {
    let (name, ty) = declaration.strip_prefix("pub type ")?.strip_suffix(';')?.split_once('=')?;
    Some((name.trim(), ty.trim()))
}

#[test]
fn declarations_equal_those_of_every_later_version() {
    let proof = Proof::new("all");
    let all = proof.bindings();
    for (version, bindings) in &all {
        proof.check(bindings).unwrap_or_else(|errors| panic!("HIP {version}:\n{errors}"));
    }
    let versions: Vec<_> = all.iter().map(|(version, _)| version / 100_000).collect();
    assert_eq!(versions, [602, 603, 604, 700, 701, 702, 714]);
}

/// Bindings that differ in one place are refused there. So we know that each kind of declaration is compared.
#[test]
fn difference_of_any_kind_is_found() {
    let proof = Proof::new("changed");
    let (_, bindings) = proof.bindings().pop().unwrap();
    let changes = [
        // A prototype, that of a younger function, one of HIPRTC.
        ("pub fn hipStreamQuery(stream", "pub fn hipStreamQuery(more: u8, stream", "hipStreamQuery"),
        (
            "pub fn hipModuleLaunchCooperativeKernel(\n        f:",
            "pub fn hipModuleLaunchCooperativeKernel(\n        f: *mut u8, g:",
            "hipModuleLaunchCooperativeKernel",
        ),
        ("pub fn hipMemcpyBatchAsync(", "pub fn hipMemcpyBatchAsync(more: u8, ", "hipMemcpyBatchAsync"),
        ("pub fn hiprtcGetCode(", "pub fn hiprtcGetCode(more: u8, ", "hiprtcGetCode"),
        // The values of an enumeration, an error, a flag; the layouts of a struct and of the properties.
        (
            "hipMemcpyDeviceToHost: hipMemcpyKind = 2",
            "hipMemcpyDeviceToHost: hipMemcpyKind = 7",
            "hipMemcpyDeviceToHost",
        ),
        ("hipErrorNotReady: hipError_t = 600", "hipErrorNotReady: hipError_t = 601", "hipErrorNotReady"),
        (
            "hipHostMallocCoherent: u32 = 1073741824",
            "hipHostMallocCoherent: u32 = 4",
            "hipHostMallocCoherent",
        ),
        (
            "pub struct hipMemsetParams {",
            "pub struct hipMemsetParams {\n    pub more: usize,",
            "hipMemsetParams",
        ),
        (
            "pub struct hipDeviceProp_tR0600 {",
            "pub struct hipDeviceProp_tR0600 {\n    pub more: usize,",
            "totalGlobalMem",
        ),
    ];
    for (from, to, named) in changes {
        assert_eq!(bindings.matches(from).count(), 1, "{from}");
        let errors = proof.check(&bindings.replace(from, to)).unwrap_err();
        assert!(errors.contains(named), "{to}:\n{errors}");
    }
}
