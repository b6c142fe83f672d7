//! AMD's compiler, or a plain Clang instead.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Missing, ask, is_program, on_path, place, program, run, why_not_there};
use crate::diagnostic::{Error, Result as BuildResult};
use crate::headers::write_if_changed;

const HOW: &str = "Install ROCm (hipcc or amdclang++), or on Debian a newer clang next to its HIP packages: \
                   `scripts/setup.sh hip` of this project, or `apt-get install hipcc rocm-device-libs \
                   libamdhip64-dev clang-19 lld-19`. The variables HIPCC and ROCM_PATH name another place. Without \
                   a compiler, kernels are compiled at run time by HIPRTC.";

/// The oldest Clang that we try. Older ones lack most of the targets.
const OLDEST_CLANG: u32 = 17;
const NEWEST_CLANG: u32 = 22;

/// Which kind of program compiles for AMD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HipKind {
    /// AMD's driver script or its own build of Clang. It finds its own headers and device libraries.
    Rocm,
    /// A distribution's Clang. We must tell it the folders.
    Clang,
}

/// A compiler for AMD GPUs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HipCompiler {
    /// The executable.
    pub path: PathBuf,
    /// Which kind of program it is.
    pub kind: HipKind,
    /// The line of `--version` that names the Clang version inside.
    pub version: String,
    /// Where we found the program: a variable's name, `PATH`, or a folder.
    pub found_by: String,
    /// The folder with the device libraries, if we must tell the compiler.
    pub device_libs: Option<PathBuf>,
    /// True if the program belongs to a ROCm installation or a variable named it.
    pub system: bool,
}

struct Candidate {
    path: PathBuf,
    kind: HipKind,
    found_by: String,
    /// True if you chose this program explicitly. If it does not work, we try no other.
    binding: bool,
    system: bool,
}

impl HipCompiler {
    /// Finds a compiler that can build for all of `targets` (`gfx90a` and so on). Looks in `HIPCC`,
    /// `ROCM_PATH`, `HIP_PATH`, `/opt/rocm`, `PATH`, and then for a plain Clang of version 17 or newer.
    ///
    /// # Errors
    /// [`Missing`] with everything that we tried, and what each compiler could not do.
    pub fn find(targets: &[&str]) -> Result<Self, Missing> {
        match Self::search(targets)? {
            (compiler, left_out) if left_out.is_empty() => Ok(compiler),
            (compiler, left_out) => Err(Missing {
                what: format!("No compiler that builds kernels for HIP on {}.", targets.join(", ")),
                tried: vec![format!(
                    "{}: {} ({}): it cannot build for {}",
                    compiler.found_by,
                    compiler.path.display(),
                    compiler.version,
                    left_out.join(", ")
                )],
                how: HOW,
            }),
        }
    }

