//! What run-time compilers made, kept on disk.
//!
//! An entry's file name is a hash of its key and the file starts with the key itself, so a collision or a damaged
//! file is seen and compiled again. Entries appear by rename: concurrent processes see whole files only.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use gpustream_hal::{Result, Source};

use crate::device::Device;

const MAGIC: &[u8] = b"gpustream image 1\n";

/// Compiles `source` for `device`, or finds it compiled. A cache that cannot be used costs time, not success.
pub(crate) fn compile(device: &Device, source: &Source<'_>) -> Result<Vec<u8>> {
    let key = key(source, &device.info().arch, &device.0.raw.compiler()?);
    let path = folder().map(|folder| entry_path(&folder, &key));
    if let Some(image) = path.as_deref().and_then(|path| load(path, &key)) {
        return Ok(image);
    }
    // SAFETY: the options are the build's, or of the one who wrote the source, which is trusted to run.
    let image = unsafe { device.0.raw.compile(source) }?;
    if let Some(path) = path {
        store(&path, &key, &image);
    }
    Ok(image)
}

/// `GPUSTREAM_CACHE_DIR`, or `gpustream/images` in the user's cache folder.
fn folder() -> Option<PathBuf> {
    let from = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    from("GPUSTREAM_CACHE_DIR").or_else(|| {
        let caches = from("XDG_CACHE_HOME").or_else(|| Some(from("HOME")?.join(".cache")))?;
        Some(caches.join("gpustream").join("images"))
    })
}

/// All that the compiled image depends on.
fn key(source: &Source<'_>, arch: &str, compiler: &str) -> Vec<u8> {
    let mut key = Vec::new();
    let mut add = |text: &str| {
        key.extend_from_slice(&(text.len() as u64).to_le_bytes());
        key.extend_from_slice(text.as_bytes());
    };
    add(compiler);
    add(arch);
    add(source.name);
    add(source.text);
    source.headers.iter().for_each(|(name, text)| {
        add(name);
        add(text);
    });
    source.options.iter().for_each(|option| add(option));
    key
}

fn hash(parts: &[&[u8]]) -> u64 {
    let mut hasher = DefaultHasher::new();
    parts.hash(&mut hasher);
    hasher.finish()
}

fn entry_path(folder: &Path, key: &[u8]) -> PathBuf {
    folder.join(format!("{:016x}.image", hash(&[key])))
}

/// Magic, checksum of the rest, length of the key, key, image.
fn load(path: &Path, key: &[u8]) -> Option<Vec<u8>> {
    let file = fs::read(path).ok()?;
    let (checksum, rest) = file.strip_prefix(MAGIC)?.split_first_chunk::<8>()?;
    let intact = u64::from_le_bytes(*checksum) == hash(&[rest]);
    let (length, rest) = rest.split_first_chunk::<8>()?;
    let same = intact && u64::from_le_bytes(*length) == key.len() as u64;
    let image = rest.strip_prefix(key).filter(|_| same)?;
    Some(image.to_vec())
}

fn store(path: &Path, key: &[u8], image: &[u8]) {
    static SERIAL: AtomicU32 = AtomicU32::new(0);
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    let temporary = path.with_extension(format!("{}.{serial}.tmp", std::process::id()));
    let rest = [&(key.len() as u64).to_le_bytes(), key, image].concat();
    let file = [MAGIC, &hash(&[&rest]).to_le_bytes(), &rest].concat();
    let written = path.parent().is_some_and(|folder| fs::create_dir_all(folder).is_ok())
        && fs::write(&temporary, file).is_ok()
        && fs::rename(&temporary, path).is_ok();
    if !written {
        let _ = fs::remove_file(temporary);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: Source<'_> =
        Source { name: "a.cu", text: "text", headers: &[("h", "header")], options: &["-O3"] };

    #[test]
    fn entries_survive_and_damage_is_seen() {
        let folder = std::env::temp_dir().join(format!("gpustream-cache-test-{}", std::process::id()));
        let key = key(&SOURCE, "sm_90", "nvrtc 13.0");
        let path = entry_path(&folder, &key);
        assert_eq!(load(&path, &key), None);
        store(&path, &key, b"image");
        assert_eq!(load(&path, &key).as_deref(), Some(&b"image"[..]));
        assert_eq!(load(&path, b"another key"), None, "a collision of hashes");
        let mut damaged = fs::read(&path).unwrap();
        *damaged.last_mut().unwrap() ^= 1;
        fs::write(&path, &damaged).unwrap();
        assert_eq!(load(&path, &key), None, "a flipped bit");
        fs::write(&path, &damaged[..20]).unwrap();
        assert_eq!(load(&path, &key), None, "a truncated file");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn everything_counts_towards_the_key() {
        let keys = [
            key(&SOURCE, "sm_90", "nvrtc 13.0"),
            key(&SOURCE, "sm_80", "nvrtc 13.0"),
            key(&SOURCE, "sm_90", "nvrtc 13.1"),
            key(&Source { text: "other", ..SOURCE }, "sm_90", "nvrtc 13.0"),
            key(&Source { headers: &[], ..SOURCE }, "sm_90", "nvrtc 13.0"),
            key(&Source { options: &[], ..SOURCE }, "sm_90", "nvrtc 13.0"),
        ];
        for (index, one) in keys.iter().enumerate() {
            assert!(keys[index + 1..].iter().all(|other| one != other), "{index}");
        }
    }
}