    /// Finds a compiler as [`find`](Self::find) does. If no compiler can build for all of `targets`, returns
    /// the first one that can build for some, and the targets that it cannot build for.
    ///
    /// # Errors
    /// [`Missing`] if no compiler can build for any of them.
    pub fn search<'a>(targets: &[&'a str]) -> Result<(Self, Vec<&'a str>), Missing> {
        Self::search_among(candidates(), targets)
    }

    /// Searches only ROCm installations and the programs that variables name. Fast if there are none.
    pub(crate) fn search_system<'a>(targets: &[&'a str]) -> Result<(Self, Vec<&'a str>), Missing> {
        Self::search_among(candidates().into_iter().filter(|c| c.system).collect(), targets)
    }

    fn search_among<'a>(
        candidates: Vec<Candidate>,
        targets: &[&'a str],
    ) -> Result<(Self, Vec<&'a str>), Missing> {
        let mut tried = Vec::new();
        let mut partial = None;
        for candidate in candidates {
            let Candidate { path, kind, found_by, binding, system } = candidate;
            let label = format!("{found_by}: {}", path.display());
            let missing = || format!("not there{}", why_not_there(&found_by));
            let found = if is_program(&path) { version(&path) } else { Err(missing()) };
            let why = match found {
                Ok(version) => {
                    let device_libs = (kind == HipKind::Clang).then(|| device_libs(&path)).flatten();
                    let compiler = Self { path, kind, version, found_by, device_libs, system };
                    let Err(why) = compiler.check(targets) else { return Ok((compiler, Vec::new())) };
                    let supported = compiler.supported(targets);
                    if partial.is_none() && !supported.is_empty() {
                        let left_out = targets.iter().copied().filter(|t| !supported.contains(t));
                        partial = Some((compiler, left_out.collect()));
                    }
                    why
                }
                Err(why) => why,
            };
            tried.push(format!("{label}: {why}"));
            if binding {
                break;
            }
        }
        let targets = targets.join(", ");
        let what = format!("No compiler that builds kernels for HIP on {targets}.");
        partial.ok_or(Missing { what, tried, how: HOW })
    }

    /// Returns those of `targets` that this compiler can build for.
    pub fn supported<'a>(&self, targets: &[&'a str]) -> Vec<&'a str> {
        targets.iter().copied().filter(|target| self.check(&[target]).is_ok()).collect()
    }

    /// Asks the compiler driver which commands it would run. It refuses unknown targets and missing device
    /// libraries at once, so this is cheap.
    fn check(&self, targets: &[&str]) -> Result<(), String> {
        let mut command = Command::new(&self.path);
        command.args(["-###", "-x", "hip", "--offload-device-only", "--no-gpu-bundle-output", "-nogpuinc"]);
        command.args(targets.iter().map(|target| format!("--offload-arch={target}")));
        match self.kind {
            // We create missing one-constant files later, so the driver must not judge the libraries.
            HipKind::Clang => {
                if self.device_libs.is_none() {
                    return Err("no AMD device libraries (ockl.bc, ocml.bc) were found".to_owned());
                }
                command.arg("-nogpulib");
            }
            HipKind::Rocm => {}
        }
        command.args(["-c", "/dev/null"]);
        let output = run(&mut command).map_err(|e| e.to_string())?;
        let text = String::from_utf8_lossy(&output.stderr);
        match text.lines().find(|line| line.contains("error:")) {
            Some(line) => Err(line.split_once("error:").map_or(line, |(_, why)| why).trim().to_owned()),
            None if output.status.success() => Ok(()),
            None => Err("it failed without a message".to_owned()),
        }
    }

    /// Returns the device libraries for `targets`. If the distribution's libraries lack a target, we complete
    /// them below `folder`: the only missing file is one that holds the target's number.
    pub(crate) fn complete_device_libs(
        &self,
        targets: &[&str],
        folder: &Path,
    ) -> BuildResult<Option<PathBuf>> {
        let Some(libs) = &self.device_libs else { return Ok(None) };
        let file = |folder: &Path, target: &str| {
            let isa = base_target(target).trim_start_matches("gfx");
            folder.join(format!("oclc_isa_version_{isa}.bc"))
        };
        let missing: Vec<_> = targets.iter().filter(|target| !file(libs, target).exists()).collect();
        if missing.is_empty() {
            return Ok(Some(libs.clone()));
        }
        std::fs::create_dir_all(folder)?;
        for library in super::entries(libs) {
            let Some(name) = library.file_name() else { continue };
            let link = folder.join(name);
            if !link.exists() {
                // Another build script may have created it in the meantime.
                let _ = std::os::unix::fs::symlink(&library, &link);
            }
        }
        for target in missing {
            let number = isa_number(target)
                .ok_or_else(|| Error::message(format!("{target} is not an AMD target such as gfx90a")))?;
            let text = format!(
                "target triple = \"amdgcn-amd-amdhsa\"\n@__oclc_ISA_version = linkonce_odr protected \
                 local_unnamed_addr addrspace(4) constant i32 {number}, align 4\n"
            );
            let output = file(folder, target);
            let assembly = output.with_extension("ll");
            if output.exists() {
                continue;
            }
            write_if_changed(&assembly, text.as_bytes())?;
            // The file gets its name only when it is complete, because a build may be interrupted.
            let unfinished = output.with_extension("tmp");
            let mut command = Command::new(&self.path);
            command.args(["-x", "ir", "--target=amdgcn-amd-amdhsa", "-nogpulib", "-emit-llvm", "-c"]);
            command.arg(&assembly).arg("-o").arg(&unfinished);
            let result = run(&mut command)?;
            if !result.status.success() {
                return Err(Error::message(format!(
                    "cannot make the device library for {target}: {}",
                    String::from_utf8_lossy(&result.stderr).trim()
                )));
            }
            std::fs::rename(&unfinished, &output)?;
        }
        Ok(Some(folder.to_owned()))
    }
}

/// Returns a target without its feature suffixes: `gfx90a` for `gfx90a:xnack-`.
pub(crate) fn base_target(target: &str) -> &str {
    target.split(':').next().unwrap_or(target)
}

/// Returns the number that the device libraries call `__oclc_ISA_version`: 9010 for gfx90a, 12001 for
/// gfx1201. The last two digits of the name are hexadecimal.
fn isa_number(target: &str) -> Option<u32> {
    let digits = base_target(target).strip_prefix("gfx")?;
    let split = digits.len().checked_sub(2)?;
    let major: u32 = digits.get(..split)?.parse().ok()?;
    let minor = digits.get(split..split + 1)?.chars().next()?.to_digit(16)?;
    let stepping = digits.get(split + 1..)?.chars().next()?.to_digit(16)?;
    Some(major * 1000 + minor * 100 + stepping)
}

fn candidates() -> Vec<Candidate> {
    let mut list = Vec::new();
    let mut add = |path: PathBuf, kind, found_by: &str, binding, system| {
        list.push(Candidate { path, kind, found_by: found_by.to_owned(), binding, system });
    };
    if let Some(path) = program("HIPCC") {
        let plain = path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("clang"));
        add(path, if plain { HipKind::Clang } else { HipKind::Rocm }, "HIPCC", true, true);
    }
    for name in ["ROCM_PATH", "HIP_PATH"] {
        if let Some(home) = place(name) {
            let compilers = rocm_compilers(&home);
            for (i, path) in compilers.iter().enumerate() {
                // One of them must exist, so the last one ends the search.
                add(path.clone(), HipKind::Rocm, name, i + 1 == compilers.len(), true);
            }
        }
    }
    for path in rocm_compilers(Path::new("/opt/rocm")) {
        add(path, HipKind::Rocm, "/opt/rocm", false, true);
    }
    for name in ["hipcc", "amdclang++"] {
        match on_path(name) {
            // A distribution's hipcc lacks most targets, but a newer Clang next to it may have them all.
            Some(path) => {
                let rocm = path.canonicalize().is_ok_and(|p| !p.starts_with("/usr/bin"));
                add(path, HipKind::Rocm, "PATH", false, rocm);
            }
            None => add(PathBuf::from(name), HipKind::Rocm, "PATH", false, true),
        }
    }
    let versions = (OLDEST_CLANG..=NEWEST_CLANG).rev();
    for name in versions.map(|v| format!("clang-{v}")).chain(["clang".to_owned()]) {
        if let Some(path) = on_path(&name) {
            add(path, HipKind::Clang, "PATH", false, false);
        }
    }
    list
}

fn rocm_compilers(home: &Path) -> Vec<PathBuf> {
    ["bin/hipcc", "bin/amdclang++", "llvm/bin/clang++"].iter().map(|p| home.join(p)).collect()
}

fn version(path: &Path) -> Result<String, String> {
    let text = ask(path, &["--version"])?;
    let line = text.lines().find(|line| line.contains("clang version")).ok_or("it is not a Clang")?;
    let number = line.split_once("clang version ").map_or("", |(_, v)| v);
    let major: u32 = number.split('.').next().and_then(|v| v.parse().ok()).unwrap_or(0);
    let plain = path.file_name().is_some_and(|n| n == "clang");
    if plain && major < OLDEST_CLANG {
        return Err(format!("version {major} is older than {OLDEST_CLANG}"));
    }
    Ok(line.trim().to_owned())
}

/// Returns the folder with the AMD device libraries for a plain Clang.
fn device_libs(clang: &Path) -> Option<PathBuf> {
    let mut folders = Vec::new();
    for name in ["HIP_DEVICE_LIB_PATH", "DEVICE_LIB_PATH"] {
        folders.extend(place(name));
    }
    for name in ["ROCM_PATH", "HIP_PATH"] {
        folders.extend(place(name).map(|home| home.join("amdgcn/bitcode")));
    }
    folders.push("/opt/rocm/amdgcn/bitcode".into());
    if let Ok(resources) = ask(clang, &["-print-resource-dir"]) {
        let resources = PathBuf::from(resources.trim());
        folders.push(resources.join("lib/amdgcn/bitcode"));
        folders.push(resources.join("amdgcn/bitcode"));
    }
    folders.push("/usr/lib/x86_64-linux-gnu/amdgcn/bitcode".into());
    folders.push("/usr/lib/aarch64-linux-gnu/amdgcn/bitcode".into());
    folders.push("/usr/lib/amdgcn/bitcode".into());
    folders.push("/usr/lib64/amdgcn/bitcode".into());
    folders.into_iter().find(|folder| folder.join("ockl.bc").exists() && folder.join("ocml.bc").exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn isa_numbers_are_those_of_the_device_libraries() {
        for (target, number) in [
            ("gfx90a", 9010),
            ("gfx942:xnack-", 9402),
            ("gfx1030", 10300),
            ("gfx1100", 11000),
            ("gfx1151", 11501),
        ] {
            assert_eq!(isa_number(target), Some(number), "{target}");
        }
        assert_eq!(isa_number("sm_80"), None);
        assert_eq!(isa_number("gfx"), None);
    }
}
